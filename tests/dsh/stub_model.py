"""A model on the loopback that says what a test wrote down, in both wires of the two DeepSeek Harness lines.

Owns: the routes `/v1/messages` (the 0.2 line) and `/chat/completions` (0.1), both streamed; what was asked is kept. A
test tells it plays: a play belongs to the last of the conversation's messages that holds its key, and its steps follow
one another as the assistant's messages after it do.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast


@dataclass(frozen=True)
class Say:
    """The assistant's text."""

    text: str


@dataclass(frozen=True)
class Call:
    """A tool call; arguments may be a function of the text of the conversation so far."""

    name: str
    arguments: Mapping[str, Any] | Callable[[str], Mapping[str, Any]]


@dataclass(frozen=True)
class Fail:
    """The request is refused with this status."""

    status: int


@dataclass(frozen=True)
class Do:
    """Something that happens before the step after it."""

    run: Callable[[], object]
    then: Say | Call


Step = Say | Call | Fail | Do


@dataclass
class Model:
    """The running model. `asked` are the bodies of all requests, in order."""

    url: str
    plays: dict[str, Sequence[Step]] = field(default_factory=dict[str, Sequence[Step]])
    asked: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    def prompts(self, key: str) -> list[str]:
        """The whole text of each request in which the key stands."""
        return [text for text in map(json.dumps, (body["messages"] for body in self.asked)) if key in text]

    def step(self, body: Mapping[str, Any]) -> Step:
        """What comes next in the conversation of a request."""
        messages = cast("list[dict[str, Any]]", body["messages"])
        texts = [(message["role"], json.dumps(message["content"])) for message in messages]
        at, _, key = max(
            (
                (at, text.rfind(key), key)
                for at, (role, text) in enumerate(texts)
                for key in self.plays
                if role == "user" and key in text
            ),
            default=(-1, 0, ""),
        )
        if not key:
            return Say("I have nothing to say.")
        steps = self.plays[key]
        done = sum(1 for role, _ in texts[at:] if role == "assistant")
        step = steps[min(done, len(steps) - 1)]
        if isinstance(step, Do):
            step.run()
            step = step.then
        if isinstance(step, Call) and callable(step.arguments):
            return Call(step.name, step.arguments("\n".join(text for _, text in texts)))
        return step


@contextmanager
def running_model() -> Generator[Model]:
    """A model that serves until the context ends."""
    model = Model("")
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:
            """Silent."""

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            if "messages" not in body:
                self._send(200, b"{}", "application/json")
                return
            with lock:
                model.asked.append(body)
                number = len(model.asked)
            step = model.step(body)
            if isinstance(step, Fail):
                self._send(step.status, b'{"error": {"type": "stub", "message": "as written"}}', "application/json")
                return
            assert not isinstance(step, Do)
            wire = _messages if self.path.endswith("/messages") else _completions
            self._send(200, "".join(wire(step, number)).encode(), "text/event-stream")

        def _send(self, status: int, data: bytes, kind: str) -> None:
            try:
                self.send_response(status)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)
            except ConnectionError:
                self.close_connection = True

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    model.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield model
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _messages(step: Say | Call, number: int) -> Iterator[str]:
    def event(kind: str, **fields: Any) -> str:
        return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n"

    usage = {"input_tokens": 5, "output_tokens": 7}
    head: dict[str, Any] = {
        "id": f"msg_{number}",
        "type": "message",
        "role": "assistant",
        "model": "stub",
        "content": [],
    }
    yield event("message_start", message={**head, "stop_reason": None, "stop_sequence": None, "usage": usage})
    block: dict[str, Any]
    if isinstance(step, Call):
        block = {"type": "tool_use", "id": f"call_{number}", "name": step.name, "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(step.arguments)}
    else:
        block, delta = {"type": "text", "text": ""}, {"type": "text_delta", "text": step.text}
    yield event("content_block_start", index=0, content_block=block)
    yield event("content_block_delta", index=0, delta=delta)
    yield event("content_block_stop", index=0)
    reason = "tool_use" if isinstance(step, Call) else "end_turn"
    yield event("message_delta", delta={"stop_reason": reason, "stop_sequence": None}, usage={"output_tokens": 7})
    yield event("message_stop")


def _completions(step: Say | Call, number: int) -> Iterator[str]:
    def chunk(choices: list[dict[str, Any]], **more: Any) -> str:
        head = {"id": f"c{number}", "object": "chat.completion.chunk", "created": 1, "model": "stub"}
        return f"data: {json.dumps({**head, 'choices': choices, **more})}\n\n"

    def choice(delta: dict[str, Any], reason: str | None = None) -> list[dict[str, Any]]:
        return [{"index": 0, "delta": delta, "finish_reason": reason}]

    if isinstance(step, Call):
        function = {"name": step.name, "arguments": json.dumps(step.arguments)}
        call = {"index": 0, "id": f"call_{number}", "type": "function", "function": function}
        yield chunk(choice({"role": "assistant", "content": None, "tool_calls": [call]}))
        yield chunk(choice({}, "tool_calls"))
    else:
        yield chunk(choice({"role": "assistant", "content": step.text}))
        yield chunk(choice({}, "stop"))
    yield chunk([], usage={"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12})
    yield "data: [DONE]\n\n"
