"""`verify.py` of an export runs with Python alone, says 0 for what is whole, and names every fault of what is not."""

from __future__ import annotations

import ast
import hashlib
import json
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from operator_harness import NEW, OLD, Office, never
from rlm_memory_host.artifacts.export import export, verify
from store_harness import flip_byte

SCRIPT = Path(verify.__file__)


@pytest.fixture
def exported(tmp_path: Path) -> Path:
    """An export of two results as a folder."""
    office = Office(tmp_path / "office")
    with office.open() as store:
        first = office.record(store, OLD, title="First")
        second = office.record(store, NEW, title="Second \u202e")
        store.annotate(office.scope(), first.experiment_id, {"lineage": {}})
        parts = store.project(office.scope()).parts
        export(parts, [first.experiment_id, second.experiment_id], tmp_path / "out", "folder", check=never)
        export(parts, [first.experiment_id, second.experiment_id], tmp_path / "out.zip", "zip", check=never)
    return tmp_path / "out"


def bare(script: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a script with no site packages, no user's environment and no paths of ours."""
    command = [sys.executable, "-I", "-S", str(script), *map(str, arguments)]
    return subprocess.run(command, env={}, capture_output=True, text=True, encoding="utf-8", cwd="/", check=False)


def test_it_needs_python_3_8_and_the_standard_library_alone() -> None:
    tree = ast.parse(SCRIPT.read_text(), feature_version=(3, 8))
    modules = {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    modules |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert modules - {"__future__"} <= {
        *("argparse", "base64", "collections", "collections.abc", "hashlib", "json", "os", "pathlib", "re", "sys"),
        *("typing", "zipfile"),
    }


def test_it_passes_what_is_whole_from_its_own_folder_and_as_a_zip(exported: Path) -> None:
    for said in (bare(exported / "verify.py"), bare(exported / "verify.py", exported.with_suffix(".zip"))):
        assert said.returncode == 0, said.stdout + said.stderr
        assert said.stdout.count("\nok") + said.stdout.startswith("ok") == 2
        assert "2 experiments" in said.stdout
        assert "0 faults" in said.stdout
        assert "\u202e" not in said.stdout
    value = json.loads(bare(exported / "verify.py", "--json").stdout)
    assert [each["sound"] for each in value["experiments"]] == [True, True]
    assert value["faults"] == []


def test_it_checks_a_project_folder_of_a_store_too(exported: Path, tmp_path: Path) -> None:
    folder = Office(tmp_path / "office").layout.folder
    assert bare(SCRIPT, folder).returncode == 0
    flip_byte(next(path for path in folder.rglob("art_*") if path.is_file()))
    assert bare(SCRIPT, folder).returncode == 1


def an_object(folder: Path) -> Path:
    return next(path for path in (folder / "objects").rglob("art_*") if path.is_file())


def a_card(folder: Path) -> Path:
    return next(path for path in (folder / "cards").glob("exp_*.json") if not path.name.endswith(".ext.json"))


def edit_card(**changes: Any) -> Callable[[Path], None]:
    """Change a card and list it in the manifest as it is now: only the card itself can tell."""

    def change(folder: Path) -> None:
        card = a_card(folder)
        card.write_text(json.dumps({**json.loads(card.read_text()), **changes}))
        relist(folder, card)

    return change


def relist(folder: Path, path: Path) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    data = path.read_bytes()
    name = path.relative_to(folder).as_posix()
    manifest["files"][name] = {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
    (folder / "manifest.json").write_text(json.dumps(manifest))


def change_object(folder: Path) -> None:
    """Object and manifest agree with each other, and not with the card or the object's name."""
    data = an_object(folder)
    data.write_bytes(data.read_bytes()[:-1] + b"!")
    relist(folder, data)


def link_object(folder: Path) -> None:
    data = an_object(folder)
    copy = folder.parent / "copy"
    shutil.move(data, copy)
    data.symlink_to(copy)


FAULTS: dict[str, tuple[Callable[[Path], Any], str]] = {
    "a flipped byte": (lambda folder: flip_byte(an_object(folder)), "the bytes changed"),
    "a longer object": (
        lambda folder: an_object(folder).write_bytes(an_object(folder).read_bytes() + b"x"),
        "bytes, listed are",
    ),
    "a missing object": (lambda folder: an_object(folder).unlink(), "not there"),
    "a linked object": (link_object, "not a regular file"),
    "another object": (change_object, "does not follow from its bytes"),
    "a missing card": (lambda folder: a_card(folder).unlink(), "its card is not there"),
    "a card of another version": (edit_card(sourceVersion="other"), "experimentId does not follow"),
    "a card of another project": (edit_card(projectId="other"), "experimentId does not follow"),
    "a later card": (edit_card(schemaVersion=2), "schema version"),
    "no card": (edit_card(artifact=None), "is no card"),
    "a changed title": (
        lambda folder: a_card(folder).write_text(a_card(folder).read_text() + " "),
        "bytes, listed are",
    ),
    "a stranger": (lambda folder: (folder / "extra.txt").write_text("x"), "not listed"),
    "a damaged sidecar": (lambda folder: next(folder.rglob("*.ext.json")).write_text("{}"), "bytes, listed are"),
    "a damaged README": (lambda folder: (folder / "README.md").write_text(""), "bytes, listed are"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_it_names_each_fault(exported: Path, name: str) -> None:
    change, words = FAULTS[name]
    change(exported)
    said = bare(SCRIPT, exported)
    assert said.returncode == 1, said.stdout + said.stderr
    assert words in said.stdout


def test_it_names_a_fault_within_a_zip(exported: Path, tmp_path: Path) -> None:
    whole, bad = exported.with_suffix(".zip"), tmp_path / "bad.zip"
    with zipfile.ZipFile(whole) as source, zipfile.ZipFile(bad, "w") as target:
        for name in source.namelist():
            data = source.read(name)
            target.writestr(name, data[:-1] + b"!" if name.startswith("objects/") else data)
    said = bare(SCRIPT, bad)
    assert said.returncode == 1
    assert said.stdout.count("FAULT art") + said.stdout.count("FAULT objects/") >= 2
    torn = tmp_path / "torn.zip"
    torn.write_bytes(whole.read_bytes().replace(NEW[:64], b"\0" * 64))
    assert bare(SCRIPT, torn).returncode == 1


def test_what_is_no_export_is_said_to_be_none(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("x")
    for path in (tmp_path, tmp_path / "notes.txt", tmp_path / "absent"):
        said = bare(SCRIPT, path)
        assert (said.returncode, said.stdout) == (2, "")
        assert said.stderr.startswith("verify.py: ")


def test_its_ids_are_those_of_the_product() -> None:
    """The script's own copy of the rules against the identity vectors that both packages are held to."""
    vectors = json.loads((Path(__file__).parent / "identity.json").read_text())
    for vector in vectors["artifacts"]:
        assert verify.artifact_id(vector["sha256"]) == vector["artifactId"]
    for vector in vectors["experiments"]:
        names = ("projectId", "queryFingerprint", "sourceVersion")
        card = {"artifact": {"artifactId": vector["artifactId"]}, **{name: vector[name] for name in names}}
        assert verify.experiment_id(card) == vector["experimentId"]
