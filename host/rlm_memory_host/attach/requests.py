"""What each request type means: from a parsed request and the caller's scope to the reply's data.

Owns: hello, ping, list, call, annotate, scan and their argument checks. Does not own: who asks (`attachment` made the
scope), de-duplication, sending.

Source: design page "Kernel <-> host", Wire.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, Final, cast

from rlm_memory import wire

from rlm_memory_host.contracts.scope import Scope
from rlm_memory_host.contracts.version import version
from rlm_memory_host.errors import HostError, ProtocolError
from rlm_memory_host.logs import LOGGER, where
from rlm_memory_host.tools.dispatcher import Dispatcher

ResidentText = Callable[[Scope], Mapping[str, Any]]
Annotate = Callable[[Scope, str, Mapping[str, Any] | None], Mapping[str, Any] | None]
Scan = Callable[[Mapping[str, str]], Sequence[Mapping[str, Any]]]
ANNOTATION_FIELDS: Final = ("lineage", "preview", "codec", "environment", "statistics")


@dataclass(frozen=True, slots=True)
class Services:
    """What a transport may use. It never sees a store: `annotate` is a function, None where artifacts are off.

    `resident` gives the resident text of a caller, with its hash and tier; all empty where there is no text memory.
    """

    dispatcher: Dispatcher
    annotate: Annotate | None
    resident: ResidentText
    pool: Executor
    limits: Mapping[str, int]
    scan: Scan | None = None
    """What looks through texts for secrets."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The scope of one request, with what hello tells about the attachment."""

    scope: Scope
    generation: int
    told: str
    epoch: str
    offer: Callable[[], wire.Offer] | None = None
    """What opens a direct channel for this session; None for a caller that uses one already."""


async def answer(request: wire.Request, caller: Caller, services: Services) -> dict[str, Any]:
    """The reply's data. Raises nothing but cancellation."""
    try:
        match request.type:
            case wire.PING:
                return wire.ok()
            case wire.HELLO:
                return _hello(request.payload, caller, services)
            case wire.LIST:
                return wire.ok(tools=services.dispatcher.list(caller.scope))
            case wire.CALL:
                return await _call(request.payload, caller, services)
            case wire.ANNOTATE:
                return await _annotate(request.payload, caller, services)
            case wire.RESIDENT:
                return await _resident(caller, services)
            case wire.SCAN:
                return await _scan(request.payload, services)
            case _:
                raise ProtocolError("this host does not know that request type", wire.UNSUPPORTED_REQUEST)
    except (HostError, wire.WireError) as error:
        return wire.error(error.code, str(error))
    except Exception as error:
        LOGGER.error("request_failed type=%s %s", request.type, where(error))
        return wire.error(wire.HOST_REQUEST_FAILED, "the host failed while it served the request; its log says where")


def is_repeatable(request: wire.Request, services: Services) -> bool:
    """Whether serving the request a second time does no more than serving it once."""
    if request.type != wire.CALL:
        return True
    name = request.payload.get("name")
    return not isinstance(name, str) or services.dispatcher.is_repeatable(name)


def _hello(payload: Mapping[str, Any], caller: Caller, services: Services) -> dict[str, Any]:
    protocol = payload.get("protocol")
    if type(protocol) is not int:
        raise ProtocolError("hello: 'protocol' must be a whole number", wire.INVALID_ARGUMENT)
    if protocol != wire.PROTOCOL:
        raise ProtocolError(
            f"this host speaks protocol {wire.PROTOCOL}; install rlm-memory and rlm-memory-host of one release",
            wire.UNSUPPORTED_VERSION,
        )
    extension = payload.get("extension", "")
    if not isinstance(extension, str) or len(extension) > 64:
        raise ProtocolError("hello: 'extension' must be a version string", wire.INVALID_ARGUMENT)
    return wire.ok(
        protocol=wire.PROTOCOL,
        host="rlm-memory-host",
        version=version(),
        session=caller.scope.session_id,
        session_dir=str(caller.scope.session_dir),
        generation=caller.generation,
        epoch=caller.epoch,
        project=caller.told,
        limits=dict(services.limits),
        artifacts=services.annotate is not None,
        **({} if caller.offer is None else {"direct": caller.offer().fields()}),
    )


async def _call(payload: Mapping[str, Any], caller: Caller, services: Services) -> dict[str, Any]:
    name = payload.get("name")
    if not isinstance(name, str) or not 0 < len(name) <= 128:
        raise ProtocolError("dsh_tools.call: 'name' must be a tool's name", wire.INVALID_ARGUMENT)
    arguments = payload.get("arguments", {})
    if not isinstance(arguments, Mapping):
        raise ProtocolError("dsh_tools.call: 'arguments' must be an object", wire.INVALID_ARGUMENT)
    return wire.ok(**await services.dispatcher.call(name, cast("Mapping[str, Any]", arguments), caller.scope))


async def _annotate(payload: Mapping[str, Any], caller: Caller, services: Services) -> dict[str, Any]:
    if services.annotate is None:
        raise ProtocolError("artifact memory is switched off in this host", wire.ADAPTER_DISABLED)
    experiment_id = payload.get("experiment_id")
    if not isinstance(experiment_id, str):
        raise ProtocolError("memory.annotate: 'experiment_id' must be a string", wire.INVALID_ARGUMENT)
    annotation = {name: payload[name] for name in ANNOTATION_FIELDS if payload.get(name) is not None}
    if wire.encoded_size(annotation) > wire.MAX_ANNOTATION_BYTES:
        raise ProtocolError(f"the annotation is over {wire.MAX_ANNOTATION_BYTES:,} bytes", wire.PAYLOAD_TOO_LARGE)
    stored = await asyncio.get_running_loop().run_in_executor(
        services.pool, services.annotate, caller.scope, experiment_id, annotation or None
    )
    return wire.ok(annotation=None if stored is None else dict(stored))


async def _scan(payload: Mapping[str, Any], services: Services) -> dict[str, Any]:
    texts = payload.get("texts")
    if services.scan is None:
        raise ProtocolError("this host looks for no secrets", wire.ADAPTER_DISABLED)
    if not isinstance(texts, Mapping) or not all(
        isinstance(item, str) for pair in cast("Mapping[object, object]", texts).items() for item in pair
    ):
        raise ProtocolError("memory.scan: 'texts' must be an object of texts", wire.INVALID_ARGUMENT)
    told = cast("Mapping[str, str]", texts)
    found = await asyncio.get_running_loop().run_in_executor(services.pool, services.scan, told)
    return wire.ok(findings=[dict(item) for item in found])


async def _resident(caller: Caller, services: Services) -> dict[str, Any]:
    loop = asyncio.get_running_loop()
    return wire.ok(**await loop.run_in_executor(services.pool, services.resident, caller.scope))
