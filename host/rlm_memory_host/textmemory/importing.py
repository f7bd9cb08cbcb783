"""Import from the systems this one replaces: everything arrives as a candidate, unless the operator takes it as active.

Owns: reading the memory runtime's folders, the memory plugin's `entries.ndjson`, Riko's Wiki pages; the guard and the
limits on the way in. Does not own: accepting (`review`), what an entry that is taken as active may do (`taking`).
Nothing of an import is active by itself, whatever its files claim; what is archived, superseded or forgotten there is
left out and counted.

Source: design pages "The memory model" (Where the sources contradict) and "Recall, resident text, guard, audit, health,
tools" (operator only); the source documents' own storage sections.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, cast

from rlm_memory_host.contracts import ids
from rlm_memory_host.contracts.memory import (
    GLOBAL,
    MAX_BLOCK_BYTES,
    AuditNote,
    Authority,
    Block,
    Caller,
    Candidate,
    Kind,
    Layer,
    Sensitivity,
    Status,
    TextStore,
    Transaction,
)
from rlm_memory_host.errors import HostError, LimitExceeded, NotFound, ToolInput
from rlm_memory_host.guard import Guard, Sink
from rlm_memory_host.storage import names, ndjson
from rlm_memory_host.storage.topics import MAX_FILE_BYTES, TopicFile
from rlm_memory_host.textmemory import rows
from rlm_memory_host.textmemory.gates import sensitivity_of
from rlm_memory_host.textmemory.service import TextMemory
from rlm_memory_host.textmemory.taking import Taken, take
from rlm_memory_host.textmemory.validity import moment_of, stamp

Origin = Literal["runtime", "plugin", "riko"]
_MAX_FILES: Final = 20_000
_ENDS: Final = ("valid_to", "validTo", "expires_at", "expiresAt")
_GONE: Final = frozenset({"archived", "superseded", "forgotten", "tombstoned", "deleted", "rejected", "expired"})
_FRONT_MATTER: Final = re.compile(r"\A---\n(.*?)\n---\n(.*)\Z", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Found:
    """One entry of the other system, before anything is decided."""

    ref: str
    """File and number, for messages."""
    topic: str
    title: str
    body: str
    is_global: bool
    is_gone: bool
    kind: Kind = Kind.FACT
    tags: tuple[str, ...] = ()
    sensitivity: Sensitivity = Sensitivity.NORMAL
    ends: str = ""
    """When it stops to hold, where the other system says so."""


@dataclass(frozen=True, slots=True)
class Imported:
    """What became of an import's entries; `refused` gives the place and the code, never the text.

    `queued` wait for review, `conflicts` of them because they contradict what is on file.
    """

    read: int
    queued: int
    known: int
    gone: int
    refused: tuple[tuple[str, str], ...]
    active: int = 0
    conflicts: int = 0


def run(store: TextStore, guard: Guard, origin: Origin, root: Path, layer: Layer, now: str) -> Imported:
    """Queue a candidate for each entry; `layer` takes what is not global there. Raises NotFound for an empty root."""
    known = _on_file(store, layer) | set(_waiting(store, ("pending", "conflict", "accepted", "rejected", "tombstoned")))
    read = _read(guard, origin, root, layer, now)
    queued: dict[str, Candidate] = {}
    for candidate, _ in read.candidates:
        mark = _mark(candidate)
        if mark not in known:
            queued.setdefault(mark, candidate)
    waiting = list(queued.values())
    for start in range(0, len(waiting), 500):
        batch = waiting[start : start + 500]
        note = AuditNote("import", "operator", layer.name, code=f"{origin.upper()}_{len(batch)}")
        store.commit(Transaction(rows=tuple(rows.log_row(item) for item in batch), notes=(note,)))
    known_count = len(read.candidates) - len(queued)
    return Imported(read.count, len(queued), known_count, read.gone, tuple(read.refused))


def run_active(memory: TextMemory, guard: Guard, origin: Origin, root: Path, layer: Layer, caller: Caller) -> Imported:
    """Take each entry as active in the operator's name where nothing on file speaks about the same.

    What an earlier import left waiting is taken too; what was rejected stays so. Raises NotFound for an empty root, and
    what a store raises: what was taken until then stays.
    """
    store = memory.store
    settled = set(_waiting(store, ("rejected", "accepted", "tombstoned", "conflict")))
    waiting = _waiting(store, ("pending",))
    read = _read(guard, origin, root, layer, stamp(memory.now()))
    counts: Counter[Taken] = Counter()
    for candidate, ref in read.candidates:
        mark = _mark(candidate)
        if mark in settled:
            counts["known"] += 1
            continue
        try:
            taken = take(memory, caller, candidate, waits=waiting.get(mark))
        except (LimitExceeded, ToolInput) as error:
            read.refused.append((ref, error.code))
            continue
        counts[taken] += 1
        if taken == "forgotten":
            read.refused.append((ref, "TOMBSTONED"))
    note = AuditNote("import", "operator", layer.name, code=f"{origin.upper()}_ACTIVE_{counts['active']}")
    store.commit(Transaction(notes=(note,)))
    queued = counts["waiting"] + counts["conflict"]
    return Imported(
        read.count, queued, counts["known"], read.gone, tuple(read.refused), counts["active"], counts["conflict"]
    )


@dataclass(slots=True)
class _Read:
    """What is there of the other system, as far as the guard and the limits let it in."""

    count: int = 0
    gone: int = 0
    candidates: list[tuple[Candidate, str]] = field(default_factory=list[tuple[Candidate, str]])
    refused: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])


def _read(guard: Guard, origin: Origin, root: Path, layer: Layer, now: str) -> _Read:
    readers = {"runtime": _runtime, "plugin": _plugin, "riko": _riko}
    read = _Read()
    for found in readers[origin](root):
        read.count += 1
        if found.is_gone or _is_over(found, now):
            read.gone += 1
            continue
        try:
            candidate = _candidate(found, guard, GLOBAL if found.is_global else layer, origin, now)
        except HostError as error:
            read.refused.append((found.ref, error.code))
        else:
            read.candidates.append((candidate, found.ref))
    if not read.count:
        raise NotFound(f"nothing that the {origin} import can read is there")
    return read


def _is_over(found: Found, now: str) -> bool:
    end, moment = moment_of(found.ends), moment_of(now)
    return end is not None and moment is not None and end <= moment


def _on_file(store: TextStore, layer: Layer) -> set[str]:
    layers = dict.fromkeys((layer, GLOBAL))
    blocks = ((each, block) for each in layers for block in store.snapshot(each).blocks)
    return {_fingerprint(each.name, block.title, block.body) for each, block in blocks}


def _waiting(store: TextStore, states: Sequence[str]) -> dict[str, Candidate]:
    return {_mark(item): item for item in rows.candidates(store) if item.state in states}


def _mark(candidate: Candidate) -> str:
    return _fingerprint(candidate.layer, candidate.title, candidate.body)


def _candidate(found: Found, guard: Guard, layer: Layer, origin: Origin, now: str) -> Candidate:
    size = len(found.body.encode("utf-8", "surrogatepass"))
    if size > MAX_BLOCK_BYTES:
        raise LimitExceeded(f"the entry has {size:,} bytes, the limit is {MAX_BLOCK_BYTES:,}", "CANDIDATE_TOO_LARGE")
    title = names.check_title(found.title[:200] or found.body[:80] or "Imported")
    topic = names.check_topic(found.topic[:100] or "Imported")
    body = names.check_body(found.body)
    tags = names.check_tags(found.tags[:64])
    fields = {"topic": topic, "title": title, "body": body, "tags": tags}
    verdict = guard(fields, Authority.BACKGROUND, Sink.QUEUE)
    verdict.check()
    return Candidate(
        id="cand_" + ids.new_ulid().lower(),
        layer=layer.name,
        action="new",
        topic=topic,
        title=title,
        body=body,
        kind=found.kind,
        tags=tags,
        writer=Authority.BACKGROUND,
        sensitivity=sensitivity_of(found.sensitivity, title, body, topic),
        reason=f"imported-{origin}",
        flags=verdict.flags,
        created_at=now,
        updated_at=now,
    )


def _fingerprint(layer: str, title: str, body: str) -> str:
    return f"{layer}\n{names.topic_key(title)}\n{' '.join(body.split()).casefold()}"


# -- readers -----------------------------------------------------------------------------------------------------------
def _files(root: Path, *suffixes: str) -> Iterator[Path]:
    """Regular files below a root in a fixed order; links are not followed."""
    if root.is_file():
        yield root
        return
    count = 0
    for path in sorted(root.rglob("*")):
        if path.suffix in suffixes and path.is_file() and not path.is_symlink():
            count += 1
            if count > _MAX_FILES:
                return
            if path.stat().st_size <= MAX_FILE_BYTES:
                yield path


def _runtime(root: Path) -> Iterator[Found]:
    for path in _files(root, ".md"):
        relative = path.relative_to(root) if path != root else Path(path.name)
        if ".history" in relative.parts or path.name == "MEMORY.md":
            continue
        data = path.read_bytes()
        is_global = relative.parts[0] == "global"
        file = TopicFile(data, GLOBAL.kind if is_global else Layer.parse("project/x").kind, path.stem)
        for number, block in enumerate(file.blocks, 1):
            yield _of_block(f"{path.name}:{number}", block, is_global=is_global)


def _of_block(ref: str, block: Block, *, is_global: bool) -> Found:
    gone = block.status is not Status.ACTIVE
    return Found(
        ref, block.topic, block.title, block.body, is_global, gone, block.kind, block.tags, block.sensitivity,
        block.valid_to,
    )  # fmt: skip


def _plugin(root: Path) -> Iterator[Found]:
    for path in _files(root, ".ndjson"):
        if path != root and path.name != "entries.ndjson":
            continue
        latest: dict[str, tuple[int, dict[str, Any]]] = {}
        for number, line in enumerate(path.read_bytes().split(b"\n"), 1):
            row = ndjson.decode(line) if line.strip() else None
            if row is not None:
                latest[str(row.get("id", number))] = number, row
        for number, row in latest.values():
            yield _of_record(f"{path.name}:{number}", row, topic="Imported", is_global=_is_global(path, row))


def _is_global(path: Path, row: Mapping[str, Any]) -> bool:
    return row.get("layer") == "global" or path.parent.name == "global"


def _riko(root: Path) -> Iterator[Found]:
    for path in _files(root, ".json", ".ndjson", ".md"):
        text = path.read_text("utf-8", "replace")
        if path.suffix == ".md":
            yield _of_page(path.name, text)
            continue
        for number, record in enumerate(_records(text, path.suffix == ".ndjson"), 1):
            page: Any = record.get("page", record)
            if isinstance(page, dict) and ("body" in page or "content" in page) and "title" in page:
                yield _of_record(f"{path.name}:{number}", cast("dict[str, Any]", page), topic="Imported")


def _records(text: str, is_lines: bool) -> Iterator[dict[str, Any]]:
    if is_lines:
        yield from ndjson.parse(text.encode()).rows  # pyright: ignore[reportReturnType]
        return
    try:
        document: Any = json.loads(text)
    except (ValueError, RecursionError):
        return
    items: list[Any] = cast("list[Any]", document) if isinstance(document, list) else [document]
    if isinstance(document, dict):
        pages: Any = cast("dict[str, Any]", document).get("pages")
        items = cast("list[Any]", pages) if isinstance(pages, list) else items
    for record in items:
        if isinstance(record, dict):
            yield cast("dict[str, Any]", record)


def _of_page(name: str, text: str) -> Found:
    match = _FRONT_MATTER.match(text.replace("\r\n", "\n"))
    head: dict[str, str] = {}
    body = text
    if match:
        body = match.group(2)
        for line in match.group(1).split("\n"):
            key, _, value = line.partition(":")
            head[key.strip()] = value.strip().strip("\"'")
    title = head.get("title") or next((line.lstrip("# ") for line in body.split("\n") if line.startswith("#")), name)
    gone = head.get("status", "") in _GONE
    level = _level(head.get("sensitivity"))
    return Found(
        name,
        head.get("type") or "Imported",
        title,
        body.strip(),
        False,
        gone,
        sensitivity=level,
        ends=head.get("valid_to", ""),
    )


def _level(told: object) -> Sensitivity:
    """What the other system says of a text; a word that is not known here is no permission."""
    if told in (None, "", False, "normal", "none", "public"):
        return Sensitivity.NORMAL
    return Sensitivity.PROVISIONAL if told == "provisional_sensitive" else Sensitivity.SENSITIVE


def _of_record(ref: str, row: Mapping[str, Any], *, topic: str, is_global: bool = False) -> Found:
    tags: Any = row.get("tags")
    body = row.get("body") or row.get("content") or row.get("text") or ""
    gone = str(row.get("status", "")) in _GONE or any(
        row.get(key) is True for key in ("tombstoned", "archived", "deleted")
    )
    kind = str(row.get("kind", "fact"))
    return Found(
        ref,
        str(row.get("topic") or topic),
        str(row.get("title") or ""),
        str(body),
        is_global,
        gone,
        Kind(kind) if kind in {str(each) for each in Kind} else Kind.FACT,
        tuple(str(tag) for tag in cast("list[Any]", tags)) if isinstance(tags, list) else (),
        _level(row.get("sensitivity") or row.get("sensitive")),
        next((str(row[key]) for key in _ENDS if row.get(key)), ""),
    )
