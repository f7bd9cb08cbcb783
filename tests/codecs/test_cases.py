"""Every frame and array of the reported cases comes back exactly, or is refused by name with nothing left behind."""

from __future__ import annotations

from pathlib import Path

import cases
import pytest
from rlm_memory import codecs, errors
from same import assert_same

pytestmark = pytest.mark.compat


@pytest.mark.parametrize("name", cases.FRAMES)
def test_what_was_recorded_comes_back_as_it_was(name: str, tmp_path: Path) -> None:
    """Each case, by way of a file; a refusal is right only where the case allows one."""
    if name == "geodataframe_two_geometries":
        pytest.importorskip("geopandas")
    original = cases.FRAMES[name]()
    try:
        encoded = codecs.encode(original, tmp_path)
    except errors.NotExact as fault:
        refusal = fault
    else:
        assert_same(original, codecs.decode(encoded.path, encoded.media_type))
        assert encoded.changes == []
        assert [path.name for path in tmp_path.iterdir()] == [encoded.path.name]
        return
    assert cases.META[name]["want"] == "exact-or-refuse", refusal
    assert "column" in refusal.where
    assert refusal.changes
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", cases.LOADS)
def test_a_part_keeps_its_labels_and_types(name: str, tmp_path: Path) -> None:
    """Column subsets and filters give what pandas would give from the whole frame."""
    case = cases.LOADS[name]
    frame, expected = case["fn"]()
    encoded = codecs.encode(frame, tmp_path)
    assert_same(expected, codecs.decode(encoded.path, encoded.media_type, **case["kwargs"]))


def test_dotted_and_empty_labels_are_picked_by_name(tmp_path: Path) -> None:
    """A dot in a label is no path into a struct."""
    frame = cases.odd_string_names()
    encoded = codecs.encode(frame, tmp_path)
    assert_same(frame[["a.b", ""]], codecs.decode(encoded.path, encoded.media_type, columns=["a.b", ""]))


def test_the_largest_unsigned_integer_can_be_filtered_for(tmp_path: Path) -> None:
    """2**64 - 1 fits no signed type; the filter finds its row all the same."""
    frame = cases.uint64_max()
    encoded = codecs.encode(frame, tmp_path)
    back = codecs.decode(encoded.path, encoded.media_type, filters=[("h", "==", 2**64 - 1)])
    assert back["h"].tolist() == [2**64 - 1]
    assert back.index.tolist() == [0]
