"""An agent host that speaks the Model Context Protocol: what it sees, records and finds, and what it survives."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest
from hosts import host_says
from mcp import Client, MCPError
from mcp_clients import SCRIPT, TOKEN, HttpServer, client_of, parameters

pytestmark = [pytest.mark.kernel, pytest.mark.fronts]

TRANSPORTS = pytest.mark.parametrize("transport", ["stdio", "http"])


def text_of(result: Any) -> str:
    assert [block.type for block in result.content] == ["text"]
    return result.content[0].text


async def exports_of(client: Client) -> Path:
    """The folder that the description of the recording tool names."""
    tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    description = tools["memory_artifact_record"].description or ""
    return Path(description.split("exports folder is ")[1].split(";")[0])


async def record(client: Client, name: str, data: bytes, media_type: str = "text/plain") -> dict[str, Any]:
    path = await exports_of(client) / name
    path.write_bytes(data)
    arguments = {
        "source_path": str(path), "title": f"Title of {name}", "summary": "made in a test",
        "query_fingerprint": "a" * 64, "source": "test | pipe", "source_version": "1", "media_type": media_type,
    }  # fmt: skip
    result = await client.call_tool("memory_artifact_record", arguments)
    assert not result.is_error, text_of(result)
    return result.structured_content


@TRANSPORTS
async def test_a_result_is_recorded_found_and_read_in_another_session(
    transport: str, state_root: Path, tmp_path: Path
) -> None:
    """The main job through the official client; the text alone names what is needed for the next step."""
    async with client_of(transport, tmp_path) as client:
        recorded = await record(client, "result.txt", b"exact bytes")
    async with client_of(transport, tmp_path) as client:
        found = await client.call_tool("memory_search", {"query": "title of result"})
        assert recorded["experiment_id"] in text_of(found)
        resolved = await client.call_tool("memory_artifact_resolve", {"experiment_id": recorded["experiment_id"]})
        path = next(word for word in text_of(resolved).split() if word.startswith(str(state_root)))
        assert Path(path).read_bytes() == b"exact bytes"


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_tools_read_well_without_the_product_beside_them(mode: str, state_root: Path, tmp_path: Path) -> None:
    """Flat schemas, every parameter described, hints for what only reads; both ages of the protocol get the same."""
    async with client_of("stdio", tmp_path, mode) as client:
        tools = (await client.list_tools()).tools
        assert "one project" in (client.session.instructions or "") if mode == "auto" else True
    names = {tool.name for tool in tools}
    assert {"memory_search", "memory_recall", "memory_record", "memory_correct", "memory_status"} <= names
    for tool in tools:
        assert len(tool.description or "") > 40, tool.name
        assert "$ref" not in json.dumps(tool.input_schema), tool.name
        assert "project" not in tool.input_schema["properties"], tool.name
        for name, schema in tool.input_schema["properties"].items():
            assert schema.get("description"), f"{tool.name}: {name}"
    assert {tool.name for tool in tools if tool.annotations and tool.annotations.read_only_hint} <= names - {
        "memory_record", "memory_correct", "memory_forget", "memory_artifact_record",
    }  # fmt: skip


@TRANSPORTS
async def test_errors_carry_their_code_in_the_text(transport: str, state_root: Path, tmp_path: Path) -> None:
    """Wrong arguments, unknown tools, unknown results and foreign addresses: named, and the server serves on."""
    async with client_of(transport, tmp_path) as client:
        for name, arguments, code in (
            ("memory_search", {"query": 5}, "INVALID_ARGS"),
            ("memory_search", {"project": "another"}, "INVALID_ARGS"),
            ("memory_nothing", {}, "UNKNOWN_TOOL"),
            ("memory_artifact_resolve", {"experiment_id": "exp_no"}, "CARD_NOT_FOUND"),
            ("memory_artifact_record", {"source_path": "/etc/passwd"}, "INVALID_ARGS"),
            ("memory_search", {"query": "x" * 2_000_000}, "PAYLOAD_TOO_LARGE"),
        ):
            result = await client.call_tool(name, arguments)
            assert result.is_error, name
            assert code in text_of(result), text_of(result)
        for uri in ("memory://experiments/exp_no", "memory://nothing", "file:///etc/passwd"):
            with pytest.raises(MCPError, match=r"CARD_NOT_FOUND|NOT_FOUND"):
                await client.read_resource(uri)
        assert not (await client.call_tool("memory_status", {})).is_error


async def test_previews_are_markdown_tables_and_figures_pictures(
    state_root: Path, tmp_path: Path, start_kernel: Callable[..., Any]
) -> None:
    """What a kernel recorded is shown beside a chat: rows as a table, a figure as a picture, hostile titles as text."""
    from PIL import Image

    kernel = start_kernel()
    kernel.run("%load_ext rlm_memory")
    kernel.run("import pandas as pd")
    kernel.run("memory.experiments.record(pd.DataFrame({'a|b': [1, 2], 'c': ['x', '<y>']}), title='# A | table')")
    async with client_of("stdio", tmp_path) as client:
        drawn = io.BytesIO()
        Image.new("RGB", (3, 2), "red").save(drawn, "PNG")
        figure = await record(client, "figure.png", drawn.getvalue(), "image/png")
        resources = (await client.list_resources()).resources
        by_title = {resource.title: resource for resource in resources}
        assert resources[0].uri == "memory://resident"
        table = (await client.read_resource(by_title["# A | table"].uri)).contents[0]
        assert table.mime_type == "text/markdown"
        assert "| a\\|b | c |" in table.text
        assert "| 2 | &lt;y> |" in table.text
        picture = (await client.read_resource(f"memory://experiments/{figure['experiment_id']}")).contents[0]
        assert picture.mime_type == "image/png"
        assert base64.b64decode(picture.blob) == drawn.getvalue()
        assert (await client.list_resource_templates()).resource_templates[0].uri_template.endswith("{experiment_id}")


def add_as_a_person(folder: Path, *arguments: str) -> None:
    """`rlm-memory memory add` at a terminal, answered with yes."""
    outer, inner = pty.openpty()
    try:
        os.write(outer, b"yes\n")
        command = [SCRIPT, "memory", "add", *arguments]
        subprocess.run(command, cwd=folder, check=True, stdin=inner, stderr=inner, stdout=subprocess.DEVNULL)
    finally:
        os.close(outer)
        os.close(inner)


async def test_the_resident_text_is_a_resource_of_the_project(state_root: Path, tmp_path: Path) -> None:
    """What an operator pinned stands in it, the same bytes in its file; another project's server does not show it."""
    (tmp_path / "other").mkdir()
    add_as_a_person(tmp_path, "--kind", "decision", "Releases leave on Thursdays.")
    async with client_of("stdio", tmp_path) as client:
        text = (await client.read_resource("memory://resident")).contents[0].text
        assert "Thursdays" in text
        name = (await client.call_tool("memory_status", {})).structured_content["resident"]["file"]
        path = state_root / "memory" / "local" / "derived" / name
        for _ in range(200):
            if path.exists() and path.read_text() == text:
                break
            await asyncio.sleep(0.05)
        assert path.read_text() == text
    async with client_of("stdio", tmp_path / "other") as client:
        assert "Thursdays" not in (await client.read_resource("memory://resident")).contents[0].text


@pytest.mark.parametrize("setting", ["[memory]\nprofile = 'runtime'", "[tools]\nmemory_search = false"])
async def test_resources_are_listed_where_no_tool_searches_results(
    setting: str, state_root: Path, tmp_path: Path
) -> None:
    """Another profile of tools, or a tool that is switched off: the resident text stands alone, nothing fails."""
    config = tmp_path / "rlm-memory.toml"
    config.write_text(setting)
    config.chmod(0o600)
    server = parameters(tmp_path)
    server.args = ["mcp", "--config", str(config), "--state-root", str(state_root)]
    async with Client(server) as client:
        assert [resource.uri for resource in (await client.list_resources()).resources] == ["memory://resident"]


@TRANSPORTS
async def test_a_hundred_calls_at_once_are_answered_each_with_its_own(
    transport: str, state_root: Path, tmp_path: Path
) -> None:
    """Nothing is lost and nothing is mixed up."""
    async with client_of(transport, tmp_path) as client:
        recorded = [await record(client, f"r{number}.txt", str(number).encode()) for number in range(5)]
        wanted = [recorded[number % 5] for number in range(100)]
        results = await asyncio.gather(
            *(client.call_tool("memory_artifact_resolve", {"experiment_id": item["experiment_id"]}) for item in wanted)
        )
    assert [result.structured_content["experiment_id"] for result in results] == [
        item["experiment_id"] for item in wanted
    ]


async def test_a_host_that_was_killed_is_replaced_for_the_next_call(state_root: Path, tmp_path: Path) -> None:
    """A dead host costs at most the calls that were under way; what it had recorded is found."""
    async with client_of("stdio", tmp_path) as client:
        recorded = await record(client, "kept.txt", b"kept")
        status = host_says(state_root, {"type": "status"})
        assert status is not None
        os.kill(status["pid"], signal.SIGKILL)
        psutil.wait_procs([psutil.Process(status["pid"])] if psutil.pid_exists(status["pid"]) else [], timeout=20)
        found = await client.call_tool("memory_search", {"query": "kept"})
        if found.is_error:
            assert "HOST_LOST" in text_of(found)
            found = await client.call_tool("memory_search", {"query": "kept"})
        assert recorded["experiment_id"] in text_of(found)


async def test_a_slow_call_tells_its_progress_and_is_cancelled_at_the_host(
    state_root: Path, tmp_path: Path, slow_host: None
) -> None:
    """A client that gives up sees the tool stop; one that waits hears that it is still running."""
    heard: list[float] = []
    mark = tmp_path / "mark"

    async def progress(done: float, _total: float | None, _message: str | None) -> None:
        heard.append(done)

    async with client_of("stdio", tmp_path) as client:
        result = await client.call_tool("slow_sleep", {"seconds": 2.5}, progress_callback=progress)
        assert text_of(result) == "slept"
        assert heard
        assert heard == sorted(heard)
        call = asyncio.create_task(client.call_tool("slow_sleep", {"seconds": 600.0, "mark": str(mark)}))
        await until(mark.exists)
        call.cancel()
        await until(Path(f"{mark}.cancelled").exists)
        assert not (await client.call_tool("memory_status", {})).is_error


async def until(look: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not look():
            await asyncio.sleep(0.02)


@pytest.fixture
def slow_host(state_root: Path, tmp_path: Path) -> Any:
    """A host whose tools take their time runs at the test's state root."""
    config = tmp_path / "slow.toml"
    config.write_text("")
    script = Path(__file__).parent.parent / "host" / "slow_host.py"
    command = [sys.executable, str(script), "host", "run", "--config", str(config), "--state-root", str(state_root)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert "listening" in process.stdout.readline()
    yield
    process.terminate()
    process.stdout.close()
    process.wait(20)


async def test_two_servers_of_one_project_are_two_sessions_and_see_one_memory(state_root: Path, tmp_path: Path) -> None:
    """Each process records from a folder of its own."""
    async with client_of("stdio", tmp_path) as one, client_of("stdio", tmp_path) as two:
        assert await exports_of(one) != await exports_of(two)
        recorded = await record(one, "shared.txt", b"shared")
        assert recorded["experiment_id"] in text_of(await two.call_tool("memory_search", {"query": "shared"}))


async def test_looking_at_a_server_starts_no_host(state_root: Path, tmp_path: Path) -> None:
    """Agent hosts connect only to see that a server is there; nothing is written for that."""
    async with client_of("stdio", tmp_path) as client:
        assert client.session is not None
    assert host_says(state_root, {"type": "status"}) is None
    assert not list(state_root.iterdir())


async def test_http_without_the_token_or_from_another_site_is_refused(state_root: Path, tmp_path: Path) -> None:
    """No token, a wrong one, two of them, a foreign Host or Origin: no answer to the question."""
    server = HttpServer(tmp_path)
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    good = {"Authorization": f"Bearer {TOKEN}", "Accept": "application/json, text/event-stream"}
    try:
        assert TOKEN not in server.said
        async with httpx2.AsyncClient(trust_env=False) as http:
            for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": f"Basic {TOKEN}"}):
                reply = await http.post(server.url, json=body, headers={**good, "Authorization": "", **headers})
                assert reply.status_code == 401
                assert "DENIED" in reply.text
            for headers in ({"Host": "evil.example"}, {"Origin": "https://evil.example"}):
                reply = await http.post(server.url, json=body, headers={**good, **headers})
                assert reply.status_code in (403, 421)
    finally:
        server.end()
    assert host_says(state_root, {"type": "status"}) is None


def test_a_made_token_is_private_and_stays(state_root: Path, tmp_path: Path) -> None:
    """Without the variable a token is made once, in a private file; a short one in the variable is refused."""
    for _ in range(2):
        command = {name: value for name, value in os.environ.items() if name != "RLM_MEMORY_MCP_TOKEN"}
        process = subprocess.Popen(
            [SCRIPT, "mcp", "--http", "0"], cwd=tmp_path, env=command, stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        said = process.stdout.readline()
        process.terminate()
        process.stdout.close()
        process.wait(20)
        path = state_root / "run" / "mcp.token"
        assert str(path) in said
        token = path.read_text()
        assert len(token.strip()) >= 32
        assert token.strip() not in said
        assert path.stat().st_mode & 0o777 == 0o600
    refused = subprocess.run(
        [SCRIPT, "mcp", "--http", "0"], env={**os.environ, "RLM_MEMORY_MCP_TOKEN": "short"}, text=True,
        capture_output=True,
    )  # fmt: skip
    assert refused.returncode == 2
    assert "RLM_MEMORY_MCP_TOKEN" in refused.stderr


@pytest.mark.parametrize("client", ["claude-code", "cursor", "vscode", "dsh"])
def test_printed_settings_start_the_server(client: str, state_root: Path, tmp_path: Path) -> None:
    """What is printed is in the shape that the agent host reads, and its command is one that runs."""
    printed = subprocess.run(
        [SCRIPT, "mcp", "--print-config", client, "--project", str(tmp_path)],
        text=True,
        capture_output=True,
        check=True,
    )
    if client == "dsh":
        import yaml

        [row] = yaml.safe_load(printed.stdout)
        assert row["name"] == "@deepseek-ai/dsh-mcp-client"
        entry = row["config"]
    else:
        document = json.loads(printed.stdout)
        entry = document["servers" if client == "vscode" else "mcpServers"]["rlm-memory"]
    assert Path(entry["command"]).is_file()
    assert entry["args"] == ["mcp", "--project", str(tmp_path)]
    assert "rlm-memory" in printed.stderr or ".json" in printed.stderr or "cordis" in printed.stderr


async def test_printed_command_serves_a_client(state_root: Path, tmp_path: Path) -> None:
    """The project may be named instead of started in."""
    (tmp_path / "elsewhere").mkdir()
    server = parameters(tmp_path / "elsewhere")
    server.args = ["mcp", "--project", str(tmp_path)]
    async with Client(server) as client:
        recorded = await record(client, "named.txt", b"named")
    async with client_of("stdio", tmp_path) as client:
        assert recorded["experiment_id"] in text_of(await client.call_tool("memory_search", {"query": "named"}))
