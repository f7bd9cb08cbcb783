"""`rlm-memory outbox ls|show|retry|drop|export`: what waits to be sent, what failed, and what to do about it.

Owns: the commands. Does not own: the actions (`delivery.operator`). `retry` and `drop` take the outbox's lock; while a
host works on the outbox they are asked of it over the local socket. `take_back` does the same for what a command of the
text memory forgot or destroyed.
"""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import sys
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from rlm_memory_host import settings
from rlm_memory_host.attach import dial
from rlm_memory_host.cli.host import ConfigOption, JsonOption, RootOption
from rlm_memory_host.delivery import operator
from rlm_memory_host.delivery.announced import Announced
from rlm_memory_host.delivery.outbox import Outbox
from rlm_memory_host.errors import NotFound, Unwritable
from rlm_memory_host.process import AlreadyRunning, write_private

commands = typer.Typer(no_args_is_help=True, help="Deliveries to the memory service that wait or failed.")

TAKE_BACK_SECONDS: Final = 2.0
"""How long a delivery that is just being tried is waited for: it may fail and be free again."""
TAKE_BACK_PAUSE: Final = 0.05

IdArguments = Annotated[list[str] | None, typer.Argument(help="Ids, or their first characters.")]


@commands.command("ls")
def list_(config: ConfigOption = None, state_root: RootOption = None, as_json: JsonOption = False) -> None:
    """List deliveries without their content: exit 1 where some are dead letters or in quarantine."""
    found = operator.listing(_root(config, state_root))
    if as_json:
        print(json.dumps([dataclasses.asdict(item) for item in found]))
    else:
        for item in found:
            doubt = " outcome unknown" if item.ambiguous else ""
            code = f" {item.code}" if item.code else ""
            print(f"{item.name[:16]}  {item.place:<11} {item.created_at} attempts {item.attempts}{doubt}{code}")
        counts = {
            place: sum(item.place == place for item in found) for place in ("pending", "dead-letter", "quarantine")
        }
        print(", ".join(f"{count} {place}" for place, count in counts.items()))
    raise typer.Exit(1 if any(item.place != "pending" for item in found) else 0)


@commands.command("show")
def show(
    delivery: Annotated[str, typer.Argument(help="An id, or its first characters.")],
    config: ConfigOption = None,
    state_root: RootOption = None,
    content: Annotated[bool, typer.Option("--content", help="Show the texts too.")] = False,
) -> None:
    """Show one delivery as JSON; its texts only with --content."""
    document = operator.find(_root(config, state_root), delivery)
    print(json.dumps(operator.shown(document, content=content), indent=2, ensure_ascii=False))


@commands.command("retry")
def retry(
    deliveries: IdArguments = None,
    all_dead: Annotated[bool, typer.Option("--all", help="Every dead letter.")] = False,
    config: ConfigOption = None,
    state_root: RootOption = None,
    as_json: JsonOption = False,
) -> None:
    """Give dead letters another chance; each is looked up at the service before it is sent."""
    root = _root(config, state_root)
    if all_dead:
        names = [document.request.delivery_id for document in operator.documents(root, "dead-letter")]
    else:
        names = _named(root, deliveries)
    _act(root, "retry", names, as_json=as_json)


@commands.command("drop")
def drop(
    deliveries: IdArguments = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    config: ConfigOption = None,
    state_root: RootOption = None,
    as_json: JsonOption = False,
) -> None:
    """Forget deliveries for good. What the service already holds stays there."""
    root = _root(config, state_root)
    names = _named(root, deliveries)
    if not yes and not typer.confirm(f"Forget {len(names)} deliveries for good?"):
        raise typer.Exit(2)
    _act(root, "drop", names, as_json=as_json)


@commands.command("export")
def export(
    target: Annotated[Path | None, typer.Argument(help="A new file; left out: the standard output.")] = None,
    config: ConfigOption = None,
    state_root: RootOption = None,
) -> None:
    """Write every waiting and dead delivery with its texts, one JSON line each. Treat the file like the outbox."""
    lines = operator.export(_root(config, state_root))
    if target is None:
        for line in lines:
            sys.stdout.buffer.write(line)
        return
    if os.path.lexists(target):
        raise NotFound("the target exists already; name a new file")
    data = b"".join(lines)
    try:
        write_private(target, data)
    except OSError as error:
        code = errno.errorcode.get(error.errno or 0, "unknown")
        raise Unwritable(f"the target cannot be written ({code}); nothing was exported") from None
    print(f"{data.count(os.linesep.encode())} deliveries, {len(data):,} bytes")


def _root(config: Path | None, state_root: Path | None) -> Path:
    return settings.load(config, state_root).settings.state_root


def _named(root: Path, deliveries: Sequence[str] | None) -> list[str]:
    if not deliveries:
        raise NotFound("which deliveries? `rlm-memory outbox ls` lists their ids")
    return [operator.find(root, name).request.delivery_id for name in deliveries]


def take_back(root: Path, memory_ids: Collection[str], session: str = "") -> int:
    """Drop what waits or failed about memories, or of a session; how many were dropped. Raises HostError."""
    Announced(root).drop_about(memory_ids)
    until = time.monotonic() + TAKE_BACK_SECONDS
    taken = 0
    while names := operator.about(root, memory_ids, session):
        taken += len(_perform(root, "drop", names).get("done", []))
        if time.monotonic() > until:
            break
        time.sleep(TAKE_BACK_PAUSE)
    return taken


def _perform(root: Path, action: operator.Action, names: list[str]) -> dict[str, Any]:
    # Nothing is admitted here, so there is nothing to redact.
    outbox = Outbox(root, redact=str)
    try:
        with outbox:
            return dict(operator.act(outbox, action, names))
    except AlreadyRunning:
        answer = dial.ask(root, {"type": "outbox", "action": action, "deliveries": names})
        if answer is None:
            raise
        return answer


def _act(root: Path, action: operator.Action, names: list[str], *, as_json: bool) -> None:
    told = _perform(root, action, names)
    if as_json:
        print(json.dumps({key: told.get(key, []) for key in ("done", "not_done")}))
    else:
        print(f"{action}: {len(told.get('done', []))} done, {len(told.get('not_done', []))} not")
    raise typer.Exit(1 if told.get("not_done") else 0)
