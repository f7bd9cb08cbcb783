"""The parameters of the memory tools: types, coarse sizes, and what each is for.

Owns: the models. No owner, project, preset, session, peer or path of a memory is among them.

Source: design page "Recall, resident text, guard, audit, health, tools", Tools.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from rlm_memory_host.tools.tool import Arguments

_Short = Annotated[str, StringConstraints(max_length=1024)]
_Scope = Literal["all", "project", "global", "preset", "session"]
_KindName = Literal[
    "fact", "decision", "procedure", "preference", "person", "relationship", "state", "episode", "source"
]
_SearchKind = Literal["experiment-card"] | _KindName


class MemorySearchArguments(Arguments):
    """Of `memory_search` with text memory on; the last four are of experiment cards."""

    query: Annotated[str, Field(max_length=4096, description="Words, a title or an id; empty: newest")] = ""
    kind: Annotated[_SearchKind | None, Field(description="Only hits of this kind")] = None
    topic: Annotated[_Short | None, Field(description="This topic first")] = None
    scope: Annotated[_Scope | None, Field(description="Only this layer of your own")] = None
    at: Annotated[_Short | None, Field(description="ISO date or time: what held then")] = None
    limit: Annotated[int, Field(ge=1, le=50, description="Hits at most")] = 10
    cursor: Annotated[_Short | None, Field(description="`cursor` of the page before, same arguments")] = None
    tag: Annotated[_Short | None, Field(description="Of experiment cards: only with this tag")] = None
    source: Annotated[_Short | None, Field(description="Of experiment cards: only from this source")] = None
    since: Annotated[_Short | None, Field(description="Of experiment cards: only updated since")] = None
    session: Annotated[_Short | None, Field(description="Of experiment cards: only of this session")] = None


class RecallArguments(Arguments):
    """Of `memory_recall`."""

    question: Annotated[str, Field(min_length=1, max_length=4096, description="A focused question")]


class MemoryRecordArguments(Arguments):
    """Of `memory_record`."""

    note: Annotated[str, Field(min_length=1, max_length=65_536, description="What to keep, one fact or decision")]
    title: Annotated[str | None, Field(max_length=4096, description="A short title")] = None
    topic: Annotated[str | None, Field(max_length=4096, description="The subject it is filed under")] = None
    kind: Annotated[_KindName | None, Field(description="What it is; fact by default")] = None
    tags: Annotated[list[_Short] | None, Field(max_length=64, description="Words to find it by")] = None
    quote: Annotated[
        str | None,
        Field(max_length=65_536, description="Whole sentences of the user's latest message that say this"),
    ] = None
    scope: Annotated[
        Literal["project", "global", "preset", "session", "habit"] | None,
        Field(description="A request for a layer; the host decides"),
    ] = None
    basis: Annotated[str | None, Field(max_length=4096, description="What the note rests on")] = None


class MemoryCorrectArguments(Arguments):
    """Of `memory_correct`."""

    correction: Annotated[str, Field(max_length=65_536, description="The corrected text; empty with a verdict alone")]
    id: Annotated[_Short | None, Field(description="The memory to correct")] = None
    supersedes: Annotated[str | None, Field(max_length=4096, description="Its id or a description of it")] = None
    quote: Annotated[str | None, Field(max_length=65_536, description="The user's whole sentences saying so")] = None
    change: Annotated[
        Literal["correction", "over_time"], Field(description="over_time: it was true and no longer is")
    ] = "correction"
    valid_from: Annotated[_Short | None, Field(description="ISO date or time from which the new text holds")] = None
    expected_version: Annotated[int | None, Field(ge=1, description="Refuse when it changed since you read it")] = None
    verdict: Annotated[
        Literal["useful", "wrong", "stale"] | None, Field(description="Orders reviews; changes nothing else")
    ] = None


class ReadArguments(Arguments):
    """Of `memory_read`."""

    ids: Annotated[list[_Short], Field(min_length=1, max_length=5, description="Ids of hits, or `resident`")]
    history: Annotated[bool, Field(description="Earlier states too")] = False
    force: Annotated[bool, Field(description="Again, although given before in this context")] = False
    cursor: Annotated[_Short | None, Field(description="`cursor` of the page before, same ids and history")] = None


class ForgetArguments(Arguments):
    """Of `memory_forget`."""

    id: Annotated[_Short | None, Field(description="The memory's id")] = None
    target: Annotated[str | None, Field(max_length=4096, description="Or the user's description of it")] = None
    quote: Annotated[str | None, Field(max_length=65_536, description="The user's whole sentence asking for it")] = None
    action: Annotated[Literal["forget", "hide", "restore"], Field(description="What the user asked for")] = "forget"
