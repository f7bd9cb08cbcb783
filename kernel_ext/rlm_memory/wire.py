"""The messages between a kernel and its host: the one module that both sides share.

Owns: names of request types, limits, error codes, the shape of requests, replies and tool envelopes, and where a host's
local socket lies. Does not own: sending, waiting, authentication, exception classes (`rlm_memory.errors` and the host's
`errors` have theirs). Standard library only: kernels without any host load it. Everything here is a pure function or
a constant, apart from `default_state_root`, which reads the environment.

Source: design page "Kernel <-> host", sections Wire and How a kernel finds its host. The comm contract is DeepSeek
RLM's, so that the extension works in its kernels and its kernel shim works with our host.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

PROTOCOL: Final = 1

# -- the comm route --------------------------------------------------------------------------------------------------
TARGET: Final = "host.request"
"""`target_name` of every `comm_open` that carries a request."""
COMM_PREFIX: Final = "dsh-"
"""Our comm ids are `dsh-<uuid4>`; handlers on the kernel side claim messages by this prefix."""

LIST: Final = "dsh_tools.list"
CALL: Final = "dsh_tools.call"
HELLO: Final = "memory.hello"
PING: Final = "memory.ping"
ANNOTATE: Final = "memory.annotate"
RESIDENT: Final = "memory.resident"
"""Asks for the resident text of the caller's project: `text`, `hash`, `tier`."""
SCAN: Final = "memory.scan"
"""Asks whether texts look like they hold a secret: `findings`, each with `place`, `line`, `pattern` and no text."""
REPEAT_OF: Final = "rlm_memory_epoch"
"""Metadata key of a repeated `comm_open`: the `epoch` that the hello told when the request was first sent.

A host that knows the id answers as ever. One that does not, and whose own epoch is another, cannot tell whether the
host of that epoch ran the request; it runs again only what may run twice.
"""
REQUEST_TYPES: Final = frozenset({LIST, CALL, HELLO, PING, ANNOTATE, RESIDENT, SCAN})

FIELDS: Final[Mapping[str, frozenset[str]]] = {
    LIST: frozenset(),
    CALL: frozenset({"name", "arguments"}),
    HELLO: frozenset({"protocol", "extension"}),
    PING: frozenset(),
    RESIDENT: frozenset(),
    SCAN: frozenset({"texts"}),
    ANNOTATE: frozenset({"experiment_id", "lineage", "preview", "codec", "environment", "statistics"}),
}
"""Payload fields that each request type may carry beside `type`; a host refuses any other."""

# -- limits, with units ----------------------------------------------------------------------------------------------
MAX_INLINE_BYTES: Final = 1 << 20
"""Largest request or reply data, bytes of UTF-8 JSON. Anything bigger travels as a file."""
MAX_ANNOTATION_BYTES: Final = 64 << 10
WINDOW: Final = 64
"""Requests in flight at once from one kernel."""
TICK_SECONDS: Final = 0.1
"""Length of one wait, so that an interrupt lands at once."""
HELLO_SECONDS: Final = 3.0
RETRANSMIT_SECONDS: Final = 2.0
"""First retransmission of the same comm id; doubles after each (a fixed short timer caused storms)."""
RETRANSMIT_MOST_SECONDS: Final = 16.0
"""The doubling ends here, so that the host after a killed one soon hears of a call that takes long."""
PING_SECONDS: Final = 2.0
LOST_SECONDS: Final = 6.0
"""Silence of the host, pings included, after which a waiting caller gets HOST_LOST."""

# -- codes -----------------------------------------------------------------------------------------------------------
# Tool envelope codes as DSH gives them.
INVALID_ARGS: Final = "INVALID_ARGS"
UNKNOWN_TOOL: Final = "UNKNOWN_TOOL"
INVALID_TOOL_OUTPUT: Final = "INVALID_TOOL_OUTPUT"
TOOL_TIMEOUT: Final = "TOOL_TIMEOUT"
ABORTED: Final = "ABORTED"
ABORTED_BEFORE_DISPATCH: Final = "ABORTED_BEFORE_DISPATCH"
# Bridge codes.
INVALID_REQUEST: Final = "INVALID_REQUEST"
INVALID_ARGUMENT: Final = "INVALID_ARGUMENT"
UNSUPPORTED_REQUEST: Final = "UNSUPPORTED_REQUEST"
REQUEST_SCOPE_CLOSED: Final = "REQUEST_SCOPE_CLOSED"
STALE_GENERATION: Final = "STALE_GENERATION"
CANCELLED: Final = "CANCELLED"
HOST_REQUEST_FAILED: Final = "HOST_REQUEST_FAILED"
ADAPTER_DISABLED: Final = "ADAPTER_DISABLED"
# Ours.
NO_HOST: Final = "NO_HOST"
HOST_LOST: Final = "HOST_LOST"
KERNEL_FORKED: Final = "KERNEL_FORKED"
PAYLOAD_TOO_LARGE: Final = "PAYLOAD_TOO_LARGE"
# The artifact store's typed failures (sections 27 to 33 of the DeepSeek Honcho specification).
CARD_NOT_FOUND: Final = "CARD_NOT_FOUND"
ARTIFACT_MISSING: Final = "ARTIFACT_MISSING"
ARTIFACT_CORRUPT: Final = "ARTIFACT_CORRUPT"
UNSUPPORTED_VERSION: Final = "UNSUPPORTED_VERSION"
INVALID_SCOPE: Final = "INVALID_SCOPE"
INVALID_PATH: Final = "INVALID_PATH"
UNSAFE_FILESYSTEM_ENTRY: Final = "UNSAFE_FILESYSTEM_ENTRY"
NOT_REGULAR_FILE: Final = "NOT_REGULAR_FILE"
FILE_MUTATED: Final = "FILE_MUTATED"
ARTIFACT_TOO_LARGE: Final = "ARTIFACT_TOO_LARGE"
PROJECT_QUOTA_EXCEEDED: Final = "PROJECT_QUOTA_EXCEEDED"
CARD_QUOTA_EXCEEDED: Final = "CARD_QUOTA_EXCEEDED"
VALIDATION: Final = "VALIDATION"
DISPOSED: Final = "DISPOSED"
STORE_FULL: Final = "STORE_FULL"
STORE_READ_ONLY: Final = "STORE_READ_ONLY"
STORE_UNAVAILABLE: Final = "STORE_UNAVAILABLE"
LOCK_TIMEOUT: Final = "LOCK_TIMEOUT"
GUARD_SECRET: Final = "GUARD_SECRET"

# -- media types that codecs write -----------------------------------------------------------------------------------
# The parameter `codec` tells a reader which decoder gives back the object; a file recorded as it is has none.
MEDIA_FRAME: Final = "application/vnd.apache.parquet; codec=frame"
MEDIA_NPY: Final = "application/x-npy; codec=array"
MEDIA_NPZ: Final = "application/x-npz; codec=arrays"
MEDIA_XARRAY: Final = "application/zip; codec=xarray"
MEDIA_JSON: Final = "application/json; codec=json"
MEDIA_TEXT: Final = "text/plain; charset=utf-8; codec=text"
MEDIA_BYTES: Final = "application/octet-stream; codec=bytes"
MEDIA_FIGURE_PNG: Final = "image/png; codec=figure"
MEDIA_FIGURE_SVG: Final = "image/svg+xml; codec=figure"
MEDIA_FIGURE_PLOTLY: Final = "application/vnd.plotly.v1+json; codec=figure"


def codec_name(media_type: str) -> str:
    """The `codec` parameter of a media type: which decoder gives the object back; "" for a file as it is."""
    for parameter in media_type.split(";")[1:]:
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "codec":
            return value.strip().lower()
    return ""


class WireError(ValueError):
    """A message does not have the shape of the contract. `code` is the wire code to answer with."""

    def __init__(self, message: str, code: str = INVALID_REQUEST) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class Request:
    """One parsed request: its type and its payload fields (without `type`)."""

    type: str
    payload: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Reply:
    """One parsed reply. `code` is None exactly when the request succeeded."""

    fields: Mapping[str, Any]
    code: str | None = None
    message: str = ""


@dataclass(frozen=True, slots=True)
class Envelope:
    """One parsed tool envelope: a value, or a message with a code (None for a policy denial)."""

    is_error: bool
    value: Any = None
    text: str = ""
    code: str | None = None
    message: str = ""


def request_data(kind: str, payload: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The `data` of a `comm_open`: the payload's fields plus `type`.

    Raises WireError (PAYLOAD_TOO_LARGE) when it is over `MAX_INLINE_BYTES`, (INVALID_ARGUMENT) when it is not JSON.
    """
    data = {**(payload or {}), "type": kind}
    size = encoded_size(data)
    if size > MAX_INLINE_BYTES:
        raise WireError(
            f"the request has {size:,} bytes, the limit is {MAX_INLINE_BYTES:,}; write large values to a file "
            "and record that",
            PAYLOAD_TOO_LARGE,
        )
    return data


_ENCODE: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def compact(data: Mapping[str, Any]) -> bytes:
    """A message's data as JSON in UTF-8, as short as it can be."""
    return _ENCODE(data).encode("utf-8", "surrogatepass")


def encoded_size(data: object) -> int:
    """Bytes of `data` as UTF-8 JSON. Raises WireError (INVALID_ARGUMENT) for what JSON cannot hold."""
    try:
        return len(json.dumps(data, ensure_ascii=False, allow_nan=False).encode("utf-8"))
    except (TypeError, ValueError, RecursionError) as error:
        raise WireError(f"the payload is not JSON: {type(error).__name__}", INVALID_ARGUMENT) from error


def parse_request(data: object) -> Request:
    """Check a `comm_open`'s data against the contract; unknown fields are refused.

    Raises WireError with INVALID_REQUEST, UNSUPPORTED_REQUEST or PAYLOAD_TOO_LARGE.
    """
    if not isinstance(data, Mapping):
        raise WireError("the request's data is not an object")
    fields = dict(cast("Mapping[str, Any]", data))
    kind = fields.pop("type", None)
    if not isinstance(kind, str):
        raise WireError("the request has no 'type'")
    if kind not in REQUEST_TYPES:
        raise WireError("this host does not know that request type", UNSUPPORTED_REQUEST)
    unknown = sorted(str(name)[:40] for name in fields.keys() - FIELDS[kind])
    if unknown:
        raise WireError(f"unknown field {unknown[0]!r} in a {kind} request")
    if encoded_size(fields) > MAX_INLINE_BYTES:
        raise WireError(f"the request is over {MAX_INLINE_BYTES:,} bytes", PAYLOAD_TOO_LARGE)
    return Request(kind, fields)


def ok(**fields: Any) -> dict[str, Any]:
    """The data of a successful reply."""
    return {**fields, "status": "ok"}


def error(code: str, message: str) -> dict[str, Any]:
    """The data of a failed reply."""
    return {"status": "error", "error": message, "code": code}


def parse_reply(data: object) -> Reply:
    """Read a reply of any host that keeps the contract. Raises WireError when it is neither ok nor error."""
    if not isinstance(data, Mapping):
        raise WireError("the reply's data is not an object")
    fields = dict(cast("Mapping[str, Any]", data))
    status = fields.pop("status", None)
    if status == "ok":
        return Reply(fields)
    if status == "error":
        return Reply({}, str(fields.get("code") or HOST_REQUEST_FAILED), str(fields.get("error") or ""))
    raise WireError("the reply has no status")


def success(value: Mapping[str, Any], text: str) -> dict[str, Any]:
    """A tool envelope for a result: the structured value, and text that stands alone."""
    return {"isError": False, "value": dict(value), "content": [{"type": "text", "text": text}]}


def failure(message: str, code: str | None, name: str = "ToolError") -> dict[str, Any]:
    """A tool envelope for a failure. A policy denial has no code."""
    info = {"name": name} | ({"code": code} if code else {})
    return {
        "isError": True,
        "error": {"message": message, "info": info},
        "content": [{"type": "text", "text": f"{code}: {message}" if code else message}],
    }


def parse_envelope(fields: Mapping[str, Any]) -> Envelope:
    """Read a tool envelope, whether DSH's own or one that came through an MCP client.

    An MCP client wraps the result once more as `value = {content, structuredContent}`; that is unwrapped here.
    Raises WireError for anything else.
    """
    is_error = fields.get("isError")
    if not isinstance(is_error, bool):
        raise WireError("the tool's answer has no 'isError'")
    text = _text(fields.get("content"))
    if is_error:
        problem = _mapping(fields.get("error"))
        code = _mapping(problem.get("info")).get("code")
        return Envelope(True, None, text, str(code) if code else None, str(problem.get("message") or text))
    value = fields.get("value")
    wrapped = _mapping(value)
    if "structuredContent" in wrapped and set(wrapped) <= {"content", "structuredContent", "isError"}:
        return Envelope(False, wrapped["structuredContent"], _text(wrapped.get("content")) or text)
    return Envelope(False, value, text)


def _mapping(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def _text(content: object) -> str:
    blocks = [_mapping(item) for item in cast("list[object]", content)] if isinstance(content, list) else []
    return "\n".join(str(block.get("text") or "") for block in blocks if block.get("type") == "text")


def base_tool_name(name: str) -> str:
    """The tool's own name, without an MCP client's `mcp__<server>__` prefix."""
    parts = name.split("__", 2)
    return parts[2] if len(parts) == 3 and parts[0] == "mcp" else name


# -- the direct channel: DEALER to the host's ROUTER over CURVE -------------------------------------------------------
DIRECT_OPEN: Final = b"open"
DIRECT_CLOSE: Final = b"close"
NOTHING: Final = "-"
"""Longest id, origin or epoch in a frame, bytes of printable ASCII."""
MAX_FRAME_BYTES: Final = 4 << 20
"""A larger frame closes the connection; up to it an oversized request is answered with its code."""


TOKEN_VARIABLES: Final = ("RLM_MEMORY_TOKEN", "RLM_MEMORY_ADDRESS", "RLM_MEMORY_SERVER_KEY")
"""In which environment variables an offer travels to other processes: token, address, server key."""


@dataclass(frozen=True, slots=True)
class Offer:
    """What it takes to open a direct channel. The token is a secret: whoever holds it speaks for its session.

    `address` is a ZeroMQ endpoint on this machine, `server_key` the host's public key, `token` the caller's own secret
    key (both Z85). The token itself never travels: the handshake proves that the caller holds it.
    """

    address: str
    server_key: str
    token: str

    def fields(self) -> dict[str, str]:
        """As a hello or an answer of the local socket carries it, under `direct`."""
        return {"address": self.address, "server_key": self.server_key, "token": self.token}

    def __repr__(self) -> str:
        return f"Offer({self.address!r})"


def parse_offer(value: object) -> Offer | None:
    """The offer that a hello or an answer carries; None where it carries none that can be used."""
    fields = _mapping(value)
    address, server_key, token = (fields.get(name) for name in ("address", "server_key", "token"))
    if not (isinstance(address, str) and isinstance(server_key, str) and isinstance(token, str)):
        return None
    usable = address.startswith(("ipc://", "tcp://")) and len(server_key) == len(token) == 40
    return Offer(address, server_key, token) if usable and server_key.isascii() and token.isascii() else None


@dataclass(frozen=True, slots=True)
class Letter:
    """One message to the host's direct channel: a line of four names, then the request's JSON, in a single frame.

    `origin` names the sending channel, whatever connection carries it. One frame, since each is encrypted by itself.
    """

    kind: bytes
    origin: str
    id: str
    repeat_of: str | None = None
    data: bytes = b""

    def encode(self) -> bytes:
        """The frame on the wire."""
        names = f"{self.origin} {self.id} {self.repeat_of or NOTHING}\n".encode()
        return b"%b %b%b" % (self.kind, names, self.data)


_NAME: Final = "[!-~]{1,128}"
_LETTER: Final = re.compile(f"(open|close) ({_NAME}) ({_NAME}) ({_NAME})".encode())


def is_name(text: str) -> bool:
    """Whether a text may stand in a letter's first line."""
    return re.fullmatch(_NAME, text) is not None


def parse_letter(frame: bytes) -> Letter:
    """One message of a peer. Raises WireError for anything that is not one."""
    head, _, data = frame.partition(b"\n")
    found = _LETTER.fullmatch(head)
    if found is None:
        raise WireError("a message begins with a line of four names: open or close, origin, id, epoch")
    kind, origin, name, epoch = found.groups()
    repeat_of = epoch.decode()
    return Letter(kind, origin.decode(), name.decode(), None if repeat_of == NOTHING else repeat_of, data)


def reply_frame(request_id: str, data: Mapping[str, Any]) -> bytes:
    """The host's answer to a request on the direct channel: its id, a line feed, the reply's JSON."""
    return b"%b\n%b" % (request_id.encode(), compact(data))


def parse_reply_frame(frame: bytes) -> tuple[str, object]:
    """The id that an answer is for, and its data; None for data that is not JSON."""
    name, _, body = frame.partition(b"\n")
    try:
        return name.decode("ascii", "replace"), json.loads(body)
    except (ValueError, RecursionError):
        return name.decode("ascii", "replace"), None


# -- the local socket: one JSON line each way, then the connection stays open as a lifeline ---------------------------
ATTACH: Final = "attach"
OPEN: Final = "open"
STATUS: Final = "status"
STOP: Final = "stop"
MAX_LINE_BYTES: Final = 1 << 20
SOCKET_PATH_BYTES: Final = 100
"""A Unix socket address holds 107 bytes; a longer path is reached through a directory descriptor."""


def default_state_root() -> Path:
    """`RLM_MEMORY_STATE_ROOT`, else the platform's user data folder for rlm-memory. Not created here."""
    named = os.environ.get("RLM_MEMORY_STATE_ROOT")
    if named:
        return Path(named)
    from platformdirs import user_data_path

    return user_data_path("rlm-memory", appauthor=False)


def socket_path(state_root: Path) -> Path:
    """Where the host of a state root listens: `<state root>/run/host.sock` (folder 0700, socket 0600)."""
    return state_root / "run" / "host.sock"


_STAGED: Final = re.compile(r"(\.part-)?[0-9a-f]{16}\.\w[\w.]*|file-[0-9a-f]{32}(\.\w+)?")


def is_staged(name: str) -> bool:
    """Whether a file of that name in `exports/` is one that the kernel side made to be recorded, not the user's own.

    The kernel side removes it after the host's answer. One that a killed kernel left there the host removes, with the
    session.
    """
    return _STAGED.fullmatch(name) is not None
