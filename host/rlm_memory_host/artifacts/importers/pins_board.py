"""A pins board in a folder: every file of every version of every pin is one result.

Owns: the layout `<pin>/<version>/data.txt` with the files that `data.txt` names beside it. PATH is the board's folder.
Pins of type joblib, pickle, rds or qs are kept as bytes and never loaded. Other types come with the media type of the
file, so that they open as what they are; a table is not parsed here and stays the very file that was pinned.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final

from rlm_memory.wire import INVALID_PATH, UNSAFE_FILESYSTEM_ENTRY, VALIDATION

from rlm_memory_host.artifacts.importers.found import Found, Item, described, fitting
from rlm_memory_host.artifacts.importers.tree import Entry, Tree, is_plain
from rlm_memory_host.artifacts.importers.yaml_text import MAX_BYTES, NotPlain, load_mapping, text_of, texts_of
from rlm_memory_host.contracts import ids
from rlm_memory_host.contracts.records import DEFAULT_MEDIA_TYPE

DATA: Final = "data.txt"
MEDIA: Final = {
    "csv": "text/csv",
    "json": "application/json",
    "parquet": "application/vnd.apache.parquet",
    "arrow": "application/vnd.apache.arrow.file",
    "feather": "application/vnd.apache.arrow.file",
}
"""Media types by pin type; any other is octets."""


def find_pins(tree: Tree) -> Found:
    """Every pinned file below the folder."""
    entries = {entry.name: entry for entry in tree.walk()}
    found = Found()
    for name, entry in entries.items():
        if entry.parts[-1] != DATA or len(entry.parts) < 3:
            continue
        if entry.sort != "file":
            found.skip(name, UNSAFE_FILESYSTEM_ENTRY, "it is a link or no regular file")
            continue
        data = tree.read(name, MAX_BYTES)
        try:
            told = load_mapping(data if data is not None else b"")
        except NotPlain as error:
            found.skip(name, VALIDATION, f"its metadata cannot be read: {error}")
            continue
        _version(tree, entries, entry, told, found)
    return found


def _version(tree: Tree, entries: dict[str, Entry], data: Entry, told: dict[str, Any], found: Found) -> None:
    files = texts_of(told.get("file"))
    if not files:
        found.skip(data.name, VALIDATION, "its metadata names no file")
    for file in files:
        name = "/".join((*data.parts[:-1], file))
        if not is_plain(file):
            found.skip(data.name, INVALID_PATH, "its metadata names a file outside the pin's folder")
        elif name not in entries or entries[name].sort != "file":
            found.skip(name, UNSAFE_FILESYSTEM_ENTRY, "it is not there, a link, or no regular file")
        else:
            found.items.append(_item(tree, entries[name], data.parts[-2], file, told, alone=len(files) == 1))


def _item(tree: Tree, entry: Entry, version: str, file: str, told: dict[str, Any], *, alone: bool) -> Item:
    depth = len(file.split("/")) + 1
    pin = "/".join(entry.parts[:-depth])
    kind = text_of(told.get("type"))
    identity = {"importer": "pins", "pin": pin, "file": file}
    title = text_of(told.get("title")) or pin
    request = described(
        title=title if alone else f"{title} ({file})",
        summary=text_of(told.get("description")) or f"Pin {pin}, type {kind or 'unknown'}, from a pins board.",
        fingerprint=hashlib.sha256(ids.canonical_json(identity)).hexdigest(),
        source=f"pins:{pin}",
        version=version,
        media_type=MEDIA.get(kind, DEFAULT_MEDIA_TYPE),
        tags=["pins", kind, *texts_of(told.get("tags"))],
    )
    fields = ("type", "created", "pin_hash", "urls", "user", "api_version")
    note = {"from": "pins", "pin": pin, "version": version, "file": file}
    note |= {key: told[key] for key in fields if told.get(key)}
    name = entry.name
    return Item(name, entry.size, lambda check: tree.chunks(name, check), request, note=fitting(note, "user"))
