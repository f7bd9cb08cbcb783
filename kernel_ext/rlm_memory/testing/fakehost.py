"""The fake host's wire side: attach to kernels, read requests, answer as scripted.

Owns: sockets, de-duplication, the script, what was seen. One thread, started by `with`, owns every ZeroMQ socket; other
threads talk to it through a queue. Does not own: what the tools answer (`fakestore.py`, or the caller's own functions).

Source: design page "Kernel <-> host", Wire and Host side.
"""

from __future__ import annotations

import heapq
import json
import os
import queue
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final, cast

import zmq
from jupyter_client.session import Session

from rlm_memory import wire
from rlm_memory.testing.fakestore import FakeStore, ToolFault

POLL_MILLISECONDS: Final = 5

Tool = Callable[[Mapping[str, Any]], Any]


@dataclass(frozen=True)
class Seen:
    """One request as it arrived. `transmission` counts arrivals of the same id, from 1."""

    request_id: str
    kind: str
    data: Mapping[str, Any]
    transmission: int


@dataclass(eq=False)
class _Kernel:
    """One attached kernel: its sockets, and its replies by request id (None while one is being made)."""

    session: Session
    requests: zmq.Socket[bytes]
    control: zmq.Socket[bytes]
    replies: dict[str, dict[str, Any] | None] = field(default_factory=dict[str, "dict[str, Any] | None"])
    arrivals: dict[str, int] = field(default_factory=dict[str, int])


class FakeHost:
    """A host in a thread of the test's process.

    Args:
        folder: for its store and its session folder; kept between hosts on the same folder.
        foreign: answer UNSUPPORTED_REQUEST to everything but `dsh_tools.list` and `dsh_tools.call`, and run a repeated
            request once more, as a host does that does not know repeated ids.
        tools: functions by name instead of the store's; each takes the arguments and returns the value, or raises
            ToolFault.
        script: called with each arrival; returns seconds to wait before answering, or None to drop this arrival.
    """

    def __init__(
        self,
        folder: Path,
        *,
        foreign: bool = False,
        tools: Mapping[str, Tool] | None = None,
        script: Callable[[Seen], float | None] = lambda _seen: 0.0,
    ) -> None:
        self.session_dir = folder / "session"
        (self.session_dir / "exports").mkdir(parents=True, exist_ok=True)
        self.store = FakeStore(folder / "store")
        self.tools: dict[str, Tool] = dict(self.store.tools(self.session_dir / "exports") if tools is None else tools)
        self.script = script
        self.seen: list[Seen] = []
        self.cancelled: list[str] = []
        self.silent = False
        """While True nothing is read or answered, as if the host were stopped."""
        self._foreign = foreign
        self._orders: queue.Queue[Callable[[], None]] = queue.Queue()
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._kernels: dict[str, _Kernel] = {}
        self._due: list[tuple[float, int, _Kernel, str, dict[str, Any]]] = []
        self._count = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="fake host", daemon=True)
        self._door: socket.socket | None = None
        self._lifelines: list[socket.socket] = []

    def __enter__(self) -> FakeHost:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End it at once, as a killed host ends: nothing more is answered, lifelines break."""
        self._stop.set()
        if self._door is not None:
            self._door.shutdown(socket.SHUT_RDWR)
            self._door.close()
        for lifeline in self._lifelines:
            lifeline.close()
        self._thread.join()
        self._context.destroy(linger=0)

    def attach(self, connection_file: str | os.PathLike[str]) -> None:
        """Subscribe to a kernel's requests; returns when the sockets are connected. Attaching twice changes nothing."""
        info = cast("dict[str, Any]", json.loads(Path(connection_file).read_text()))
        done = threading.Event()
        self._orders.put(lambda: (self._attach(str(connection_file), info), done.set())[0])
        done.wait()

    def listen(self, state_root: Path) -> None:
        """Serve the local socket of a state root, so that kernels dial and hand over their connection files."""
        path = wire.socket_path(state_root)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            door.bind(f"/proc/self/fd/{folder}/{path.name}")
        finally:
            os.close(folder)
        door.listen()
        self._door = door
        threading.Thread(target=self._admit, args=(door,), name="fake host's door", daemon=True).start()

    def kinds(self) -> list[str]:
        """The request types as they arrived."""
        return [seen.kind for seen in self.seen]

    # -- the door's thread ---------------------------------------------------------------------------------------------

    def _admit(self, door: socket.socket) -> None:
        while not self._stop.is_set():
            try:
                visitor, _address = door.accept()
                message = cast("dict[str, Any]", json.loads(visitor.makefile("rb").readline() or b"{}"))
            except (OSError, ValueError):
                return
            self._lifelines.append(visitor)
            answer: dict[str, Any] = {"status": "ok", "version": "0", "pid": os.getpid()}
            if message.get("type") == wire.ATTACH:
                self.attach(str(message["connection_file"]))
                answer |= {"session": "fake-session", "generation": 1}
            try:
                visitor.sendall(json.dumps(answer).encode() + b"\n")
            except OSError:
                continue

    # -- the host's own thread -----------------------------------------------------------------------------------------

    def _serve(self) -> None:
        while not self._stop.is_set():
            while not self._orders.empty():
                self._orders.get()()
            if self.silent or not self._kernels:
                time.sleep(POLL_MILLISECONDS / 1000)
                continue
            kernels = list(self._kernels.values())
            poller = zmq.Poller()
            for kernel in kernels:
                poller.register(kernel.requests, zmq.POLLIN)
            ready = dict(poller.poll(POLL_MILLISECONDS))
            for kernel in kernels:
                if kernel.requests in ready:
                    self._read(kernel)
                while kernel.control.poll(0):
                    kernel.control.recv_multipart()
            while self._due and self._due[0][0] <= time.monotonic():
                _when, _number, kernel, request_id, data = heapq.heappop(self._due)
                self._reply(kernel, request_id, data)

    def _attach(self, name: str, info: Mapping[str, Any]) -> None:
        if name in self._kernels:
            return
        requests, control = self._context.socket(zmq.SUB), self._context.socket(zmq.DEALER)
        requests.rcvhwm = control.sndhwm = 0
        requests.subscribe(b"comm-")
        for peer, port in ((requests, "iopub_port"), (control, "control_port")):
            ipc = info["transport"] == "ipc"
            peer.connect(f"{info['transport']}://{info['ip']}{'-' if ipc else ':'}{info[port]}")
        session = Session(key=str(info["key"]).encode(), signature_scheme=str(info["signature_scheme"]))
        self._kernels[name] = _Kernel(session, requests, control)

    def _read(self, kernel: _Kernel) -> None:
        while kernel.requests.poll(0):
            _topic, frames = kernel.session.feed_identities(kernel.requests.recv_multipart(), copy=True)
            message = kernel.session.deserialize(frames, content=True, copy=True)
            content = cast("dict[str, Any]", message["content"])
            request_id = str(content.get("comm_id"))
            if message["msg_type"] == "comm_close":
                self.cancelled.append(request_id)
            elif message["msg_type"] == "comm_open" and content.get("target_name") == wire.TARGET:
                self._take(kernel, request_id, cast("dict[str, Any]", content["data"]))

    def _take(self, kernel: _Kernel, request_id: str, data: dict[str, Any]) -> None:
        number = kernel.arrivals[request_id] = kernel.arrivals.get(request_id, 0) + 1
        seen = Seen(request_id, str(data.get("type")), data, number)
        self.seen.append(seen)
        delay = self.script(seen)
        if delay is None:
            return
        if request_id in kernel.replies and not self._foreign:
            stored = kernel.replies[request_id]
            if stored is not None:
                self._reply(kernel, request_id, stored)
            return
        kernel.replies[request_id] = None
        self._count += 1
        heapq.heappush(self._due, (time.monotonic() + delay, self._count, kernel, request_id, data))

    def _reply(self, kernel: _Kernel, request_id: str, data: dict[str, Any]) -> None:
        stored = data if "status" in data else self._answer(data)
        kernel.replies[request_id] = stored
        content = {"comm_id": request_id, "data": stored}
        session: Any = kernel.session
        session.send(kernel.control, "comm_msg", content)

    def _answer(self, data: Mapping[str, Any]) -> dict[str, Any]:
        kind = data.get("type")
        if kind == wire.LIST:
            return wire.ok(tools=[{"name": name, "description": "", "parameters": {}} for name in self.tools])
        if kind == wire.CALL:
            return wire.ok(**self._call(str(data.get("name")), cast("Mapping[str, Any]", data.get("arguments") or {})))
        if self._foreign:
            return wire.error(wire.UNSUPPORTED_REQUEST, "unsupported host request")
        try:
            request = wire.parse_request(data)
        except wire.WireError as error:
            return wire.error(error.code, str(error))
        if kind == wire.HELLO:
            return wire.ok(
                protocol=wire.PROTOCOL,
                host="rlm-memory-host",
                version="0",
                session="fake-session",
                session_dir=str(self.session_dir),
                generation=1,
                project="path",
                limits={},
                artifacts=True,
            )
        return wire.ok(annotation=self.store.annotate(request.payload)) if kind == wire.ANNOTATE else wire.ok()

    def _call(self, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        run = self.tools.get(name)
        if run is None:
            return wire.failure(f"unknown tool {name}", wire.UNKNOWN_TOOL)
        try:
            return {**wire.success({}, "done"), "value": run(arguments)}
        except ToolFault as fault:
            return wire.failure(str(fault), fault.code)
