"""What counts as a reference, and that a wrong one is refused by name before anybody is asked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from rlm_memory import errors
from rlm_memory.references import experiment_id, title_of

FULL = "exp_" + "a" * 52


def settled(reference: Any) -> str:
    """The id of a reference that needs no host."""
    steps = experiment_id(reference)
    with pytest.raises(StopIteration) as done:
        next(steps)
    return str(done.value.value)


class Result:
    experiment_id = FULL
    title = "kept"


class Failing:
    @property
    def experiment_id(self) -> str:
        raise RuntimeError("what it holds is not told")

    title = experiment_id


class FailingMapping(Mapping[str, Any]):
    def __getitem__(self, name: str) -> Any:
        raise RuntimeError("what it holds is not told")

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


@pytest.mark.parametrize("reference", [FULL, f"  {FULL}\n", Result(), {"experiment_id": FULL}])
def test_ids_results_and_what_was_one_are_references(reference: Any) -> None:
    """Each leads to the same experiment."""
    assert settled(reference) == FULL


@pytest.mark.parametrize("reference", [None, 1, b"exp_", [], {}, {"experiment_id": 1}, Failing(), FailingMapping()])
def test_anything_else_is_refused_by_name(reference: Any) -> None:
    """Also what fails when it is looked at; nothing of its own words is repeated."""
    with pytest.raises(errors.Invalid, match=type(reference).__name__) as refused:
        next(experiment_id(reference))
    assert "not told" not in str(refused.value)


def test_a_title_is_told_where_there_is_one() -> None:
    """A bare id has none."""
    assert (title_of(Result()), title_of({"title": "of a row"}), title_of(FULL)) == ("kept", "of a row", "")
