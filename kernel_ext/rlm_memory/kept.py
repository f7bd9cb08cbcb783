"""What outlives a reload of this package: classes that callers hold, and the one connection of this process.

`%reload_ext` and `%autoreload` run our modules again. A class made anew would no longer be caught by an `except` that
was compiled against the old one, and a second connection would wrap the kernel's handlers twice. So both live in a
module object without a file, which no reloader touches. Does not own what is kept, only the keeping.

Source: design page "Overview", Decisions that would otherwise be guessed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FunctionType, ModuleType
from typing import Any, Final, TypeVar, cast

_MODULE: Final = "_rlm_memory_kept"
_UNTOUCHED: Final = frozenset({"__dict__", "__weakref__", "__module__", "__qualname__", "__slots__"})

T = TypeVar("T")


def state() -> dict[str, Any]:
    """The process-wide dictionary of kept things. Setting a key once with `setdefault` is thread-safe."""
    module = sys.modules.get(_MODULE)
    if module is None:
        module = sys.modules.setdefault(_MODULE, ModuleType(_MODULE, "State of rlm_memory that outlives reloads."))
    return vars(module)


def kept(cls: type[T]) -> type[T]:
    """Class decorator: at a reload, give the class that exists already the new attributes and return it."""
    classes = cast("dict[str, type[T]]", state().setdefault("classes", {}))
    existing = classes.setdefault(f"{cls.__module__}.{cls.__qualname__}", cls)
    if existing is not cls:
        for name, value in list(vars(cls).items()):
            if name not in _UNTOUCHED:
                _point_super_at(existing, value)
                setattr(existing, name, value)
    return existing


def _point_super_at(cls: type, value: object) -> None:
    """Make a bare `super()` in a grafted function mean the class that it now belongs to."""
    inner: list[object] = [value]
    if isinstance(value, property):
        inner = [value.fget, value.fset, value.fdel]
    elif isinstance(value, (classmethod, staticmethod)):
        inner = [cast("Callable[..., Any]", value.__func__)]
    for function in inner:
        if isinstance(function, FunctionType) and "__class__" in function.__code__.co_freevars:
            cells = function.__closure__ or ()
            cells[function.__code__.co_freevars.index("__class__")].cell_contents = cls
