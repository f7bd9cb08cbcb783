"""Fixtures of the codec tests: recording and loading in one step, and each engine that reads slices."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rlm_memory import codecs
from rlm_memory.codecs import libraries, scan


@pytest.fixture
def there_and_back(tmp_path: Path) -> Callable[..., Any]:
    """Encode an object into a fresh folder and decode it, whole or in part."""

    def run(obj: Any, **part: Any) -> Any:
        encoded = codecs.encode(obj, tmp_path)
        return codecs.decode(encoded.path, encoded.media_type, **part)

    return run


@pytest.fixture(params=["polars", "pyarrow"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each engine in turn."""
    if request.param == "polars":
        pytest.importorskip("polars")
    else:
        monkeypatch.setattr(scan, "optional", lambda name: None if name == "polars" else libraries.optional(name))
    return request.param
