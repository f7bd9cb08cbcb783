"""Recording, as step lists: `record`, and the same for what was computed in a block.

Owns: the order of a record and the rules of its arguments. Does not own: encoding (`codecs`), files as they are
(`sources.py`), storing (the host). Order: arguments -> file in exports/ -> the host's commit -> the file removed,
whatever happened -> notes beside the card; a failed note never fails a record that is committed, it becomes a warning.

Source: design page "Exact results"; DeepSeek Honcho specification, sections 27 to 30.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from typing import Any, Final, Literal, TypeVar, cast

from rlm_memory import display, errors, fingerprints, secretscan, sources, wire
from rlm_memory.annotation import environment, fit
from rlm_memory.finding import Host
from rlm_memory.operations import text
from rlm_memory.references import experiment_id, remember
from rlm_memory.results import Recorded, SearchResults, card_fields
from rlm_memory.steps import Ask, Meet, Steps, Work
from rlm_memory.tools import tool

TITLE_CHARACTERS: Final = 200
SUMMARY_CHARACTERS: Final = 2_000
TAGS, TAG_CHARACTERS = 20, 80
COLUMNS, COLUMN_CHARACTERS = 256, 128
LONGEST_SECONDS: Final = 1e10
"""Three centuries."""
UNKNOWN: Final = "unknown"
_EXPERIMENT: Final = re.compile(r"exp_[a-z2-7]{52}")
FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS})

T = TypeVar("T")


def record(
    obj: Any,
    *,
    title: str,
    summary: str | None = None,
    source: Any = "unspecified",
    source_version: str = UNKNOWN,
    tags: Iterable[str] | None = None,
    fingerprint: str | None = None,
    query: Any = None,
    params: Any = None,
    inputs: Any = None,
    derived_from: Any = (),
    as_text: bool | None = None,
    media_type: str | None = None,
    image: str | None = None,
    lossy: bool = False,
    compute_seconds: float | None = None,
    secrets: Literal["keep", "refuse"] = "keep",
) -> Steps[Recorded]:
    """Record exact bytes of an object or a file and return a reference to them.

    Args:
        obj: a frame, array, JSON-able value, text, bytes, figure, or a file: an os.PathLike, or a str that is plainly
            a path ("../data/x.csv"; the rule is in `rlm_memory.sources`). A file is copied, as it is.
        title: one line, at most 200 characters. Required.
        summary: at most 2,000 characters; by default made from the schema, without values.
        source, source_version: where the data came from, and in which version; they decide freshness.
        tags: at most 20 of at most 80 characters. None keeps the tags that the same result already has.
        fingerprint: your own SHA-256 of the computation; or give `query` (code or SQL), `params` and `inputs` and it is
            computed (rules in `rlm_memory.fingerprints`). Only the digest leaves the kernel.
        derived_from: references that this result was made from; recorded results among `inputs` are added.
        as_text: True keeps a path-like str as text, False takes any str as a path.
        media_type: for files, instead of what the suffix says.
        image: for a matplotlib figure, "png" (the default) or "svg".
        lossy: allow the changes that the refusal names.
        compute_seconds: how long the computation took; a later reuse says what it saved.
        secrets: "refuse" has the host look through every text of the result first, and records nothing that looks like
            it holds a secret, or that cannot be looked into (rules in `rlm_memory.secretscan`).

    Raises: Invalid, NotExact, TooLarge, UnsafeSource, FileNotFoundError, QuotaExceeded, StoreUnavailable, Denied,
        HostUnavailable.
    """
    labels = check_labels(title, summary, source, source_version, tags)
    secretscan.check_choice(secrets)
    path = sources.as_path(obj, as_text)
    _check_kind(obj, path, media_type, image)
    described = yield from describe(fingerprint, query, params, inputs)
    notes = lineage_notes(described, (yield from parents_of(derived_from, inputs)), compute_seconds)
    how = Keeping(media_type, image, lossy, secrets == "refuse")
    return (yield from keep(obj, path, labels, described.digest, notes, how))


def _check_kind(obj: Any, path: Path | None, media_type: Any, image: Any) -> None:
    """Refuse an argument that says nothing of this kind of obj, rather than leave it unheard."""
    kind = "a file" if path is not None else f"a {type(obj).__name__}"
    if media_type is not None:
        text("media_type", media_type)
        if path is None:
            raise errors.Invalid(f"media_type is for files; obj is {kind}, whose type its codec says; leave it out")
    if image is not None and path is not None:
        raise errors.Invalid(f"image is for matplotlib figures; obj is {kind}; leave it out")


@dataclass(frozen=True)
class Keeping:
    """How an object or a file is kept, as `record` says it."""

    media_type: str | None = None
    image: str | None = None
    lossy: bool = False
    refuses_secrets: bool = False


def keep(
    obj: Any,
    path: Path | None,
    labels: Mapping[str, Any],
    digest: str,
    notes: Mapping[str, Any],
    how: Keeping,
) -> Steps[Recorded]:
    """Record an object, or the file at `path`, under checked labels and a fingerprint; `notes` go beside the card."""
    host: Host = yield Meet()
    exports: Path = yield Work(lambda: written(lambda: sources.exports_folder(host.session_dir)))
    if path is not None:
        ready = yield from _of_file(path, exports, how.media_type)
    else:
        ready = yield from _of_object(obj, exports, how.lossy, how.image)
    request = ready.request
    try:
        if how.refuses_secrets:
            yield from secretscan.refuse(ready.staged.path, host)
        if digest == fingerprints.NOTHING_GIVEN:
            digest = fingerprints.nothing_given(wire.codec_name(request["media_type"]))
        # By this the host tells, when the same result is recorded again, that nobody wrote this summary.
        lineage = {**ready.lineage, "made_summary": request["summary"], **notes.get("lineage", {})}
        request |= {**labels, "source_path": str(ready.staged.path), "query_fingerprint": digest}
        value: Mapping[str, Any] = yield from tool("memory_artifact_record", request)
    finally:
        ready.staged.remove()
    warnings = list(cast("Iterable[str]", value.get("warnings") or ()))
    warnings += yield from _annotate(str(value.get("experiment_id")), {**notes, **ready.made, "lineage": lineage}, host)
    recorded = _recorded(request, value, warnings)
    remember(recorded.experiment_id)
    return recorded


@dataclass(frozen=True)
class _Ready:
    """A file in exports/, what the host is asked to record of it, and what goes beside the card."""

    staged: sources.Staged
    request: dict[str, Any]
    made: dict[str, Any]
    lineage: dict[str, Any]


def _of_file(path: Path, exports: Path, media_type: str | None) -> Steps[_Ready]:
    staged: sources.Staged = yield Work(
        lambda: written(lambda: sources.stage(path, exports)), discard=sources.Staged.remove
    )
    kind = media_type or sources.media_type(path)
    summary = f"File, {display.size(staged.size)}, {kind.split(';')[0]}."
    return _Ready(staged, {"media_type": kind, "summary": summary}, {"codec": "file"}, {"file_name": staged.name})


def _of_object(obj: Any, exports: Path, lossy: bool, image: str | None) -> Steps[_Ready]:
    encoded: Any = yield Work(
        lambda: written(lambda: _encode(obj, exports, lossy, image)), discard=lambda made: _drop(made.path)
    )
    request: dict[str, Any] = {"media_type": encoded.media_type, "summary": encoded.summary[:SUMMARY_CHARACTERS]}
    if encoded.shape is not None:
        request["shape"] = list(encoded.shape)
    if encoded.columns is not None:
        request["columns"] = [name[:COLUMN_CHARACTERS] for name in encoded.columns[:COLUMNS]]
    return _Ready(
        sources.Staged(encoded.path, True, encoded.path.name, 0),
        request,
        {"codec": encoded.codec, "preview": encoded.preview},
        {"lossy_changes": list(encoded.changes)} if encoded.changes else {},
    )


def written(work: Callable[[], T]) -> T:
    """Run what writes into the session folder; a full or read-only disk is StoreUnavailable, as the host says it."""
    try:
        return work()
    except OSError as error:
        if error.errno not in FULL:
            raise
        raise errors.StoreUnavailable(
            f"the session folder cannot be written ({errno.errorcode[error.errno]}), nothing was recorded; "
            "free space on its disk, then try again"
        ) from error


def lineage_notes(
    described: fingerprints.Described, parents: list[str], compute_seconds: float | None
) -> dict[str, Any]:
    """What a record says of its making: component digests, parents, seconds of computing."""
    lineage: dict[str, Any] = {"derived_from": parents} if parents else {}
    if described.components:
        lineage["components"] = dict(described.components)
    return {"lineage": lineage, "statistics": _seconds(compute_seconds)}


def _seconds(given: Any) -> dict[str, float]:
    """Refused where it is no duration: infinity and NaN have no JSON, and a later reuse adds it up."""
    if given is None:
        return {}
    # A number that is too large for a float is no duration either.
    if isinstance(given, bool) or not isinstance(given, Real) or not 0 <= cast("Any", given) < LONGEST_SECONDS:
        raise errors.Invalid(
            "compute_seconds must be a number of seconds that is not negative, such as time.monotonic() tells"
        )
    return {"compute_seconds": round(float(given), 3)}


def kept_tags(tags: Any) -> Any:
    """Tags that are used more than once: an iterator's are taken out of it; anything odd is left to `check_labels`."""
    return tags if isinstance(tags, str) or not isinstance(tags, Iterable) else tuple(cast("Iterable[Any]", tags))


def check_labels(title: Any, summary: Any, source: Any, source_version: Any, tags: Any) -> dict[str, Any]:
    """The card's texts, checked before anything expensive is done. The host checks them again."""
    labels: dict[str, Any] = {
        "title": text("title", title, TITLE_CHARACTERS),
        "source": text("source", str(source) if isinstance(source, Path) else source, None),
        "source_version": text("source_version", UNKNOWN if source_version is None else source_version, None),
    }
    if summary is not None:
        labels["summary"] = text("summary", summary, SUMMARY_CHARACTERS)
    if tags is None:
        return labels
    if isinstance(tags, str) or not isinstance(tags, Iterable):
        raise errors.Invalid(
            f"tags must be a list of texts, not {'one text' if isinstance(tags, str) else type(tags).__name__}"
        )
    try:
        listed = list(cast("Iterable[Any]", tags))
    except TypeError as error:
        raise errors.Invalid(
            f"tags must be a list of texts; this {type(cast('object', tags)).__name__} gives none"
        ) from error
    labels["tags"] = [text("a tag", tag, TAG_CHARACTERS) for tag in listed]
    if len(labels["tags"]) > TAGS:
        raise errors.Invalid(f"tags has {len(labels['tags'])} entries, the limit is {TAGS}")
    return labels


def describe(given: Any, query: Any, params: Any, inputs: Any) -> Steps[fingerprints.Described]:
    """The caller's own fingerprint, which has no components, or that of what is given."""
    if given is not None:
        if any(part is not None for part in (query, params, inputs)):
            raise errors.Invalid("give fingerprint= or query=/params=/inputs=, not both")
        return fingerprints.Described(fingerprints.check(given))
    return (yield Work(lambda: fingerprints.describe(query, params, inputs)))


def parents_of(derived_from: Any, inputs: Any) -> Steps[list[str]]:
    """The experiment ids of `derived_from` and of the recorded results among the inputs."""
    several = isinstance(derived_from, (list, tuple, set, frozenset, SearchResults))
    refs = list(cast("Iterable[Any]", derived_from if several else (derived_from,)))
    members: Any = list(cast("Mapping[str, Any]", inputs).values()) if isinstance(inputs, Mapping) else inputs
    members = cast("list[Any]", members) if isinstance(members, (list, tuple)) else [members]
    refs += [member for member in members if fingerprints.artifact_of(member) is not None]
    found: list[str] = []
    for ref in refs:
        identity = yield from experiment_id(ref)
        if not _EXPERIMENT.fullmatch(identity):
            raise errors.Invalid(
                "derived_from holds something that is not a recorded result; give what record returned"
            )
        found.append(identity)
    return list(dict.fromkeys(found))


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


def _encode(obj: Any, exports: Path, lossy: bool, image: str | None) -> Any:
    from rlm_memory import codecs

    return codecs.encode(obj, exports, lossy=lossy, image=image)


def _drop(path: Path) -> None:
    path.unlink(missing_ok=True)
