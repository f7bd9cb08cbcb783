"""Our row in a list of rows that a program rewrote without comments: found by what it says, and taken out.

Owns: what makes a row ours without our marks (its id, and a module of the bridge's name), and cutting it out. Does not
own: the marked block (`patchfile`), files. Only the lines of the row itself go. What is left is read again: where it
would not be the same rows without ours, nothing is changed and the text is refused.

Source: design page "DeepSeek Harness and MCP", Ways in.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import yaml

from rlm_memory_host.errors import SettingsError

YAML: Final[Any] = yaml
"""Its nodes have no types of their own."""
ROW_ID: Final = "rlm-memory"
MODULE_END: Final = "/memory/bridge.mjs"
BY_HAND: Final = "our row was rewritten by another program and cannot be cut out safely; take it out by hand"

Row = tuple[Any, ...]


def holds_row(text: bytes) -> bool:
    """Whether a text holds a row of ours; a text that is no YAML holds none."""
    root = _composed(text)
    return root is not None and next(_ours(root), None) is not None


def without_row(text: bytes) -> bytes:
    """The text without our rows; itself where it holds none. Raises SettingsError where one cannot be cut out."""
    root = _composed(text)
    while root is not None and (found := next(_ours(root), None)) is not None:
        try:
            wanted = _without(_plain(root), found)
            text = _cut(text, found)
            root = _composed(text)
            left = () if root is None else _plain(root)
        except RecursionError:
            raise SettingsError(BY_HAND) from None
        if left != wanted:
            raise SettingsError(BY_HAND)
    return text


def _composed(text: bytes) -> Any:
    try:
        return YAML.compose(text.decode("utf-8-sig"), Loader=YAML.SafeLoader)
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError):
        return None


def _ours(root: Any) -> Iterator[tuple[int, ...]]:
    """Where our rows stand: (item,) or (item, row of its `insert`). An `insert` of ours alone goes as a whole."""
    items: list[Any] = root.value if isinstance(root, YAML.SequenceNode) else []
    for at, item in enumerate(items):
        if _is_ours(item):
            yield (at,)
        inserted = _field(item, "insert")
        rows: list[Any] = inserted.value if isinstance(inserted, YAML.SequenceNode) else []
        for number, row in enumerate(rows):
            if _is_ours(row):
                yield (at,) if len(rows) == 1 else (at, number)


def _is_ours(row: Any) -> bool:
    name, row_id = _field(row, "name"), _field(row, "id")
    texts = [node.value if isinstance(node, YAML.ScalarNode) else "" for node in (row_id, name)]
    return texts[0] == ROW_ID and texts[1].startswith("file:") and texts[1].endswith(MODULE_END)


def _field(row: Any, name: str) -> Any:
    pairs: list[tuple[Any, Any]] = row.value if isinstance(row, YAML.MappingNode) else []
    return next((value for key, value in pairs if key.value == name), None)


def _cut(text: bytes, place: tuple[int, ...]) -> bytes:
    """The text without the lines of an item of a block list."""
    mark = b"\xef\xbb\xbf" if text.startswith(b"\xef\xbb\xbf") else b""
    source = text.decode("utf-8-sig")
    parent = _composed(text)
    if len(place) == 2:
        parent = _field(parent.value[place[0]], "insert")
    node = parent.value[place[-1]]
    start = source.rfind("\n", 0, node.start_mark.index) + 1
    if parent.flow_style or source[start : node.start_mark.index].strip() != "-":
        raise SettingsError(BY_HAND)
    end = source.find("\n", _last(node))
    return mark + (source[:start] + ("" if end < 0 else source[end + 1 :])).encode("utf-8")


def _last(node: Any) -> int:
    """Where the last sign of a node stands: a block's own end is where the next token begins, after any comments."""
    if isinstance(node, YAML.ScalarNode) or node.flow_style or not node.value:
        return max(node.start_mark.index, node.end_mark.index - 1)
    last = node.value[-1]
    return _last(last[1] if isinstance(last, tuple) else last)


def _plain(node: Any) -> Row:
    if isinstance(node, YAML.ScalarNode):
        return (node.tag, node.value)
    if isinstance(node, YAML.MappingNode):
        return ("map", *((_plain(key), _plain(value)) for key, value in node.value))
    return ("seq", *(_plain(item) for item in node.value))


def _without(rows: Row, place: tuple[int, ...]) -> Row:
    """The rows without the one at a place; () for none left."""
    at = place[0] + 1
    if len(place) == 1:
        left = rows[:at] + rows[at + 1 :]
        return left if len(left) > 1 else ()
    inserted = place[1] + 1
    pairs = [
        (key, value[:inserted] + value[inserted + 1 :] if key[1] == "insert" else value) for key, value in rows[at][1:]
    ]
    return (*rows[:at], ("map", *pairs), *rows[at + 1 :])
