"""Datetimes, time zones, timedeltas and periods.

Owns: the unit (seconds are stored as milliseconds, raw integers where that overflows), the zone's class and key, and
the period's ordinals. The integers underneath are carried over as they are; no calendar arithmetic is trusted without
comparing its inverse.
"""

from __future__ import annotations

import warnings
from typing import Any

from rlm_memory import errors
from rlm_memory.codecs import zones
from rlm_memory.codecs.libraries import numpy, pandas, pyarrow
from rlm_memory.codecs.results import Terms
from rlm_memory.codecs.stored import Note, Stored, as_type, integers, null_mask

MISSING = -(2**63)
"""NaT as an integer."""


def encode_datetime(array: Any, where: str, terms: Terms) -> Stored:
    """DatetimeArray, with or without a zone."""
    values, unit = array.asi8, array.unit
    zone: dict[str, Any] | None = None
    if array.tz is not None:
        zone = zones.to_note(array.tz)
        if zone is None:
            terms.give_up(where, f"the time zone {array.tz!r} has no name to bring it back", "the same instants in UTC")
            zone = {"class": "utc"}
    note: Note = {"kind": "datetime", "unit": unit, **({"zone": zone} if zone else {})}
    return _stamps(values, unit, note, zones.physical(zone) if zone else None)


def _stamps(values: Any, unit: str, note: Note, zone: str | None) -> Stored:
    pa, np = pyarrow(), numpy()
    mask = values == MISSING
    if unit != "s":
        return Stored(as_type(values, pa.timestamp(unit, tz=zone), mask), note)
    kept = values[~mask]
    if kept.size and (kept.max() > 2**63 // 1000 - 1 or kept.min() < -(2**63) // 1000 + 1):
        return Stored(pa.array(values, mask=mask if mask.any() else None), {**note, "raw": True}, proof="encoded")
    return Stored(as_type(np.where(mask, 0, values) * 1000, pa.timestamp("ms", tz=zone), mask), note)


def decode_datetime(note: Note, main: Any, _sides: list[Any]) -> Any:
    """The DatetimeArray; without a zone too, so that pandas takes the unit as it is."""
    np, pd = numpy(), pandas()
    mask, values, unit = null_mask(main), integers(main), note["unit"]
    if unit == "s" and not note.get("raw"):
        values = values // 1000
    if mask.any():
        values = np.where(mask, MISSING, values)
    stamps = pd.array(values.view(f"M8[{unit}]"), dtype=np.dtype(f"M8[{unit}]"))
    if "zone" not in note:
        return stamps
    zone = zones.from_note(note["zone"])
    return stamps.tz_localize("UTC").tz_convert(zone)


def encode_timedelta(array: Any, _where: str, _terms: Terms) -> Stored:
    """TimedeltaArray."""
    return Stored(
        as_type(array.asi8, pyarrow().duration(array.unit), array.asi8 == MISSING),
        {"kind": "timedelta", "unit": array.unit},
    )


def decode_timedelta(note: Note, main: Any, _sides: list[Any]) -> Any:
    """The TimedeltaArray of the noted unit."""
    np = numpy()
    values = np.where(null_mask(main), MISSING, integers(main))
    unit = note["unit"]
    return pandas().array(values.view(f"m8[{unit}]"), dtype=np.dtype(f"m8[{unit}]"))


def encode_period(array: Any, _where: str, _terms: Terms) -> Stored:
    """PeriodArray: the start of each period where it leads back to the ordinal, else the ordinals."""
    np, pa = numpy(), pyarrow()
    ordinals = array.asi8
    note: Note = {"kind": "period", "dtype": str(array.dtype)}
    mask = ordinals == MISSING
    values: Any = None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            starts = array.to_timestamp(how="start").as_unit("us")
            values = starts.asi8
            back = _to_ordinals(values, note)
        exact = bool(np.array_equal(back, ordinals))
    except (ValueError, OverflowError, TypeError, AttributeError):
        exact = False
    if not exact:
        return Stored(pa.array(ordinals, mask=mask if mask.any() else None), {**note, "raw": True}, proof="encoded")
    return Stored(as_type(values, pa.timestamp("us"), mask), note, proof="encoded")


def _to_ordinals(values: Any, note: Note) -> Any:
    stamps = pandas().array(values.view("M8[us]"), dtype=numpy().dtype("M8[us]"))
    return stamps.to_period(_period_dtype(note).freq).asi8


def _period_dtype(note: Note) -> Any:
    name = note["dtype"]
    try:
        return pandas().PeriodDtype(name.removeprefix("period[").removesuffix("]"))
    except ValueError as fault:
        raise errors.Unsupported(f"The recorded file has dtype {name!r}, which this pandas does not know.") from fault


def decode_period(note: Note, main: Any, _sides: list[Any]) -> Any:
    """The PeriodArray of the noted dtype."""
    np, pd = numpy(), pandas()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dtype = _period_dtype(note)
        values = np.where(null_mask(main), MISSING, integers(main))
        ordinals = values if note.get("raw") else _to_ordinals(values, note)
        return pd.arrays.PeriodArray(ordinals, dtype=dtype)
