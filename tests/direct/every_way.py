"""The ways to a host's tools, each as `ask(name, arguments)`: what a caller of that kind is given, and nothing else."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loopback_client import Client, header
from mcp_clients import client_of
from real_kernels import running_kernel

KERNELS = {"kernel": "auto", "kernel over comms": "comm"}
TRANSPORTS = {"mcp stdio": "stdio", "mcp http": "http"}
WAYS = (*KERNELS, *TRANSPORTS, "loopback")

IN_KERNEL = """
%load_ext rlm_memory
import json
def _asked(name, arguments):
    try:
        return [dsh_tools.call(name, arguments), None]
    except memory.errors.MemoryFault as error:
        return [None, error.code, str(error)]
memory.status()
"""


@dataclass(frozen=True)
class Said:
    """What a call came to: a value, or the code of a refusal with the text that a caller reads."""

    value: Any = None
    code: str | None = None
    text: str = ""


@dataclass(frozen=True)
class Way:
    """One caller. `tools` are the names and parameters that it is shown, `exports` is where its files may lie."""

    ask: Callable[[str, Mapping[str, Any]], Awaitable[Said]]
    tools: dict[str, Any]
    exports: Path


@asynccontextmanager
async def way(name: str, folder: Path, state_root: Path) -> AsyncGenerator[Way]:
    """A caller of that kind, in that project's folder."""
    if name in KERNELS:
        with running_kernel(folder, RLM_MEMORY_ROUTE=KERNELS[name]) as kernel:
            kernel.run(IN_KERNEL).ok()

            async def in_kernel(tool: str, arguments: Mapping[str, Any]) -> Said:
                asked = f"print(json.dumps(_asked({tool!r}, json.loads({json.dumps(arguments)!r}))))"
                return Said(*json.loads(kernel.run(asked).ok()))

            tools = json.loads(kernel.run("print(json.dumps(dsh_tools.list()))").ok())
            told = "from rlm_memory import kernel as k; print(k.connection().ensure().session_dir)"
            yield Way(in_kernel, shown(tools, "parameters"), Path(kernel.run(told).ok().strip()) / "exports")
    elif name in TRANSPORTS:
        async with client_of(TRANSPORTS[name], folder) as client:

            async def over_mcp(tool: str, arguments: Mapping[str, Any]) -> Said:
                result = await client.call_tool(tool, dict(arguments))
                text = result.content[0].text
                return Said(None, text.partition(":")[0], text) if result.is_error else Said(result.structured_content)

            listed = [tool.model_dump() for tool in (await client.list_tools()).tools]
            (described,) = (tool["description"] for tool in listed if tool["name"] == "memory_artifact_record")
            exports = described.split("exports folder is ")[1].split(";")[0]
            yield Way(over_mcp, shown(listed, "input_schema"), Path(exports))
    else:
        client, here = Client(state_root), header("one", folder)

        async def over_http(tool: str, arguments: Mapping[str, Any]) -> Said:
            answer = client.post("/v1/tools/call", header=here, name=tool, arguments=arguments)
            if answer.status != 200:
                return Said(None, answer.code, str(answer.body))
            text = answer.body["content"][0]["text"]
            if answer.body["isError"]:
                return Said(None, text.partition(":")[0], text)
            return Said(answer.body["value"])

        listed = client.post("/v1/tools/list", header=here).body
        yield Way(over_http, shown(listed["tools"], "parameters"), Path(listed["exports"]))


def shown(tools: list[dict[str, Any]], parameters: str) -> dict[str, Any]:
    """The names of the tools with the names of their arguments and which are needed."""
    schemas = {tool["name"]: tool[parameters] for tool in tools}
    return {
        name: (sorted(schema.get("properties", {})), sorted(schema.get("required", [])))
        for name, schema in schemas.items()
    }
