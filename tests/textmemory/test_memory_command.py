"""`rlm-memory memory …` and `audit verify`: exit codes, JSON, and that only a person changes anything."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rlm_memory_host.cli import consent, main
from rlm_memory_host.textmemory.opening import open_memory


class Desk:
    """Runs commands in one state root as an operator does."""

    def __init__(self, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.root = root
        self.capsys = capsys

    def run(self, *arguments: str) -> tuple[int, Any]:
        """Exit code, and what was printed as JSON (or the text)."""
        common = ["--state-root", str(self.root), "--project", "demo", "--json"]
        code = main(["memory", *common, *arguments])
        out, err = self.capsys.readouterr()
        return code, json.loads(out) if out.strip().startswith(("{", "[")) and "\n{" not in out else out + err

    def agreed(self, *arguments: str, action: str | None = None) -> tuple[int, Any]:
        """As `run`, with a person's token."""
        wanted = action or "memory " + " ".join(arguments[:2])
        token = consent.remember(open_memory(self.root).store, wanted)
        return self.run(*arguments, "--token", token)


@pytest.fixture
def desk(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Desk:
    """A desk outside any kernel."""
    for name in ("RLM_SESSION_DIR", "RLM_SESSION_ID", "DSH_SESSION_ID", "JPY_PARENT_PID", "JPY_SESSION_NAME"):
        monkeypatch.delenv(name, raising=False)
    return Desk(tmp_path / "state", capsys)


def add(desk: Desk, note: str, *more: str) -> str:
    """Add a memory; its id."""
    code, value = desk.agreed("add", note, *more, action="memory add")
    assert code == 0, value
    return value["id"]


def test_a_memory_is_added_found_changed_and_brought_back(desk: Desk) -> None:
    """The ordinary life of one, from the command line."""
    memory_id = add(desk, "The rig runs at 40 degrees.", "--title", "Rig temperature", "--tag", "lab")
    assert [row["id"] for row in desk.run("ls")[1]] == [memory_id]
    assert desk.run("search", "rig degrees")[1]["results"][0]["id"] == memory_id
    assert desk.agreed("edit", memory_id, "--body", "The rig runs at 41 degrees.")[0] == 0
    shown = desk.run("show", memory_id)[1]
    assert (shown["body"], shown["version"], shown["authority"]) == ("The rig runs at 41 degrees.", 2, "operator")
    assert [row["body"] for row in desk.run("history", memory_id)[1]] == ["The rig runs at 40 degrees."]
    assert desk.agreed("forget", memory_id)[0] == 0
    assert desk.run("ls")[1] == []
    assert desk.agreed("restore", memory_id)[0] == 0
    assert desk.agreed("pin", memory_id)[1]["pinned"] is True
    assert desk.run("validate")[0] == 0
    assert desk.agreed("promote", memory_id)[1]["scope"] == "global"
    assert desk.run("rebuild-index")[0] == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ("add", "x"),
        ("edit", "mem_a", "--body", "x"),
        ("forget", "mem_a"),
        ("restore", "mem_a"),
        ("confirm", "cand_a"),
        ("reject", "cand_a"),
        ("promote", "mem_a"),
        ("conflicts", "--resolve", "conf_a"),
        ("habits", "--gate", "confirm", "habit_a"),
        ("review", "--accept-edits"),
        ("consolidate", "--apply"),
        ("export", "--sensitive"),
        ("import", "--from", "runtime", "."),
    ],
)
def test_nobody_at_the_terminal_changes_nothing(desk: Desk, arguments: tuple[str, ...]) -> None:
    """Without a person's word the command ends with 2 and says how to give it."""
    code, text = desk.run(*arguments)
    assert (code, "--token" in text) == (2, True)
    code, text = desk.run(*arguments, "--token", "made-up")
    assert (code, "token" in text) == (2, True)
    assert desk.run("ls", "--all")[1] == []


def test_a_token_is_good_once_and_for_one_thing(desk: Desk) -> None:
    """Neither again nor for something else."""
    store = open_memory(desk.root).store
    token = consent.remember(store, "memory add")
    assert desk.run("reject", "cand_a", "--token", token)[0] == 2
    assert desk.run("add", "One thing.", "--token", token)[0] == 0
    assert desk.run("add", "Another thing.", "--token", token)[0] == 2


def test_inside_a_kernel_no_token_helps(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent's shell is no person."""
    token = consent.remember(open_memory(desk.root).store, "memory add")
    monkeypatch.setenv("RLM_SESSION_DIR", "/somewhere")
    code, text = desk.run("add", "x", "--token", token)
    assert (code, "kernel" in text) == (2, True)


def test_a_purge_needs_the_plans_own_token(desk: Desk) -> None:
    """The plan is shown, its token only at a terminal."""
    memory_id = add(desk, "A zebra secret nobody needs.")
    code, plan = desk.run("purge", "--id", memory_id)
    assert (code, len(plan["memories"])) == (0, 1)
    assert "token" not in plan
    assert desk.run("purge", "--id", memory_id, "--token", "0" * 16)[0] == 2
    from rlm_memory_host.textmemory import purging

    token = purging.plan(open_memory(desk.root).store, "id", memory_id, project="demo").token
    assert desk.run("purge", "--id", memory_id, "--token", token)[0] == 0
    left = b"".join(path.read_bytes() for path in desk.root.rglob("*") if path.is_file())
    assert b"zebra" not in left


def test_findings_are_exit_one(desk: Desk) -> None:
    """Validate, duplicates, review and audit verify."""
    add(desk, "Use pytest for tests.", "--title", "Tests")
    assert desk.run("scan-duplicates")[0] == 0
    store = open_memory(desk.root).store
    path = next(store.folder.glob("projects/*/facts.md"))
    path.write_text(path.read_text() + "\n<!-- memory\nid: mem_x\ncreated_at: soon\n-->\n\n## x\n")
    code, report = desk.run("validate")
    assert (code, report["problems"][0]["code"], report["problems"][0]["line"] > 10) == (1, "BAD_DATE", True)
    with path.open("a") as file:
        file.write("\n<!-- memory\nid: mem_y\n-->\n\n## Tests\n\nuse pytest for tests\n")
    assert desk.run("review")[0] == 1
    assert desk.run("scan-duplicates")[0] == 1
    assert desk.agreed("review", "--accept-edits")[0] == 0
    assert desk.run("review")[0] == 0
    root = ["--state-root", str(desk.root)]
    assert main(["audit", "verify", *root]) == 0
    store.journal.audit_path.write_bytes(store.journal.audit_path.read_bytes()[40:])
    assert main(["audit", "verify", *root, "--json"]) == 1
    assert desk.capsys.readouterr().out.endswith("}\n")


def test_a_secret_is_refused_and_not_repeated(desk: Desk) -> None:
    """Exit 2; the message has the place."""
    key = "ghp_" + "x9Y8" * 9
    code, text = desk.agreed("add", f"The token is {key}", action="memory add")
    assert code == 2
    assert key not in text
    assert "github_pat" in text


def test_an_import_waits_for_review_and_an_export_gives_it_back(desk: Desk, tmp_path: Path) -> None:
    """Candidates in, JSON lines out."""
    old = tmp_path / "entries.ndjson"
    old.write_text(json.dumps({"id": "m", "title": "Indentation", "content": "Use tabs.", "layer": "project"}) + "\n")
    code, done = desk.agreed("import", str(old), "--from", "plugin", action="memory import --from plugin")
    assert (code, done["queued"]) == (0, 1)
    code, waiting = desk.run("review")
    assert code == 1
    assert desk.agreed("confirm", waiting["candidates"][0]["id"])[0] == 0
    out = tmp_path / "out.ndjson"
    assert desk.run("export", str(out))[0] == 0
    assert json.loads(out.read_text())["body"] == "Use tabs."
    assert out.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(("answer", "code"), [("yes\n", 0), ("no\n", 2)])
def test_a_person_at_a_terminal_is_asked(tmp_path: Path, answer: str, code: int) -> None:
    """Only yes does it."""
    environ = {key: value for key, value in os.environ.items() if not key.startswith(("RLM_", "JPY_", "DSH_"))}
    outer, inner = pty.openpty()
    command = [
        sys.executable, "-c", "import sys; from rlm_memory_host.cli import main; sys.exit(main(sys.argv[1:]))",
        "memory", "--state-root", str(tmp_path / "state"), "--project", "demo", "add", "Use tabs.",
    ]  # fmt: skip
    try:
        os.write(outer, answer.encode())
        done = subprocess.run(command, stdin=inner, stderr=inner, stdout=subprocess.PIPE, env=environ, timeout=60)
        assert (done.returncode, b"active" in done.stdout) == (code, code == 0)
    finally:
        os.close(outer)
        os.close(inner)


def test_other_commands_do_not_pay_for_the_text_memory(tmp_path: Path) -> None:
    """Asking a host for its status loads neither the text memory nor the outbox."""
    code = (
        "import sys\nfrom rlm_memory_host.cli import main\n"
        f"assert main(['host', 'status', '--json', '--state-root', {str(tmp_path / 'state')!r}]) == 1\n"
        "heavy = ('rlm_memory_host.textmemory.service', 'rlm_memory_host.contracts.delivery', 'httpx', 'asyncio')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(("typed", "offered"), [("rlm-memory memory pro", "promote"), ("rlm-memory aud", "audit")])
def test_a_shell_completes_the_commands(typed: str, offered: str) -> None:
    """As bash asks for it."""
    asks = {"_RLM_MEMORY_COMPLETE": "complete_bash", "COMP_WORDS": typed, "COMP_CWORD": str(len(typed.split()) - 1)}
    program = Path(sys.executable).with_name("rlm-memory")
    done = subprocess.run([program], env={**os.environ, **asks}, capture_output=True, text=True, check=False)
    assert offered in done.stdout.split()


ODD = ["", "\x00", "../../x", "-1", "\udcff", "a" * 100_000]


@pytest.mark.parametrize("command", [
    "show", "history", "search", "add", "edit", "forget", "hide", "restore", "pin", "confirm", "reject", "promote",
])  # fmt: skip
def test_no_argument_ends_a_command_with_anything_but_its_exit_code(desk: Desk, command: str) -> None:
    """0, 1 or 2 and no exception, with a person's word and without; bytes of no text among the arguments."""
    memory_id = add(desk, "The rig runs at 40 degrees.")
    for odd in ODD:
        assert desk.run(command, odd)[0] in (0, 1, 2)
        assert main(["memory", "--state-root", str(desk.root), "--project", odd, "--json", "ls"]) in (0, 2)
        if command not in ("show", "history", "search"):
            assert desk.run(command, odd, "--token", "nope")[0] == 2
            assert desk.agreed(command, odd)[0] in (0, 1, 2)
    assert desk.run("show", memory_id)[0] == 0


def test_what_the_system_refuses_is_one_line(desk: Desk, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file that exists, a folder that does not, a full disk, a state root that is none: exit 2, and no half file."""
    add(desk, "The rig runs at 40 degrees.")
    there = tmp_path / "there.jsonl"
    there.write_text("mine")
    for target in (str(there), str(tmp_path / "none" / "x"), str(tmp_path), "/dev/full"):
        code, said = desk.run("export", target)
        assert code == 2
        assert said.count("\n") == 1
        assert "file to export to" in said
    assert there.read_text() == "mine"
    made = tmp_path / "made.jsonl"
    assert desk.run("export", str(made))[0] == 0
    assert made.stat().st_mode & 0o777 == 0o600
    for root in ("/dev/null", str(there)):
        assert main(["memory", "--state-root", root, "--project", "demo", "ls"]) == 2
        assert capsys.readouterr().err.count("\n") == 1


def test_a_reader_that_has_seen_enough_is_no_failure_of_ours(desk: Desk) -> None:
    """`… ls | head -1`: no trace of an exception."""
    for number in range(3):
        add(desk, f"Rig {number} hums {'x' * 20_000}.", "--topic", f"T{number}")
    command = [sys.executable, "-m", "rlm_memory_host", "memory", "--state-root", str(desk.root), "--project", "demo"]
    process = subprocess.Popen([*command, "export"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.read(1)
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    process.wait(30)


def test_an_observation_is_proposed_listed_and_ended_by_a_person(desk: Desk) -> None:
    """With what it rests on; without a person's word nothing happens, and wrong anchors are named."""
    anchors = [add(desk, text) for text in ("Reviews take an hour.", "Monday's deployment was late.")]
    named = [part for anchor in anchors for part in ("--anchor", anchor)]
    propose = ("observations", "--add", "Skipped reviews delay deployments.", *named)
    assert desk.run(*propose)[0] == 2
    assert desk.run("observations")[1] == []
    code, made = desk.agreed(*propose, action="memory observations --add")
    assert (code, made["state"], made["anchors"]) == (0, "candidate", anchors)
    code, said = desk.agreed(*propose, "--anchor", "s1:1", action="memory observations --add")
    assert code == 2
    assert "s1:1" in str(said)
    gate = ("observations", "--gate", "activate", made["id"])
    assert desk.run(*gate)[0] == 2
    code, changed = desk.agreed(*gate, action=f"memory observations --gate activate {made['id']}")
    assert (code, changed["state"]) == (0, "active")
    assert [row["state"] for row in desk.run("observations")[1]] == ["active"]
