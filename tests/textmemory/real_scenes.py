"""A replayed session over the real guard and the store on disk, and cases in three paraphrases of each language."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from rlm_memory_host.contracts.memory import Layer
from rlm_memory_host.recall.service import Query, Recall
from rlm_memory_host.storage.files import FileLayer
from rlm_memory_host.textmemory.guarding import guard_of
from rlm_memory_host.textmemory.health import TextHealth
from rlm_memory_host.textmemory.notes import Note, Recorded
from rlm_memory_host.textmemory.opening import open_memory
from rlm_memory_host.textmemory.service import Parts, TextMemory
from rlm_memory_host.textmemory.store import MarkdownStore
from rlm_memory_host.tools.text_services import TextServices
from scenes import ROOT, Scene


class Real(Scene):
    """A scene with the real guard and the store on disk."""

    def __init__(
        self, root: Path, *, files: FileLayer | None = None, repositories: Mapping[Layer, Path] | None = None
    ) -> None:
        opened = open_memory(root, files=files, repositories=repositories)
        super().__init__(store=opened.store)
        self.root = root
        self.disk: MarkdownStore = opened.store
        self.health: TextHealth = opened.health
        self.memory = TextMemory(Parts(opened.store, guard_of(opened.guard), self.capture, clock=self.clock))
        self.recall = Recall(self.memory)
        self.services = TextServices(self.memory, self.recall, health=opened.health)

    def says(self, text: str, session: str = "s1", **more: Any) -> Recorded:
        """The user says it, and the model passes it on as a quote."""
        self.user(text, session)
        return self.memory.record(ROOT, Note(text, quote=text, **more))

    def finds(self, text: str) -> list[str]:
        return [item.text for item in self.recall.search(ROOT, Query(text)).items]

    def bytes(self) -> bytes:
        return b"\n".join(path.read_bytes() for path in self.root.rglob("*") if path.is_file())


def each(rows: Mapping[str, Sequence[Any]]) -> Any:
    """Every paraphrase of a row, three in each language."""

    def params() -> Iterator[Any]:
        for language, texts in rows.items():
            assert len(texts) == 3
            yield from (pytest.param(text, id=f"{language}{number}") for number, text in enumerate(texts, 1))

    return pytest.mark.parametrize("said", list(params()))
