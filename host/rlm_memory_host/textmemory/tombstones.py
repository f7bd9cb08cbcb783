"""What was forgotten and may not come back by itself. Pure functions.

Owns: which blocks are tombstones and which texts they refuse. Does not own: making them (`forgetting`).

A background, model, habit or remote text that folds to the forgotten one, or shares >= .6 of its stems (Jaccard), is
refused. The user's own quote or the operator lifts it. A hidden block refuses the same texts: what a person does not
want to see is not written again by a model. What aging archived is no tombstone.

Source: design page "The memory model", Lifecycle and gates (Forget).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from rlm_memory_host.contracts.memory import Authority, Block, Status
from rlm_memory_host.textmemory.sentences import features, fold, jaccard, split
from rlm_memory_host.textmemory.subjects import are_apart

FLAG_AGED: Final = "aged"
"""Set when capacity archived a block; its text may be written again."""
SAME_TEXT: Final = 0.6


def is_tombstone(block: Block) -> bool:
    """Whether a block stands for something that a person forgot or hid."""
    if block.status is Status.HIDDEN:
        return True
    return block.status is Status.ARCHIVED and FLAG_AGED not in block.flags


def refuses(block: Block, *texts: str) -> bool:
    """Whether a tombstone refuses one of the texts, or one of their sentences."""
    gone = (block.body, *(sentence.text for sentence in split(block.body)))
    for text in texts:
        for piece in (text, *(sentence.text for sentence in split(text))):
            if any(is_same(piece, old) for old in gone):
                return True
    return False


def is_same(text: str, gone: str) -> bool:
    """Whether a text folds to the forgotten one or shares >= .6 of its stems."""
    if fold(text) == fold(gone) and fold(text):
        return True
    return jaccard(features(text), features(gone)) >= SAME_TEXT and not are_apart(text, gone)


def standing_against(blocks: Iterable[Block], writer: Authority, *texts: str) -> Block | None:
    """The tombstone that refuses a writer's texts; None for the user's own words and the operator."""
    if writer in (Authority.USER, Authority.OPERATOR):
        return None
    return next((block for block in blocks if is_tombstone(block) and refuses(block, *texts)), None)


def is_forgotten_text(text: str, blocks: Iterable[Block]) -> bool:
    """Whether a remote result says what was forgotten, hidden or superseded here."""
    gone = [block for block in blocks if is_tombstone(block) or block.status is Status.SUPERSEDED]
    return any(refuses(block, text) for block in gone)
