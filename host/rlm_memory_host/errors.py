"""The host's error taxonomy. `code` is the contract: frame, JSON-RPC, HTTP problem and exit code derive from it.

Owns: the families and their codes. Messages say what happened, to which argument, and what to do; they carry no
content, no secret and no path of the store. Foreign errors are translated once, at the seam where they arise, with
`from`.

Source: design page "Style", house rule 7; codes in `rlm_memory.wire`; the table in `contracts/codes.py`.
"""

from __future__ import annotations

from rlm_memory import wire


class HostError(Exception):
    """Base of all. `code` is one of `rlm_memory.wire`'s."""

    default_code: str = wire.HOST_REQUEST_FAILED

    def __init__(self, message: str, code: str | None = None) -> None:
        super().__init__(message)
        self.code = code or self.default_code


class SettingsError(HostError):
    """Configuration is wrong; the message names the key and the file's role, never a secret."""

    default_code = "SETTINGS"


class CredentialError(HostError):
    """A credential is missing or unusable; its value is never part of the message."""

    default_code = "CREDENTIAL"


class StoreError(HostError):
    """Base of what the artifact store refuses or finds."""

    default_code = wire.STORE_UNAVAILABLE


class NotFound(StoreError):
    """No such card in the caller's project. One text for malformed, unknown and foreign references."""

    default_code = wire.CARD_NOT_FOUND


class Integrity(StoreError):
    """An object is missing or its bytes are not the recorded ones."""

    default_code = wire.ARTIFACT_CORRUPT


class UnsafeSource(StoreError):
    """The source of a record is outside exports/, unsafe, or changed while it was read."""

    default_code = wire.UNSAFE_FILESYSTEM_ENTRY


class Quota(StoreError):
    """A byte or card bound is reached."""

    default_code = wire.PROJECT_QUOTA_EXCEEDED


class TooLarge(StoreError):
    """One artifact is over its bound."""

    default_code = wire.ARTIFACT_TOO_LARGE


class Unwritable(StoreError):
    """The store is full, read-only or otherwise not writable now."""

    default_code = wire.STORE_UNAVAILABLE


class LockTimeout(StoreError):
    """A lock was held longer than the bound."""

    default_code = wire.LOCK_TIMEOUT


class FormatVersion(StoreError):
    """A document of a version that this release does not know."""

    default_code = wire.UNSUPPORTED_VERSION


class LayerUnavailable(StoreError):
    """A layer of the text memory cannot be opened; no other layer takes its place."""

    default_code = "LAYER_UNAVAILABLE"


class VersionConflict(StoreError):
    """What was read has changed meanwhile: read again, decide again. `current` is the version on file, if any."""

    default_code = "VERSION_CONFLICT"

    def __init__(self, message: str, code: str | None = None, *, current: int | None = None) -> None:
        super().__init__(message, code)
        self.current = current


class LimitExceeded(StoreError):
    """A text or a layer is over a limit; the message says which and the number. Trying again does not help."""

    default_code = "LIMIT_EXCEEDED"


class SuspectTruncation(StoreError):
    """A file lost memories outside this host; it is not rewritten before an operator says so."""

    default_code = "SUSPECT_TRUNCATION"


class GuardRejected(StoreError):
    """A text holds a secret or an instruction. `findings` say field, line and pattern; never the text."""

    default_code = wire.GUARD_SECRET

    def __init__(
        self, message: str, code: str | None = None, *, findings: tuple[tuple[str, int, str], ...] = ()
    ) -> None:
        super().__init__(message, code)
        self.findings = findings


class Disposed(StoreError):
    """The service is shutting down."""

    default_code = wire.DISPOSED


class ProtocolError(HostError):
    """A message does not keep the wire contract."""

    default_code = wire.INVALID_REQUEST


class ToolError(HostError):
    """Base of what the dispatcher answers."""

    default_code = wire.HOST_REQUEST_FAILED


class UnknownTool(ToolError):
    """No such tool for this caller."""

    default_code = wire.UNKNOWN_TOOL


class ToolInput(ToolError):
    """Arguments do not fit the tool's schema, or a value is out of bounds."""

    default_code = wire.INVALID_ARGS


class ToolDenied(ToolError):
    """Policy says no. The wire carries the reason and no code."""

    default_code = "DENIED"


class ToolTimeout(ToolError):
    """The tool did not finish within its limit."""

    default_code = wire.TOOL_TIMEOUT


class ToolCancelled(ToolError):
    """The caller's interrupt or the host's shutdown ended the call."""

    default_code = wire.CANCELLED


class RemoteError(HostError):
    """Base of what calling the memory service can end with, by what is known of the outcome.

    `status` is the HTTP status where there was one; `retry_after` the seconds that the service asked for (not capped),
    None where it asked for nothing sensible. No text of the service is kept: a refusal repeats the content it refuses.
    """

    default_code = "REMOTE"

    def __init__(
        self, message: str, code: str | None = None, *, status: int | None = None, retry_after: float | None = None
    ) -> None:
        super().__init__(message, code)
        self.status = status
        self.retry_after = retry_after


class RemoteUnavailable(RemoteError):
    """The call did not reach the service, or it is set up wrongly: nothing was stored."""

    default_code = "REMOTE_UNAVAILABLE"


class RemoteBusy(RemoteError):
    """The service asks to come back later: nothing was stored."""

    default_code = "REMOTE_BUSY"


class RemoteRejected(RemoteError):
    """The service understood and refuses this very request; sending it again cannot help."""

    default_code = "REMOTE_REJECTED"


class RemoteAuth(RemoteError):
    """The credential is missing, expired (401) or not allowed to do this (403)."""

    default_code = "REMOTE_AUTH"


class RemoteUnknownOutcome(RemoteError):
    """The call was sent and no usable answer came: it may have been carried out, now or a little later."""

    default_code = "REMOTE_UNKNOWN_OUTCOME"
