"""What `memory.experiments` does, as step lists: record, search, resolve, load, preview.

Owns: the order of steps and the argument rules. Does not own: driving them (`steps.py`), references
(`references.py`), reuse (`reuse.py`), encoding (`codecs`), storing (the host). Order of a record: arguments -> file
in exports/ -> the host's commit -> the file removed, whatever happened -> notes beside the card; a failed note never
fails a record that is committed, it becomes a warning.

Source: design page "Exact results"; DeepSeek Honcho specification, sections 27 to 31.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, cast

from rlm_memory import display, errors, fingerprints, sources, wire
from rlm_memory.annotation import environment, fit
from rlm_memory.connect import Host
from rlm_memory.references import experiment_id, remember, title_of
from rlm_memory.results import Hit, Preview, Recorded, Resolved, SearchResults, card_fields
from rlm_memory.steps import Ask, Meet, Steps, Work
from rlm_memory.tools import tool

MAX_INLINE_LOAD_BYTES: Final = 256 << 20
"""Largest object that `load` reads whole without being asked to."""
TITLE_CHARACTERS: Final = 200
SUMMARY_CHARACTERS: Final = 2_000
TAGS, TAG_CHARACTERS = 20, 80
COLUMNS, COLUMN_CHARACTERS = 256, 128
UNKNOWN: Final = "unknown"


def record(
    obj: Any,
    *,
    title: str,
    summary: str | None = None,
    source: Any = "unspecified",
    source_version: str = UNKNOWN,
    tags: Iterable[str] = (),
    fingerprint: str | None = None,
    query: Any = None,
    params: Any = None,
    inputs: Any = None,
    derived_from: Any = (),
    as_text: bool | None = None,
    media_type: str | None = None,
    lossy: bool = False,
) -> Steps[Recorded]:
    """Record exact bytes of an object or a file and return a reference to them.

    Args:
        obj: a frame, array, JSON-able value, text, bytes, figure, or a file: an os.PathLike, or a str that is plainly
            a path ("../data/x.csv"; the rule is in `rlm_memory.sources`). A file is copied, as it is.
        title: one line, at most 200 characters. Required.
        summary: at most 2,000 characters; by default made from the schema, without values.
        source, source_version: where the data came from, and in which version; they decide freshness.
        tags: at most 20 of at most 80 characters.
        fingerprint: your own SHA-256 of the computation; or give `query` (code or SQL), `params` and `inputs` and it is
            computed (rules in `rlm_memory.fingerprints`). Only the digest leaves the kernel.
        derived_from: references that this result was made from.
        as_text: True keeps a path-like str as text, False takes any str as a path.
        media_type: for files, instead of what the suffix says.
        lossy: allow the changes that the refusal names.

    Raises: Invalid, NotExact, TooLarge, UnsafeSource, FileNotFoundError, QuotaExceeded, StoreUnavailable, Denied,
        HostUnavailable.
    """
    labels = _labels(title, summary, source, source_version, tags)
    path = sources.as_path(obj, as_text)
    digest = yield from _fingerprint(fingerprint, query, params, inputs)
    parents = yield from _parents(derived_from)
    host: Host = yield Meet()
    exports: Path = yield Work(lambda: sources.exports_folder(host.session_dir))
    if path is not None:
        staged: sources.Staged = yield Work(lambda: sources.stage(path, exports), discard=sources.Staged.remove)
        kind = media_type or sources.media_type(path)
        request: dict[str, Any] = {
            "media_type": kind,
            "summary": f"File, {display.size(staged.size)}, {kind.split(';')[0]}.",
        }
        notes: dict[str, Any] = {"codec": "file", "lineage": {"file_name": staged.name}}
    else:
        encoded: Any = yield Work(lambda: _encode(obj, exports, lossy), discard=lambda made: _drop(made.path))
        staged = sources.Staged(encoded.path, True, encoded.path.name, 0)
        request = {"media_type": encoded.media_type, "summary": encoded.summary[:SUMMARY_CHARACTERS]}
        if encoded.shape is not None:
            request["shape"] = list(encoded.shape)
        if encoded.columns is not None:
            request["columns"] = [name[:COLUMN_CHARACTERS] for name in encoded.columns[:COLUMNS]]
        notes = {"codec": encoded.codec, "lineage": {}, "preview": encoded.preview}
        if encoded.changes:
            notes["lineage"]["lossy_changes"] = list(encoded.changes)
    try:
        request |= {**labels, "source_path": str(staged.path), "query_fingerprint": digest}
        value: Mapping[str, Any] = yield from tool("memory_artifact_record", request)
    finally:
        staged.remove()
    if parents:
        notes["lineage"]["derived_from"] = parents
    warnings = list(cast("Iterable[str]", value.get("warnings") or ()))
    warnings += yield from _annotate(str(value.get("experiment_id")), notes, host)
    recorded = _recorded(request, value, warnings)
    remember(recorded.experiment_id)
    return recorded


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
    return (yield from _resolve(ref, current_source_version))[0]


def load(
    ref: Any,
    columns: Any = None,
    filters: Any = None,
    rows: Any = None,
    sample: Any = None,
    as_: str | None = None,
    *,
    full: bool = False,
) -> Steps[Any]:
    """The exact object back, or just the part asked for; the host verifies the bytes first.

    Args:
        ref: as for `resolve`.
        columns, filters, rows, sample, as_: which part and in which form; see `rlm_memory.codecs`.
        full: read an object of more than 256 MiB whole.

    Raises: NotFound, Integrity, Invalid (too large without a choice, or a choice that does not fit).
    """
    resolved, path = yield from _resolve(ref, None)
    part = any(choice is not None for choice in (columns, filters, rows, sample))
    if resolved.bytes > MAX_INLINE_LOAD_BYTES and not (part or full or as_ in ("path", "dataset", "memmap")):
        raise errors.Invalid(
            f"this result has {display.size(resolved.bytes)}, over the {display.size(MAX_INLINE_LOAD_BYTES)} that load "
            "reads without being asked; give columns=, filters= or rows=, or full=True"
        )
    kind = resolved.media_type
    return (
        yield Work(lambda: _decode(path, kind, columns=columns, filters=filters, rows=rows, sample=sample, as_=as_))
    )


def preview(ref: Any) -> Steps[Preview]:
    """The bounded head that was kept beside a result, without touching the result itself; labelled unverified."""
    host: Host = yield Meet()
    identity = yield from experiment_id(ref)
    if not host.ours:
        raise errors.Unsupported(
            "this host keeps no previews; load(ref, rows=5) reads a few rows of the result itself",
            wire.UNSUPPORTED_REQUEST,
        )
    fields = yield Ask(wire.ANNOTATE, {"experiment_id": identity})
    kept: Mapping[str, Any] = fields.get("annotation") or {}
    return Preview(
        title=title_of(ref) or identity[:SHORT],
        content=kept.get("preview"),
        lineage=kept.get("lineage") or {},
        codec=kept.get("codec"),
        environment=kept.get("environment") or {},
    )


SHORT: Final = 14


def _labels(title: Any, summary: Any, source: Any, source_version: Any, tags: Any) -> dict[str, Any]:
    """The card's texts, checked before anything expensive is done. The host checks them again."""
    labels: dict[str, Any] = {
        "title": _text("title", title, TITLE_CHARACTERS),
        "source": _text("source", str(source) if isinstance(source, Path) else source, None),
        "source_version": _text("source_version", UNKNOWN if source_version is None else source_version, None),
    }
    if summary is not None:
        labels["summary"] = _text("summary", summary, SUMMARY_CHARACTERS)
    if isinstance(tags, str):
        raise errors.Invalid("tags must be a list of texts, not one text")
    labels["tags"] = [_text("a tag", tag, TAG_CHARACTERS) for tag in tags]
    if len(labels["tags"]) > TAGS:
        raise errors.Invalid(f"tags has {len(labels['tags'])} entries, the limit is {TAGS}")
    return labels


def _text(name: str, value: Any, limit: int | None) -> str:
    if not isinstance(value, str):
        raise errors.Invalid(f"{name} must be text, not {type(value).__name__}; str(...) it yourself if that is meant")
    if not value.strip():
        raise errors.Invalid(f"{name} is empty; leave it out, or say something")
    if limit is not None and len(value) > limit:
        raise errors.Invalid(f"{name} has {len(value)} characters, the limit is {limit}")
    return value


def _fingerprint(given: Any, query: Any, params: Any, inputs: Any) -> Steps[str]:
    if given is not None:
        if any(part is not None for part in (query, params, inputs)):
            raise errors.Invalid("give fingerprint= or query=/params=/inputs=, not both")
        return fingerprints.check(given)
    return (yield Work(lambda: fingerprints.fingerprint(query, params, inputs)))


def _parents(derived_from: Any) -> Steps[list[str]]:
    several = isinstance(derived_from, (list, tuple, set, frozenset, SearchResults))
    refs = cast("Iterable[Any]", derived_from if several else (derived_from,))
    found: list[str] = []
    for ref in refs:
        found.append((yield from experiment_id(ref)))
    return found


def _resolve(ref: Any, current: Any) -> Steps[tuple[Resolved, Path]]:
    """The public handle, and beside it the path, which never goes into anything that is kept."""
    arguments = {"experiment_id": (yield from experiment_id(ref))}
    if current is not None:
        arguments["current_source_version"] = _text("current_source_version", current, None)
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


def _snake(artifact: Mapping[str, Any]) -> dict[str, Any]:
    """Artifact fields by our names; a card's JSON has them in camelCase."""
    names = {"artifactId": "artifact_id", "mediaType": "media_type", "createdAt": "created_at"}
    return {names.get(name, name): value for name, value in artifact.items()}


def _annotate(identity: str, notes: Mapping[str, Any], host: Host) -> Steps[list[str]]:
    """Keep notes beside the card; what went wrong as warnings. A plain DSH host keeps none."""
    if not host.ours:
        return []
    payload = {name: value for name, value in notes.items() if value}
    try:
        payload, left_out = fit({"experiment_id": identity, **payload, "environment": environment()})
        yield Ask(wire.ANNOTATE, payload)
    except (wire.WireError, errors.Unsupported, errors.Denied, errors.Invalid, errors.StoreUnavailable) as error:
        return [f"recorded, but the notes beside it were refused: {error}"]
    except errors.HostUnavailable:
        return ["recorded, but the host was lost before the notes beside it were kept"]
    return left_out


def _recorded(request: Mapping[str, Any], value: Mapping[str, Any], warnings: list[str]) -> Recorded:
    return Recorded(
        **card_fields({**request, **value, "warnings": warnings}),
        sha256=str(value.get("sha256") or ""),
        deduplicated=bool(value.get("deduplicated")),
        index_state=str(value.get("index_state") or ""),
    )


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


def _encode(obj: Any, exports: Path, lossy: bool) -> Any:
    from rlm_memory import codecs

    return codecs.encode(obj, exports, lossy=lossy)


def _decode(path: Path, kind: str, **choice: Any) -> Any:
    from rlm_memory import codecs

    return codecs.decode(path, kind, **choice)


def _drop(path: Path) -> None:
    path.unlink(missing_ok=True)
