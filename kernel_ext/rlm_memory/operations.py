"""What `memory.experiments` finds and reads, as step lists: search, resolve, load, open, compare, preview.

Owns: the order of steps and the argument rules. Does not own: driving them (`steps.py`), recording (`recording.py`),
references (`references.py`), reuse (`reuse.py`), decoding (`codecs`), verifying (the host).

Source: design page "Exact results"; DeepSeek Honcho specification, sections 27 to 31.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, cast

from rlm_memory import display, errors, wire
from rlm_memory.finding import Host
from rlm_memory.references import experiment_id, remember, title_of
from rlm_memory.results import Hit, Preview, Resolved, SearchResults, card_fields
from rlm_memory.steps import Ask, Meet, Steps, Work
from rlm_memory.tools import tool

MAX_INLINE_LOAD_BYTES: Final = 256 << 20
"""Largest object that `load` reads whole without being asked to."""


def search(
    query: Any = "",
    *,
    limit: int = 10,
    tag: str | None = None,
    source: str | None = None,
    since: Any = None,
    session: str | None = None,
    cursor: str | None = None,
) -> Steps[SearchResults]:
    """Find recorded experiments: exact ids, fingerprints, tags and versions first, then by words.

    Args:
        query: words, an id, a fingerprint; "" lists the newest.
        limit: 1 to 50 results a page.
        tag, source, session: keep only results with exactly that.
        since: a date, datetime or ISO text; keep only results updated since.
        cursor: `results.cursor` of the page before.
    """
    if not isinstance(query, str):
        raise errors.Invalid(f"query must be text, not {type(query).__name__}")
    arguments: dict[str, Any] = {"query": query, "kind": "experiment-card", "limit": limit}
    options = {"tag": tag, "source": source, "session": session, "cursor": cursor}
    options["since"] = since.isoformat() if hasattr(since, "isoformat") else since
    arguments |= {name: value for name, value in options.items() if value is not None}
    value: Mapping[str, Any] = yield from tool("memory_search", arguments)
    rows = cast("list[Mapping[str, Any]]", value.get("results") or [])
    hits = tuple(_hit(row) for row in rows if row.get("kind", "experiment-card") == "experiment-card")
    remember(*(hit.experiment_id for hit in reversed(hits)))
    return SearchResults(
        hits, int(value.get("total") or len(hits)), value.get("cursor"), tuple(value.get("warnings") or ())
    )


def resolve(ref: Any, current_source_version: str | None = None) -> Steps[Resolved]:
    """Verify that the exact bytes are here, and say how fresh they are.

    Args:
        ref: what record, search, resolve or get returned, an experiment id, or its start (8 characters or more after
            `exp_`, or of the artifact id after `art_`).
        current_source_version: the version that the source has now. None asks for no comparison; "" and anything that
            is not text are refused, so that 1 and "1" cannot be equal by accident.

    Raises: NotFound (malformed, unknown and foreign references alike), Integrity, Invalid.
    """
    return (yield from verified(ref, current_source_version))[0]


def load(
    ref: Any,
    columns: Any = None,
    filters: Any = None,
    rows: Any = None,
    sample: Any = None,
    as_: str | None = None,
    *,
    seed: int = 0,
    full: bool = False,
) -> Steps[Any]:
    """The exact object back, or just the part asked for; the host verifies the bytes first.

    Args:
        ref: as for `resolve`.
        columns, filters, rows, sample, as_: which part and in which form; see `rlm_memory.codecs`.
        seed: which rows `sample` draws; the same seed draws the same rows.
        full: read an object of more than 256 MiB whole.

    Raises: NotFound, Integrity, Invalid (too large without a choice, or a choice that does not fit).
    """
    resolved, path = yield from verified(ref, None)
    partly = any(choice is not None for choice in (columns, filters, rows, sample))
    if not (partly or full or as_ in ("path", "dataset", "memmap")):
        _bounded(resolved, "load", "give columns=, filters= or rows=, or full=True")
    kind = resolved.media_type
    part = {"columns": columns, "filters": filters, "rows": rows, "sample": sample, "seed": seed, "as_": as_}
    return (yield Work(lambda: _decode(path, kind, **part)))


def open_(ref: Any) -> Steps[Any]:
    """A result opened lazily: a pyarrow dataset of a table, a read-only memory map of an array.

    The host verifies the bytes first; after that only what is asked for is read, however large the result is. Raises
    NotFound, Integrity, Invalid (a result that has no lazy form; use `load`).
    """
    resolved, path = yield from verified(ref, None)
    kind = resolved.media_type
    return (yield Work(lambda: _open_lazy(path, kind)))


open_.__name__ = "open"


def compare(a: Any, b: Any, *, full: bool = False) -> Steps[Any]:
    """What changed from one result to another: schema, rows, differences column by column.

    Args:
        a, b: references, as for `resolve`. Both are read whole; over 256 MiB each only with `full=True`.

    The answer is true where there are differences, lists them in `differences` and shows as a table. Raises NotFound,
    Integrity, Invalid.
    """
    pairs: list[tuple[Path, str]] = []
    for ref in (a, b):
        resolved, path = yield from verified(ref, None)
        if not full:
            _bounded(resolved, "compare", "load parts of both and compare those, or give full=True")
        pairs.append((path, resolved.media_type))
    return (yield Work(lambda: _compare(*pairs)))


def preview(ref: Any) -> Steps[Preview]:
    """The bounded head that was kept beside a result, without touching the result itself; labelled unverified."""
    host: Host = yield Meet()
    identity = yield from experiment_id(ref)
    if not host.ours:
        raise errors.Unsupported(
            "this host keeps no previews; load(ref, rows=5) reads a few rows of the result itself",
            wire.UNSUPPORTED_REQUEST,
        )
    kept = yield from notes_of(identity)
    return Preview(
        title=title_of(ref) or identity[:SHORT],
        content=kept.get("preview"),
        lineage=kept.get("lineage") or {},
        codec=kept.get("codec"),
        environment=kept.get("environment") or {},
    )


def notes_of(identity: str) -> Steps[Mapping[str, Any]]:
    """What was kept beside a card of our own host; empty where nothing was."""
    fields = yield Ask(wire.ANNOTATE, {"experiment_id": identity})
    kept: object = fields.get("annotation")
    return cast("Mapping[str, Any]", kept) if isinstance(kept, Mapping) else {}


SHORT: Final = 14


def text(name: str, value: Any, limit: int | None = None) -> str:
    """Text that is not empty and not too long, or Invalid with the argument's name."""
    if not isinstance(value, str):
        raise errors.Invalid(f"{name} must be text, not {type(value).__name__}; str(...) it yourself if that is meant")
    if not value.strip():
        raise errors.Invalid(f"{name} is empty; leave it out, or say something")
    if limit is not None and len(value) > limit:
        raise errors.Invalid(f"{name} has {len(value)} characters, the limit is {limit}")
    return value


def verified(ref: Any, current: Any) -> Steps[tuple[Resolved, Path]]:
    """The public handle, and beside it the path, which never goes into anything that is kept."""
    arguments = {"experiment_id": (yield from experiment_id(ref))}
    if current is not None:
        arguments["current_source_version"] = text("current_source_version", current)
    value: Mapping[str, Any] = yield from tool("memory_artifact_resolve", arguments)
    artifact: Mapping[str, Any] = value.get("artifact") or {}
    resolved = Resolved(
        **card_fields({**_snake(artifact), **value}),
        sha256=str(artifact.get("sha256") or ""),
        freshness=str(value.get("freshness") or "not_checked"),
        current_source_version=current,
        verified_at=str(value.get("verified_at") or ""),
    )
    return resolved, Path(str(value.get("path")))


def _bounded(resolved: Resolved, call: str, advice: str) -> None:
    if resolved.bytes > MAX_INLINE_LOAD_BYTES:
        raise errors.Invalid(
            f"this result has {display.size(resolved.bytes)}, over the {display.size(MAX_INLINE_LOAD_BYTES)} that "
            f"{call} reads without being asked; {advice}"
        )


def _snake(artifact: Mapping[str, Any]) -> dict[str, Any]:
    """Artifact fields by our names; a card's JSON has them in camelCase."""
    names = {"artifactId": "artifact_id", "mediaType": "media_type", "createdAt": "created_at"}
    return {names.get(name, name): value for name, value in artifact.items()}


def _hit(row: Mapping[str, Any]) -> Hit:
    return Hit(
        **card_fields(row),
        matched=tuple(row.get("matched") or ()),
        score=float(row.get("score") or 0.0),
        index_state=str(row.get("index_state") or ""),
        local_available=bool(row.get("local_available", True)),
        freshness=str(row.get("freshness") or "not_checked"),
        trust=str(row.get("trust") or "untrusted"),
    )


def _decode(path: Path, kind: str, **choice: Any) -> Any:
    from rlm_memory import codecs

    return codecs.decode(path, kind, **choice)


def _open_lazy(path: Path, kind: str) -> Any:
    from rlm_memory import codecs

    return codecs.open_lazy(path, kind)


def _compare(a: tuple[Path, str], b: tuple[Path, str]) -> Any:
    from rlm_memory import codecs

    return codecs.compare(a, b)
