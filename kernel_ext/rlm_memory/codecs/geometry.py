"""geopandas: geometry columns as well-known binary, frames with their active geometry.

Owns: the geometry kind, the coordinate reference system, the GeoParquet key that other tools read. Does not own: frames
otherwise (`frames`).
"""

from __future__ import annotations

import json
from typing import Any

from rlm_memory.codecs import tagged
from rlm_memory.codecs.libraries import class_of, loaded, need, pyarrow
from rlm_memory.codecs.results import Terms
from rlm_memory.codecs.stored import Note, Stored, one_array

PURPOSE = "A geometry column"


def encode(array: Any, where: str, terms: Terms) -> Stored:
    """geopandas' GeometryArray."""
    note: Note = {"kind": "geometry"}
    if array.crs is not None:
        text = _crs_text(array.crs)
        if text is None:
            terms.give_up(
                where, "its coordinate reference system has no text that leads back to it", "the system is dropped"
            )
        else:
            note["crs"] = text
    return Stored(pyarrow().array(binary(array), pyarrow().large_binary()), note, proof="encoded")


def binary(array: Any) -> Any:
    """Each geometry as well-known binary with its SRID, None where missing."""
    return need("shapely", PURPOSE).to_wkb(array._data, include_srid=True)


def _crs_text(crs: Any) -> str | None:
    made = class_of(crs).from_user_input
    for text in (crs.srs, crs.to_json(), crs.to_wkt()):
        try:
            if made(text) == crs:
                return text
        except Exception:  # any text of the library's own may fail to parse; the next one is tried
            continue
    return None


def decode(note: Note, main: Any, _sides: list[Any]) -> Any:
    """The GeometryArray."""
    need("geopandas", PURPOSE)
    shapes = need("shapely", PURPOSE).from_wkb(one_array(main).to_numpy(zero_copy_only=False))
    return need("geopandas.array", PURPOSE).GeometryArray(shapes, crs=note.get("crs"))


def is_geo(obj: Any) -> bool:
    """A GeoDataFrame or GeoSeries, exactly."""
    geopandas = loaded("geopandas")
    return geopandas is not None and type(obj) in (geopandas.GeoDataFrame, geopandas.GeoSeries)


def note_frame(obj: Any) -> Note:
    """What makes a frame a GeoDataFrame again."""
    return {"geometry": tagged.tag(getattr(obj, "_geometry_column_name", None))}


def restore(obj: Any, note: Note) -> Any:
    """A GeoDataFrame or GeoSeries of a pandas object; a part without any geometry too, as recorded."""
    geopandas = need("geopandas", "This result was recorded from geopandas; loading it")
    if obj.ndim == 1:
        return geopandas.GeoSeries(obj)
    made = geopandas.GeoDataFrame(obj)
    made._geometry_column_name = tagged.untag(note["geometry"])
    return made


def parquet_key(obj: Any, names: list[str], stored: list[Stored]) -> dict[bytes, bytes]:
    """The `geo` key of GeoParquet 1.0, or nothing where the frame has no geometry column."""
    columns: dict[str, Any] = {}
    for at, one in enumerate(stored):
        if one.note["kind"] == "geometry":
            array = obj.iloc[:, at].array if obj.ndim == 2 else obj.array
            crs = None if array.crs is None else json.loads(array.crs.to_json())
            columns[names[at]] = {"encoding": "WKB", "geometry_types": [], "crs": crs}
    if not columns:
        return {}
    labels = [str(label) for label in obj.columns] if obj.ndim == 2 else []
    active = str(getattr(obj, "_geometry_column_name", None))
    primary = names[labels.index(active)] if active in labels else next(iter(columns))
    return {b"geo": json.dumps({"version": "1.0.0", "primary_column": primary, "columns": columns}).encode()}
