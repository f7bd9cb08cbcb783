"""Other names of a memory, learned where the user puts both side by side: "the cooling pump (CP-7)", 泵，又叫甲泵.

Owns: reading such a sentence, the rows of `aliases.ndjson`, which memories a text names by them. Does not own: what is
done with a name (`recall`, `forgetting`).

An alias is an edge and no merge: it changes no memory, the same name said of another one later replaces it, and it
counts only while its memory is there to be found; forgetting or purging that ends it. A person's captured, own
statement makes one, only for a memory that is titled so, and only where exactly one memory and one name fit; or the
operator, who also takes it back, until the user says it again. None is made for a memory of more than normal
sensitivity.

Source: design page "Recall, resident text, guard, audit, health, tools", Recall (exact channel); Riko, Revocable
aliases.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from rlm_memory_host.contracts.capture import Message
from rlm_memory_host.contracts.memory import (
    AuditNote,
    Authority,
    Caller,
    Log,
    LogRow,
    Sensitivity,
    Status,
    TextStore,
    Transaction,
)
from rlm_memory_host.errors import GuardRejected, NotFound, ToolInput
from rlm_memory_host.storage.tokens import normalise
from rlm_memory_host.textmemory.commands import without_quoted
from rlm_memory_host.textmemory.quotes import statements
from rlm_memory_host.textmemory.sentences import fold
from rlm_memory_host.textmemory.service import TextMemory
from rlm_memory_host.textmemory.validity import stamp

MAX_SENTENCE: Final = 1_000
"""Characters of a sentence that is read for names: the patterns' time grows with the square of its length."""
MAX_CHARS: Final = 60
MAX_WORDS: Final = 4
"""Words of a name in brackets: more of them are a remark."""
TITLE_WORDS: Final = 10
TITLE_CHARS: Final = 24
_CALLS: Final = r"(?:\b(?:also|better) (?:called|known as|named)\b|\baka\b|\ba\.k\.a\.|又叫|也叫|亦称|简称)"
_BRACKETS: Final = re.compile(
    rf"(?P<before>[^()（）]*)[(（]\s*(?:{_CALLS}\s*)?(?P<inside>[^()（）]{{2,60}}?)\s*[)）]", re.IGNORECASE
)
_CALLED: Final = re.compile(
    rf"(?P<before>[^,，;；]+?)[,，]?\s*{_CALLS}\s*(?P<inside>[^,，;；.。!！?？()（）]{{2,60}})", re.IGNORECASE
)
_ENDS: Final = re.compile(r"\s+(?:is|are|was|has|runs|and|in|on|at|which|that)\b.*$|[在是有位需]")
_DETERMINERS: Final = re.compile(r"^(?:the|a|an|our|my|this|that)\s+", re.IGNORECASE)
_QUOTES: Final = " \t\"'“”‘’「」『』`*"

Key = tuple[str, str]
"""(layer's name, id)."""
Titled = Callable[[str], list[Key]]


@dataclass(frozen=True, slots=True)
class Alias:
    """A name of the memory `key`."""

    name: str
    key: Key


def explicit(text: str, titled: Titled) -> tuple[Alias, ...]:
    """The names that a message's own statements give to memories: `titled` finds the memories of a title."""
    found: list[Alias] = []
    for statement in statements(text):
        if statement.own and len(statement.text) <= MAX_SENTENCE:
            found.extend(_in_sentence(without_quoted(statement.text), titled))
    return tuple(dict.fromkeys(found))


def _in_sentence(sentence: str, titled: Titled) -> Iterator[Alias]:
    pairs = [(match["before"], match["inside"]) for match in _BRACKETS.finditer(sentence)]
    pairs += [(match["before"], _ENDS.sub("", match["inside"])) for match in _CALLED.finditer(sentence)]
    made = {alias for before, inside in pairs for alias in _pair(before, inside, titled)}
    if len(made) == 1:
        yield made.pop()


def _pair(before: str, inside: str, titled: Titled) -> Iterator[Alias]:
    """`Title (Name)`, or `Name (Title)` where the name is all that stands before."""
    name = inside.strip(_QUOTES)
    keys = _ending(before, titled)
    if keys and _is_name(name) and not titled(name):
        if len(keys) == 1:
            yield Alias(name, keys[0])
        return
    keys, name = titled(_DETERMINERS.sub("", name)), _DETERMINERS.sub("", before.strip(_QUOTES))
    if len(keys) == 1 and _is_name(name) and not titled(name):
        yield Alias(name, keys[0])


def _ending(before: str, titled: Titled) -> list[Key]:
    """The memories whose title is the end of a text, by the longest one."""
    tail = before.rstrip(_QUOTES + ",，")
    words = tail.split()
    for count in range(min(TITLE_WORDS, len(words)), 0, -1):
        if keys := titled(" ".join(words[-count:]).strip(_QUOTES)):
            return keys
    if not tail.isascii():
        for count in range(min(TITLE_CHARS, len(tail)), 1, -1):
            if keys := titled(tail[-count:].strip(_QUOTES)):
                return keys
    return []


def _is_name(text: str) -> bool:
    words = text.split()
    return (
        2 <= len(text) <= MAX_CHARS
        and 0 < len(words) <= MAX_WORDS
        and any(character.isalpha() for character in text)
        and _DETERMINERS.match(text) is None
        and not re.search(r"[.!?。！？:：;；,，]\s*$", text)
    )


# -- kept and found ----------------------------------------------------------------------------------------------------
def learn(memory: TextMemory, caller: Caller, message: Message) -> int:
    """Keep the names that a captured message of the user gives; how many are new. Raises StoreError."""
    if caller.agent_kind == "child":
        return 0
    view = memory.shelves.view(memory.layers(caller))
    known = set(kept(memory.store))

    def titled(text: str) -> list[Key]:
        return [key for key in view.titled(text) if (block := view.block(*key)) and block.status is Status.ACTIVE]

    made: list[LogRow] = []
    for alias in explicit(message.text, titled):
        block = view.block(*alias.key)
        if alias in known or block is None or block.sensitivity is not Sensitivity.NORMAL:
            continue
        try:
            memory.parts.guard({"alias": alias.name}, Authority.BACKGROUND, "queue")
        except GuardRejected:
            continue
        source = f"{message.session}:{message.seq}"
        made.append(LogRow(Log.ALIASES, _row(alias, source, stamp(memory.now()))))
    if made:
        memory.store.commit(Transaction(rows=tuple(made)))
    return len(made)


def give(memory: TextMemory, caller: Caller, name: str, memory_id: str) -> Alias:
    """Keep a name in the operator's name. Raises ToolInput for what is none, NotFound, GuardRejected, StoreError."""
    name = " ".join(name.split())
    found = memory.find(caller, memory_id)
    if not _is_name(name):
        raise ToolInput(f"alias: it must be a name of 2 to {MAX_CHARS} characters and at most {MAX_WORDS} words")
    if found.block.status is not Status.ACTIVE:
        raise ToolInput("alias: only an active memory has other names")
    if found.block.sensitivity is not Sensitivity.NORMAL:
        raise ToolInput("alias: a sensitive memory has no other names")
    if memory.shelves.view(memory.layers(caller)).titled(name):
        raise ToolInput("alias: a memory has this title or id already")
    memory.parts.guard({"alias": name}, Authority.OPERATOR, "queue")
    made = Alias(name, (found.layer.name, found.block.id))
    note = AuditNote("alias", "operator", found.layer.name, found.block.id, "ADDED", tool="cli", contents=(name,))
    row = LogRow(Log.ALIASES, _row(made, "operator", stamp(memory.now())))
    memory.store.commit(Transaction(rows=(row,), notes=(note,)))
    return made


def take_back(memory: TextMemory, caller: Caller, name: str) -> list[Alias]:
    """End a name in the caller's layers. Raises NotFound where there is none, StoreError."""
    layers = {layer.name for layer in memory.layers(caller)}
    ended = [alias for alias in kept(memory.store) if alias.key[0] in layers and fold(alias.name) == fold(name)]
    if not ended:
        raise NotFound("there is no such alias in the layers that you see")
    now = stamp(memory.now())
    ended_rows = tuple(LogRow(Log.ALIASES, {**_row(alias, "operator", now), "state": "removed"}) for alias in ended)
    notes = tuple(AuditNote("alias", "operator", *alias.key, "REMOVED", tool="cli") for alias in ended)
    memory.store.commit(Transaction(rows=ended_rows, notes=notes))
    return ended


def kept(store: TextStore) -> list[Alias]:
    """Every alias on file; one whose memory is gone names nothing, which is the reader's to see."""
    found: list[Alias] = []
    for row in store.rows(Log.ALIASES):
        parts = [row.get(key) for key in ("alias", "layer", "target")]
        if row.get("state") == "active" and all(isinstance(part, str) for part in parts):
            name, layer, target = map(str, parts)
            found.append(Alias(name, (layer, target)))
    return found


def named_in(text: str, aliases: Iterable[Alias]) -> list[Key]:
    """The memories that a text names by an alias: as whole words, whatever the case."""
    said = normalise(text)
    return list(dict.fromkeys(alias.key for alias in aliases if _says(said, normalise(alias.name))))


def names_of(key: Key, aliases: Iterable[Alias]) -> tuple[str, ...]:
    """The other names of a memory."""
    return tuple(alias.name for alias in aliases if alias.key == key)


def _says(text: str, name: str) -> bool:
    left = r"(?<![a-z0-9_])" if name[:1].isascii() else ""
    right = r"(?![a-z0-9_])" if name[-1:].isascii() else ""
    return bool(name) and re.search(f"{left}{re.escape(name)}{right}", text) is not None


def _row(alias: Alias, source: str, now: str) -> dict[str, object]:
    layer, target = alias.key
    digest = hashlib.sha256(f"{layer}\n{fold(alias.name)}".encode()).hexdigest()[:24]
    return {
        "id": f"alias_{digest}",
        "alias": alias.name,
        "layer": layer,
        "target": target,
        "kind": "explicit_coreference",
        "confidence": 1,
        "source": source,
        "state": "active",
        "ts": now,
    }
