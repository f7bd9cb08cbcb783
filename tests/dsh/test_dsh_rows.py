"""The bridge's row in a file of rows that a user writes: it loads, and it leaves no trace."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from rlm_memory_host.bearer import existing_token
from rlm_memory_host.dsh import installing, patchfile
from rlm_memory_host.errors import SettingsError

ROW = {"insert": [{"id": "rlm-memory", "name": "file:///home/ü/bridge.mjs", "config": {"stateRoot": "/x"}}]}

FILES = {
    "empty": b"",
    "blank": b"\n\n",
    "comments": b"# mine\n# more\n",
    "comments, no final newline": b"# mine\n# more",
    "an empty flow list": b"[]\n",
    "an empty flow list after comments": b"# mine\n[]",
    "an empty flow list over lines": b"[\n  # nothing yet\n]\n",
    "a flow list": b'[{"id": "a", "disabled": true}, {id: b}]\n',
    "a flow list on the document's line": b"--- []\n",
    "a block list": b"- id: a\n  disabled: true\n",
    "no final newline": b"- id: a\n  disabled: true",
    "windows line ends": b"# mine\r\n- id: a\r\n  disabled: true\r\n",
    "windows line ends, none at the end": b"[]\r\n# end",
    "an indented list": b"# mine\n\n   -   id: a\n       disabled:    true   # why\n\n\n   - id: b\n",
    "a document's start": b"%YAML 1.2\n---\n# mine\n- id: a\n",
    "a byte order mark": b"\xef\xbb\xbf- id: a\n",
    "the harness's own tags": b"- id: a\n  disabled: !!js process.platform === 'win32'\n",
    "a text block at the end": b"- id: a\n  config:\n    text: |+\n      one\n\n\n",
    "a dash alone": b"-\n  id: a\n",
}


class Loader(yaml.SafeLoader):
    """Reads the harness's own tag as text."""


def _js(loader: yaml.SafeLoader, node: Any) -> object:
    return loader.construct_scalar(node)


Loader.add_constructor("tag:yaml.org,2002:js", _js)  # pyright: ignore[reportUnknownMemberType]


def rows(text: bytes) -> list[Any]:
    """The rows of a file, as YAML has them."""
    return yaml.load(text.decode("utf-8-sig"), Loader) or []


@pytest.mark.parametrize("text", FILES.values(), ids=FILES.keys())
def test_the_row_is_there_with_the_users_own_and_goes_without_a_trace(text: bytes) -> None:
    """The list has one row more; installed twice it still has one; removed, the bytes are what they were."""
    changed = patchfile.with_block(text, ROW)
    found = rows(changed)
    assert [row for row in found if row != ROW] == rows(text)
    assert found.count(ROW) == 1
    assert patchfile.with_block(changed, ROW) == changed
    assert patchfile.without_block(changed) == text


@pytest.mark.parametrize("text", FILES.values(), ids=FILES.keys())
def test_what_a_user_writes_meanwhile_stays(text: bytes) -> None:
    """Rows and comments that came after the install are still there when ours is taken out."""
    changed = patchfile.with_block(text, ROW)
    assert patchfile.without_block(changed + b"# later\n") == text + b"# later\n"
    assert patchfile.without_block(b"# first\n" + changed) == b"# first\n" + text


@given(
    st.lists(st.sampled_from(["# c", "", "- id: a", "  b: 1", "- {id: x}", "\t", "# rlm-memory", "[]"])),
    st.sampled_from(["\n", "\r\n"]),
    st.booleans(),
)
def test_any_text_is_restored_or_refused(lines: list[str], end: str, ends: bool) -> None:
    """Whatever a file holds, taking out what was put in gives the same bytes."""
    text = (end.join(lines) + (end if ends else "")).encode()
    try:
        changed = patchfile.with_block(text, ROW)
    except SettingsError:
        return
    assert patchfile.without_block(changed) == text


@pytest.mark.parametrize("text", [b"id: a\n", b"just text\n", b"!!seq [a]\n", b"&a []\n", "- id: a\n".encode("utf-16")])
def test_what_is_no_plain_list_of_rows_is_refused(text: bytes) -> None:
    """Where the row would belong is not guessed."""
    with pytest.raises(SettingsError, match="list of rows"):
        patchfile.with_block(text, ROW)


@pytest.fixture
def place(tmp_path: Path) -> installing.Place:
    """A home without anything in it."""
    (tmp_path / "home").mkdir()
    return installing.place_of(tmp_path / "home", None, None)


def test_an_absent_file_is_absent_again(place: installing.Place, tmp_path: Path) -> None:
    """The home is as empty as before, and nothing serves any more."""
    root = tmp_path / "state"
    installing.install(place, root, {"stateRoot": str(root)})
    assert place.module.read_bytes() == installing.module_text()
    assert rows(place.rows.read_bytes())[0]["insert"][0]["name"] == place.module.as_uri()
    assert existing_token(root, "loopback") is not None
    assert installing.remove(place, root) == installing.Removed(True, True, True)
    assert list(place.home.iterdir()) == []
    assert existing_token(root, "loopback") is None
    assert installing.remove(place, root) == installing.Removed(False, False, False)


def test_a_file_keeps_its_mode_and_a_link_stays_one(place: installing.Place, tmp_path: Path) -> None:
    """Dotfiles that are linked from elsewhere are written where they are."""
    real = tmp_path / "dotfiles.yml"
    real.write_bytes(b"[]\n")
    real.chmod(0o640)
    place.rows.symlink_to(real)
    root = tmp_path / "state"
    installing.install(place, root, {})
    assert place.rows.is_symlink()
    assert b"rlm-memory" in real.read_bytes()
    installing.remove(place, root)
    assert (real.read_bytes(), stat.S_IMODE(real.stat().st_mode)) == (b"[]\n", 0o640)
    assert [entry.name for entry in place.home.iterdir()] == ["cordis.patch.yml"]


def test_a_file_that_was_empty_stays(place: installing.Place, tmp_path: Path) -> None:
    """Only a file that the install made is deleted."""
    place.rows.write_bytes(b"")
    installing.install(place, tmp_path / "state", {})
    installing.remove(place, tmp_path / "state")
    assert place.rows.read_bytes() == b""


def test_the_module_stays_while_another_file_names_it(place: installing.Place, tmp_path: Path) -> None:
    """A profile's install beside the home's: the last removal takes module and token."""
    (place.home / "profiles" / "sdk").mkdir(parents=True)
    other, root = installing.place_of(place.home, "sdk", None), tmp_path / "state"
    for one in (place, other):
        installing.install(one, root, {})
    assert installing.remove(place, root) == installing.Removed(True, False, False)
    assert installing.remove(other, root) == installing.Removed(True, True, True)


def test_a_refused_file_is_left_with_nothing_written(place: installing.Place, tmp_path: Path) -> None:
    """No module, no token, the same bytes."""
    place.rows.write_bytes(b"not: a list\n")
    with pytest.raises(SettingsError):
        installing.install(place, tmp_path / "state", {})
    assert place.rows.read_bytes() == b"not: a list\n"
    assert not place.module.exists()
    assert existing_token(tmp_path / "state", "loopback") is None


@pytest.mark.parametrize("profile", ["", "..", "a/b", "absent"])
def test_a_profile_that_is_not_there_is_refused(tmp_path: Path, profile: str) -> None:
    """Nothing outside `profiles/` is reached."""
    with pytest.raises(SettingsError, match="--profile"):
        installing.place_of(tmp_path, profile, None)


def test_the_commands_tell_what_they_did(tmp_path: Path, state_root: Path, rlm_memory: Callable[..., str]) -> None:
    """Install, row and remove, as an operator types them."""
    home = tmp_path / "home"
    home.mkdir()
    patch = home / "cordis.patch.yml"
    patch.write_bytes(b"# mine\r\n[]")
    assert str(patch) in rlm_memory("dsh", "install", "--home", str(home))
    printed = rlm_memory("dsh", "row", "--home", str(home)).removeprefix("- ")
    assert json.loads(printed) == rows(patch.read_bytes())[0]
    assert json.loads(printed)["insert"][0]["config"]["stateRoot"] == str(state_root)
    assert "the loopback API ends" in rlm_memory("dsh", "remove", "--home", str(home))
    assert patch.read_bytes() == b"# mine\r\n[]"
