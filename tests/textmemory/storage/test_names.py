"""Topics, titles and tags: one look, one key, one file."""

from __future__ import annotations

import pytest
from rlm_memory_host.errors import LimitExceeded
from rlm_memory_host.storage import names


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("é", "e\u0301"),
        ("Straße", "STRASSE"),
        ("ﬁle", "file"),
        ("ＡＢＣ", "abc"),
        ("a\u200bb", "ab"),
        ("Build  rules", "build rules"),
    ],
)
def test_equal_topics_share_a_key_and_a_file(one: str, other: str) -> None:
    """Canonical and compatibility forms, case, blanks and invisible characters make no second topic."""
    assert names.topic_key(one) == names.topic_key(other)
    assert names.file_stems(one) == names.file_stems(other)


def test_different_topics_have_different_files() -> None:
    """C, C++, C#, CI/CD and an emoji: the marked names differ, and the plain one is used once."""
    topics = ["C", "C++", "C#", "CI/CD", "🔥", "👩\u200d💻", "MEMORY", "con", "数据库", "x" * 119]
    assert len({names.file_stems(topic)[1] for topic in topics}) == len(topics)
    assert names.file_stems("C") == ("c", names.file_stems("C")[1])
    assert names.file_stems("数据库")[0] == "数据库"
    assert [names.file_stems(topic)[0] for topic in ("🔥", "MEMORY", "con", "x" * 119)] == ["", "", "", ""]
    assert all(
        names.split_name(names.part_name(stem, 2)) == (stem, 2)
        for topic in topics
        for stem in names.file_stems(topic)
        if stem
    )


@pytest.mark.parametrize("topic", ["..", "../x", "a/../../b", ".", "x/..", "..\\x", "", " \u200b "])
def test_a_topic_that_climbs_or_is_empty_is_refused(topic: str) -> None:
    """Before any file is looked at."""
    with pytest.raises(LimitExceeded):
        names.check_topic(topic)


def test_too_long_names_are_refused_with_the_number() -> None:
    """120 characters for a topic, 240 for a title, 64 tags."""
    with pytest.raises(LimitExceeded, match="120"):
        names.check_topic("x" * 500)
    with pytest.raises(LimitExceeded, match="240"):
        names.check_title("x" * 5_000)
    with pytest.raises(LimitExceeded, match="64"):
        names.check_tags(("t",) * 100_000)


def test_invisible_direction_marks_leave_names_but_not_bodies() -> None:
    """U+202E goes from a topic, and it is told; a body keeps it; joiners stay in both."""
    assert names.clean_line("a\u202eb") == ("ab", True)
    assert names.clean_line("👩\u200d💻") == ("👩\u200d💻", False)
    assert names.check_body("a\u202eb\r\nc") == "a\u202eb\nc"


def test_names_are_one_line_in_nfc() -> None:
    """A title cannot bring a second line, and decomposed letters are composed."""
    assert names.check_title("a\n## b\u0301") == "a ## b\u0301"
    assert names.check_title("e\u0301") == "é"


def test_memory_md_and_strangers_are_no_topic_files() -> None:
    """The derived index and other files in the folder are left alone."""
    assert names.split_name("MEMORY.md") is None
    assert names.split_name(".hidden.md") is None
    assert names.split_name("notes.txt") is None
    assert names.split_name("a.md") == ("a", 1)
