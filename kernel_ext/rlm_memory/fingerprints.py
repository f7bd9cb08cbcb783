"""The query fingerprint: one SHA-256 for "the same computation on the same inputs".

Owns: the canonical form and its rules. Does not own: when a fingerprint allows reuse (`reuse.py`). The raw query never
leaves the kernel; only this digest does.

The rules, which are part of the contract because a changed rule loses every earlier fingerprint (`SCHEME` counts them):

* text (code, SQL): line ends become one newline, common indentation and white space at line ends go, blank lines at
  both ends go. Nothing inside a line is touched, since it may be a string literal; letter case counts.
* a function counts as its source text.
* parameters: numbers, text, booleans, None, lists, tuples, sets, mappings, dates, times, decimals, bytes, paths. Types
  stay apart: 1, 1.0, True and "1" are four different parameters. NaN equals NaN.
* inputs: a recorded result counts as its artifact id, a path (os.PathLike) as the SHA-256 of the file's bytes, anything
  else as a parameter.
* title, summary, tags, source and source version are no part of it.

Source: design page "Exact results", DeepSeek Honcho specification, section 27.2.
"""

from __future__ import annotations

import datetime
import decimal
import hashlib
import inspect
import json
import os
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence, Set
from pathlib import Path
from typing import Any, Final, cast

from rlm_memory import errors

SCHEME: Final = 1
_HEX: Final = re.compile(r"[0-9a-f]{64}")
_BLOCK: Final = 1 << 20


def fingerprint(query: str | Callable[..., Any] | None = None, params: Any = None, inputs: Any = None) -> str:
    """64 lowercase hexadecimal digits for what is given; with nothing given, the constant `NOTHING_GIVEN`.

    Raises Invalid for a value that has no stable form (name it by hand with `fingerprint=`), FileNotFoundError.
    """
    parts: dict[str, Any] = {"scheme": SCHEME}
    if query is not None:
        parts["query"] = _query(query)
    if params is not None:
        parts["params"] = _plain(params, "params")
    if inputs is not None:
        parts["inputs"] = _inputs(inputs)
    return hashlib.sha256(canonical_json(parts).encode("utf-8")).hexdigest()


def canonical_json(value: Any) -> str:
    """Keys sorted by code point, no spaces, non-ASCII kept."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False)


def check(value: object) -> str:
    """A caller's own fingerprint. Raises Invalid unless it is 64 lowercase hexadecimal digits."""
    if not isinstance(value, str) or not _HEX.fullmatch(value):
        raise errors.Invalid(
            "fingerprint must be 64 lowercase hexadecimal digits (a SHA-256); "
            "memory.fingerprint(query=..., params=..., inputs=...) makes one"
        )
    return value


def normal_text(text: str) -> str:
    """Query text under the white-space rule above."""
    lines = textwrap.dedent(text.replace("\r\n", "\n").replace("\r", "\n")).split("\n")
    return "\n".join(line.rstrip() for line in lines).strip("\n")


def _query(query: object) -> str:
    if isinstance(query, str):
        return normal_text(query)
    if callable(query):
        try:
            return normal_text(inspect.getsource(query))
        except (OSError, TypeError) as error:
            raise errors.Invalid("query is a function whose source cannot be read; give its text") from error
    raise errors.Invalid(f"query must be text or a function, not {type(query).__name__}")


def _inputs(inputs: object) -> Any:
    if isinstance(inputs, Mapping):
        named = cast("Mapping[Any, Any]", inputs)
        return {str(name): _input(value) for name, value in named.items()}
    if isinstance(inputs, (list, tuple)):
        return [_input(value) for value in cast("Sequence[Any]", inputs)]
    return [_input(inputs)]


def _input(value: object) -> Any:
    artifact = getattr(value, "artifact_id", None)
    if isinstance(artifact, str):
        return {"artifact": artifact}
    if isinstance(value, os.PathLike):
        return {"file": file_digest(Path(os.fspath(cast("os.PathLike[str]", value))))}
    return _plain(value, "inputs")


def file_digest(path: Path) -> str:
    """SHA-256 of a file's bytes, read in blocks of 1 MiB."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def _plain(value: Any, where: str) -> Any:
    """A JSON value that tells types apart; what JSON lacks is tagged."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        return {"int": str(int(value))}
    if isinstance(value, float):
        return {"float": repr(float(value))}
    if isinstance(value, (bytes, bytearray)):
        return {"bytes": bytes(value).hex()}
    if isinstance(value, (datetime.datetime, datetime.date, datetime.time)):
        return {type(value).__name__: value.isoformat()}
    if isinstance(value, datetime.timedelta):
        return {"timedelta": [value.days, value.seconds, value.microseconds]}
    if isinstance(value, decimal.Decimal):
        return {"decimal": str(value)}
    if isinstance(value, os.PathLike):
        return {"path": os.fspath(cast("os.PathLike[str]", value))}
    if isinstance(value, Mapping):
        return _mapping(cast("Mapping[Any, Any]", value), where)
    if isinstance(value, (list, tuple)):
        return [_plain(item, where) for item in cast("Sequence[Any]", value)]
    if isinstance(value, (set, frozenset)):
        return {"set": sorted(canonical_json(_plain(item, where)) for item in cast("Set[Any]", value))}
    if callable(getattr(value, "item", None)) and getattr(value, "ndim", None) == 0:
        return _plain(value.item(), where)  # a numpy scalar
    raise errors.Invalid(
        f"{where} holds a {type(value).__name__}, which has no stable form; give plain values, or your own fingerprint="
    )


def _mapping(value: Mapping[Any, Any], where: str) -> Any:
    # Always tagged, so that no mapping of a caller's can look like one of the tags.
    return {"map": {canonical_json(_plain(name, where)): _plain(item, where) for name, item in value.items()}}


NOTHING_GIVEN: Final = fingerprint()
"""The fingerprint of a record that says nothing of its computation; never reused."""
