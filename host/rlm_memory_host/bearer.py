"""The token of a loopback server: kept in a private file, asked of every request, compared in constant time.

Owns: that. Does not own: any server, what its requests may do. The address of such a server may leak (an environment
variable reaches a model's shell), so no request goes without the token.

Source: design page "DeepSeek Harness and MCP", Secrets and places.
"""

from __future__ import annotations

import hmac
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rlm_memory_host.process import claim_state_root, private_folder, write_private

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

SHORTEST_TOKEN: Final = 20
_REFUSED: Final = b"DENIED: every request needs the header 'Authorization: Bearer <token>'"


class Guarded:
    """ASGI: only requests with the token reach the application."""

    def __init__(self, application: ASGIApp, token: str) -> None:
        self._application = application
        self._expected = f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not self._is_allowed(scope):
            headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"www-authenticate", b"Bearer")]
            length = (b"content-length", str(len(_REFUSED)).encode())
            await send({"type": "http.response.start", "status": 401, "headers": [*headers, length]})
            await send({"type": "http.response.body", "body": _REFUSED})
            return
        await self._application(scope, receive, send)

    def _is_allowed(self, scope: Any) -> bool:
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        return len(given) == 1 and hmac.compare_digest(given[0], self._expected)


def token_path(state_root: Path, name: str) -> Path:
    """Where the token of that name lies."""
    return state_root / "run" / f"{name}.token"


def existing_token(state_root: Path, name: str) -> str | None:
    """The token of that name; None where there is none, or too short a one."""
    try:
        kept = token_path(state_root, name).read_text("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return None
    return kept if len(kept) >= SHORTEST_TOKEN else None


def kept_token(state_root: Path, name: str) -> str:
    """The token of that name, made once, in a file that its user alone can read. Raises SettingsError."""
    kept = existing_token(state_root, name)
    if kept is None:
        private_folder(claim_state_root(state_root) / "run")
        kept = secrets.token_urlsafe(32)
        write_private(token_path(state_root, name), kept.encode() + b"\n")
    return kept
