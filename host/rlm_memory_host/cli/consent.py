"""A person's word for what only a person may do: asked at a terminal, or a token that was printed at one.

Owns: the question, one-time tokens, the refusal inside a kernel's or an agent's process tree. Does not own: a boundary.
Hostile code of the same user can do whatever that user can; this keeps a model's shell command from being taken for a
person's, and the operator page says so.

Source: design page "The memory model", Lifecycle and gates.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import sys
import time
from pathlib import Path
from typing import Any, Final, cast

from rlm_memory_host.errors import ToolDenied
from rlm_memory_host.storage import ndjson
from rlm_memory_host.textmemory.store import MarkdownStore

TOKEN_SECONDS: Final = 600
_MARKS: Final = ("RLM_SESSION_DIR", "RLM_SESSION_ID", "DSH_SESSION_ID", "JPY_PARENT_PID", "JPY_SESSION_NAME")
_KERNELS: Final = (b"ipykernel", b"ipykernel_launcher", b"rlm_kernel", b"jupyter-kernel")
_MAX_ANCESTORS: Final = 64


def require(store: MarkdownStore, action: str, token: str | None) -> None:
    """Return when a person agreed to `action` (its name and target). Raises ToolDenied (NOT_A_PERSON)."""
    if is_inside_kernel():
        raise ToolDenied("this command is a person's; it does not run inside a kernel or an agent", "NOT_A_PERSON")
    if token is not None:
        if _spend(store, action, token):
            return
        raise ToolDenied("the token is not of this action, was used, or is older than ten minutes", "NOT_A_PERSON")
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise ToolDenied(
            "nobody is at this terminal: run it at one, or print a token at one with the same command and "
            "--print-token, then pass it with --token",
            "NOT_A_PERSON",
        )
    print(f"{action}: are you sure? Type yes: ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() != "yes":
        raise ToolDenied("not done: the answer was not yes", "NOT_A_PERSON")


def issue(store: MarkdownStore, action: str) -> str:
    """A token for `action`, good once, for ten minutes. Raises ToolDenied when nobody is at a terminal."""
    if not is_person_here():
        raise ToolDenied("a token is printed at a terminal only", "NOT_A_PERSON")
    return remember(store, action)


def remember(store: MarkdownStore, action: str) -> str:
    """Make and keep a token; only its hash is stored."""
    token = secrets.token_urlsafe(12)
    with store.lock():
        known = _known(store)
        known[_mark(action, token)] = time.time() + TOKEN_SECONDS
        _keep(store, known)
    return token


def is_person_here() -> bool:
    """Whether somebody can read what is printed."""
    return sys.stdout.isatty() and not is_inside_kernel()


def is_inside_kernel() -> bool:
    """Whether this process descends from a kernel or runs in an agent's session."""
    if any(name in os.environ for name in _MARKS):
        return True
    process = os.getppid()
    for _ in range(_MAX_ANCESTORS):
        if process <= 1:
            return False
        try:
            command = Path(f"/proc/{process}/cmdline").read_bytes()
            fields = Path(f"/proc/{process}/stat").read_bytes().rpartition(b")")[2].split()
        except OSError:
            return False
        if any(mark in command for mark in _KERNELS):
            return True
        process = int(fields[1])
    return False


def _spend(store: MarkdownStore, action: str, token: str) -> bool:
    with store.lock():
        known = _known(store)
        until = known.pop(_mark(action, token), 0.0)
        _keep(store, known)
    return until > time.time()


def _mark(action: str, token: str) -> str:
    return hashlib.sha256(f"{action}\n{token}".encode("utf-8", "surrogateescape")).hexdigest()


def _path(store: MarkdownStore) -> Path:
    return store.journal.make_folders(".state") / "tokens.json"


def _known(store: MarkdownStore) -> dict[str, float]:
    try:
        document: Any = json.loads(store.files.read_all(_path(store), 1 << 20))
    except (OSError, ValueError):
        return {}
    now = time.time()
    return {key: until for key, until in cast("dict[str, float]", document).items() if until > now}


def _keep(store: MarkdownStore, known: dict[str, float]) -> None:
    ndjson.replace(store.files, _path(store), json.dumps(known).encode(), durable=False)
