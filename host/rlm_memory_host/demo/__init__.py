"""`rlm-memory demo`: the main job, headless, on real data, in a place of its own.

Owns: the command. Two sessions run the tutorial's notebooks (`notebook`, `processes`, `story`); between them host and
kernel are killed. What happened is checked from outside and shown (`show`). Nothing is left behind.

Source: design page "Overview", On the command line.
"""

from __future__ import annotations

from typing import Annotated

import typer


def command(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object for programs.")] = False,
) -> None:
    """Record a result on real data, kill everything, and find it again: exit 0 when all of it holds."""
    from rlm_memory_host.demo import show
    from rlm_memory_host.demo.story import tell

    with show.progress(quiet=as_json) as say:
        report = tell(say)
    show.as_json(report) if as_json else show.as_cards(report)
    raise typer.Exit(0 if report.is_good else 2)
