"""Which recorded results an injection names unasked: those that share two telling words with the message."""

from __future__ import annotations

import pytest
from rlm_memory_host.contracts.memory import Caller
from rlm_memory_host.contracts.records import SearchHit, SearchPage, SearchRequest
from rlm_memory_host.contracts.scope import Scope
from rlm_memory_host.recall.results import for_message

CALLER = Caller(project="project", session="session")


def named(message: str, title: str, summary: str = "as measured") -> bool:
    """Whether a card that the search found is put before the model."""
    hit = SearchHit(
        experiment_id="exp_1",
        artifact_id="sha256:1",
        title=title,
        summary=summary,
        source="lab",
        source_version="7",
        query_fingerprint="0" * 64,
        shape=None,
        columns=None,
        tags=(),
        media_type="text/plain",
        bytes=1,
        created_at="2026-01-01T00:00:00Z",
        updated_at="2026-01-01T00:00:00Z",
        session_id="other",
        index_state="queued",
        local_available=True,
        matched=(),
        score=1.0,
    )

    def search(scope: Scope, request: SearchRequest) -> SearchPage:
        del scope, request
        return SearchPage((hit,), 1)

    return bool(for_message(search, CALLER, message))


@pytest.mark.parametrize(
    ("message", "title"),
    [
        pytest.param("Send Peter your analysis of the contract", "Analysis of freezers", id="stem"),
        pytest.param("What does the well-being survey cost?", "Well-kept ponds", id="joined"),
        pytest.param("Who was born on 2026-08-21 in this family?", "Ponds of 2026-08-21", id="date"),
        pytest.param("Что мы решили на этой неделе и кто за это отвечает?", "Лёд на прудах и за домом", id="cyrillic"),
        pytest.param(
            "Für wen hältst du mich, und wo bin ich?", "Stoffe für die über Nacht gekühlte Probe", id="german"
        ),
        pytest.param("Où est né le chat à Paris?", "Températures à Lyon, où né", id="french"),
    ],
)
def test_one_shared_word_names_no_result(message: str, title: str) -> None:
    """A word with its stem, a joined word with its parts, and short words of other alphabets are not two."""
    assert not named(message, title)


@pytest.mark.parametrize(
    ("message", "title"),
    [
        ("How did response rates of cohorts change?", "Response rate by cohort"),
        ("Summarise trial-warehouse", "The trial warehouse"),
        ("Reload the freezers", "Reloaded freezer"),
        ("Freezers?", "Freezer temperatures"),
        ("Какой был отклик участников?", "Отклик участников по группам"),
        ("各队列的响应率是多少", "队列响应率"),
        ("コホートの応答率", "応答率"),
    ],
)
def test_two_shared_words_name_it(message: str, title: str) -> None:
    """In any form and script; one is enough where the message has no other."""
    assert named(message, title)
