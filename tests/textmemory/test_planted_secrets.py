"""Secrets planted in every way in: none reaches a file of the state root or a request, but for the exact bytes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rlm_memory_host.honcho.fake import FakeHoncho, serving
from served import LOAD, honcho_settings, host, outbox_of, until

pytestmark = pytest.mark.kernel

PLANTED = {
    "openai": "sk-proj-" + "Ab3dEf6hIj9kLm2nOp5qRs8tUv1wXy4zAb3dEf6hIj9kLm2n",
    "github": "ghp_" + "Ab3dEf6hIj9kLm2nOp5qRs8tUv1wXy4zAb3d",
    "aws": "AKIA" + "IOSFODNN7EXQMPLZ",
    "assignment": "password = hunter2-Correct-Horse-99",
    "url": "postgres://admin:" + "s3cr3t-Pass-77@db.internal/prod",
    "own": "TRIAL-SECRET-0042",
}
RAW = (*(PLANTED[name] for name in ("openai", "github", "aws", "own")), "hunter2-Correct-Horse-99", "s3cr3t-Pass-77")


def leaks(root: Path) -> list[str]:
    """Files below the state root that hold a planted value. The exact bytes of results are kept as they are."""
    return [
        f"{path.relative_to(root)}: {value[:8]}"
        for path in root.rglob("*")
        if path.is_file() and "objects" not in path.parts and "exports" not in path.parts
        for value in RAW
        if value.encode() in path.read_bytes()
    ]


def test_no_sink_takes_a_planted_secret(state_root: Path, start_kernel: Callable[..., Any]) -> None:
    """Cards and sidecars are redacted, identity and notes refused, captured words and questions redacted."""
    settings = honcho_settings("URL", "capture = true").replace(
        "[outbox]", "[guard]\nextra_deny_patterns = ['TRIAL-SECRET-[0-9]+']\n[outbox]"
    )
    with serving(FakeHoncho(workspaces=["space"])) as served:
        with host(state_root, settings.replace("URL", served.url)) as running:
            kernel = start_kernel()
            kernel.run(f"{LOAD}\nplanted = {PLANTED!r}\nE = memory.errors\nimport pandas as pd, pathlib").ok()
            warned = """
warned = []
for value in planted.values():
    frame = pd.DataFrame({"a": [value], "b": [1]})
    done = memory.experiments.record(frame, title=f"title {value}", summary=f"it is {value}", tags=[value[:60], "kept"])
    warned.append(any("secret" in warning for warning in done.warnings))
    frame = pd.DataFrame({f"column {value}": [1]})
    memory.experiments.record(frame, title="columns", query=value, params={"token": value})
print(warned)
"""
            assert kernel.run(warned).ok().strip() == str([True] * len(PLANTED))
            refused = """
codes = set()
def refuse(call, *args, **more):
    try:
        call(*args, **more)
    except E.MemoryFault as error:
        codes.add(error.code)
        assert not any(value in str(error) for value in planted.values())
    else:
        codes.add("accepted")
known = memory.remember("The safe is in the cellar.", title="Safe")
for value in planted.values():
    refuse(memory.experiments.record, {"a": 1}, title="t", source=value)
    refuse(memory.experiments.record, {"a": 1}, title="t", source="s", source_version=value)
    refuse(memory.remember, f"Note that {value} opens it.")
    refuse(memory.remember, "A harmless note.", title=f"For {value}")
    refuse(memory.remember, "A harmless note.", topic=value[:100])
    refuse(memory.remember, "A harmless note.", tags=[value[:70]])
    refuse(memory.remember, "A harmless note.", basis=value)
    refuse(memory.correct, f"The safe opens with {value}.", id=known.id)
    memory.search(f"what is {value}"); memory.recall(f"what is {value}")
print(codes)
"""
            assert kernel.run(refused).ok().strip() == "{'GUARD_SECRET'}"
            rows: list[dict[str, Any]] = [{"type": "session", "agent": "root", "seq": 0}]
            for number, value in enumerate(PLANTED.values(), 1):
                user = {"type": "user/message", "turn": number, "content": f"From now on always use {value}."}
                answer = {"type": "assistant/message", "turn": number, "content": f"I will use {value}."}
                end = {"type": "turn/end", "turn": number, "reason": "completed"}
                rows += [{**row, "seq": 3 * number + place} for place, row in enumerate((user, answer, end))]
            kernel.run(f"fed = dsh_tools.call('harness_feed', {{'rows': {rows!r}}})").ok()
            kernel.run("for value in planted.values():\n    refuse(memory.remember, 'x', quote=f'I use {value}.')").ok()
            kernel.run("memory.status()\ndsh_tools.call('harness_inject', {})").ok()
            until(lambda: outbox_of(state_root)["pending"] == 0, "everything that may leave has left")
            assert outbox_of(state_root)["dead_letter"] == 0
            assert leaks(state_root) == []
            running.end()
            assert leaks(state_root) == []
            assert not any(value in running.output.read_text() for value in RAW)
        sent = json.dumps([(asked.path, asked.query, asked.body.decode()) for asked in served.fake.requests])
        assert "/search" in sent
        assert "From now on always use" in sent
        assert not [value[:8] for value in RAW if value in sent]


def test_the_same_words_without_a_secret_are_kept(state_root: Path, start_kernel: Callable[..., Any]) -> None:
    """The guard is not what makes the test above pass: harmless look-alikes are stored everywhere."""
    with host(state_root, ""):
        kernel = start_kernel()
        code = (
            f"{LOAD}\nmemory.experiments.record({{'a': 1}}, title='max token limit is 4096', source='$OPENAI_KEY')\n"
            "memory.remember('A password must have 12 characters.')\n"
            "print(len(memory.search('token')), len(memory.search('password')))"
        )
        assert kernel.run(code).ok().strip() == "1 1"
        assert b"max token limit is 4096" in b"".join(
            path.read_bytes() for path in (state_root / "artifacts").rglob("*.json")
        )
