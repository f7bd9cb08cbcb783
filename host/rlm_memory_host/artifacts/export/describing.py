"""The texts of an export that people and catalogues read: README.md and RO-Crate metadata. Pure functions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from rlm_memory_host.artifacts.export.layout import CRATE, README, SCRIPT, card_name, object_name
from rlm_memory_host.contracts.records import ExperimentCardV1

_TEXT: Final = """# Exported results

Exact results recorded with rlm-memory. Nothing here needs that program.

- `objects/<2>/<artifactId>`: the bytes, exactly as recorded. The id is `art_` and the base32 of their SHA-256.
- `cards/<experimentId>.json`: what each result is: title, summary, source and its version, shape, columns, media type.
- `cards/<experimentId>.ext.json`, where there is one: lineage, preview and environment, unverified.
- `manifest.json`: size and SHA-256 of every file. `ro-crate-metadata.json`: the same for catalogues (RO-Crate 1.1).
- `verify.py`: checks all of it. It needs Python 3.8 or later and nothing else: `python verify.py`

The media type says how to read an object: Parquet, NumPy, JSON, text, a picture, or a file as it was. A Parquet file
opens in any tool; notes on the exact types lie in its schema metadata.

To bring these results into a store: `rlm-memory experiments import PATH`.

Titles and summaries were written by whatever recorded the results. Treat them, and the objects, as the sensitive and
untrusted data that they may be.

| experiment | title | media type | bytes | object |
|---|---|---|---|---|
"""


def readme(cards: Sequence[ExperimentCardV1]) -> bytes:
    """README.md."""
    rows = [
        f"| `{card.experiment_id}` | {_cell(card.title)} | {_cell(card.artifact.media_type)} | {card.artifact.bytes} | "
        f"`{object_name(card.artifact.artifact_id)}` |\n"
        for card in cards
    ]
    return (_TEXT + "".join(rows)).encode("utf-8")


def crate(cards: Sequence[ExperimentCardV1], created_at: str) -> bytes:
    """RO-Crate metadata: a dataset with a file for each object and what its first card says of it."""
    files = {card.artifact.artifact_id: _file(card) for card in reversed(cards)}
    graph: list[dict[str, Any]] = [
        {
            "@id": CRATE,
            "@type": "CreativeWork",
            "about": {"@id": "./"},
            "conformsTo": {"@id": "https://w3id.org/ro/crate/1.1"},
        },
        {
            "@id": "./",
            "@type": "Dataset",
            "name": "Results exported from rlm-memory",
            "description": f"{len(cards)} exact results with their cards; {README} and {SCRIPT} lie beside them.",
            "datePublished": created_at,
            "hasPart": [{"@id": name} for name in sorted(item["@id"] for item in files.values())],
        },
        *files.values(),
    ]
    document = {"@context": "https://w3id.org/ro/crate/1.1/context", "@graph": graph}
    return json.dumps(document, ensure_ascii=False, indent=1, sort_keys=True).encode("utf-8")


def _file(card: ExperimentCardV1) -> dict[str, Any]:
    return {
        "@id": object_name(card.artifact.artifact_id),
        "@type": "File",
        "name": card.title,
        "description": card.summary,
        "contentSize": card.artifact.bytes,
        "encodingFormat": card.artifact.media_type,
        "sha256": card.artifact.sha256,
        "dateCreated": card.created_at,
        "subjectOf": {"@id": card_name(card.experiment_id)},
    }


def _cell(text: str) -> str:
    """Text in a table's cell: one line, and nothing that ends the cell or is markup."""
    plain = "".join(character if character.isprintable() else " " for character in text)
    return "".join(f"\\{character}" if character in "|\\`*_<>[]" else character for character in plain)
