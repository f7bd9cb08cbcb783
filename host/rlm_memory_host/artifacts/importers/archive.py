"""Reading an export back, from its folder or zip: everything about its form is checked before a byte is taken.

Owns: which names an export may hold, links, duplicates, sizes against bounds, the manifest against what is there, cards
against the manifest. Does not own: hashing the objects (`taking`, while it reads them), writing.

What makes an archive hostile or no export ends the import with the entry's name, before anything is written: a name
that leads elsewhere, a link or device, a name twice, an encrypted or oddly compressed member, more bytes than the
project may hold, an entry that the manifest does not list or lists otherwise. A fault of one experiment (its card, its
object) refuses that one and leaves the others.

In the project that an export came from ids stay the same; in another one the artifact ids do, and the experiment ids,
which name the project, are made anew (section 27.2).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import stat
import zipfile
import zlib
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol, cast

from rlm_memory.wire import (
    ARTIFACT_MISSING,
    INVALID_PATH,
    NOT_REGULAR_FILE,
    UNSAFE_FILESYSTEM_ENTRY,
    VALIDATION,
)

from rlm_memory_host.artifacts.checks import check_record
from rlm_memory_host.artifacts.export.layout import (
    FORMAT,
    MANIFEST,
    MAX_MANIFEST_BYTES,
    VERSION,
    card_name,
    is_expected,
    object_name,
    sidecar_name,
)
from rlm_memory_host.artifacts.importers.found import Found, Item
from rlm_memory_host.artifacts.importers.tree import Tree, shown
from rlm_memory_host.contracts import ids
from rlm_memory_host.contracts.records import (
    MAX_CARD_BYTES,
    Bounds,
    ExperimentCardV1,
    IndexStateName,
    IndexStateV1,
    RecordRequest,
    parse_card,
)
from rlm_memory_host.errors import FormatVersion, Integrity, Quota, StoreError, TooLarge, UnsafeSource
from rlm_memory_host.storage.objects import BUFFER_BYTES, Check

_MAX_SIDECAR_BYTES: Final = 256 << 10
_COMPRESSIONS: Final = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}
_ENCRYPTED: Final = 0x1
_ZIP_ERRORS: Final = (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError, NotImplementedError, ValueError)


class Reader(Protocol):
    """An export, however it is kept."""

    def sizes(self) -> dict[str, int]:
        """Bytes of every file by name. Raises StoreError for what no export holds."""
        ...

    def chunks(self, name: str, check: Check) -> Iterator[bytes]:
        """A file's bytes, from the start."""
        ...


class FolderReader:
    """An export as a folder."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree

    def sizes(self) -> dict[str, int]:
        """As `Reader.sizes`."""
        found: dict[str, int] = {}
        for entry in self._tree.walk():
            if entry.sort == "link":
                raise _refused(entry.name, "it is a link", UNSAFE_FILESYSTEM_ENTRY)
            if entry.sort != "file":
                raise _refused(entry.name, "it is no regular file", NOT_REGULAR_FILE)
            if not is_expected(entry.name):
                raise _refused(entry.name, "no export holds a file of that name", INVALID_PATH)
            found[entry.name] = entry.size
        return found

    def chunks(self, name: str, check: Check) -> Iterator[bytes]:
        """As `Reader.chunks`."""
        return self._tree.chunks(name, check)


class ZipReader:
    """An export as a zip; nothing is unpacked."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive = archive

    def sizes(self) -> dict[str, int]:
        """As `Reader.sizes`."""
        found: dict[str, int] = {}
        for info in self._archive.infolist():
            kind = stat.S_IFMT(info.external_attr >> 16)
            if kind == stat.S_IFLNK:
                raise _refused(info.filename, "it is a link", UNSAFE_FILESYSTEM_ENTRY)
            if info.is_dir() and kind in (0, stat.S_IFDIR) and _is_folder(info.filename) and info.file_size == 0:
                continue
            if kind not in (0, stat.S_IFREG):
                raise _refused(info.filename, "it is no regular file", NOT_REGULAR_FILE)
            if info.orig_filename != info.filename or not is_expected(info.filename):
                raise _refused(info.orig_filename, "no export holds a file of that name", INVALID_PATH)
            if info.filename in found:
                raise _refused(info.filename, "it is there more than once", VALIDATION)
            if info.flag_bits & _ENCRYPTED or info.compress_type not in _COMPRESSIONS:
                raise _refused(info.filename, "it is encrypted or compressed in a way that no export is", VALIDATION)
            found[info.filename] = info.file_size
        return found

    def chunks(self, name: str, check: Check) -> Iterator[bytes]:
        """As `Reader.chunks`."""
        try:
            with self._archive.open(name) as member:
                while data := member.read(BUFFER_BYTES):
                    yield data
                    check()
        except _ZIP_ERRORS as error:
            raise Integrity(f"{shown(name)}: the archive is damaged there ({type(error).__name__})") from None


def _is_folder(name: str) -> bool:
    first, _, rest = name.rstrip("/").partition("/")
    return first in ("objects", "cards") and (not rest or (first == "objects" and len(rest) == 2 and rest.isalnum()))


@dataclass(frozen=True, slots=True)
class _Listed:
    sha256: str
    size: int


@contextlib.contextmanager
def open_export(path: Path, project_id: str, bounds: Bounds, index_state: IndexStateName) -> Generator[Found]:
    """What an export holds, for the project `project_id`; the items read from it while the context is open.

    Raises UnsafeSource, Integrity, TooLarge, Quota, FormatVersion or StoreError (VALIDATION), naming the entry.
    """
    if path.is_dir():
        with Tree(path) as tree:
            yield _read(FolderReader(tree), project_id, bounds, index_state)
        return
    try:
        if not path.is_file():
            raise OSError
        archive = zipfile.ZipFile(path)
    except _ZIP_ERRORS:
        raise UnsafeSource("it is no folder and no zip file that can be read", INVALID_PATH) from None
    with archive:
        yield _read(ZipReader(archive), project_id, bounds, index_state)


def _read(reader: Reader, project_id: str, bounds: Bounds, index_state: IndexStateName) -> Found:
    sizes = reader.sizes()
    if MANIFEST not in sizes:
        raise UnsafeSource("there is no manifest.json: this is no export of rlm-memory", INVALID_PATH)
    _check_sizes(sizes, bounds)
    experiments, listed = _manifest(_small(reader, MANIFEST, MAX_MANIFEST_BYTES))
    _check_listed(sizes, listed)
    found = Found()
    for experiment in experiments:
        try:
            found.items.append(_item(reader, experiment, listed, project_id, bounds, index_state))
        except StoreError as error:
            found.skip(experiment, error.code, str(error))
    return found


def _check_sizes(sizes: dict[str, int], bounds: Bounds) -> None:
    total = 0
    for name, size in sizes.items():
        is_object = name.startswith("objects/")
        card_bound = _MAX_SIDECAR_BYTES if name.endswith(".ext.json") else MAX_CARD_BYTES
        bound = bounds.artifact_bytes if is_object else card_bound if name.startswith("cards/") else MAX_MANIFEST_BYTES
        if size > bound:
            raise TooLarge(f"{shown(name)}: it has {size:,} bytes, {bound:,} are allowed; nothing was imported")
        total += size if is_object else 0
    if total > bounds.project_bytes:
        raise Quota(
            f"the export holds {total:,} bytes and a project may hold {bounds.project_bytes:,}; nothing was imported"
        )


def _manifest(data: bytes) -> tuple[list[str], dict[str, _Listed]]:
    try:
        document: Any = json.loads(data, object_pairs_hook=_once)
    except (ValueError, RecursionError):
        raise _refused(MANIFEST, "it is not JSON, or names something twice", VALIDATION) from None
    manifest = cast("dict[str, Any]", document) if isinstance(document, dict) else {}
    if manifest.get("format") != FORMAT:
        raise _refused(MANIFEST, "it is not that of an export of rlm-memory", VALIDATION)
    if manifest.get("version") != VERSION:
        raise FormatVersion("the export has a version that this release does not know; upgrade rlm-memory-host")
    experiments: Any = manifest.get("experiments")
    files: Any = manifest.get("files")
    if not isinstance(experiments, list) or not isinstance(files, dict):
        raise _refused(MANIFEST, "it lists no experiments or no files", VALIDATION)
    names = cast("list[Any]", experiments)
    if not all(ids.is_experiment_id(name) for name in names) or len(set(names)) != len(names):
        raise _refused(MANIFEST, "it lists an experiment twice, or something that is none", VALIDATION)
    return names, {name: _listed(name, entry) for name, entry in cast("dict[str, Any]", files).items()}


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({name for name, _ in pairs}) != len(pairs):
        raise ValueError("a name twice")
    return dict(pairs)


def _listed(name: str, entry: Any) -> _Listed:
    fields = cast("dict[str, Any]", entry) if isinstance(entry, dict) else {}
    sha256, size = fields.get("sha256"), fields.get("bytes")
    if not ids.is_sha256(sha256) or not isinstance(size, int) or isinstance(size, bool) or size < 0:
        raise _refused(name, "the manifest lists no digest or size for it", VALIDATION)
    return _Listed(cast("str", sha256), size)


def _check_listed(sizes: dict[str, int], listed: dict[str, _Listed]) -> None:
    for name in listed:
        if name not in sizes:
            raise Integrity(f"{shown(name)}: the manifest lists it, and it is not there", ARTIFACT_MISSING)
    for name, size in sizes.items():
        if name == MANIFEST:
            continue
        if name not in listed:
            raise _refused(name, "the manifest does not list it", VALIDATION)
        if listed[name].size != size:
            raise Integrity(f"{shown(name)}: it has {size:,} bytes, the manifest lists {listed[name].size:,}")


def _item(
    reader: Reader,
    experiment: str,
    listed: dict[str, _Listed],
    project_id: str,
    bounds: Bounds,
    index_state: IndexStateName,
) -> Item:
    card = parse_card(_listed_bytes(reader, card_name(experiment), listed, MAX_CARD_BYTES))
    if card.experiment_id != experiment:
        raise Integrity("the card is another experiment's", VALIDATION)
    artifact, name = card.artifact, object_name(card.artifact.artifact_id)
    if listed.get(name) != _Listed(artifact.sha256, artifact.bytes):
        raise Integrity(f"{name}: the manifest does not list the bytes that the card names")
    request = RecordRequest(
        source_path="",
        title=card.title,
        summary=card.summary,
        query_fingerprint=card.query_fingerprint,
        source=card.source,
        source_version=card.source_version,
        media_type=artifact.media_type,
        tags=card.tags,
        shape=card.shape,
        columns=card.columns,
    )
    check_record(request, bounds)
    note = None
    if sidecar_name(experiment) in listed:
        note = _annotation(_listed_bytes(reader, sidecar_name(experiment), listed, _MAX_SIDECAR_BYTES), experiment)

    def read(check: Check) -> Iterator[bytes]:
        return reader.chunks(name, check)

    adopted = _adopted(card, project_id, index_state)
    return Item(experiment, artifact.bytes, read, request, adopted, note, artifact.sha256)


def _adopted(card: ExperimentCardV1, project_id: str, index_state: IndexStateName) -> ExperimentCardV1:
    """The card in its new project: its own id there, and nothing of it is known to a memory service from here."""
    named = ids.experiment_id(
        project_id=project_id,
        artifact=card.artifact.artifact_id,
        query_fingerprint=card.query_fingerprint,
        source_version=card.source_version,
    )
    update = {"project_id": project_id, "experiment_id": named, "index": IndexStateV1(state=index_state)}
    return parse_card(card.model_copy(update=update).to_json())


def _annotation(data: bytes, experiment: str) -> dict[str, Any]:
    try:
        document: Any = json.loads(data)
        right = document["experimentId"] == experiment and isinstance(document["annotation"], dict)
    except (ValueError, RecursionError, KeyError, TypeError):
        right, document = False, {}
    if not right:
        raise Integrity("its sidecar cannot be read", VALIDATION)
    return cast("dict[str, Any]", document["annotation"])


def _listed_bytes(reader: Reader, name: str, listed: dict[str, _Listed], limit: int) -> bytes:
    if name not in listed:
        raise Integrity(f"{name}: it is not there", ARTIFACT_MISSING)
    data = _small(reader, name, limit)
    if hashlib.sha256(data).hexdigest() != listed[name].sha256:
        raise Integrity(f"{name}: its bytes are not those that the manifest lists")
    return data


def _small(reader: Reader, name: str, limit: int) -> bytes:
    parts: list[bytes] = []
    held = 0
    for data in reader.chunks(name, lambda: None):
        parts.append(data)
        held += len(data)
        if held > limit:
            raise TooLarge(f"{shown(name)}: it has over {limit:,} bytes; nothing was imported")
    return b"".join(parts)


def _refused(name: str, reason: str, code: str) -> UnsafeSource:
    return UnsafeSource(f"{shown(name)}: {reason}; nothing was imported", code)
