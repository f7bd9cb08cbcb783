"""What a caller asks of a recorded file: columns, filters, rows, a sample, a form.

Owns: the request as one value, its arguments as messages show them, and what of them is wrong for any file. An
argument may be any object: one whose comparison, length or text fails is refused as any other. Does not own: checking
it against a file, which its reader does.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, cast

from rlm_memory import errors

SHOWN = 80
"""Characters of an argument in a message."""
LONGEST = 10_000_000
"""Most names or values that one argument may list."""


def shown(value: Any) -> str:
    """A caller's value for a message: short, and its class where it has no text."""
    try:
        text = repr(value)
    except Exception:  # a class may do anything here, and a whole number of 5,000 digits has no text
        return f"a {type(value).__name__}"
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 3]}..."


def said(fault: Exception) -> str:
    """What a library said, for a message; its class where that has no text."""
    try:
        text = str(fault)
    except Exception:
        text = ""
    return text[:200] or type(fault).__name__


def listed(name: str, value: Any) -> list[Any]:
    """The items of a list-like argument. Raises `errors.Invalid` where it has none, or far too many."""
    count = 0
    try:
        if not isinstance(value, str | bytes | bytearray) and (count := _length(value)) <= LONGEST:
            return list(cast("Iterable[Any]", value))
    except Exception as fault:  # an iterator of a caller may do anything
        raise errors.Invalid(f"{name}: pass a list; a {type(value).__name__} gives no items.") from fault
    if count > LONGEST:
        raise errors.Invalid(f"{name}: more than {LONGEST:,} items; load what the rest leaves, and choose from that.")
    raise errors.Invalid(f"{name}: pass a list, not a {type(value).__name__}.")


def _length(value: Any) -> int:
    try:
        return len(value) if hasattr(value, "__len__") else 0
    except OverflowError:
        return LONGEST + 1


def text_names(columns: Any) -> list[str]:
    """`columns` as a list of names, where names are text. Raises `errors.Invalid`."""
    wanted = [columns] if isinstance(columns, str) else listed("columns", columns)
    for name in wanted:
        if not isinstance(name, str):
            raise errors.Invalid(f"columns: names are text; {shown(name)} is a {type(name).__name__}.")
    return wanted


@dataclass(frozen=True, slots=True)
class Request:
    """What the caller asked for, as it was given."""

    columns: Any = None
    filters: Any = None
    rows: Any = None
    sample: Any = None
    seed: int = 0
    as_: str | None = None

    @property
    def is_whole(self) -> bool:
        return self.columns is None and self.filters is None and self.rows is None and self.sample is None
