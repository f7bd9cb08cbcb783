"""Looking for secrets in a result before it is recorded (`record(..., secrets="refuse")`).

Owns: the texts of a file in exports/, piece by piece, and what is refused because nobody can look into it. Does not
own: what a secret looks like: the host's guard knows, so every text of the result goes there, over the same channel as
everything else and no further.

A Parquet file is read column by column, keys and names too; a zip file member by member; an array of texts cell by
cell, and one of numbers not at all; any other file as text in UTF-8, with the zeros of wider letters left out. What is
compressed in another way, encrypted, or a form of data that hides its texts is refused: nothing is recorded that was
not looked through. A secret in base64, in pixels, or cut in two by a binary form is not seen.

Source: design page "Recall, resident text, guard, audit, health, tools", Guard.
"""

from __future__ import annotations

import codecs
import re
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any, Final, cast

from rlm_memory import errors, wire
from rlm_memory.finding import Host
from rlm_memory.steps import Ask, Steps, Work

PIECE: Final = 160_000
"""Characters of one question to the host: under its limits whatever they are."""
OVERLAP: Final = 4_096
"""Characters of a text that the next piece of it begins with, so that nothing is cut in two."""
_BETWEEN: Final = "\n¶\n"
"""Between texts that have nothing to do with each other, so that two do not look like one."""
_READ: Final = 1 << 17
_CLOSED: Final = (
    b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd", b"7z\xbc\xaf", b"\x04\x22\x4d\x18", b"Rar!", b"\x89HDF",
    b"ARROW1", b"FEA1", b"ORC", b"Obj\x01", b"%PDF", b"\x78\x9c", b"\x78\xda", b"\x78\x01", b"\x78\x5e",
    b"\x5d\x00\x00", b"SQLite format 3\x00",
)  # fmt: skip
"""How compressed files begin, containers with compressed parts, and forms that put one text right behind another."""
_ARRAY: Final = re.compile(rb"\x93NUMPY.{2,6}\{'descr': (?:'[<>|=]?([a-zA-Z][0-9]*)|\[)", re.DOTALL)
_PADDING: Final = re.compile(rb"\x00{4,}")
"""More zeros than a letter of any width has: what is before and behind has nothing to do with each other."""
_NOISE: Final = re.compile("[ \ufffd]{2,}")
_CELLS: Final = 4_096
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")


def check_choice(secrets: object) -> None:
    """Raises Invalid for anything but the two words."""
    if secrets not in ("keep", "refuse"):
        raise errors.Invalid('secrets must be "keep" (the bytes are not looked at) or "refuse"')


def refuse(path: Path, host: Host) -> Steps[None]:
    """Return when no text in the file looks like a secret.

    Raises Denied (GUARD_SECRET) with place and kind, never the text; NotExact for a file that cannot be looked into.
    """
    if not host.ours:
        raise errors.Unsupported(
            'secrets="refuse" needs the host of rlm-memory, which looks for secrets; nothing was recorded'
        )
    pieces = _pieces(_texts(path))
    while piece := cast("dict[str, str] | None", (yield Work(lambda: next(pieces, None)))):
        fields = yield Ask(wire.SCAN, {"texts": piece})
        found = cast("list[dict[str, Any]] | None", fields.get("findings"))
        if found is None:
            raise errors.Unsupported("the host said nothing about secrets; nothing was recorded")
        if found:
            places = ", ".join(f"{item.get('place')} ({item.get('pattern')})" for item in found[:5])
            raise errors.from_code(
                wire.GUARD_SECRET,
                f"the result looks like it holds a secret: {places}; nothing was recorded. Take it out, or leave out "
                'secrets="refuse" where it is none',
            )


def _pieces(texts: Iterable[tuple[str, str]]) -> Iterator[dict[str, str]]:
    """(place, text) in questions of at most `PIECE` characters."""
    piece: dict[str, str] = {}
    size = 0
    for place, whole in texts:
        text = _NOISE.sub(" ", _CONTROL.sub(" ", whole))
        step = PIECE - OVERLAP
        for start in range(0, max(1, len(text) - OVERLAP), step):
            part = text[start : start + PIECE]
            if piece and size + len(part) > PIECE:
                yield piece
                piece, size = {}, 0
            piece[place] = piece[place] + _BETWEEN + part if place in piece else part
            size += len(part) + len(_BETWEEN)
    if piece:
        yield piece


def _texts(path: Path) -> Iterator[tuple[str, str]]:
    with path.open("rb") as file:
        yield from _of_stream(file, "the file", path)


def _of_stream(file: IO[bytes], place: str, path: Path | None = None) -> Iterator[tuple[str, str]]:
    head = file.read(_READ)
    if path is not None and head.startswith(b"PAR1"):
        yield from _of_parquet(path)
    elif path is not None and (head.startswith(b"PK\x03\x04") or zipfile.is_zipfile(path)):
        if not head.startswith(b"PK\x03\x04"):
            yield from _of_bytes(file, head, place)
        yield from _of_zip(path, file)
    elif head.startswith((*_CLOSED, b"PAR1", b"PK\x03\x04")) and not _is_plain(head):
        raise errors.NotExact(
            f'{place} is compressed, has parts that are, or keeps its texts in a form of its own: secrets="refuse" '
            'cannot look into it, so nothing was recorded; record what is in it, or leave out secrets="refuse"',
            where=place,
        )
    elif (kind := _ARRAY.match(head)) is not None:
        yield from _of_array(file, head, kind[1] or b"V", place)
    else:
        yield from _of_bytes(file, head, place)


def _of_array(file: IO[bytes], head: bytes, kind: bytes, place: str) -> Iterator[tuple[str, str]]:
    """Texts cell by cell, in rows of several fields too; numbers of more than a byte are none."""
    if kind[:1] in b"USV":
        import numpy

        file.seek(0)
        try:
            cells: Any = numpy.lib.format.read_array(file, allow_pickle=False).ravel()
        except ValueError:
            file.seek(0)
            yield from _of_bytes(file, file.read(_READ), place)
            return
        for start in range(0, len(cells), _CELLS):
            some = cells[start : start + _CELLS].tolist()
            yield place, _BETWEEN.join(text for cell in some for text in _in_value(cell))
    elif kind[:1] not in b"iufcmM" or kind[1:] == b"1":
        yield from _of_bytes(file, head, place)


def _is_plain(head: bytes) -> bool:
    """Whether what is read is text all the same, though it begins like something else."""
    try:
        return b"\x00" not in head and _CONTROL.search(codecs.getincrementaldecoder("utf-8")().decode(head)) is None
    except UnicodeDecodeError:
        return False


def _of_bytes(file: IO[bytes], head: bytes, place: str) -> Iterator[tuple[str, str]]:
    decode = codecs.getincrementaldecoder("utf-8")("replace").decode
    before = ""
    while head:
        text = before + decode(_PADDING.sub(b"\n", head).replace(b"\x00", b""))
        yield place, text
        before = text[-OVERLAP:]
        head = file.read(_READ)


def _of_zip(path: Path, whole: IO[bytes]) -> Iterator[tuple[str, str]]:
    """The members, their names and notes, and what stands behind them."""
    try:
        with zipfile.ZipFile(path) as archive:
            yield "notes of the file", archive.comment.decode("utf-8", "replace")
            for number, member in enumerate(archive.infolist(), 1):
                yield "names in the file", member.filename
                yield "notes of the file", member.comment.decode("utf-8", "replace")
                with archive.open(member) as file:
                    yield from _of_stream(file, f"part {number} of the file")
            whole.seek(archive.start_dir)
        yield from _of_bytes(whole, whole.read(_READ), "the file's end")
    except (zipfile.BadZipFile, RuntimeError, NotImplementedError) as error:
        raise errors.NotExact(
            f'the zip file cannot be read ({type(error).__name__}): secrets="refuse" cannot look into it, so nothing '
            "was recorded",
            where="the file",
        ) from error


def _of_parquet(path: Path) -> Iterator[tuple[str, str]]:
    from rlm_memory.codecs import libraries

    types = libraries.pyarrow().types
    file = libraries.parquet().ParquetFile(path)
    schema = file.schema_arrow
    names, told = [*_in_fields(schema)], [*_notes_of(schema)]
    yield "column names", _BETWEEN.join(names)
    yield "notes of the frame", _BETWEEN.join(told)
    notes: dict[bytes, bytes] = {**(file.metadata.metadata or {}), **(schema.metadata or {})}
    for key, value in notes.items():
        # Arrow's copy of the schema is base64 of what the lines here say in words.
        if key != b"ARROW:schema":
            yield "notes of the frame", f"{key.decode('utf-8', 'replace')}: {value.decode('utf-8', 'replace')}"
    for batch in file.iter_batches(batch_size=8_192):
        for number, column in enumerate(batch.columns, 1):
            if types.is_primitive(column.type):
                continue
            seen: dict[str, None] = {}
            for value in column.to_pylist():
                seen.update(dict.fromkeys(_in_value(value)))
            if seen:
                yield f"column {number}", _BETWEEN.join(seen)


def _fields_of(kind: Any) -> list[Any]:
    """The fields of a schema, or of a type that has some."""
    many = len(kind.names) if hasattr(kind, "names") else kind.num_fields
    return [kind.field(number) for number in range(many)]


def _in_fields(kind: Any) -> Iterator[str]:
    for field in _fields_of(kind):
        yield field.name
        yield from _in_fields(field.type)


def _notes_of(kind: Any) -> Iterator[str]:
    """What stands beside the fields themselves; Parquet keeps it in Arrow's copy of the schema alone."""
    for field in _fields_of(kind):
        notes: dict[bytes, bytes] = field.metadata or {}
        for key, value in notes.items():
            yield f"{key.decode('utf-8', 'replace')}: {value.decode('utf-8', 'replace')}"
        yield from _notes_of(field.type)


def _in_value(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, bytes):
        yield value.replace(b"\x00", b"").decode("utf-8", "replace")
    elif isinstance(value, dict):
        for key, item in cast("dict[object, object]", value).items():
            yield from (*_in_value(key), *_in_value(item))
    elif isinstance(value, (list, tuple)):
        for item in cast("Iterable[object]", value):
            yield from _in_value(item)
