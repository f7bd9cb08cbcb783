"""Recall: one question over all channels, fused, filtered, ordered; and what is injected of it. Reads only.

Owns: the order of the steps and what is asked of the remote memory. Does not own: scores (`bm25`, `fusion`), reasons
(`eligibility`), what an agent is given (`giving`, `budget`), text (`envelope`, `resident`).

The remote is asked in a thread of its own, before the local channels, and waited for at most until its deadline;
whatever comes later is dropped, and local results never fail for it.

Source: design page "Recall", Recall and Resident text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

from rlm_memory_host.contracts.memory import (
    Block,
    Caller,
    Evidence,
    Kind,
    Layer,
    LayerKind,
    Sensitivity,
)
from rlm_memory_host.contracts.remote import RemoteMemory
from rlm_memory_host.errors import StoreError
from rlm_memory_host.recall import fusion, injecting, observed, planner, pressure, remotely
from rlm_memory_host.recall.eligibility import Mode, Reading, block_reason, evidence_reason
from rlm_memory_host.recall.giving import Giving
from rlm_memory_host.recall.hits import Hit, Key, item_of_hit
from rlm_memory_host.recall.injecting import Injection
from rlm_memory_host.recall.items import Found, in_order
from rlm_memory_host.recall.library import Library
from rlm_memory_host.storage.tokens import query_terms
from rlm_memory_host.textmemory import aliases, rows
from rlm_memory_host.textmemory.sentences import fold
from rlm_memory_host.textmemory.service import TextMemory
from rlm_memory_host.textmemory.shelves import View
from rlm_memory_host.textmemory.validity import state_at

REMOTE_SECONDS: Final = 1.5
FEW: Final = 3
"""Hits in the exact topic below which the whole scope is searched."""
MOST: Final = 200
CONSIDERED: Final = 200
"""Hits that are looked at for eligibility, beside exact ones."""
SPARE: Final = 30
"""Eligible hits after which no more are looked at, or twice as many as are asked for."""

EVIDENCE: Final = "evidence"


@dataclass(frozen=True, slots=True)
class Query:
    """One question. An empty `text` lists the newest."""

    text: str = ""
    kind: Kind | None = None
    topic: str = ""
    scope: LayerKind | None = None
    at: datetime | None = None
    history: bool = False
    limit: int = 10
    remote: bool = True


@dataclass(frozen=True, slots=True)
class Page:
    """The hits in order, how many there are at most, and why others do not show (reason: count)."""

    items: tuple[Found, ...]
    total: int
    rejected: dict[str, int] = field(default_factory=dict[str, int])
    degraded: tuple[str, ...] = ()


CardSource = Callable[[Caller, str], Sequence[Found]]
"""Recorded results of the caller's project for an injection, from the user's message, with scores."""


class Recall(Giving):
    """Searches one owner's memory."""

    def __init__(
        self,
        memory: TextMemory,
        *,
        remote: RemoteMemory | None = None,
        remote_seconds: float = REMOTE_SECONDS,
        sessions: Callable[[Caller], Iterable[str]] | None = None,
        observations: bool = False,
        injects: bool | None = None,
    ) -> None:
        super().__init__(memory)
        self.library = Library(memory.store, memory.parts.strengths)
        self._remote = remote
        self._remote_seconds = remote_seconds
        self.cards: CardSource = lambda _caller, _message: ()
        """`memory_search` asks for cards itself."""
        self._sessions = sessions or _own_session
        self._observations = observations
        self._injects = memory.parts.profile != "riko" if injects is None else injects

    def warm(self, caller: Caller) -> int:
        """Read the caller's layers into the index before the first question; how many memories there are."""
        return sum(1 for _ in self.memory.shelves.view(self.memory.layers(caller)).blocks())

    # -- search ------------------------------------------------------------------------------------------------------
    def search(self, caller: Caller, query: Query) -> Page:
        """All eligible hits in order, at most `limit`. Sensitive ones need the user's own explicit question."""
        layers = self.memory.layers(caller, query.scope)
        view = self.memory.shelves.view(layers)
        reading = self._reading(caller, query, view)
        if not query.text.strip():
            return self._newest(view, query, reading)
        remote = self._remote if query.remote and query.at is None else None
        waiting = remotely.ask(remote, caller, query.text, query.limit, self._remote_seconds)
        channels, exact, degraded = self._local(caller, view, query)
        rejected: Counter[str] = Counter()
        fused = self._fused(channels)
        best = sorted(fused, key=lambda key: (-fused[key], key))[:CONSIDERED]
        eligible: list[Hit] = []
        keys = list(dict.fromkeys((*sorted(exact), *best)))
        enough = len(exact) + max(SPARE, 2 * query.limit)
        left = len(keys)
        for key in keys:
            if len(eligible) >= enough:
                break
            left -= 1
            said = self._eligible(key, view, reading, query, rejected)
            if said is not None:
                names = tuple(name for name, scores in channels.items() if key in scores)
                eligible.append(Hit(key, said, fused.get(key, 0.0), key in exact, names))
        eligible = in_order(eligible)
        answer = waiting()
        if answer.problem:
            degraded.append(answer.problem)
        shown = eligible if answer.hits else eligible[: query.limit]
        found = {hit.key: item_of_hit(hit, reading) for hit in shown}
        others = [*self._other_sides(found, reading), *self._inferred(caller, query)]
        hits = [*found.values(), *others]
        if answer.hits:
            blocks = [block for _, block in view.blocks()]
            hits += remotely.merged(caller, blocks, answer.hits, hits, rejected)
        total = len(eligible) + left + len(hits) - len(found)
        return Page(tuple(in_order(hits)[: query.limit]), total, dict(rejected), tuple(dict.fromkeys(degraded)))

    def _reading(self, caller: Caller, query: Query, view: View) -> Reading:
        message = self.memory.message(caller)
        mode: Mode = "at" if query.at is not None else "history" if query.history else "current"
        return Reading(
            self.memory.now(),
            mode,
            query.at,
            rows.contested(self.memory.store),
            self.memory.parts.profile,
            message.text if message is not None else "",
            frozenset(source for block in view.gone() for source in block.sources),
        )

    def _local(
        self, caller: Caller, view: View, query: Query
    ) -> tuple[dict[str, dict[Key, float]], set[Key], list[str]]:
        opened = planner.plan(query.text, self.memory.parts.profile)
        exact = set(view.titled(query.text))
        exact |= {key for key in aliases.named_in(query.text, aliases.kept(self.memory.store)) if view.has(key[0])}
        channels: dict[str, dict[Key, float]] = {}
        if opened.topic:
            scores = view.scores(query.text, None if query.topic or query.kind else CONSIDERED)
            channels["topic"] = _topic_first(_of_kind(scores, view, query), view, query)
        if not query_terms(query.text) or not channels.get("topic"):
            exact |= set(view.holding(query.text))
        if opened.evidence and query.kind is None and query.scope in (None, LayerKind.SESSION):
            turns = self.library.turn_scores(self._sessions(caller), query.text)
            channels[EVIDENCE] = {(EVIDENCE, key): score for key, score in turns.items()}
        if opened.graph:
            channels["graph"] = self._linked(view, channels.get("topic", {}))
        return {name: scores for name, scores in channels.items() if scores}, exact, []

    def _linked(self, view: View, roots: dict[Key, float]) -> dict[Key, float]:
        """Memories one or two links away from the best hits; a hop halves the score."""
        best = sorted(roots, key=lambda key: (-roots[key], key))[:5]
        if not best:
            return {}
        links = view.links()
        found: dict[Key, float] = {}
        front = {key[1]: roots[key] for key in best}
        for _ in range(2):
            following: dict[str, float] = {}
            for memory_id, score in front.items():
                for target in links.get(memory_id, ()):
                    key = view.where(target)
                    if key is not None and key not in roots and key not in found:
                        found[key] = score / 2
                        following[target] = score / 2
            front = following
        return found

    def _fused(self, channels: dict[str, dict[Key, float]]) -> dict[Key, float]:
        if self.memory.parts.profile != "riko":
            return fusion.by_weight(channels)
        return fusion.by_rank({n: sorted(s, key=lambda key: (-s[key], key)) for n, s in channels.items()})

    # -- items -------------------------------------------------------------------------------------------------------
    def _eligible(
        self, key: Key, view: View, reading: Reading, query: Query, rejected: Counter[str]
    ) -> Block | Evidence | None:
        """What a hit says, as it is to be shown; None where it may not show, which is counted by its reason."""
        if key[0] == EVIDENCE:
            turn = self.library.turn(key[1])
            why = evidence_reason(turn, reading)
            rejected.update((why,) if why else ())
            return None if why else turn
        block = view.block(key[0], key[1])
        if block is None or (query.kind is not None and block.kind is not query.kind):
            return None
        if query.at is not None:
            then = state_at(block, self.memory.store.history(Layer.parse(key[0]), block.id), query.at)
            if then is None:
                rejected["temporal-invalid"] += 1
                return None
            # What is sensitive now was so all along.
            block = replace(then, sensitivity=max(then.sensitivity, block.sensitivity, key=lambda item: item.rank))
        why = block_reason(block, reading)
        rejected.update((why,) if why else ())
        return None if why else block

    def _other_sides(self, found: Mapping[Key, Found], reading: Reading) -> list[Found]:
        """The proposals that contest a memory that was found: both sides show, labelled. Not in profile `riko`."""
        if reading.mode != "current" or not reading.contested:
            return []
        waiting = {item.id: item for item in rows.candidates(self.memory.store)}
        sides: list[Found] = []
        for conflict in rows.conflicts(self.memory.store):
            target = found.get((conflict.layer, conflict.target))
            other = waiting.get(conflict.candidate)
            is_open = conflict.state == "open" and conflict.contests
            if target is None or other is None or not is_open or other.sensitivity is not Sensitivity.NORMAL:
                continue
            sides.append(
                replace(
                    target,
                    id=other.id,
                    title=other.title,
                    text=other.body,
                    authority=other.writer,
                    version=0,
                    date=other.created_at,
                    score=target.score * 0.99,
                    is_exact=False,
                    labels=("contested", f"proposed against {conflict.target}"),
                )
            )
        return sides

    def _newest(self, view: View, query: Query, reading: Reading) -> Page:
        rejected: Counter[str] = Counter()
        found: list[Hit] = []
        for layer, block in view.blocks():
            if query.topic and fold(block.topic) != fold(query.topic):
                continue
            said = self._eligible((layer.name, block.id), view, reading, query, rejected)
            if said is not None:
                found.append(Hit((layer.name, block.id), said, 0.0, False, ("newest",)))
        found.sort(key=lambda hit: hit.id)
        found.sort(key=lambda hit: hit.date, reverse=True)
        shown = (item_of_hit(hit, reading) for hit in found[: min(query.limit, MOST)])
        return Page(tuple(shown), len(found), dict(rejected))

    # -- other sources -----------------------------------------------------------------------------------------------
    def _inferred(self, caller: Caller, query: Query) -> list[Found]:
        if not self._observations or query.kind is not None or query.topic or query.at is not None or query.history:
            return []
        return observed.hits(self.memory, caller, query.text, query.limit)

    # -- for agents --------------------------------------------------------------------------------------------------
    def injection(
        self, caller: Caller, *, warning: str = "", is_wanted: Callable[[], bool] = lambda: True
    ) -> Injection:
        """Resident text and recall for the first step of a root turn, in one envelope and one budget.

        The query is the user's captured message, never tool output. Child agents get nothing by themselves. Where
        nobody waits any more when all is found, nothing counts as given.
        """
        message = self.memory.message(caller)
        if caller.agent_kind != "root" or message is None:
            return Injection()
        epoch = self.memory.parts.captured.epoch(caller.session)
        step, _ = self._step(caller)
        whole = self.resident(caller, warning=warning)
        items, trouble = self._asked(caller, message.text, step)
        if not is_wanted():
            return Injection()
        is_apart = self.memory.parts.profile == "riko"
        account = injecting.Account(self.ledger, caller.session, epoch, step.bounds, is_apart)
        known = self.cache.in_context(whole, caller.session, epoch)
        made, sent, choice = injecting.compose(whole, known, items, account, trouble)
        if sent is not None and sent.text:
            self.cache.mark_sent(sent, caller.session, epoch)
        self._read(choice)
        return self._told(caller, made)

    def inject(self, caller: Caller) -> str:
        """The text of an `injection`; "" when there is nothing."""
        return self.injection(caller).text

    def _asked(self, caller: Caller, text: str, step: pressure.Step) -> tuple[list[Found], tuple[str, ...]]:
        """What recall finds for a message, beside itself; a memory that cannot be searched adds nothing."""
        if not self._injects or step.tier in ("single", "none"):
            return [], ()
        try:
            page = self.search(caller, Query(text[:2_000], limit=20))
            fresh = [item for item in page.items if item.kind != "evidence" or item.text != text]
            return self._important(caller, step, in_order([*fresh, *self.cards(caller, text[:2_000])])), ()
        except (StoreError, OSError):
            return [], (injecting.RECALL_UNAVAILABLE,)


def _of_kind(scores: dict[Key, float], view: View, query: Query) -> dict[Key, float]:
    if query.kind is None:
        return scores
    found = ((key, view.block(*key)) for key in scores)
    return {key: scores[key] for key, block in found if block is not None and block.kind is query.kind}


def _topic_first(scores: dict[Key, float], view: View, query: Query) -> dict[Key, float]:
    """The hits of the exact topic alone, where there are at least three; else the whole scope."""
    if not query.topic:
        return scores
    wanted = fold(query.topic)
    found = ((key, view.block(*key)) for key in scores)
    inside = {key: scores[key] for key, block in found if block is not None and fold(block.topic) == wanted}
    return inside if len(inside) >= FEW else scores


def _own_session(caller: Caller) -> Iterable[str]:
    return (caller.session,)
