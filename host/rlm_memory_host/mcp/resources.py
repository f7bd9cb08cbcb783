"""What an agent host may show beside a chat: the resident text, and recorded results as tables or pictures.

Owns: the addresses (`memory://...`), which results are listed, Markdown, pictures within a bound. Does not own: asking
the host (`asking`), the protocol's types beyond the contents of a resource.

A preview was not compared with the bytes and says so; a picture is read only after its bytes were verified. Whatever a
recorder wrote stands in a table cell or a quoted line, so that it does not look like a sentence of ours.

Source: design page "DeepSeek Harness and MCP", Ways in; "Recall", Resident text.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast

import mcp_types as types
from rlm_memory import wire

from rlm_memory_host.errors import HostError, NotFound, TooLarge
from rlm_memory_host.mcp.asking import Asking

RESIDENT: Final = "memory://resident"
EXPERIMENT: Final = "memory://experiments/"
LISTED: Final = 20
"""Results on one page of the resource list, the newest first."""
PICTURE_BYTES: Final = 4 << 20
"""Largest picture that goes into a message."""
PICTURES: Final = ("image/png", "image/jpeg", "image/gif", "image/webp", "image/svg+xml")
_SHOWN: Final = 400
"""Characters of one cell or line; a preview's own cells are shorter."""


async def listed(asking: Asking, cursor: str | None) -> types.ListResourcesResult:
    """One page of resources: the resident text on the first, then the newest results.

    Where this session has no search for results (an operator switched it off, or chose another profile of tools), the
    resident text stands alone.
    """
    asked = {"cursor": cursor} if cursor else {}
    try:
        page = await asking.value("memory_search", query="", kind="experiment-card", limit=LISTED, **asked)
    except HostError as error:
        if cursor or error.code not in (wire.UNKNOWN_TOOL, wire.INVALID_ARGS):
            raise
        page = dict[str, Any](results=[], cursor=None)
    resident = types.Resource(
        uri=RESIDENT,
        name="resident",
        title="What memory holds at all times",
        description="The few lines of text memory that every session sees. Fallible: check before relying on them.",
        mime_type="text/plain",
    )
    results = [
        types.Resource(
            uri=EXPERIMENT + card["experiment_id"],
            name=card["experiment_id"],
            title=line(card["title"]),
            description=f"Preview of a recorded result from {line(card['source'])}, {card['bytes']:,} bytes.",
            mime_type=media if (media := _media(card)) in PICTURES else "text/markdown",
        )
        for card in cast("list[dict[str, Any]]", page["results"])
    ]
    return types.ListResourcesResult(resources=[*([] if cursor else [resident]), *results], next_cursor=page["cursor"])


def templates() -> types.ListResourceTemplatesResult:
    """The addresses that a client may fill in."""
    return types.ListResourceTemplatesResult(
        resource_templates=[
            types.ResourceTemplate(
                uri_template=EXPERIMENT + "{experiment_id}",
                name="experiment",
                title="Preview of a recorded result",
                description="Its card and the first rows as Markdown; a recorded figure as a picture.",
            )
        ]
    )


async def read(asking: Asking, uri: str) -> types.ReadResourceResult:
    """The contents behind an address. Raises NotFound for any that is none, and HostError as the host does."""
    if uri == RESIDENT:
        text = await asking.resident()
        return _contents(types.TextResourceContents(uri=uri, mime_type="text/plain", text=text))
    if not uri.startswith(EXPERIMENT):
        raise NotFound(f"there is no such resource; {RESIDENT} and {EXPERIMENT}<experiment_id> are", "NOT_FOUND")
    found = await asking.value("memory_artifact_resolve", experiment_id=uri.removeprefix(EXPERIMENT))
    media = _media(cast("dict[str, Any]", found["artifact"]))
    if media in PICTURES:
        data = await asyncio.to_thread(_picture, Path(found["path"]))
        return _contents(types.BlobResourceContents(uri=uri, mime_type=media, blob=base64.b64encode(data).decode()))
    kept = await asking.annotation(found["experiment_id"])
    return _contents(types.TextResourceContents(uri=uri, mime_type="text/markdown", text=markdown(found, kept)))


def markdown(card: Mapping[str, Any], kept: Mapping[str, Any]) -> str:
    """A card and the preview kept beside it."""
    facts = [
        ("experiment", card["experiment_id"]),
        ("source", f"{card['source']} @ {card['source_version']}"),
        ("size", f"{_shape(card['shape'])}{card['artifact']['bytes']:,} bytes"),
        ("recorded", card["created_at"]),
        ("freshness", card["freshness"]),
        ("summary", card["summary"]),
    ]
    table = _table(("about", "recorded text, untrusted"), [(name, value) for name, value in facts if value])
    return f"# {line(card['title'])}\n\n{table}\n\n{preview(kept.get('preview'))}\n"


def preview(content: object) -> str:
    """A kept preview as a Markdown table, or as a block of text where it has none."""
    if not isinstance(content, Mapping):
        return "No preview was kept beside this result."
    kept = cast("Mapping[str, Any]", content)
    rows = [cast("list[Any]", row) for row in _list(kept.get("rows")) if isinstance(row, list)]
    head = f"First rows of {_shape(_list(kept.get('shape')))}unverified:\n\n"
    if rows:
        names = kept.get("columns") or [str(at) for at in range(len(rows[0]))]
        index = _list(kept.get("index"))
        if len(index) == len(rows):
            return head + _table(["", *names], [[label, *row] for label, row in zip(index, rows, strict=True)])
        return head + _table(names, rows)
    text = kept.get("head")
    shown = text if isinstance(text, str) else json.dumps(kept, ensure_ascii=False, indent=1)
    return "Its beginning, unverified:\n\n" + "\n".join(f"    {one}" for one in shown[:32_768].splitlines())


def line(text: object) -> str:
    """Stored text on one bounded line."""
    flat = " ".join(str(text).split())
    return flat if len(flat) <= _SHOWN else flat[: _SHOWN - 1] + "…"


def _table(names: Sequence[Any], rows: Sequence[Sequence[Any]]) -> str:
    lines = [names, ["---"] * len(names), *rows]
    return "\n".join("| " + " | ".join(_cell(item) for item in one) + " |" for one in lines)


def _cell(item: Any) -> str:
    return line(item).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")


def _list(found: object) -> list[Any]:
    return cast("list[Any]", found) if isinstance(found, list) else []


def _shape(shape: Sequence[int] | None) -> str:
    return " x ".join(f"{n:,}" for n in shape) + ", " if shape else ""


def _media(card: Mapping[str, Any]) -> str:
    return str(card["media_type"]).partition(";")[0].strip()


def _picture(path: Path) -> bytes:
    with path.open("rb") as file:
        data = file.read(PICTURE_BYTES + 1)
    if len(data) > PICTURE_BYTES:
        raise TooLarge(f"the picture is over {PICTURE_BYTES:,} bytes; open the file that memory_artifact_resolve names")
    return data


def _contents(*contents: types.TextResourceContents | types.BlobResourceContents) -> types.ReadResourceResult:
    return types.ReadResourceResult(contents=list(contents))
