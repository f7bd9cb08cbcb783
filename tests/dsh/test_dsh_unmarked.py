"""Our row in a file that a program rewrote without our comments: it is known, and it goes alone."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml
from rlm_memory_host.dsh import installing, patchfile, unmarked
from rlm_memory_host.errors import SettingsError

OURS = {
    "id": "rlm-memory",
    "name": "file:///x/memory/bridge.mjs",
    "config": {"stateRoot": "/x", "command": ["a", "-m"], "text": "two\nlines\n", "empty": []},
}
A: dict[str, Any] = {"id": "a", "config": {"list": [1, {"b": None}]}}
Z: dict[str, Any] = {"id": "z", "name": "file:///elsewhere/bridge.mjs"}

LISTS: dict[str, tuple[list[Any], list[Any]]] = {
    "alone": ([{"insert": [OURS]}], []),
    "first": ([{"insert": [OURS]}, A], [A]),
    "last": ([A, {"insert": [OURS]}], [A]),
    "between": ([A, {"insert": [OURS]}, Z], [A, Z]),
    "in a composition": ([A, OURS, Z], [A, Z]),
    "first of an insert": ([{"insert": [OURS, Z]}, A], [{"insert": [Z]}, A]),
    "last of an insert": ([{"insert": [Z, OURS]}, A], [{"insert": [Z]}, A]),
    "twice": ([{"insert": [OURS]}, A, {"insert": [copy.deepcopy(OURS)]}], [A]),
}


def dumped(rows: list[Any], **options: Any) -> bytes:
    """As a program writes rows."""
    dump: Any = yaml.safe_dump
    return str(dump(copy.deepcopy(rows), sort_keys=False, **options)).encode() if rows else b""


@pytest.mark.parametrize("name", LISTS)
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_our_row_goes_and_every_other_byte_stays(name: str, end: bytes, mark: bytes) -> None:
    """Comments of others too, before and after."""
    given, left = LISTS[name]
    text = (mark + b"# top\n" + dumped(given) + b"# end\n").replace(b"\n", end)
    assert unmarked.holds_row(text)
    cut = unmarked.without_row(text)
    assert not unmarked.holds_row(cut)
    assert (yaml.safe_load(cut.decode("utf-8-sig")) or []) == left
    assert cut == (mark + b"# top\n" + dumped(left) + b"# end\n").replace(b"\n", end)


@pytest.mark.parametrize("options", [{"default_flow_style": True}, {"indent": 4}, {"width": 20}])
def test_another_style_is_cut_or_refused(options: dict[str, Any]) -> None:
    """Never half."""
    text = dumped([A, {"insert": [OURS]}], **options)
    try:
        cut = unmarked.without_row(text)
    except SettingsError:
        assert "default_flow_style" in options
    else:
        assert yaml.safe_load(cut) == [A]


@pytest.mark.parametrize(
    "text",
    [
        b'[{id: rlm-memory, name: "file:///x/memory/bridge.mjs"}]\n',
        b"- &r\n  id: rlm-memory\n  name: file:///x/memory/bridge.mjs\n- *r\n",
        b"- id: rlm-memory\n  name: file:///x/memory/bridge.mjs\n  config: &c [*c]\n",
        b"- - id: a\n- {insert: [{id: rlm-memory, name: file:///x/memory/bridge.mjs}, {id: z}]}\n",
    ],
)
def test_what_cannot_be_cut_out_safely_is_refused(text: bytes) -> None:
    """Rows in brackets, rows that others refer to, rows that hold themselves."""
    with pytest.raises(SettingsError, match="by hand"):
        unmarked.without_row(text)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"id: rlm-memory\n",
        b"- id: rlm-memory\n",
        b"- id: rlm-memory\n  name: file:///x/other.mjs\n",
        b"- id: mine\n  name: file:///x/memory/bridge.mjs\n",
        b"- insert: rlm-memory\n",
        b"- [rlm-memory]\n",
        b"{ not yaml\n",
        b"\xff\xfe",
    ],
)
def test_what_is_not_ours_is_left_alone(text: bytes) -> None:
    """Neither by id alone nor by module alone, and no text that is no YAML."""
    assert not unmarked.holds_row(text)
    assert unmarked.without_row(text) == text


def test_remove_and_install_know_a_row_without_marks(tmp_path: Path) -> None:
    """An editor rewrote the file; a second install leaves one row, a removal none, and the module goes."""
    home, root = tmp_path / "home", tmp_path / "state"
    home.mkdir()
    place = installing.place_of(home, None, None)
    place.rows.write_bytes(dumped([A]))
    installing.install(place, root, {"stateRoot": str(root)})
    place.rows.write_bytes(dumped(yaml.safe_load(place.rows.read_bytes())))
    assert not patchfile.holds_block(place.rows.read_bytes())
    assert installing.is_installed(place.rows)
    installing.install(place, root, {"stateRoot": str(root)})
    assert len(yaml.safe_load(place.rows.read_bytes())) == 2
    place.rows.write_bytes(dumped(yaml.safe_load(place.rows.read_bytes())))
    removed = installing.remove(place, root)
    assert (removed.block, removed.module, removed.token) == (True, True, True)
    assert place.rows.read_bytes() == dumped([A])
