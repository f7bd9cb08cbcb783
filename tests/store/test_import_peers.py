"""Results of joblib, pins and MLflow come in as bytes and cards; their sources stay as they were and run no code here.

The joblib cache and the pins board are made by the real tools, in a process of their own. MLflow's file store is made
by hand, after its documented layout: the tool itself is far too large to be a test's dependency.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import invariants
import pytest
from operator_harness import Office, never
from rlm_memory_host.artifacts import importers
from rlm_memory_host.artifacts.importers.found import Found
from rlm_memory_host.artifacts.importers.yaml_text import NotPlain, load_mapping
from rlm_memory_host.errors import StoreError, TooLarge
from store_harness import list_all

MOMENT = datetime(2026, 8, 21, tzinfo=UTC)
Find = Callable[[importers.Tree], Found]


@pytest.fixture
def office(tmp_path: Path) -> Office:
    return Office(tmp_path / "office")


def bring(office: Office, source: Path, find: Find) -> dict[str, Any]:
    """Import everything; hits by name in the source, states, what was skipped. The source must not change."""
    before = snapshot(source)
    told: dict[str, Any] = {"states": [], "hits": {}, "notes": {}, "bytes": {}}
    with office.open() as store:
        project = store.project(office.scope())
        with importers.Tree(source) as tree:
            found = find(tree)
            for item in found.items:
                planned = importers.look(project, item, check=never)
                taken = importers.take(
                    project, office.scope(), item, now=lambda: MOMENT, index_state="disabled", check=never
                )
                assert taken == planned, "a dry run said something else"
                told["states"].append(taken.state)
                told["bytes"][item.name] = store.resolve(office.scope(), taken.experiment_id).path.read_bytes()
                told["notes"][item.name] = store.annotate(office.scope(), taken.experiment_id)["imported"]
                hits = {hit.experiment_id: hit for hit in list_all(store, office.scope())}
                told["hits"][item.name] = hits[taken.experiment_id]
        told["skipped"] = {item.name: item.code for item in found.skipped}
    assert snapshot(source) == before, "the source was changed"
    return told


def snapshot(folder: Path) -> list[tuple[str, int, int, str]]:
    found = []
    for path in sorted(folder.rglob("*")):
        state = path.lstat()
        data = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
        found.append((str(path), state.st_mode, state.st_mtime_ns, hashlib.sha256(data).hexdigest()))
    return found


def made_by(script: str, folder: Path) -> Path:
    """Run another tool's code in a process of its own, in `folder`."""
    folder.mkdir(parents=True)
    (folder / "make.py").write_text(script)
    done = subprocess.run([sys.executable, "make.py"], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


# -- joblib ----------------------------------------------------------------------------------------------------------
JOBLIB = """
import joblib
memory = joblib.Memory("cache", verbose=0)

class Trap:
    def __reduce__(self):
        return (open, ("unpickled", "w"))

@memory.cache
def fit(rows, depth=2):
    return {"rows": rows, "depth": depth}

@memory.cache
def trap():
    return Trap()

fit(3)
fit(4, depth=5)
trap()
"""


@pytest.fixture(scope="module")
def joblib_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_by(JOBLIB, tmp_path_factory.mktemp("peer") / "joblib") / "cache"


def test_a_joblib_cache_comes_in_as_the_very_pickles_and_nothing_is_unpickled(
    office: Office, joblib_cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    told = bring(office, joblib_cache, importers.find_joblib)
    assert told["states"] == ["new"] * 3
    assert told["skipped"] == {}
    for name, data in told["bytes"].items():
        assert data == (joblib_cache / name).read_bytes()
        assert told["hits"][name].media_type == "application/octet-stream"
    assert not (tmp_path / "unpickled").exists()
    fits = [note for note in told["notes"].values() if note["function"].endswith("fit")]
    assert sorted(note["arguments"]["rows"] for note in fits) == ["3", "4"]
    texts = " ".join(f"{hit.title} {hit.summary} {hit.source}" for hit in told["hits"].values())
    assert str(tmp_path.name) not in texts
    assert "peer" not in texts, "the path of the script stands in a card"
    assert bring(office, joblib_cache, importers.find_joblib)["states"] == ["present"] * 3


def test_changed_code_is_another_source_version(office: Office, joblib_cache: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    subprocess.run(["cp", "-r", str(joblib_cache), str(copy)], check=True)
    versions = {hit.source_version for hit in bring(office, copy, importers.find_joblib)["hits"].values()}
    code = next(copy.rglob("fit/func_code.py"))
    code.write_text(code.read_text() + "# changed\n")
    told = bring(office, copy, importers.find_joblib)
    assert sorted(told["states"]) == ["new", "new", "present"]
    assert {hit.source_version for hit in told["hits"].values()} - versions


def test_a_joblib_call_in_pieces_is_named_and_not_taken(office: Office, joblib_cache: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    subprocess.run(["cp", "-r", str(joblib_cache), str(copy)], check=True)
    first, second, third = sorted(copy.rglob("output.pkl"))
    first.with_name("output.pkl_01.npy").write_bytes(b"x")
    second.unlink()
    third.unlink()
    third.symlink_to("/etc/hostname")
    told = bring(office, copy, importers.find_joblib)
    assert told["states"] == []
    assert sorted(told["skipped"].values()) == ["UNSAFE_FILESYSTEM_ENTRY", "VALIDATION", "VALIDATION"]


# -- pins ------------------------------------------------------------------------------------------------------------
PINS = """
import pandas as pd
import pins
board = pins.board_folder("board", allow_pickle_read=True)
frame = pd.DataFrame({"a": [1, 2]})
board.pin_write(frame, "birds", type="csv", title="Birds: first\\nversion", description="many words " * 30,
                metadata={"owner": {"team": ["x", "y"]}})
board.pin_write(pd.DataFrame({"a": [1, 2, 3]}), "birds", type="csv", title="Birds: second")
board.pin_write({"depth": 2}, "settings", type="json")
board.pin_write([1, 2], "model", type="joblib")
board.pin_write(frame, "table", type="parquet")
"""


@pytest.fixture(scope="module")
def pins_board(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_by(PINS, tmp_path_factory.mktemp("peer") / "pins") / "board"


def test_a_pins_board_comes_in_with_every_version(office: Office, pins_board: Path) -> None:
    told = bring(office, pins_board, importers.find_pins)
    assert told["states"] == ["new"] * 5
    assert told["skipped"] == {}
    assert all(data == (pins_board / name).read_bytes() for name, data in told["bytes"].items())
    kinds = {name.partition("/")[0]: hit.media_type for name, hit in told["hits"].items()}
    assert kinds == {
        "birds": "text/csv",
        "settings": "application/json",
        "model": "application/octet-stream",
        "table": "application/vnd.apache.parquet",
    }
    birds = {hit.title: hit for name, hit in told["hits"].items() if name.startswith("birds/")}
    assert set(birds) == {"Birds: first version", "Birds: second"}
    assert len({hit.source_version for hit in birds.values()}) == 2
    assert len({hit.query_fingerprint for hit in birds.values()}) == 1
    note = next(note for note in told["notes"].values() if "user" in note)
    assert note["user"] == {"owner": {"team": ["x", "y"]}}
    assert bring(office, pins_board, importers.find_pins)["states"] == ["present"] * 5


@pytest.mark.parametrize(
    ("file", "code"),
    [
        ("../../secret", "INVALID_PATH"),
        ("/etc/hostname", "INVALID_PATH"),
        ("link.csv", "UNSAFE_FILESYSTEM_ENTRY"),
        ("folder/inner.csv", "UNSAFE_FILESYSTEM_ENTRY"),
        ("absent.csv", "UNSAFE_FILESYSTEM_ENTRY"),
    ],
)
def test_a_pin_that_names_a_file_elsewhere_is_refused(office: Office, tmp_path: Path, file: str, code: str) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "inner.csv").write_text("secret")
    version = tmp_path / "board" / "pin" / "20260821T000000Z-abcde"
    version.mkdir(parents=True)
    (version / "link.csv").symlink_to(secret)
    (version / "folder").symlink_to(outside)
    (version / "data.txt").write_text(f"file: {file}\ntype: csv\n")
    told = bring(office, tmp_path / "board", importers.find_pins)
    assert told["states"] == []
    assert list(told["skipped"].values()) == [code]


def test_metadata_that_is_nested_without_end_is_refused_at_once() -> None:
    """What a hostile or damaged file holds does not keep an import busy; what these tools write is read."""
    block = "".join(f"{' ' * level}k:\n" for level in range(40))
    for text in ("a: " + "[" * 200_000, "{a: " * 100_000, "- " * 50_000, block):
        with pytest.raises(NotPlain, match="nested"):
            load_mapping(text.encode())
    assert load_mapping(b"file: [a, b]\nuser: {x: {y: [1]}}\n") == {"file": ["a", "b"], "user": {"x": {"y": ["1"]}}}


def test_metadata_that_unfolds_or_names_code_is_refused(office: Office, tmp_path: Path) -> None:
    bomb = "a: &a [x,x,x,x]\nb: &b [*a,*a,*a,*a]\nfile: *b\n"
    for text in (bomb, "file: !!python/object/apply:os.system [id]\n", "- file\n", "file: [\n", "\xff", ""):
        with pytest.raises(NotPlain):
            load_mapping(text.encode("latin-1"))
    version = tmp_path / "board" / "pin" / "v"
    version.mkdir(parents=True)
    (version / "data.txt").write_text(bomb)
    assert list(bring(office, tmp_path / "board", importers.find_pins)["skipped"].values()) == ["VALIDATION"]


# -- MLflow ----------------------------------------------------------------------------------------------------------
def mlruns(folder: Path) -> Path:
    """Two runs of one experiment, one deleted run, one deleted experiment, a trash and a model registry."""

    def write(name: str, text: str) -> None:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    one, two, gone = "1" * 32, "2" * 32, "3" * 32
    write(
        "7/meta.yaml",
        "artifact_location: file:///elsewhere/7\nexperiment_id: '7'\nlifecycle_stage: active\nname: trees\n",
    )
    for run, name, stage in ((one, "swift-owl", "active"), (two, "calm-fox", "active"), (gone, "gone", "deleted")):
        write(
            f"7/{run}/meta.yaml",
            f"artifact_uri: file:///etc\nend_time: 1755770400000\nlifecycle_stage: {stage}\nrun_id: {run}\n"
            f"run_name: {name}\nrun_uuid: {run}\nstart_time: 1755770300000\nstatus: 3\nuser_id: somebody\n",
        )
        write(f"7/{run}/params/depth", "5")
        write(
            f"7/{run}/metrics/loss/val",
            "1755770310000 0.75 0\n1755770320000 0.5 1\n1755770330000 nan 2\n1755770340000 0.25 3\n",
        )
        write(f"7/{run}/tags/mlflow.user", "somebody")
        write(f"7/{run}/tags/team", "birds")
        write(f"7/{run}/artifacts/report/table.csv", f"run\n{run}\n")
    write(f"7/{one}/artifacts/model/model.pkl", "not really a pickle")
    write("8/meta.yaml", "experiment_id: '8'\nlifecycle_stage: deleted\nname: old\n")
    write(f"8/{one}/meta.yaml", f"run_id: {one}\nlifecycle_stage: active\n")
    write(f".trash/9/{one}/meta.yaml", f"run_id: {one}\n")
    write(".trash/9/meta.yaml", "name: trashed\n")
    write("models/tree/meta.yaml", "name: tree\n")
    write("models/tree/version-1/meta.yaml", "name: tree\nversion: 1\n")
    return folder


def test_an_mlflow_store_comes_in_with_its_numbers(office: Office, tmp_path: Path) -> None:
    source = mlruns(tmp_path / "mlruns")
    told = bring(office, source, importers.find_mlflow)
    assert told["skipped"] == {}
    assert sorted(told["hits"]) == [
        f"7/{'1' * 32}/artifacts/model/model.pkl",
        f"7/{'1' * 32}/artifacts/report/table.csv",
        f"7/{'1' * 32}/meta.yaml",
        f"7/{'2' * 32}/artifacts/report/table.csv",
        f"7/{'2' * 32}/meta.yaml",
    ]
    name = f"7/{'1' * 32}/artifacts/report/table.csv"
    hit = told["hits"][name]
    assert told["bytes"][name] == (source / name).read_bytes()
    assert hit.title == "trees / swift-owl: report/table.csv"
    assert "loss/val=0.25" in hit.summary
    assert "depth=5" in hit.summary
    assert hit.tags == ("mlflow", "team=birds")
    assert (hit.source, hit.source_version, hit.media_type) == ("mlflow:trees", f"run-{'1' * 32}", "text/csv")
    assert bring(office, source, importers.find_mlflow)["states"] == ["present"] * 5


def test_a_runs_record_loads_as_json_with_every_step(office: Office, tmp_path: Path) -> None:
    from rlm_memory.codecs import decode

    told = bring(office, mlruns(tmp_path / "mlruns"), importers.find_mlflow)
    name = f"7/{'1' * 32}/meta.yaml"
    path = tmp_path / "record"
    path.write_bytes(told["bytes"][name])
    record: Any = decode(path, told["hits"][name].media_type)
    assert record["params"] == {"depth": "5"}
    assert [step["value"] for step in record["metrics"]["loss/val"]] == [0.75, 0.5, "nan", 0.25]
    assert record["run"]["run_name"] == "swift-owl"


def test_links_in_an_mlflow_store_are_named_and_not_followed(office: Office, tmp_path: Path) -> None:
    source = mlruns(tmp_path / "mlruns")
    run = source / "7" / ("1" * 32)
    (run / "artifacts" / "evil").symlink_to("/etc/hostname")
    (run / "artifacts" / "folder").symlink_to("/etc")
    (run / "params" / "evil").symlink_to("/etc/hostname")
    os.mkfifo(run / "artifacts" / "pipe")
    told = bring(office, source, importers.find_mlflow)
    assert len(told["skipped"]) == 4
    assert set(told["skipped"].values()) == {"UNSAFE_FILESYSTEM_ENTRY"}
    assert "evil" not in json.loads(told["bytes"][f"7/{'1' * 32}/meta.yaml"])["params"]


# -- all -------------------------------------------------------------------------------------------------------------
def test_a_file_over_the_bound_is_refused_by_name_and_leaves_nothing(office: Office, tmp_path: Path) -> None:
    from rlm_memory_host.contracts.records import Bounds

    source = mlruns(tmp_path / "mlruns")
    (source / "7" / ("1" * 32) / "artifacts" / "large.bin").write_bytes(b"x" * 5_000)
    with office.open(bounds=Bounds(artifact_bytes=4_000)) as store, importers.Tree(source) as tree:
        project = store.project(office.scope())
        item = next(item for item in importers.find_mlflow(tree).items if item.name.endswith("large.bin"))
        with pytest.raises(TooLarge, match=r"large\.bin"):
            importers.take(project, office.scope(), item, now=lambda: MOMENT, index_state="disabled", check=never)
    invariants.check_store(office, {}, {})


def test_a_file_that_is_swapped_for_a_link_after_the_look_is_not_read(office: Office, tmp_path: Path) -> None:
    source = mlruns(tmp_path / "mlruns")
    with office.open() as store, importers.Tree(source) as tree:
        project = store.project(office.scope())
        item = next(item for item in importers.find_mlflow(tree).items if item.name.endswith("table.csv"))
        (source / item.name).unlink()
        (source / item.name).symlink_to("/etc/hostname")
        with pytest.raises(StoreError, match="link"):
            importers.take(project, office.scope(), item, now=lambda: MOMENT, index_state="disabled", check=never)
        folder = (source / item.name).parent
        (source / item.name).unlink()
        folder.rmdir()
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir()
        (elsewhere / "table.csv").write_text("secret")
        folder.symlink_to(elsewhere)
        with pytest.raises(StoreError, match="link"):
            importers.take(project, office.scope(), item, now=lambda: MOMENT, index_state="disabled", check=never)
    invariants.check_store(office, {}, {})
