"""What of a card leaves, and what can never leave, whatever a kernel writes into its texts."""

from __future__ import annotations

import json
import string
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rlm_memory_host.artifacts.indexing.exclusions import is_hollow, without
from rlm_memory_host.artifacts.indexing.projection import MAX_COLUMN_CHARS, MAX_COLUMNS, project_card
from rlm_memory_host.contracts import ids
from rlm_memory_host.contracts.cards import Projection, Skipped
from rlm_memory_host.contracts.records import ArtifactRefV1, ExperimentCardV1, IndexStateV1

SHA = "ab" * 32
ARTIFACT = ids.artifact_id(SHA)
NOW = "2026-08-21T10:00:00.000Z"
ALLOWED = {
    "card_schema_version", "experiment_id", "artifact_id", "query_fingerprint", "card_title", "card_summary", "tags",
    "card_source", "source_version", "shape", "columns",
}  # fmt: skip


def card(**changes: Any) -> ExperimentCardV1:
    """A card with a valid identity."""
    version = changes.get("source_version", "v1")
    given: dict[str, Any] = {
        "title": "Response by cohort",
        "summary": "Aggregate response per cohort and week.",
        "query_fingerprint": "cd" * 32,
        "source": "trial-warehouse",
        "source_version": version,
        "shape": (120, 3),
        "columns": ("cohort", "week", "rate"),
        "tags": ("cohort", "response"),
        "project_id": "trial-a",
        "origin_session_id": "session-1",
        "origin_agent_kind": "root",
        "root_agent_id": "agent-77",
        "tool_call_id": "call-99",
        "plugin_version": "0.1.0",
        "created_at": NOW,
        "updated_at": NOW,
        "index": IndexStateV1(state="pending"),
        **changes,
    }
    given["experiment_id"] = ids.experiment_id(
        project_id=given["project_id"],
        artifact=ARTIFACT,
        query_fingerprint=given["query_fingerprint"],
        source_version=version,
    )
    artifact = ArtifactRefV1(artifact_id=ARTIFACT, sha256=SHA, bytes=7, media_type="x/secret-type", created_at=NOW)
    return ExperimentCardV1(artifact=artifact, **given)


def projected(**changes: Any) -> Projection:
    made = project_card(card(**changes), str)
    assert isinstance(made, Projection)
    return made


def test_only_allowlisted_fields_leave() -> None:
    """No size, digest, media type, agent or call id is among them; the ids that find the card again are."""
    made = projected()
    assert set(made.fields) <= ALLOWED
    everything = json.dumps([made.text, dict(made.fields)])
    for absent in (SHA, "x/secret-type", "agent-77", "call-99"):
        assert absent not in everything
    assert made.fields["experiment_id"] == card().experiment_id
    assert "Response by cohort" in made.text
    assert "cohort, week, rate" in made.text


UNWANTED = {
    "a path": "/data/trial/results.parquet",
    "a home path": "~/notes/plan.txt",
    "a file of a folder": "raw/cohort/x.csv",
    "a Windows path": r"C:\Users\ana\x.csv",
    "a share": r"\\server\share\x.csv",
    "an address": "s3://bucket-9/key.parquet",
    "a connection": "postgresql://db-host:5432/trials",
    "a keyword connection": "host=db-host port=5432 dbname=trials",
    "an ODBC connection": "Server=tcp:db-host;Database=trials;Uid=ana;",
    "a statement": "SELECT rate FROM trials.response WHERE arm = 'A'",
    "a small statement": "select a, b from trials where arm = 1",
    "code": "df.groupby('arm').mean()",
    "a line of code": "\nimport secretlib\n",
    "an assignment": "\nresult = read(arm)\n",
    "a fenced block": "```\nprint(41)\n```",
    "a parameter": "alpha=0.0125",
    "a setting": "API_MODE=fast7",
    "a row": "\nA,17.25,18.5\n",
    "a table": "\n| arm | rate |\n| A | 17.25 |\n",
    "an object": '{"arm": 17.25}',
    "a list of values": "[17.25, 18.5, 19.75]",
    "a digest": "9f" * 32,
    "a blob": "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVphYmNkZWZnaGlqa2xtbm9wcXJzdHV2d3h5eg",
}
CORES = {
    "a path": "parquet", "a home path": "plan", "a file of a folder": "x.csv", "a Windows path": "ana",
    "a share": "share", "an address": "bucket-9", "a connection": "db-host", "a keyword connection": "db-host",
    "an ODBC connection": "db-host", "a statement": "WHERE arm", "a small statement": "where arm", "code": "groupby",
    "a line of code": "secretlib", "an assignment": "read(arm)", "a fenced block": "print(41)", "a parameter": "0.0125",
    "a setting": "fast7", "a row": "17.25", "a table": "17.25", "an object": "17.25", "a list of values": "17.25",
    "a digest": "9f9f9f", "a blob": "QUJDREVG",
}  # fmt: skip


@pytest.mark.parametrize("kind", UNWANTED)
@pytest.mark.parametrize("field", ["title", "summary", "source", "source_version", "tags", "columns"])
def test_what_must_not_leave_does_not_whatever_field_it_is_in(kind: str, field: str) -> None:
    """In any descriptive field, alone or in a sentence; the rest of the sentence stays."""
    text = f"The cohort table {UNWANTED[kind]} of this week"
    if field in ("tags", "columns"):
        value: Any = ("cohort", " ".join(UNWANTED[kind].split())[:120])
    elif field in ("title", "source", "source_version"):
        value = " ".join(UNWANTED[kind].split()) if "\n" in UNWANTED[kind] else text
        if kind in ("a line of code", "an assignment", "a row"):
            value = UNWANTED[kind].strip()
    else:
        value = text
    made = projected(**{field: value})
    everything = json.dumps([made.text, dict(made.fields)])
    assert CORES[kind] not in everything
    if field == "summary":
        assert "cohort table" in made.text


@pytest.mark.parametrize(
    "summary", ["", "   ", "/data/x/y.csv", "SELECT * FROM t", "```\nx\n```", "A,1,2\nB,3,4", "[path]"]
)
def test_a_summary_of_which_nothing_is_left_keeps_the_card_here(summary: str) -> None:
    """The reason is typed; the record is not touched by it."""
    assert project_card(card(summary=summary), str) == Skipped("EMPTY_AFTER_REDACTION")


def test_a_redactor_runs_before_anything_else_looks() -> None:
    """A secret that would be cut in two by another pattern is gone as a whole."""
    made = project_card(
        card(summary="the key hunter2/x.csv opens it"), lambda text: text.replace("hunter2/x.csv", "[s]")
    )
    assert isinstance(made, Projection)
    assert "hunter2" not in made.text


def test_plain_descriptions_leave_as_they_are() -> None:
    """Words, ratios, dates, shapes and names of columns are no code."""
    for text in (
        "Weekly rates for 2019, 2020 and 2021 cohorts; mean 3.2, sd 1.1.",
        "DataFrame, 120 rows x 3 columns: cohort, week, rate",
        "Response/non-response by arm (A vs. B), 24/7 monitoring, and/or both.",
        "We select cohorts from the warehouse by response.",
    ):
        assert without(text) == text


def test_the_revision_follows_from_what_leaves_and_from_nothing_else() -> None:
    """Another word is another revision; another time, session or removed path is not."""
    one = projected()
    assert projected(updated_at="2026-09-01T10:00:00.000Z", origin_session_id="other").revision == one.revision
    assert projected(title="Response by arm").revision != one.revision
    assert projected(tags=("cohort",)).revision != one.revision
    first, second = (projected(summary=f"The table at {path} is whole.") for path in ("/data/a/b.csv", "/data/c/d.csv"))
    assert first.revision == second.revision


def test_a_version_that_is_a_path_is_left_out_and_not_changed() -> None:
    """Part of a version would be another version."""
    assert "source_version" not in projected(source_version="/data/x/y.csv").fields
    assert projected(source_version="2026-08-21").fields["source_version"] == "2026-08-21"


def test_column_names_are_bounded() -> None:
    """A wide table does not make a long message."""
    made = projected(columns=tuple(f"column number {n} of many {'x' * 90}" for n in range(256)))
    assert len(made.fields["columns"]) <= MAX_COLUMNS
    assert sum(map(len, made.fields["columns"])) <= MAX_COLUMN_CHARS
    assert len(made.text) < 10_000


@given(st.text(alphabet=string.printable, max_size=400))
def test_any_text_comes_through_without_an_error_and_cleaning_twice_adds_nothing_back(text: str) -> None:
    """Pure and total."""
    once = without(text)
    assert len(without(once)) <= len(once) + 40
    assert isinstance(is_hollow(once), bool)


@pytest.mark.parametrize("text", ["/" * 2_000, "a/" * 1_000, "x=" * 1_000, "select " * 285, "(" * 2_000, "[1," * 660])
def test_a_hostile_text_costs_no_time_to_speak_of(text: str) -> None:
    """The longest summary of the worst kind, in a process's own time."""
    began = time.process_time()
    without(text)
    assert time.process_time() - began < 5
