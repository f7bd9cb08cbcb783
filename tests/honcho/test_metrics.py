"""Numbers without content: what is declared is shown, what is not ours becomes `other`, and a status holds no name."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest
from rlm_memory_host import metrics
from rlm_memory_host.evaluation.results import fingerprint, found, record
from rlm_memory_host.evaluation.stand import Service, Stand, Wanted
from rlm_memory_host.honcho.client import route_of
from rlm_memory_host.honcho.fake import FakeHoncho, serving
from rlm_memory_host.logs import RateLimited
from rlm_memory_host.metrics import DECLARED, MAX_LABELS, OTHER, Metrics

DOCUMENT = Path(__file__).parents[2] / "docs" / "metrics.md"


def test_the_page_is_the_table() -> None:
    """Renew it with `python -c "from rlm_memory_host.metrics import page; print(page(), end='')" > docs/metrics.md`."""
    assert DOCUMENT.read_text() == metrics.page()


def test_every_declared_metric_is_shown_from_the_start() -> None:
    """A zero is a number too."""
    shown = Metrics().snapshot()
    assert set(shown["counters"]) | set(shown["histograms"]) == {item.name for item in DECLARED}
    assert shown["counters"]["recall_truncated"] == 0
    assert shown["histograms"]["recall_seconds"]["p95"] is None


def test_a_label_that_is_no_code_of_ours_is_shown_as_other() -> None:
    """A text, a path or an id of any form has no way in, and many labels have an end."""
    held = Metrics()
    for label in ("a title of a result", "/data/x.csv", "x" * 65, "päth", ""):
        held.count("tool_failures", label)
    for number in range(2 * MAX_LABELS):
        held.count("tool_failures", f"CODE_{number}")
    told = held.snapshot()["counters"]["tool_failures"]
    assert told[OTHER] >= 5
    assert len(told) <= MAX_LABELS + 1
    assert sum(told.values()) == 5 + 2 * MAX_LABELS


def test_an_undeclared_name_is_a_fault() -> None:
    """The table is complete by force."""
    with pytest.raises(KeyError):
        Metrics().count("something_new")


def test_quantiles_are_upper_bounds_that_never_pass_the_longest() -> None:
    """Counts fall into classes; the longest is known exactly."""
    held = Metrics()
    for value in (0.0004, 0.02, 0.02, 0.3, 40.0):
        held.observe("recall_seconds", value)
    told = held.snapshot()["histograms"]["recall_seconds"]
    assert (told["count"], told["max"], told["p50"], told["p99"]) == (5, 40.0, 0.025, 40.0)
    assert sum(told["buckets"]) == 5


def test_a_route_is_told_without_the_ids_in_it() -> None:
    """No workspace, session or peer is part of a metric's name."""
    for path in ("/v3/workspaces/ws-1/sessions/dsh_secret/messages/list", "/v3/workspaces/ws-1/peers/ana/chat"):
        named = route_of("POST", path)
        assert not any(word in named for word in ("ws-1", "dsh_secret", "ana"))
    assert route_of("POST", "/v3/workspaces/w/sessions/s/messages") == "sessions.messages"
    assert route_of("POST", "/v3/workspaces/list") == "workspaces.list"


def test_one_line_a_minute_tells_of_an_outage(caplog: pytest.LogCaptureFixture) -> None:
    """The rest is counted and told with the next line."""
    now = [0.0]
    log = RateLimited(logging.getLogger("rate-limited"), 60.0, now=lambda: now[0])
    with caplog.at_level(logging.INFO, "rate-limited"):
        for _ in range(50):
            log.info("REMOTE_BUSY", "failed code=%s", "REMOTE_BUSY")
        log.warning("OTHER", "failed code=%s", "OTHER")
        now[0] = 61.0
        log.info("REMOTE_BUSY", "failed code=%s", "REMOTE_BUSY")
    lines = [record.getMessage() for record in caplog.records]
    assert lines == [
        "failed code=REMOTE_BUSY kept_back=0",
        "failed code=OTHER kept_back=0",
        "failed code=REMOTE_BUSY kept_back=49",
    ]


def test_a_host_s_numbers_and_its_call_log_hold_no_name_and_no_text(tmp_path: Path) -> None:
    """Records, searches and resolves are counted here and there; titles, queries, ids and peers are nowhere."""
    with serving(FakeHoncho(workspaces=["evaluation"])) as served:
        with Stand(tmp_path, Wanted(Service(served.url, user_peer="ana-person"))) as stand:
            done = record(stand, b"bytes", title="Zebra cohort", project="secret-project")
            stand.settle()
            found(stand, "zebra stripes", project="secret-project")
            scope = stand.scope("secret-project", "later")
            stand.call("memory_artifact_resolve", scope, experiment_id=done["experiment_id"])
            stand.call("memory_search", scope, query="zebra")
            told = stand.parts.metrics.snapshot()
            status = stand.call("memory_status", scope)
            texts = json.dumps([told, {**status, "_text": ""}, stand.parts.sending.identity(), list(stand.calls)])
        counters = told["counters"]
        assert counters["artifact_record"] == {"attempt": 1, "saved": 1}
        assert counters["artifact_bytes"] == {"saved": 5}
        assert counters["artifact_resolve"] == {"not_checked": 1}
        assert counters["card_hits"] == {"both": 2}
        assert counters["outbox_outcomes"] == {"delivered": 1}
        assert counters["remote_bytes_sent"]["sessions.messages"] > 100
        assert told["histograms"]["card_merge_seconds"]["count"] == 2
        assert status["artifacts"]["indexing"]["indexed"] == 1
        named = (done["experiment_id"], fingerprint("cohort response"), str(tmp_path))
        for content in ("ebra", "secret-project", "ana-person", "trial-warehouse", *named):
            assert content not in texts
