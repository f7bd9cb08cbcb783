"""The text memory's shapes: layers and who sees them, blocks, evidence, candidates, conflicts, and the store's port.

Owns: vocabulary, defaults and limits, the rule that turns a caller into visible layers and a write target. Does not
own: the files (`storage.topics`), gates and judge (`textmemory`). No I/O here; everything is immutable.

Source: design page "The memory model", Layers and scope, Storage, Lifecycle and gates.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from typing import Any, Final, Literal, Protocol

from rlm_memory.wire import INVALID_SCOPE

from rlm_memory_host.contracts import ids
from rlm_memory_host.contracts.scope import Scope
from rlm_memory_host.errors import ToolInput

FORMAT_VERSION: Final = 1
MEMORY_PREFIX: Final = "mem_"

MAX_TOPIC: Final = 120
"""Characters of a topic."""
MAX_TITLE: Final = 240
"""Characters of a title."""
MAX_TAG: Final = 80
MAX_TAGS: Final = 64
MAX_BLOCK_BYTES: Final = 32_768
"""Bytes of one block as written, and of one candidate."""
MAX_TOPICS: Final = 64
"""Topics of one layer."""
MAX_BLOCKS_PER_FILE: Final = 64
"""A topic that grows past this continues in a numbered file."""
MAX_OUTPUT_BYTES: Final = 64_000
LOCK_SECONDS: Final = 10.0
LAYER_CAPACITY: Final = 50_000


class Kind(StrEnum):
    """What a memory is about."""

    FACT = "fact"
    DECISION = "decision"
    PROCEDURE = "procedure"
    PREFERENCE = "preference"
    PERSON = "person"
    RELATIONSHIP = "relationship"
    STATE = "state"
    EPISODE = "episode"
    SOURCE = "source"


class Status(StrEnum):
    """Where a block is in its life; only active ones are current."""

    ACTIVE = "active"
    HIDDEN = "hidden"
    SUPERSEDED = "superseded"
    DORMANT = "dormant"
    ARCHIVED = "archived"


class Authority(StrEnum):
    """Whose word a memory is. `rank` orders them; UNREVIEWED is a hand edit that nobody accepted yet."""

    OPERATOR = "operator"
    USER = "user"
    MODEL = "model"
    BACKGROUND = "background"
    CHILD = "child"
    UNREVIEWED = "unreviewed"

    @property
    def rank(self) -> int:
        """Higher is stronger: operator 5, user 4, model 3, background 2, child 1, unreviewed 0."""
        return _RANK[self.value]


_RANK: Final[Mapping[str, int]] = {
    "operator": 5,
    "user": 4,
    "model": 3,
    "background": 2,
    "child": 1,
    "unreviewed": 0,
}


class Sensitivity(StrEnum):
    """A usage permission; only a person relaxes it. `rank` orders them."""

    NORMAL = "normal"
    PROVISIONAL = "provisional_sensitive"
    SENSITIVE = "sensitive"

    @property
    def rank(self) -> int:
        """Higher is stricter."""
        return ("normal", "provisional_sensitive", "sensitive").index(self.value)


class Consent(StrEnum):
    """Whether a person agreed that this is kept: not asked, in their own words, or by an operator's command."""

    PENDING = "pending"
    EXPLICIT = "explicit"
    MANAGED = "managed"


class LayerKind(StrEnum):
    """Which part of a caller's identity a layer is keyed by."""

    SESSION = "session"
    PROJECT = "project"
    PRESET = "preset"
    GLOBAL = "global"
    HABIT = "habit"


class Log(StrEnum):
    """The append-only logs of an owner. A row with the id of an earlier one replaces it; the last one counts."""

    CANDIDATES = "candidates"
    CONFLICTS = "conflicts"
    OBSERVATIONS = "observations"
    ALIASES = "aliases"
    SIGNALS = "signals"
    TOMBSTONES = "tombstones"
    JOBS = "jobs"
    PURGES = "purges"


Priority = Literal["P0", "P1", "P2", "P3"]
PRIORITIES: Final[tuple[Priority, ...]] = ("P0", "P1", "P2", "P3")
AgentKind = Literal["root", "child", "none"]
Profile = Literal["default", "riko", "plugin", "runtime"]

FLAG_INSTRUCTION_LIKE: Final = "instruction_like"
"""Text that reads like an instruction: kept, never resident, always rendered escaped."""
FLAG_HIGH_ENTROPY: Final = "high_entropy"
FLAG_AUTO: Final = "auto"
FLAG_SUGGESTED: Final = "suggested"

_KEY = re.compile(r"[a-z0-9_-]{1,128}")


@dataclass(frozen=True, slots=True, order=True)
class Layer:
    """One folder of topic files. `key` is path-safe (never a caller's text): "" for global and habit."""

    kind: LayerKind
    key: str = ""

    def __post_init__(self) -> None:
        keyed = self.kind in (LayerKind.SESSION, LayerKind.PROJECT, LayerKind.PRESET)
        if (_KEY.fullmatch(self.key) is None) if keyed else bool(self.key):
            raise ToolInput("the layer's key is not one that this host derives", INVALID_SCOPE)

    @property
    def name(self) -> str:
        """How the manifest, audit and messages name it: `global`, `project/<key>`, …"""
        return f"{self.kind.value}/{self.key}" if self.key else self.kind.value

    @classmethod
    def parse(cls, name: str) -> Layer:
        """The layer of a `name`. Raises ToolInput (INVALID_SCOPE)."""
        kind, _, key = name.partition("/")
        try:
            return cls(LayerKind(kind), key)
        except ValueError:
            raise ToolInput("no such kind of layer", INVALID_SCOPE) from None


GLOBAL: Final = Layer(LayerKind.GLOBAL)
HABIT: Final = Layer(LayerKind.HABIT)


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls, derived by the host and never a tool's parameter."""

    owner: str = "local"
    human_peer: str = "user"
    preset: str | None = None
    project: str | None = None
    """The project's id; a layer's key is derived from it."""
    session: str = "-"
    agent_kind: AgentKind = "none"

    @classmethod
    def of(cls, scope: Scope, human_peer: str = "user") -> Caller:
        """The caller of an authenticated scope."""
        return cls(scope.owner, human_peer, scope.preset, scope.project_id or None, scope.session_id, scope.agent_kind)


def name_key(name: str, what: str) -> str:
    """A path-safe key for an owner or a preset: the name itself when it is plain, else a slug with six hex digits.

    Raises ToolInput (INVALID_SCOPE) for what can only be an attempt to leave the folder. The name is not repeated.
    """
    if not name or len(name) > MAX_TOPIC or name.strip(". ") == "" or any(c in "/\\:" or c < " " for c in name):
        raise ToolInput(f"the {what} is not a usable name", INVALID_SCOPE)
    if re.fullmatch(r"[a-z0-9][a-z0-9_-]{0,63}", name) and name not in RESERVED_NAMES:
        return name
    digest = hashlib.sha256(unicodedata.normalize("NFC", name).encode("utf-8", "surrogatepass")).hexdigest()
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40]
    return f"{slug or what}-{digest[:6] if slug else digest[:16]}"


RESERVED_NAMES: Final = frozenset(
    {"memory", "con", "prn", "aux", "nul", "index", "readme", "conin$", "conout$", ".history", ".state"}
    | {f"{device}{number}" for device in ("com", "lpt") for number in range(10)}
)


@lru_cache(maxsize=1_024)
def project_layer(project_id: str) -> Layer:
    """The layer of a project's id."""
    return Layer(LayerKind.PROJECT, ids.project_key(project_id))


def preset_layer(preset: str) -> Layer:
    """The layer of a preset. Raises ToolInput (INVALID_SCOPE)."""
    return Layer(LayerKind.PRESET, name_key(preset, "preset"))


@lru_cache(maxsize=1_024)
def session_layer(session: str, project_id: str | None) -> Layer:
    """The layer of a session within a project (or within none)."""
    return Layer(LayerKind.SESSION, ids.project_key(ids.canonical_json([project_id or "-", session]).decode()))


def visible_layers(caller: Caller, profile: Profile = "default") -> tuple[Layer, ...]:
    """The layers a caller reads, in the order project, global, preset, session, habit.

    A layer whose key is incomplete is not in it. Profile `riko` sees the preset layer alone; without a preset it
    raises ToolInput (INVALID_SCOPE).
    """
    if profile == "riko":
        return (default_layer(caller, profile),)
    layers: list[Layer] = []
    if caller.project:
        layers.append(project_layer(caller.project))
    layers.append(GLOBAL)
    if caller.preset:
        layers.append(preset_layer(caller.preset))
    layers.append(session_layer(caller.session, caller.project))
    layers.append(HABIT)
    return tuple(layers)


def default_layer(caller: Caller, profile: Profile = "default") -> Layer:
    """Where a caller's writes go when nothing else is asked: project, else preset, else session; never global."""
    if profile == "riko":
        if not caller.preset:
            raise ToolInput("this profile keeps memories by preset, and the caller has none", INVALID_SCOPE)
        return preset_layer(caller.preset)
    if caller.project:
        return project_layer(caller.project)
    return preset_layer(caller.preset) if caller.preset else session_layer(caller.session, None)


# -- blocks ------------------------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Block:
    """One memory as it lies in a topic file. Times are ISO 8601 in UTC; "" where there is none.

    `extra` are keys this release does not know, in order, as written; they survive every rewrite.
    """

    id: str
    topic: str
    title: str
    body: str
    evidence: str = ""
    version: int = 1
    kind: Kind = Kind.FACT
    status: Status = Status.ACTIVE
    authority: Authority = Authority.MODEL
    sensitivity: Sensitivity = Sensitivity.NORMAL
    consent: Consent = Consent.PENDING
    created_at: str = ""
    updated_at: str = ""
    valid_from: str = ""
    valid_to: str = ""
    supersedes: tuple[str, ...] = ()
    superseded_by: str = ""
    scope: LayerKind = LayerKind.PROJECT
    workspace_id: str = ""
    project: str = ""
    priority: Priority = "P1"
    pinned: bool = False
    tags: tuple[str, ...] = ()
    confidence: float = 1.0
    sources: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    links: tuple[str, ...] = ()
    lock: bool = False
    source_session: str = ""
    extra: tuple[tuple[str, str], ...] = ()

    @property
    def content_hash(self) -> str:
        """SHA-256 of what is said (topic, title, body), 64 hexadecimal digits."""
        return hashlib.sha256(ids.canonical_json([self.topic, self.title, self.body])).hexdigest()


def new_memory_id() -> str:
    """A fresh id: `mem_` and a ULID in lower case."""
    return MEMORY_PREFIX + ids.new_ulid().lower()


@dataclass(frozen=True, slots=True)
class Located:
    """A block and where it lies."""

    layer: Layer
    block: Block
    file: str
    line: int = 0


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The blocks of a layer at one moment. `revision` names that moment for a compare-and-swap."""

    layer: Layer
    blocks: tuple[Block, ...]
    revision: str
    files: tuple[tuple[str, str, int], ...] = ()
    """(name, SHA-256, blocks) of the files that the blocks come from, in their order; () where that is not known."""


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """An earlier state of a block: what it was before change number `number`, and which change that was."""

    number: int
    change: str
    block: Block


# -- evidence, candidates, conflicts -----------------------------------------------------------------------------------
def _now_empty() -> Mapping[str, Any]:
    return {}


@dataclass(frozen=True, slots=True)
class Evidence:
    """One captured turn or quote. `origin` says who wrote it; the host's own injected text is never captured."""

    id: str
    session: str
    seq: int
    ts: str
    speaker: Literal["user", "assistant", "tool", "system"]
    text: str
    origin: Literal["user", "model", "tool", "host"] = "user"
    redacted: tuple[str, ...] = ()
    """Names of the patterns that were redacted from the text."""
    sensitivity: Sensitivity = Sensitivity.NORMAL


CandidateState = Literal["pending", "accepted", "rejected", "conflict", "tombstoned"]
CandidateAction = Literal[
    "new", "update", "refine", "correct", "over_time", "forget", "hide", "restore", "promote", "relax", "observe"
]


@dataclass(frozen=True, slots=True)
class Candidate:
    """Something proposed and not accepted. `target` names the memory that it would change; `reason` is a code."""

    id: str
    layer: str
    action: CandidateAction
    topic: str
    title: str
    body: str
    kind: Kind = Kind.FACT
    tags: tuple[str, ...] = ()
    writer: Authority = Authority.MODEL
    sensitivity: Sensitivity = Sensitivity.NORMAL
    target: str = ""
    state: CandidateState = "pending"
    reason: str = ""
    confidence: float = 1.0
    sources: tuple[str, ...] = ()
    sessions: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    created_at: str = ""
    updated_at: str = ""
    seen: int = 1
    extra: Mapping[str, Any] = field(default_factory=_now_empty)


@dataclass(frozen=True, slots=True)
class Conflict:
    """An open or settled contradiction between a memory and a candidate. `contests` marks those that label recall."""

    id: str
    layer: str
    target: str
    candidate: str
    reason: str
    contests: bool = True
    state: Literal["open", "resolved"] = "open"
    resolution: Literal["", "keep", "correction", "temporal_transition", "both"] = ""
    confidence: float = 0.0
    created_at: str = ""
    resolved_at: str = ""


# -- the store's port --------------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class AuditNote:
    """What the audit log says about a change; no content, title, query or path may be in it.

    `contents` are texts of which only salted hashes are kept.
    """

    op: str
    actor: str
    scope: str = ""
    target: str = ""
    code: str = ""
    session: str = ""
    tool: str = ""
    contents: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BlockWrite:
    """One block to store as given. `expected_version` None means that it must not exist yet.

    `change` names the history entry that keeps the state before (update, refine, archive, …).
    """

    layer: Layer
    block: Block
    expected_version: int | None = None
    change: str = "update"


@dataclass(frozen=True, slots=True)
class LogRow:
    """One row for an append-only log; it has an `id`."""

    log: Log
    row: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Transaction:
    """All or nothing: blocks, log rows and audit notes that belong together.

    `revisions` are compare-and-swap conditions: each named layer must still have that `Snapshot.revision`.
    """

    writes: tuple[BlockWrite, ...] = ()
    rows: tuple[LogRow, ...] = ()
    notes: tuple[AuditNote, ...] = ()
    revisions: Mapping[Layer, str] = field(default_factory=dict[Layer, str])


@dataclass(frozen=True, slots=True)
class Problem:
    """Something in a file that is not served: where (file:line) and a code; never content."""

    layer: str
    file: str
    line: int
    code: str


class TextStore(Protocol):
    """The durable text memory of one owner. Thread-safe and safe for several processes.

    Errors: LockTimeout (LOCK_TIMEOUT, 10 s), VersionConflict (VERSION_CONFLICT; read again, decide again), Unwritable,
    LayerUnavailable (LAYER_UNAVAILABLE), LimitExceeded (the limit's own code, with the number), FormatVersion.
    """

    def is_available(self, layer: Layer) -> bool:
        """Whether the layer can be opened; one that cannot is never replaced by another."""
        ...

    def snapshot(self, layer: Layer) -> Snapshot:
        """All blocks of a layer, whatever their status, in file order; quarantined ones are not in it."""
        ...

    def remembered(self, layer: Layer) -> tuple[Block, ...]:
        """The blocks of a layer as this process last knew them, its own writes included; reads no file, never fails."""
        ...

    def get(self, layer: Layer, memory_id: str) -> Located | None:
        """One block."""
        ...

    def find(self, layers: Sequence[Layer], memory_id: str) -> Located | None:
        """One block in the first of `layers` that has it; None for absent and foreign alike."""
        ...

    def commit(self, transaction: Transaction) -> tuple[Block, ...]:
        """Store a transaction; durable when it returns. Gives the blocks as stored, in the order of `writes`."""
        ...

    def history(self, layer: Layer, memory_id: str) -> tuple[HistoryEntry, ...]:
        """Earlier states, oldest first."""
        ...

    def rows(self, log: Log) -> tuple[Mapping[str, Any], ...]:
        """The last row of each id, in the order in which the ids first came."""
        ...

    def add_evidence(self, evidence: Evidence) -> None:
        """Append one captured turn to its session's file."""
        ...

    def evidence(self, session: str, after: int = 0) -> Iterator[Evidence]:
        """The captured turns of a session with seq greater than `after`, in order."""
        ...

    def problems(self) -> tuple[Problem, ...]:
        """What is quarantined or suspect, in all layers opened so far."""
        ...

    def changes(self) -> int:
        """A number that grows whenever blocks change, here or through another process or editor (after a look)."""
        ...

    def derived(self, name: str) -> bytes | None:
        """A derived file that was kept; None where there is none."""
        ...

    def keep_derived(self, name: str, data: bytes) -> None:
        """Keep a derived file, not durably; failing to is no failure. `name` is one path component."""
        ...

    def lock(self) -> AbstractContextManager[None]:
        """The owner's write lock, re-entrant in a thread; for operator work that spans several commits."""
        ...
