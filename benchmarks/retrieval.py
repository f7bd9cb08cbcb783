"""How well recall finds things: our index beside SQLite's FTS5, on synthetic memories and conversations.

Run: `python benchmarks/retrieval.py [--memories N] [--seed N]`. Prints recall@1, recall@10, MRR and milliseconds a
query for exact words, inflected words, Chinese words, identifiers and questions about turns, one line per engine. The
set is made from word lists here: subjects with attributes and values, each stated in one sentence and asked for in
other words. A number of another set does not follow from these; they tell one change of the index from another.
"""

from __future__ import annotations

import argparse
import random
import sqlite3
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rlm_memory_host.recall.fusion import lend_to_neighbours
from rlm_memory_host.storage.postings import B_BLOCKS, B_TURNS, Corpus
from rlm_memory_host.storage.tokens import document_terms, query_terms

SUBJECTS = ["gateway", "scheduler", "invoice", "ledger", "crawler", "importer", "dashboard", "notifier", "renderer"]
TEAMS = ["billing", "search", "mobile", "growth", "research", "storage", "network", "design", "support", "training"]
FACTS = (
    ("{s} of {t} retries {n} times before giving up", "how often does the {t} {s} retry", "inflected"),
    ("{s} of {t} stores its state under key {i}", "{i}", "identifier"),
    ("the {t} team deploys the {s} every {n} days", "deployment of the {s} by {t}", "inflected"),
    ("timeouts in the {t} {s} are limited to {n} seconds", "timeout limit {t} {s}", "words"),
    ("{t}团队的{s}部署方案每{n}天更新一次", "{s}的部署 {t}", "chinese"),
    ("{t}的{s}数据库连接池上限为{n}", "{t} {s} 连接池", "chinese"),
)


@dataclass(frozen=True, slots=True)
class Case:
    """One question, its kind, and the key of the one document that answers it."""

    query: str
    kind: str
    answer: str


def make(count: int, seed: int) -> tuple[list[tuple[str, str]], list[Case]]:
    """(documents, questions); the same for the same seed."""
    rng = random.Random(seed)
    documents: list[tuple[str, str]] = []
    cases: list[Case] = []
    for number in range(count):
        text, query, kind = rng.choice(FACTS)
        fields = {
            "s": rng.choice(SUBJECTS) + str(number // 40),
            "t": rng.choice(TEAMS),
            "n": rng.randint(2, 99),
            "i": f"cfg-{rng.randrange(16**6):06x}",
        }
        documents.append((f"m{number}", text.format(**fields)))
        cases.append(Case(query.format(**fields), kind, f"m{number}"))
    rng.shuffle(cases)
    return documents, cases[:400]


def turns(count: int, seed: int) -> tuple[list[tuple[str, str]], list[Case]]:
    """A conversation in which the answer follows the turn that names the subject."""
    rng = random.Random(seed)
    documents: list[tuple[str, str]] = []
    cases: list[Case] = []
    for number in range(count // 2):
        subject = f"{rng.choice(SUBJECTS)}{number}"
        documents.append((f"t{2 * number}", f"user 2026-01-01 what happened to the {subject}"))
        answer = rng.choice(("it was moved to the other cluster", "they replaced the disk", "nothing, it is fine"))
        documents.append((f"t{2 * number + 1}", f"assistant 2026-01-01 {answer}"))
        cases.append(Case(f"what happened with {subject}", "turns", f"t{2 * number + 1}"))
    return documents, cases[:200]


Engine = Callable[[str], list[str]]


def ours(documents: Sequence[tuple[str, str]], b: float, *, conversation: bool = False) -> Engine:
    """Our tokens and BM25; turns lend a fifth to their neighbours."""
    corpus = Corpus(b)
    for key, text in documents:
        corpus.add(key, document_terms(text))
    order = [key for key, _ in documents]

    def search(query: str) -> list[str]:
        scores = corpus.scores(query_terms(query))
        if conversation:
            scores = lend_to_neighbours(scores, order)
        return sorted(scores, key=lambda key: (-scores[key], key))[:10]

    return search


def plain(documents: Sequence[tuple[str, str]]) -> Engine:
    """BM25 over words divided at blanks: what no tokeniser gives."""
    corpus = Corpus(B_BLOCKS)
    for key, text in documents:
        corpus.add(key, text.lower().split())

    def search(query: str) -> list[str]:
        scores = corpus.scores(query.lower().split())
        return sorted(scores, key=lambda key: (-scores[key], key))[:10]

    return search


def sqlite(documents: Sequence[tuple[str, str]], tokenize: str) -> Engine:
    """SQLite's FTS5 with bm25(), terms OR-ed."""
    base = sqlite3.connect(":memory:")
    base.execute(f"CREATE VIRTUAL TABLE d USING fts5(key UNINDEXED, text, tokenize='{tokenize}')")
    base.executemany("INSERT INTO d VALUES (?, ?)", documents)

    def search(query: str) -> list[str]:
        words = " OR ".join('"' + word.replace('"', "") + '"' for word in query.split())
        rows = base.execute("SELECT key FROM d WHERE d MATCH ? ORDER BY bm25(d) LIMIT 10", (words,))
        return [str(row[0]) for row in rows]

    return search


def measure(engine: Engine, cases: Sequence[Case]) -> dict[str, float]:
    """recall@1, recall@10, MRR, and milliseconds a query."""
    first = ten = reciprocal = 0.0
    began = time.perf_counter()
    for case in cases:
        found = engine(case.query)
        if case.answer in found:
            ten += 1
            reciprocal += 1 / (found.index(case.answer) + 1)
            first += found[0] == case.answer
    spent = (time.perf_counter() - began) * 1000 / max(1, len(cases))
    count = max(1, len(cases))
    return {"r@1": first / count, "r@10": ten / count, "mrr": reciprocal / count, "ms": spent}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--memories", type=int, default=5_000)
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()
    documents, cases = make(options.memories, options.seed)
    talk, asked = turns(2_000, options.seed)
    print(f"{'engine':22} {'questions':12} {'r@1':>6} {'r@10':>6} {'mrr':>6} {'ms':>8}")
    engines = {
        "rlm-memory": ours(documents, B_BLOCKS),
        "BM25 on blanks": plain(documents),
        "FTS5 unicode61": sqlite(documents, "unicode61"),
        "FTS5 porter": sqlite(documents, "porter unicode61"),
        "FTS5 trigram": sqlite(documents, "trigram"),
    }
    for name, engine in engines.items():
        for kind in ("words", "inflected", "identifier", "chinese"):
            _row(name, kind, measure(engine, [case for case in cases if case.kind == kind]))
    _row("rlm-memory", "turns", measure(ours(talk, B_TURNS, conversation=True), asked))
    _row("without neighbours", "turns", measure(ours(talk, B_TURNS), asked))
    _row("FTS5 porter", "turns", measure(sqlite(talk, "porter unicode61"), asked))


def _row(name: str, kind: str, found: dict[str, float]) -> None:
    print(f"{name:22} {kind:12} {found['r@1']:6.3f} {found['r@10']:6.3f} {found['mrr']:6.3f} {found['ms']:8.2f}")


if __name__ == "__main__":
    main()
