"""The host's local socket: kernels ask to be attached, scripts for a session, the command line for status and stop.

Owns: the socket file, who may speak, one line in and one line out, the lifeline that stays open after it. Does not own:
attaching (`kernels`), shutting down (`app`).

Who may speak: processes of this user only. The folder is 0700 and the socket 0600 under any umask, and the peer's uid
is checked again for every connection (SO_PEERCRED, LOCAL_PEERCRED on macOS). Input is bounded in size, time and
number; whatever a peer sends, the others are served on.

Source: design page "Kernel <-> host", How a kernel finds its host.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Any, Final, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from rlm_memory import wire

from rlm_memory_host.attach import peer as peers
from rlm_memory_host.errors import HostError, ProtocolError, SettingsError
from rlm_memory_host.logs import LOGGER, where
from rlm_memory_host.process import private_folder

MAX_CONNECTIONS: Final = 512
LINE_SECONDS: Final = 5.0
"""Time a peer has to send its line, seconds."""
BACKLOG: Final = 512


class _Line(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, hide_input_in_errors=True)


class AttachLine(_Line):
    """A kernel's line."""

    type: Literal["attach"]
    protocol: int
    connection_file: Annotated[str, Field(min_length=1, max_length=4096)]
    pid: Annotated[int, Field(ge=1, le=1 << 31)] | None = None
    """None where whoever asks does not know it: the kernel itself is asked."""
    cwd: Annotated[str, Field(min_length=1, max_length=4096, pattern=r"^/[^\x00]*$")]
    extension: Annotated[str, Field(max_length=64)] = ""


class PrepareLine(_Line):
    """A provisioner's line, before it starts a kernel: the connection file is written, nothing runs yet.

    The connection that carried it is the kernel's lifeline: when it ends, the kernel will not be restarted any more.
    """

    type: Literal["prepare"]
    protocol: int
    connection_file: Annotated[str, Field(min_length=1, max_length=4096)]
    cwd: Annotated[str, Field(min_length=1, max_length=4096, pattern=r"^/[^\x00]*$")]
    objects: bool = False
    """Make the folder of the project's objects, so that a sandbox can show it."""


class OpenLine(_Line):
    """A plain process's line: it wants a session of its own, without being a kernel.

    The connection that carried it is the session's lifeline: when it ends, the session and its token end.
    """

    type: Literal["open"]
    protocol: int
    cwd: Annotated[str, Field(min_length=1, max_length=4096, pattern=r"^/[^\x00]*$")]
    label: Annotated[str, Field(max_length=64, pattern=r"^[ -~]*$")] = ""
    """What the operator sees in the host's status."""


class StatusLine(_Line):
    """Ask for the host's state."""

    type: Literal["status"]


class StopLine(_Line):
    """Ask the host to end."""

    type: Literal["stop"]


class OutboxLine(_Line):
    """An operator's word on deliveries, for the host that works on the outbox."""

    type: Literal["outbox"]
    action: Literal["retry", "drop"]
    deliveries: Annotated[list[Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]], Field(max_length=10_000)]


class OfferLine(_Line):
    """A command kept and announced these memories: the host may offer them now, and does at its next start else."""

    type: Literal["offer"]
    memories: Annotated[list[Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,128}$")]], Field(max_length=1_000)]


class TailLine(_Line):
    """Ask the host to read the harness's logs now; how that goes is part of its state."""

    type: Literal["tail"]


Line = OfferLine | AttachLine | PrepareLine | OpenLine | StatusLine | StopLine | OutboxLine | TailLine
Answer = Callable[[Line, int | None], Awaitable[dict[str, Any]]]
"""From a line and the pid of the process that sent it (None where the system does not tell it) to the reply."""
_LINES: Final[dict[str, type[Line]]] = {
    "attach": AttachLine,
    "prepare": PrepareLine,
    "open": OpenLine,
    "status": StatusLine,
    "stop": StopLine,
    "outbox": OutboxLine,
    "offer": OfferLine,
    "tail": TailLine,
}


class Door:
    """The listening socket of one host. Make it only while the host's lock is held."""

    def __init__(self, state_root: Path, answer: Answer, ended: Callable[[Line], None] = lambda _line: None) -> None:
        """`ended` is called when the connection of an answered line is over, whoever closed it."""
        self.path = wire.socket_path(state_root)
        self._answer = answer
        self._ended = ended
        self._open = 0
        self._listener: socket.socket | None = listen(self.path)

    async def run(self) -> None:
        """Accept until cancelled; every connection is a task of a group inside this one."""
        loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as group:
            while self._listener is not None:
                try:
                    peer, _ = await loop.sock_accept(self._listener)
                except OSError as error:
                    # Out of descriptors, most likely: those that are open are served on.
                    LOGGER.warning("accept_failed errno=%s", error.errno)
                    await asyncio.sleep(0.5)
                    continue
                if self._open >= MAX_CONNECTIONS:
                    peer.close()
                    continue
                self._open += 1
                group.create_task(self._serve(peer))

    def close(self) -> None:
        """Stop listening and remove the socket file; twice is once."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None
            self.path.unlink(missing_ok=True)

    async def _serve(self, peer: socket.socket) -> None:
        try:
            with peer:
                peer.setblocking(False)
                line, reply = await self._one_line(peer)
                try:
                    await _send(peer, reply)
                    if line is not None:
                        await _until_closed(peer)
                finally:
                    if line is not None:
                        self._ended(line)
        except (OSError, TimeoutError):
            LOGGER.debug("peer_lost")
        except Exception as error:
            LOGGER.error("peer_failed %s", where(error))
        finally:
            self._open -= 1

    async def _one_line(self, peer: socket.socket) -> tuple[Line | None, dict[str, Any]]:
        """The line, None where it was refused, and the reply."""
        try:
            pid, uid = peers.credentials(peer)
            if uid != os.geteuid():
                LOGGER.warning("peer_refused uid=%s", uid)
                raise ProtocolError("only processes of the host's own user may use this socket", "PEER_REFUSED")
            line = parse_line(await _read_line(peer))
            return line, await self._answer(line, pid)
        except HostError as error:
            return None, wire.error(error.code, str(error))
        except TimeoutError:
            return None, wire.error(wire.INVALID_REQUEST, f"no whole line came within {LINE_SECONDS:g} seconds")
        except Exception as error:
            LOGGER.error("line_failed %s", where(error))
            return None, wire.error(wire.HOST_REQUEST_FAILED, "the host failed; its log says where")


def listen(path: Path) -> socket.socket:
    """Bind the socket at `path`: folder 0700, socket 0600; what an earlier host left there is removed.

    A path of over 100 bytes does not fit a socket address and is reached through a descriptor of its folder.
    """
    private_folder(path.parent)
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        if len(os.fsencode(path)) <= wire.SOCKET_PATH_BYTES:
            listener.bind(str(path))
        elif Path(f"/proc/self/fd/{folder}").exists():
            listener.bind(f"/proc/self/fd/{folder}/{path.name}")
        else:
            raise SettingsError(f"state_root: its path is too long for a socket ({wire.SOCKET_PATH_BYTES} bytes)")
        path.chmod(0o600)
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    finally:
        os.close(folder)
    return listener


def parse_line(data: bytes) -> Line:
    """One line as a checked message. Raises ProtocolError naming the field; values are not repeated."""
    try:
        document: Any = json.loads(data)
    except (ValueError, RecursionError):
        raise ProtocolError("the line is not JSON") from None
    kind = cast("dict[str, Any]", document).get("type") if isinstance(document, dict) else None
    model = _LINES.get(kind) if isinstance(kind, str) else None
    if model is None:
        raise ProtocolError("the line has no known 'type'", wire.UNSUPPORTED_REQUEST)
    try:
        return model.model_validate(document)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        field = ".".join(str(part) for part in first["loc"])[:60].encode("ascii", "backslashreplace").decode()
        raise ProtocolError(f"{kind}: {field}: {first['msg']}") from None


async def _read_line(peer: socket.socket) -> bytes:
    loop, data = asyncio.get_running_loop(), b""
    async with asyncio.timeout(LINE_SECONDS):
        while b"\n" not in data:
            chunk = await loop.sock_recv(peer, 65_536)
            if not chunk:
                raise ProtocolError("the connection ended within a line")
            data += chunk
            if len(data) > wire.MAX_LINE_BYTES:
                raise ProtocolError(f"the line is over {wire.MAX_LINE_BYTES:,} bytes", wire.PAYLOAD_TOO_LARGE)
    return data.partition(b"\n")[0]


async def _send(peer: socket.socket, reply: dict[str, Any]) -> None:
    async with asyncio.timeout(LINE_SECONDS):
        await asyncio.get_running_loop().sock_sendall(peer, json.dumps(reply).encode() + b"\n")


async def _until_closed(peer: socket.socket) -> None:
    """The lifeline: the peer sees the host's end as the end of this connection. What it still sends is ignored."""
    with contextlib.suppress(OSError):
        while await asyncio.get_running_loop().sock_recv(peer, 4096):
            pass
