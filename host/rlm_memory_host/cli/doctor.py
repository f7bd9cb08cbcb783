"""`rlm-memory doctor`."""

from __future__ import annotations

import json
from dataclasses import asdict

import typer

from rlm_memory_host.cli.host import ConfigOption, JsonOption, RootOption
from rlm_memory_host.doctor import examine, exit_code


def command(config: ConfigOption = None, state_root: RootOption = None, as_json: JsonOption = False) -> None:
    """Say what is wrong, how to mend it, and which protections hold: exit 0 fine, 1 warnings, 2 problems."""
    findings = examine(config, state_root)
    code = exit_code(findings)
    if as_json:
        print(json.dumps({"exit": code, "findings": [asdict(finding) for finding in findings]}, sort_keys=True))
    else:
        for finding in findings:
            print(f"{finding.state:8} {finding.check}: {finding.text}")
            if finding.fix:
                print(f"{'':8}   -> {finding.fix}")
    raise typer.Exit(code)
