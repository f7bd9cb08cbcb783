"""Whatever a caller passes to load, open and compare is answered by a named error that says which argument."""

from __future__ import annotations

import decimal
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from rlm_memory import codecs, errors
from rlm_memory.codecs import dispatch
from rlm_memory.codecs.results import Encoded

pytestmark = pytest.mark.compat


class Broken:
    """A value that can be neither compared nor shown."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no comparison")

    def __repr__(self) -> str:
        raise RuntimeError("no text")


HUGE = 10**5000
"""Python refuses to write it out."""
VALUES: list[Any] = [
    *(True, 0, -1, 2**31, 2**64, HUGE, 0.5, 1.5, float("nan"), float("inf"), 1 + 2j, decimal.Decimal("1.5")),
    *("", "none such", "\x00", "\ud800", "x" * 100_000, b"k", bytearray(b"x"), Ellipsis, object(), int, len),
    *((), [], {}, {"k": 1}, ("k",), [["k"]], [True], [Broken()], ["k", 1], Broken(), range(10**30), itertools.count),
    *(slice("a"), slice(1.5), slice(0, 5, 0), range(-3, 2), (1, 2, 3), ("a", "b"), (HUGE, None), range(HUGE)),
    *(np.int64(3), np.array("k"), np.array([1]), pd.Index(["x"]), pd.Series(["x"]), pd.Timestamp("2030"), Path("x")),
]
CONDITIONS: list[Any] = [
    *(("k", "==", 1), [("k", "==")], [("k", 1, 1)], [("k", Broken(), 1)], [(["k"], "==", 1)], [(None, "==", 1)]),
    *([("k", "in", 5)], [("k", "in", "abc")], [("k", "in", itertools.count)], [("k", "in", range(10**30))], [[]]),
    *([("k", "==", Broken())], [(Broken(), "==", 1)], [("k", ">", "text")]),
    *([("name", ">", 1)], [("name", "<", b"x")], [("when", ">", "garbage")], [("cells", "<", [1])], [("x", "==", 1)]),
    *([("k", "==", np.array([1, 2]))], [("kind", "<", "none such")], [("k", "==", {})]),
]
ANSWERED: list[Any] = [
    *([("k", "==", HUGE)], [("k", "<", 2**70)], [("f", ">", decimal.Decimal("1.5"))], [("k", "==", None)]),
    *([("k", "==", pd.NA)], [("k", "in", iter([1]))], [("k", "in", {1: 2})], [("k", "not in", [])], [("k", "in", [])]),
    *([("name", "==", "\ud800")], [("name", "in", ["\ud800"])], [("k", "in", [1, "x", None])]),
]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Encoded]:
    """One object of each kind that is read in parts."""
    frame = pd.DataFrame(
        {
            "k": np.arange(6),
            "f": np.arange(6) / 8,
            "name": pd.array([f"n{at}" for at in range(6)], dtype="string[pyarrow]"),
            "when": pd.date_range("2030", periods=6),
            "kind": pd.Categorical(["a", "b"] * 3, ordered=True),
            "cells": [[1, 2], [3]] * 3,
        }
    )
    objects = {
        "frame": frame,
        "two header levels": pd.DataFrame([[1]], columns=pd.MultiIndex.from_tuples([("k", 1)])),
        "series": frame["k"],
        "index": frame.set_index("name").index,
        "table": pa.table({"k": [1, 2], "name": ["a", "b"]}),
        "array": np.arange(20).reshape(4, 5),
        "dict of arrays": {"k": np.arange(3)},
        "array of objects": np.array([1, "a", None], dtype=object),
        "dict": {"k": [1]},
        "text": "hello",
    }
    folder = tmp_path_factory.mktemp("recorded")
    return {name: codecs.encode(obj, folder) for name, obj in objects.items()}


def _refused(run: Callable[[], Any], *named: str) -> None:
    """The call is refused, briefly and naming one of these; or it is answered."""
    said = _said(run)
    assert not said or (10 < len(said) < 600 and said.startswith(named))


def _said(run: Callable[[], Any]) -> str:
    try:
        run()
    except errors.MemoryFault as fault:
        return str(fault)
    return ""


@pytest.mark.parametrize("kind", ["frame", "two header levels", "series", "index", "table", "array", "dict of arrays"])
@pytest.mark.parametrize("argument", ["columns", "filters", "rows", "sample", "seed", "as_"])
def test_a_value_of_the_wrong_kind_is_refused_under_the_arguments_name(
    argument: str, kind: str, recorded: dict[str, Encoded]
) -> None:
    """Wrong types, hostile text, values that cannot be shown or compared, and far too many of them."""
    one = recorded[kind]
    for value in VALUES:
        part = {argument: value, **({"sample": 1} if argument == "seed" else {})}
        # seed= is looked at where a sample is drawn, which an array without rows refuses first.
        _refused(lambda part=part: codecs.decode(one.path, one.media_type, **part), argument, "sample")


@pytest.mark.parametrize("argument", ["columns", "rows", "sample", "as_", "filters"])
@pytest.mark.parametrize("kind", ["array of objects", "dict", "text"])
def test_what_loads_whole_names_the_argument_that_asks_for_a_part(
    kind: str, argument: str, recorded: dict[str, Encoded]
) -> None:
    """JSON, text and arrays of objects."""
    one = recorded[kind]
    for value in VALUES:
        _refused(lambda value=value: codecs.decode(one.path, one.media_type, **{argument: value}), argument)


def test_conditions_that_mean_nothing_are_refused(recorded: dict[str, Encoded]) -> None:
    """Malformed, of the wrong type, of values that fail to compare, of endless lists."""
    one = recorded["frame"]
    for filters in CONDITIONS:
        said = _said(lambda filters=filters: codecs.decode(one.path, one.media_type, filters=filters))
        assert said.startswith("filters: "), filters
        assert len(said) < 600


def test_conditions_on_odd_values_have_the_meaning_of_pandas(recorded: dict[str, Encoded]) -> None:
    """Numbers beyond the column's type, other numbers, nothing, lone surrogates, iterators and mixed lists."""
    one = recorded["frame"]
    rows = [len(codecs.decode(one.path, one.media_type, filters=filters)) for filters in ANSWERED]
    assert rows == [0, 6, 0, 0, 0, 1, 1, 6, 0, 0, 0, 1]


def test_each_form_is_given_or_refused_by_name(recorded: dict[str, Encoded]) -> None:
    """Every kind in every form, whole and in part; and opened lazily."""
    for one in recorded.values():
        for form in dispatch.FORMS:
            for part in ({}, {"columns": ["k"]}, {"rows": (0, 1)}, {"filters": [("k", "==", 1)]}, {"sample": 1}):
                _refused(
                    lambda one=one, form=form, part=part: codecs.decode(one.path, one.media_type, as_=form, **part),
                    *("as_", "columns", "rows", "filters", "sample", "The recorded file is not"),
                )
        _refused(lambda one=one: codecs.open_lazy(one.path, one.media_type), "open")


@pytest.mark.parametrize(
    "media_type",
    [
        *("application/vnd.apache.parquet", "text/csv", "application/vnd.apache.arrow.file", "application/x-npy", ""),
        *("application/vnd.apache.parquet; codec=frame", "application/x-npy; codec=array", "\x00;;=", "image/png"),
        *("application/zip; codec=arrays", "application/zip; codec=xarray", "application/json; codec=json"),
    ],
)
def test_a_file_that_is_not_what_its_type_says_is_refused(media_type: str, tmp_path: Path) -> None:
    """In each form, as it is, and lazily."""
    path = tmp_path / "file.bin"
    path.write_bytes(b"PAR1\xff,\x00\x93NUMPYPK\x03\x04")
    for form in (None, *dispatch.FORMS):
        assert len(_said(lambda form=form: codecs.decode(path, media_type, as_=form))) < 600
    with pytest.raises((errors.Invalid, errors.Integrity)):
        codecs.open_lazy(path, media_type)
