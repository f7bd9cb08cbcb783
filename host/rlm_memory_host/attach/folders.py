"""Session folders: made with their `exports/`, and cleared of what nobody will record any more.

Owns: one folder below the sessions root. Does not own: who has which session (`kernels`, `guests`).
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

from rlm_memory import wire

from rlm_memory_host.process import open_private, private_folder

GUEST_MARK: Final = ".guest"
"""In the folder of a session that ends with its host: a host that starts clears it."""


def make(folder: Path, *, guest: bool = False) -> Path:
    """A session's folder with its `exports/`, both 0700; one that is there already is taken."""
    private_folder(private_folder(folder) / "exports")
    if guest:
        os.close(open_private(folder / GUEST_MARK, os.O_WRONLY))
    return folder


def clear(folder: Path) -> None:
    """Drop what a killed caller was about to record, and the folder where it is empty: the user's own files stay."""
    exports = folder / "exports"
    with contextlib.suppress(OSError):
        for left in [entry for entry in exports.iterdir() if wire.is_staged(entry.name)]:
            left.unlink()
    with contextlib.suppress(OSError):
        (folder / GUEST_MARK).unlink()
    for empty in (exports, folder):
        with contextlib.suppress(OSError):
            empty.rmdir()


def clear_guests(sessions_root: Path) -> None:
    """Clear the folders of guests that a killed host left."""
    with contextlib.suppress(OSError):
        for mark in list(sessions_root.glob(f"*/{GUEST_MARK}")):
            clear(mark.parent)
