"""The routes of the loopback API: tools, recall, captured events. HTTP in, the host's own services behind.

Owns: reading a bounded request, its refusals (each with its code in the text), and which service a route asks. Does not
own: the token (`bearer`), scopes (`callers`), tools, what counts as captured (`capture`), listening (`serving`).

A browser cannot ask: any `Origin` but the server's own is refused, and so is a `Host` that is not the loopback's,
which a page would send whose name was pointed at this address. A tool's refusal is an answer (200, `isError`), as it is
on the bridge to kernels; everything else that fails is a problem with the code's own HTTP status.

Source: design page "DeepSeek Harness and MCP", Ways in; DeepSeek Honcho specification, sections 11, 13 and 14.
"""

from __future__ import annotations

import asyncio
import json
import math
import threading
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar, cast

from pydantic import BaseModel, ValidationError
from rlm_memory import wire
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from rlm_memory_host.contracts.codes import CODES
from rlm_memory_host.contracts.scope import Scope
from rlm_memory_host.contracts.version import version
from rlm_memory_host.dsh.feeding import Feed, taken_in
from rlm_memory_host.dsh.header import Header, parse_header
from rlm_memory_host.errors import HostError, ProtocolError
from rlm_memory_host.logs import LOGGER, where
from rlm_memory_host.loopback import document, messages
from rlm_memory_host.loopback.limits import Rates
from rlm_memory_host.recall.injecting import Injection
from rlm_memory_host.tools.dispatcher import Dispatcher

RATE_LIMITED: Final = "RATE_LIMITED"
RECORDS: Final = "memory_artifact_record"
FOLDER_LATER: Final = (
    "Write the file into your session's own exports folder first and give its absolute path: where that folder is, the "
    "refusal of a call with any other path says."
)
BODY_SECONDS: Final = 10.0
"""How long a request's body may take to arrive."""
AT_ONCE: Final = 64
"""Requests that are served at once; more are told to come back."""

Model = TypeVar("Model", bound=BaseModel)


class Sessions(Feed, Protocol):
    """Where captured events go and what is injected comes from: `assembly.sessions.Sessions`."""

    def asked(self, scope: Scope, text: str, turn: int) -> None:
        """The user of a root session asks this now."""
        ...

    def ended(self, scope: Scope) -> None:
        """The session is over."""
        ...

    def inject(self, scope: Scope, is_wanted: Callable[[], bool], used: float | None) -> Injection:
        """What the first step of a root's turn gets; no text for nothing, or where nobody waits for it any more."""
        ...


@dataclass(frozen=True, slots=True)
class Served:
    """What the routes ask. `sessions` is None where there is no text memory: then nothing is captured or injected."""

    dispatcher: Dispatcher
    sessions: Sessions | None
    scope: Callable[[Header, str | None], Scope]
    pool: Executor
    rates: Rates
    touched: Callable[[], None]
    """Hears of every request, for whoever ends an idle host."""


def application(served: Served) -> Starlette:
    """The ASGI application, without the check of the token."""
    api = _Api(served)
    return Starlette(
        routes=[
            Route("/openapi.json", api.document, methods=["GET"]),
            Route("/v1/status", api.status, methods=["GET"]),
            Route("/v1/tools/list", api.tools, methods=["POST"]),
            Route("/v1/tools/call", api.call, methods=["POST"]),
            Route("/v1/recall", api.recall, methods=["POST"]),
            Route("/v1/events", api.events, methods=["POST"]),
        ],
        exception_handlers={404: _no_route, 405: _no_route},
    )


async def _no_route(_request: Request, _error: Exception) -> Response:
    return problem(wire.UNSUPPORTED_REQUEST, "there is no such route; /openapi.json lists all", 404)


def problem(code: str, text: str, status: int | None = None, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """A refusal: the code in a field and in the text."""
    row = CODES.get(code)
    known = status or (row.http if row is not None else 500)
    return JSONResponse({"error": {"code": code, "message": f"{code}: {text}"}}, known, headers=headers)


class _Api:
    def __init__(self, served: Served) -> None:
        self._served = served
        self._running = 0

    async def document(self, request: Request) -> Response:
        """This description."""
        return await self._answered(request, lambda: _given(document.made(version())))

    async def status(self, request: Request) -> Response:
        """Which host this is."""
        told = {"host": "rlm-memory-host", "version": version(), "text_memory": self._served.sessions is not None}
        return await self._answered(request, lambda: _given(told))

    async def tools(self, request: Request) -> Response:
        """The tools, with the folder that the named session may record from."""

        async def answer() -> Mapping[str, Any]:
            asked = await _body(request, messages.ListRequest)
            if asked.header is None:
                # What a bridge registers before there is a session; every session of its has a folder.
                scope = Scope("-", "-", Path("/"), "root")
                return {"tools": [_without_folder(tool) for tool in self._served.dispatcher.list(scope)]}
            scope = await self._scope(asked.header)
            return {"tools": self._served.dispatcher.list(scope), "exports": str(scope.exports)}

        return await self._answered(request, answer)

    async def call(self, request: Request) -> Response:
        """The envelope of one call; a client that hangs up cancels it."""

        async def answer() -> Mapping[str, Any]:
            asked = await _body(request, messages.CallRequest)
            scope = await self._scope(asked.header, asked.call_id)
            envelope = await _while_connected(request, self._served.dispatcher.call(asked.name, asked.arguments, scope))
            return _with_folder(envelope, scope) if asked.name == RECORDS else envelope

        return await self._answered(request, answer)

    async def recall(self, request: Request) -> Response:
        """What the first step of a root's turn gets."""

        async def answer() -> Mapping[str, Any]:
            asked = await _body(request, messages.RecallRequest)
            scope = await self._scope(asked.header)
            sessions = self._served.sessions
            if sessions is None or scope.agent_kind != "root":
                return {"text": "", "diagnostics": Injection().diagnostics()}

            gone = threading.Event()

            def found() -> Mapping[str, Any]:
                sessions.asked(scope, asked.text, asked.turn)
                made = sessions.inject(scope, lambda: not gone.is_set(), asked.context_used)
                return {"text": made.text, "diagnostics": made.diagnostics()}

            try:
                return await _while_connected(request, self._in_pool(found))
            finally:
                gone.set()

        return await self._answered(request, answer)

    async def events(self, request: Request) -> Response:
        """Take committed records in."""

        async def answer() -> Mapping[str, Any]:
            asked = await _body(request, messages.EventsRequest)
            scope = await self._scope(asked.header)
            sessions = self._served.sessions
            if sessions is None:
                return {"events": 0}
            agent = _header(asked.header).agent
            taken = await self._in_pool(lambda: taken_in(sessions, scope, agent is not None, asked.events))
            if asked.ended and scope.agent_kind == "root":
                sessions.ended(scope)
            return {"events": taken}

        return await self._answered(request, answer)

    # -- around every route ------------------------------------------------------------------------------------------
    async def _answered(self, request: Request, answer: Callable[[], Awaitable[Mapping[str, Any]]]) -> Response:
        self._served.touched()
        refused = _refusal(request)
        if refused is not None:
            return refused
        if self._running >= AT_ONCE:
            return problem(RATE_LIMITED, f"{AT_ONCE} requests are under way", headers={"Retry-After": "1"})
        self._running += 1
        try:
            return JSONResponse(await answer())
        except _TooOften as error:
            return problem(RATE_LIMITED, str(error), headers={"Retry-After": str(math.ceil(error.seconds))})
        except HostError as error:
            return problem(error.code, str(error))
        except ClientDisconnect:
            return Response(status_code=499)
        except Exception as error:
            LOGGER.error("loopback_failed path=%s %s", request.url.path, where(error))
            return problem(wire.HOST_REQUEST_FAILED, "the host failed while it served the request; its log says where")
        finally:
            self._running -= 1

    async def _scope(self, given: messages.SessionHeader, call_id: str | None = None) -> Scope:
        wait = self._served.rates.wait(given.id)
        if wait > 0:
            raise _TooOften(wait)
        return await self._in_pool(lambda: self._served.scope(_header(given), call_id))

    async def _in_pool(self, run: Callable[[], Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._served.pool, run)


def _without_folder(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    """A tool as it is registered before there is a session: a record's folder is told by a refusal."""
    if tool["name"] != RECORDS:
        return tool
    return {**tool, "description": f"{tool['description']} {FOLDER_LATER}"}


def _with_folder(envelope: Mapping[str, Any], scope: Scope) -> Mapping[str, Any]:
    """A record's envelope; where it was refused, its text says which folder is the session's own."""
    if not envelope.get("isError") or scope.exports is None:
        return envelope
    hint = {"type": "text", "text": f"Your session's exports folder is {scope.exports}; write the file there first."}
    return {**envelope, "content": [*envelope["content"], hint]}


class _TooOften(Exception):
    def __init__(self, seconds: float) -> None:
        super().__init__(f"this session asks too often; the next request may come in {seconds:.1f} s")
        self.seconds = seconds


def _header(given: messages.SessionHeader) -> Header:
    header = parse_header(given.model_dump(exclude_none=True))
    if header is None:
        raise ProtocolError("the header has no usable id", wire.INVALID_ARGUMENT)
    return header


async def _given(value: Mapping[str, Any]) -> Mapping[str, Any]:
    return value


def _refusal(request: Request) -> Response | None:
    """Why a request is not looked at: it comes from a page, or to a name that is not the loopback's."""
    port = request.scope["server"][1]
    ours = {f"127.0.0.1:{port}", f"localhost:{port}"}
    if request.headers.getlist("host") not in [[name] for name in ours]:
        return problem("DENIED", "the Host header is not this server's own address")
    origins = request.headers.getlist("origin")
    if origins and origins not in [[f"http://{name}"] for name in ours]:
        return problem("DENIED", "requests of web pages are refused")
    return None


async def _body(request: Request, shape: type[Model]) -> Model:
    """The request's object. Raises ProtocolError with what is wrong, never a value."""
    try:
        async with asyncio.timeout(BODY_SECONDS):
            data = await _read(request)
    except TimeoutError:
        raise ProtocolError(f"the body did not arrive within {BODY_SECONDS:g} s", wire.INVALID_REQUEST) from None
    try:
        value = json.loads(data)
        if not isinstance(value, dict):
            raise ProtocolError("the body must be a JSON object", wire.INVALID_REQUEST)
        return shape.model_validate(cast("dict[str, Any]", value))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        known = [str(part) for part in first["loc"] if isinstance(part, int) or part.isidentifier()]
        name = ".".join(known)[:80] or "the body"
        problem_ = "is not a field of this request" if first["type"] == "extra_forbidden" else first["msg"]
        raise ProtocolError(f"{name}: {problem_}", wire.INVALID_ARGUMENT) from None
    except (ValueError, RecursionError) as error:
        raise ProtocolError("the body is no JSON", wire.INVALID_REQUEST) from error


async def _read(request: Request) -> bytes:
    data = bytearray()
    async for chunk in request.stream():
        data += chunk
        if len(data) > wire.MAX_INLINE_BYTES:
            raise ProtocolError(f"a body has at most {wire.MAX_INLINE_BYTES:,} bytes", wire.PAYLOAD_TOO_LARGE)
    return bytes(data)


async def _while_connected(request: Request, work: Coroutine[Any, Any, Mapping[str, Any]]) -> Mapping[str, Any]:
    """The result of `work`, which is cancelled, or never begun, where the client hangs up first.

    Raises ClientDisconnect then.
    """
    gone = asyncio.ensure_future(_gone(request))
    await asyncio.sleep(0)
    if gone.done():
        work.close()
        raise ClientDisconnect
    running = asyncio.ensure_future(work)
    try:
        await asyncio.wait({running, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not running.done():
            raise ClientDisconnect
        return running.result()
    finally:
        for task in (running, gone):
            task.cancel()
        await asyncio.gather(running, gone, return_exceptions=True)


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
