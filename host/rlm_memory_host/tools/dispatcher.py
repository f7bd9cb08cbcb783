"""The one path of a tool call: look up, validate, decide, record, run.

Owns: that order, the time limit, cancellation, and turning every outcome into an envelope. Does not own: who the caller
is (the transport made the scope), nor what tools do.

Threads: tools run in the host's own pool; the loop only waits. A call that is cancelled or out of time sets its stop
flag and is answered at once; its thread ends when the tool looks at the flag, and a result that comes later is dropped.

Source: design page "Style", Tools at hand; codes as design page "Kernel <-> host", Wire.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from concurrent.futures import Executor
from typing import Any, Final

from pydantic import ValidationError
from rlm_memory import wire

from rlm_memory_host.contracts.scope import Scope
from rlm_memory_host.errors import HostError, ToolDenied, ToolError, ToolInput, ToolTimeout, UnknownTool
from rlm_memory_host.logs import LOGGER, where
from rlm_memory_host.metrics import Metrics
from rlm_memory_host.tools import schema
from rlm_memory_host.tools.calllog import CallLog
from rlm_memory_host.tools.policy import Switches, decide
from rlm_memory_host.tools.tool import Arguments, Call, Registry, Tool, ToolResult

UNREGISTERED: Final = "(unregistered)"


class Dispatcher:
    """Runs tools for transports. Its methods belong to the event loop's thread."""

    def __init__(
        self,
        registry: Registry,
        switches: Switches,
        log: CallLog,
        pool: Executor,
        *,
        timeout_seconds: float,
        metrics: Metrics | None = None,
    ) -> None:
        self._metrics = metrics or Metrics()
        self._registry = registry
        self._switches = switches
        self._log = log
        self._pool = pool
        self._timeout = timeout_seconds

    def list(self, scope: Scope) -> list[dict[str, Any]]:
        """The tools this caller may see, as `dsh_tools.list` gives them."""
        return [
            {"name": tool.name, "description": tool.description, "parameters": schema.parameters(tool.arguments)}
            for tool in self._registry.values()
            if decide(tool, scope, self._switches).visible
        ]

    def is_repeatable(self, name: str) -> bool:
        """Whether running a call of that tool twice does no more than running it once; a refusal is that too."""
        tool = self._registry.get(name)
        return tool is None or tool.repeatable

    async def call(self, name: str, arguments: object, scope: Scope) -> dict[str, Any]:
        """The envelope of one call; only the caller's own cancellation is raised (`asyncio.CancelledError`)."""
        began = time.monotonic()
        tool = self._registry.get(name)
        shown = tool.name if tool else UNREGISTERED
        code = "OK"
        size = 0
        try:
            tool = self._admitted(tool, scope)
            parsed = _parse(tool, arguments)
            self._log.write("call", shown, scope, bytes_in=_size(arguments))
            envelope = await self._run(tool, parsed, scope)
            size = _size(envelope)
            return envelope
        except ToolDenied as error:
            code = error.code
            return wire.failure(str(error), None, type(error).__name__)
        except HostError as error:
            code = error.code
            return wire.failure(str(error), error.code, type(error).__name__)
        except asyncio.CancelledError:
            code = wire.CANCELLED
            raise
        except Exception as error:
            code = wire.HOST_REQUEST_FAILED
            LOGGER.error("tool_failed tool=%s %s", shown, where(error))
            return wire.failure("the host failed while it ran the tool; its log says where", code, "HostFault")
        finally:
            took = time.monotonic() - began
            self._log.write("done", shown, scope, code=code, millis=round(took * 1000, 1), bytes_out=size)
            self._count(shown, code, took)

    def _count(self, tool: str, code: str, seconds: float) -> None:
        self._metrics.count("tool_calls", tool)
        self._metrics.observe("tool_seconds", seconds, tool)
        if code != "OK":
            self._metrics.count("tool_failures", code)

    def _admitted(self, tool: Tool | None, scope: Scope) -> Tool:
        decision = decide(tool, scope, self._switches) if tool else None
        if tool is None or decision is None or not decision.visible:
            names = ", ".join(item["name"] for item in self.list(scope)) or "none"
            raise UnknownTool(f"there is no such tool for this caller; available: {names}")
        if not decision.allowed:
            raise ToolDenied(f"{tool.name} was refused: {decision.reason}")
        return tool

    async def _run(self, tool: Tool, parsed: Arguments, scope: Scope) -> dict[str, Any]:
        call = Call(scope)
        running = asyncio.get_running_loop().run_in_executor(self._pool, _guarded, tool, parsed, call)
        try:
            async with asyncio.timeout(self._timeout):
                result = await running
        except TimeoutError:
            raise ToolTimeout(f"{tool.name} did not finish within {self._timeout:g} seconds") from None
        finally:
            call.stop.set()
        problem = schema.problem_with(result.value, tool.output)
        envelope = wire.success(result.value, result.text)
        if problem is None and _size(envelope) > wire.MAX_INLINE_BYTES - 4096:
            problem = "it is too large for one message"
        if problem is not None:
            raise ToolError(f"the result of {tool.name} was withheld: {problem}", wire.INVALID_TOOL_OUTPUT)
        return envelope


def _guarded(tool: Tool, parsed: Arguments, call: Call) -> ToolResult:
    """Runs in the pool. A TimeoutError of the tool's own must not look like the dispatcher's."""
    if call.cancelled():
        raise ToolError("the call was cancelled before it started", wire.ABORTED_BEFORE_DISPATCH)
    try:
        return tool.run(parsed, call)
    except TimeoutError as error:
        raise ToolError(f"{tool.name} failed: an operation of the system timed out") from error


def _parse(tool: Tool, arguments: object) -> Arguments:
    if not isinstance(arguments, Mapping):
        raise ToolInput("arguments: must be an object")
    try:
        return tool.arguments.model_validate(arguments)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        field = ".".join(_safe(part, tool) for part in first["loc"]) or "arguments"
        problem = "is not a parameter of this tool" if first["type"] == "extra_forbidden" else first["msg"]
        raise ToolInput(f"{tool.name}: {field}: {problem.removeprefix('Value error, ')}") from None


def _safe(part: int | str, tool: Tool) -> str:
    """A field's name: a known one as it is, the caller's own invention short and printable."""
    text = str(part)
    if isinstance(part, int) or text in tool.arguments.model_fields:
        return text
    return text[:40].encode("ascii", "backslashreplace").decode()


def _size(value: object) -> int:
    try:
        return wire.encoded_size(value)
    except wire.WireError:
        logging.getLogger(__name__).debug("unsized")
        return wire.MAX_INLINE_BYTES + 1
