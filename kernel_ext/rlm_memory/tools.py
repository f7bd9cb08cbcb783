"""Tool calls: one step list from a tool's name and arguments to its value, whoever the host is.

Owns: unwrapping envelopes, names that carry an MCP client's prefix, the text of a refused artifact tool; `dsh_tools`
for kernels that have none. Does not own: what a tool does.

Source: design page "Kernel <-> host", Wire (tool envelope).
"""

from __future__ import annotations

import os
from collections.abc import Generator, Mapping, Sequence
from typing import Any, Final, TypeVar, cast

from rlm_memory import errors, wire
from rlm_memory.finding import Host
from rlm_memory.kept import kept, state
from rlm_memory.steps import Ask, Meet, Steps

ARTIFACT_TOOLS: Final = frozenset({"memory_artifact_record", "memory_artifact_resolve", "memory_search"})

T = TypeVar("T")


def tool(name: str, arguments: Mapping[str, Any]) -> Steps[Any]:
    """Call a tool; its value, or the fault that its envelope names.

    `name` may be the tool's own or carry a prefix; paths in `arguments` become text.
    """
    host: Host = yield Meet()
    actual = name if host.ours else (yield from _name_at(name))
    try:
        plain = _as_json(arguments)
    except RecursionError as error:
        raise errors.Invalid(f"{name}: an argument is nested too deeply, or holds itself") from error
    fields = yield Ask(wire.CALL, {"name": actual, "arguments": plain})
    try:
        envelope = wire.parse_envelope(fields)
    except wire.WireError as error:
        raise errors.HostFault(f"the answer of {name} cannot be read: {error}") from error
    if not envelope.is_error:
        return envelope.text if envelope.value is None else envelope.value
    if envelope.code == wire.UNKNOWN_TOOL and name in ARTIFACT_TOOLS:
        raise errors.Denied(
            f"this host does not offer {name} to this kernel: artifact memory is off, or the name is not shown here. "
            "memory.status() says which host answers; its operator switches artifacts on",
            wire.UNKNOWN_TOOL,
        )
    raise errors.from_code(envelope.code, envelope.message)


def list_tools() -> Steps[list[dict[str, Any]]]:
    """The tools that this caller may use, as the host describes them."""
    fields = yield Ask(wire.LIST)
    found = fields.get("tools")
    return [dict(item) for item in cast("list[Mapping[str, Any]]", found)] if isinstance(found, list) else []


def _name_at(name: str) -> Steps[str]:
    """The name under which a foreign host shows a tool; asked once, and again when it is not among those known."""
    names = cast("dict[str, str]", state().setdefault("foreign_names", {}))
    if name not in names:
        for described in (yield from list_tools()):
            shown = str(described.get("name") or "")
            names.setdefault(wire.base_tool_name(shown), shown)
            names[shown] = shown
    return names.get(name, name)


def _as_json(value: Any) -> Any:
    if isinstance(value, os.PathLike):
        return os.fsdecode(os.fspath(cast("os.PathLike[str]", value)))
    if isinstance(value, Mapping):
        return {str(name): _as_json(item) for name, item in cast("Mapping[Any, Any]", value).items()}
    if isinstance(value, (list, tuple)):
        return [_as_json(item) for item in cast("Sequence[Any]", value)]
    return value


class _Here:
    """A value that is here already; `await` gives it back, so that code written for an async `dsh_tools` runs."""

    def __await__(self) -> Generator[Any, None, Any]:
        return self
        yield  # a generator without a step: awaiting never waits


@kept
class ToolObject(dict[str, Any], _Here):
    """A tool's value that is an object."""


@kept
class ToolList(list[Any], _Here):
    """A tool's value that is a list."""


@kept
class ToolText(str, _Here):
    """A tool's value that is text."""


@kept
class ToolScalar(_Here):
    """A tool's value that is a number, a truth value or nothing; compares as it."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __await__(self) -> Generator[Any, None, Any]:
        return self.value
        yield

    def __bool__(self) -> bool:
        return bool(self.value)

    def __eq__(self, other: object) -> bool:
        return bool(self.value == (other.value if isinstance(other, ToolScalar) else other))

    def __hash__(self) -> int:
        return hash(self.value)

    def __repr__(self) -> str:
        return repr(self.value)


def here(value: Any) -> Any:
    """A tool's value in the form that works with and without `await`."""
    if isinstance(value, dict):
        return ToolObject(cast("dict[str, Any]", value))
    if isinstance(value, list):
        return ToolList(cast("list[Any]", value))
    return ToolText(value) if isinstance(value, str) else ToolScalar(value)
