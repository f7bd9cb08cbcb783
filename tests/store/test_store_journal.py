"""The journal beside the cards saves looking at every card, is never believed over them, and knows an edited one."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from rlm_memory_host.contracts.records import SearchRequest
from rlm_memory_host.storage import cardjournal, catalogue
from rlm_memory_host.storage.cardjournal import CardJournal, Entry, Position, follow
from rlm_memory_host.storage.faults import RecordingLayer
from rlm_memory_host.storage.files import FileLayer
from store_harness import World, card_json, find, fingerprint


def entry(number: int, kind: cardjournal.Kind = "card", **more: bytes) -> Entry:
    name = f"exp_{number:052}"
    return Entry(kind, name, (1, number, number, number), (1, number + 1, number + 1, number + 1), **more)


def test_entries_come_back_and_lead_from_one_look_to_another(tmp_path: Path) -> None:
    """All of them, or those after a position; a gap leads nowhere."""
    journal = CardJournal(FileLayer(), tmp_path / "journal")
    assert journal.read() == ([], Position())
    written = [entry(number) for number in range(5)]
    for each in written[:3]:
        journal.append(each, 10)
    entries, position = journal.read()
    assert entries == written[:3]
    for each in written[3:]:
        journal.append(each, 10)
    assert journal.read(position)[0] == written[3:]
    assert journal.end() == journal.read(position)[1]
    assert follow(written, written[1].before, written[4].after) == written[1:]
    assert follow(written, (9, 9, 9, 9), written[4].after) is None
    assert follow(written[:2] + written[3:], written[0].before, written[4].after) is None
    assert follow(written, written[1].before, written[3].after) is None


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-7],
        lambda data: data[:-1] + b"\x00",
        lambda data: data[: len(data) // 2] + b"\xff" + data[len(data) // 2 + 1 :],
        lambda data: b"",
        lambda data: b"something else entirely" * 20,
    ],
)
def test_a_damaged_journal_loses_entries_and_never_says_anything_wrong(
    tmp_path: Path, damage: Callable[[bytes], bytes]
) -> None:
    """What it still says was written; the next append goes on behind the last whole record or anew."""
    journal = CardJournal(FileLayer(), tmp_path / "journal")
    written = [entry(number) for number in range(4)]
    for each in written:
        journal.append(each, 10)
    path = tmp_path / "journal"
    path.write_bytes(damage(path.read_bytes()))
    kept = journal.read()[0]
    assert kept == written[: len(kept)]
    assert set(journal.written([each.experiment for each in written])) <= {each.experiment for each in written}
    journal.append(entry(7), 10)
    assert entry(7).experiment in journal.written([entry(7).experiment])


def test_what_was_written_of_a_card_is_found_from_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last word counts, in whichever block it is, for a few cards and for many; what is recent costs one block."""
    monkeypatch.setattr(cardjournal, "BLOCK", 4)
    journal = CardJournal(FileLayer(), tmp_path / "journal")
    for number in range(30):
        journal.append(entry(number % 20, digest=bytes([number]) * 32), 100)
    journal.append(entry(1, "removed"), 100)
    journal.append(entry(2, "sidecar"), 100)
    for count in (1, 20):
        found = journal.written([entry(number).experiment for number in range(count)])
        expected = {
            entry(number).experiment: bytes([number + 20 if number < 10 else number]) for number in range(count)
        }
        expected.pop(entry(1).experiment, None)
        assert {name: each.digest[:1] for name, each in found.items()} == expected
    asked: list[int] = []
    monkeypatch.setattr(os, "pread", lambda *given, original=os.pread: asked.append(given[1]) or original(*given))
    assert journal.written([entry(9).experiment])[entry(9).experiment].digest == bytes([29]) * 32
    assert len(asked) == 1


def test_a_journal_far_beyond_its_cards_is_written_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It keeps the last word of each card and nothing of removed ones; readers see another generation."""
    monkeypatch.setattr(cardjournal, "REWRITE_FROM", 8)
    journal = CardJournal(FileLayer(), tmp_path / "journal")
    journal.append(entry(1, digest=b"a" * 32), 2)
    journal.append(entry(2), 2)
    journal.append(entry(2, "removed"), 2)
    before = journal.end()
    for number in range(6):
        journal.append(entry(3, digest=bytes([number]) * 32), 2)
    journal.append(entry(4), 1)
    entries, position = journal.read(before)
    assert position.generation != before.generation
    assert [each.experiment[-1] for each in entries] == ["1", "3", "4"]
    assert journal.written([entry(3).experiment])[entry(3).experiment].digest == bytes([5]) * 32
    assert not list(tmp_path.glob("*.new"))


def test_records_work_while_the_journal_cannot_be_written(world: World) -> None:
    """Everything is found all the same."""

    class Unwritable(FileLayer):
        def open_lock(self, path: Path) -> int:
            if path == world.layout.journal:
                raise OSError(errno.EIO, "injected")
            return super().open_lock(path)

    with world.open(files=Unwritable()) as store, world.open() as other:
        done = world.record(store, b"one", title="alpha")
        assert find(store, world.scope(), "alpha") == [done.experiment_id]
        assert find(other, world.scope(), "alpha") == [done.experiment_id]
        second = world.record(store, b"two", title="beta")
        assert find(other, world.scope(), "beta") == [second.experiment_id]
    assert not world.layout.journal.exists()


def test_a_strangers_change_between_two_records_is_not_missed(world: World) -> None:
    """The journal leads over hosts' own commits only; where anybody else was, the folder is looked at."""
    with world.open() as store, world.open() as other:
        world.record(store, b"first", title="first")
        find(store, world.scope(), "first")
        world.record(other, b"second", title="second", query_fingerprint=fingerprint(2))
        experiment, card = card_json(world.project, b"by hand", 7)
        world.layout.card(experiment).write_text(json.dumps(card | {"title": "handmade"}))
        world.record(other, b"third", title="third", query_fingerprint=fingerprint(3))
        assert find(store, world.scope(), "handmade") == [experiment]
        assert len(find(store, world.scope(), "", limit=20)) == 4


def test_a_commit_that_counted_itself_and_died_is_waited_for_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its count is there and its card is not: searches go on at once, and the folder is looked at when time is up."""
    layer = RecordingLayer()
    with world.open(files=layer) as store:
        done = world.record(store, b"one", title="alpha")
        while store.project(world.scope()).parts.catalogue._doubt:
            find(store, world.scope(), "alpha")
        lock = store.project(world.scope()).parts.lock
        with lock.held():
            commits, counted = lock.read()
            lock.write(commits + 1, counted or 0)
        scans = [(look.name, look.target) for look in layer.looks].count(("scan", str(world.layout.cards)))
        assert find(store, world.scope(), "alpha") == [done.experiment_id]
        assert [(look.name, look.target) for look in layer.looks].count(("scan", str(world.layout.cards))) == scans
        monkeypatch.setattr(catalogue, "COMING_SECONDS", -1.0)
        store.project(world.scope()).parts.catalogue._coming = None
        assert find(store, world.scope(), "alpha") == [done.experiment_id]
        assert [(look.name, look.target) for look in layer.looks].count(("scan", str(world.layout.cards))) == scans + 1


# -- edited cards ------------------------------------------------------------------------------------------------------


def edit_in_place(path: Path, **changes: object) -> None:
    """Other words in the very file, with times put back."""
    before = path.stat()
    card = json.loads(path.read_bytes())
    for name, value in changes.items():
        (card["artifact"] if name in card["artifact"] else card)[name] = value
    with path.open("r+b") as file:
        file.write(json.dumps(card).encode())
        file.truncate()
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_a_card_edited_in_place_is_noticed(world: World) -> None:
    """By resolve, in a running host and in a new one; by diagnostics and in the counts; and a new record mends it."""
    with world.open() as store:
        done = world.record(store, b"1,2", media_type="text/csv", title="table")
        assert store.resolve(world.scope(), done.experiment_id).warnings == ()
        edit_in_place(world.layout.card(done.experiment_id), mediaType="application/x-other")
        with world.open() as fresh:
            for each in (store, fresh):
                resolved = each.resolve(world.scope(), done.experiment_id)
                assert any("edited" in warning for warning in resolved.warnings)
                assert resolved.path.read_bytes() == b"1,2"
        assert [item.code for item in store.diagnostics(world.scope())] == ["CARD_EDITED"]
        assert store.status(world.scope())["project"]["edited"] == 1
        world.record(store, b"1,2", title="table, again")
        assert store.resolve(world.scope(), done.experiment_id).warnings == ()
        assert store.diagnostics(world.scope()) == []
    with world.open() as store:
        assert store.diagnostics(world.scope()) == []


def test_an_edit_that_keeps_every_size_and_time_is_noticed(world: World) -> None:
    """A title of the same length: the bytes are compared."""
    with world.open() as store:
        done = world.record(store, b"x", title="table")
        edit = world.layout.card(done.experiment_id)
        data = edit.read_bytes().replace(b'"table"', b'"chair"')
        with edit.open("r+b") as file:
            file.write(data)
        assert store.resolve(world.scope(), done.experiment_id).warnings != ()
        assert [item.code for item in store.diagnostics(world.scope())] == ["CARD_EDITED"]
        assert find(store, world.scope(), "chair") == [done.experiment_id]


def test_cards_of_other_tools_and_replaced_ones_are_not_called_edited(world: World) -> None:
    """Another tool writes a new file, and a card that no host wrote has nothing to be compared with."""
    with world.open() as store:
        done = world.record(store, b"x", title="table")
        card = json.loads(world.layout.card(done.experiment_id).read_bytes())
        fresh = world.layout.temporary / "theirs"
        fresh.write_text(json.dumps(card | {"title": "theirs"}))
        fresh.replace(world.layout.card(done.experiment_id))
        planted, document = card_json(world.project, b"x", 3)
        world.layout.card(planted).write_text(json.dumps(document))
        edit_in_place(world.layout.card(planted), title="again")
        assert store.resolve(world.scope(), done.experiment_id).warnings == ()
        assert store.resolve(world.scope(), planted).warnings == ()
        assert store.diagnostics(world.scope()) == []
        assert store.search(world.scope(), SearchRequest("theirs")).total == 1
