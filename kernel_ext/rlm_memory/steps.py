"""One description of what a call does, two ways to run it.

An operation is a generator that yields what it needs (the host, a reply, some work) and is sent the result. `run`
drives it in the calling thread; `run_async` drives it on the event loop, with work in a thread. So `memory.x` and
`memory.aio.x` are the same code, and their order of steps can be read in one place.

Source: design page "Overview", In the notebook (the async twin of every method).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from rlm_memory import errors, wire
from rlm_memory.channel import Pending
from rlm_memory.finding import Connection, Host

T = TypeVar("T")


@dataclass(frozen=True)
class Meet:
    """Needs the host, connected; is sent a `Host`."""


@dataclass(frozen=True)
class Ask:
    """Needs a reply; is sent its fields, or the fault of its code is thrown in."""

    kind: str
    payload: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True)
class Work:
    """Needs something computed; may take long. `discard` undoes a result that nobody waited for."""

    run: Callable[[], Any]
    discard: Callable[[Any], None] | None = None


Step = Meet | Ask | Work
Steps = Generator[Step, Any, T]


def run(steps: Steps[T], connection: Connection) -> T:
    """Drive an operation in this thread."""
    result: Any = None
    failure: BaseException | None = None
    while True:
        try:
            step = steps.send(result) if failure is None else steps.throw(failure)
        except StopIteration as done:
            return done.value
        result, failure = None, None
        try:
            result = _take(step, connection)
        except BaseException as error:
            failure = error


async def run_async(steps: Steps[T], connection: Connection) -> T:
    """Drive an operation on the running event loop; cancellation lands within a tick, whatever the step."""
    result: Any = None
    failure: BaseException | None = None
    while True:
        try:
            step = steps.send(result) if failure is None else steps.throw(failure)
        except StopIteration as done:
            return done.value
        result, failure = None, None
        try:
            result = await _take_async(step, connection)
        except BaseException as error:
            failure = error


def _take(step: Step, connection: Connection) -> Any:
    if isinstance(step, Work):
        return step.run()
    host = connection.ensure()
    if isinstance(step, Meet):
        return host
    pending = _submit(step, host, connection)
    try:
        reply = connection.channel.wait(pending)
    except errors.HostUnavailable:
        connection.lost(host)
        raise
    return _fields(reply, host, connection)


async def _take_async(step: Step, connection: Connection) -> Any:
    if isinstance(step, Work):
        return await _in_thread(step)
    host = connection.known_host()
    if host is None:
        host = await _in_thread(Work(partial(connection.ensure, connection.failures)))
    if isinstance(step, Meet):
        return host
    pending = _submit(step, host, connection)
    try:
        reply = await connection.channel.wait_async(pending)
    except errors.HostUnavailable:
        connection.lost(host)
        raise
    return _fields(reply, host, connection)


def _submit(step: Ask, host: Host, connection: Connection) -> Pending:
    # Only our host promises to recognise a repeated id; a foreign tool call must not run twice.
    repeat = host.ours or step.kind != wire.CALL
    return connection.channel.submit(step.kind, step.payload, retransmit=repeat, epoch=host.epoch)


def _fields(reply: wire.Reply, host: Host, connection: Connection) -> Mapping[str, Any]:
    if reply.code is None:
        return reply.fields
    fault = errors.from_code(reply.code, reply.message)
    if isinstance(fault, errors.HostUnavailable):
        connection.lost(host)
    raise fault


async def _in_thread(work: Work) -> Any:
    """Run in a worker thread. A cancelled caller leaves at once; what the thread then finishes is discarded."""
    future = asyncio.get_running_loop().run_in_executor(None, work.run)
    try:
        while not (await asyncio.wait({future}, timeout=wire.TICK_SECONDS))[0]:
            pass
    except BaseException:
        future.add_done_callback(lambda done: _discard(done, work))
        raise
    return future.result()


def _discard(done: asyncio.Future[Any], work: Work) -> None:
    if not done.cancelled() and done.exception() is None and work.discard is not None:
        work.discard(done.result())
