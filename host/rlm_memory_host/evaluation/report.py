"""A run as JSON and as Markdown, without a word of content: names of cases and checks are ours, the rest is numbers.

Owns: both forms. Does not own: what follows from a run (`gates`).

Source: DeepSeek Honcho specification, sections 8.3, 22, 34.2.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from rlm_memory_host.contracts.version import version
from rlm_memory_host.evaluation.gates import Gate, gates_of, quantile, success
from rlm_memory_host.evaluation.runner import Outcome, Run

SCHEMA: Final = 1
CHARACTERS_A_TOKEN: Final = 4
"""The estimate of tokens, as section 13.3 counts them."""


def report_of(run: Run) -> dict[str, Any]:
    """The whole report, JSON types only."""
    measures = run.measures
    outcomes = run.outcomes.get("everything", [])
    failed = [item for item in outcomes if not item.skipped and not item.passed]
    return {
        "schema": SCHEMA,
        "version": version(),
        "service": run.service,
        "passed": not failed,
        "cases": [_case(item) for item in outcomes],
        "task_success": {setting: _rounded(success(items)) for setting, items in run.outcomes.items()},
        "exactness": {"right": measures.exact_right, "asked": measures.exact_asked},
        "stale_accuracy": {"right": measures.stale_right, "asked": measures.stale_asked},
        "leakage": sum(
            not check.passed and not check.positive
            for item in outcomes
            if item.case.theme == "isolation"
            for check in item.checks
        ),
        "discarded_remote_results": dict(sorted(run.rejections.items())),
        "latency_seconds": {name: _times(times) for name, times in sorted(run.spent_seconds.items())},
        "resolve_seconds_by_bytes": {
            str(size): _times(times) for size, times in sorted(measures.resolve_seconds.items())
        },
        "bytes_sent": {"total": sum(run.bytes_sent.values()), "by_route": dict(sorted(run.bytes_sent.items()))},
        "tokens": {
            "injected_at_most": _tokens(measures.injected_characters),
            "answer_at_most": _tokens(measures.text_characters),
            "card_at_most": _tokens(measures.card_characters),
        },
        "outbox": dict(sorted(run.outbox.items())),
        "probe": dict(run.probe),
        "gates": [
            {"section": gate.section, "name": gate.name, "state": gate.state, "why": gate.why} for gate in gates_of(run)
        ],
    }


def markdown(report: Mapping[str, Any]) -> str:
    """The report for people."""
    shown = report["task_success"]
    lines = [
        "# Evaluation",
        "",
        f"rlm-memory-host {report['version']} against a {report['service']} service. Content-free: names of cases and "
        "numbers.",
        "",
        "## Promotion gates",
        "",
        "| section | gate | state | |",
        "|---|---|---|---|",
        *(f"| {gate['section']} | {gate['name']} | {gate['state']} | {gate['why']} |" for gate in report["gates"]),
        "",
        "## Tasks done",
        "",
        "| setting | tasks done |",
        "|---|---|",
        *(f"| {name} | {'-' if part is None else f'{part:.0%}'} |" for name, part in shown.items()),
        "",
        "## Cases",
        "",
        "| case | | passed | checks | seconds |",
        "|---|---|---|---|---|",
        *(_row(item) for item in report["cases"]),
        "",
        "## Numbers",
        "",
        f"- exact bytes: {_part(report['exactness'])}; freshness told right: {_part(report['stale_accuracy'])}; "
        f"leakage: {report['leakage']}",
        f"- bytes sent to the service: {report['bytes_sent']['total']:,}",
        f"- tokens (estimated): {', '.join(f'{name} {number}' for name, number in report['tokens'].items())}",
        "",
        "| call | count | p50 s | p95 s | longest s |",
        "|---|---|---|---|---|",
        *(_time_row(name, times) for name, times in report["latency_seconds"].items()),
        *(_time_row(f"resolve of {int(size):,} bytes", t) for size, t in report["resolve_seconds_by_bytes"].items()),
    ]
    return "\n".join(lines) + "\n"


def failing(report: Mapping[str, Any]) -> list[str]:
    """The cases and gates that failed, by name."""
    cases = [item["id"] for item in report["cases"] if not item["passed"] and not item["skipped"]]
    return cases + [gate["name"] for gate in report["gates"] if gate["state"] == "fails"]


def gate_lines(gates: Iterable[Gate]) -> list[str]:
    """One line a gate."""
    return [f"{gate.state:<13} {gate.section:<5} {gate.name} ({gate.why})" for gate in gates]


def _case(item: Outcome) -> dict[str, Any]:
    return {
        "id": item.case.id,
        "title": item.case.title,
        "theme": item.case.theme,
        "passed": item.passed,
        "skipped": item.skipped,
        "fault": item.fault,
        "seconds": round(item.seconds, 2),
        "checks": [{"name": c.name, "positive": c.positive, "passed": c.passed} for c in item.checks],
    }


def _row(item: Mapping[str, Any]) -> str:
    state = "skipped" if item["skipped"] else "yes" if item["passed"] else f"**no** {item['fault']}"
    wrong = [check["name"] for check in item["checks"] if not check["passed"]]
    checks = f"{len(item['checks']) - len(wrong)} of {len(item['checks'])}" + (f": {'; '.join(wrong)}" if wrong else "")
    return f"| {item['id']} | {item['title']} | {state} | {checks} | {item['seconds']} |"


def _times(times: list[float]) -> dict[str, Any]:
    ordered = sorted(times)
    return {
        "count": len(ordered),
        "p50": round(quantile(ordered, 0.5), 4),
        "p95": round(quantile(ordered, 0.95), 4),
        "max": round(ordered[-1], 4),
    }


def _time_row(name: str, times: Mapping[str, Any]) -> str:
    return f"| {name} | {times['count']} | {times['p50']} | {times['p95']} | {times['max']} |"


def _tokens(characters: list[int]) -> int | None:
    return -(-max(characters) // CHARACTERS_A_TOKEN) if characters else None


def _part(found: Mapping[str, int]) -> str:
    return f"{found['right']} of {found['asked']}"


def _rounded(part: float | None) -> float | None:
    return None if part is None else round(part, 4)
