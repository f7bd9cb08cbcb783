"""Methods whose module is loaded when one of them is first looked at, so that `%load_ext` loads little.

Owns: the descriptor, and a base class made of such methods. What is looked up, its signature and its documentation are
the method's own. Does not own: which names come later (`facade.py`).

Source: design page "Overview", In the notebook.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any


class Later:
    """The attribute of the same name of class `holder` in `module`, fetched at each look."""

    def __init__(self, module: str, holder: str) -> None:
        self._module, self._holder = module, holder
        self._name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        method: Any = getattr(getattr(import_module(self._module), self._holder), self._name)
        return method if instance is None else method.__get__(instance, owner)


def methods(module: str, holder: str, names: tuple[str, ...]) -> type:
    """A class with the methods `names` of class `holder` in `module`, to be used as a base in its place."""
    return type(holder, (), {name: Later(module, holder) for name in names})
