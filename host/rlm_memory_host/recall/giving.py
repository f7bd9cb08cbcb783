"""What an agent is given: within its budget, at its context's pressure; and the resident text that it always sees.

Owns: whose budget and whose pressure counts, the last valid resident text, the audit of pressure. Does not own: what is
found (`service`), bounds (`budget`), the ladder (`pressure`), lines (`resident`).

Source: design page "Recall, resident text, guard, audit, health, tools", Recall and Resident text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from rlm_memory_host.contracts.memory import AuditNote, Caller, Layer, Located, Transaction, visible_layers
from rlm_memory_host.errors import StoreError
from rlm_memory_host.recall import injecting, pressure
from rlm_memory_host.recall.budget import KEPT_SESSIONS, Bounds, Choice, Ledger
from rlm_memory_host.recall.items import Found
from rlm_memory_host.recall.resident import (
    HABIT_MARK,
    RIKO_CHARS,
    Resident,
    ResidentCache,
    Tier,
    build,
    habit_line,
    is_important,
    line_of,
    without_lines,
)
from rlm_memory_host.textmemory import habits, rows
from rlm_memory_host.textmemory.gates import may_be_resident
from rlm_memory_host.textmemory.service import TextMemory
from rlm_memory_host.textmemory.validity import is_current


class Giving:
    """Gives of one owner's memory, and remembers what it gave."""

    def __init__(self, memory: TextMemory) -> None:
        self.memory = memory
        self.ledger = Ledger()
        self.cache = ResidentCache()
        self.pressure = pressure.Pressure()
        self.injected: dict[str, injecting.Injection] = {}
        """The last injection of each session, for its diagnostics; the newest sessions' alone."""
        self.on_resident: Callable[[Caller], object] = lambda _caller: None
        """Hears whose resident text was asked for."""

    def give(
        self, caller: Caller, items: Sequence[Found], *, bounds: Bounds | None = None, force: bool = False
    ) -> Choice:
        """What an agent gets of the hits: budgeted and not twice. A notebook or a person gets all of them."""
        if caller.agent_kind == "none":
            choice = Choice(tuple(items))
        else:
            epoch = self.memory.parts.captured.epoch(caller.session)
            step, reasons = self._step(caller)
            kept = self._important(caller, step, items)
            choice = self.ledger.take(caller.session, epoch, kept, bounds or step.bounds, force=force)
            choice = replace(choice, reasons=(*reasons, *choice.reasons), tier=step.tier)
        self._read(choice)
        return choice

    def resident(self, caller: Caller, tier: Tier | None = None, warning: str = "") -> Resident:
        """The resident text of a caller; the same bytes as long as nothing that it shows changes.

        Without a `tier` it is that of the caller's pressure. Where the memories cannot be read now, the last valid text
        stays, without what was forgotten or changed here since; raises StoreError and OSError where there was none yet.
        """
        step, reasons = self._step(caller)
        tier, reasons = (step.tier, reasons) if tier is None else (tier, ())
        key = self._cache_key(caller)
        self.on_resident(caller)
        try:
            made = self.resident_of(self.memory.current(caller), caller.preset, tier, warning)
        except (StoreError, OSError):
            held = self.cache.held(key, tier)
            if held is None:
                raise
            held = self.still_said(held, visible_layers(caller, self.memory.parts.profile), caller.preset)
            return replace(held, reasons=(*reasons, injecting.LAST_VALID))
        made = self.cache.keep(key, made)
        return replace(made, reasons=reasons) if reasons else made

    def resident_of(self, items: Iterable[Located], preset: str | None, tier: Tier, warning: str) -> Resident:
        """The resident text of some memories that hold now. Raises StoreError."""
        return build(
            items,
            habits.injected(self.memory.habits(), preset),
            contested=rows.contested(self.memory.store),
            tier=tier,
            warning=warning,
            chars=RIKO_CHARS if self.memory.parts.profile == "riko" else None,
        )

    def still_said(self, made: Resident, layers: Iterable[Layer], preset: str | None) -> Resident:
        """A text that was made before, without what this process itself has changed since. Reads no file of memories.

        What another process changed is not known while nothing can be read.
        """
        now = self.memory.now()
        blocks = (Located(layer, block, "") for layer in layers for block in self.memory.store.remembered(layer))
        lines = {line_of(item) for item in blocks if is_current(item.block, now) and may_be_resident(item.block)}
        try:
            lines |= {habit_line(habit) for habit in habits.injected(self.memory.habits(), preset)}
        except (StoreError, OSError):
            lines |= {line for line in made.text.split("\n") if line.startswith(HABIT_MARK)}
        return without_lines(made, lines)

    def standing(self, layer: Layer) -> list[Located]:
        """The memories of one layer that hold now and may be resident, but for conflicts. Raises StoreError."""
        now, store = self.memory.now(), self.memory.store
        blocks = store.snapshot(layer).blocks if store.is_available(layer) else ()
        return [Located(layer, item, "") for item in blocks if is_current(item, now) and may_be_resident(item)]

    def pressed(self, caller: Caller, used: float) -> None:
        """The caller's context is full to the fraction `used`; every step that follows is audited.

        Raises StoreError.
        """
        epoch = self.memory.parts.captured.epoch(caller.session)
        moves = self.pressure.told(caller.session, epoch, used)
        notes = [AuditNote(op, "host", code=code, session=caller.session) for op, code in moves]
        if notes:
            self.memory.store.commit(Transaction(notes=tuple(notes)))

    def _told(self, caller: Caller, made: injecting.Injection) -> injecting.Injection:
        self.injected.pop(caller.session, None)
        self.injected[caller.session] = replace(made, text="")
        for session in list(self.injected)[:-KEPT_SESSIONS]:
            self.injected.pop(session, None)
        return made

    def _step(self, caller: Caller) -> tuple[pressure.Step, tuple[str, ...]]:
        return pressure.at(self.pressure.level(caller.session, self.memory.parts.captured.epoch(caller.session)))

    def _important(self, caller: Caller, step: pressure.Step, items: Sequence[Found]) -> list[Found]:
        if not step.only_important:
            return list(items)
        kept = {item.block.id for item in self.memory.current(caller) if is_important(item.block)}
        return [item for item in items if item.id in kept]

    def _read(self, choice: Choice) -> None:
        now = self.memory.now().isoformat()
        for item in choice.items:
            if item.kind != "experiment-card":
                self.memory.activity.read(item.id, now)

    def _cache_key(self, caller: Caller) -> str:
        return "\x1f".join((caller.owner, caller.project or "-", caller.preset or "-", caller.session))
