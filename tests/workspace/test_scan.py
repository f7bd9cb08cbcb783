"""The scan before publishing finds what it must, shows none of it, and finds nothing in this repository."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def scan() -> ModuleType:
    spec = importlib.util.spec_from_file_location("ci_scan", ROOT / ".ci" / "scan.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# Each is put together from parts: the scan reads this file too.
PLANTED = {
    "a private key": "-----BEGIN RSA " + "PRIVATE KEY-----",
    "an AWS access key": "AKIA" + "ABCDEFGHIJKLMNOP",
    "a GitHub token": "ghp" + "_" + "a1" * 20,
    "a GitLab token": "glpat" + "-" + "a1" * 12,
    "a Slack token": "xoxb" + "-1234567890-abc",
    "a Google key": "AIza" + "a" * 35,
    "a model provider's key": "sk" + "-ant-" + "a1" * 15,
    "a package index token": "pypi" + "-" + "Ag" * 30,
    "an npm token": "npm" + "_" + "a" * 36,
    "a JSON web token": "eyJ" + "hbGciOiJIUzI1NiJ9" + ".eyJ" + "zdWIiOiIxMjM0NTYifQ" + "." + "c2lnbmF0dXJl",
    "credentials in an address": "postgres" + "://me:" + "pass@host/db",
    "a path of a home folder": "/ho" + "me/karl/notes",
    "a path of root's home folder": "/ro" + "ot/.config",
    "a path of a work folder": "/wo" + "rk/thing",
    "a path of a Windows profile": "C:" + "\\Users\\karl",
    "a registry's host name": "https://" + "py" + "pi.org/simple",
    "the value of the environment variable SERVICE_TOKEN": "tell-no-one",
    "the value of the environment variable BUILD_ID": "a" * 12 + "0123456789",
    "the path of this clone": str(ROOT) + "/x",
}


@pytest.mark.parametrize("what", PLANTED)
def test_a_planted_finding_is_named_and_not_shown(scan: ModuleType, what: str):
    environment = {"SERVICE_TOKEN": "tell-no-one", "BUILD_ID": "a" * 12 + "0123456789", "LANG": "en_US.UTF-8"}
    content = f"first line\nsecond {PLANTED[what]} end".encode()
    found = list(scan.findings(iter([("file.txt", content)]), scan.patterns(environment)))
    assert f"file.txt:2: {what}" in found
    assert not any(PLANTED[what] in line for line in found)


def test_harmless_text_is_no_finding(scan: ModuleType):
    text = b"see /home and /root; https://example.org/a:b@c; sk-learn; eyJ; ~/work/notes; docs/home/page"
    assert list(scan.findings(iter([("a", text)]), scan.patterns({"TERM": "xterm-256color", "EDITOR": "vi"}))) == []


def test_a_wheel_is_read_inside(scan: ModuleType, tmp_path: Path):
    wheel = tmp_path / "a-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("a/b.py", "x = '" + PLANTED["an AWS access key"] + "'")
    found = list(scan.findings(scan.members(wheel), scan.patterns({})))
    assert found == ["a-1-py3-none-any.whl:a/b.py:1: an AWS access key"]


def test_this_repository_has_no_finding():
    result = subprocess.run([sys.executable, ROOT / ".ci" / "scan.py"], text=True, capture_output=True)
    assert result.returncode == 0, result.stdout
