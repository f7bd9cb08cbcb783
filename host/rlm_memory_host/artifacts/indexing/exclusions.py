"""What no remote card may hold beside secrets: places, addresses, code, parameters, rows, digests. Pure functions.

Owns: the patterns and their order. Does not own: secrets (the redactor that runs before), which fields leave at all
(`projection`).

Rather too much than too little: a line that looks like code or like a row of a table goes as a whole, since a card only
has to be found again, and the local card keeps every word. Every pattern starts at a literal or at a class that it
cannot repeat into, so a hostile text costs linear time.

Source: DeepSeek Honcho specification, section 29.3; design page "Honcho, the outbox, capture and recall", The remote
card.
"""

from __future__ import annotations

import re
from typing import Final

_ROOTS: Final = (
    "bin|boot|data|dev|etc|export|home|lib|media|mnt|nfs|opt|private|proc|projects?|root|run|sbin|scratch|shared?|srv|"
    "sys|tmp|Users|usr|var|Volumes|work|workspace"
)
_EDGE: Final = r"(?<![\w/\\.~-])"
_PART: Final = r"[^\s/\"'`<>|,;()\[\]{}]+"

_BLOCKS: Final = (
    ("code", re.compile(r"```.*?(?:```|\Z)", re.S)),
    (
        "code",
        # A statement of SQL, to its end: the semicolon, an empty line or the end of the text.
        re.compile(
            r"\b(?:SELECT\b[^;]{0,4000}?\bFROM\b|INSERT\s+INTO\b|UPDATE\s+\S{1,200}\s+SET\b|DELETE\s+FROM\b"
            r"|CREATE\s+(?:OR\s+REPLACE\s+)?(?:TEMP(?:ORARY)?\s+)?(?:TABLE|VIEW)\b|(?:DROP|ALTER|TRUNCATE)\s+TABLE\b"
            r"|MERGE\s+INTO\b|WITH\s+\w{1,100}\s+AS\s*\()(?:(?!\n\s*\n)[^;]){0,8000};?",
        ),
    ),
    (
        "code",
        re.compile(
            r"\bselect\s[^;]{0,4000}?\sfrom\s+[\w.\"`\[\]]+\s*(?:;|(?:as\s+)?\w{0,40}\s*\b(?:where|(?:inner|left|right|"
            r"full|cross)?\s*join|group\s+by|order\s+by|having|limit|union)\b)(?:(?!\n\s*\n)[^;]){0,8000};?",
            re.I,
        ),
    ),
    (
        "code",
        re.compile(r"\bselect\s+(?:distinct\s+)?(?:\*|count\s*\()[^;]{0,4000}?\sfrom\s+[\w.\"`\[\]]+[^;\n]*;?", re.I),
    ),
)
_CODE_LINE: Final = re.compile(
    r"[ \t]*(?:>>>|\.\.\. |(?:In|Out) ?\[\d*\]:|\$ |#!|%{1,2}\w|import \w|from [\w.]+ import\b|(?:async )?def \w+\s*\("
    r"|class \w+[^\n]{0,200}:\s*$|return\b[^\n]{0,200}[(\[=]|(?:for|while|if|elif|else|with|try|except|finally)\b"
    r"[^\n]{0,300}:\s*$|@\w[\w.]*(?:\(|\s*$)|lambda\b|library\(|[\w.\[\]'\"]+\s*(?:=|\+=|<-|:=)\s*[^\s=][^\n]*[(\[{]"
    r"|[\w.]+\([^\n]*\)\s*;?\s*$)"
)
_ROW: Final = re.compile(r"[ \t]*(?:\|.*\||\S+(?:[ \t]{2,}\S+){2,})[ \t]*")
_RULE: Final = re.compile(r"[ \t]*[-+=|:]{3,}[-+=|: \t]*")
_NUMBER: Final = re.compile(r"[\"']?[-+]?\d[\d.,_]*(?:[eE][-+]?\d+)?%?[\"']?")

_INLINE: Final = (
    ("address", re.compile(r"\b[A-Za-z][A-Za-z0-9+.-]{1,30}:(?:[A-Za-z0-9+.-]{1,30}:)?//[^\s<>\"'`]+")),
    ("address", re.compile(r"\bjdbc:[^\s<>\"'`]+", re.I)),
    (
        "connection",
        re.compile(
            r"\b(?:server|data source|host(?:name)?|driver|database|dbname|initial catalog|user id|user|uid|pwd|"
            r"password|port|trusted_connection|sslmode)\s*=\s*[^;\s]{1,200}(?:\s*[; ]\s*[A-Za-z][\w ]{0,30}?=\s*"
            r"[^;\s]{1,200})+;?",
            re.I,
        ),
    ),
    ("path", re.compile(r"\\\\[^\s\\\"'<>|]+\\[^\s\"'<>|]+")),
    ("path", re.compile(r"(?<![A-Za-z0-9])[A-Za-z]:[\\/](?![\\/])[^\s\"'<>|]*")),
    ("path", re.compile(_EDGE + r"(?:~[\w.-]{0,40})?/(?:" + _PART + r"/)+(?:" + _PART + r")?")),
    ("path", re.compile(_EDGE + r"~[\w.-]{0,40}/" + _PART)),
    ("path", re.compile(_EDGE + r"/(?:" + _ROOTS + r")\b(?:" + _PART + r")?")),
    ("path", re.compile(_EDGE + r"/" + _PART + r"\.[A-Za-z][A-Za-z0-9]{0,9}\b")),
    ("path", re.compile(r"(?<![\w/\\.-])(?:\.{1,2}/)+" + _PART + r"(?:/" + _PART + r")*")),
    ("path", re.compile(r"(?<![\w/\\.-])(?:[\w.-]{1,100}/){1,20}[\w.-]{1,100}\.[A-Za-z][A-Za-z0-9]{0,9}\b")),
    ("digest", re.compile(r"(?<![A-Za-z0-9])(?:sha\d+[:-])?[0-9a-fA-F]{32,}(?![A-Za-z0-9])")),
    ("data", re.compile(r"(?<![A-Za-z0-9+/_=-])[A-Za-z0-9+/_-]{60,}={0,2}")),
    ("code", re.compile(r"`[^`\n]*[()=;{}<>\[\]*][^`\n]*`")),
    ("data", re.compile(r"\{[^{}\n]{0,2000}:[^{}\n]{0,2000}\}")),
    ("data", re.compile(r"[\[(]\s*[-+]?\d[\d.eE+-]*(?:\s*,\s*[-+]?\d[\d.eE+-]*){2,}\s*,?\s*[\])]")),
    ("code", re.compile(r"(?<![\w.])\w{1,100}(?:\.\w{1,100})+\([^()\n]{0,500}\)(?:\.\w{1,100}\([^()\n]{0,500}\))*")),
    ("code", re.compile(r"(?<![\w.])\w{1,100}\([^()\n]{0,200}=[^()\n]{0,200}\)")),
    ("setting", re.compile(r"(?<![A-Za-z0-9_])\$?\{?[A-Z][A-Z0-9_]{2,60}\}?\s*=\s*(?!=)[^\s,;]+")),
)
_PARAMETER: Final = re.compile(
    r"(?<![\w.])([A-Za-z_]\w{0,60})\s*(?:==?|:=|<-)\s*(\"[^\"\n]{0,500}\"|'[^'\n]{0,500}'|[^\s,;()\[]+)"
)
_PLACEHOLDER: Final = re.compile(r"\[(?:[a-z][a-z0-9_ ]*)(?::[^\[\]\n]{0,80})?\]|\b\w+=\[value\]")


def without(text: str) -> str:
    """The text with everything of these kinds replaced by what it was, in brackets."""
    for name, pattern in _BLOCKS:
        text = pattern.sub(f"[{name}]", text)
    text = "\n".join(_line(line) for line in text.split("\n"))
    for name, pattern in _INLINE:
        text = pattern.sub(f"[{name}]", text)
    text = _PARAMETER.sub(_valueless, text)
    return re.sub(r"(?:(\[[a-z]+\])\s*)(?:\1\s*)+", r"\1 ", text).strip()


def is_hollow(text: str) -> bool:
    """Whether nothing but what took the place of something else is left of a text."""
    return not re.search(r"\w", _PLACEHOLDER.sub(" ", text))


def _line(line: str) -> str:
    if not line.strip():
        return line
    if _CODE_LINE.match(line):
        return "[code]"
    if _RULE.fullmatch(line) or _ROW.fullmatch(line) or _is_record(line):
        return "[rows]"
    return line


def _is_record(line: str) -> bool:
    """Whether a line is a record of values: three or more short fields, two or more of them numbers."""
    for mark in ("\t", ",", ";", "|"):
        fields = [field.strip() for field in line.split(mark)]
        if len(fields) >= 3 and sum(_NUMBER.fullmatch(field) is not None for field in fields) >= 2:
            return all(len(field.split()) <= 3 for field in fields)
    return False


def _valueless(match: re.Match[str]) -> str:
    return match.group() if match.group(2).startswith("[") else f"{match.group(1)}=[value]"
