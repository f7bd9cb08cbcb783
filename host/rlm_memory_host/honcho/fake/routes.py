"""The routes of the fake, over the store. Each is one function; answers have the service's shapes.

Owns: status codes, paging, what each call does. Does not own: keys, faults, the record of requests (`app`).
Scopes and file upload, which the product never uses, are answered 404 like any unknown path.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, TypeVar, cast

from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from rlm_memory_host.honcho.fake import bodies
from rlm_memory_host.honcho.fake.filters import matches
from rlm_memory_host.honcho.fake.state import MAX_PAGE, Row, Session, Store, Workspace, ranked, replace, words

_B = TypeVar("_B", bound=bodies.Body)


class _Refused(Exception):
    def __init__(self, status: int, detail: Any) -> None:
        super().__init__(status)
        self.response = JSONResponse({"detail": detail}, status)


async def _refused(_request: Request, error: Exception) -> Response:
    return cast("_Refused", error).response


async def _body(request: Request, kind: type[_B]) -> _B:
    data = await request.body()
    try:
        given: Any = json.loads(data) if data else {}
    except ValueError:
        raise _Refused(422, [{"type": "json_invalid", "loc": ["body"], "msg": "JSON decode error"}]) from None
    try:
        return kind.model_validate({} if given is None else given)
    except ValidationError as error:
        problems = error.errors(include_url=False, include_context=False)
        raise _Refused(422, [{**item, "loc": ["body", *item["loc"]]} for item in problems]) from None


def _space(request: Request) -> Workspace:
    store: Store = request.app.state.store
    name = request.path_params["workspace"]
    if name not in store.workspaces:
        raise _Refused(404, f"Workspace {name} not found")
    return store.workspaces[name]


def _session(request: Request) -> tuple[Workspace, Session]:
    space = _space(request)
    name = request.path_params["session"]
    if name not in space.sessions:
        raise _Refused(404, f"Session {name} not found in workspace {space.row['id']}")
    return space, space.sessions[name]


def _peer(request: Request) -> tuple[Workspace, str]:
    space = _space(request)
    name = request.path_params["peer"]
    if name not in space.peers:
        raise _Refused(404, f"Peer {name} not found in workspace {space.row['id']}")
    return space, name


def _number(request: Request, name: str, default: int, most: int) -> int:
    text = request.query_params.get(name, str(default))
    if not text.isdigit() or not 1 <= int(text) <= most:
        raise _Refused(422, [{"type": "less_than_equal", "loc": ["query", name], "msg": "out of range", "input": text}])
    return int(text)


async def _page(request: Request, rows: Iterable[Row]) -> Response:
    filters = (await _body(request, bodies.Listing)).filters
    page, size = _number(request, "page", 1, 1_000_000), _number(request, "size", 50, MAX_PAGE)
    found = [row.columns for row in rows if matches(row.columns, filters)]
    if request.query_params.get("reverse", "").lower() == "true":
        found.reverse()
    return JSONResponse(
        {
            "items": found[(page - 1) * size : page * size],
            "total": len(found),
            "page": page,
            "size": size,
            "pages": -(-len(found) // size),
        }
    )


# -- workspaces ------------------------------------------------------------------------------------------------------
async def put_workspace(request: Request) -> Response:
    body = await _body(request, bodies.Named)
    store: Store = request.app.state.store
    is_new = body.id not in store.workspaces
    space = store.workspace(body.id)
    replace(space.row, body.model_dump())
    return JSONResponse(space.row.columns, 201 if is_new else 200)


async def list_workspaces(request: Request) -> Response:
    return await _page(request, [space.row for space in request.app.state.store.workspaces.values()])


async def update_workspace(request: Request) -> Response:
    body = await _body(request, bodies.Update)
    space = cast("Store", request.app.state.store).workspace(request.path_params["workspace"])
    replace(space.row, body.model_dump())
    return JSONResponse(space.row.columns)


async def delete_workspace(request: Request) -> Response:
    space = _space(request)
    if space.sessions:
        raise _Refused(409, "Workspace has active sessions")
    del request.app.state.store.workspaces[space.row["id"]]
    return JSONResponse({"message": "accepted"}, 202)


async def search_workspace(request: Request) -> Response:
    return await _search(request, _space(request).messages())


async def queue_status(request: Request) -> Response:
    rows = list(_space(request).messages())
    pending = sum(row.visible_at > request.app.state.store.now() for row in rows)
    return JSONResponse(
        {
            "total_work_units": len(rows),
            "completed_work_units": len(rows) - pending,
            "in_progress_work_units": 0,
            "pending_work_units": pending,
        }
    )


async def schedule_dream(request: Request) -> Response:
    _space(request)
    return Response(status_code=204)


async def _search(request: Request, rows: Iterable[Row]) -> Response:
    body = await _body(request, bodies.Search)
    is_lax = cast("Store", request.app.state.store).ignores_filters
    held = [row for row in rows if is_lax or matches(row.columns, body.filters)]
    best = ranked(held, body.query, request.app.state.store.now(), body.limit)
    return JSONResponse([row.columns for row in best])


# -- peers -----------------------------------------------------------------------------------------------------------
async def put_peer(request: Request) -> Response:
    body = await _body(request, bodies.Named)
    space = _space(request)
    is_new = body.id not in space.peers
    row = cast("Store", request.app.state.store).peer(space, body.id)
    replace(row, body.model_dump())
    return JSONResponse(row.columns, 201 if is_new else 200)


async def list_peers(request: Request) -> Response:
    return await _page(request, _space(request).peers.values())


async def update_peer(request: Request) -> Response:
    body = await _body(request, bodies.Update)
    row = cast("Store", request.app.state.store).peer(_space(request), request.path_params["peer"])
    replace(row, body.model_dump())
    return JSONResponse(row.columns)


async def peer_sessions(request: Request) -> Response:
    space, name = _peer(request)
    return await _page(request, [session.row for session in space.sessions.values() if name in session.peers])


async def search_peer(request: Request) -> Response:
    space, name = _peer(request)
    return await _search(request, [row for row in space.messages() if row["peer_id"] == name])


async def get_card(request: Request) -> Response:
    space, name = _peer(request)
    return JSONResponse({"peer_card": space.cards.get((name, request.query_params.get("target", name)))})


async def put_card(request: Request) -> Response:
    body = await _body(request, bodies.Card)
    space, name = _peer(request)
    space.cards[(name, request.query_params.get("target", name))] = body.peer_card
    return JSONResponse({"peer_card": body.peer_card})


async def representation(request: Request) -> Response:
    body = await _body(request, bodies.Representation)
    space, name = _peer(request)
    return JSONResponse({"representation": _known(request, space, body.target or name, body)})


async def peer_context(request: Request) -> Response:
    space, name = _peer(request)
    target = request.query_params.get("target", name)
    body = bodies.Representation(search_query=request.query_params.get("search_query"))
    return JSONResponse(
        {
            "peer_id": name,
            "target_id": target,
            "representation": _known(request, space, target, body),
            "peer_card": space.cards.get((name, target)),
        }
    )


def _known(request: Request, space: Workspace, target: str, body: bodies.Representation) -> str:
    """Markdown of what the peer said, as far as the queue got; metadata plays no part in it, as with the service."""
    now = request.app.state.store.now()
    observed = [
        row
        for session in space.sessions.values()
        if session.peers.get(target, {}).get("observe_me", True)
        for row in session.messages
        if row["peer_id"] == target and row.visible_at <= now
        if body.session_id is None or row["session_id"] == body.session_id
    ]
    stated = [row for row in space.conclusions.values() if row["observed_id"] == target]
    rows = sorted([*observed, *stated], key=lambda row: -row.order)
    if body.search_query:
        wanted = words(body.search_query)
        rows.sort(key=lambda row: -len(wanted & words(str(row["content"]))))
    lines = [f"[{row['created_at']}] {row['content']}" for row in rows[: body.max_conclusions]]
    return "\n".join(["## Explicit Observations", "", *lines, ""]) if lines else ""


async def chat(request: Request) -> Response:
    body = await _body(request, bodies.Dialectic)
    space = _space(request)
    target = body.target or request.path_params.get("peer")
    rows = [row for row in space.messages() if target in (None, row["peer_id"])]
    best = ranked(rows, body.query, request.app.state.store.now(), 3)
    content = " ".join(str(row["content"]) for row in best) or None
    if not body.stream:
        return JSONResponse({"content": content})
    events = [
        f"data: {json.dumps({'delta': {'content': word + ' '}, 'done': False})}\n\n" for word in (content or "").split()
    ]
    return StreamingResponse(iter([*events, 'data: {"delta": {}, "done": true}\n\n']), media_type="text/event-stream")


# -- sessions --------------------------------------------------------------------------------------------------------
async def put_session(request: Request) -> Response:
    body = await _body(request, bodies.Named)
    space, store = _space(request), cast("Store", request.app.state.store)
    is_new = body.id not in space.sessions
    session = store.session(space, body.id)
    replace(session.row, body.model_dump())
    store.join(space, session, body.peers or {})
    return JSONResponse(session.row.columns, 201 if is_new else 200)


async def list_sessions(request: Request) -> Response:
    return await _page(request, [session.row for session in _space(request).sessions.values()])


async def update_session(request: Request) -> Response:
    body = await _body(request, bodies.Update)
    session = cast("Store", request.app.state.store).session(_space(request), request.path_params["session"])
    replace(session.row, body.model_dump())
    return JSONResponse(session.row.columns)


async def delete_session(request: Request) -> Response:
    space, session = _session(request)
    del space.sessions[session.row["id"]]
    return JSONResponse({"message": "accepted"}, 202)


async def clone_session(request: Request) -> Response:
    space, session = _session(request)
    store = cast("Store", request.app.state.store)
    clone = store.session(space, store.new_id())
    clone.peers.update(session.peers)
    for message in session.messages:
        store.add_message(space, clone, message.columns)
        if message["id"] == request.query_params.get("message_id"):
            break
    return JSONResponse(clone.row.columns, 201)


async def session_context(request: Request) -> Response:
    _, session = _session(request)
    messages = [row.columns for row in session.messages]
    return JSONResponse({"id": session.row["id"], "messages": messages, "summary": None})


async def session_summaries(request: Request) -> Response:
    _, session = _session(request)
    return JSONResponse({"id": session.row["id"], "short_summary": None, "long_summary": None})


async def search_session(request: Request) -> Response:
    return await _search(request, _session(request)[1].messages)


async def session_peers(request: Request) -> Response:
    space, session = _session(request)
    given: Any = json.loads(await request.body() or b"null")
    store = cast("Store", request.app.state.store)
    match request.method:
        case "GET":
            return await _page(request, [space.peers[name] for name in session.peers])
        case "DELETE":
            for name in given:
                session.peers.pop(name, None)
        case "PUT":
            session.peers.clear()
            store.join(space, session, given)
        case _:
            store.join(space, session, given)
    return JSONResponse(session.row.columns)


async def peer_config(request: Request) -> Response:
    _, session = _session(request)
    name = request.path_params["peer"]
    if name not in session.peers:
        raise _Refused(404, f"Peer {name} is not in the session")
    if request.method == "PUT":
        session.peers[name] = json.loads(await request.body())
        return Response(status_code=204)
    return JSONResponse(session.peers[name])


# -- messages --------------------------------------------------------------------------------------------------------
async def add_messages(request: Request) -> Response:
    body = await _body(request, bodies.NewMessages)
    space, store = _space(request), cast("Store", request.app.state.store)
    session = store.session(space, request.path_params["session"])
    rows = [store.add_message(space, session, message.model_dump()) for message in body.messages]
    return JSONResponse([row.columns for row in rows], 201)


async def list_messages(request: Request) -> Response:
    return await _page(request, _session(request)[1].messages)


async def one_message(request: Request) -> Response:
    _, session = _session(request)
    found = [row for row in session.messages if row["id"] == request.path_params["message"]]
    if not found:
        raise _Refused(404, "Message not found")
    if request.method == "PUT":
        replace(found[0], (await _body(request, bodies.Update)).model_dump())
    return JSONResponse(found[0].columns)


# -- conclusions -----------------------------------------------------------------------------------------------------
async def add_conclusions(request: Request) -> Response:
    body = await _body(request, bodies.NewConclusions)
    space, store = _space(request), cast("Store", request.app.state.store)
    rows: list[Row] = []
    for item in body.conclusions:
        for name in (item.observer_id, item.observed_id):
            if name not in space.peers:
                raise _Refused(404, f"Peer {name} not found in workspace {space.row['id']}")
        columns = {"id": store.new_id(), **item.model_dump(), "level": "explicit", "created_at": store.stamp()}
        row = store.row(columns)
        space.conclusions[row["id"]] = row
        rows.append(row)
    return JSONResponse([row.columns for row in rows], 201)


async def list_conclusions(request: Request) -> Response:
    return await _page(request, _space(request).conclusions.values())


async def query_conclusions(request: Request) -> Response:
    body = await _body(request, bodies.ConclusionQuery)
    rows = [row for row in _space(request).conclusions.values() if matches(row.columns, body.filters)]
    best = ranked(rows, body.query, float("inf"), body.top_k)
    return JSONResponse([row.columns for row in best])


async def one_conclusion(request: Request) -> Response:
    space = _space(request)
    name = request.path_params["conclusion"]
    if name not in space.conclusions:
        raise _Refused(404, "Conclusion not found")
    if request.method == "DELETE":
        del space.conclusions[name]
        return Response(status_code=204)
    return JSONResponse(space.conclusions[name].columns)


async def health(_request: Request) -> Response:
    """Says ok whatever the state of the database, as the service does."""
    return JSONResponse({"status": "ok"})


_W = "/v3/workspaces/{workspace}"
_P = _W + "/peers/{peer}"
_S = _W + "/sessions/{session}"

ROUTES = (
    Route("/health", health, methods=["GET"]),
    Route("/v3/workspaces", put_workspace, methods=["POST"]),
    Route("/v3/workspaces/list", list_workspaces, methods=["POST"]),
    Route(_W, update_workspace, methods=["PUT"]),
    Route(_W, delete_workspace, methods=["DELETE"]),
    Route(_W + "/search", search_workspace, methods=["POST"]),
    Route(_W + "/chat", chat, methods=["POST"]),
    Route(_W + "/queue/status", queue_status, methods=["GET"]),
    Route(_W + "/schedule_dream", schedule_dream, methods=["POST"]),
    Route(_W + "/peers", put_peer, methods=["POST"]),
    Route(_W + "/peers/list", list_peers, methods=["POST"]),
    Route(_P, update_peer, methods=["PUT"]),
    Route(_P + "/sessions", peer_sessions, methods=["POST"]),
    Route(_P + "/search", search_peer, methods=["POST"]),
    Route(_P + "/card", get_card, methods=["GET"]),
    Route(_P + "/card", put_card, methods=["PUT"]),
    Route(_P + "/representation", representation, methods=["POST"]),
    Route(_P + "/context", peer_context, methods=["GET"]),
    Route(_P + "/chat", chat, methods=["POST"]),
    Route(_W + "/sessions", put_session, methods=["POST"]),
    Route(_W + "/sessions/list", list_sessions, methods=["POST"]),
    Route(_S, update_session, methods=["PUT"]),
    Route(_S, delete_session, methods=["DELETE"]),
    Route(_S + "/clone", clone_session, methods=["POST"]),
    Route(_S + "/context", session_context, methods=["GET"]),
    Route(_S + "/summaries", session_summaries, methods=["GET"]),
    Route(_S + "/search", search_session, methods=["POST"]),
    Route(_S + "/peers", session_peers, methods=["GET", "POST", "PUT", "DELETE"]),
    Route(_S + "/peers/{peer}/config", peer_config, methods=["GET", "PUT"]),
    Route(_S + "/messages", add_messages, methods=["POST"]),
    Route(_S + "/messages/list", list_messages, methods=["POST"]),
    Route(_S + "/messages/{message}", one_message, methods=["GET", "PUT"]),
    Route(_W + "/conclusions", add_conclusions, methods=["POST"]),
    Route(_W + "/conclusions/list", list_conclusions, methods=["POST"]),
    Route(_W + "/conclusions/query", query_conclusions, methods=["POST"]),
    Route(_W + "/conclusions/{conclusion}", one_conclusion, methods=["GET", "DELETE"]),
)


def application(store: Store) -> Starlette:
    """The routes over a store."""
    app = Starlette(routes=ROUTES, exception_handlers={_Refused: _refused})
    app.state.store = store
    return app
