"""Which names the text of a cell reads before it has surely set them.

Owns: the walk over a cell's statements in the order in which they run. Does not own: what becomes of a name
(`surroundings.py`).

A name counts as set only where every way through the cell sets it: one that a branch, a loop or a handler sets may be
the notebook's own when it is read later, and a change of that must not pass for the same cell. What a function of the
cell reads is read where the function is first named, for it cannot run earlier. A `with` is taken to run its body
whole, unless it says `suppress`. Where in doubt a name is read: a result is then computed once more, and none is
reused wrongly.

Source: design page "Overview", In the notebook (`%%experiment`).
"""

from __future__ import annotations

import ast
import dis
from collections.abc import Iterable, Iterator
from types import CodeType
from typing import cast


def of_cell(tree: ast.Module) -> list[str]:
    """Names that the cell reads from outside, in order, each once."""
    walk = _Walk()
    walk.all(tree.body)
    for name in list(walk.waiting):
        walk.call(name)
    return list(walk.read)


def of_code(code: CodeType) -> list[str]:
    """Names that this code, a class body or a cell too, reads from outside before it sets them."""
    own: set[str] = set()
    names: list[str] = []
    for instruction in dis.get_instructions(code):
        if instruction.opname in _SETS:
            own.add(str(instruction.argval))
        elif instruction.opname in _READS and instruction.argval not in own:
            names.append(str(instruction.argval))
    return list(dict.fromkeys(names))


def inner(code: CodeType) -> Iterator[CodeType]:
    """The code within: functions, classes, comprehensions, and theirs."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from inner(constant)


_SETS = frozenset({"STORE_NAME", "STORE_GLOBAL"})
_READS = frozenset({"LOAD_NAME", "LOAD_GLOBAL", "LOAD_FROM_DICT_OR_GLOBALS"})
_Function = ast.FunctionDef | ast.AsyncFunctionDef


class _Walk(ast.NodeVisitor):
    """`done` are the names that are surely set by now, `read` those that were read before."""

    def __init__(self) -> None:
        self.done: set[str] = set()
        self.read: dict[str, None] = {}
        self.waiting: dict[str, dict[str, None]] = {}
        self.calling: set[str] = set()

    def all(self, nodes: Iterable[ast.AST | None]) -> None:
        for node in nodes:
            if node is not None:
                self.visit(node)

    def name(self, name: str) -> None:
        if name not in self.done:
            self.read[name] = None
        self.call(name)

    def call(self, name: str) -> None:
        """Read what the functions and classes of the cell under this name read."""
        if name in self.calling:
            return
        self.calling.add(name)
        for one in self.waiting.get(name, ()):
            self.name(one)
        self.calling.discard(name)

    def perhaps(self, *nodes: ast.AST | None) -> set[str]:
        """Walk what may not run, or not to its end; returns what is set at its end."""
        before = set(self.done)
        self.all(nodes)
        after, self.done = self.done, before
        return after

    def one_of(self, ways: Iterable[tuple[list[ast.stmt], set[str]]]) -> None:
        """Only what every way sets is set; a way that leaves by `raise`, `break` or `continue` does not arrive here."""
        arrive = [done for body, done in ways if not (body and isinstance(body[-1], _LEAVES))]
        self.done = {name for name in arrive[0] if all(name in one for one in arrive)} if arrive else self.done

    # -- names ---------------------------------------------------------------------------------------------------------

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load):
            self.name(node.id)
        elif isinstance(node.ctx, ast.Store):
            self.done.add(node.id)
        else:
            self.done.discard(node.id)

    def visit_Assign(self, node: ast.Assign) -> None:
        self.all([node.value, *node.targets])

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if isinstance(node.target, ast.Name):
            self.name(node.target.id)
        self.all([node.value, node.target])

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self.all([node.annotation, node.value])
        if node.value is not None or not isinstance(node.target, ast.Name):
            self.visit(node.target)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        self.all([node.value, node.target])

    def visit_Import(self, node: ast.Import) -> None:
        self.done.update(one.asname or one.name.partition(".")[0] for one in node.names)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        self.done.update(one.asname or one.name for one in node.names)

    # -- code of its own ----------------------------------------------------------------------------------------------

    def _at_once(self, node: ast.expr) -> None:
        code = compile(ast.Expression(node), "<cell>", "eval", dont_inherit=True)
        self._reads_of(code)
        for one in inner(code):
            self._reads_of(one)

    def _reads_of(self, code: CodeType) -> None:
        for name in of_code(code):
            self.name(name)

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = visit_Lambda = _at_once

    def _defined(self, node: _Function | ast.ClassDef) -> None:
        code = compile(ast.Module([node], []), "<cell>", "exec", dont_inherit=True)
        self._reads_of(code)
        self.done.add(node.name)
        # Added to what another branch may have defined under the name.
        self.waiting.setdefault(node.name, {}).update((name, None) for one in inner(code) for name in of_code(one))

    visit_FunctionDef = visit_AsyncFunctionDef = visit_ClassDef = _defined

    # -- ways through the cell ----------------------------------------------------------------------------------------

    def visit_With(self, node: ast.With) -> None:
        self.all(node.items)
        swallows = any("suppress" in ast.unparse(item.context_expr) for item in node.items)
        self.perhaps(*node.body) if swallows else self.all(node.body)

    def visit_If(self, node: ast.If) -> None:
        self.visit(node.test)
        self.one_of([(way, self.perhaps(*way)) for way in (node.body, node.orelse)])

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self.visit(node.test)
        self.done = self.perhaps(node.body) & self.perhaps(node.orelse)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        self.visit(node.values[0])
        self.perhaps(*node.values[1:])

    def visit_For(self, node: ast.For) -> None:
        self.visit(node.iter)
        self.perhaps(node.target, *node.body)
        self.perhaps(*node.orelse)

    def visit_While(self, node: ast.While) -> None:
        self.visit(node.test)
        self.perhaps(*node.body)
        self.perhaps(*node.orelse)

    def visit_Try(self, node: ast.Try) -> None:
        whole = [*node.body, *node.orelse]
        ways = [(whole, self.perhaps(*whole))]
        for handler in node.handlers:
            ways.append((handler.body, self.perhaps(handler)))
        gained = self.perhaps(*node.finalbody) - self.done
        self.one_of(ways)
        self.done |= gained

    def visit_TryStar(self, node: ast.AST) -> None:
        self.visit_Try(cast("ast.Try", node))

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        self.all([node.type])
        if node.name:
            self.done.add(node.name)
        self.all(node.body)
        self.done.discard(node.name or "")

    def visit_Match(self, node: ast.Match) -> None:
        self.visit(node.subject)
        for case in node.cases:
            self.perhaps(case)

    def visit_MatchAs(self, node: ast.MatchAs) -> None:
        self.all([node.pattern])
        self.done.update([node.name] if node.name else [])

    def visit_MatchStar(self, node: ast.MatchStar) -> None:
        self.done.update([node.name] if node.name else [])

    def visit_MatchMapping(self, node: ast.MatchMapping) -> None:
        self.all([*node.keys, *node.patterns])
        self.done.update([node.rest] if node.rest else [])


_LEAVES = (ast.Raise, ast.Break, ast.Continue)
