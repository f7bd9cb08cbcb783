"""A recording that is interrupted, wherever it is, stops with the interrupt and leaves no file."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from rlm_memory import codecs

# What an interrupt drops in the middle of its work, such as an open zip file, complains when it is collected.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

PACKAGE = str(Path(codecs.__file__).parent)
LISTS = pa.schema({"k": pa.list_(pa.int64())})


def _reader() -> Any:
    batch = pa.record_batch({"k": pa.array([[1], [2]], LISTS.field("k").type)})
    return pa.RecordBatchReader.from_batches(LISTS, iter([batch, batch]))


OBJECTS: dict[str, Callable[[], Any]] = {
    "text": lambda: "text",
    "dict": lambda: {"a": [1]},
    "frame": lambda: pd.DataFrame({"a": [1, 2], "o": ["x", None], "n": [[1], [2]]}),
    "series of categories": lambda: pd.Series(pd.Categorical(["a", "b"])),
    "array": lambda: np.arange(4),
    "masked array": lambda: np.ma.MaskedArray([1, 2], mask=[True, False]),
    "dict of arrays": lambda: {"a": np.arange(3)},
    "array of objects": lambda: np.array([1, "a"], dtype=object),
    "table": lambda: pa.table({"k": [1]}),
    "reader": _reader,
}


class Stop:
    """Counts the lines of our own code that run, and interrupts before one of them."""

    def __init__(self, before: int) -> None:
        self.lines, self._before = 0, before

    def __call__(self, frame: FrameType, event: str, _argument: Any) -> Stop | None:
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        if event == "line":
            self.lines += 1
            if self.lines == self._before:
                sys.settrace(None)
                raise KeyboardInterrupt
        return self

    def encode(self, obj: Any, folder: Path) -> None:
        before = sys.gettrace()
        sys.settrace(self)
        try:
            codecs.encode(obj, folder)
        finally:
            sys.settrace(before)


def _interrupted_at(kind: str, folder: Path, places: Callable[[int], set[int]]) -> None:
    codecs.encode(OBJECTS[kind](), folder)  # imports, caches
    count = Stop(0)
    count.encode(OBJECTS[kind](), folder)
    for path in folder.iterdir():
        path.unlink()
    for at in sorted(places(count.lines)):
        with pytest.raises(KeyboardInterrupt):
            Stop(at).encode(OBJECTS[kind](), folder)
        assert list(folder.iterdir()) == [], f"before line {at} of {count.lines}"


@pytest.mark.parametrize("kind", OBJECTS)
def test_an_interrupt_leaves_nothing_behind(kind: str, tmp_path: Path) -> None:
    """At some forty places of every kind, and at each of the last ones, where the file has its name already."""
    _interrupted_at(
        kind, tmp_path, lambda lines: {*range(1, lines, max(1, lines // 40)), *range(max(1, lines - 40), lines + 1)}
    )


@pytest.mark.slow
@pytest.mark.parametrize("kind", OBJECTS)
def test_an_interrupt_before_any_line_leaves_nothing_behind(kind: str, tmp_path: Path) -> None:
    """At every place of every kind."""
    _interrupted_at(kind, tmp_path, lambda lines: set(range(1, lines + 1)))
