"""`rlm-memory skill`: print a text for agents, or the example that goes with one.

Owns: the command. Does not own: the texts (`skills`).
"""

from __future__ import annotations

from typing import Annotated

import typer

from rlm_memory_host import skills
from rlm_memory_host.errors import NotFound


def skill(name: Annotated[str, typer.Argument(help="Which one; without it, their names.")] = "") -> None:
    """Print a text that tells an agent when to use memory: put it where your agent reads its skills."""
    if not name:
        print("\n".join(skills.NAMES))
        return
    try:
        print(skills.text(name), end="")
    except KeyError:
        raise NotFound(
            f"name: there is no skill {name[:40]!r}; there are {', '.join(skills.NAMES)}", "NOT_FOUND"
        ) from None
