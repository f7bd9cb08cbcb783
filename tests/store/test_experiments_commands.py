"""`rlm-memory experiments …` as an operator meets it: what is printed, exit codes, stopping, beside a running host."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import invariants
import pytest
from operator_harness import DAY, NEW, OLD, Command, Office, command_of
from rlm_memory_host.artifacts import removal
from rlm_memory_host.storage.paths import is_temporary
from store_harness import flip_byte, tree

SCRIPTS = Path(sys.executable).parent


@pytest.fixture
def office(tmp_path: Path) -> Office:
    return Office(tmp_path)


@pytest.fixture
def command(office: Office, capsys: pytest.CaptureFixture[str]) -> Command:
    return command_of(office, capsys)


@pytest.fixture
def ids(office: Office) -> list[str]:
    """Three results, the first and second of the same bytes; their ids."""
    with office.open() as store:
        made = [
            office.record(store, OLD, title="Alpha cohort", source_version="1", tags=("cohort",)),
            office.record(store, OLD, title="Beta cohort", source_version="2", tags=("cohort", "late"), source="lab"),
            office.record(store, NEW, title="Gamma \x7b", source_version="3", media_type="text/csv"),
        ]
        note = {"lineage": {"inputs": ["a"]}, "preview": {"rows": [[1, 2]]}}
        store.annotate(office.scope(), made[0].experiment_id, note)
    return [each.experiment_id for each in made]


def results_in(office: Office) -> list[tuple[str, int, str]]:
    """Every file of the store but the two that count and list what was done."""
    return [item for item in tree(office.root) if not item[0].endswith(("commit", "journal"))]


class TestLooking:
    """`ls`, `show`, `du`."""

    def test_ls_pages_through_everything_once(self, command: Command, ids: list[str]) -> None:
        seen: list[str] = []
        words: list[str] = []
        while True:
            page = command("ls", "--limit", "1", "--json", *words)
            assert page.code == 0
            assert page.value["total"] == 3
            seen += [hit["experiment_id"] for hit in page.value["results"]]
            if page.value["cursor"] is None:
                break
            words = ["--cursor", page.value["cursor"]]
        assert sorted(seen) == sorted(ids)

    def test_ls_filters(self, command: Command, ids: list[str]) -> None:
        def listed(*words: str) -> set[str]:
            return {hit["experiment_id"] for hit in command("ls", "--json", *words).value["results"]}

        assert listed("--tag", "cohort") == set(ids[:2])
        assert listed("--source", "lab") == {ids[1]}
        assert listed("--session", "session-1") == set(ids)
        assert listed("--session", "other") == set()
        assert listed("--since", "2999-01-01") == set()
        assert listed("beta") == {ids[1]}
        assert "3 of 3 results" in command("ls").out

    def test_show_tells_card_lineage_and_preview(self, command: Command, ids: list[str]) -> None:
        said = command("show", ids[0][:14])
        assert said.code == 0
        for word in (ids[0], "Alpha cohort", "lineage", "preview (unverified)", "object: there"):
            assert word in said.out
        value = command("show", ids[0], "--json").value
        assert value["card"]["title"] == "Alpha cohort"
        assert value["sidecar"]["preview"] == {"rows": [[1, 2]]}
        assert command("show", "exp_" + "a" * 52).code == 2
        assert "8 or more" in command("show", "exp").err
        assert command("show", ids[0], project="project-b").code == 2

    def test_du_counts_shared_bytes_once(self, command: Command, ids: list[str]) -> None:
        usage = command("du", "--json").value["projects"][0]
        assert (usage["cards"], usage["objects"], usage["object_bytes"]) == (3, 2, len(OLD) + len(NEW))
        assert usage["bytes_left"] == (20 << 30) - len(OLD) - len(NEW)
        assert sum(kind["bytes"] for kind in usage["kinds"]) == usage["object_bytes"]
        command("rm", ids[2])
        kinds = {kind["kind"]: kind for kind in command("du", "--json").value["projects"][0]["kinds"]}
        assert kinds["removed (undo)"]["bytes"] == len(NEW)
        assert command("du", "--all-projects").code == 0

    def test_an_empty_place_is_fine_and_stays_empty(self, command: Command, office: Office) -> None:
        for words in (["ls"], ["du"], ["verify"], ["gc", "--dry-run"], ["ls", "--removed"], ["du", "--all-projects"]):
            assert command(*words).code == 0
        assert not office.state.exists()


class TestVerifying:
    """`verify`."""

    def test_a_flipped_byte_with_size_and_times_put_back_is_found(
        self, command: Command, office: Office, ids: list[str]
    ) -> None:
        assert command("verify").code == 0
        flip_byte(next(path for path in office.objects() if path.read_bytes() == NEW))
        said = command("verify", "--json")
        assert said.code == 1
        assert [(each["experiment_id"], each["code"]) for each in said.value["findings"]] == [
            (ids[2], "ARTIFACT_CORRUPT")
        ]
        assert command("verify", ids[0]).code == 0
        assert command("verify", ids[2][:16]).code == 1
        assert command("verify", "--all-projects").code == 1

    def test_each_fault_is_named(self, command: Command, office: Office, ids: list[str]) -> None:
        for path in office.objects():
            if path.read_bytes() == NEW:
                path.unlink()
            else:
                path.chmod(0o600)
                path.write_bytes(OLD[:-1])
        office.layout.sidecar(ids[0]).write_bytes(b"{")
        office.layout.card("exp_" + "a" * 52).write_bytes(b"{}")
        (office.layout.cards / "notes.txt").write_text("mine")
        said = command("verify", "--json")
        found = {(each["experiment_id"], each["kind"], each["code"]) for each in said.value["findings"]}
        assert found == {
            (ids[0], "object", "ARTIFACT_CORRUPT"),
            (ids[0], "sidecar", "VALIDATION"),
            (ids[1], "object", "ARTIFACT_CORRUPT"),
            (ids[2], "object", "ARTIFACT_MISSING"),
            ("exp_" + "a" * 52, "card", "VALIDATION"),
        }
        assert said.value["strays"] == ["notes.txt"]
        assert said.code == 1

    def test_what_was_removed_is_verified_too(self, command: Command, office: Office, ids: list[str]) -> None:
        command("rm", ids[2])
        flip_byte(next(path for path in office.objects() if path.read_bytes() == NEW))
        findings = command("verify", "--json").value["findings"]
        assert [(each["experiment_id"], each["removed"]) for each in findings] == [(ids[2], True)]


class TestRemoving:
    """`rm`, `undo`, `gc`."""

    def test_remove_look_undo(self, command: Command, office: Office, ids: list[str]) -> None:
        before, results = tree(office.root), results_in(office)
        assert command("rm", "--dry-run", ids[0], ids[2]).code == 0
        assert tree(office.root) == before
        assert [each["experiment_id"] for each in command("rm", ids[0], ids[2], "--json").value["done"]] == [
            ids[0],
            ids[2],
        ]
        assert command("ls", "--json").value["total"] == 1
        removed = command("ls", "--removed", "--json").value["removed"]
        assert {each["experiment_id"] for each in removed} == {ids[0], ids[2]}
        assert command("rm", ids[0]).code == 2
        some = command("rm", ids[0], ids[1], "--json")
        assert (some.code, len(some.value["done"]), len(some.value["not_done"])) == (1, 1, 1)
        assert command("undo", ids[0][:14], ids[1], ids[2]).code == 0
        assert results_in(office) == results
        assert command("undo", ids[0]).code == 2

    def test_gc_deletes_nothing_without_a_word(self, command: Command, office: Office, ids: list[str]) -> None:
        command("rm", ids[2])
        before = tree(office.root)
        planned = command("gc", "--dry-run", "--undo-days", "0", "--json")
        assert [each["experiment_id"] for each in planned.value["removed"]] == [ids[2]]
        refused = command("gc", "--undo-days", "0")
        assert refused.code == 2
        assert "--yes" in refused.err
        assert tree(office.root) == before
        done = command("gc", "--yes", "--undo-days", "0", "--json")
        assert done.value["removed"] == planned.value["removed"]
        assert command("undo", ids[2]).code == 2
        assert command("ls", "--json").value["total"] == 2

    def test_the_settings_say_how_long_undo_works(self, command: Command, office: Office, ids: list[str]) -> None:
        with office.open() as store:
            parts = store.project(office.scope()).parts
            removal.remove(parts, ids[2], now=time.time() - 29 * DAY)
        assert command("gc", "--yes", "--json").value["removed"] == []
        settings = office.folder / "rlm-memory.toml"
        settings.write_text("[artifacts]\nundo_days = 28\n")
        settings.chmod(0o600)
        assert len(command("gc", "--yes", "--json", "--config", settings).value["removed"]) == 1

    @pytest.mark.parametrize(
        "words",
        [["rm", "exp_aaaaaaaa"], ["undo", "x"], ["gc", "--yes"], ["export", "--all", "--to", "x"], ["import", "x"]],
    )
    def test_a_kernel_or_agent_is_turned_away(
        self, command: Command, office: Office, ids: list[str], monkeypatch: pytest.MonkeyPatch, words: list[str]
    ) -> None:
        before = tree(office.root)
        monkeypatch.setenv("DSH_SESSION_ID", "a-session")
        said = command(*words)
        assert (said.code, said.err.partition(":")[0]) == (2, "NOT_A_PERSON")
        assert tree(office.root) == before
        assert command("ls").code == 0


class TestMoving:
    """`export`, `import`."""

    @pytest.mark.parametrize("name", ["out", "out.zip"])
    def test_there_and_back(self, command: Command, office: Office, ids: list[str], name: str) -> None:
        target = office.folder / name
        done = command("export", ids[0], ids[2][:16], "--to", target, "--json")
        assert (done.code, done.value["experiments"], done.value["objects"]) == (0, 2, 2)
        assert command("export", "--all", "--to", target).code == 2
        assert command("export", "--to", office.folder / "other").code == 2
        assert command("export", "--all", "--to", office.root / "inside").code == 2
        dry = command("import", target, "--dry-run", "--json", project="project-b")
        assert [each["state"] for each in dry.value["taken"]] == ["new", "new"]
        assert command("ls", "--json", project="project-b").value["total"] == 0
        assert command("import", target, project="project-b").code == 0
        again = command("import", target, "--json", project="project-b")
        assert [each["state"] for each in again.value["taken"]] == ["present", "present"]
        assert command("verify", project="project-b").code == 0
        assert command("import", target, "--json").value["not_taken"] == []

    def test_what_is_not_taken_shows_in_the_exit_code(self, command: Command, office: Office, ids: list[str]) -> None:
        target = office.folder / "out"
        command("export", "--all", "--to", target)
        data = next(path for path in target.rglob("art_*") if path.read_bytes() == NEW)
        data.write_bytes(NEW[:-1] + b"!")
        said = command("import", target, "--json", project="project-b")
        assert said.code == 1
        assert [(each["name"], each["code"]) for each in said.value["not_taken"]] == [(ids[2], "ARTIFACT_CORRUPT")]
        assert len(said.value["taken"]) == 2
        (target / "evil").write_text("x")
        assert "evil" in command("import", target, project="project-b").err

    @pytest.mark.parametrize("origin", ["joblib", "pins", "mlflow"])
    def test_a_folder_with_nothing_of_a_tool_imports_nothing(
        self, command: Command, office: Office, origin: str
    ) -> None:
        empty = office.folder / "empty"
        empty.mkdir()
        said = command("import", "--from", origin, empty, "--json")
        assert (said.code, said.value["taken"]) == (0, [])
        assert command("import", "--from", origin, office.folder / "absent").code == 2


# -- real processes --------------------------------------------------------------------------------------------------
STOPPED = """
import os, signal, sys
from rlm_memory_host.storage import files
real, calls = files.FileLayer.{operation}, 0

def interrupted(self, *arguments):
    global calls
    calls += 1
    if calls == {at}:
        os.kill(os.getpid(), signal.SIGINT)
    return real(self, *arguments)

files.FileLayer.{operation} = interrupted
from rlm_memory_host.cli import main
sys.exit(main(sys.argv[1:]))
"""


def interrupted(office: Office, operation: str, at: int, *words: str | Path) -> subprocess.CompletedProcess[str]:
    """A real command that gets Ctrl-C within its `at`-th file operation of that name."""
    script = STOPPED.format(operation=operation, at=at)
    place = ["--state-root", str(office.state), "--project", office.project]
    command = [sys.executable, "-c", script, "experiments", *map(str, words), *place]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_ctrl_c_in_an_export_leaves_no_export(office: Office, ids: list[str]) -> None:
    said = interrupted(office, "write", 2, "export", "--all", "--to", office.folder / "out")
    assert said.returncode == 2
    assert "stopped" in said.stderr
    assert "Traceback" not in said.stderr
    assert not [path for path in office.folder.iterdir() if "out" in path.name]


def test_ctrl_c_in_an_import_finishes_or_undoes_the_result_it_is_at(
    office: Office, ids: list[str], command: Command
) -> None:
    """No card without its bytes, no temp file, no half of anything; the same command then brings in the rest."""
    command("export", "--all", "--to", office.folder / "out")
    for operation, at in (("write", 1), ("rename", 2), ("fsync", 3)):
        other = Office(office.folder / f"{operation}-{at}")
        said = interrupted(other, operation, at, "import", office.folder / "out", "--json")
        assert said.returncode == 2, said.stderr
        assert json.loads(said.stdout)["stopped"]
        assert len(json.loads(said.stdout)["taken"]) < 3
        assert not [path for path in other.layout.temporary.glob("*") if is_temporary(path.name)]
        invariants.check_store(other, {}, dict(zip(ids, (OLD, OLD, NEW), strict=True)))


def test_ctrl_c_in_a_removal_finishes_that_one_and_begins_no_other(office: Office, ids: list[str]) -> None:
    said = interrupted(office, "rename", 1, "rm", *ids, "--json")
    value = json.loads(said.stdout)
    assert said.returncode == 1
    assert [each["experiment_id"] for each in value["done"]] == ids[:1]
    assert [each["code"] for each in value["not_done"]] == ["CANCELLED", "CANCELLED"]
    invariants.check_store(office, {ids[1]: OLD, ids[2]: NEW})


@pytest.mark.kernel
def test_everything_works_beside_a_running_host(
    state_root: Path, start_host: Callable[..., Any], start_kernel: Callable[..., Any], tmp_path: Path
) -> None:
    """A kernel records through the host; an operator removes, brings back, verifies; the kernel sees each at once."""
    start_host()
    kernel = start_kernel()
    assert kernel.run("%load_ext rlm_memory").error is None
    done = kernel.run("hit = memory.experiments.record([1, 2], title='Beside a host'); print(hit.experiment_id)").ok()
    experiment = done.split()[-1].strip("'\"")

    def operator(*words: str) -> subprocess.CompletedProcess[str]:
        line = [str(SCRIPTS / "rlm-memory"), "experiments", *words]
        environ = {name: value for name, value in os.environ.items() if not name.startswith("JPY_")}
        return subprocess.run(line, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)

    def found() -> str:
        return kernel.run("print(len(memory.experiments.search('beside')))").ok().strip()

    assert found() == "1"
    assert operator("verify").returncode == 0
    assert operator("rm", experiment).returncode == 0
    assert found() == "0"
    assert "CARD_NOT_FOUND" in str(kernel.run("memory.experiments.load(hit)").error) or found() == "0"
    assert operator("undo", experiment).returncode == 0
    assert found() == "1"
    assert kernel.run("print(memory.experiments.load(hit))").ok().strip() == "[1, 2]"
    assert operator("gc", "--yes").returncode == 0


def test_no_tool_of_the_host_removes_or_moves_results() -> None:
    """The whole registry that kernels and agents see: none of the operator's verbs, none of the operator's modules."""
    from rlm_memory_host.settings import ToolSettings

    # Every tool has a switch of its name: this is all that any caller may ever be offered.
    tools = set(ToolSettings.model_fields)
    assert {name for name in tools if "artifact" in name} == {"memory_artifact_record", "memory_artifact_resolve"}
    verbs = ("remove", "delete", "undo", "purge", "gc", "export", "import", "verify", "experiments")
    assert not [name for name in tools if any(verb in name.split("_") for verb in verbs)]
    host = Path(removal.__file__).parents[1]
    words = ("artifacts.removal", "artifacts.export", "artifacts.importers", "artifacts.operators")
    for folder in ("tools", "assembly", "attach", "recall", "capture"):
        for path in (host / folder).rglob("*.py"):
            text = path.read_text()
            assert not any(word in text for word in words), f"{path.name} leads to an operator's module"


def test_signals_mean_stop_only_while_a_command_runs() -> None:
    from rlm_memory_host.cli.experiments_desk import Stop
    from rlm_memory_host.errors import ToolCancelled

    before = signal.getsignal(signal.SIGINT)
    stop = Stop()
    with stop.on_signals():
        stop.check()
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(ToolCancelled):
            stop.check()
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler, "a second Ctrl-C does not end it"
    assert signal.getsignal(signal.SIGINT) is before


PAGE = Path(__file__).resolve().parents[2] / "docs" / "operators.md"


def test_every_command_of_the_page_works(
    command: Command, office: Office, ids: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The console blocks of docs/operators.md, in order, on a store with a result of the page's id."""
    monkeypatch.chdir(office.folder)
    for folder in ("cache", "board", "mlruns"):
        (office.folder / folder).mkdir()
    blocks = re.findall(r"^```console\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    assert len(lines) >= 15
    for line in lines:
        program, *words = line.replace("exp_2dfja2tvsnar", ids[0][:16]).split()
        if program == "rlm-memory":
            assert words[0] == "experiments"
            assert command(*words[1:]).code == 0, line
        else:
            zipfile.ZipFile("results.zip").extract("verify.py")
            place = [] if "results.zip" in words else ["results.zip"]
            assert subprocess.run([sys.executable, *words, *place], capture_output=True).returncode == 0, line


def test_the_fields_of_every_json_answer_are_on_the_page(command: Command, office: Office, ids: list[str]) -> None:
    """What a program reads is what docs/operators.md says, command by command."""
    rows = re.findall(r"^\| (`[^|]+`) \| (`[^|]+) \|$", PAGE.read_text(), re.MULTILINE)
    said = {
        name.strip("` "): set(re.findall(r"`(\w+)`", fields)) for names, fields in rows for name in names.split(",")
    }
    target = office.folder / "out.zip"
    calls = {
        "ls": ["ls"],
        "show": ["show", ids[0]],
        "verify": ["verify"],
        "du": ["du"],
        "export": ["export", "--all", "--to", target],
        "import": ["import", target],
        "rm": ["rm", ids[0]],
        "ls --removed": ["ls", "--removed"],
        "undo": ["undo", ids[0]],
        "gc": ["gc", "--dry-run"],
    }
    for name, words in calls.items():
        assert set(command(*words, "--json").value) == said[name], name
