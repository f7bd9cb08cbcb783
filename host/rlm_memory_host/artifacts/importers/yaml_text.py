"""The YAML that pins and MLflow write, read as plain data.

Owns: bounds and refusals before PyYAML's safe loader sees it: no anchors and aliases, which let a few bytes stand for
gigabytes, no tags, and no deep nesting, on which PyYAML spends the square of its depth. What the loader makes of a date
or a number written bare is not used: readers turn values into text with `text_of`.
"""

from __future__ import annotations

import importlib
from typing import Any, Final, cast

MAX_BYTES: Final = 1 << 20
MAX_DEPTH: Final = 32
"""Mappings and lists within one another; these tools write three."""


class NotPlain(ValueError):
    """It is no YAML mapping that these tools write."""


def load_mapping(data: bytes) -> dict[str, Any]:
    """The mapping that a document is. Raises NotPlain."""
    yaml: Any = importlib.import_module("yaml")
    if len(data) > MAX_BYTES:
        raise NotPlain(f"over {MAX_BYTES:,} bytes")
    try:
        text = data.decode("utf-8")
        _check_tokens(yaml, text)
        # BaseLoader makes text of every scalar: `1e5`, `no` and `2024-01-01` stay what was written.
        document: Any = yaml.load(text, Loader=yaml.BaseLoader)
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise NotPlain("it is not YAML") from error
    if not isinstance(document, dict):
        raise NotPlain("it is no mapping")
    return {str(key): value for key, value in cast("dict[Any, Any]", document).items()}


def _check_tokens(yaml: Any, text: str) -> None:
    """Raises NotPlain for what is not read. The scanner is asked for one token after the other, so that it stops."""
    depth = 0
    for token in yaml.scan(text, Loader=yaml.SafeLoader):
        name = type(token).__name__
        if name in ("AliasToken", "AnchorToken", "TagToken"):
            raise NotPlain("it has anchors, aliases or tags")
        depth += name.endswith("StartToken") - name.endswith("EndToken")
        if depth > MAX_DEPTH + 1:
            raise NotPlain(f"it is nested more than {MAX_DEPTH} deep")


def text_of(value: Any) -> str:
    """A scalar as text; "" for null and for what is no scalar."""
    return value if isinstance(value, str) and value not in ("null", "~") else ""


def texts_of(value: Any) -> list[str]:
    """A scalar or a list of scalars as texts."""
    if isinstance(value, list):
        return [text for text in (text_of(each) for each in cast("list[Any]", value)) if text]
    return [text for text in (text_of(value),) if text]
