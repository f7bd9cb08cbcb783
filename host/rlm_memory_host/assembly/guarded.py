"""The artifact store behind the guard: what describes a result passes it before anything is written.

Owns: which fields of a card and of its sidecar are descriptive (redacted, with a warning) and which are identity
(refused). Does not own: patterns (`guard`), storing. The bytes of an artifact are exact and never looked at here.

Source: design page "Recall, resident text, guard, audit, health, tools", Guard.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, cast

from rlm_memory_host.assembly.over import ArtifactsOver
from rlm_memory_host.contracts.memory import Authority
from rlm_memory_host.contracts.records import Recorded, RecordRequest
from rlm_memory_host.contracts.scope import Scope
from rlm_memory_host.guard import Guard, Sink
from rlm_memory_host.tools.artifacts import ArtifactPort

IDENTITY: Final = frozenset({"source", "source_version", "query_fingerprint", "media_type"})
"""What names a result: a changed one would name another, so a secret in it is refused."""
LISTS: Final = ("tags", "columns")
MAX_PLACES: Final = 5
"""Places that a warning names."""


class CardGuard:
    """Takes secrets out of what describes a result, whoever brings it: a kernel, or an import. Stateless."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard

    def card(self, request: RecordRequest) -> tuple[RecordRequest, list[str]]:
        """The request as it may be written, and where something was taken out (field and pattern, no text).

        Raises GuardRejected for a secret in what names the result.
        """
        plain = {name: str(getattr(request, name) or "") for name in ("title", "summary", *sorted(IDENTITY))}
        listed = {name: cast("tuple[str, ...]", getattr(request, name) or ()) for name in LISTS}
        joined = plain | {name: "\n".join(items) for name, items in listed.items()}
        found = self._findings(joined)
        if not found:
            return request, []
        change: dict[str, Any] = {
            name: self._guard.redacted(plain[name]) for name in ("title", "summary") if _is_in(name, found)
        }
        for name, items in listed.items():
            if _is_in(name, found):
                change[name] = tuple(dict.fromkeys(self._guard.redacted(item) for item in items))
        if len(change.get("columns", ())) != len(listed["columns"]) and "columns" in change:
            # Columns keep their number: two that were redacted alike stay two.
            change["columns"] = tuple(self._guard.redacted(item) for item in listed["columns"])
        return replace(request, **change), [f"{each.field} ({each.pattern})" for each in found]

    def note(self, annotation: Mapping[str, Any]) -> Mapping[str, Any]:
        """The sidecar as it may be written; itself where nothing is taken out. Raises GuardRejected."""
        texts = list(dict.fromkeys(_texts(annotation)))
        if not self._findings({"annotation": "\n".join(texts)}):
            return annotation
        changed = {text: clean for text in texts if (clean := self._guard.redacted(text)) != text}
        return cast("Mapping[str, Any]", _replaced(annotation, changed))

    def _findings(self, fields: Mapping[str, str]) -> tuple[Any, ...]:
        verdict = self._guard(fields, Authority.MODEL, Sink.CARD, identity=IDENTITY)
        verdict.check()
        return verdict.findings


class GuardedArtifacts(ArtifactsOver):
    """The store with its cards guarded. A query is written nowhere, so it is not looked at."""

    def __init__(self, store: ArtifactPort, guard: Guard) -> None:
        super().__init__(store)
        self._guard = CardGuard(guard)

    def record(
        self,
        scope: Scope,
        request: RecordRequest,
        *,
        progress: Callable[[int, int], None] | None = None,
        cancelled: Callable[[], bool] | None = None,
    ) -> Recorded:
        """As the store does, with secrets redacted from title, summary, tags and columns. Raises GuardRejected."""
        clean, places = self._guard.card(request)
        recorded = super().record(scope, clean, progress=progress, cancelled=cancelled)
        if not places:
            return recorded
        shown = ", ".join(places[:MAX_PLACES])
        warning = f"what looks like a secret was taken out of the card before it was written: {shown}"
        return replace(recorded, warnings=(*recorded.warnings, warning))

    def annotate(
        self, scope: Scope, experiment_id: str, annotation: Mapping[str, Any] | None
    ) -> Mapping[str, Any] | None:
        """As the store does, with secrets redacted from every text of the annotation."""
        clean = None if annotation is None else self._guard.note(annotation)
        return super().annotate(scope, experiment_id, clean)


def scanning(guard: Guard) -> Callable[[Mapping[str, str]], list[dict[str, Any]]]:
    """What looks through texts for secrets and tells where they are, never what they say."""

    def scan(texts: Mapping[str, str]) -> list[dict[str, Any]]:
        found = guard.secrets(texts)
        return [{"place": item.field, "line": item.line, "pattern": item.pattern} for item in found]

    return scan


def _is_in(field: str, found: Sequence[Any]) -> bool:
    return any(each.field == field for each in found)


def _texts(value: object) -> list[str]:
    """Every text of a JSON value, keys among them."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, Mapping):
        table = cast("Mapping[str, object]", value)
        return [text for key, item in table.items() for text in (key, *_texts(item))]
    if isinstance(value, list | tuple):
        return [text for item in cast("Sequence[object]", value) for text in _texts(item)]
    return []


def _replaced(value: object, changed: Mapping[str, str]) -> object:
    if isinstance(value, str):
        return changed.get(value, value)
    if isinstance(value, Mapping):
        table = cast("Mapping[str, object]", value)
        return {changed.get(key, key): _replaced(item, changed) for key, item in table.items()}
    if isinstance(value, list | tuple):
        return [_replaced(item, changed) for item in cast("Sequence[object]", value)]
    return value
