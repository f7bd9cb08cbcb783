"""The demo's report for people and for programs.

Owns: looks only. Card texts come from our own notebooks, so nothing here is a stranger's.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Generator

from rich.console import Console, Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from rlm_memory_host.demo.story import QUESTION, SLICE_SPECIES, Report


@contextlib.contextmanager
def progress(*, quiet: bool) -> Generator[Callable[[str], None]]:
    """A line that says what runs now: a spinner in a terminal, plain lines elsewhere, nothing when quiet."""
    console = Console(stderr=True)
    if quiet:
        yield lambda _text: None
    elif console.is_terminal:
        with console.status("") as line:
            yield line.update
    else:
        yield lambda text: console.print(text, highlight=False)


def as_json(report: Report) -> None:
    """One object on stdout."""
    document = {
        "ok": report.is_good,
        "recorded": dict(report.recorded),
        "found": dict(report.found),
        "checks": dict(report.checks),
        "seconds": {name: round(value, 3) for name, value in report.seconds.items()},
    }
    print(json.dumps(document, sort_keys=True))


def as_cards(report: Report) -> None:
    """Four cards: recorded, found, sliced, and what was verified."""
    console = Console()
    console.print(Group(_recorded(report), _found(report), _sliced(report), _verified(report)))
    for name, value in report.seconds.items():
        console.print(f"{name:<26}{value:6.1f} s", highlight=False)


def _recorded(report: Report) -> Panel:
    card = report.recorded
    shape = " x ".join(str(length) for length in card["shape"])
    text = f"{card['title']}\n{shape}, {card['bytes']:,} bytes, from {card['source']} {card['source_version']}"
    return Panel(Text(f"{text}\nsha256 {card['sha256']}"), title="recorded in the first session", title_align="left")


def _found(report: Report) -> Panel:
    found = report.found
    why = ", ".join(found["matched"]) or "newest"
    took = found["milliseconds"]
    lines = [
        f"asked: {QUESTION}",
        f"first of {found['hits']}: {found['title']} ({why})",
        f"search {took['search']:.0f} ms, verify {took['verify']:.0f} ms, load {took['load']:.0f} ms",
    ]
    return Panel(Text("\n".join(lines)), title="found in the second, after both were killed", title_align="left")


def _sliced(report: Report) -> Panel:
    header, *rows = report.found["table"]
    table = Table(*header, box=None, pad_edge=False)
    for row in rows:
        table.add_row(*row)
    took = report.found["milliseconds"]["slice"]
    return Panel(table, title=f"just the {SLICE_SPECIES} rows, {took:.0f} ms", title_align="left", expand=True)


def _verified(report: Report) -> Panel:
    lines = Text()
    for sentence, holds in report.checks.items():
        lines.append("yes  " if holds else "NO   ", style="green" if holds else "bold red")
        lines.append(f"{sentence}\n")
    lines.rstrip()
    return Panel(lines, title="verified" if report.is_good else "NOT as it should be", title_align="left")
