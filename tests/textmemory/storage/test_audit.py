"""The audit chain: every kind of damage is told at its number, and nothing of what was said is in it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from rlm_memory_host.contracts.memory import AuditNote, Transaction
from rlm_memory_host.storage import audit, ndjson
from rlm_memory_host.storage.audit import Tail
from rlm_memory_host.textmemory.store import MarkdownStore


def chain(count: int) -> list[bytes]:
    """Lines of a sound log."""
    tail = Tail()
    lines: list[bytes] = []
    for number in range(count):
        made = audit.record(AuditNote("write", "user", target=f"mem_{number}"), tail, "2026-01-01T00:00:00.000Z")
        tail = audit.tail_of(made)
        lines.append(ndjson.encode(made)[:-1])
    return lines


def last(lines: list[bytes]) -> Tail:
    """What the manifest remembers."""
    return audit.tail_of(json.loads(lines[-1]))


def test_a_sound_chain_verifies() -> None:
    """Five records, no break; an empty log without a memory of one neither."""
    lines = chain(5)
    found = audit.verify(lines, last(lines))
    assert (found.records, found.breaks, found.tail.seq) == (5, (), 5)
    assert audit.verify([], Tail()).breaks == ()


@pytest.mark.parametrize(
    ("damage", "seq", "code"),
    [
        (lambda lines: [*lines[:2], lines[2].replace(b"mem_2", b"mem_9"), *lines[3:]], 3, "AUDIT_DAMAGED"),
        (lambda lines: [*lines[:2], lines[2].replace(b'"v":1', b'"v": 1'), *lines[3:]], 3, "AUDIT_DAMAGED"),
        (lambda lines: [*lines[:2], b"\x00" * 40, *lines[3:]], 3, "AUDIT_DAMAGED"),
        (lambda lines: [*lines[:2], *lines[3:]], 3, "AUDIT_REMOVED"),
        (lambda lines: [*lines[:3], lines[2], *lines[3:]], 3, "AUDIT_REPEATED"),
        (lambda lines: lines[:3], 4, "AUDIT_SHORTENED"),
        (lambda lines: [], 1, "AUDIT_MISSING"),
        (lambda lines: lines[1:], 1, "AUDIT_REMOVED"),
        (lambda lines: [lines[1], lines[0], *lines[2:]], 1, "AUDIT_REMOVED"),
    ],
)
def test_damage_is_told_at_its_number(damage: Callable[[list[bytes]], list[bytes]], seq: int, code: str) -> None:
    """A flipped byte, other blanks, zeros, a removed, repeated, moved or missing record."""
    lines = chain(5)
    found = audit.verify(damage(lines), last(lines))
    assert (found.breaks[0].seq, found.breaks[0].code) == (seq, code)


def test_a_whole_other_chain_is_a_break() -> None:
    """Someone who computes all hashes again is caught by what the manifest remembers."""
    lines = chain(5)
    other = [ndjson.encode(audit.record(AuditNote("x", "y"), Tail(), "2026-01-01"))[:-1]]
    for _ in range(4):
        made = audit.record(AuditNote("x", "y"), last(other), "2026-01-01")
        other.append(ndjson.encode(made)[:-1])
    assert [each.code for each in audit.verify(other, last(lines)).breaks] == ["AUDIT_REPLACED"]


def test_a_torn_last_line_is_set_aside_and_recorded(tmp_path: Path) -> None:
    """Half a record at the end: the log goes on after the last whole line, the bytes are kept beside it."""
    store = MarkdownStore(tmp_path)
    store.commit(Transaction(notes=(AuditNote("one", "user"),)))
    path = store.journal.audit_path
    with path.open("ab") as file:
        file.write(b'{"half":')
    again = MarkdownStore(tmp_path)
    assert [each.code for each in again.journal.verify_audit().breaks] == ["AUDIT_TORN"]
    again.commit(Transaction(notes=(AuditNote("two", "user"),)))
    assert [json.loads(line)["op"] for line in path.read_bytes().splitlines()] == ["one", "audit-torn", "two"]
    assert again.journal.verify_audit().breaks == ()
    assert path.with_name("audit.ndjson.torn").read_bytes() == b'{"half":\n'


def test_a_clock_that_goes_back_is_no_break(tmp_path: Path) -> None:
    """Sequence numbers order the log, not times."""
    from datetime import UTC, datetime, timedelta

    moments = iter(
        [datetime(2028, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC)]
    )
    store = MarkdownStore(tmp_path, clock=lambda: next(moments) + timedelta())
    for _ in range(3):
        store.commit(Transaction(notes=(AuditNote("x", "user"),)))
    found = store.journal.verify_audit()
    assert (found.tail.seq, found.breaks) == (3, ())


def test_the_log_holds_no_content(tmp_path: Path) -> None:
    """Only hashes over a random salt: the same text twice gives two hashes."""
    store = MarkdownStore(tmp_path)
    for _ in range(2):
        store.commit(Transaction(notes=(AuditNote("x", "user", target="mem_a", contents=("a private text",)),)))
    data = store.journal.audit_path.read_bytes()
    assert b"private" not in data
    hashes = [json.loads(line)["content"][0] for line in data.splitlines()]
    assert len(set(hashes)) == 2
    salts = [
        json.loads(line)["salt"]
        for path in (store.folder / ".state" / "salts").iterdir()
        for line in path.read_text().splitlines()
    ]
    assert {audit.salted_hash(bytes.fromhex(salt), "a private text") for salt in salts} == set(hashes)
