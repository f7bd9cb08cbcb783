"""What a secret looks like, by name. Every pattern starts at a literal or a class it cannot repeat into: linear time.

Owns: the patterns, the exceptions that keep ordinary technical text writable. Does not own: views and verdicts.

Source: design page "Recall, resident text, guard, audit, health, tools", Guard. Shapes of keys are those that their
issuers document.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

_EDGE: Final = r"(?<![A-Za-z0-9])"
_KEY_WORD: Final = (
    r"(?:api[\s_.-]{0,2}key|apikey|access[\s_.-]{0,2}key(?:[\s_.-]{0,2}id)?|secret(?:[\s_.-]{0,2}(?:access[\s_.-]{0,2})?key)?"
    r"|client[\s_.-]{0,2}secret|auth[\s_.-]{0,2}token|access[\s_.-]{0,2}token|refresh[\s_.-]{0,2}token"
    r"|passwords?|passwd|passphrase|(?<![A-Za-z])(?:token|pwd|pass|pw)|private[\s_.-]{0,2}key|credentials?|密码|口令|密钥|令牌|パスワード)"
)
_VALUE: Final = r"[A-Za-z0-9_\-./+=~!@#$%^&*?:]"


@dataclass(frozen=True, slots=True)
class Pattern:
    """One pattern; `accepts` says whether a match is a secret after all."""

    name: str
    regex: re.Pattern[str]
    accepts: Callable[[re.Match[str]], bool] = lambda _match: True


def _simple(name: str, regex: str, flags: int = 0) -> Pattern:
    return Pattern(name, re.compile(_EDGE + regex, flags))


def _entropy(text: str) -> float:
    counts = Counter(text)
    return -sum(n / len(text) * math.log2(n / len(text)) for n in counts.values())


_PLACEHOLDER: Final = re.compile(
    r"\$|\{|<|%|\*{3}|x{4,}|\.{3}|(?:your|my|the|example|sample|dummy|changeme|redacted|placeholder|none|null|true|false"
    r"|required|optional|string|env|os\.|process\.|getenv|config\.|settings\.|must|should|is|are|was|not|in|of|for|to|a"
    r"|an)\b",
    re.IGNORECASE,
)


def _is_value(value: str) -> bool:
    """Whether what is assigned to a key word is a secret and not a word, a number or a reference."""
    value = value.strip("\"'`,;.)")
    if len(value) < 6 or _PLACEHOLDER.match(value) or re.fullmatch(r"[0-9]+(?:\.[0-9]+)*", value):
        return False
    if re.fullmatch(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+", value):
        return False
    kinds = sum(bool(re.search(kind, value)) for kind in ("[a-z]", "[A-Z]", "[0-9]", r"[^A-Za-z0-9/._:-]"))
    is_path = "/" in value and kinds == 1
    return kinds >= 2 or (not is_path and len(value) >= 16 and _entropy(value) > 3.0)


def _is_assigned(match: re.Match[str]) -> bool:
    quoted, bare = match.group("quoted"), match.group("bare")
    if quoted is not None:
        return len(quoted) >= 4 and not _PLACEHOLDER.match(quoted) and " " not in quoted.strip()
    return _is_value(bare or "")


def _is_prose(match: re.Match[str]) -> bool:
    return _is_value(match.group("bare"))


def _is_random(match: re.Match[str]) -> bool:
    value = match.group()
    mixed = re.search("[a-z]", value) and re.search("[A-Z]", value) and re.search("[0-9]", value)
    return bool(mixed) and _entropy(value) >= 4.0


SECRETS: Final = (
    _simple("anthropic", r"sk-ant-[A-Za-z0-9_-]{16,}"),
    _simple("stripe", r"(?:sk|rk|pk|whsec)[_-](?:live|test)[_-]?[A-Za-z0-9_-]{10,}"),
    _simple("openai_sk", r"sk-(?:proj|svcacct|admin|None)-[A-Za-z0-9_-]{16,}"),
    _simple("deepseek_sk", r"sk-[a-f0-9]{32}(?![A-Za-z0-9])"),
    _simple("openai_sk", r"sk-[A-Za-z0-9_-]{16,}"),
    _simple("aws_akia", r"(?:AKIA|ASIA|AGPA|AIDA|AROA|ANPA|ANVA)[A-Z0-9]{16}(?![A-Za-z0-9])"),
    Pattern(
        "aws_secret",
        re.compile(r"(?:aws|secret|amazon)[^\n]{0,60}?(?<![A-Za-z0-9/+=])([A-Za-z0-9/+]{40})(?![A-Za-z0-9/+=])", re.I),
        lambda match: not re.fullmatch(r"[0-9a-f]{40}", match.group(1)) and _entropy(match.group(1)) > 3.5,
    ),
    _simple("github_pat", r"(?:gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,})"),
    _simple("gitlab_pat", r"gl(?:pat|ptt|dt|rt|cbt|soat)-[A-Za-z0-9_-]{16,}"),
    _simple("npm", r"npm_[A-Za-z0-9]{30,}"),
    _simple("slack", r"(?:xox[abeoprs]-[A-Za-z0-9-]{10,}|xapp-[A-Za-z0-9-]{10,})"),
    _simple("slack", r"hooks\.slack\.com/services/[A-Za-z0-9/]{16,}"),
    _simple("google", r"(?:AIza[A-Za-z0-9_-]{30,}|ya29\.[A-Za-z0-9_-]{20,}|GOCSPX-[A-Za-z0-9_-]{20,})"),
    _simple("huggingface", r"hf_[A-Za-z0-9]{24,}"),
    Pattern("twilio", re.compile(_EDGE + r"(?:AC|SK)[0-9a-f]{32}(?![A-Za-z0-9])")),
    _simple("jwt", r"(?<![_-])eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}"),
    Pattern(
        "bearer",
        re.compile(r"\bbearer[ \t]+([A-Za-z0-9._~+/-]{16,}=*)", re.I),
        lambda match: _is_value(match.group(1)),
    ),
    Pattern(
        "basic_auth_url",
        re.compile(r"[A-Za-z][A-Za-z0-9+.-]{1,15}://[^\s/:@]{0,128}:([^\s/@]{1,256})@[^\s/]"),
        lambda match: not re.match(r"[$<{*]|x{3,}|\.{3}|(?:password|pass|pwd)$", match.group(1), re.I),
    ),
    Pattern(
        "url_token_param",
        re.compile(
            r"[?&](?:access_token|token|api_?key|key|sig|signature|auth|secret|password|client_secret)=([^\s&#]{8,512})",
            re.I,
        ),
        lambda match: _is_value(match.group(1)),
    ),
    Pattern(
        "pem_private",
        re.compile(
            r"-----BEGIN (?:[A-Z0-9]{1,12} ){0,3}PRIVATE KEY(?: BLOCK)?-----"
            r"(?:[^-]{0,16384}-----END [^-\n]{1,40}-----|[A-Za-z0-9+/=\s\\]{0,16384})"
        ),
    ),
    Pattern(
        "assignment",
        re.compile(
            _KEY_WORD
            + r"[\"'`]?\s{0,8}(?:=(?!=)|:=|:|：|＝|=>)\s{0,8}(?:(?P<mark>[\"'`])(?P<quoted>[^\"'`\n]{4,512})(?P=mark)"
            r"|(?P<bare>" + _VALUE + r"{6,512}))",
            re.I,
        ),
        _is_assigned,
    ),
    Pattern(
        "prose_form",
        re.compile(
            _KEY_WORD + r"(?:\s{1,3}(?:is|was|are|to|will be|equals|of mine is)\s{1,3}|(?:是|为|改为|改成|は|:)\s{0,3})"
            r"[\"'`「“]?(?P<bare>" + _VALUE + r"{6,512})",
            re.I,
        ),
        _is_prose,
    ),
)
"""More specific names first: of two that match one place, the first gives the name."""

HIGH_ENTROPY: Final = Pattern(
    "high_entropy", re.compile(r"(?<![A-Za-z0-9+/_=-])[A-Za-z0-9+/_-]{24,512}={0,2}"), _is_random
)
"""Flags only: a random string may be an id."""


def matches(text: str, patterns: tuple[Pattern, ...]) -> Iterator[tuple[str, int, int]]:
    """(name, start, end) of every secret."""
    for pattern in patterns:
        for match in pattern.regex.finditer(text):
            if pattern.accepts(match):
                yield pattern.name, match.start(), match.end()
