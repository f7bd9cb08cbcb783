"""A bare HTTP client of the loopback API, over a real running host: what a bridge sends, byte for byte."""

from __future__ import annotations

import http.client
import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PATIENCE = 30.0


@dataclass(frozen=True)
class Answer:
    """One answer."""

    status: int
    headers: Mapping[str, str]
    body: Any

    @property
    def code(self) -> str:
        """The code of a refusal."""
        return self.body["error"]["code"]


class Client:
    """Asks the host of a state root, once it serves."""

    def __init__(self, root: Path) -> None:
        self.root = root
        path = root / "run" / "loopback.json"
        until = time.monotonic() + PATIENCE
        while not path.exists() or json.loads(path.read_text() or "{}").get("pid") is None:
            assert time.monotonic() < until, "the host does not serve the loopback API"
            time.sleep(0.05)
        self.url = json.loads(path.read_text())["url"]
        self.token = (root / "run" / "loopback.token").read_text().strip()

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self.url.rpartition(":")[2])

    def send(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """One request with exactly these headers besides the token; a header given as "" is left out."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        wanted = {"Authorization": f"Bearer {self.token}", **(headers or {})}
        try:
            connection.request(method, path, body, {name: value for name, value in wanted.items() if value})
            response = connection.getresponse()
            data = response.read()
        finally:
            connection.close()
        is_json = (response.getheader("content-type") or "").startswith("application/json")
        return Answer(response.status, dict(response.getheaders()), json.loads(data) if is_json else data.decode())

    def post(self, path: str, **body: Any) -> Answer:
        """One JSON request."""
        return self.send("POST", path, json.dumps(body).encode(), {"Content-Type": "application/json"})

    def call(self, header: Mapping[str, Any], name: str, **arguments: Any) -> dict[str, Any]:
        """The envelope of a call that reached its tool."""
        answer = self.post("/v1/tools/call", header=header, name=name, arguments=arguments)
        assert answer.status == 200, answer
        return answer.body


def header(session: str, cwd: Path, **more: Any) -> dict[str, Any]:
    """A session's header of the 0.2 line."""
    cwd.mkdir(exist_ok=True)
    return {"id": session, "version": 4, "cwd": os.fspath(cwd), **more}


def turn(number: int, seq: int, said: str, answered: str, reason: str = "completed") -> list[dict[str, Any]]:
    """The records of one turn, as the harness commits them."""
    message = {"content": [{"type": "text", "text": answered}], "source": {"kind": "model"}}
    return [
        {"type": "turn/start", "seq": seq, "time": 1, "data": {"turn": number}},
        user(seq + 1, said),
        {
            "type": "assistant/message",
            "seq": seq + 2,
            "time": 1,
            "surfaceOp": "append",
            "data": {"turn": number, "message": message},
        },
        {"type": "turn/end", "seq": seq + 3, "time": 1, "data": {"turn": number, "reason": {"kind": reason}}},
    ]


def user(seq: int, text: str, kind: str = "user") -> dict[str, Any]:
    """A message in the user's role."""
    content = [{"type": "text", "text": text}]
    data = {"role": "user", "source": {"kind": kind}, "content": content}
    return {"type": "user/message", "seq": seq, "time": 1, "surfaceOp": "append", "data": data}
