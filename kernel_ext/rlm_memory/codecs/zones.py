"""Time zones as notes: class and key, so that the same class comes back, and a physical name for other tools.

Owns: `to_note`, `from_note`, `physical`. A key that comes from a file is checked against the list of known zones before
any library sees it: `dateutil.tz.gettz` would open any path that it is given.
"""

from __future__ import annotations

import datetime as dt
import functools
import warnings
import zoneinfo
from typing import Any

from rlm_memory import errors
from rlm_memory.codecs.libraries import class_of, loaded, optional


@functools.cache
def known_keys() -> frozenset[str]:
    """Every zone key of this machine or of tzdata."""
    return frozenset(zoneinfo.available_timezones())


def to_note(zone: Any) -> dict[str, Any] | None:
    """What brings this exact class of zone back, or None where it cannot be named."""
    kind = class_of(zone)
    if zone is dt.UTC:
        return {"class": "utc"}
    if kind is dt.timezone:
        offset, *name = zone.__getinitargs__()
        return {"class": "fixed", "seconds": _seconds(offset), **({"name": name[0]} if name else {})}
    if kind is zoneinfo.ZoneInfo:
        return {"class": "zoneinfo", "key": zone.key} if zone.key in known_keys() else None
    if kind.__module__.partition(".")[0] == "pytz":
        return _pytz_note(zone)
    if kind.__module__.startswith("dateutil.tz"):
        return _dateutil_note(zone)
    return None


def from_note(note: dict[str, Any]) -> Any:
    """The zone of a note. Raises `errors.Unsupported` for an unknown class or key."""
    kind = note.get("class")
    if kind == "utc":
        return dt.UTC
    if kind == "fixed":
        offset = _offset(note["seconds"])
        return dt.timezone(offset, note["name"]) if "name" in note else dt.timezone(offset)
    if kind == "zoneinfo":
        return zoneinfo.ZoneInfo(_checked(note["key"]))
    if kind in ("pytz", "pytz-fixed"):
        return _from_pytz(note)
    if kind in ("dateutil", "dateutil-utc", "dateutil-fixed"):
        return _from_dateutil(note)
    raise errors.Unsupported(f"The recorded file uses a time zone of kind {kind!r}, which this version does not know.")


def physical(note: dict[str, Any]) -> str:
    """The zone that other tools see: an IANA name, else UTC (some readers fail on a bare offset)."""
    key = note.get("key")
    return key if isinstance(key, str) and key in known_keys() else "UTC"


def _checked(key: Any) -> str:
    if key not in known_keys():
        raise errors.Unsupported(
            f"The recorded file uses the time zone {str(key)[:60]!r}, which this machine does not know."
        )
    return str(key)


def _seconds(offset: dt.timedelta) -> list[int]:
    return [offset.days * 86_400 + offset.seconds, offset.microseconds]


def _offset(parts: list[int]) -> dt.timedelta:
    return dt.timedelta(seconds=parts[0], microseconds=parts[1])


def _pytz_note(zone: Any) -> dict[str, Any] | None:
    pytz = loaded("pytz")
    if pytz is not None and zone is pytz.UTC:
        return {"class": "pytz", "key": "UTC"}
    minutes = getattr(zone, "_minutes", None)
    if type(zone).__name__ == "_FixedOffset" and isinstance(minutes, int):
        return {"class": "pytz-fixed", "minutes": minutes}
    key = getattr(zone, "zone", None)
    return {"class": "pytz", "key": key} if isinstance(key, str) and key in known_keys() else None


def _from_pytz(note: dict[str, Any]) -> Any:
    pytz = optional("pytz")
    if note["class"] == "pytz-fixed":
        minutes = int(note["minutes"])
        return pytz.FixedOffset(minutes) if pytz else _instead(dt.timezone(dt.timedelta(minutes=minutes)), "pytz")
    key = _checked(note["key"])
    return pytz.timezone(key) if pytz else _instead(zoneinfo.ZoneInfo(key), "pytz")


def _dateutil_note(zone: Any) -> dict[str, Any] | None:
    name = type(zone).__name__
    if name == "tzutc":
        return {"class": "dateutil-utc"}
    if name == "tzoffset":
        return {"class": "dateutil-fixed", "seconds": _seconds(zone._offset), "name": zone._name}
    path = getattr(zone, "_filename", None)
    if name != "tzfile" or not isinstance(path, str):
        return None
    key = path.replace("\\", "/").partition("zoneinfo/")[2] or path
    return {"class": "dateutil", "key": key} if key in known_keys() else None


def _from_dateutil(note: dict[str, Any]) -> Any:
    tz = optional("dateutil.tz")
    if note["class"] == "dateutil-utc":
        return tz.tzutc() if tz else _instead(dt.UTC, "dateutil")
    if note["class"] == "dateutil-fixed":
        offset = _offset(note["seconds"])
        return tz.tzoffset(note["name"], offset) if tz else _instead(dt.timezone(offset), "dateutil")
    key = _checked(note["key"])
    return (tz.gettz(key) if tz else None) or _instead(zoneinfo.ZoneInfo(key), "dateutil")


def _instead(zone: Any, library: str) -> Any:
    warnings.warn(
        f"This result was recorded with time zones of {library}, which is not installed here; they load as {zone!r}.",
        stacklevel=2,
    )
    return zone
