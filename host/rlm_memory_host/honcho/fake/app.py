"""The fake as an ASGI application: authentication, the record of requests, faults, then the routes.

Owns: who may ask, what was asked, and carrying scripted faults out. Does not own: the answers (`routes`), listening
(`server`). One event loop owns an instance; rows may be read from any thread when nothing is under way.

Paths below `/_fake` are the fake's own remote control for other processes: `plan` (GET, POST a list of faults, DELETE),
`requests` and `rows` (GET), `keys` (POST a list, or null for none needed).
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from dataclasses import dataclass
from typing import Any, Final

from rlm_memory_host.honcho.fake.faults import Fault, Plan
from rlm_memory_host.honcho.fake.routes import application
from rlm_memory_host.honcho.fake.state import Store

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

DROP: Final = "rlm_memory.fake.drop"
"""The ASGI extension by which whoever carries the connection lets the fake end it: a callable without arguments."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One request as it came in. `at` is the fake's clock in seconds."""

    at: float
    method: str
    path: str
    query: str
    body: bytes
    headers: tuple[tuple[str, str], ...]

    @property
    def json(self) -> Any:
        """The body's JSON, None where there is none."""
        return json.loads(self.body) if self.body else None


@dataclass(slots=True)
class _Answer:
    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes


class FakeHoncho:
    """The service in memory.

    `api_keys`: the keys that are let in, None: everybody. `workspaces` exist from the start. `search_delay` is the time
    in seconds until a message is found by search and representation. `now` gives seconds since 1970.
    """

    def __init__(
        self,
        *,
        api_keys: Iterable[str] | None = None,
        workspaces: Iterable[str] = (),
        search_delay: float = 0.0,
        plan: Plan | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.api_keys: set[str] | None = None if api_keys is None else set(api_keys)
        self.plan = plan or Plan()
        self.requests: list[Asked] = []
        self.store = Store(now, search_delay)
        for name in workspaces:
            self.store.workspace(name)
        self._now = now
        self._routes = application(self.store)
        self._late: set[asyncio.Task[_Answer]] = set()

    # -- for tests and drills ----------------------------------------------------------------------------------------
    def rows(self, delivery_id: str | None = None) -> list[dict[str, Any]]:
        """Every message there is, in the order of arrival; of one delivery only where an id is given."""
        found = [row.columns for space in self.store.workspaces.values() for row in space.messages()]
        return [row for row in found if delivery_id in (None, row["metadata"].get("delivery_id"))]

    def asked(self, route: str) -> list[Asked]:
        """The requests whose "METHOD /path" holds that text."""
        return [request for request in self.requests if route in f"{request.method} {request.path}"]

    async def settle(self) -> None:
        """Wait until everything that was to be carried out late is done."""
        await asyncio.gather(*self._late)

    # -- ASGI --------------------------------------------------------------------------------------------------------
    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
            return
        body = await _read(receive)
        if scope["path"].startswith("/_fake/"):
            await _answer(send, self._control(scope["method"], scope["path"], body))
            return
        headers = tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"])
        query = scope.get("query_string", b"").decode("latin-1")
        self.requests.append(Asked(self._now(), scope["method"], scope["path"], query, body, headers))
        fault = self.plan.strike(scope["method"], scope["path"])
        if fault is None:
            await _answer(send, await self._carry_out(scope, body))
        else:
            await self._strike(fault, scope, body, send)

    async def _strike(self, fault: Fault, scope: Message, body: bytes, send: Send) -> None:
        answer: _Answer | None = None
        if fault.commit_after:
            late = asyncio.ensure_future(self._carry_out_late(fault.commit_after, scope, body))
            self._late.add(late)
            late.add_done_callback(self._late.discard)
            if not fault.drop and fault.status is None:
                answer = await asyncio.shield(late)
        elif fault.commit or (fault.status is None and not fault.drop):
            answer = await self._carry_out(scope, body)
        if fault.wait:
            await asyncio.sleep(fault.wait)
        if fault.drop:
            _drop(scope)
            return
        if fault.status is not None:
            data = json.dumps({"detail": "scripted"} if fault.body is None else fault.body).encode()
            extra = [(name.encode(), value.encode()) for name, value in fault.headers.items()]
            answer = _Answer(fault.status, [(b"content-type", b"application/json"), *extra], data)
        assert answer is not None
        await _answer(send, answer, fault.drip)
        if fault.reset_after:
            _drop(scope)

    async def _carry_out_late(self, seconds: float, scope: Message, body: bytes) -> _Answer:
        await asyncio.sleep(seconds)
        return await self._carry_out(scope, body)

    async def _carry_out(self, scope: Message, body: bytes) -> _Answer:
        if not self._is_let_in(scope):
            data = json.dumps({"detail": "Invalid or missing API key"}).encode()
            return _Answer(401, [(b"content-type", b"application/json"), (b"www-authenticate", b"Bearer")], data)
        answer = _Answer(500, [], b"")
        given = iter([{"type": "http.request", "body": body, "more_body": False}])

        async def receive() -> Message:
            for message in given:
                return message
            # What was begun is carried out, whoever went away.
            return await asyncio.Future[Message]()

        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                answer.status, answer.headers = message["status"], list(message["headers"])
            else:
                answer.body += message.get("body", b"")

        await self._routes({**scope, "state": {}}, receive, send)
        return answer

    def _is_let_in(self, scope: Message) -> bool:
        given = dict(scope["headers"]).get(b"authorization", b"").decode("latin-1")
        return self.api_keys is None or given.removeprefix("Bearer ") in self.api_keys

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            await send({"type": f"{message['type']}.complete"})
            if message["type"] == "lifespan.shutdown":
                return

    def _control(self, method: str, path: str, body: bytes) -> _Answer:
        try:
            return self._told(method, path, json.loads(body) if body else None)
        except (ValueError, TypeError, RecursionError) as error:
            return _Answer(422, [(b"content-type", b"text/plain")], str(error).encode("utf-8", "replace"))

    def _told(self, method: str, path: str, given: Any) -> _Answer:
        answer: Any = {"ok": True}
        match method, path.removeprefix("/_fake/"):
            case "POST", "plan":
                self.plan.add(*Fault.all_from_json(given))
            case "DELETE", "plan":
                self.plan.clear()
            case "POST", "keys":
                self.api_keys = None if given is None else set(given)
            case "GET", "rows":
                answer = self.rows()
            case "GET", "requests":
                answer = [{"at": item.at, "method": item.method, "path": item.path} for item in self.requests]
            case _:
                return _Answer(404, [], b"")
        return _Answer(200, [(b"content-type", b"application/json")], json.dumps(answer).encode())


def _drop(scope: Message) -> None:
    scope["extensions"][DROP]()


async def _read(receive: Receive) -> bytes:
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body", False):
            return body


async def _answer(send: Send, answer: _Answer, drip: float = 0.0) -> None:
    headers = [item for item in answer.headers if item[0].lower() != b"content-length"]
    headers.append((b"content-length", str(len(answer.body)).encode()))
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    if drip:
        for place in range(len(answer.body)):
            await send({"type": "http.response.body", "body": answer.body[place : place + 1], "more_body": True})
            await asyncio.sleep(drip)
    await send({"type": "http.response.body", "body": b"" if drip else answer.body, "more_body": False})
