"""Text, octets, JSON, arrays, figures, Arrow, polars, xarray: each comes back as it was, or is refused by place."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from collections import OrderedDict, namedtuple
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rlm_memory import codecs, errors
from rlm_memory.codecs import files, libraries, preview
from same import assert_same

pytestmark = pytest.mark.compat


@pytest.mark.parametrize(
    "value", ["", "a\r\nb\n", "\x00é🧪\u2028", b"", b"\xff\x00", bytearray(b"z"), None, True, 3, -0.0, 10**400]
)
def test_plain_values_come_back_with_their_type(value: Any, there_and_back: Callable[..., Any]) -> None:
    """Newlines, NUL and big integers included."""
    back = there_and_back(value)
    assert type(back) is type(value)
    assert repr(back) == repr(value)


JSONS = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(value=JSONS.filter(lambda value: type(value) is not str))
def test_any_json_value_comes_back_equal_type_for_type(value: Any, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Lone surrogates inside containers too; floats to the last bit."""
    encoded = codecs.encode(value, tmp_path_factory.mktemp("file"))
    assert repr(codecs.decode(encoded.path, encoded.media_type)) == repr(value)


Point = namedtuple("Point", "x y")


@pytest.mark.parametrize(
    ("value", "where", "lossy"),
    [
        ({"a": [1, float("nan")]}, "$.a[1]", {"a": [1, None]}),
        ({"a": (1, 2)}, "$.a", {"a": [1, 2]}),
        ({1: "x"}, "$", {"1": "x"}),
        ({"a": {1, 2}}, "$.a", {"a": "{1, 2}"}),
        (OrderedDict(a=1), "$", {"a": 1}),
        ([Point(1, 2)], "$[0]", [[1, 2]]),
        ({"a": np.float64(1.5)}, "$.a", {"a": 1.5}),
        ("half \ud800", "character 5", "half \ufffd"),
    ],
)
def test_what_would_change_is_refused_by_place(value: Any, where: str, lossy: Any, tmp_path: Path) -> None:
    """The refusal says what lossy=True would do, and lossy=True does just that."""
    with pytest.raises(errors.NotExact) as caught:
        codecs.encode(value, tmp_path)
    assert caught.value.where == where
    assert caught.value.changes
    assert list(tmp_path.iterdir()) == []
    encoded = codecs.encode(value, tmp_path, lossy=True)
    assert codecs.decode(encoded.path, encoded.media_type) == lossy
    assert "; ".join(encoded.changes) == caught.value.changes


def test_a_list_that_holds_itself_is_refused(tmp_path: Path) -> None:
    """Even where losses are accepted: there is nothing to write."""
    value: list[Any] = []
    value.append(value)
    with pytest.raises(errors.NotExact, match="refers back"):
        codecs.encode(value, tmp_path, lossy=True)
    assert list(tmp_path.iterdir()) == []


ARRAYS: list[Any] = [
    np.arange(6, dtype=">i4").reshape(2, 3),
    np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    np.array(3.5),
    np.zeros((0, 4), dtype="float16"),
    np.array(["2030-01-01", "NaT"], dtype="M8[25us]"),
    np.array([1, 2], dtype="m8[D]"),
    np.array([("a", 1)], dtype=[("n", "U3"), ("v", ">f4", (2,))]),
    np.zeros(2, dtype=np.dtype([("a", "u1"), ("b", "f8")], align=True)),
    np.array([1, 2], dtype=np.dtype("i8", metadata={"unit": "mm"})),
    np.ma.masked_array([1, 2, 3], mask=[0, 1, 0], fill_value=-1),
    np.ma.masked_array(np.array([(1, 2.0)], dtype="i4,f8"), mask=[(True, False)]),
    np.rec.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f8")]),
    {"a": np.arange(3), "odd/key": np.zeros((2, 2)), "": np.array(b"x")},
    np.float32(0.1),
    np.datetime64("2030-01-01", "s"),
    np.arange(4, dtype="longdouble"),
    np.array([1 + 2j, complex("nan")]),
]


@pytest.mark.parametrize(
    "array", ARRAYS, ids=lambda array: f"{type(array).__name__}-{getattr(array, 'dtype', '')}"[:40]
)
def test_arrays_come_back_with_class_dtype_and_order(array: Any, there_and_back: Callable[..., Any]) -> None:
    """Byte order, alignment, metadata, units, masks, keys."""
    back = there_and_back(array)
    assert type(back) is type(array)
    if isinstance(array, dict):
        assert list(back) == list(array)
        for key in array:
            assert_same(array[key], back[key])
        return
    assert back.dtype == array.dtype
    assert back.dtype.isalignedstruct == array.dtype.isalignedstruct
    assert back.dtype.metadata == array.dtype.metadata
    if isinstance(array, np.ndarray):
        assert_same(array, back)
        assert back.flags.f_contiguous == array.flags.f_contiguous
    else:
        assert back == array


def test_object_arrays_are_kept_by_their_cells(there_and_back: Callable[..., Any]) -> None:
    """No pickle: cells as tagged values, shape beside them."""
    cells = np.empty((2, 2), dtype=object)
    cells[0, 0], cells[0, 1], cells[1, 0] = "a", (1, 2), 2**80
    assert_same(cells, there_and_back(cells))


def test_parts_of_arrays(tmp_path: Path) -> None:
    """Rows, fields, keys, a memory map."""
    plain = codecs.encode(np.arange(20).reshape(10, 2), tmp_path)
    assert codecs.decode(plain.path, plain.media_type, rows=(2, 4)).tolist() == [[4, 5], [6, 7]]
    assert isinstance(codecs.decode(plain.path, plain.media_type, as_="memmap"), np.memmap)
    assert isinstance(codecs.open_lazy(plain.path, plain.media_type), np.memmap)
    assert len(codecs.decode(plain.path, plain.media_type, sample=3)) == 3
    keyed = codecs.encode({"a": np.arange(3), "b": np.zeros(2)}, tmp_path)
    assert list(codecs.decode(keyed.path, keyed.media_type, columns=["b"])) == ["b"]
    with pytest.raises(errors.Invalid, match="columns"):
        codecs.decode(keyed.path, keyed.media_type, columns=["c"])


def test_no_file_of_ours_can_run_code(tmp_path: Path) -> None:
    """An array file with a pickle in it is refused on reading."""
    path = tmp_path / "x.npy"
    np.save(path, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    assert pickle.dumps({"a": 1})[:1] in path.read_bytes()
    with pytest.raises(errors.Integrity):
        codecs.decode(path, "application/x-npy; codec=array")


def test_polars_frames_come_back_with_their_types(there_and_back: Callable[..., Any]) -> None:
    """Categoricals, enums, 128-bit integers, nested types."""
    pl = pytest.importorskip("polars")
    frame = pl.DataFrame(
        {
            "c": pl.Series(["b", None, "a"], dtype=pl.Categorical),
            "e": pl.Series(["x", "y", None], dtype=pl.Enum(["y", "x"])),
            "big": pl.Series([2**100, None, -1], dtype=pl.Int128),
            "l": pl.Series([[1], None, []], dtype=pl.List(pl.Int8)),
            "s": pl.Series([{"a": 1}, None, {"a": None}], dtype=pl.Struct({"a": pl.Int64})),
            "t": pl.Series([1, 2, None], dtype=pl.Datetime("ns", "Europe/Berlin")),
            "f": pl.Series([float("nan"), None, -0.0]),
        }
    )
    back = there_and_back(frame)
    assert back.schema == frame.schema
    assert back.equals(frame, null_equal=True)
    series = pl.Series("q", [1, None], dtype=pl.UInt8)
    assert there_and_back(series).equals(series, check_dtypes=True, check_names=True)
    assert there_and_back(pl.DataFrame(height=3)).height == 3


def test_a_stream_of_batches_becomes_its_table(there_and_back: Callable[..., Any]) -> None:
    """And a batch stays a batch."""
    original = pa.table({"a": pa.array([1, 2], pa.int8())}, metadata={"k": "v"})
    assert_same(original, there_and_back(pa.RecordBatchReader.from_batches(original.schema, original.to_batches())))
    assert there_and_back(original.to_batches()[0]).equals(original.to_batches()[0])
    union = pa.UnionArray.from_sparse(pa.array([0, 1], pa.int8()), [pa.array([1, 2]), pa.array(["a", "b"])])
    with pytest.raises(errors.NotExact, match="union"):
        there_and_back(pa.table({"u": union}))


def test_xarray_objects_come_back_identical(there_and_back: Callable[..., Any]) -> None:
    """Attrs with their types, dimension order, coordinates with and without an index, names."""
    xr = pytest.importorskip("xarray")
    pytest.importorskip("zarr")
    dataset = xr.Dataset(
        {
            "t": (("x", "time"), np.arange(6.0).reshape(2, 3), {"unit": "K", "pair": (1, 2), "n": np.float32(2)}),
            "c": ((), 3 + 4j),
        },
        coords={
            "x": [10, 20],
            "time": pd.date_range("2030-01-01", periods=3),
            "lab": ("x", np.array(["u", "vv"], dtype=object)),
        },
        attrs={"title": "q"},
    )
    for original in (dataset, dataset["t"], dataset["t"].rename(None), dataset.isel(x=0)):
        back = there_and_back(original)
        assert type(back) is type(original)
        assert back.identical(original)
    assert type(there_and_back(dataset)["t"].attrs["pair"]) is tuple
    assert list(there_and_back(dataset, columns=["c"]).data_vars) == ["c"]
    with pytest.raises(errors.NotExact, match="MultiIndex"):
        there_and_back(dataset.stack(z=("x", "time")))


def test_an_equal_figure_gives_equal_bytes_and_stays_open(tmp_path: Path) -> None:
    """PNG and SVG; the figure is neither closed nor shown; it loads as a picture."""
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    plt = pytest.importorskip("matplotlib.pyplot")
    figure, axes = plt.subplots()
    axes.plot([1, 2, 3])
    canvas = figure.canvas
    for image in ("png", "svg"):
        first, again = (codecs.encode(figure, tmp_path, image=image) for _ in range(2))
        assert first.path.read_bytes() == again.path.read_bytes()
        back = codecs.decode(first.path, first.media_type)
        assert any(key.startswith("image/") for key in back._repr_mimebundle_())
    assert plt.fignum_exists(figure.number)
    assert figure.canvas is canvas
    plt.close(figure)


def test_plotly_and_images_load_as_pictures(there_and_back: Callable[..., Any]) -> None:
    """A plotly figure keeps its specification; an image its pixels."""
    go = pytest.importorskip("plotly.graph_objects")
    image = pytest.importorskip("PIL.Image")
    back = there_and_back(go.Figure(go.Scatter(y=[1, 2])))
    assert back.spec["data"][0]["y"] == [1, 2]
    assert there_and_back(image.new("RGB", (3, 2)))._repr_png_()[:4] == b"\x89PNG"


class Broken(pd.DataFrame):
    """A subclass that pandas does not know."""

    @property
    def _constructor(self) -> Any:
        return Broken


def test_a_refusal_names_every_column_and_lossy_does_what_it_said(tmp_path: Path) -> None:
    """One error for the whole frame; nothing is left; then exactly the changes that were announced."""
    frame = pd.DataFrame(
        {"ok": [1, 2], "p": pd.Series([Point(1, 2), None], dtype=object), "q": pd.Series([{1: print}, 2], dtype=object)}
    )
    frame.attrs = {"f": print, "kept": 1}
    with pytest.raises(errors.NotExact) as caught:
        codecs.encode(frame, tmp_path)
    for place in ("'p'", "'q'", "'f'"):
        assert place in caught.value.changes
    assert list(tmp_path.iterdir()) == []
    encoded = codecs.encode(frame, tmp_path, lossy=True)
    assert "; ".join(encoded.changes) == caught.value.changes
    back = codecs.decode(encoded.path, encoded.media_type)
    assert back["p"].tolist()[0] == str(Point(1, 2))
    assert back.attrs == {"kept": 1}
    assert_same(
        frame[["ok"]].set_flags().rename_axis(None),
        codecs.decode(encoded.path, encoded.media_type, columns=["ok"]),
        ignore=("attrs",),
    )
    with pytest.raises(errors.NotExact, match="class"):
        codecs.encode(Broken({"a": [1]}), tmp_path)


@pytest.mark.parametrize("fault", [KeyboardInterrupt, OSError, MemoryError])
def test_nothing_is_left_after_any_failure(
    fault: type[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fault while the file is there, just before it gets its name."""

    def stop(self: Path, target: Any) -> None:
        assert self.name.startswith(files.PART)
        raise fault

    monkeypatch.setattr(Path, "rename", stop)
    for value in ("text", {"a": 1}, pd.DataFrame({"a": [1]}), np.arange(3), {"a": np.arange(3)}):
        with pytest.raises(fault):
            codecs.encode(value, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_importing_the_codecs_imports_no_library() -> None:
    """In a fresh interpreter; recording text imports none either."""
    program = (
        "import sys, tempfile, pathlib\nfrom rlm_memory import codecs\n"
        "codecs.encode({'a': 1}, pathlib.Path(tempfile.mkdtemp()))\n"
        "print([name for name in ('numpy', 'pandas', 'pyarrow', 'polars', 'matplotlib') if name in sys.modules])"
    )
    assert subprocess.check_output([sys.executable, "-c", program], text=True).strip() == "[]"


def test_summaries_show_no_value_and_previews_are_bounded(tmp_path: Path) -> None:
    """At most 10 rows x 20 columns of short text, at most 32 KiB of JSON."""
    frame = pd.DataFrame({f"c{at}": ["secret " * 500] * 50 for at in range(40)})
    encoded = codecs.encode(frame, tmp_path)
    assert encoded.preview is not None
    assert len(json.dumps(encoded.preview)) <= 32 << 10
    assert len(encoded.preview["rows"]) <= 10
    assert all(len(row) <= 20 for row in encoded.preview["rows"])
    assert "secret" not in encoded.summary
    assert encoded.shape == [50, 40]


def test_compare_tells_schema_rows_and_values(tmp_path: Path) -> None:
    """Between objects and between recorded files."""
    a = pd.DataFrame({"k": [1, 2], "v": [1.0, 2.0], "gone": [0, 0]})
    b = pd.DataFrame({"k": [1, 2], "v": [1.0, 2.5], "new": ["x", "y"]})
    found = codecs.compare(a, b)
    assert {(one.what, one.where.split(":")[0]) for one in found.differences} == {
        ("column", "gone"),
        ("column", "new"),
        ("value", "v"),
    }
    assert "2.5" in repr(found)
    assert "<table>" in found._repr_html_()
    first, second = codecs.encode(a, tmp_path), codecs.encode(a, tmp_path)
    assert codecs.compare((first.path, first.media_type), (second.path, second.media_type)).same
    assert not codecs.compare({"a": 1}, {"a": 1, "b": 2}).same


def test_recorded_files_of_other_makers_are_parsed_on_demand(tmp_path: Path) -> None:
    """Bytes by default, a table where one is asked for."""
    path = tmp_path / "x.csv"
    path.write_text("a,b\n1,x\n")
    assert codecs.decode(path, "text/csv") == b"a,b\n1,x\n"
    assert codecs.decode(path, "text/csv", as_="pandas")["a"].tolist() == [1]
    assert libraries.loaded("no_such_module") is None


def test_a_loaded_frame_can_be_written_to(there_and_back: Callable[..., Any]) -> None:
    """No column stays the read-only memory of an Arrow buffer; neither does a Series."""
    frame = pd.DataFrame(
        {
            "f": [1.0, 2.0],
            "n": pd.array([1, None], dtype="Int8"),
            "t": pd.to_datetime(["2030-01-01", "2030-01-02"]),
            "s": pd.array(["a", "b"], dtype="string"),
            "o": pd.Series([1, "a"], dtype=object),
            "b": [True, False],
        }
    )
    back = there_and_back(frame)
    for at in range(back.shape[1]):
        back.iloc[0, at] = back.iloc[1, at]
    assert back.iloc[0].astype(str).tolist() == back.iloc[1].astype(str).tolist()
    series = there_and_back(frame["f"])
    series.iloc[0] = 9.0
    assert series.tolist() == [9.0, 2.0]


def test_a_preview_that_cannot_be_made_fails_no_record(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A library that fails on showing a value leaves the file and the facts; the preview is left out."""
    frame = pd.DataFrame({"a": [1, 2]})

    def fail(*_: Any) -> Any:
        raise AttributeError("no such zone")

    monkeypatch.setattr(preview, "cell", fail)
    encoded = codecs.encode(frame, tmp_path)
    assert encoded.preview is None
    assert_same(frame, codecs.decode(encoded.path, encoded.media_type))
