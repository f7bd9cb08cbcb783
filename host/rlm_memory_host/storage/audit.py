"""The audit log: a hash chain that says what happened and holds nothing of what was said.

Owns: the record's form, the chain, its verification. Does not own: the manifest that remembers the last record
(`storage.journal`) or when a record is due. Contents appear only as SHA-256 over a random salt and the text; the salts
lie apart (`.state/salts/`) and a purge destroys them, so that the chain stays valid and says nothing any more.

A record: v, seq, ts, actor, session?, tool?, op, scope, target, code, content?, prev, hash; canonical JSON, `hash` is
the SHA-256 of the record without it. `prev` of the first is 64 zeros. Where the log was shortened, lost or damaged, the
next record is an `audit-segment`: it names the anchor (what the manifest remembered) and why, and a verification goes
on from there; the break stays visible for ever.

Source: design page "Recall, resident text, guard, audit, health, tools", Audit.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from rlm_memory_host.contracts import ids
from rlm_memory_host.contracts.memory import AuditNote
from rlm_memory_host.storage import ndjson

ZEROS: Final = "0" * 64
SEGMENT: Final = "audit-segment"


@dataclass(frozen=True, slots=True)
class Tail:
    """The last record of a chain: its sequence number (0 when there is none) and hash."""

    seq: int = 0
    hash: str = ZEROS


@dataclass(frozen=True, slots=True)
class Break:
    """Where the chain does not hold, and how."""

    seq: int
    code: str


@dataclass(frozen=True, slots=True)
class Verification:
    """What a verification found: records read, the last one, breaks by sequence number."""

    records: int
    tail: Tail
    breaks: tuple[Break, ...]


def record(note: AuditNote, tail: Tail, ts: str, salted: tuple[str, ...] = ()) -> dict[str, Any]:
    """The record that follows `tail`."""
    body: dict[str, Any] = {
        "v": 1,
        "seq": tail.seq + 1,
        "ts": ts,
        "actor": note.actor,
        "op": note.op,
        "scope": note.scope,
        "target": note.target,
        "code": note.code,
        "prev": tail.hash,
    }
    if note.session:
        body["session"] = note.session
    if note.tool:
        body["tool"] = note.tool
    if salted:
        body["content"] = list(salted)
    return sealed(body)


def segment(reason: str, last: Tail, anchor: Tail, ts: str) -> dict[str, Any]:
    """The record that starts anew after a break: `last` is what the log ends with, `anchor` what was remembered."""
    return sealed(
        {
            "v": 1,
            "seq": max(last.seq, anchor.seq) + 1,
            "ts": ts,
            "actor": "host",
            "op": SEGMENT,
            "scope": "",
            "target": f"{anchor.seq}:{anchor.hash}",
            "code": reason,
            "prev": last.hash,
        }
    )


def sealed(body: Mapping[str, Any]) -> dict[str, Any]:
    """The record with its hash."""
    plain = {key: value for key, value in body.items() if key != "hash"}
    return {**plain, "hash": hashlib.sha256(ids.canonical_json(plain)).hexdigest()}


def salted_hash(salt: bytes, text: str) -> str:
    """What the log says of a text."""
    return hashlib.sha256(salt + text.encode("utf-8", "surrogatepass")).hexdigest()


def tail_of(row: Mapping[str, Any]) -> Tail:
    """The tail that a record makes."""
    seq, digest = row.get("seq"), row.get("hash")
    return Tail(seq, digest) if isinstance(seq, int) and isinstance(digest, str) else Tail()


def verify(lines: Iterable[bytes], remembered: Tail, pending: Iterable[Mapping[str, Any]] = ()) -> Verification:
    """Check a log's lines (without line ends), then the records that the manifest still has to append.

    `remembered` is the manifest's last record: a log that lacks it, or has another one there, is broken.
    """
    tail = Tail()
    count = 0
    seen: dict[int, str] = {}
    breaks: list[Break] = []
    for line in _with_pending(lines, tuple(pending)):
        count += 1
        row = ndjson.decode(line)
        if row is None or not _is_sealed(row, line):
            breaks.append(Break(tail.seq + 1, "AUDIT_DAMAGED"))
            tail = tail_of(row) if row is not None and tail_of(row).seq == tail.seq + 1 else Tail(tail.seq + 1, "")
            continue
        found = tail_of(row)
        breaks.extend(_breaks_between(tail, found, row))
        seen[found.seq] = found.hash
        tail = found if found.seq > tail.seq else tail
    if tail.seq < remembered.seq:
        breaks.append(Break(tail.seq + 1, "AUDIT_SHORTENED" if count else "AUDIT_MISSING"))
    elif remembered.seq and seen.get(remembered.seq, remembered.hash) != remembered.hash:
        breaks.append(Break(remembered.seq, "AUDIT_REPLACED"))
    unique = tuple(dict.fromkeys(breaks))
    return Verification(count, tail, unique)


def _with_pending(lines: Iterable[bytes], pending: tuple[Mapping[str, Any], ...]) -> Iterator[bytes]:
    last = 0
    for line in lines:
        if line:
            row = ndjson.decode(line)
            last = max(last, tail_of(row).seq if row else 0)
            yield line
    yield from (ndjson.encode(row)[:-1] for row in pending if tail_of(row).seq > last)


def _is_sealed(row: Mapping[str, Any], line: bytes) -> bool:
    return sealed(row) == row and ndjson.encode(row)[:-1] == line


def _breaks_between(tail: Tail, found: Tail, row: Mapping[str, Any]) -> Iterator[Break]:
    if row.get("op") == SEGMENT:
        yield Break(tail.seq + 1 if found.seq > tail.seq + 1 else found.seq, str(row.get("code")))
    elif found.seq <= tail.seq:
        yield Break(found.seq, "AUDIT_REPEATED")
    elif found.seq > tail.seq + 1:
        yield Break(tail.seq + 1, "AUDIT_REMOVED")
    elif row.get("prev") != tail.hash and tail.hash:
        yield Break(found.seq, "AUDIT_CHAIN")
