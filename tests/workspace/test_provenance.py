"""What `provenance/upstreams.json` says of revisions, licences and versions is complete; the locks confirm it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
RECORD = json.loads((ROOT / "provenance" / "upstreams.json").read_text())
PINNED = {
    "DeepSeek Harness": ("99f6f02fecdb7dff40c3fbc9470f5907c29f74ca", "MIT"),
    "Honcho": ("ddbb90e36f2d148c7982f6ed85b09d31cabf5944", "AGPL-3.0"),
    "DeepSeek RLM": ("79b6b28e16c7305e8e791f2d8c9d2935e75ade60", "MIT"),
    "Prime Agent runtime": ("f8f0036cc2da1a640aad990ae8dcb7c4820ce32e", "MIT"),
}


def locked(lock: str) -> dict[str, str]:
    return dict(re.findall(r"^([A-Za-z0-9_.-]+)==([^\s;\\]+)", (ROOT / lock).read_text(), re.MULTILINE))


def test_every_upstream_is_pinned_to_an_exact_revision_with_its_licence():
    assert {entry["name"]: (entry["revision"], entry["license"]) for entry in RECORD["upstreams"]} == PINNED


@pytest.mark.parametrize("entry", RECORD["upstreams"], ids=lambda entry: entry["name"])
def test_every_upstream_says_what_it_is_used_as_and_what_that_was_checked_against(entry: dict[str, object]):
    assert set(entry) == {"name", "version", "revision", "license", "relied_on", "used_as", "verified_against"}
    assert entry["used_as"]
    assert entry["verified_against"]


@pytest.mark.parametrize("lock", RECORD["verified_with"])
def test_the_versions_named_are_those_of_the_lock(lock: str):
    pins = locked(lock)
    named = RECORD["verified_with"][lock]
    assert {name: pins.get(name) for name in named} == named
    assert set(named) == {"ipykernel", "jupyter-client", "pyzmq", "pandas", "pyarrow"}


@pytest.mark.parametrize("line", ["0.1", "0.2"])
def test_the_harness_wheels_named_are_those_of_the_suite(line: str):
    path = f"tests/dsh/requirements-{line}.txt"
    assert locked(path) == RECORD["test_wheels"][path]


def test_no_package_under_the_agpl_is_locked():
    """Honcho is a service that others run; its server is not installed. Its client only tests our fake."""
    assert "honcho" not in locked("requirements.lock").keys() | locked("requirements-compat.lock").keys()
