"""The OpenAPI document of the loopback API, made from the models of its requests.

Owns: one sentence for each route and the shape of each answer. A test holds its paths together with the application's
routes.
"""

from __future__ import annotations

from typing import Any, Final

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from rlm_memory_host.loopback import messages

_REFERENCE: Final = "#/components/schemas/{model}"
_TEXT: Final = {"type": "string"}
_ENVELOPE: Final = {
    "type": "object",
    "required": ["isError", "content"],
    "properties": {
        "isError": {"type": "boolean"},
        "value": {"type": "object", "description": "The structured value of a success."},
        "content": {"type": "array", "items": {"type": "object"}, "description": "The same as text that stands alone."},
        "error": {"type": "object", "description": "Of a refusal: message, and info with name and code."},
    },
}
_POSTS: Final[dict[str, tuple[type[BaseModel], str, dict[str, Any]]]] = {
    "/v1/tools/list": (
        messages.ListRequest,
        "The tools, and the folder that the named session records from.",
        {"type": "object", "properties": {"tools": {"type": "array", "items": {"type": "object"}}, "exports": _TEXT}},
    ),
    "/v1/tools/call": (messages.CallRequest, "Call a tool; hanging up cancels the call.", _ENVELOPE),
    "/v1/recall": (
        messages.RecallRequest,
        "What to inject into the first step of a root's turn; an empty text for nothing. Diagnostics hold no content.",
        {
            "type": "object",
            "required": ["text", "diagnostics"],
            "properties": {"text": _TEXT, "diagnostics": {"type": "object"}},
        },
    ),
    "/v1/events": (
        messages.EventsRequest,
        "Take committed records of a session in; how many events they gave.",
        {"type": "object", "required": ["events"], "properties": {"events": {"type": "integer"}}},
    ),
}
_GETS: Final = {
    "/v1/status": "Which host this is.",
    "/openapi.json": "This document.",
}


def made(version: str) -> dict[str, Any]:
    """The document of a host of that version."""
    _, schemas = models_json_schema([(model, "validation") for model, _, _ in _POSTS.values()], ref_template=_REFERENCE)
    paths: dict[str, Any] = {
        path: {
            "post": {
                "summary": summary,
                "requestBody": {
                    "required": True,
                    "content": {"application/json": {"schema": {"$ref": _REFERENCE.format(model=model.__name__)}}},
                },
                "responses": _responses(answer),
            }
        }
        for path, (model, summary, answer) in _POSTS.items()
    }
    paths |= {
        path: {"get": {"summary": summary, "responses": _responses({"type": "object"})}}
        for path, summary in _GETS.items()
    }
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "rlm-memory loopback API",
            "version": version,
            "description": "For bridges on this machine. Every request needs the token; an error begins with its code.",
        },
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": {
                **schemas.get("$defs", {}),
                "Problem": {
                    "type": "object",
                    "required": ["error"],
                    "properties": {
                        "error": {
                            "type": "object",
                            "required": ["code", "message"],
                            "properties": {"code": _TEXT, "message": _TEXT},
                        }
                    },
                },
            },
        },
    }


def _responses(answer: dict[str, Any]) -> dict[str, Any]:
    refusal = {"application/json": {"schema": {"$ref": _REFERENCE.format(model="Problem")}}}
    return {
        "200": {"description": "The answer.", "content": {"application/json": {"schema": answer}}},
        "401": {"description": "Without the token."},
        "429": {"description": "Too often; Retry-After says when.", "content": refusal},
        "default": {"description": "A refusal, with its code.", "content": refusal},
    }
