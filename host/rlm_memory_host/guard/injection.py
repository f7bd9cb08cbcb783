"""What reads like an instruction to a model. From a model or a background writer it is refused, else flagged.

Owns: the cues, English and Chinese. Does not own: the verdict. A cue is no proof; a person's security note matches too,
and is kept, escaped and never resident.

Source: design page "Recall, resident text, guard, audit, health, tools", Guard; "The memory model", injection text.
"""

from __future__ import annotations

import re
from typing import Final

_BEFORE: Final = r"(?:previous|prior|earlier|above|preceding|all|any|existing|former|your|system|the)"
_WHAT: Final = (
    r"(?:instructions?|rules?|prompts?|directions?|guidelines?|guardrails?|constraints?|polic(?:y|ies)|messages?)"
)
CUES: Final = (
    re.compile(
        rf"\b(?:ignore|disregard|forget|override|bypass|skip|drop|stop following|no longer follow"
        rf"|(?:not|never|n['’]t|longer)\s+(?:to\s+)?(?:follow|obey|heed|respect|comply\s+with|adhere\s+to))\s+"
        rf"(?:{_BEFORE}\s+){{0,4}}(?:of\s+)?(?:{_BEFORE}\s+){{0,3}}{_WHAT}\b",
        re.I,
    ),
    re.compile(
        r"\b(?:reveal|print|show|repeat|output|leak|send|exfiltrate)\s+(?:me\s+)?(?:the|your)\s+"
        r"(?:system\s+prompt|hidden\s+instructions?|api\s+keys?|credentials?|secrets?)\b",
        re.I,
    ),
    re.compile(r"\byou\s+are\s+(?:now|no\s+longer)\s+(?:a|an|in|the|bound|restricted|dan\b)", re.I),
    re.compile(
        r"(?:^|\n)[ \t]{0,8}(?:#{1,6} {0,4})?[\[<(]?(?:system|developer|assistant)[ \t]{0,4}[\]>)]?[ \t]{0,4}[:：]",
        re.I,
    ),
    re.compile(r"<\|?\s{0,4}(?:im_start|im_end|endoftext|system|/?inst)\s{0,4}\|?>|\[/?INST\]", re.I),
    re.compile(
        r"</?(?:memory_data|persistent-memory|memory|system|instructions?|tool_result|function_results?)\b[^>\n]{0,80}>",
        re.I,
    ),
    re.compile(r"\[/?(?:honcho )?memory\]", re.I),
    re.compile(
        r"\b(?:developer|jailbreak|god|dan|unrestricted)\s+mode\b|\bnew\s+(?:system\s+)?instructions?\s*[:：]", re.I
    ),
    re.compile(r"\bfrom\s+now\s+on,?\s+(?:you\s+(?:are|must|will|act|obey)|ignore|obey|respond\s+as|act\s+as)\b", re.I),
    re.compile(r"(?:^|\n)---\s*\n(?:[^\n]{0,200}\n){0,20}?\s*trust\s*:\s*(?:high|full|system)", re.I),
    re.compile(r"\bgrant\s+(?:yourself|the\s+model|me)\s+(?:all|full|root|admin)\b|\ballow\s+all\s+tools?\b", re.I),
    re.compile(
        r"(?:忽略|无视|不要理会|忘记|忘掉|跳过|覆盖|不再遵守|不必遵守)(?:掉|了)?[^\n。！？]{0,12}?"
        r"(?:指令|指示|规则|提示词?|要求|约束|限制|系统消息)"
    ),
    re.compile(r"(?:输出|显示|泄露|告诉我|打印|发送)[^\n。！？]{0,8}?(?:系统提示词?|隐藏指令|密钥|凭据)"),
    re.compile(
        r"(?:从现在起|从现在开始)[，,]?\s{0,3}(?:你(?:必须|要|只能|只|就是|是|不再)|必须(?:服从|听从)|只(?:听|服从))"
        r"|你现在是|你不再是|开发者模式|越狱模式"
    ),
)


def is_instruction_like(text: str) -> bool:
    """Whether a text holds a cue."""
    return any(cue.search(text) for cue in CUES)


def line_of_cue(text: str) -> int:
    """The line, from 1, of the first cue; 0 when there is none."""
    starts = [match.start() for cue in CUES if (match := cue.search(text))]
    return text.count("\n", 0, min(starts)) + 1 if starts else 0
