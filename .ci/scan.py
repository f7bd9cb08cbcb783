"""Look for what must never be published: secrets, values of this machine's environment, its paths, registry hosts.

    python .ci/scan.py [WHEEL_OR_SDIST...]

Reads every file that git tracks, its name included, and every member of the given archives. Prints `where: what` for
each finding, never the finding itself, and exits 1 on any. A made-up secret that a test needs is built from parts, so
that no line of the repository looks like one.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

SECRETS: Mapping[str, str] = {
    "a private key": r"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY-----",
    "an AWS access key": r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b",
    "a GitHub token": r"\b(?:gh[pousr]_[A-Za-z0-9]{36,}|github_pat_[A-Za-z0-9_]{60,})",
    "a GitLab token": r"\bglpat-[A-Za-z0-9_-]{20,}",
    "a Slack token": r"\bxox[abprs]-[A-Za-z0-9-]{10,}",
    "a Google key": r"\bAIza[0-9A-Za-z_-]{35}\b",
    "a model provider's key": r"\bsk-(?:ant-|proj-)?[A-Za-z0-9_-]{20,}",
    "a package index token": r"\bpypi-[A-Za-z0-9_-]{50,}",
    "an npm token": r"\bnpm_[A-Za-z0-9]{36}\b",
    "a JSON web token": r"\beyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}",
    "credentials in an address": r"\b[a-z][a-z0-9+.-]{1,15}://[^\s/:@\"'<>{}$%]+:[^\s/@\"'<>{}$%]{3,}@[a-z0-9]",
}

# A folder below one of these belongs to one machine. A lone "/home" or "/root" in a sentence is none.
_NOBODY = r"(?!(?:user|you|me|ana|alice|bob|someone)\b)"
PLACES: Mapping[str, str] = {
    "a path of a home folder": r"(?<![\w.~-])/(?:home|Users)/" + _NOBODY + r"[A-Za-z0-9_.-]+",
    "a path of root's home folder": r"(?<![\w.~-])/root/[\w.-]",
    "a path of a work folder": r"(?<![\w.~/-])/(?:work|workspace|workspaces|builds)/[\w.-]",
    "a path of a Windows profile": r"\b[A-Za-z]:\\+Users\\+" + _NOBODY + r"[\w.-]+",
}

# Where packages come from is each user's own setting. Put together here, so that this file does not name them either.
_HOSTS = (("pypi", "org"), ("files", "pythonhosted", "org"), ("registry", "npmjs", "org"), ("deb", "debian", "org"))
REGISTRIES = {"a registry's host name": "|".join(re.escape(".".join(parts)) for parts in _HOSTS)}

# Values so common that finding them says nothing; and what tells a folder or a plain word from a value worth hiding.
_PLAIN_NAMES = re.compile(
    r"^(?:PATH|PWD|OLDPWD|SHELL|TERM|LANG|LC_\w+|SHLVL|_|HOME|USER|LOGNAME|TMPDIR|DEBIAN_FRONTEND)$"
)
_SECRET_NAMES = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL|AUTH|COOKIE|DSN", re.IGNORECASE)
_SHORTEST_VALUE = 8


def patterns(environment: Mapping[str, str]) -> dict[str, re.Pattern[bytes]]:
    """Everything to look for, by what a finding is called."""
    fixed = {**SECRETS, **PLACES, **REGISTRIES}
    found = {name: re.compile(pattern.encode()) for name, pattern in fixed.items()}
    for name, value in environment.items():
        if _is_telling(name, value):
            found[f"the value of the environment variable {name}"] = re.compile(re.escape(value.encode()))
    found["the path of this clone"] = re.compile(re.escape(str(ROOT).encode()) + rb"(?![\w-])")
    return found


def _is_telling(name: str, value: str) -> bool:
    """Whether a variable's value would give something away: long enough, and a secret by name or by its mixed look."""
    if len(value) < _SHORTEST_VALUE or _PLAIN_NAMES.match(name):
        return False
    if _SECRET_NAMES.search(name):
        return not Path(value).exists()
    return (
        len(value) >= 20 and bool(re.search(r"\d", value)) and bool(re.search(r"[A-Za-z]", value)) and "/" not in value
    )


def tracked() -> Iterator[tuple[str, bytes]]:
    """Every file that git tracks, as it is in the work tree."""
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True).stdout
    for name in filter(None, names.split(b"\0")):
        path = ROOT / os.fsdecode(name)
        if path.is_symlink() or not path.is_file():
            continue
        yield os.fsdecode(name), path.read_bytes()


def members(archive: Path) -> Iterator[tuple[str, bytes]]:
    """Every file inside a wheel or a source distribution."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            for name in wheel.namelist():
                yield f"{archive.name}:{name}", wheel.read(name)
        return
    with tarfile.open(archive) as sdist:
        for member in sdist.getmembers():
            stream = sdist.extractfile(member)
            if stream is not None:
                yield f"{archive.name}:{member.name}", stream.read()


def findings(files: Iterator[tuple[str, bytes]], wanted: Mapping[str, re.Pattern[bytes]]) -> Iterator[str]:
    """`name:line: what` for each finding; the text itself is never shown."""
    for name, content in files:
        for what, pattern in wanted.items():
            if pattern.search(os.fsencode(name)):
                yield f"{name}: {what} in the name"
            for match in pattern.finditer(content):
                line = content.count(b"\n", 0, match.start()) + 1
                yield f"{name}:{line}: {what}"


def main(archives: list[str]) -> int:
    wanted = patterns(os.environ)
    found = list(findings(tracked(), wanted))
    for archive in archives:
        found += findings(members(Path(archive)), wanted)
    for line in found:
        print(line)
    print(f"scan: {len(found)} findings of {len(wanted)} patterns")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
