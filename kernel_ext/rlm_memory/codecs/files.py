"""How an encoded file comes into being: under a temporary name, proven, then renamed.

Owns: the two names and the clean-up, which reaches to the end of an `encode`, and what tells one version of a file from
another. Order: create `.part-<random><suffix>`, write, prove that it reads back, rename to `<random><suffix>`. A crash
before the rename leaves one `.part-` file; an exception or an interrupt leaves nothing.
Durability is not ours: the host copies and syncs the bytes into its store.
"""

from __future__ import annotations

import secrets
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

PART = ".part-"


def identity(path: Path) -> tuple[int, ...]:
    """Device, inode, size, mtime and ctime: another version of the file differs in one of them."""
    found = path.stat()
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


_made: ContextVar[list[Path] | None] = ContextVar("rlm_memory_codec_files", default=None)


def keep_account() -> list[Path]:
    """From now on, in this thread or task, what `account_for` is told; for `drop`."""
    made: list[Path] = []
    _made.set(made)
    return made


def account_for(*paths: Path) -> None:
    """Files that go, too, where the `encode` that they are made in fails."""
    if (made := _made.get()) is not None:
        made.extend(paths)


def drop(made: list[Path]) -> None:
    """Remove what there is under these names."""
    for path in made:
        path.unlink(missing_ok=True)


@contextmanager
def publishing(folder: Path, suffix: str) -> Generator[tuple[Path, Path]]:
    """Give a temporary and a final path; rename on success, remove whatever exists on any failure.

    Write to the first; it becomes the second when the block ends without an exception, `KeyboardInterrupt` included.
    """
    token = secrets.token_hex(8)
    part, final = folder / f"{PART}{token}{suffix}", folder / f"{token}{suffix}"
    account_for(part, final)
    try:
        yield part, final
        part.rename(final)
    except BaseException:
        drop([part, final])
        raise
