"""The pure parts: identity of a kernel, seen requests, policy, schemas, projects, connection files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from rlm_memory import wire
from rlm_memory_host.attach import connection
from rlm_memory_host.attach.attachment import Identity, after_attach, after_message
from rlm_memory_host.attach.project import Project, project_of
from rlm_memory_host.attach.replies import Replies
from rlm_memory_host.contracts.scope import Scope
from rlm_memory_host.errors import ProtocolError
from rlm_memory_host.process import ProcessId
from rlm_memory_host.tools import schema
from rlm_memory_host.tools.artifacts import RecordArguments, SearchArguments
from rlm_memory_host.tools.notes import NoteServices, note_tools
from rlm_memory_host.tools.policy import Switches, decide
from rlm_memory_host.tools.status import Feature, overall
from rlm_memory_host.tools.tool import Arguments, Registry, Tool, ToolResult

OLD, NEW = ProcessId(10, 1), ProcessId(11, 2)


def identity(origin: str | None = "old", process: ProcessId | None = OLD) -> Identity:
    return Identity(
        Path("/k.json"), "S" * 26, 1, process, origin, (), Path("/w"), "0", Project("p", "path"), Path("/s")
    )


class TestGeneration:
    def test_the_first_message_names_the_process_and_raises_nothing(self) -> None:
        """Before it the host knew only a pid."""
        found = after_message(identity(origin=None), "old")
        assert found is not None
        assert (found.generation, found.origin) == (1, "old")

    def test_another_header_session_is_another_process(self) -> None:
        """The kernel restarted behind the same ports and key; its pid is not known yet."""
        found = after_message(identity(), "new")
        assert found is not None
        assert (found.generation, found.origin, found.process) == (2, "new", None)

    def test_a_message_of_the_earlier_process_is_stale(self) -> None:
        """It was still under way when the restart was seen."""
        raised = after_message(identity(), "new")
        assert raised is not None
        assert after_message(raised, "old") is None

    def test_one_restart_raises_once_whichever_sign_comes_first(self) -> None:
        """Message then attach, or attach then message: two signs of one restart."""
        seen = after_message(identity(), "new")
        assert seen is not None
        attached = after_attach(seen, NEW)
        assert (attached.generation, attached.process) == (2, NEW)
        other = after_attach(identity(), NEW)
        assert other.generation == 2
        first = after_message(other, "new")
        assert first is not None
        assert first.generation == 2

    def test_attaching_twice_is_attaching_once(self) -> None:
        """The extension was reloaded."""
        assert after_attach(identity(), OLD) == identity()


class TestReplies:
    def test_a_repeated_request_runs_once_and_gets_the_same_answer(self) -> None:
        """While it runs the duplicate waits; afterwards the stored answer is sent again."""
        table = Replies()
        assert table.admit("a") == "new"
        assert table.admit("a") == "running"
        table.finish("a", wire.ok(n=1), 20)
        assert table.admit("a") == {"n": 1, "status": "ok"}

    def test_memory_is_bounded_and_a_forgotten_request_is_never_run_again(self) -> None:
        """Running it twice would be worse than refusing a very late duplicate."""
        table = Replies(replies=2, size=100)
        for name in "abc":
            assert table.admit(name) == "new"
            table.finish(name, wire.ok(), 10)
        assert table.admit("a") == wire.error(
            wire.REQUEST_SCOPE_CLOSED, "this request was answered before; its reply is gone"
        )
        assert table.admit("d") == "new"
        table.finish("d", wire.ok(), 95)
        assert not isinstance(table.admit("c"), str)
        assert table.admit("d") != "new"


def tool(**changes: Any) -> Tool:
    given = {
        "name": "t",
        "description": "",
        "arguments": Arguments,
        "output": {},
        "run": lambda a, c: ToolResult({}, ""),
    }
    return Tool(**{**given, **changes})


class TestPolicy:
    SCOPE = Scope("p", "s", None)

    def test_a_tool_of_a_feature_that_is_off_does_not_exist(self) -> None:
        """It is neither listed nor explained away."""
        decision = decide(tool(needs=frozenset({"artifacts"})), self.SCOPE, Switches(False, {}))
        assert not decision.visible

    def test_a_tool_that_the_operator_switched_off_does_not_exist(self) -> None:
        """Each tool has its own switch."""
        assert not decide(tool(), self.SCOPE, Switches(True, {"t": False})).visible

    def test_recording_needs_a_session_folder_and_says_so(self) -> None:
        """A denial carries its reason."""
        decision = decide(tool(needs=frozenset({"write"})), self.SCOPE, Switches(True, {}))
        assert decision.visible
        assert not decision.allowed
        assert "session folder" in decision.reason

    def test_two_tools_of_one_name_are_refused_at_start(self) -> None:
        """The registry is complete and unambiguous at construction."""
        with pytest.raises(ValueError, match="same name"):
            Registry([tool(), tool()])


class TestSchema:
    def test_without_text_memory_only_what_reads_is_served_twice(self) -> None:
        """After a lost host a search or a question is asked again; a note or a correction never is."""
        tools = note_tools(NoteServices(None, None, lambda *_: None))
        assert {tool.name for tool in tools if tool.repeatable} == {"memory_search", "memory_recall"}

    @pytest.mark.parametrize("model", [SearchArguments, RecordArguments])
    def test_input_schemas_are_flat(self, model: type[Arguments]) -> None:
        """Models of many makers read them: no references, no unions with null, nothing unknown accepted."""
        text = json.dumps(schema.parameters(model))
        assert not any(word in text for word in ("$ref", "$defs", "anyOf", '"null"', '"title": "'))
        assert schema.parameters(model)["additionalProperties"] is False

    def test_record_takes_exactly_the_inputs_of_the_specification(self) -> None:
        """Section 31.2: no project, session, destination, peer or path of another kind."""
        found = schema.parameters(RecordArguments)
        assert set(found["required"]) == {
            "source_path", "title", "summary", "query_fingerprint", "source", "source_version",
        }  # fmt: skip
        assert set(found["properties"]) - set(found["required"]) == {"media_type", "tags", "shape", "columns"}

    @pytest.mark.parametrize(
        ("value", "problem"),
        [
            ({"n": 1}, None),
            ({"n": None}, None),
            ({}, "n is missing"),
            ({"n": "1"}, "n is not of type integer or null"),
            ({"n": True}, "n is not of type integer or null"),
            ({"n": 1, "path": "/x"}, "path is not part of the tool's output"),
        ],
    )
    def test_output_is_held_to_its_schema(self, value: dict[str, Any], problem: str | None) -> None:
        """What a tool did not promise does not leave the host."""
        output = {"properties": {"n": {"type": ["integer", "null"]}}, "required": ["n"]}
        assert schema.problem_with(value, output) == problem


def test_a_feature_that_is_off_does_not_lower_health() -> None:
    """Choosing to have less is not a fault."""
    assert overall({"storage": Feature("on"), "artifact": Feature("off")}) == "active"
    assert overall({"storage": Feature("on"), "artifact": Feature("degraded", "X")}) == "degraded"
    assert overall({"storage": Feature("unavailable", "X"), "artifact": Feature("on")}) == "unavailable"


class TestProject:
    def test_worktrees_share_a_project(self, tmp_path: Path) -> None:
        """Both lead to git's common directory."""
        common = tmp_path / "main" / ".git"
        (common / "worktrees" / "w").mkdir(parents=True)
        (common / "HEAD").write_text("ref: refs/heads/main\n")
        (common / "worktrees" / "w" / "commondir").write_text("../..\n")
        (tmp_path / "tree" / "sub").mkdir(parents=True)
        (tmp_path / "tree" / ".git").write_text(f"gitdir: {common / 'worktrees' / 'w'}\n")
        here, there = project_of(tmp_path / "main", None), project_of(tmp_path / "tree" / "sub", None)
        assert here == there
        assert here.told == "git"

    def test_a_folder_outside_a_repository_is_its_own_project(self, tmp_path: Path) -> None:
        """By its real path; the id does not show it."""
        (tmp_path / "a").mkdir()
        (tmp_path / "link").symlink_to(tmp_path / "a")
        found = project_of(tmp_path / "a", None)
        assert found == project_of(tmp_path / "link", None)
        assert found != project_of(tmp_path, None)
        assert found.told == "path"
        assert str(tmp_path) not in found.id

    def test_the_operator_may_name_it(self, tmp_path: Path) -> None:
        """Then the folder does not count."""
        assert project_of(tmp_path, "trial-7") == Project("trial-7", "configured")

    @pytest.mark.parametrize("text", ["", "gitdir:", "gitdir: /nowhere", "gitdir: \0", "x" * 10_000])
    def test_a_hostile_git_file_is_no_repository(self, tmp_path: Path, text: str) -> None:
        """It is read within a bound and never obeyed."""
        (tmp_path / ".git").write_text(text)
        assert project_of(tmp_path, None).told in {"path", "git"}
        assert project_of(tmp_path, None) == project_of(tmp_path, None)


GOOD = {
    "ip": "127.0.0.1", "iopub_port": 1024, "control_port": 1025, "key": "k" * 36, "transport": "tcp",
    "signature_scheme": "hmac-sha256",
}  # fmt: skip


class TestConnection:
    def test_a_usual_file_is_read(self) -> None:
        """Endpoints and key; the key shows in no representation."""
        found = connection.parse(GOOD, Path("/w"))
        assert (found.iopub, found.control) == ("tcp://127.0.0.1:1024", "tcp://127.0.0.1:1025")
        assert "kkkk" not in repr(found)
        assert "kkkk" not in found.fingerprint

    def test_a_relative_ipc_path_is_the_kernels(self) -> None:
        """Resolved against the kernel's folder, not the host's."""
        assert connection.parse({**GOOD, "transport": "ipc", "ip": "k-ipc"}, Path("/w")).iopub == "ipc:///w/k-ipc-1024"

    @pytest.mark.parametrize(
        ("change", "field"),
        [
            ({"ip": "192.0.2.7"}, "loopback"),
            ({"ip": "0.0.0.0"}, "loopback"),
            ({"ip": "example.org"}, "address"),
            ({"ip": None}, "ip"),
            ({"key": ""}, "key"),
            ({"key": None}, "key"),
            ({"iopub_port": "1"}, "iopub_port"),
            ({"control_port": 0}, "control_port"),
            ({"control_port": True}, "control_port"),
            ({"transport": "udp"}, "transport"),
            ({"signature_scheme": "none"}, "signature_scheme"),
            ({"signature_scheme": "hmac-md5"}, "signature_scheme"),
            ({"curve_publickey": "x" * 40}, "CURVE"),
        ],
    )
    def test_what_cannot_be_served_safely_is_refused_by_field(self, change: dict[str, Any], field: str) -> None:
        """Remote, unsigned or half-encrypted kernels."""
        with pytest.raises(ProtocolError, match=field):
            connection.parse({**GOOD, **change}, Path("/w"))

    def test_a_file_is_checked_before_it_is_read(self, tmp_path: Path) -> None:
        """Links, folders, files that others write, large ones and what is not JSON."""
        good = tmp_path / "good.json"
        good.write_text(json.dumps(GOOD))
        good.chmod(0o600)
        assert connection.read(good, tmp_path).key == b"k" * 36
        (tmp_path / "link.json").symlink_to(good)
        loose = tmp_path / "loose.json"
        loose.write_text(json.dumps(GOOD))
        loose.chmod(0o666)
        large = tmp_path / "large.json"
        large.write_text(" " * 70_000)
        deep = tmp_path / "deep.json"
        deep.write_text("[" * 60_000)
        for path in (tmp_path / "link.json", tmp_path, loose, large, deep, tmp_path / "absent", Path("relative.json")):
            with pytest.raises(ProtocolError, match="connection_file"):
                connection.read(path, tmp_path)
