"""Dicts, lists and plain scalars as JSON, only where JSON gives back an equal value of equal types.

Owns: the walk that finds what JSON would alter, writing, reading. Does not own: `tagged`, which keeps richer values
inside frames; this file is plain JSON for every other tool.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from rlm_memory import errors, wire
from rlm_memory.codecs.files import publishing
from rlm_memory.codecs.libraries import class_of
from rlm_memory.codecs.results import Encoded, Terms, bounded_names

MAX_DEPTH = 200
"""Nesting beyond this is refused: readers of JSON differ in what they stand."""
MAX_INT_BITS = 13_000
"""Python parses up to 4,300 decimal digits by default."""


def encode_json(value: Any, folder: Path, terms: Terms) -> Encoded:
    """Write JSON that reads back equal, type for type, or refuse by place (`$.a[3]`)."""
    text = dumps(value, terms)
    with publishing(folder, ".json") as (part, final):
        part.write_text(text, encoding="utf-8", newline="")
        if part.stat().st_size != len(text.encode("utf-8")):
            raise errors.StoreUnavailable("The file system kept fewer bytes than were written; nothing was recorded.")
    shape, columns, summary = _facts(value)
    preview = {"kind": "json", "head": text[:2000], "truncated": len(text) > 2000}
    return Encoded(final, wire.MEDIA_JSON, shape, columns, summary, preview, "json", terms.changes)


def dumps(value: Any, terms: Terms) -> str:
    """JSON text of the value (or of its lossy form); raises `errors.NotExact` unless the terms allow losses."""
    plain = _plain(value, "$", terms, [])
    terms.settle()
    return json.dumps(plain, ensure_ascii=True, allow_nan=False, separators=(",", ":"))


def read_json(path: Path) -> Any:
    """Parse the file. Raises `errors.Invalid` where it is not JSON."""
    try:
        return json.loads(path.read_bytes())
    except (ValueError, RecursionError) as fault:
        raise errors.Invalid("as_='json': the recorded file is not JSON. Use as_='bytes' or as_='text'.") from fault


def _plain(value: Any, where: str, terms: Terms, above: list[int]) -> Any:
    kind = class_of(value)
    if value is None or kind is bool or kind is str:
        return value
    if kind is int:
        return _integer(value, where, terms)
    if kind is float:
        return _float(value, where, terms)
    if isinstance(value, (list, tuple, dict)):
        return _container(cast(Any, value), where, terms, above)
    return _other(value, where, terms)


def _integer(value: int, where: str, terms: Terms) -> Any:
    if value.bit_length() <= MAX_INT_BITS:
        return value
    terms.give_up(where, "an integer of more than 4,000 digits", "becomes hexadecimal text")
    return hex(value)


def _float(value: float, where: str, terms: Terms) -> Any:
    if math.isfinite(value):
        return value
    terms.give_up(where, f"JSON has no {value}", f"{value} becomes null")
    return None


def _container(value: Any, where: str, terms: Terms, above: list[int]) -> Any:
    if id(value) in above:
        raise errors.NotExact(f"{where} refers back to a container that holds it; JSON cannot keep that.", where=where)
    if len(above) >= MAX_DEPTH:
        raise errors.NotExact(f"{where} is nested deeper than {MAX_DEPTH} levels.", where=where)
    above.append(id(value))
    try:
        if isinstance(value, dict):
            return _mapping(cast("dict[Any, Any]", value), where, terms, above)
        if type(value) is not list:
            terms.give_up(where, f"a {type(value).__name__} would come back as a list", "becomes a list")
        items = cast("list[Any]", value)
        return [_plain(item, f"{where}[{at}]", terms, above) for at, item in enumerate(items)]
    finally:
        above.pop()


def _mapping(value: dict[Any, Any], where: str, terms: Terms, above: list[int]) -> dict[str, Any]:
    if type(value) is not dict:
        terms.give_up(where, f"a {type(value).__name__} would come back as a dict", "becomes a dict")
    plain: dict[str, Any] = {}
    for key, item in value.items():
        name = key
        if type(key) is not str:
            name = key if isinstance(key, str) else repr(key)
            terms.give_up(
                where, f"the key {key!r} is a {type(key).__name__}, JSON keys are text", f"key {key!r} becomes text"
            )
        if name in plain:
            raise errors.NotExact(
                f"{where} has keys that differ only by type; as text they would collide.", where=where
            )
        plain[str(name)] = _plain(item, f"{where}.{name}", terms, above)
    return plain


def _other(value: Any, where: str, terms: Terms) -> Any:
    kind = class_of(value)
    name = f"{kind.__module__}.{kind.__qualname__}"
    if isinstance(value, str | int | float):
        base = str if isinstance(value, str) else int if isinstance(value, int) else float
        terms.give_up(where, f"a {name} would come back as a {base.__name__}", f"becomes a plain {base.__name__}")
        return _plain(base(value), where, terms, [])
    terms.give_up(where, f"JSON has no form for a {name}", "becomes its text")
    return str(value)


def _facts(value: Any) -> tuple[list[int] | None, list[str] | None, str]:
    if isinstance(value, Mapping):
        keys = [str(key) for key in cast("Mapping[Any, Any]", value)]
        names = ", ".join(bounded_names(keys[:12])) + (", ..." if len(keys) > 12 else "")
        return (
            [len(keys)],
            bounded_names(keys),
            f"JSON object, {len(keys):,} keys: {names}" if keys else "JSON object, empty",
        )
    if isinstance(value, (list, tuple)):
        return [len(cast(Any, value))], None, f"JSON list, {len(cast(Any, value)):,} items"
    return None, None, f"JSON value, {type(value).__name__}"
