"""`rlm-memory evaluate`: does memory earn its place? Cases against the shipped fake, or a real service.

Owns: arguments, where the reports go, exit codes (0 all right, 1 a case or gate failed). Does not own: cases and gates
(`evaluation`).
"""

from __future__ import annotations

import errno
import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rlm_memory_host.cli.host import JsonOption
from rlm_memory_host.errors import NotFound, SettingsError, Unwritable

if TYPE_CHECKING:
    from rlm_memory_host.evaluation.runner import Outcome, Setting


def command(
    case: Annotated[
        list[str] | None, typer.Option("--case", help="Only this one, by its number (22.3); repeatable.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", help="A folder for evaluation.json and evaluation.md.")] = None,
    url: Annotated[str | None, typer.Option("--url", help="A real service in place of the fake.")] = None,
    workspace: Annotated[str | None, typer.Option("--workspace", help="There: one for evaluations alone.")] = None,
    key: Annotated[str | None, typer.Option("--key", help="There: where the key is, as in honcho.key.")] = None,
    pause: Annotated[
        float, typer.Option("--pause", min=0, max=600, help="There: seconds until search sees a text.")
    ] = 5.0,
    quick: Annotated[bool, typer.Option("--quick", help="Without the two baselines.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Run the evaluation and say which promotion gates hold. Everything in it is made up; reports hold no content."""
    from rlm_memory_host.evaluation.cases import all_cases
    from rlm_memory_host.evaluation.gates import gates_of
    from rlm_memory_host.evaluation.report import failing, gate_lines, markdown, report_of
    from rlm_memory_host.evaluation.runner import SETTINGS, probe, run_cases
    from rlm_memory_host.evaluation.stand import Service
    from rlm_memory_host.honcho.client import checked_id, checked_url
    from rlm_memory_host.honcho.credentials import KeySource

    if (url is None) != (workspace is None) or (key is not None and url is None):
        raise SettingsError("--url and --workspace go together, and --key with them")
    known = all_cases()
    wanted = known if not case else [item for item in known if item.id in case]
    if case and len(wanted) < len(set(case)):
        raise NotFound(f"there is no such case; there are {', '.join(item.id for item in known)}")
    service = None
    if url is not None and workspace is not None:
        # Before the first case: a wrong word here would otherwise fail each of them.
        checked_url(url, "--url")
        checked_id(workspace, "--workspace")
        if key is not None:
            KeySource(key, setting="--key").read()
        service = Service(url, workspace, "evaluation-person", "evaluation-assistant", key=key)

    if out is not None:
        _write(out, {})

    def told(setting: Setting, outcome: Outcome) -> None:
        if setting == "everything" and not as_json:
            state = "skipped" if outcome.skipped else "ok" if outcome.passed else "FAILED"
            print(f"{outcome.case.id:<8} {state:<8} {outcome.case.title}", flush=True)

    settings: tuple[Setting, ...] = ("everything",) if quick else SETTINGS
    run = run_cases(wanted, service=service, settings=settings, pause_seconds=pause if service else 0.0, told=told)
    if service is None and not case:
        probe(run)
    report = report_of(run)
    if out is not None:
        _write(out, {"evaluation.json": json.dumps(report, indent=2) + "\n", "evaluation.md": markdown(report)})
    if as_json:
        json.dump(report, sys.stdout)
        print()
    else:
        print("\n".join(["", *gate_lines(gates_of(run))]))
    raise typer.Exit(1 if failing(report) else 0)


def _write(folder: Path, texts: Mapping[str, str]) -> None:
    """Write the reports; without any, try whether that can be done. Raises Unwritable."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            for name, text in texts.items():
                (folder / name).write_text(text, "utf-8")
    except OSError as error:
        code = errno.errorcode.get(error.errno or 0, "unknown")
        raise Unwritable(f"--out: the folder cannot be written to ({code})") from None
