"""Whatever frame is made up, it comes back exactly."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import generated
import pandas as pd
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from rlm_memory import codecs
from same import assert_same

pytestmark = pytest.mark.compat
LOOSE = list(HealthCheck)


def exact(obj: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        encoded = codecs.encode(obj, Path(folder))
        assert_same(obj, codecs.decode(encoded.path, encoded.media_type))
        assert len(list(Path(folder).iterdir())) == 1


@settings(max_examples=150, deadline=None, suppress_health_check=LOOSE)
@given(generated.frames())
def test_any_frame_comes_back_exactly(frame: Any) -> None:
    """Dtypes x index kinds x label kinds x missing values x attrs x flags."""
    exact(frame)


@settings(max_examples=100, deadline=None, suppress_health_check=LOOSE)
@given(generated.series())
def test_any_series_comes_back_exactly(series: Any) -> None:
    """Values, index and name."""
    exact(series)


@settings(max_examples=60, deadline=None, suppress_health_check=LOOSE)
@given(st.integers(0, 5).flatmap(generated.indexes))
def test_any_index_comes_back_exactly(index: Any) -> None:
    """Class, names, levels, frequency."""
    exact(index)


@pytest.mark.slow
@pytest.mark.timeout(7200)
@settings(max_examples=10_000, deadline=None, suppress_health_check=LOOSE, phases=[Phase.generate])
@given(generated.frames(max_rows=12, max_columns=6))
def test_ten_thousand_frames_come_back_exactly(frame: Any) -> None:
    """The long campaign."""
    exact(frame)


def test_an_index_that_pandas_cannot_cut_is_recorded_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """pandas 3 fails on slices of some indexes, depending on what was asked of them before."""

    def fail(*_: Any) -> Any:
        raise TypeError("argument must be an integer")

    index = pd.Index([1043, 3, 3, 3, 3, 3])
    objects = [pd.DataFrame(index=index), pd.Series(range(6), index=index), index]
    monkeypatch.setattr(pd.Index, "_getitem_slice", fail)
    for obj in objects:
        with tempfile.TemporaryDirectory() as folder:
            encoded = codecs.encode(obj, Path(folder))
            assert_same(obj, codecs.decode(encoded.path, encoded.media_type))
