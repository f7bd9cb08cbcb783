"""What a tool is: a name, a text for the model, schemas, what it needs, and a function to run.

Owns: the shapes that the registry, policy and dispatcher share. Does not own: any tool, any decision.

Source: design page "Style", Tools at hand.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from rlm_memory_host.contracts.scope import Scope

Need = Literal["artifacts", "write"]
"""`artifacts`: the store is switched on. `write`: the caller has a session folder to record from."""


class Arguments(BaseModel):
    """Base of the input models: strict types, unknown fields refused. No value of a caller is ever repeated."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, hide_input_in_errors=True)


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The structured value of a success, and a text that stands alone without it."""

    value: Mapping[str, Any]
    text: str


@dataclass(frozen=True, slots=True)
class Call:
    """One running call: who, and whether the caller gave up. `cancelled` is thread-safe and may be polled."""

    scope: Scope
    stop: threading.Event = field(default_factory=threading.Event)

    def cancelled(self) -> bool:
        """Whether the result is no longer wanted."""
        return self.stop.is_set()


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool. `run` is synchronous and is called in a worker thread; it raises HostError families only.

    `output` is a flat JSON schema of the value: types of the top-level properties and which are required. `repeatable`:
    running a call twice does no more than running it once, so a request may be served again by the next host where
    nobody knows whether the one before had finished it.
    """

    name: str
    description: str
    arguments: type[Arguments]
    output: Mapping[str, Any]
    run: Callable[[Any, Call], ToolResult]
    needs: frozenset[Need] = frozenset()
    repeatable: bool = False


class Registry(Mapping[str, Tool]):
    """The tools of a host, complete at construction and immutable. Raises ValueError for a name given twice."""

    def __init__(self, tools: list[Tool]) -> None:
        self._tools = {tool.name: tool for tool in tools}
        if len(self._tools) != len(tools):
            raise ValueError("two tools have the same name")

    def __getitem__(self, name: str) -> Tool:
        return self._tools[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tools)

    def __len__(self) -> int:
        return len(self._tools)
