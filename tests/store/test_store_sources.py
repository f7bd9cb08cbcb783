"""A record reads one regular file below its own session's exports, and nothing else."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import pytest
from rlm_memory_host.artifacts import ArtifactStore
from rlm_memory_host.contracts.records import Bounds
from rlm_memory_host.contracts.scope import Scope
from rlm_memory_host.errors import StoreError, TooLarge, UnsafeSource
from rlm_memory_host.storage.files import FileLayer
from rlm_memory_host.storage.paths import components_below, parse_absolute
from store_harness import World, request, tree


def refused(world: World, store: ArtifactStore, path: Path | str, scope: Scope | None = None) -> str:
    before = tree(world.root) if world.root.exists() else []
    with pytest.raises(UnsafeSource) as caught:
        store.record(scope or world.scope(), request(path))
    assert (tree(world.root) if world.root.exists() else []) == before
    return caught.value.code


def test_other_places_are_refused(world: World, store: ArtifactStore) -> None:
    """Outside, the session's own folder, another session, prefix twins, `..`, relative, empty."""
    secret = world.folder / "secret.txt"
    secret.write_text("secret")
    session = world.scope().session_dir
    assert session is not None
    (session / "snapshot.bin").write_text("state")
    other = world.write(b"theirs", session="session-2")
    twin = session / "exports-twin"
    twin.mkdir()
    (twin / "a").write_text("a")
    for path in (
        secret,
        session / "snapshot.bin",
        other,
        twin / "a",
        f"{session}/exports/../snapshot.bin",
        f"{session}/exports/./result.bin",
        f"{session}/exports//result.bin",
        session / "exports",
        f"{session}/exports/",
        session / "exports" / "nothing-here",
        "exports/result.bin",
        "",
        "result.bin\x00",
    ):
        assert refused(world, store, path) == "INVALID_PATH"


def test_links_are_refused_wherever_they_stand(world: World, store: ArtifactStore) -> None:
    """As the file, as a folder on the way, as exports itself, and hard links."""
    outside = world.folder / "outside"
    outside.mkdir()
    (outside / "f").write_text("secret")
    exports = world.scope().exports
    assert exports is not None
    (exports / "link").symlink_to(outside / "f")
    (exports / "folder").symlink_to(outside)
    (outside / "g").write_text("another")
    (exports / "hard").hardlink_to(outside / "g")
    assert refused(world, store, exports / "link") == "UNSAFE_FILESYSTEM_ENTRY"
    assert refused(world, store, exports / "folder" / "f") == "UNSAFE_FILESYSTEM_ENTRY"
    assert refused(world, store, exports / "hard") == "UNSAFE_FILESYSTEM_ENTRY"
    scope = world.scope(session="session-2")
    assert scope.exports is not None
    scope.exports.rmdir()
    scope.exports.symlink_to(outside)
    assert refused(world, store, scope.exports / "f", scope) == "UNSAFE_FILESYSTEM_ENTRY"


def test_what_is_no_regular_file_is_refused_at_once(world: World, store: ArtifactStore) -> None:
    """A pipe nobody writes to, a socket, a device and a folder neither block nor are opened."""
    exports = world.scope().exports
    assert exports is not None
    os.mkfifo(exports / "pipe")
    (exports / "folder").mkdir()
    names = ["pipe", "folder"]
    with socket.socket(socket.AF_UNIX) as listener:
        folder = os.open(exports, os.O_RDONLY)
        listener.bind(f"/proc/self/fd/{folder}/socket")
        os.close(folder)
        names.append("socket")
        if os.geteuid() == 0:
            os.mknod(exports / "device", stat.S_IFCHR | 0o600, os.makedev(1, 5))
            names.append("device")
        for name in names:
            assert refused(world, store, exports / name) == "NOT_REGULAR_FILE"


def test_a_session_reached_through_a_link_is_fine(world: World, store: ArtifactStore) -> None:
    """The session's folder is the host's own word; either spelling of it works."""
    world.write(b"bytes")
    (world.folder / "alias").symlink_to(world.folder / "sessions")
    scope = Scope(world.project, "session-1", world.folder / "alias" / "session-1")
    assert scope.exports is not None
    assert store.record(scope, request(scope.exports / "result.bin")).bytes == 5
    assert store.record(scope, request(world.write(b"bytes"))).deduplicated


def test_a_caller_without_a_session_folder_cannot_record(store: ArtifactStore) -> None:
    """It is told so by name."""
    with pytest.raises(StoreError) as caught:
        store.record(Scope("project-a", "s", None), request("/etc/hostname"))
    assert caught.value.code == "INVALID_SCOPE"


def test_a_file_over_the_bound_is_refused_before_it_is_read(world: World) -> None:
    """With both numbers."""
    with world.open(bounds=Bounds(artifact_bytes=10)) as store, pytest.raises(TooLarge, match=r"11 bytes.*10"):
        world.record(store, b"x" * 11)


class Meddling(FileLayer):
    """Changes the source between two copy steps, as a kernel that still writes to it would."""

    def __init__(self, path: Path, how: str) -> None:
        self.path = path
        self.how = how

    def copy(self, source: int, descriptor: int, offset: int, count: int) -> int:
        copied = super().copy(source, descriptor, offset, min(count, 1_000))
        how, self.how = self.how, ""
        if how == "grow":
            with self.path.open("ab") as file:
                file.write(b"more")
        elif how == "shrink":
            os.truncate(self.path, 500)
        elif how == "rewrite":
            with self.path.open("r+b") as file:
                file.write(b"other")
            os.utime(self.path, ns=(1, 1))
        elif how == "replace":
            self.path.rename(self.path.with_name("moved"))
            self.path.write_bytes(b"x" * 5_000)
        elif how == "remove":
            self.path.unlink()
        elif how == "link":
            self.path.with_name("twin").hardlink_to(self.path)
        return copied


@pytest.mark.parametrize("how", ["grow", "shrink", "rewrite", "replace", "remove", "link"])
def test_a_source_that_changes_while_it_is_read_is_refused(world: World, how: str) -> None:
    """Whatever changed; nothing of it is kept and nothing is left behind."""
    path = world.write(b"x" * 5_000)
    with world.open(files=Meddling(path, how)) as store:
        with pytest.raises(UnsafeSource) as caught:
            store.record(world.scope(), request(path))
        assert caught.value.code == "FILE_MUTATED"
        assert not world.objects()
        assert not list(world.layout.temporary.iterdir())
        assert not store.search(world.scope(), _all()).total


def _all():
    from rlm_memory_host.contracts.records import SearchRequest

    return SearchRequest()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "relative",
        "a/b",
        "//server/share/f",
        "\\\\server\\share\\f",
        "\\\\?\\C:\\f",
        "\\\\.\\PhysicalDrive0",
        "C:\\exports\\f",
        "C:f",
        "\\f",
        "/a/../b",
        "/a/./b",
        "/a//b",
        "/a/",
        "/a\x00b",
        "/" + "x" * 5_000,
        "/\ud800x\udfff",
    ],
)
def test_posix_path_rules(text: str) -> None:
    """Shapes that are refused before the file system is asked."""
    with pytest.raises(UnsafeSource) as caught:
        parse_absolute(text)
    assert caught.value.code == "INVALID_PATH"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "f",
        "C:f",
        "C:",
        "\\f",
        "/f",
        "\\\\server\\share\\f",
        "//server/share/f",
        "\\\\?\\C:\\f",
        "\\\\.\\C:\\f",
        "C:\\a\\..\\b",
        "C:\\a\\.\\b",
        "C:\\a\\\\b",
        "C:\\a\\f.txt:stream",
        "C:\\a\\f.txt::$DATA",
        "C:\\a\\NUL",
        "C:\\a\\con.txt",
        "C:\\COM1\\f",
        "C:\\a\\LPT\u00b9",
        "C:\\a\\f. ",
        "C:\\a\\f.",
        "C:\\a\\f?",
    ],
)
def test_windows_path_rules(text: str) -> None:
    """Shares, devices, streams, drive-relative paths, names that Windows changes."""
    with pytest.raises(UnsafeSource) as caught:
        parse_absolute(text, "windows")
    assert caught.value.code == "INVALID_PATH"


def test_containment_is_by_components() -> None:
    """A twin by prefix is not inside; Windows compares without case."""
    exports = parse_absolute("/s/1/exports")
    assert components_below(parse_absolute("/s/1/exports/a/b"), exports) == ("a", "b")
    for outside in ("/s/1/exports", "/s/1/exports-twin/a", "/s/1/export/a", "/s/10/exports/a", "/s/1/Exports/a"):
        assert components_below(parse_absolute(outside), exports) is None
    folder = parse_absolute("c:\\S\\exports", "windows")
    assert components_below(parse_absolute("C:/s/Exports/a", "windows"), folder, fold=True) == ("a",)
    assert components_below(parse_absolute("D:/s/exports/a", "windows"), folder, fold=True) is None
