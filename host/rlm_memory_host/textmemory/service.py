"""The text memory of one owner: record, correct, forget, read, with the gates in between. The thin part that does I/O.

Owns: the order of a write (guard, quote, gate, tombstone, relation, commit), the retry when somebody else wrote in
between, what is offered to a remote memory. Does not own: any rule (`notes`, `gates`, `judge`, `planning`,
`forgetting`), files (`TextStore`), recall.

A judge model runs outside every lock; the commit is a compare-and-swap on the layer's revision, and a lost race decides
again on what is on file now. A failed write raises: nothing is reported as kept that is not.

Source: design page "The memory model", Lifecycle and gates; design page "Recall", Tools.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final, Literal, Protocol

from rlm_memory_host.contracts.capture import Captured, Message, NothingCaptured
from rlm_memory_host.contracts.judging import JudgeModel
from rlm_memory_host.contracts.memory import (
    HABIT,
    AuditNote,
    Authority,
    BlockWrite,
    Caller,
    Layer,
    LayerKind,
    Located,
    Log,
    LogRow,
    Profile,
    TextStore,
    Transaction,
    default_layer,
    new_memory_id,
    visible_layers,
)
from rlm_memory_host.contracts.remote import Offered, Queued, RemoteMemory, delivery_id
from rlm_memory_host.errors import LayerUnavailable, NotFound, ToolDenied, ToolInput, VersionConflict
from rlm_memory_host.storage.postings import MEASURED, Strengths
from rlm_memory_host.textmemory import gates, habit_judging, habits, planning, rows
from rlm_memory_host.textmemory.activity import Activity
from rlm_memory_host.textmemory.gates import Outcome
from rlm_memory_host.textmemory.judging import JUDGE_SECONDS, relate
from rlm_memory_host.textmemory.lifting import plan_lift
from rlm_memory_host.textmemory.notes import Note, Ready, Recorded, prepare
from rlm_memory_host.textmemory.planning import Context, Plan
from rlm_memory_host.textmemory.shelves import Shelves, is_comparable, said_of
from rlm_memory_host.textmemory.tombstones import standing_against
from rlm_memory_host.textmemory.validity import is_current, stamp

ATTEMPTS: Final = 16
"""How often a write decides again after somebody else's came first."""
NOTHING: Final = NothingCaptured()
ABSENT: Final = "there is no such memory for this caller; unknown ids and those of others look the same"


class Guard(Protocol):
    """The guard at a sink: flags for what may stay, GuardRejected for what may not."""

    def __call__(self, fields: Mapping[str, str], writer: Authority, sink: str, /) -> tuple[str, ...]: ...


@dataclass(frozen=True, slots=True)
class Judging:
    """What the model is asked about, how long a question may take, and who is told how it went ("": it answered)."""

    relations: bool = True
    habits: bool = True
    seconds: float = JUDGE_SECONDS
    told: Callable[[str], None] = lambda _fallback: None


DEFAULT_JUDGING: Final = Judging()


@dataclass(frozen=True, slots=True)
class Parts:
    """What a text memory is made of."""

    store: TextStore
    guard: Guard
    captured: Captured = NOTHING
    remote: RemoteMemory | None = None
    model: JudgeModel | None = None
    profile: Profile = "default"
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    judging: Judging = DEFAULT_JUDGING
    strengths: Strengths = MEASURED
    withdraw: Callable[[str], int] | None = None
    """Takes back what waits about a memory where there is no `remote` here: a command beside a host, or without one."""
    on_fault: Callable[[str, str], None] = lambda _feature, _code: None
    """Told of a feature and a code when something derived had to be begun anew."""

    def take_back(self, memory_id: str) -> int:
        """Drop what was not sent yet about a memory; how many deliveries. Raises HostError."""
        if self.remote is not None:
            return self.remote.withdraw(memory_id)
        return self.withdraw(memory_id) if self.withdraw is not None else 0


class TextMemory:
    """The service. Thread-safe as far as its store is; holds no caller between calls."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self.activity = Activity(parts.store, parts.on_fault)
        self.judge_fallback = ""
        self.shelves = Shelves(parts.store, parts.strengths)

    @property
    def store(self) -> TextStore:
        """The durable part."""
        return self.parts.store

    def now(self) -> datetime:
        """The clock's time in UTC."""
        return self.parts.clock().astimezone(UTC)

    def judged(self, fallback: str) -> None:
        """A model was asked; `fallback` is why the rules answered instead, "" when it answered itself."""
        self.judge_fallback = fallback
        self.parts.judging.told(fallback)

    def message(self, caller: Caller) -> Message | None:
        """The latest captured user message of the caller's own session; a child has none."""
        return self.parts.captured.latest_user_message(caller.session) if caller.agent_kind != "child" else None

    def layers(self, caller: Caller, only: LayerKind | None = None) -> tuple[Layer, ...]:
        """The layers a caller reads that are available, narrowed to one kind where asked."""
        found = visible_layers(caller, self.parts.profile)
        return tuple(
            layer
            for layer in found
            if (only is None or layer.kind is only)
            and layer.kind is not LayerKind.HABIT
            and self.store.is_available(layer)
        )

    def find(self, caller: Caller, memory_id: str) -> Located:
        """A block that the caller may see. Raises NotFound, the same for absent and foreign."""
        found = self.store.find(self.layers(caller), memory_id)
        if found is None:
            raise NotFound(ABSENT)
        return found

    # -- record ------------------------------------------------------------------------------------------------------
    def record(
        self, caller: Caller, note: Note, *, operator: bool = False, background: bool = False, tool: str = ""
    ) -> Recorded:
        """Keep a note as the gates allow. Raises GuardRejected, ToolInput, LimitExceeded, ToolDenied, StoreError."""
        ready = prepare(note, caller, self.message(caller), operator=operator, background=background)
        ready = self.guarded(ready, note)
        kind = note.layer or default_layer(caller, self.parts.profile).kind
        if ready.has_cue and kind is LayerKind.GLOBAL and ready.writer is Authority.MODEL and not note.quote:
            ready = replace(ready, warnings=(*ready.warnings, "global needs the user's own sentence as the quote"))
        decision = gates.decide(ready.writer, kind, ready.columns, has_cross_project_cue=ready.has_cue)
        if decision.outcome is Outcome.REFUSED:
            raise ToolDenied(refusal_text(ready.writer, decision.reason), "GATE_REFUSED")
        if kind is LayerKind.HABIT:
            return self._habit(caller, ready, decision.outcome)
        layer = self.layer_of(caller, decision.layer, asked=note.layer is not None and not decision.note)
        return self._settled(caller, ready, layer, decision.outcome, decision.note, tool)

    def guarded(self, ready: Ready, note: Note) -> Ready:
        """The note with the guard's flags. Raises GuardRejected."""
        fields = {"note": note.text, "title": ready.title, "topic": ready.topic, "body": ready.body}
        fields |= {f"tags[{number}]": tag for number, tag in enumerate(note.tags)}
        fields |= {name: value for name, value in (("quote", note.quote), ("basis", note.basis)) if value}
        flags = self.parts.guard(fields, ready.writer, "block")
        return replace(ready, flags=tuple(dict.fromkeys((*ready.flags, *flags))))

    def layer_of(self, caller: Caller, kind: LayerKind, *, asked: bool) -> Layer:
        """The caller's layer of a kind. Raises LayerUnavailable for one that was asked for and is not there."""
        found = next((layer for layer in visible_layers(caller, self.parts.profile) if layer.kind is kind), None)
        if found is None and not asked:
            found = default_layer(caller, self.parts.profile)
        if found is None:
            raise LayerUnavailable(f"scope: this caller has no {kind.value} layer")
        if not self.store.is_available(found):
            raise LayerUnavailable(f"scope: the {found.kind.value} layer cannot be opened now")
        return found

    def _settled(
        self, caller: Caller, ready: Ready, layer: Layer, outcome: Outcome, scope_note: str, tool: str
    ) -> Recorded:
        for attempt in range(ATTEMPTS):
            context = Context(caller, layer, stamp(self.now()), new_memory_id(), tool)
            snapshot = self.store.snapshot(layer)
            plan = self._plan(ready, context, outcome, scope_note, caller)
            revisions = {layer: snapshot.revision} if plan.writes else {}
            try:
                done = self.committed(caller, plan, ready, revisions=revisions)
            except VersionConflict:
                if attempt + 1 == ATTEMPTS:
                    raise
                continue
            if plan.repeats:
                self.activity.repeated(plan.repeats)
            return done
        raise AssertionError("unreachable")

    def _plan(self, ready: Ready, context: Context, outcome: Outcome, scope_note: str, caller: Caller) -> Plan:
        seen = self.shelves.view((context.layer, *self.layers(caller)))
        gone = standing_against(seen.gone(), ready.writer, ready.body, ready.title)
        if gone is not None:
            return planning.plan_tombstoned(ready, gone, context)
        if outcome is not Outcome.ACTIVE:
            known = rows.candidates(self.store)
            return planning.plan_candidate(ready, context, scope_note, known=known)
        snapshot = self.store.snapshot(context.layer)
        lifted = plan_lift(ready, snapshot.blocks, context)
        if lifted is not None:
            return lifted
        near = self.shelves.view_of(snapshot).near(ready.said, is_comparable)
        judging = self.parts.judging
        model = self.parts.model if judging.relations else None
        ruling = relate(ready.said, [said_of(block) for block in near], model, timeout_seconds=judging.seconds)
        if ruling.by_model or ruling.fallback:
            self.judged(ruling.fallback)
        target = next((block for block in near if block.id == ruling.judgement.target), None)
        return planning.plan_active(ready, ruling.judgement, target, context, scope_note)

    def committed(
        self,
        caller: Caller,
        plan: Plan,
        ready: Ready,
        kind: Literal["note", "correction"] = "note",
        revisions: Mapping[Layer, str] | None = None,
    ) -> Recorded:
        """Commit a plan, and offer an accepted text to the remote memory: announced before, so that a kill in between
        loses no delivery. Raises VersionConflict, StoreError.
        """
        note = _offered(caller, plan, ready, kind) if plan.accepted else None
        queued = self.kept(Transaction(plan.writes, plan.rows, plan.notes, revisions or {}), note)
        result = plan.result
        if queued is None:
            return result
        warnings = (*result.warnings, f"not queued for the remote memory: {queued.problem}") if queued.problem else None
        return replace(
            result, queued=queued.queued, delivery_id=queued.delivery_id, warnings=warnings or result.warnings
        )

    def kept(self, transaction: Transaction, note: Offered | None) -> Queued | None:
        """Commit, and offer what the accepted text says to the remote memory, where there is one."""
        remote = self.parts.remote
        if remote is None or note is None:
            self.store.commit(transaction)
            return None
        remote.announce(note)
        try:
            self.store.commit(transaction)
        except VersionConflict:
            remote.retract(note)
            raise
        return remote.offer(note)

    def edited(self, caller: Caller, write: BlockWrite, note: AuditNote) -> Queued | None:
        """Commit an operator's change of one memory; another text than before is offered as a correction."""
        before = self.store.get(write.layer, write.block.id)
        block = write.block
        says_more = before is None or (before.block.title, before.block.body) != (block.title, block.body)
        offered = Offered(
            delivery_id(block.id, block.version, "correction"), block.id, "correction", block.body, "operator",
            caller.session, caller.project or "", block.updated_at, (block.id,), write.layer.name, block.version,
        )  # fmt: skip
        return self.kept(Transaction((write,), notes=(note,)), offered if says_more else None)

    # -- habits ------------------------------------------------------------------------------------------------------
    def habits(self) -> list[habits.Habit]:
        """All habits, whatever their state."""
        return [habits.from_row(row) for row in self.store.rows(Log.SIGNALS)]

    def observe(self, message: Message, preset: str | None) -> int:
        """Count the corrections in one captured message of the user; how many there were.

        With a model, a habit that just became pending is asked about, once a session: call it where waiting is fine.
        """
        found = habits.detect(message.text)
        for text in found:
            self.parts.guard({"habit": text}, Authority.BACKGROUND, "habit")
            signal = habits.Signal(text, message.session, message.seq, stamp(self.now()))
            known = self.habits()
            habit = habits.observe(known, signal, preset=preset or "")
            was_pending = any(item.id == habit.id and item.state == habit.state for item in known)
            self._save_habit(habit)
            if habit.state == "pending" and not was_pending:
                self._judge_habit(habit, message.session)
        return len(found)

    def _judge_habit(self, habit: habits.Habit, session: str) -> None:
        """Ask the model, where there is one and this session did not ask yet; the rules stand where it fails."""
        model, mark = self.parts.model, f"habit-judge:{session}"
        if model is None or not self.parts.judging.habits:
            return
        answered = next((row for row in self.store.rows(Log.JOBS) if row.get("id") == mark), None)
        if answered is not None:
            if answered.get("no") == habit.id:
                self._save_habit(replace(habit, state="signal"))
            return
        self.store.commit(Transaction(rows=(LogRow(Log.JOBS, {"id": mark, "ts": stamp(self.now())}),)))
        asked = habit_judging.judged(habit, self.habits(), model, timeout_seconds=self.parts.judging.seconds)
        self.judged(asked.fallback)
        if any(item.id == habit.id and item.state == "signal" for item in asked.saved):
            row = {"id": mark, "ts": stamp(self.now()), "no": habit.id}
            self.store.commit(Transaction(rows=(LogRow(Log.JOBS, row),)))
        now = {item.id: item for item in self.habits()}
        if all(item.id == habit.id or now.get(item.id, item).version == item.version - 1 for item in asked.saved):
            for item in asked.saved:
                if item != now.get(item.id):
                    self._save_habit(item)

    def _save_habit(self, habit: habits.Habit) -> None:
        self.store.commit(Transaction(rows=(LogRow(Log.SIGNALS, habits.to_row(habit)),)))

    def _habit(self, caller: Caller, ready: Ready, outcome: Outcome) -> Recorded:
        """A user's verified words count as a signal; anybody else's are answered and count nothing."""
        if ready.writer is not Authority.USER:
            why = "only the user's own words are counted as a habit's signal" if outcome is Outcome.SIGNAL else ""
            return Recorded("", "NEW", "signal", HABIT.kind.value, warnings=(*ready.warnings, why), reason="not-user")
        message = self.message(caller)
        signal = habits.Signal(ready.body, caller.session, message.seq if message else 0, stamp(self.now()))
        habit = habits.observe(self.habits(), signal, preset=caller.preset or "")
        self._save_habit(habit)
        return Recorded(habit.id, "NEW", "signal", HABIT.kind.value, version=habit.version, warnings=ready.warnings)

    # -- reading -----------------------------------------------------------------------------------------------------
    def blocks(self, caller: Caller, only: LayerKind | None = None) -> list[Located]:
        """Every block of the caller's layers, whatever its status."""
        return [
            Located(layer, block, "")
            for layer in self.layers(caller, only)
            for block in self.store.snapshot(layer).blocks
        ]

    def current(self, caller: Caller, only: LayerKind | None = None) -> list[Located]:
        """The blocks that are active and hold now."""
        now = self.now()
        return [item for item in self.blocks(caller, only) if is_current(item.block, now)]

    def status(self, caller: Caller) -> dict[str, object]:
        """Content-free counts of what the caller sees."""
        counts: dict[str, int] = {}
        for item in self.blocks(caller):
            counts[item.block.status.value] = counts.get(item.block.status.value, 0) + 1
        pending = sum(1 for item in rows.candidates(self.store) if item.state == "pending")
        states = [habit.state for habit in self.habits()]
        return {
            "memories": counts,
            "candidates": pending,
            "conflicts": sum(1 for item in rows.conflicts(self.store) if item.state == "open"),
            "habits": {state: states.count(state) for state in sorted(set(states))},
            "problems": len(self.store.problems()),
            "judge": {"enabled": self.parts.model is not None, "fallback": self.judge_fallback},
            "zero_model": self.parts.model is None,
            "layers": {
                layer.kind.value: self.store.is_available(layer) for layer in visible_layers(caller, self.parts.profile)
            },
        }


def _offered(caller: Caller, plan: Plan, ready: Ready, kind: Literal["note", "correction"]) -> Offered:
    """What a remote memory gets of an accepted text."""
    layer, block = next((write.layer, write.block) for write in plan.writes if write.block.id == plan.accepted)
    speakers = {Authority.USER: "user", Authority.OPERATOR: "operator", Authority.CHILD: "child"}
    replaced = (*block.supersedes, *((plan.result.target,) if plan.result.target else ()))
    return Offered(
        delivery_id(block.id, block.version, kind),
        block.id,
        kind,
        ready.body,
        speakers.get(ready.writer, "model"),  # pyright: ignore[reportArgumentType]
        caller.session,
        caller.project or "",
        block.updated_at,
        tuple(dict.fromkeys(replaced)),
        layer.name,
        block.version,
    )


def refusal_text(writer: Authority, reason: str) -> str:
    """A sentence for a refused write."""
    who = {"child": "a child agent"}.get(writer.value, f"this writer ({writer.value})")
    return f"{who} may not write this ({reason}); the root agent may propose it, or the user may say it themselves"


def narrowed(scope: str | None) -> LayerKind | None:
    """The layer kind of a tool's `scope`; None for all. Raises ToolInput."""
    if scope in (None, "", "all"):
        return None
    try:
        return LayerKind(scope)
    except ValueError:
        raise ToolInput("scope: must be one of all, project, global, preset, session") from None
