"""What an MCP server asks of its host.

Owns: the questions and the shape of their answers. Does not own: the connection (`attach.guest`): it is dialled with
the first question, because agent hosts start a server of this kind only to look at it, twice or more.

Source: design page "DeepSeek Harness and MCP", Ways in.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, cast

from rlm_memory import wire

from rlm_memory_host.errors import HostError


class Guest(Protocol):
    """A session of its own with a host, as `attach.guest.GuestSession` is one."""

    @property
    def session_dir(self) -> Path | None:
        """The session's folder, in whose `exports/` files wait to be recorded; None before the first connection."""
        ...

    async def connected(self) -> str:
        """Connect where there is no connection; the session's id. Raises HostError."""
        ...

    async def request(self, kind: str, payload: Mapping[str, Any]) -> Mapping[str, Any]:
        """The reply's fields. Raises HostError with the reply's code; cancelling the wait cancels the request."""
        ...


class Asking:
    """The questions. Every method raises HostError, also where no host can be had."""

    def __init__(self, guest: Guest) -> None:
        self._guest = guest

    async def tools(self) -> list[dict[str, Any]]:
        """The tools that this session may call: name, description, parameters."""
        return cast("list[dict[str, Any]]", (await self._guest.request(wire.LIST, {})).get("tools", []))

    async def call(self, name: str, arguments: Mapping[str, Any]) -> wire.Envelope:
        """The envelope of one call; a tool's own refusal is an envelope too."""
        fields = await self._guest.request(wire.CALL, {"name": name, "arguments": dict(arguments)})
        try:
            return wire.parse_envelope(fields)
        except wire.WireError as error:
            raise HostError(str(error), error.code) from error

    async def value(self, name: str, **arguments: Any) -> dict[str, Any]:
        """The structured value of a call that has to succeed. Raises HostError with the refusal's code."""
        envelope = await self.call(name, arguments)
        if envelope.is_error:
            raise HostError(envelope.message, envelope.code)
        return dict(envelope.value)

    async def annotation(self, experiment_id: str) -> Mapping[str, Any]:
        """What is kept beside a result (preview, lineage, ...); empty where nothing is."""
        return (await self._guest.request(wire.ANNOTATE, {"experiment_id": experiment_id})).get("annotation") or {}

    async def resident(self) -> str:
        """The resident text; "" where there is none."""
        return str((await self._guest.request(wire.RESIDENT, {})).get("text") or "")

    async def exports(self) -> Path | None:
        """The folder whose files may be recorded."""
        await self._guest.connected()
        folder = self._guest.session_dir
        return None if folder is None else folder / "exports"
