"""JSON schemas of tools: the input's made from its model, the output's checked against a value.

Owns: the flat dialect that tool lists use (no `$ref`, no titles). Does not own: the models.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from rlm_memory_host.tools.tool import Arguments

_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}


def parameters(model: type[Arguments]) -> dict[str, Any]:
    """The input schema as tool lists carry it. A field that may be null is shown by its other type."""
    schema = cast("dict[str, Any]", _plain(model.model_json_schema()))
    return {
        "type": "object",
        "properties": schema.get("properties", {}),
        "required": schema.get("required", []),
        "additionalProperties": False,
    }


def _plain(node: object) -> object:
    if isinstance(node, list):
        return [_plain(item) for item in cast("list[object]", node)]
    if not isinstance(node, dict):
        return node
    table = cast("dict[str, Any]", node)
    choices = [item for item in table.get("anyOf", []) if item != {"type": "null"}]
    if len(choices) == 1:
        rest = {key: value for key, value in table.items() if key not in {"anyOf", "default"}}
        table = {**choices[0], **rest}
    return {
        key: {name: _plain(value) for name, value in cast("dict[str, Any]", item).items()}
        if key == "properties"
        else _plain(item)
        for key, item in table.items()
        if key != "title" or not isinstance(item, str)
    }


def output(**types: str | list[str]) -> dict[str, Any]:
    """The flat output schema of a value with exactly these fields."""
    return {
        "type": "object",
        "properties": {name: {"type": kind} for name, kind in types.items()},
        "required": list(types),
        "additionalProperties": False,
    }


def problem_with(value: Mapping[str, Any], output: Mapping[str, Any]) -> str | None:
    """What is wrong with a tool's value, by its flat output schema; None when nothing is."""
    properties = cast("Mapping[str, Mapping[str, Any]]", output.get("properties", {}))
    for name in cast("list[str]", output.get("required", [])):
        if name not in value:
            return f"{name} is missing"
    for name, item in value.items():
        if name not in properties:
            return f"{name[:40]} is not part of the tool's output"
        kinds = cast("str | list[str]", properties[name]["type"])
        names = [kinds] if isinstance(kinds, str) else kinds
        if not any(_is(item, kind) for kind in names):
            return f"{name} is not of type {' or '.join(names)}"
    return None


def _is(value: object, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    return isinstance(value, _TYPES[kind])
