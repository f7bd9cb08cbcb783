"""`memory.search`, `recall`, `read`, `record` (also `remember`), `correct`, `forget`: text memory in a notebook.

Owns: the step lists, their results and looks, and the two sets of methods that `memory` and `memory.aio` take in. Does
not own: what is allowed: the host decides; code in a notebook is never a user's own word. What is shown by default
holds no id and no time, so that a cell run again shows the same; attributes have them.

Text in results was written by somebody else: control and direction marks are shown as escapes, HTML is escaped.

Source: design page "Overview", In the notebook; "Recall, resident text, guard, audit, health, tools", Tools; case
G6-01.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, cast, overload

from rlm_memory import display, errors
from rlm_memory.kept import kept
from rlm_memory.steps import Steps
from rlm_memory.tools import tool
from rlm_memory.twins import awaited, blocking

_TEXT_CHARACTERS = 72
_HEADER = ("#", "title", "text", "layer", "notes")


@kept
@dataclass(frozen=True, repr=False)
class Item:
    """One hit: a memory, a captured turn, or an experiment card (then `value` has its fields)."""

    id: str
    kind: str
    title: str = ""
    text: str = ""
    layer: str = ""
    date: str = ""
    version: int = 0
    labels: tuple[str, ...] = ()
    matched: tuple[str, ...] = ()
    value: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def __repr__(self) -> str:
        head = f"{display.clean(self.title, 80)}: " if self.title else ""
        notes = f" ({', '.join(display.clean(label) for label in self.labels)})" if self.labels else ""
        return f"{head}{display.clean(self.text, 400)}{notes}"

    def _repr_html_(self) -> str:
        pairs: list[tuple[str, object]] = [("title", self.title), ("text", self.text), ("layer", self.layer)]
        return display.html_pairs([*pairs, ("notes", ", ".join(self.labels))], caption=self.kind)


@kept
@dataclass(frozen=True, repr=False)
class Items(Sequence[Item]):
    """Hits in order, as a table. `warnings` say what was left out and why."""

    items: tuple[Item, ...]
    total: int = 0
    answer: str = ""
    warnings: tuple[str, ...] = ()

    @overload
    def __getitem__(self, index: int) -> Item: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Item]: ...
    def __getitem__(self, index: int | slice) -> Item | Sequence[Item]:
        return self.items[index]

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[Item]:
        return iter(self.items)

    def __repr__(self) -> str:
        if not self.items:
            return "nothing found"
        lines = [display.text_table(_HEADER, self._rows())]
        if self.answer:
            lines.append(f"answer (untrusted): {display.clean(self.answer, 400)}")
        return "\n".join([*lines, *(display.clean(warning, 200) for warning in self.warnings)])

    def __str__(self) -> str:
        return repr(self)

    def _repr_html_(self) -> str:
        if not self.items:
            return "<p>nothing found</p>"
        return display.html_table(_HEADER, self._rows(), caption="untrusted; may be stale or wrong")

    def _rows(self) -> list[list[object]]:
        return [
            [number, item.title, display.clean(item.text, _TEXT_CHARACTERS), item.layer, ", ".join(item.labels)]
            for number, item in enumerate(self.items)
        ]


@kept
@dataclass(frozen=True, repr=False)
class Written:
    """What became of a write.

    `state` is active, duplicate, candidate, conflict, signal, confirm or refused; queued where a host keeps no texts.
    """

    id: str
    relation: str
    state: str
    scope: str
    version: int = 0
    note: str = ""
    warnings: tuple[str, ...] = ()
    choices: tuple[tuple[str, str], ...] = ()

    def __repr__(self) -> str:
        said = {
            "active": f"kept ({self.relation}, {self.scope}, version {self.version})",
            "duplicate": "known already",
            "candidate": "proposed; a person decides",
            "conflict": "contradicts what is on file, which stays; a person decides",
            "signal": "counted towards a habit",
            "confirm": "several memories fit; name one by its id",
            "refused": "not kept",
            "queued": "queued for the remote memory; nothing is kept here",
        }.get(self.state, display.clean(self.state))
        lines = [said, self.note, *self.warnings, *(f"- {title}" for _, title in self.choices)]
        return "\n".join(display.clean(line, 200) for line in lines if line)

    def _repr_html_(self) -> str:
        return f"<pre>{display.html_text(repr(self))}</pre>"


@kept
@dataclass(frozen=True, repr=False)
class Moved:
    """What became of a forget, hide or restore; `remains` says where the text still is."""

    id: str
    action: str
    state: str
    remains: tuple[str, ...] = ()
    choices: tuple[tuple[str, str], ...] = ()
    reason: str = ""

    def __repr__(self) -> str:
        said = {
            "done": f"{self.action}: done",
            "candidate": f"not done: the user did not ask to {self.action} it; proposed for a person's review",
            "confirm": "not done: it is not clear which memory is meant",
            "unchanged": "nothing to do",
        }.get(self.state, display.clean(self.state))
        rest = [f"remains in: {', '.join(self.remains)}"] if self.remains else []
        lines = [said, *rest, *(f"- {title}" for _, title in self.choices)]
        return "\n".join(display.clean(line, 200) for line in lines)

    def _repr_html_(self) -> str:
        return f"<pre>{display.html_text(repr(self))}</pre>"


# -- the calls ---------------------------------------------------------------------------------------------------------
def search(
    query: str = "",
    *,
    kind: str | None = None,
    topic: str | None = None,
    scope: str | None = None,
    at: Any = None,
    limit: int = 10,
) -> Steps[Items]:
    """Find memories, and experiment cards, by words, title or id; "" lists the newest.

    Args:
        query: words, a title or an id.
        kind: keep only this kind, such as "decision" or "experiment-card".
        topic: look in this topic first.
        scope: one of "project", "global", "preset", "session"; all by default.
        at: a date, datetime or ISO text; what held then.
        limit: 1 to 50 hits.
    """
    moment = at.isoformat() if hasattr(at, "isoformat") else at
    options = {"kind": kind, "topic": topic, "scope": scope, "at": moment}
    arguments = {"query": _text(query, "query"), "limit": limit} | _given(options)
    return _items((yield from _whole("memory_search", arguments, "results")), "results")


def recall(question: str) -> Steps[Items]:
    """What is known about a question, a few items at most."""
    return _items((yield from tool("memory_recall", {"question": _text(question, "question")})), "items")


def read(*ids: str, history: bool = False) -> Steps[Items]:
    """Memories whole, by id (1 to 5); `history` adds earlier states to `.value["history"]`. `"resident"` is an id."""
    arguments = {"ids": [_text(item, "ids") for item in ids], "history": history, "force": True}
    return _items((yield from _whole("memory_read", arguments, "items")), "items")


def record(
    note: str,
    *,
    title: str | None = None,
    topic: str | None = None,
    kind: str | None = None,
    tags: Sequence[str] | None = None,
    quote: str | None = None,
    scope: str | None = None,
    basis: str | None = None,
) -> Steps[Written]:
    """Keep a fact, decision, procedure or preference as text.

    From a notebook it is a model's word: facts are active at once and labelled; preferences and facts about people wait
    for a person. Exact results belong into `memory.experiments.record`.
    """
    options: dict[str, Any] = {"title": title, "topic": topic, "kind": kind, "quote": quote, "scope": scope}
    options |= {"basis": basis, "tags": _tags(tags)}
    arguments = {"note": _text(note, "note")} | _given(options)
    return _written((yield from tool("memory_record", arguments)))


def correct(
    correction: str,
    *,
    id: str | None = None,
    supersedes: str | None = None,
    quote: str | None = None,
    change: Literal["correction", "over_time"] = "correction",
    valid_from: Any = None,
    expected_version: int | None = None,
    verdict: Literal["useful", "wrong", "stale"] | None = None,
) -> Steps[Written]:
    """Correct a memory, or say that it changed over time (`change="over_time"`, `valid_from`).

    `expected_version` refuses the change when somebody else's came first.
    """
    since = valid_from.isoformat() if hasattr(valid_from, "isoformat") else valid_from
    options = {"id": id, "supersedes": supersedes, "quote": quote, "valid_from": since, "verdict": verdict}
    options |= {"expected_version": expected_version, "change": None if change == "correction" else change}
    arguments = {"correction": _text(correction, "correction")} | _given(options)
    return _written((yield from tool("memory_correct", arguments)))


def forget(
    id: str | None = None,
    *,
    target: str | None = None,
    action: Literal["forget", "hide", "restore"] = "forget",
    quote: str | None = None,
) -> Steps[Moved]:
    """Ask to forget, hide or restore one memory, by id or description. Without the user's own word it is a proposal."""
    arguments = {"action": action} | _given({"id": id, "target": target, "quote": quote})
    value: Mapping[str, Any] = yield from tool("memory_forget", arguments)
    return Moved(
        str(value.get("id") or ""),
        str(value.get("action") or action),
        str(value.get("state") or ""),
        tuple(str(item) for item in value.get("remains") or ()),
        _choices(value),
        str(value.get("reason") or ""),
    )


def _whole(name: str, arguments: Mapping[str, Any], rows: str) -> Steps[Mapping[str, Any]]:
    """A tool's answer with all its pages in one; asked for again where a memory changed between two of them."""
    for _ in range(2):
        answer, is_one = yield from _pages(name, arguments, rows)
        if is_one:
            return answer
    return (yield from _pages(name, arguments, rows))[0]


def _pages(name: str, arguments: Mapping[str, Any], rows: str) -> Steps[tuple[dict[str, Any], bool]]:
    """(all pages in one, whether every part belongs to what is before it); a part that does not stays by itself."""
    first: Mapping[str, Any] = yield from tool(name, arguments)
    found = [dict(row) for row in first.get(rows) or ()]
    warnings = list(first.get("warnings") or ())
    page, asked, is_one = first, set[str](), True
    # A cursor that was followed already would lead round in a ring.
    while page.get("more") and (cursor := str(page.get("cursor") or "")) and cursor not in asked:
        asked.add(cursor)
        page = yield from tool(name, {**arguments, "cursor": cursor})
        for row in page.get(rows) or ():
            is_next = bool(found) and "id" in row and row["id"] == found[-1].get("id")
            if is_next and _goes_on(found[-1], row):
                _join(found[-1], row)
            else:
                is_one = is_one and not is_next and not row.get("text_from") and not row.get("history_from")
                found.append(dict(row))
        warnings += page.get("warnings") or ()
    return {**first, rows: found, "warnings": list(dict.fromkeys(warnings))}, is_one


def _goes_on(whole: Mapping[str, Any], part: Mapping[str, Any]) -> bool:
    """Whether a part begins where the text of the same version ends."""
    ends = len(str(whole.get("text") or ""))
    return whole.get("version") == part.get("version") and (not part.get("text") or part.get("text_from", 0) == ends)


def _join(whole: dict[str, Any], part: Mapping[str, Any]) -> None:
    """Put the next part of a long memory behind what is there of it."""
    whole["text"] = str(whole.get("text") or "") + str(part.get("text") or "")
    history = cast("list[Mapping[str, Any]]", list(whole.get("history") or ()))
    for state in part.get("history") or ():
        if state.get("text_from") and history:
            history[-1] = {**history[-1], "text": str(history[-1].get("text") or "") + str(state.get("text") or "")}
        else:
            history.append(state)
    if history:
        whole["history"] = history
    for mark in ("text_from", "full_chars", "history_from", "history_total"):
        whole.pop(mark, None)


def _text(value: object, name: str) -> str:
    if not isinstance(value, str):
        raise errors.Invalid(f"{name} must be text, not {type(value).__name__}")
    return value


def _tags(tags: object) -> list[Any] | None:
    if tags is None:
        return None
    # A text is a sequence of texts too: its letters would become the tags.
    if isinstance(tags, str) or not isinstance(tags, Iterable):
        raise errors.Invalid(
            f"tags must be a list of texts, not {'one text' if isinstance(tags, str) else type(tags).__name__}"
        )
    return list(cast("Iterable[Any]", tags))


def _given(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _items(value: Mapping[str, Any], name: str) -> Items:
    rows = cast("list[Mapping[str, Any]]", value.get(name) or [])
    return Items(
        tuple(_item(row) for row in rows),
        int(value.get("total") or len(rows)),
        str(value.get("answer") or ""),
        tuple(str(item) for item in value.get("warnings") or ()),
    )


def _item(row: Mapping[str, Any]) -> Item:
    return Item(
        id=str(row.get("id") or row.get("experiment_id") or ""),
        kind=str(row.get("kind") or ""),
        title=str(row.get("title") or ""),
        text=str(row.get("text") or row.get("summary") or ""),
        layer=str(row.get("layer") or ""),
        date=str(row.get("date") or row.get("updated_at") or ""),
        version=int(row.get("version") or 0),
        labels=tuple(str(item) for item in row.get("labels") or ()),
        matched=tuple(str(item) for item in row.get("matched") or ()),
        value=dict(row),
    )


def _written(value: Mapping[str, Any]) -> Written:
    return Written(
        str(value.get("id") or ""),
        str(value.get("relation") or ""),
        str(value.get("state") or ""),
        str(value.get("scope") or ""),
        int(value.get("version") or 0),
        str(value.get("scope_note") or ""),
        tuple(str(item) for item in value.get("warnings") or ()),
        _choices(value),
    )


def _choices(value: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    rows = cast("list[Mapping[str, Any]]", value.get("choices") or [])
    return tuple((str(row.get("id")), str(row.get("title"))) for row in rows)


class TextMethods:
    """The blocking methods that `memory` takes in."""

    search = blocking(search)
    recall = blocking(recall)
    read = blocking(read)
    record = blocking(record)
    remember = record
    correct = blocking(correct)
    forget = blocking(forget)


class AsyncTextMethods:
    """Their async twins, for `memory.aio`."""

    search = awaited(search)
    recall = awaited(recall)
    read = awaited(read)
    record = awaited(record)
    remember = record
    correct = awaited(correct)
    forget = awaited(forget)
