"""Files that are to be recorded: what counts as a path, and how a file comes into exports/.

Owns: the rule that tells a path from a text, the copy, its removal. Does not own: encoding objects (`codecs`), the
host's own checks (it reads nothing outside exports/ whatever this module did).

A value is a file when it is an `os.PathLike`. A `str` is text, except where it is plainly a path: one line without
"://" that begins with "/", "./" or "../", or holds a "/" and ends in a file name with a suffix and no white space, or
is a bare name with a well-known suffix (`x.csv`). Such a str that names no file is an error, never a text recorded by
mistake. `as_text=True` or `as_text=False` decides it by hand.

Source: design page "Exact results", Record, Codecs; DeepSeek Honcho specification, sections 28.1 and 28.2.
"""

from __future__ import annotations

import mimetypes
import os
import re
import stat
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

from rlm_memory import errors

COPY_BLOCK_BYTES: Final = 4 << 20
LONGEST_PATH_CHARACTERS: Final = 4096
DATA_SUFFIXES: Final = frozenset(
    {
        *("bin", "bz2", "csv", "docx", "feather", "gif", "gz", "h5", "hdf5", "html", "ipynb", "jpeg", "jpg", "json"),
        *("jsonl", "log", "md", "nc", "npy", "npz", "orc", "parquet", "pdf", "png", "pptx", "sql", "sqlite", "svg"),
        *("tar", "tif", "tiff", "toml", "tsv", "txt", "xlsx", "xml", "yaml", "yml", "zarr", "zip", "zst"),
    }
)
_PATHLIKE: Final = re.compile(r"\S*/[^\s/]*[^\s/.]\.[A-Za-z0-9]{1,8}")
_BARE: Final = re.compile(r"[^\s/]+\.([A-Za-z0-9]{1,8})")
_SUFFIX: Final = re.compile(r"\.[A-Za-z0-9]{1,12}")
_TYPES: Final = mimetypes.MimeTypes(filenames=())
_MORE_TYPES: Final = {
    ".parquet": "application/vnd.apache.parquet",
    ".ipynb": "application/x-ipynb+json",
    ".jsonl": "application/jsonl",
    ".npy": "application/x-npy",
    ".npz": "application/x-npz",
    ".md": "text/markdown",
}


@dataclass(frozen=True)
class Staged:
    """A file inside exports/. `own` files are ours to remove again; one that the caller put there stays."""

    path: Path
    own: bool
    name: str
    size: int

    def remove(self) -> None:
        if self.own:
            self.path.unlink(missing_ok=True)


def as_path(obj: Any, as_text: bool | None) -> Path | None:
    """The file that `obj` means, absolute in the kernel's current folder, or None when it is an object to encode.

    Raises Invalid for `as_text=` on anything but a str: it decides what a str means, and nothing else.
    """
    if as_text is not None and not isinstance(obj, str) and (as_text or not isinstance(obj, os.PathLike)):
        raise errors.Invalid(
            f"as_text={as_text} says what a str means; obj is a {type(obj).__name__}, so leave as_text out"
        )
    if isinstance(obj, os.PathLike):
        named = os.fspath(cast("os.PathLike[str] | os.PathLike[bytes]", obj))
        return Path(os.fsdecode(named)).absolute()
    if isinstance(obj, str) and (as_text is False or (as_text is None and looks_like_path(obj))):
        return Path(obj).absolute()
    return None


def looks_like_path(text: str) -> bool:
    """The rule of this module's docstring; looks at the text only, not at the disk."""
    if not text or len(text) > LONGEST_PATH_CHARACTERS or "://" in text or any(mark in text for mark in "\n\r\0"):
        return False
    if text.startswith(("/", "./", "../")):
        return True
    if _PATHLIKE.fullmatch(text):
        return True
    bare = _BARE.fullmatch(text)
    return bare is not None and bare[1].lower() in DATA_SUFFIXES


def exports_folder(session_dir: Path | None) -> Path:
    """`<session>/exports`, made with mode 0700. Raises HostUnavailable when the session has no folder."""
    if session_dir is None:
        raise errors.HostUnavailable(
            "the host told no session folder and RLM_SESSION_DIR is not set, so there is nowhere to hand over a file; "
            "set RLM_SESSION_DIR as the host's administrator says"
        )
    exports = session_dir / "exports"
    try:
        exports.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise errors.StoreUnavailable(f"the session's exports folder cannot be made: {error.strerror}") from error
    return exports


def stage(path: Path, exports: Path) -> Staged:
    """Bring a file into exports/ by copying it; one that lies there already is used as it is.

    Raises FileNotFoundError with the absolute path, UnsafeSource (anything else of the session's own folder, not a
    regular file), StoreUnavailable (no room). Nothing is left behind on a failure.
    """
    if not path.exists():
        raise FileNotFoundError(f"no file to record at {path} (relative paths count from the kernel's current folder)")
    real, home = path.resolve(), exports.resolve()
    if home in real.parents:
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode):
            raise errors.UnsafeSource(f"{path.name!r} in exports/ is not a regular file; copy what it points to")
        return Staged(path, False, path.name, status.st_size)
    if home.parent == real or home.parent in real.parents:
        raise errors.UnsafeSource(
            f"{path.name!r} lies in the session's own folder; only files in its exports/ may be recorded from there"
        )
    source = os.open(real, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(source)
        if not stat.S_ISREG(status.st_mode):
            raise errors.UnsafeSource(f"{path.name!r} is not a regular file; record a file, or an object")
        return Staged(_copy(source, status.st_size, exports, path), True, path.name, status.st_size)
    finally:
        os.close(source)


def media_type(path: Path) -> str:
    """From the suffix alone, the same on every machine; `application/octet-stream` when it says nothing."""
    return _MORE_TYPES.get(path.suffix.lower()) or _TYPES.guess_type(path.name)[0] or "application/octet-stream"


def _copy(source: int, size: int, exports: Path, original: Path) -> Path:
    """Copy by blocks, memory flat. The name in exports/ is ours: odd names never meet a file system's limits."""
    from rlm_memory.progress import Progress

    suffix = original.suffix if _SUFFIX.fullmatch(original.suffix) else ""
    target = exports / f"file-{uuid.uuid4().hex}{suffix}"
    try:
        with Progress("copying", size) as progress, target.open("xb") as out:
            target.chmod(0o600)
            while block := os.read(source, COPY_BLOCK_BYTES):
                out.write(block)
                progress.advance(len(block))
    except OSError as error:
        target.unlink(missing_ok=True)
        raise errors.StoreUnavailable(f"{original.name!r} cannot be copied into exports/: {error.strerror}") from error
    except BaseException:
        target.unlink(missing_ok=True)
        raise
    return target
