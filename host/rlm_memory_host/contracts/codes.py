"""The one table of codes: what each becomes in Python, JSON-RPC, HTTP, on the command line, and what it means.

Owns: the table and the page made from it (`docs/codes.md`). Does not own: raising anything. A test holds it together
with `rlm_memory.errors.BY_CODE` and with `rlm_memory.wire`.

Source: design page "Kernel <-> host", Wire; design page "Style", house rule 7.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from rlm_memory import wire


@dataclass(frozen=True, slots=True)
class Code:
    """One row. `exception` is a class of `rlm_memory.errors`; None for codes that no kernel receives.

    `exit` is the command line's: 1 degraded or findings, 2 failure or bad use.
    """

    code: str
    exception: str | None
    json_rpc: int
    http: int
    exit: int
    meaning: str


_ROWS: Final = (
    # Tool calls.
    Code(wire.INVALID_ARGS, "Invalid", -32602, 422, 2, "An argument of a tool is missing, unknown or wrong."),
    Code(wire.UNKNOWN_TOOL, "Denied", -32601, 404, 2, "No such tool for this caller, or it is switched off."),
    Code(wire.INVALID_TOOL_OUTPUT, "HostFault", -32603, 502, 2, "A tool's result broke its own schema; withheld."),
    Code(wire.TOOL_TIMEOUT, "CallTimeout", -32001, 504, 2, "The tool did not finish within its time limit."),
    Code(wire.ABORTED, "Cancelled", -32800, 499, 2, "The call was aborted while it ran."),
    Code(wire.ABORTED_BEFORE_DISPATCH, "Cancelled", -32800, 499, 2, "The call was aborted before it ran."),
    # Requests.
    Code(wire.INVALID_REQUEST, "Invalid", -32600, 400, 2, "The message does not have the contract's shape."),
    Code(wire.INVALID_ARGUMENT, "Invalid", -32602, 422, 2, "A field of a request has the wrong type or range."),
    Code(wire.UNSUPPORTED_REQUEST, "Unsupported", -32601, 501, 2, "This host does not know the request type."),
    Code(wire.REQUEST_SCOPE_CLOSED, "HostUnavailable", -32002, 503, 2, "The host is shutting down, or let go."),
    Code(wire.STALE_GENERATION, "HostUnavailable", -32002, 409, 2, "The kernel was restarted since the request."),
    Code(wire.CANCELLED, "Cancelled", -32800, 499, 2, "The caller's interrupt ended the call."),
    Code(wire.HOST_REQUEST_FAILED, "HostFault", -32603, 500, 2, "The host failed; its log says where."),
    Code(wire.ADAPTER_DISABLED, "Denied", -32601, 403, 2, "The operator switched that feature off."),
    Code(wire.PAYLOAD_TOO_LARGE, "TooLarge", -32600, 413, 2, "A message is over its limit; use a file."),
    # Reaching a host.
    Code(wire.NO_HOST, "HostUnavailable", -32002, 503, 2, "No host answered; `rlm-memory host run` starts one."),
    Code(wire.HOST_LOST, "HostUnavailable", -32002, 503, 2, "The host stopped answering while a call waited."),
    Code(wire.KERNEL_FORKED, "Forked", -32002, 409, 2, "A forked child used the kernel's own connection."),
    # The artifact store.
    Code(wire.CARD_NOT_FOUND, "NotFound", -32004, 404, 2, "Nothing with that reference in this project."),
    Code(wire.ARTIFACT_MISSING, "Integrity", -32005, 410, 2, "The card is there, its bytes are not."),
    Code(wire.ARTIFACT_CORRUPT, "Integrity", -32005, 409, 2, "The bytes are not the recorded ones; not served."),
    Code(wire.UNSUPPORTED_VERSION, "Unsupported", -32006, 501, 2, "Written or spoken by another release."),
    Code(wire.INVALID_SCOPE, "Denied", -32003, 403, 2, "The caller's scope does not allow it."),
    Code(wire.INVALID_PATH, "UnsafeSource", -32602, 422, 2, "The file is not below the caller's exports/."),
    Code(wire.UNSAFE_FILESYSTEM_ENTRY, "UnsafeSource", -32602, 422, 2, "A link or another unsafe entry; not read."),
    Code(wire.NOT_REGULAR_FILE, "UnsafeSource", -32602, 422, 2, "Not a regular file; not read."),
    Code(wire.FILE_MUTATED, "UnsafeSource", -32602, 409, 2, "The file changed while it was read."),
    Code(wire.ARTIFACT_TOO_LARGE, "TooLarge", -32602, 413, 2, "The file is over `artifacts.max_artifact_bytes`."),
    Code(wire.PROJECT_QUOTA_EXCEEDED, "QuotaExceeded", -32007, 507, 2, "`artifacts.max_project_bytes` is reached."),
    Code(wire.CARD_QUOTA_EXCEEDED, "QuotaExceeded", -32007, 507, 2, "`artifacts.max_cards` is reached."),
    Code(wire.VALIDATION, "Invalid", -32602, 422, 2, "A value is outside the store's documented bounds."),
    Code(wire.DISPOSED, "HostUnavailable", -32002, 503, 2, "The store is closing."),
    Code(wire.STORE_FULL, "StoreUnavailable", -32008, 507, 2, "The disk is full; nothing was half written."),
    Code(wire.STORE_READ_ONLY, "StoreUnavailable", -32008, 503, 2, "The store's file system is read-only."),
    Code(wire.STORE_UNAVAILABLE, "StoreUnavailable", -32008, 503, 2, "The store cannot be used now."),
    Code(wire.LOCK_TIMEOUT, "StoreUnavailable", -32008, 503, 2, "A lock of the store was held too long."),
    Code(wire.GUARD_SECRET, "Denied", -32003, 422, 2, "A field looks like a secret; nothing was stored."),
    # The text memory.
    Code("GUARD_INJECTION", "Denied", -32003, 422, 2, "A text reads like an instruction to a model; not stored."),
    Code("LAYER_UNAVAILABLE", "StoreUnavailable", -32008, 503, 2, "A layer cannot be opened; the others work."),
    Code("VERSION_CONFLICT", "Conflict", -32602, 409, 2, "The memory changed since it was read; read it again."),
    Code(
        "SUSPECT_TRUNCATION", "StoreUnavailable", -32005, 409, 2, "A topic file lost blocks; an operator looks first."
    ),
    Code(
        "LIMIT_EXCEEDED", "TooLarge", -32602, 413, 2, "A text is over a documented limit; the message has the number."
    ),
    Code("BLOCK_TOO_LARGE", "TooLarge", -32602, 413, 2, "A memory is over 32,768 bytes."),
    Code("CANDIDATE_TOO_LARGE", "TooLarge", -32602, 413, 2, "A candidate is over 32,768 bytes."),
    Code("TOPIC_TOO_LONG", "TooLarge", -32602, 413, 2, "A topic is over 120 characters."),
    Code("TITLE_TOO_LONG", "TooLarge", -32602, 413, 2, "A title is over 240 characters."),
    Code("TAG_TOO_LONG", "TooLarge", -32602, 413, 2, "A tag is over 80 characters."),
    Code("TOO_MANY_TAGS", "TooLarge", -32602, 413, 2, "A memory has more than 64 tags."),
    Code("TOO_MANY_TOPICS", "QuotaExceeded", -32007, 507, 2, "A layer has 64 topics; use one of them."),
    Code("LAYER_FULL", "QuotaExceeded", -32007, 507, 2, "A layer holds 50,000 memories."),
    Code("INVALID_TOPIC", "Invalid", -32602, 422, 2, "A topic looks like a path; name the subject instead."),
    Code(
        "INVALID_TEXT", "Invalid", -32602, 422, 2, "A text holds what no text file keeps (NUL, half a surrogate pair)."
    ),
    Code("TOPIC_EMPTY", "Invalid", -32602, 422, 2, "A topic has no visible character."),
    Code("TITLE_EMPTY", "Invalid", -32602, 422, 2, "A title has no visible character."),
    Code("SENSITIVITY_IN_REPOSITORY", "Denied", -32003, 422, 2, "A repository's memory takes no sensitive text."),
    # The memory service and what is delivered to it; kernels do not receive these from a request.
    Code("REMOTE", None, -32603, 502, 2, "A call of the memory service failed."),
    Code("REMOTE_UNAVAILABLE", None, -32603, 503, 1, "The memory service was not reached; nothing was sent."),
    Code("REMOTE_BUSY", None, -32603, 503, 1, "The memory service asks to come back later."),
    Code("REMOTE_REJECTED", None, -32603, 502, 2, "The memory service refuses this very request."),
    Code("REMOTE_AUTH", None, -32603, 502, 1, "The memory service does not accept the key for this."),
    Code("REMOTE_UNKNOWN_OUTCOME", None, -32603, 504, 1, "No usable answer: it may have been carried out."),
    Code("REMOTE_NOT_FOUND", None, -32603, 502, 1, "The memory service does not know what was named."),
    Code("REMOTE_MISDIRECTED", None, -32603, 502, 1, "What answers is not the memory service; see `honcho.url`."),
    Code("REMOTE_WORKSPACE_MISSING", None, -32603, 502, 1, "No such workspace, and it may not be created."),
    Code("REMOTE_PEER_MISSING", None, -32603, 502, 1, "No such peer, and it may not be created."),
    Code("REMOTE_SESSION_MISSING", None, -32603, 502, 1, "No such session, and it may not be created."),
    Code("REMOTE_SESSION_FOREIGN", None, -32603, 502, 2, "The session there belongs to another session here."),
    Code("FOREIGN_WORKSPACE", None, -32603, 409, 2, "The delivery is for another workspace than the configured one."),
    Code("PARTIAL_DELIVERY", None, -32603, 409, 2, "Rows of the delivery exist that are not its own; dead letter."),
    Code("ATTEMPTS_EXHAUSTED", None, -32603, 504, 2, "`outbox.max_attempts` is reached; dead letter."),
    Code("EMPTY_AFTER_REDACTION", None, -32602, 422, 2, "Nothing is left of a message after redaction; not sent."),
    Code("TOO_LONG", None, -32602, 413, 2, "A message is longer than the service takes; not sent."),
    Code("OUTBOX_BUSY", None, -32603, 503, 1, "Another process worked on the outbox when the host started."),
    Code("DEAD_LETTERS", None, -32603, 502, 1, "Deliveries failed for good or are held; an operator decides."),
    Code("DELIVERY_NOT_FOUND", None, -32004, 404, 2, "No delivery with that id in the outbox."),
    # The host itself; kernels do not receive these from a request.
    Code("NOT_A_PERSON", None, -32003, 403, 2, "Only a person may do that; not from inside a kernel or an agent."),
    Code("RATE_LIMITED", None, -32603, 429, 1, "A session asks the loopback API too often; the answer says when."),
    Code("DENIED", None, -32003, 403, 2, "Policy said no; on the wire the reason travels without a code."),
    Code("SETTINGS", None, -32603, 500, 2, "The configuration is wrong; the message names the key."),
    Code("CREDENTIAL", None, -32603, 500, 2, "A credential is missing or unusable."),
    Code("UNSUPPORTED_PLATFORM", None, -32603, 501, 2, "The host does not run on this system."),
    Code("HOST_RUNNING", None, -32603, 409, 2, "Another host holds this state root."),
    Code("KERNEL_LEASED", None, -32002, 409, 2, "Another host serves this kernel (attaching)."),
    Code("PEER_REFUSED", None, -32003, 403, 2, "Another user, or a process that is not that kernel (attaching)."),
)

CODES: Final[Mapping[str, Code]] = {row.code: row for row in _ROWS}


def page() -> str:
    """The text of `docs/codes.md`."""
    lines = [
        "# Error codes",
        "",
        "Made from `rlm_memory_host.contracts.codes`; `tests/host/test_codes.py` says how to renew it. `code` is the "
        "contract:",
        "the exception class in `rlm_memory.errors`, the JSON-RPC and HTTP codes and the exit code derive from it. A "
        "policy",
        "denial reaches the kernel as `Denied` with a reason and no code. An unknown code becomes `HostFault`.",
        "",
        "| code | exception | JSON-RPC | HTTP | exit | meaning |",
        "|---|---|---|---|---|---|",
    ]
    lines += [
        f"| `{row.code}` | {f'`{row.exception}`' if row.exception else '-'} | {row.json_rpc} | {row.http} | "
        f"{row.exit} | {row.meaning} |"
        for row in _ROWS
    ]
    return "\n".join(lines) + "\n"
