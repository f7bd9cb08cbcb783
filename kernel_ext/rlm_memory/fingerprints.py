"""The query fingerprint: one SHA-256 for "the same computation on the same inputs".

Owns: the canonical form and its rules. Does not own: when a fingerprint allows reuse (`reuse.py`). The raw query never
leaves the kernel; only this digest does.

The rules, which are part of the contract because a changed rule loses every earlier fingerprint (`SCHEME` counts them):

* text (code, SQL): line ends become one newline, common indentation and white space at line ends go, blank lines at
  both ends go. Nothing inside a line is touched, since it may be a string literal; letter case counts.
* a function counts as its source text, without the decorator `memory.experiments.cached(...)`; of several lambdas in
  one statement each with its place.
* parameters: numbers, text, booleans, None, lists, tuples, sets, mappings, dates, times, decimals, bytes, paths. Types
  stay apart: 1, 1.0, True and "1" are four different parameters. NaN equals NaN. A float counts as its shortest text
  (1e3 and 1000.0 are one value), the order of keys and of sets does not count, a tuple counts as a list. A time counts
  with the name of its zone (every UTC is one) and which of two equal hours it is. A numpy scalar counts as the Python
  value that it equals. Anything else has no canonical form and is refused with its place, for example
  `params['model']`.
* inputs: a recorded result counts as its artifact id, a path (os.PathLike) as the SHA-256 of the file's bytes, anything
  else as a parameter. They are a list, or a mapping whose names are text.
* title, summary, tags, source and source version are no part of it.

Source: design page "Exact results", DeepSeek Honcho specification, section 27.2.
"""

from __future__ import annotations

import ast
import datetime
import decimal
import hashlib
import inspect
import json
import os
import re
import stat
import textwrap
from collections.abc import Callable, Generator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast

from rlm_memory import errors, wire

SCHEME: Final = 1
DEEPEST: Final = 64
"""Levels of nesting in one parameter; a value that contains itself is deeper than any."""
MAX_COMPONENTS: Final = 64
NAME_CHARACTERS: Final = 80
COMPONENT_DIGITS: Final = 16
"""Hexadecimal digits of a component's digest: enough to see that it changed, and not a fingerprint."""
_HEX: Final = re.compile(r"[0-9a-f]{64}")
_BLOCK: Final = 1 << 20
_DECIMAL_BITS: Final = 8_192
"""Longest integer as decimal digits; Python refuses to write longer ones."""
_MOMENTS: Final = frozenset({"datetime", "date", "time", "Timestamp", "NaTType"})


@dataclass(frozen=True)
class Described:
    """A fingerprint and, by the name of each component, a digest that tells whether this component changed."""

    digest: str
    components: Mapping[str, str] = field(default_factory=dict[str, str])


def describe(query: str | Callable[..., Any] | None = None, params: Any = None, inputs: Any = None) -> Described:
    """The fingerprint with its components: `code`, `params['name']`, `inputs['name']` or `inputs[0]`.

    Raises Invalid for a value that has no canonical form (name it by hand with `fingerprint=`), FileNotFoundError.
    """
    parts: dict[str, Any] = {"scheme": SCHEME}
    if query is not None:
        parts["query"] = _query(query)
    with _looking_at("params"):
        if params is not None:
            parts["params"] = _plain(params, "params")
    with _looking_at("inputs"):
        if inputs is not None:
            parts["inputs"] = _inputs(inputs)
    named: dict[str, Any] = {"code": parts["query"]} if "query" in parts else {}
    named |= _members("params", params, parts) | _members("inputs", inputs, parts)
    if len(named) > MAX_COMPONENTS:
        named = {"code" if name == "query" else name: part for name, part in parts.items() if name != "scheme"}
    return Described(_sha256(parts), {name: _sha256(part)[:COMPONENT_DIGITS] for name, part in named.items()})


def fingerprint(query: str | Callable[..., Any] | None = None, params: Any = None, inputs: Any = None) -> str:
    """64 lowercase hexadecimal digits for what is given; with nothing given, the constant `NOTHING_GIVEN`.

    Raises Invalid for a value that has no canonical form (name it by hand with `fingerprint=`), FileNotFoundError.
    """
    return describe(query, params, inputs).digest


@contextmanager
def _looking_at(argument: str) -> Generator[None]:
    """A caller's class may fail when it is looked at; that is said under the argument's name."""
    try:
        yield
    except (errors.MemoryFault, OSError, MemoryError):
        raise
    except Exception as fault:
        raise errors.Invalid(
            f"{argument} holds a value that fails with {type(fault).__name__} when it is looked at; give plain values, "
            "or your own fingerprint="
        ) from fault


def _sha256(value: Any) -> str:
    try:
        return hashlib.sha256(canonical_json(value).encode("utf-8")).hexdigest()
    except UnicodeEncodeError as error:
        raise errors.Invalid("the computation holds text with a lone surrogate, which has no canonical form") from error


def _members(kind: str, given: Any, parts: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters or inputs one by one, where they have names or places; else all of them as one."""
    if kind not in parts:
        return {}
    form = parts[kind]
    if isinstance(given, Mapping) and given:
        names = cast("Mapping[Any, Any]", given)
        # A mapping of inputs keeps its names in its form, one of parameters has them in canonical form.
        inner = form if kind == "inputs" else form.get("map")
        if inner is None:
            return {kind: form}
        keys = {name: name if kind == "inputs" else canonical_json(_plain(name, kind)) for name in names}
        return {f"{kind}[{name!r}]"[:NAME_CHARACTERS]: inner[key] for name, key in keys.items()}
    if kind == "inputs" and isinstance(form, list):
        return {f"inputs[{at}]": item for at, item in enumerate(cast("list[Any]", form))}
    return {kind: form}


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
        text = normal_text(query)
        if not text.strip():
            raise errors.Invalid("query is empty text, which says nothing of the computation; leave it out or give it")
        return text
    if callable(query):
        return normal_text(function_text(query))
    raise errors.Invalid(f"query must be text or a function, not {type(query).__name__}")


def function_text(function: Callable[..., Any]) -> str:
    """A function's source without our own decorator, whose arguments say nothing of the computation."""
    try:
        text = textwrap.dedent(inspect.getsource(function))
    except (OSError, TypeError) as error:
        raise errors.Invalid("query is a function whose source cannot be read; give its text") from error
    try:
        node = ast.parse(text).body[0]
    except (SyntaxError, IndexError):
        return text + _place(function, text)  # part of an expression, such as a lambda within a call
    text += _place(function, text)
    lines = text.split("\n")
    for decorator in getattr(node, "decorator_list", []):
        if isinstance(decorator, ast.Call) and ast.unparse(decorator.func).endswith("experiments.cached"):
            for at in range(decorator.lineno - 1, decorator.end_lineno or decorator.lineno):
                lines[at] = ""
    return "\n".join(lines)


def _place(function: Callable[..., Any], text: str) -> str:
    """Which of several lambdas in one statement; their source is the same lines."""
    code = getattr(function, "__code__", None)
    if code is None or code.co_name != "<lambda>" or text.count("lambda") < 2:
        return ""
    lines, _ = inspect.getsourcelines(function)
    margin = len(lines[0]) - len(lines[0].lstrip())
    starts = [(at[0] - code.co_firstlineno, at[2]) for at in code.co_positions() if at[0] and at[1] and at[2]]
    line, column = min(starts, default=(0, 0))
    return f"\n# the lambda whose body begins at {line}:{column - margin}"


def _inputs(inputs: object) -> Any:
    if isinstance(inputs, Mapping):
        named = cast("Mapping[Any, Any]", inputs)
        for name in named:
            if not isinstance(name, str):
                raise errors.Invalid(f"inputs has the name {name!r}, a {type(name).__name__}; names must be text")
        return {name: _input(value, f"inputs[{name!r}]") for name, value in named.items()}
    if isinstance(inputs, (list, tuple)):
        return [_input(value, f"inputs[{at}]") for at, value in enumerate(cast("Sequence[Any]", inputs))]
    return [_input(inputs, "inputs")]


def _input(value: object, where: str) -> Any:
    if (artifact := artifact_of(value)) is not None:
        return {"artifact": artifact}
    if isinstance(value, os.PathLike):
        return {"file": file_digest(Path(os.fsdecode(cast("os.PathLike[Any]", value))), where)}
    return _plain(value, where)


def artifact_of(value: object) -> str | None:
    """The artifact id of a recorded result; None for anything else."""
    artifact = getattr(value, "artifact_id", None)
    return artifact if isinstance(artifact, str) else None


def file_digest(path: Path, where: str = "inputs") -> str:
    """SHA-256 of a file's bytes, read in blocks of 1 MiB. Raises Invalid for what is no readable file."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise errors.Invalid(f"{where} is {path.name!r}, which is not a regular file; give the files that count")
        digest = hashlib.sha256()
        with path.open("rb") as file:
            while block := file.read(_BLOCK):
                digest.update(block)
        return digest.hexdigest()
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as fault:
        raise errors.Invalid(
            f"{where} is a file that cannot be read ({type(fault).__name__}); give one that can, or fingerprint="
        ) from fault


def _plain(value: Any, where: str, depth: int = 0) -> Any:
    """A JSON value that tells types apart; what JSON lacks is tagged."""
    if depth > DEEPEST:
        raise errors.Invalid(f"{where.split('[')[0]} is nested deeper than {DEEPEST} levels, or contains itself")
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        number = int(value)
        return {"int": str(number) if number.bit_length() <= _DECIMAL_BITS else hex(number)}
    if isinstance(value, float):
        return {"float": repr(float(value))}
    if isinstance(value, complex):
        return {"complex": [repr(value.real), repr(value.imag)]}
    if isinstance(value, (bytes, bytearray)):
        return {"bytes": bytes(value).hex()}
    if isinstance(value, (datetime.datetime, datetime.date, datetime.time)):
        return _moment(value, where)
    if isinstance(value, datetime.timedelta):
        # pandas' class has a part below the microsecond; without one it stays equal to the plain class.
        below = getattr(value, "nanoseconds", 0)
        return {"timedelta": [value.days, value.seconds, value.microseconds, *([below] if below else [])]}
    if isinstance(value, decimal.Decimal):
        return {"decimal": str(value)}
    if isinstance(value, os.PathLike):
        told = os.fspath(cast("os.PathLike[Any]", value))
        return {"path": told if isinstance(told, str) else {"bytes": bytes(told).hex()}}
    if isinstance(value, Mapping):
        return _mapping(cast("Mapping[Any, Any]", value), where, depth)
    if isinstance(value, (list, tuple)):
        items = cast("Sequence[Any]", value)
        return [_plain(item, f"{where}[{at}]", depth + 1) for at, item in enumerate(items)]
    if isinstance(value, (set, frozenset)):
        members = cast("Set[Any]", value)
        return {"set": sorted(canonical_json(_plain(item, where, depth + 1)) for item in members)}
    if callable(getattr(value, "item", None)) and getattr(value, "ndim", None) == 0:
        return _numpy_scalar(value, where, depth)
    raise errors.Invalid(
        f"{where} is a {type(value).__name__}, which has no canonical form; give plain values, a recorded result or a "
        "path in inputs, or your own fingerprint="
    )


def _moment(value: datetime.datetime | datetime.date | datetime.time, where: str) -> Any:
    """A date or time by its ISO text, which tells the offset; the zone and the second of two equal hours beside it."""
    name = type(value).__name__
    if name not in _MOMENTS:
        # A class of the same name as another form would look like it.
        name = next(base.__name__ for base in type(value).__mro__ if base.__module__ == "datetime")
    text = value.isoformat()
    more: dict[str, Any] = {}
    if isinstance(value, (datetime.datetime, datetime.time)) and text != "NaT":
        zone = _zone(value.tzinfo, where)
        more = ({"zone": zone} if zone else {}) | ({"fold": 1} if value.fold else {})
    return {name: [text, more] if more else text}


def _zone(zone: datetime.tzinfo | None, where: str) -> str | None:
    """The name of a zone; None where the ISO text says all of it: no zone, or one offset for ever."""
    if zone is None or _is_fixed(zone):
        return None
    key = getattr(zone, "key", None) or getattr(zone, "zone", None) or _dateutil_name(zone)
    if not isinstance(key, str) or not key:
        raise errors.Invalid(
            f"{where} is in a time zone of class {type(zone).__name__} that has no name; use zoneinfo, or UTC"
        )
    return key


def _is_fixed(zone: datetime.tzinfo) -> bool:
    try:
        return zone.utcoffset(None) is not None
    except Exception:  # a tzinfo of any class may fail without a time
        return False


def _dateutil_name(zone: datetime.tzinfo) -> str | None:
    """The name of a zone of dateutil, which has no public one; a zone of the machine's list without its folder."""
    name = getattr(zone, "_filename", None)
    return str(name).rpartition("zoneinfo/")[2] if name else None


def _numpy_scalar(value: Any, where: str, depth: int) -> Any:
    kind = getattr(getattr(value, "dtype", None), "kind", "")
    # The item of a time in nanoseconds is a bare integer, so times keep their own type and text.
    if kind in ("m", "M"):
        return {"numpy": [str(value.dtype), str(value)]}
    item = value.item()
    if kind == "V":
        return {"numpy": [str(value.dtype), _plain(item, where, depth + 1)]}
    if type(item) is type(value):
        # A long double is its own item; its text tells every bit.
        if kind in ("f", "c"):
            return {"numpy": [value.dtype.name, str(value)]}
        raise errors.Invalid(f"{where} is a {type(value).__name__}, which has no canonical form; give a plain value")
    return _plain(item, where, depth + 1)


def _mapping(value: Mapping[Any, Any], where: str, depth: int) -> Any:
    # Always tagged, so that no mapping of a caller's can look like one of the tags.
    pairs = [
        (canonical_json(_plain(name, where, depth + 1)), _plain(item, f"{where}[{name!r}]", depth + 1))
        for name, item in value.items()
    ]
    form = dict(pairs)
    if len(form) < len(pairs):
        # Names that Python tells apart and the canonical form does not: NaN beside NaN.
        return {"pairs": sorted([name, canonical_json(item)] for name, item in pairs)}
    return {"map": form}


NOTHING_GIVEN: Final = fingerprint()
"""The fingerprint where nothing is said of the computation; never reused."""


def nothing_given(codec: str) -> str:
    """What a record carries that says nothing of its computation: one constant for each codec, "" for files.

    The same bytes can stand for different things (4711 and "4711"), and the identity of a result holds no type: with
    one constant for all, the second record would come back as the first one's type.
    """
    return _sha256({"scheme": SCHEME, "codec": codec})


def says_nothing(digest: str) -> bool:
    """Whether a fingerprint is one of those constants, so that nothing may be reused under it."""
    return digest in _NOTHING


_NOTHING: Final = frozenset(
    {NOTHING_GIVEN, nothing_given("")}
    | {nothing_given(wire.codec_name(str(kind))) for name, kind in vars(wire).items() if name.startswith("MEDIA_")}
)
