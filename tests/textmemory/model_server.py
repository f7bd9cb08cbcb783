"""A model's chat route on the loopback, as tests of the judge need it."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from rlm_memory_host.textmemory.judging import HttpJudge


class ModelServer(ThreadingHTTPServer):
    """An OpenAI-compatible route on the loopback that gives what the test says."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Route)
        self.asked: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.status = 200
        self.answer = ""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1/chat/completions"

    @property
    def judge(self) -> HttpJudge:
        return HttpJudge(self.url, "tiny", lambda: "not-a-secret", pause_seconds=0)


class Route(BaseHTTPRequestHandler):
    server: ModelServer

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.headers.append({name.lower(): value for name, value in self.headers.items()})
        self.server.asked.append(json.loads(body["messages"][1]["content"]))
        data = json.dumps({"choices": [{"message": {"content": self.server.answer}}]}).encode()
        self.send_response(self.server.status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass
