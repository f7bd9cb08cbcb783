"""A narrow client of the memory service: the routes that the product uses, each bounded in time as a whole.

Owns: URLs, headers, the total deadline of a call, what an outcome means (`errors.RemoteError`), the form of an
answer. Does not own: retries (the outbox), when something is called, ids and content. Nothing of an answer or a refusal
is ever in a message: a 422 repeats the content it refuses, and httpx's own texts and logs hold URLs.

One instance a host, one connection pool; proxies and netrc of the environment are not used (`trust_env=False`),
redirects not followed: the key goes to the configured address and nowhere else.

Source: design page "Honcho, the outbox, capture and recall", Client; DeepSeek Honcho specification, sections 9.2, 16.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC
from email.utils import parsedate_to_datetime
from types import TracebackType
from typing import Any, Final, Self, cast
from urllib.parse import quote, urlsplit

import httpx

from rlm_memory_host.contracts.delivery_ids import is_remote_id
from rlm_memory_host.contracts.version import version
from rlm_memory_host.errors import (
    RemoteAuth,
    RemoteBusy,
    RemoteError,
    RemoteRejected,
    RemoteUnavailable,
    RemoteUnknownOutcome,
    SettingsError,
)
from rlm_memory_host.honcho.credentials import KeySource, Secret
from rlm_memory_host.metrics import Metrics

CALL_SECONDS: Final = 10.0
"""The whole of a call, by default."""
MAX_ANSWER_BYTES: Final = 32 << 20
PAGE_SIZE: Final = 100
NOT_FOUND: Final = "REMOTE_NOT_FOUND"
MISDIRECTED: Final = "REMOTE_MISDIRECTED"
"""What answers is not the service: a redirect, a login page, another path."""

# INFO prints every URL, and a search's URL and a debug line hold more than a log of ours may.
logging.getLogger("httpx").setLevel(logging.WARNING)
logging.getLogger("httpcore").setLevel(logging.WARNING)

_NOT_SENT: Final = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol)
_REFUSES_THE_REQUEST: Final = frozenset({400, 413, 422})
_COME_BACK: Final = frozenset({409, 423, 425})


class HonchoClient:
    """Calls of one workspace. `call_seconds` bounds each call from the first byte of connecting to the last of reading.

    `key` None sends none (a self-hosted service without authentication). `transport` is for tests.
    """

    def __init__(
        self,
        base_url: str,
        workspace_id: str,
        *,
        key: KeySource | None = None,
        call_seconds: float = CALL_SECONDS,
        transport: httpx.AsyncBaseTransport | None = None,
        now: Callable[[], float] = time.time,
        metrics: Metrics | None = None,
    ) -> None:
        self._metrics = metrics or Metrics()
        self.workspace_id = checked_id(workspace_id, "honcho.workspace")
        self._source = key
        self._secret: Secret | None = None
        self._seconds = call_seconds
        self._now = now
        self._http = httpx.AsyncClient(
            base_url=checked_url(base_url),
            trust_env=False,
            follow_redirects=False,
            # The deadline of a call is ours; these only keep a phase from outliving it by much.
            timeout=httpx.Timeout(call_seconds),
            limits=httpx.Limits(max_connections=16, max_keepalive_connections=8, keepalive_expiry=30),
            transport=transport,
            headers={"user-agent": f"rlm-memory-host/{version()}", "accept": "application/json"},
        )

    def __repr__(self) -> str:
        return "HonchoClient(...)"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the pool; calls under way fail."""
        await self._http.aclose()

    def renew_key(self) -> bool:
        """Read the key's source again (blocking); True where it gives another key than before.

        Raises CredentialError where it gives none.
        """
        if self._source is None:
            return False
        before = self._secret
        self._secret = self._source.read()
        return before is None or before.mark != self._secret.mark

    # -- calls -------------------------------------------------------------------------------------------------------
    async def exists(self, kind: str, name: str) -> bool:
        """Whether the workspace (`kind` ""), or a peer or session of it (`peers`, `sessions`), is there."""
        path = "/v3/workspaces/list" if not kind else f"{self._base}/{kind}/list"
        answer = await self._call("POST", path, {"filters": {"id": name}}, {"page": 1, "size": PAGE_SIZE})
        return any(item.get("id") == name for item in _items(answer))

    async def create_workspace(self) -> None:
        """Get or create."""
        await self._call("POST", "/v3/workspaces", {"id": self.workspace_id})

    async def create_peer(self, peer_id: str) -> None:
        """Get or create; its metadata, if any, is left alone."""
        await self._call("POST", f"{self._base}/peers", {"id": peer_id})

    async def create_session(
        self, session_id: str, *, peers: Mapping[str, Any] | None = None, metadata: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Get or create, join `peers`, and replace the metadata where some is given; the session's metadata now."""
        body = {"id": session_id, "peers": peers, "metadata": metadata}
        given = {key: value for key, value in body.items() if value is not None}
        answer = await self._call("POST", f"{self._base}/sessions", given)
        found: Any = _object(answer).get("metadata")
        return cast("dict[str, Any]", found) if isinstance(found, dict) else {}

    async def add_messages(self, session_id: str, messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Add all or none; the rows as stored."""
        path = f"{self._base}/sessions/{quote(session_id, safe='')}/messages"
        return _list(await self._call("POST", path, {"messages": list(messages)}))

    async def list_messages(
        self, session_id: str, filters: Mapping[str, Any], *, page: int = 1
    ) -> tuple[list[dict[str, Any]], int]:
        """One page of a session's messages in order, and the number of pages. An empty filter would give everything."""
        if not filters:
            raise ValueError("an empty filter matches every message")
        path = f"{self._base}/sessions/{quote(session_id, safe='')}/messages/list"
        answer = _object(await self._call("POST", path, {"filters": dict(filters)}, {"page": page, "size": PAGE_SIZE}))
        pages: Any = answer.get("pages")
        return _items(answer), pages if isinstance(pages, int) else 1

    async def search(
        self,
        query: str,
        filters: Mapping[str, Any],
        *,
        limit: int,
        session_id: str | None = None,
        seconds: float | None = None,
    ) -> list[dict[str, Any]]:
        """Messages by meaning, in the workspace or one session. Check each again: filters have wildcards."""
        place = "" if session_id is None else f"/sessions/{quote(session_id, safe='')}"
        body = {"query": query, "filters": dict(filters), "limit": limit}
        return _list(await self._call("POST", f"{self._base}{place}/search", body, seconds=seconds))

    async def representation(
        self,
        peer_id: str,
        *,
        session_id: str | None = None,
        search_query: str | None = None,
        seconds: float | None = None,
    ) -> str:
        """What the service derived about a peer, Markdown. It cannot be told apart by project."""
        body = {"session_id": session_id, "search_query": search_query}
        given = {key: value for key, value in body.items() if value is not None}
        path = f"{self._base}/peers/{quote(peer_id, safe='')}/representation"
        text: Any = _object(await self._call("POST", path, given, seconds=seconds)).get("representation")
        return text if isinstance(text, str) else ""

    async def ask(self, peer_id: str, question: str, *, level: str = "low", seconds: float | None = None) -> str | None:
        """The dialectic: an answer about a peer. Takes seconds; never on a hot path."""
        body = {"query": question, "stream": False, "reasoning_level": level}
        path = f"{self._base}/peers/{quote(peer_id, safe='')}/chat"
        text: Any = _object(await self._call("POST", path, body, seconds=seconds)).get("content")
        return text if isinstance(text, str) else None

    async def queue_status(self) -> dict[str, Any]:
        """Counters of the service's own processing."""
        return _object(await self._call("GET", f"{self._base}/queue/status"))

    # -- one call ----------------------------------------------------------------------------------------------------
    @property
    def _base(self) -> str:
        return f"/v3/workspaces/{self.workspace_id}"

    async def _call(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        query: Mapping[str, Any] | None = None,
        *,
        seconds: float | None = None,
    ) -> Any:
        content = None if body is None else json.dumps(body, ensure_ascii=False, allow_nan=False).encode("utf-8")
        headers = {"content-type": "application/json"} if content is not None else {}
        headers |= await self._authorization()
        request = self._http.build_request(method, path, params=query, content=content, headers=headers)
        route = route_of(method, path)
        self._metrics.count("remote_bytes_sent", route, len(content or b""))
        try:
            with self._metrics.timing("remote_seconds", route):
                async with asyncio.timeout(seconds or self._seconds):
                    status, told, data = await self._exchange(request)
        except TimeoutError:
            raise RemoteUnknownOutcome("the memory service did not answer in time") from None
        except _NOT_SENT as error:
            raise RemoteUnavailable(f"the memory service cannot be reached ({type(error).__name__})") from None
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as error:
            raise RemoteUnknownOutcome(f"the call broke off ({type(error).__name__})") from None
        if 200 <= status < 300:
            return _parsed(data)
        raise self._error(status, told, data)

    async def _authorization(self) -> dict[str, str]:
        if self._source is None:
            return {}
        if self._secret is None:
            await asyncio.to_thread(self.renew_key)
        return {} if self._secret is None else {"authorization": f"Bearer {self._secret.reveal()}"}

    async def _exchange(self, request: httpx.Request) -> tuple[int, httpx.Headers, bytes]:
        response = await self._http.send(request, stream=True)
        try:
            data = b""
            async for part in response.aiter_bytes():
                data += part
                if len(data) > MAX_ANSWER_BYTES:
                    raise httpx.StreamError("too long")
            return response.status_code, response.headers, data
        finally:
            await response.aclose()

    def _error(self, status: int, headers: httpx.Headers, data: bytes) -> RemoteError:
        wait = retry_after(headers.get("retry-after"), self._now())
        if status in (401, 403):
            return RemoteAuth(f"the memory service does not accept the key for this ({status})", status=status)
        if status == 429 or status in _COME_BACK:
            return RemoteBusy(f"the memory service asks to come back later ({status})", status=status, retry_after=wait)
        if status >= 500 or status == 408:
            # It may have been carried out before it went wrong.
            message = f"the memory service failed ({status})"
            return RemoteUnknownOutcome(message, status=status, retry_after=wait)
        if status in _REFUSES_THE_REQUEST and _is_json_object(data):
            return RemoteRejected(f"the memory service refuses the request ({status})", status=status)
        if status == 404 and _is_json_object(data):
            return RemoteUnavailable("the memory service does not know what was named (404)", NOT_FOUND, status=404)
        message = f"what answers is not the memory service ({status}); check honcho.url"
        return RemoteUnavailable(message, MISDIRECTED, status=status)


def route_of(method: str, path: str) -> str:
    """A route by its own name, without the ids in its path."""
    parts = path.strip("/").split("/")
    words = [part for number, part in enumerate(parts) if number > 2 and number % 2 == 1]
    named = ".".join(words[-2:]) or "workspaces"
    if len(parts) == 3 and parts[-1] == "list":
        named = "workspaces.list"
    elif len(parts) > 3 and parts[-1] == "list" and parts[-1] not in words:
        named = f"{named}.list"
    return named if method != "GET" else f"get.{named}"


def retry_after(header: str | None, now: float) -> float | None:
    """The seconds that a Retry-After asks for; None for none, and for one that makes no sense."""
    if header is None:
        return None
    try:
        seconds = float(header)
    except ValueError:
        try:
            moment = parsedate_to_datetime(header)
        except (ValueError, TypeError, IndexError, OverflowError):
            return None
        seconds = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() - now
        # A date that has passed says "now".
        return max(0.0, seconds)
    return seconds if math.isfinite(seconds) and seconds >= 0 else None


def checked_id(value: str, key: str) -> str:
    """`value`, one that the service takes as an id. Raises SettingsError naming the key."""
    if not is_remote_id(value):
        raise SettingsError(f"{key}: 1 to 512 of the characters A-Z a-z 0-9 _ - are needed")
    return value


def checked_url(text: str, key: str = "honcho.url") -> str:
    """A base URL: http or https, a host, no user, query or fragment. Raises SettingsError without repeating it."""
    try:
        parts = urlsplit(text)
        _ = parts.port
        # What the client itself cannot read, and a host that no resolver takes.
        address = httpx.URL(text)
        _ = address.host, address.raw_host.decode("ascii").encode("idna")
    except (ValueError, httpx.InvalidURL):
        parts = urlsplit("")
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.query or parts.fragment:
        raise SettingsError(f"{key}: an address like https://honcho.example.org is needed, without user or query")
    return text.rstrip("/")


def _parsed(data: bytes) -> Any:
    try:
        return json.loads(data) if data else None
    except ValueError:
        raise RemoteUnknownOutcome("the answer is not JSON; what answers may not be the memory service") from None


def _is_json_object(data: bytes) -> bool:
    try:
        return isinstance(json.loads(data), dict)
    except ValueError:
        return False


def _object(answer: Any) -> dict[str, Any]:
    if not isinstance(answer, dict):
        raise RemoteUnknownOutcome("the answer does not have the expected form")
    return cast("dict[str, Any]", answer)


def _list(answer: Any) -> list[dict[str, Any]]:
    if not isinstance(answer, list) or not all(isinstance(item, dict) for item in cast("list[Any]", answer)):
        raise RemoteUnknownOutcome("the answer does not have the expected form")
    return cast("list[dict[str, Any]]", answer)


def _items(answer: Any) -> list[dict[str, Any]]:
    return _list(_object(answer).get("items"))
