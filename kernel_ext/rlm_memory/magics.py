"""`%%experiment` and `%keep`: a cell that is reused or run and recorded, and a variable that is recorded.

Owns: the options, running a cell's statements, and which names the shell gets and loses. Does not own: the decision
and the record (`computations.py`), what a cell reads (`surroundings.py`).

A reused cell is not run: its value is loaded, and nothing else that the cell would have set exists. What running needs
is imported when a magic is first used.

Source: design page "Overview", In the notebook.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import shlex
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from types import CodeType
from typing import TYPE_CHECKING, Any, Final, NoReturn, cast

from rlm_memory import errors
from rlm_memory.kept import state
from rlm_memory.kernel import connection
from rlm_memory.steps import run

if TYPE_CHECKING:
    from rlm_memory.computations import Computation
    from rlm_memory.results import Recorded

NAMES: Final = (("cell", "experiment"), ("line", "keep"))


def add(shell: Any) -> None:
    """Give a shell our magics. One of another owner under such a name stays. Idempotent."""
    made: dict[str, Any] = {"experiment": _experiment_of(shell), "keep": _keep_of(shell)}
    ours = cast("dict[str, Any]", state().setdefault("magics", {}))
    for kind, name in NAMES:
        table = shell.magics_manager.magics[kind]
        if name in table and table[name] is not ours.get(name):
            continue
        ours[name] = table[name] = made[name]


def remove(shell: Any) -> None:
    """Take them away again, where they are still ours."""
    ours = cast("dict[str, Any]", state().get("magics", {}))
    for kind, name in NAMES:
        table = shell.magics_manager.magics[kind]
        if name in table and table[name] is ours.get(name):
            del table[name]
    ours.clear()


def _experiment_of(shell: Any) -> Callable[..., Any]:
    def experiment(line: str, cell: str) -> Any:
        return run_cell(shell, line, cell)

    experiment.__doc__ = _cell_options().format_help()
    return experiment


def _keep_of(shell: Any) -> Callable[..., Any]:
    def keep(line: str) -> Any:
        return keep_variable(shell, line)

    keep.__doc__ = _keep_options().format_help()
    return keep


# -- options -----------------------------------------------------------------------------------------------------------


class _Options(argparse.ArgumentParser):
    """An argument parser that raises our error instead of ending the process."""

    def error(self, message: str) -> NoReturn:
        raise errors.Invalid(f"{self.prog}: {message}; {self.prog}? shows the options")


def _common(prog: str, description: str) -> _Options:
    options = _Options(prog=prog, description=description, add_help=False, allow_abbrev=False)
    options.add_argument("--title", help="one line; required for a cell, the variable's name by default for %%keep")
    options.add_argument("--source", default="unspecified", help="where the data came from")
    options.add_argument("--source-version", default="unknown", help="its version; without one nothing is reused")
    options.add_argument("--tag", action="append", help="a tag; may be repeated")
    options.add_argument("--summary", help="by default made from the schema")
    options.add_argument("--lossy", action="store_true", help="allow the changes that a refusal names")
    return options


def _cell_options() -> _Options:
    options = _common("%%experiment", "Reuse the recorded result of this cell, or run it and record its result.")
    options.add_argument("--result", metavar="NAME", help="the variable that is the result, else the last expression")
    options.add_argument("--ignore", action="append", default=[], metavar="NAME", help="a name that does not count")
    options.add_argument("--refresh", action="store_true", help="run and record again, whatever is recorded")
    return options


def _keep_options() -> _Options:
    options = _common("%keep", "Record a variable.")
    options.add_argument("name", help="the variable")
    return options


def _parsed(options: _Options, line: str) -> argparse.Namespace:
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise errors.Invalid(f"{options.prog}: the options cannot be read ({error})") from error
    return options.parse_args(words)


# -- %keep -------------------------------------------------------------------------------------------------------------


def keep_variable(shell: Any, line: str) -> Recorded:
    """`%keep table --title "…"`: record what a name holds now."""
    from rlm_memory import recording

    told = _parsed(_keep_options(), line)
    value = _variable(shell, told.name, "%keep")
    steps = recording.record(
        value,
        title=told.title or told.name,
        summary=told.summary,
        source=told.source,
        source_version=told.source_version,
        tags=told.tag,
        as_text=True if isinstance(value, str) else None,
        lossy=told.lossy,
    )
    return run(steps, connection())


def _variable(shell: Any, name: str, prog: str) -> Any:
    if name not in shell.user_ns:
        raise errors.Invalid(f"{prog}: there is no variable {name!r} in the notebook")
    return shell.user_ns[name]


# -- %%experiment ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Cell:
    """A cell made ready: everything but its last expression, and that expression, if the cell ends with one."""

    whole: ast.Module
    body: CodeType
    last: CodeType | None


def run_cell(shell: Any, line: str, cell: str) -> Any:
    """Reuse the result of the cell, or run it and record; prints which, and why. Returns the value for display."""
    from rlm_memory import surroundings
    from rlm_memory.computations import computation

    told = _parsed(_cell_options(), line)
    if not told.title:
        raise errors.Invalid('%%experiment: --title "…" is missing')
    ready = _compiled(shell, cell)
    if ready.last is None and not told.result:
        raise errors.Invalid(
            "%%experiment: the cell ends without an expression, so it has no result; end it with one, or say which "
            "variable is the result with --result NAME"
        )
    found = surroundings.of_cell(ready.whole, shell.user_ns, told.ignore)
    asked = computation(
        cell,
        found.params or None,
        title=told.title,
        source=told.source,
        source_version=told.source_version,
        inputs=found.inputs or None,
        summary=told.summary,
        tags=told.tag,
        lossy=told.lossy,
        refresh=told.refresh,
    )
    with asked as c:
        if not c.reused:
            c.set(_run(shell, ready, told.result))
    value = c.value
    print(_said(c) + "\n", end="")  # in one write, so that the line is one output in a stored notebook
    if told.result:
        shell.user_ns[told.result] = value
        return None
    return None if cell.rstrip().endswith(";") else value


def _said(c: Computation) -> str:
    identity = c.ref.short_id if c.ref is not None else ""
    return f"{'reused' if c.reused else 'computed and recorded'} {identity} ({c.why})"


def _compiled(shell: Any, cell: str) -> _Cell:
    source = shell.transform_cell(textwrap.dedent(cell))
    name = shell.compile.cache(source, shell.execution_count)
    try:
        tree = ast.parse(source, name)
        code = compile(tree, name, "exec", dont_inherit=True, flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        if code.co_flags & inspect.CO_COROUTINE:
            raise errors.Invalid(
                "%%experiment: a cell with `await` cannot be run here; use "
                "`async with memory.aio.experiments.computation(...)`"
            )
        whole = ast.Module([*tree.body], [])
        last: CodeType | None = None
        if tree.body and isinstance(tree.body[-1], ast.Expr):
            final = cast("ast.Expr", tree.body.pop())
            last = compile(ast.Expression(final.value), name, "eval", dont_inherit=True)
        body = compile(tree, name, "exec", dont_inherit=True)
    except SyntaxError as error:
        raise errors.Invalid(f"%%experiment: the cell is not Python: {error.msg} (line {error.lineno})") from error
    return _Cell(whole, body, last)


def _run(shell: Any, ready: _Cell, result: str | None) -> Any:
    exec(ready.body, shell.user_ns)  # noqa: S102 - the user's own cell, in the user's own namespace
    value = eval(ready.last, shell.user_ns) if ready.last is not None else None  # noqa: S307 - as above
    return _variable(shell, result, "%%experiment") if result else value
