"""An older version never lands after a newer one, and what was forgotten takes nothing older along (G4-11)."""

from __future__ import annotations

from pathlib import Path

import pytest
from rlm_memory_host.evaluation.conversation import HOME, remember
from rlm_memory_host.evaluation.stand import Service, Stand, Wanted
from rlm_memory_host.honcho.fake import FakeHoncho, Fault, serving

ADD = "POST .*/messages$"


@pytest.mark.parametrize("status", [503, 429])
def test_g4_11_a_newer_version_is_last_and_a_forgotten_note_is_not_sent(tmp_path: Path, status: int) -> None:
    """The first delivery is answered with a failure; its session keeps its order, and no other session waits for it."""
    with serving(FakeHoncho(workspaces=["evaluation"])) as served:
        with Stand(tmp_path, Wanted(Service(served.url), cards=False)) as stand:
            scope = stand.scope(HOME)
            # Long enough for everything below to be said while the first one is on its way.
            headers = {"Retry-After": "1"} if status == 429 else {}
            served.call(lambda: served.fake.plan.add(Fault(route=ADD, status=status, headers=headers, wait=1.0)))
            done = remember(stand, "The owner likes green tea in the morning.")
            stand.call("memory_correct", scope, correction="The owner likes coffee in the morning.", id=done["id"])
            gone = remember(stand, "The spare anchor lies under the jetty.")
            said = "Forget the note about the spare anchor."
            stand.feed(scope, (said, "Done."))
            stand.call("memory_forget", scope, id=gone["id"], quote=said)
            remember(stand, "The slipway closes at dusk.", session="another")
            assert stand.settle()
        rows = served.fake.rows()
        session = {row["session_id"] for row in rows if "coffee" in row["content"]}
        own = [row["content"] for row in rows if row["session_id"] in session and row["metadata"]["role"] != "user"]
        notes = [text for text in own if "morning" in text or "anchor lies" in text]
        assert notes == ["The owner likes green tea in the morning.", "The owner likes coffee in the morning."]
        assert sum("slipway" in row["content"] for row in rows) == 1
