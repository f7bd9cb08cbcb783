"""Every failure that a caller in a notebook can meet, as one family of classes.

Owns: the exception classes and which class a wire code becomes. Does not own: the texts, which the place that finds the
fault writes (what happened, to which argument, what to do), nor the host's own errors. The host's table of codes is in
its `contracts/codes.py`; a test holds the two together.

Source: design page "Kernel <-> host", Wire.
"""

from __future__ import annotations

import linecache
import traceback
from typing import Any

from rlm_memory import wire
from rlm_memory.kept import kept


@kept
class MemoryFault(Exception):
    """Base of all of them. `code` is the wire code, stable and documented; None where the fault is local."""

    default_code: str | None = None

    def __init__(self, message: str, code: str | None = None) -> None:
        super().__init__(message)
        self.code = code if code is not None else self.default_code

    def _render_traceback_(self) -> list[str]:
        """What IPython shows: where in the caller's own code, then the one line that says what to do."""
        place = ""
        for frame, line in traceback.walk_tb(self.__traceback__):
            if str(frame.f_globals.get("__name__", "")).split(".")[0] == "rlm_memory":
                break
            code = linecache.getline(frame.f_code.co_filename, line, frame.f_globals).strip()
            place = f"line {line}: {code}" if code else place
        return [*([place] if place else []), f"{type(self).__name__}: {self}"]

    def __reduce__(self) -> tuple[Any, ...]:
        # A worker process hands its failure to its parent; what it was made with must come along.
        return _remake, (type(self), self.args, dict(vars(self)))


@kept
class HostUnavailable(MemoryFault):
    """No host answered, or the one that did is gone. The kernel goes on as soon as a host runs again."""

    default_code = wire.NO_HOST


@kept
class Forked(HostUnavailable):
    """A forked child, or the kernel's control thread, tried to use the kernel's own connection."""

    default_code = wire.KERNEL_FORKED


@kept
class NotFound(MemoryFault):
    """Nothing with that reference in this project. Malformed, unknown and foreign references look the same."""

    default_code = wire.CARD_NOT_FOUND


@kept
class Denied(MemoryFault):
    """The host's policy, or a switched-off feature, forbids the call."""


@kept
class Invalid(MemoryFault):
    """An argument is wrong; the message says which one and what to do."""

    default_code = wire.INVALID_ARGUMENT


@kept
class NotExact(Invalid):
    """A value cannot be kept exactly; the message names the column or place. `lossy=True` would change `changes`."""

    def __init__(self, message: str, *, where: str, changes: str = "", code: str | None = None) -> None:
        super().__init__(message, code)
        self.where = where
        self.changes = changes


@kept
class UnsafeSource(Invalid):
    """The file to record is outside exports/, a link, not a regular file, or changed while it was read."""

    default_code = wire.UNSAFE_FILESYSTEM_ENTRY


@kept
class TooLarge(Invalid):
    """A value is over a documented bound."""

    default_code = wire.PAYLOAD_TOO_LARGE


@kept
class QuotaExceeded(MemoryFault):
    """The project's byte or card bound is reached; nothing was removed to make room."""

    default_code = wire.PROJECT_QUOTA_EXCEEDED


@kept
class StoreUnavailable(MemoryFault):
    """The store cannot be written or read now (full, read-only, locked); nothing was half written."""

    default_code = wire.STORE_UNAVAILABLE


@kept
class Conflict(MemoryFault):
    """What was read has changed since: read it again and decide again."""

    default_code = "VERSION_CONFLICT"


@kept
class Integrity(MemoryFault):
    """Stored bytes are missing or not what was recorded; they are never served."""

    default_code = wire.ARTIFACT_CORRUPT


@kept
class Unsupported(MemoryFault):
    """Written by a newer version, or a request this host does not know."""

    default_code = wire.UNSUPPORTED_VERSION


@kept
class Cancelled(MemoryFault):
    """The call was cancelled before it finished."""

    default_code = wire.CANCELLED


@kept
class CallTimeout(MemoryFault):
    """The host ran out of the time that the tool allows."""

    default_code = wire.TOOL_TIMEOUT


@kept
class HostFault(MemoryFault):
    """The host failed in a way that is not the caller's doing."""

    default_code = wire.HOST_REQUEST_FAILED


def _remake(cls: type[MemoryFault], arguments: tuple[Any, ...], attributes: dict[str, Any]) -> MemoryFault:
    fault = cls.__new__(cls, *arguments)
    fault.__dict__.update(attributes)
    return fault


BY_CODE: dict[str, type[MemoryFault]] = {
    wire.NO_HOST: HostUnavailable,
    wire.HOST_LOST: HostUnavailable,
    wire.REQUEST_SCOPE_CLOSED: HostUnavailable,
    wire.STALE_GENERATION: HostUnavailable,
    wire.DISPOSED: HostUnavailable,
    wire.KERNEL_FORKED: Forked,
    wire.CARD_NOT_FOUND: NotFound,
    wire.INVALID_SCOPE: Denied,
    wire.UNKNOWN_TOOL: Denied,
    wire.ADAPTER_DISABLED: Denied,
    wire.GUARD_SECRET: Denied,
    "GUARD_INJECTION": Denied,
    "SENSITIVITY_IN_REPOSITORY": Denied,
    wire.INVALID_ARGS: Invalid,
    wire.INVALID_ARGUMENT: Invalid,
    wire.INVALID_REQUEST: Invalid,
    wire.VALIDATION: Invalid,
    "INVALID_TOPIC": Invalid,
    "INVALID_TEXT": Invalid,
    "TOPIC_EMPTY": Invalid,
    "TITLE_EMPTY": Invalid,
    wire.INVALID_PATH: UnsafeSource,
    wire.UNSAFE_FILESYSTEM_ENTRY: UnsafeSource,
    wire.NOT_REGULAR_FILE: UnsafeSource,
    wire.FILE_MUTATED: UnsafeSource,
    wire.PAYLOAD_TOO_LARGE: TooLarge,
    wire.ARTIFACT_TOO_LARGE: TooLarge,
    "LIMIT_EXCEEDED": TooLarge,
    "BLOCK_TOO_LARGE": TooLarge,
    "CANDIDATE_TOO_LARGE": TooLarge,
    "TOPIC_TOO_LONG": TooLarge,
    "TITLE_TOO_LONG": TooLarge,
    "TAG_TOO_LONG": TooLarge,
    "TOO_MANY_TAGS": TooLarge,
    "TOO_MANY_TOPICS": QuotaExceeded,
    "LAYER_FULL": QuotaExceeded,
    wire.PROJECT_QUOTA_EXCEEDED: QuotaExceeded,
    wire.CARD_QUOTA_EXCEEDED: QuotaExceeded,
    wire.STORE_FULL: StoreUnavailable,
    wire.STORE_READ_ONLY: StoreUnavailable,
    wire.STORE_UNAVAILABLE: StoreUnavailable,
    wire.LOCK_TIMEOUT: StoreUnavailable,
    "LAYER_UNAVAILABLE": StoreUnavailable,
    "SUSPECT_TRUNCATION": StoreUnavailable,
    "VERSION_CONFLICT": Conflict,
    wire.ARTIFACT_MISSING: Integrity,
    wire.ARTIFACT_CORRUPT: Integrity,
    wire.UNSUPPORTED_VERSION: Unsupported,
    wire.UNSUPPORTED_REQUEST: Unsupported,
    wire.CANCELLED: Cancelled,
    wire.ABORTED: Cancelled,
    wire.ABORTED_BEFORE_DISPATCH: Cancelled,
    wire.TOOL_TIMEOUT: CallTimeout,
    wire.INVALID_TOOL_OUTPUT: HostFault,
    wire.HOST_REQUEST_FAILED: HostFault,
}


def from_code(code: str | None, message: str) -> MemoryFault:
    """The exception for a wire code; a policy denial carries none, an unknown code is a host's fault."""
    if code is None:
        return Denied(message)
    return BY_CODE.get(code, HostFault)(message, code)
