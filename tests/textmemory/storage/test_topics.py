"""Topic files: what goes in comes out, whatever it holds, and what is broken does not take its neighbours along."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rlm_memory_host.contracts.memory import Authority, Block, Consent, Kind, LayerKind, Sensitivity, Status
from rlm_memory_host.errors import LimitExceeded
from rlm_memory_host.storage import names, topic_blocks, topics

HOSTILE = [
    "## Title",
    "### Evidence",
    "### evidence  ",
    "<!-- memory",
    "<!-- memory -->",
    "<!--memory",
    "<!-- /memory -->",
    "-->",
    "```",
    "```python",
    "~~~~",
    "\\<!-- memory",
    "\\\\### Evidence",
    "# Topic",
    "<<<<<<< HEAD",
    "=======",
    ">>>>>>> other",
    "---",
    "id: mem_other",
    "",
    " ",
    "\t",
    "é",
    "e\u0301",
    "\u2028x",
    "\x0b\x0c\x85",
    "\ufeff",
    "</MEMORY_DATA>",
    "[/Honcho memory]",
    "\x1b[31m",
]
TEXT = st.one_of(
    st.lists(st.one_of(st.sampled_from(HOSTILE), st.text(max_size=12)), max_size=12).map("\n".join),
    st.text(max_size=200),
).map(lambda text: names.check_body(text.replace("\x00", "")))
LINE = st.text(min_size=1, max_size=40).map(lambda text: names.clean_line(text.replace("\x00", ""))[0] or "t")
WORD = st.text(st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"]), max_size=12).map(str.strip)
TIME = st.sampled_from(["", "2026-01-02", "2026-01-02T03:04:05Z", "2026-01-02T03:04:05.678+02:00"])
BLOCK = st.builds(
    Block,
    id=st.from_regex(r"mem_[a-z0-9]{1,20}", fullmatch=True),
    topic=st.just("Topic"),
    title=LINE,
    body=TEXT,
    evidence=TEXT,
    version=st.integers(1, 999),
    kind=st.sampled_from(Kind),
    status=st.sampled_from(Status),
    authority=st.sampled_from(Authority),
    sensitivity=st.sampled_from(Sensitivity),
    consent=st.sampled_from(Consent),
    created_at=TIME,
    updated_at=TIME,
    valid_from=TIME,
    valid_to=TIME,
    supersedes=st.lists(WORD.filter(bool), max_size=2).map(tuple),
    project=WORD,
    source_session=WORD,
    workspace_id=WORD,
    priority=st.sampled_from(["P0", "P1", "P2", "P3"]),
    pinned=st.booleans(),
    lock=st.booleans(),
    tags=st.lists(LINE, max_size=3).map(tuple),
    sources=st.lists(LINE, max_size=2).map(tuple),
    confidence=st.floats(0, 1).map(lambda value: round(value, 3)),
    extra=st.sampled_from([(), (("x-mine", " a: b"), ("zed", ""))]),
)


def one(block: Block) -> topics.TopicFile:
    """A file with one block."""
    return topics.new_file(block.topic, LayerKind.PROJECT).appended(block)


@given(block=BLOCK)
@settings(max_examples=200, deadline=None)
def test_a_block_comes_back_exactly_whatever_its_texts_hold(block: Block) -> None:
    """Every key, the body and the evidence are equal after writing and reading."""
    read = topics.TopicFile(one(block).data)
    assert read.bad == ()
    assert read.blocks == (block,)


def _decoded(data: bytes) -> object:
    try:
        return topics.decode_block(data, "T", LayerKind.PROJECT)
    except topics.BadBlock as error:
        return error.code


MARKS = [
    b"-->",
    b"\n",
    b"\n-->\n",
    b"<!-- memory\n",
    b"## ",
    b" ",
    b"\x00",
    b"\xff",
    b"<<<<<<< x\n",
    b"\n## t\n",
    b"id: x",
]


@given(
    block=BLOCK, cuts=st.lists(st.tuples(st.integers(0, 4_000), st.integers(0, 3), st.sampled_from(MARKS)), max_size=3)
)
@settings(max_examples=300, deadline=None)
def test_the_short_way_into_a_block_reads_what_the_long_one_reads(
    block: Block, cuts: list[tuple[int, int, bytes]]
) -> None:
    """Written here or changed by hand anywhere: the same block, or the same code."""
    data = topics.encode_block(replace(block, scope=LayerKind.PROJECT))
    for at, gone, mark in cuts:
        place = at % len(data)
        data = data[:place] + mark + data[place + gone :]
    short = _decoded(data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(topic_blocks, "_written", lambda _data: None)
        assert _decoded(data) == short


@given(blocks=st.lists(BLOCK, min_size=2, max_size=5, unique_by=lambda block: block.id), data=st.data())
@settings(max_examples=60, deadline=None)
def test_an_edit_changes_no_other_byte(blocks: list[Block], data: st.DataObject) -> None:
    """Edits by offset give the file that parsing afresh gives, and the other blocks keep their bytes."""
    file = topics.new_file("Topic", LayerKind.PROJECT)
    for block in blocks:
        file = file.appended(block)
    for _ in range(5):
        chosen = data.draw(st.sampled_from(blocks))
        changed = replace(data.draw(BLOCK), id=chosen.id)
        before = {span: file.data[span.start : span.stop] for span in file.spans}
        edited = file.replaced(changed)
        fresh = topics.TopicFile(edited.data)
        assert fresh.blocks == edited.blocks
        assert fresh.spans == edited.spans
        kept = [edited.data[span.start : span.stop] for span in edited.spans]
        assert sum(was != now for was, now in zip(before.values(), kept, strict=True)) <= 1
        file = edited


@given(body=TEXT, evidence=TEXT)
@settings(max_examples=2, deadline=None)
def test_a_body_survives_a_thousand_rewrites(body: str, evidence: str) -> None:
    """Read, change another key, write, 1,000 times over: the texts are still the same bytes."""
    file = one(Block(id="mem_a", topic="Topic", title="t", body=body, evidence=evidence))
    for version in range(2, 1_002):
        file = topics.TopicFile(file.replaced(replace(file.blocks[0], version=version)).data)
    assert (file.blocks[0].body, file.blocks[0].evidence, file.blocks[0].version) == (body, evidence, 1_001)


RUNTIME = """# Build rules

<!-- memory
id: mem_abc-1
status: active
created_at: 2026-03-01T10:00:00.000Z
updated_at: 2026-03-02T10:00:00.000Z
source_session: session-9
scope: workspace
workspace_id: 0123abcd
-->

## Package manager

Use npm.

### Evidence

The user said: use npm.

<!-- memory
id: mem_abc-2
status: archived
created_at: "2026-03-01T10:00:00.000Z"
updated_at: '2026-03-02T10:00:00.000Z'
source_session: session-9
scope: workspace
workspace_id: 0123abcd
-->

## Old rule

Use yarn.
"""


def test_files_of_the_memory_runtime_are_read_as_they_are() -> None:
    """No end markers, `scope: workspace`, quoted values: two memories, nothing lost."""
    file = topics.TopicFile(RUNTIME.encode())
    first, second = file.blocks
    assert (file.topic, first.id, first.title, first.body) == (
        "Build rules",
        "mem_abc-1",
        "Package manager",
        "Use npm.",
    )
    assert (first.evidence, first.scope, first.workspace_id) == (
        "The user said: use npm.",
        LayerKind.PROJECT,
        "0123abcd",
    )
    assert (second.status, second.created_at, second.body) == (
        Status.ARCHIVED,
        "2026-03-01T10:00:00.000Z",
        "Use yarn.",
    )
    edited = topics.TopicFile(file.replaced(replace(second, version=2)).data)
    assert edited.blocks == (first, replace(second, version=2))


@pytest.mark.parametrize("end", ["\r\n", "\r"])
def test_line_ends_and_marks_of_other_systems_are_tolerated(end: str) -> None:
    """A byte order mark, CRLF and CR are read as if they were not there."""
    raw = b"\xef\xbb\xbf" + RUNTIME.replace("\n", end).encode()
    file = topics.TopicFile(raw)
    assert file.blocks == topics.TopicFile(RUNTIME.encode()).blocks
    assert not file.is_normal
    assert b"\r" not in file.data


GOOD = b"<!-- memory\nid: mem_good\n-->\n\n## Good\n\nGood body\n\n<!-- /memory -->\n"


@pytest.mark.parametrize(
    ("bad", "code"),
    [
        (b"<!-- memory id: x -->\n\n## One line\n\nbody\n", "ONE_LINE_MARKER"),
        (b"<!-- memory\nstatus: active\n-->\n\n## No id\n", "MISSING_ID"),
        (b"<!-- memory\nid: ../x\n-->\n\n## Bad id\n", "BAD_ID"),
        (b"<!-- memory\nid: a\ncreated_at: soon\n-->\n\n## Bad date\n", "BAD_DATE"),
        (b"<!-- memory\nid: a\nstatus: alive\n-->\n\n## Bad status\n", "BAD_VALUE"),
        (b"<!-- memory\nid: a\nscope: global\n-->\n\n## Elsewhere\n", "SCOPE_MISMATCH"),
        (b"<!-- memory\nid: a\nid: b\n-->\n\n## Two ids\n", "DUPLICATE_KEY"),
        (b"<!-- memory\nid: a\n-->\n\nno title\n", "MISSING_TITLE"),
        (b"<!-- memory\nid: mem_good\n-->\n\n## Again\n", "DUPLICATE_ID"),
        (b"<!-- memory\nid: a\nhalf an ent", "MARKER_UNCLOSED"),
        (b"<!-- memory\nid: a\n-->\n\n## NUL\n\n\x00\x00\n", "NUL_CHARACTER"),
        (b"<!-- memory\nid: a\n-->\n\n## Latin\n\n\xe9\n", "INVALID_UTF8"),
        (b"<!-- memory\nid: a\n-->\n\n## Merge\n\n<<<<<<< HEAD\nx\n=======\ny\n>>>>>>> z\n", "MERGE_CONFLICT"),
        (b"<!-- memory\nid: a\nversion: 0\n-->\n\n## v\n", "BAD_VERSION"),
        (b"<!-- memory\nid: a\nconfidence: 7\n-->\n\n## c\n", "BAD_CONFIDENCE"),
        (b"<!-- memory\nid: a\n-->\n\n## Big\n\n" + b"x" * 40_000 + b"\n", "BLOCK_TOO_LARGE"),
    ],
)
def test_a_bad_block_is_named_and_its_neighbours_are_served(bad: bytes, code: str) -> None:
    """The line and the code are reported; the block before is served; an edit leaves the bad bytes alone."""
    raw = b"# Topic\n\n" + GOOD + b"\n" + bad
    file = topics.TopicFile(raw)
    assert [block.body for block in file.blocks] == ["Good body"]
    assert [(place.line, place.code) for place in file.bad] == [(13, code)]
    edited = file.replaced(replace(file.blocks[0], body="Other\nbody\n"))
    assert bad in edited.data
    assert edited.bad == topics.TopicFile(edited.data).bad


def test_unknown_keys_and_remarks_survive_a_rewrite() -> None:
    """A person's own keys stay, in order, after the known ones."""
    raw = (
        b"# T\n\n<!-- memory\nid: a\nmood:  good: very\n# a remark\n\ttags:\tx, y\n-->\n\n## t\n\nb\n\n<!-- /memory -->"
    )
    file = topics.TopicFile(raw)
    block = file.blocks[0]
    assert block.tags == ("x", "y")
    again = topics.TopicFile(file.replaced(replace(block, version=2)).data)
    assert again.blocks[0].extra == block.extra
    assert b"\nmood:  good: very\n# a remark\n" in again.data


def test_a_fenced_sample_is_part_of_the_body() -> None:
    """A marker inside a fence that closes does not start a block; in an unclosed fence it does."""
    closed = b"# T\n\n<!-- memory\nid: a\n-->\n\n## t\n\n```\n<!-- memory\nid: b\n-->\n```\nend\n"
    assert [block.id for block in topics.TopicFile(closed).blocks] == ["a"]
    unclosed = b"# T\n\n<!-- memory\nid: a\n-->\n\n## t\n\n```\n\n<!-- memory\nid: b\n-->\n\n## u\n\nbody\n"
    assert [block.id for block in topics.TopicFile(unclosed).blocks] == ["a", "b"]


def test_an_end_marker_ends_a_block_whatever_stands_open() -> None:
    """A fence that a body leaves open cannot swallow the next memory."""
    first = Block(id="mem_a", topic="T", title="t", body="```\nopen")
    second = Block(id="mem_b", topic="T", title="u", body="```\nclosed\n```")
    file = topics.TopicFile(one(first).appended(second).data)
    assert [block.body for block in file.blocks] == [first.body, second.body]


@pytest.mark.parametrize(
    "raw",
    [
        b"<!-- memory\n" * 90_000,
        b"```a\n" * 200_000 + b"<!-- memory\n",
        b"<!-- memory\n```\n" * 60_000,
        b"\n<!-- memory\nid: a" + b" <!-- memory" * 80_000,
        b"\\" * 1_000_000,
        b"<!--" + b" " * 1_000_000 + b"memory\n",
        b"### Evidence" + b"\t" * 1_000_000,
        b"# " * 500_000,
    ],
)
@pytest.mark.timeout(30)
def test_reading_is_linear_on_hostile_files(raw: bytes) -> None:
    """A megabyte of markers, fences or blanks is read; ten times as much would take ten times as long."""
    assert topics.TopicFile(raw).blocks == ()


def test_a_block_over_the_limit_is_refused_with_the_number() -> None:
    """32,768 bytes, and no more."""
    with pytest.raises(LimitExceeded, match=r"32,768") as caught:
        topics.encode_block(Block(id="a", topic="T", title="t", body="x" * 33_000))
    assert caught.value.code == "BLOCK_TOO_LARGE"


def test_a_purged_block_leaves_the_rest_byte_for_byte() -> None:
    """Removing takes the block and one blank line, nothing else."""
    file = one(Block(id="mem_a", topic="Topic", title="t", body="one"))
    both = file.appended(Block(id="mem_b", topic="Topic", title="u", body="two"))
    assert both.removed("mem_a").data == one(Block(id="mem_b", topic="Topic", title="u", body="two")).data
