"""The evaluation: every case right as the product is, and wrong once one filter, bound or redaction is taken out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rlm_memory_host.artifacts import answers, commit
from rlm_memory_host.artifacts.indexing import projection
from rlm_memory_host.artifacts.store import ArtifactStore
from rlm_memory_host.assembly import cards, redaction, remote
from rlm_memory_host.capture import sessions
from rlm_memory_host.delivery import decisions
from rlm_memory_host.delivery.destroyed import Destroyed
from rlm_memory_host.egress import Egress
from rlm_memory_host.evaluation.cases import all_cases
from rlm_memory_host.evaluation.gates import gates_of
from rlm_memory_host.evaluation.report import failing, markdown, report_of
from rlm_memory_host.evaluation.runner import SECRETS, Run, probe, run_case, run_cases
from rlm_memory_host.guard import injection
from rlm_memory_host.recall import envelope, remotely
from rlm_memory_host.recall.budget import Choice, Ledger
from rlm_memory_host.recall.service import Recall
from rlm_memory_host.storage.objects import Verifier
from rlm_memory_host.tools import searching

CASES = {case.id: case for case in all_cases()}
BY_A_PERSON = {
    "no secret and no tool output captured (looked at by a person)",
    "retention and deletion approved by an operator",
    "usefulness rated by a user",
}


def test_all_twenty_eight_cases_are_there_and_each_asks_for_both_kinds() -> None:
    """Seventeen of section 22, eleven of section 34.2."""
    assert [case for case in CASES if case.startswith("22.")] == [f"22.{n}" for n in range(1, 18)]
    assert [case for case in CASES if case.startswith("34.2.")] == [f"34.2.{n}" for n in range(1, 12)]


@pytest.mark.parametrize("number", CASES)
def test_the_product_passes_each_case(number: str) -> None:
    """What has to be is, and what must not be is not; the case asks for both."""
    outcome = run_case(CASES[number], Run("fake"))
    assert outcome.fault == ""
    assert [check.name for check in outcome.checks if not check.passed] == []
    assert {check.positive for check in outcome.checks} == {True, False}


Break = Callable[[pytest.MonkeyPatch], None]


def _everything(self: Ledger, session: str, epoch: int, found: Any, bounds: Any = None, **_: Any) -> Choice:
    return Choice(tuple(found))


def _no_tombstones(patch: pytest.MonkeyPatch) -> None:
    # Two looks at one thing: the memory's own state, and the text of a row that names none.
    patch.setattr(remotely, "is_tombstone", lambda _block: False)
    patch.setattr(remotely, "is_forgotten_text", lambda _text, _blocks: False)


def _all_rows(rows: Any, project: str) -> Any:
    known = list(rows)
    cut = [{**row, "metadata": {**row["metadata"], "memory_id": None}} for row in known]
    return remote_hits(cut, project)


remote_hits = remote._hits


def _unescaped(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(envelope, "escaped", lambda text: text)
    patch.setattr(searching, "escaped", lambda text: text)


def _sound(patch: pytest.MonkeyPatch) -> None:
    real = Verifier.verify
    patch.setattr(Verifier, "verify", lambda self, *a, **k: replace(real(self, *a, **k), sound=True))


def _one_project(patch: pytest.MonkeyPatch) -> None:
    real = ArtifactStore._project
    patch.setattr(ArtifactStore, "_project", lambda self, _name: real(self, "trial-a"))


def _patient(patch: pytest.MonkeyPatch) -> None:
    defaults = Recall.__init__.__kwdefaults__
    assert defaults is not None
    patch.setitem(defaults, "remote_seconds", 30.0)


BROKEN: dict[str, tuple[str, Break]] = {
    "the project of a text": ("22.3", lambda p: p.setattr(remote.OutboxMemory, "_refusal", lambda *_: "")),
    "the filter of a search": (
        "22.3",
        lambda p: p.setattr(Egress, "labels_of", lambda *_: {"source": "deepseek-honcho"}),
    ),
    "the person of a text": ("22.4", lambda p: p.setattr(Egress, "is_of_owner", lambda *_: True)),
    "what a correction replaced": ("22.5", lambda p: p.setattr(remote, "_hits", _all_rows)),
    "what was forgotten": ("22.5", _no_tombstones),
    "what was destroyed": ("22.5", lambda p: p.setattr(Destroyed, "holds", lambda *_: False)),
    "the escape of stored text": ("22.8", _unescaped),
    "the escape of a card": ("22.17", _unescaped),
    "an instruction in a model's note": ("22.8", lambda p: p.setattr(injection, "line_of_cue", lambda _text: 0)),
    "root sessions alone": ("22.9", lambda p: p.setattr(sessions, "refusal", lambda _event, _agent: "")),
    "the deadline of a search": ("22.10", _patient),
    "look before sending again": (
        "34.2.5",
        lambda p: p.setattr(decisions, "compare", lambda messages, _rows: decisions.Found("absent", tuple(messages))),
    ),
    "the budget of recall": ("22.11", lambda p: p.setattr(Ledger, "take", _everything)),
    "how fresh a result is": ("22.15", lambda p: p.setattr(answers, "freshness_of", lambda *_: "fresh")),
    "the digest of stored bytes": ("22.16", _sound),
    "the digest of stored bytes, one byte": ("34.2.7", _sound),
    "the project of a store": ("34.2.8", _one_project),
    "whose card it is": ("34.2.8", lambda p: p.setattr(cards.OutboxCards, "_refusal", lambda *_: "")),
    "what a card leaves out": ("34.2.9", lambda p: p.setattr(projection, "without", lambda text: text)),
    "the quota of cards": ("34.2.10", lambda p: p.setattr(commit._Commit, "_check_cards", lambda *_: None)),
}


@pytest.mark.fronts
@pytest.mark.parametrize("taken_out", BROKEN)
def test_each_protection_that_is_taken_out_turns_its_case_red(taken_out: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A check of what must not be fails, not just any."""
    number, take_out = BROKEN[taken_out]
    take_out(monkeypatch)
    outcome = run_case(CASES[number], Run("fake"))
    wrong = [check.name for check in outcome.checks if not check.positive and not check.passed]
    assert wrong, [check.name for check in outcome.checks if not check.passed]


def test_the_probe_finds_nothing_and_finds_what_redaction_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted keys and the store's paths are nowhere; without the redactor they are seen."""
    run = Run("fake")
    probe(run)
    assert all(run.probe.values()), run.probe
    monkeypatch.setattr(redaction.Redaction, "captured", lambda _self, text: (text, ()))
    probe(run)
    assert not run.probe["no secret was sent"] or not run.probe["no secret was written"]
    assert not run.probe["no path of the store was sent"]


def test_the_report_says_what_holds_and_no_word_of_content() -> None:
    """A run of a few cases in all settings: gates, baselines and numbers; what a person decides stays open."""
    wanted = [CASES[number] for number in ("22.2", "22.3", "22.15", "34.2.2", "34.2.11")]
    run = run_cases(wanted)
    report = report_of(run)
    assert report["passed"]
    assert failing(report) == []
    assert report["task_success"] == {"everything": 1.0, "no-artifacts": 0.5, "no-memory": 0.0}
    assert report["leakage"] == 0
    assert report["bytes_sent"]["total"] > 0
    states = {gate.name: gate.state for gate in gates_of(run)}
    assert {name for name, state in states.items() if state == "not evaluated"} >= BY_A_PERSON
    assert states["better than without memory"] == "holds"
    told = json.dumps(report) + markdown(report)
    for content in ("rack letter", "assay", "Response by cohort", "trial-warehouse", "exp_", *SECRETS):
        assert content not in told


def test_a_failing_case_fails_its_gate_and_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is rounded up."""
    monkeypatch.setattr(answers, "freshness_of", lambda *_: "fresh")
    run = run_cases([CASES["22.15"]], settings=("everything",))
    report = report_of(run)
    assert "22.15" in failing(report)
    assert "corrections, freshness, injections and outages all right" in failing(report)
    assert report["stale_accuracy"]["right"] < report["stale_accuracy"]["asked"]


def test_the_command_writes_both_reports_and_says_no_to_an_unknown_case(tmp_path: Path) -> None:
    """JSON and Markdown in a folder; exit 0 where all is right, 2 for bad use."""
    base = [sys.executable, "-m", "rlm_memory_host", "evaluate"]
    out = tmp_path / "out"
    done = subprocess.run(
        [*base, "--case", "34.2.6", "--quick", "--out", str(out)], capture_output=True, text=True, env=dict(os.environ)
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads((out / "evaluation.json").read_bytes())["cases"][0]["id"] == "34.2.6"
    assert "not evaluated" in (out / "evaluation.md").read_text()
    refused = subprocess.run([*base, "--case", "99"], capture_output=True, text=True, env=dict(os.environ))
    assert refused.returncode == 2
    assert "34.2.6" in refused.stderr
