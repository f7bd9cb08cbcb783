"""What a piece of code reads from around it, so that a changed global cannot pass for the same computation.

Owns: what the names of a cell (`reads.py`) or a function stand for, and their place in a fingerprint. The rules:
modules, classes, built-ins and functions of installed modules do not count (the environment beside each card names
versions); a function of the notebook counts as its source and what that reads in turn; a plain value counts as a
parameter; a recorded result or a path as an input; anything else, a table or a connection say, is refused by name until
the caller passes it otherwise or ignores it.

Source: design page "Overview", In the notebook (`computation`, `%%experiment`).
"""

from __future__ import annotations

import ast
import builtins
import inspect
import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from types import FunctionType, ModuleType, NoneType
from typing import Any

from rlm_memory import errors, fingerprints, reads


@dataclass
class Surroundings:
    """What was found: parameters and inputs by name, as a fingerprint takes them."""

    params: dict[str, Any] = field(default_factory=dict[str, Any])
    inputs: dict[str, Any] = field(default_factory=dict[str, Any])


def of_function(function: Callable[..., Any], ignore: Collection[str]) -> Surroundings:
    """What a function reads beside its arguments: globals and what it closes over."""
    found = Surroundings()
    _of_function(function, frozenset(ignore), found, {id(function)})
    return found


def of_cell(tree: ast.Module, namespace: Mapping[str, Any], ignore: Collection[str]) -> Surroundings:
    """What a cell reads from the namespace before it has surely set it itself."""
    found = Surroundings()
    for name in reads.of_cell(tree):
        _count(name, namespace, frozenset(ignore), found, set())
    return found


def place(name: str, value: Any, found: Surroundings, said: str) -> None:
    """Count a value under a name. Raises Invalid with `said` where it has no canonical form."""
    if fingerprints.artifact_of(value) is not None or isinstance(value, os.PathLike):
        found.inputs[name] = value
        return
    try:
        fingerprints.describe(params={name: value})
    except errors.Invalid as error:
        raise errors.Invalid(f"{said} {name!r}, a {type(value).__name__}, which has no canonical form; {ADVICE}") from (
            error
        )
    found.params[name] = value


ADVICE = (
    "record it and use the reference, compute it inside, or say that it does not count: ignore=[...] for a function, "
    "--ignore NAME for a cell"
)


def _of_function(
    function: Callable[..., Any], ignore: frozenset[str], found: Surroundings, seen: set[int], prefix: str = ""
) -> None:
    inner = inspect.unwrap(function)
    if not isinstance(inner, FunctionType):
        return
    closed = dict(zip(inner.__code__.co_freevars, inner.__closure__ or (), strict=False))
    around = {name: cell.cell_contents for name, cell in closed.items() if _is_filled(cell)}
    for name in around:
        _count(name, around, ignore, found, seen, prefix)
    for code in (inner.__code__, *reads.inner(inner.__code__)):
        for name in reads.of_code(code):
            if name not in around:
                _count(name, inner.__globals__, ignore, found, seen, prefix)


def _count(
    name: str,
    namespace: Mapping[str, Any],
    ignore: frozenset[str],
    found: Surroundings,
    seen: set[int],
    prefix: str = "",
) -> None:
    if name in ignore or name not in namespace or (name.startswith("__") and name.endswith("__")):
        return
    value = namespace[name]
    if isinstance(value, (ModuleType, type)) or value is getattr(builtins, name, found):
        return
    if type(value).__module__.partition(".")[0] == "rlm_memory" and fingerprints.artifact_of(value) is None:
        return
    if callable(value) and not isinstance(value, os.PathLike):
        _count_function(name, value, ignore, found, seen, prefix)
    else:
        place(f"{prefix}{name}", value, found, "the computation reads")


def _count_function(
    name: str, value: Any, ignore: frozenset[str], found: Surroundings, seen: set[int], prefix: str
) -> None:
    inner = inspect.unwrap(value)
    if not isinstance(inner, FunctionType):
        # A bound method, a partial or an object that can be called holds values of its own; a built-in function none.
        owner = getattr(inner, "__self__", None)
        if name != "get_ipython" and not (
            hasattr(inner, "__name__") and isinstance(owner, (ModuleType, type, NoneType))
        ):
            place(f"{prefix}{name}", value, found, "the computation reads")
        return
    if not _is_local(inner) or id(inner) in seen:
        return
    seen.add(id(inner))
    try:
        text = fingerprints.function_text(inner)
    except errors.Invalid as error:
        raise errors.Invalid(
            f"the computation calls {name!r}, whose source cannot be read; run the cell that defines it again"
        ) from error
    found.params[f"{prefix}{name}()"] = fingerprints.normal_text(text)
    _of_function(inner, ignore, found, seen, f"{prefix}{name}().")


def _is_local(function: FunctionType) -> bool:
    """Written in the notebook, or in a file that no installer put there."""
    if function.__module__ == "__main__":
        return True
    file = function.__code__.co_filename
    return not any(part in file for part in ("site-packages", "dist-packages", f"{os.sep}lib{os.sep}python", "<frozen"))


def _is_filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:
        return False
