"""Reading the harness's logs: every completed exchange once, whatever state the file is in."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from rlm_memory_host.dsh import following, frames, gathering, logs
from rlm_memory_host.dsh.cursors import Cursors
from rlm_memory_host.dsh.gathering import Turn
from rlm_memory_host.dsh.header import Header
from rlm_memory_host.dsh.reading import LogReader, Terms
from rlm_memory_host.dsh.tail import Tail
from rlm_memory_host.errors import HostError, ToolDenied
from session_logs import added, frame, header, path_of, split, turn, written


class Reads:
    """A tail of a home, and what it gave: (session, words, answer) of each turn that ended well."""

    def __init__(self, tmp_path: Path, *folders: Path) -> None:
        self.home, self.state = tmp_path / "home", tmp_path / "state"
        self.work = tmp_path / "work"
        self.home.mkdir(exist_ok=True)
        self.state.mkdir(exist_ok=True, mode=0o700)
        self.folders = folders
        self.told: list[tuple[str, str, str]] = []
        self.refuses: HostError | None = None
        self.tail = self._made()

    def restarted(self) -> None:
        """Another process goes on from what is on disk."""
        self.tail = self._made()

    def look(self) -> list[tuple[str, str, str]]:
        """One pass; what it gave."""
        before = len(self.told)
        self.tail.look()
        return self.told[before:]

    @property
    def status(self) -> dict[str, Any]:
        """How things are."""
        return self.tail.status()

    def _made(self) -> Tail:
        return Tail(self.home, Cursors(self.state), self._captured, self.folders)

    def _captured(self, header: Header, turn: Turn) -> bool:
        if self.refuses is not None:
            raise self.refuses
        users = [event.text for event in turn.events if event.kind == "user" and event.source == "user"]
        answers = [event.text for event in turn.events if event.kind == "assistant"]
        if turn.events[-1].reason == "completed":
            self.told.append((header.session, *users, *answers))  # type: ignore[arg-type]
        return True


@pytest.fixture
def reads(tmp_path: Path) -> Reads:
    """A tail of an empty home."""
    return Reads(tmp_path)


def said(session: str, number: int) -> tuple[str, str, str]:
    """What `turn(number, "Words <number>.")` gives."""
    return session, f"Words {number}.", "Noted."


def turns(*numbers: int) -> list[dict[str, Any]]:
    """The records of these turns."""
    return [record for number in numbers for record in turn(number, f"Words {number}.")]


@pytest.mark.parametrize("version", [0, 4])
def test_a_log_gives_its_completed_turns_once(reads: Reads, version: int) -> None:
    """However the records lie in frames, also after a restart, and what is added later."""
    log = written(reads.home, header(version, "one", reads.work), split(turns(1, 2), 3, 5, 1))
    assert reads.look() == [said("one", 1), said("one", 2)]
    assert reads.look() == []
    reads.restarted()
    assert reads.look() == []
    added(log, *split(turns(3), 1, 1))
    assert reads.look() == [said("one", 3)]
    assert reads.status["behind_bytes"] == 0
    assert (reads.status["files"], reads.status["skipped"]) == (1, {})


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_log_torn_at_any_byte_is_read_again_when_it_is_whole(reads: Reads, is_restarted: bool) -> None:
    """At each byte of the last frame: nothing of it is told, nothing is skipped, and nothing is told twice."""
    log = written(reads.home, header(4, "one", reads.work), split(turns(1), 2))
    whole = log.read_bytes()
    last = frame(*turns(2))
    assert reads.look() == [said("one", 1)]
    for cut in range(len(last)):
        log.write_bytes(whole + last[:cut])
        os.utime(log, ns=(cut, cut))
        if is_restarted:
            reads.restarted()
        assert reads.look() == []
        assert reads.status["behind_bytes"] == cut
        assert reads.status["skipped"] == {}
    log.write_bytes(whole + last)
    assert reads.look() == [said("one", 2)]


def test_a_header_that_is_not_whole_yet_is_waited_for(reads: Reads) -> None:
    """The log's very first frame, torn."""
    log = path_of(reads.home, reads.work, "one", 4)
    data = frame(header(4, "one", reads.work)) + frame(*turns(1))
    for cut in (0, 1, 3, 4, 5, 9, 40):
        log.write_bytes(data[:cut])
        os.utime(log, ns=(cut, cut))
        assert reads.look() == []
        assert reads.status["skipped"] == {}
    log.write_bytes(data)
    assert reads.look() == [said("one", 1)]


def test_a_turn_in_several_passes_and_processes_is_told_whole(reads: Reads) -> None:
    """It began before a restart; its first records are read again, the turn before it is not told again."""
    records = turns(1, 2)
    log = written(reads.home, header(4, "one", reads.work), split(records[:9], 9))
    assert reads.look() == [said("one", 1)]
    reads.restarted()
    assert reads.look() == []
    added(log, frame(*records[9:]))
    assert reads.look() == [said("one", 2)]


def test_a_line_that_goes_on_in_the_next_frame_is_one_line(reads: Reads) -> None:
    """Also over a restart between the two."""
    data = b"".join(json.dumps(record).encode() + b"\n" for record in turns(1))
    log = written(reads.home, header(4, "one", reads.work), [frame(data[:150])])
    assert reads.look() == []
    reads.restarted()
    added(log, frame(data[150:]))
    assert reads.look() == [said("one", 1)]


@pytest.mark.parametrize("reason", ["error", "aborted", "interrupted", "blocked", "max-tokens"])
def test_a_turn_that_did_not_end_well_gives_no_words(reads: Reads, reason: str) -> None:
    """Capture leaves it out by its reason; a turn that never ended gives nothing at all."""
    records = [*turn(1, "Words 1.", reason=reason), *turn(2, "Words 2.")[:-1], *turn(3, "Words 3.")]
    written(reads.home, header(4, "one", reads.work), [frame(*records)])
    assert reads.look() == [said("one", 3)]


def test_a_killed_process_reads_the_turn_again_that_it_kept_no_cursor_of(reads: Reads) -> None:
    """What fails is tried again from the cursor, in this process and in the next; then no more."""
    written(reads.home, header(4, "one", reads.work), split(turns(1, 2), 7))
    reads.refuses = HostError("the disk is full", "STORE_FULL")
    assert reads.look() == []
    assert reads.status["skipped"] == {"store-full": 1}
    reads.restarted()
    reads.refuses = None
    assert reads.look() == [said("one", 1), said("one", 2)]
    assert reads.status["skipped"] == {}
    reads.restarted()
    assert reads.look() == []


def test_a_log_that_shrank_or_is_another_one_is_read_from_its_beginning(reads: Reads) -> None:
    """Capture knows what of it is kept."""
    log = written(reads.home, header(4, "one", reads.work), split(turns(1, 2), 7))
    assert len(reads.look()) == 2
    written(reads.home, header(4, "one", reads.work), [frame(*turns(3))])
    assert reads.look() == [said("one", 3)]
    log.unlink()
    assert reads.look() == []
    written(reads.home, header(4, "one", reads.work, createdAt=2000), split(turns(1, 2, 3, 4), 7, 7))
    assert reads.look() == [said("one", number) for number in (1, 2, 3, 4)]


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"version": 5}, "unknown-version"),
        ({"version": 1}, "unknown-version"),
        ({"origin": "subagent", "delegationDepth": 1}, "child-session"),
        ({"delegationDepth": 2}, "child-session"),
        ({"origin": "something-new"}, "unknown-origin"),
        ({"isSeeded": True}, "fork"),
        ({"id": 7}, "no-header"),
        ({"id": "half \ud800"}, "no-header"),
        ({"cwd": "/half/\ud800"}, "no-folder"),
    ],
)
def test_what_is_no_known_root_is_left_alone_with_a_reason(reads: Reads, more: dict[str, Any], why: str) -> None:
    """The status has the reason and the number, and no word of the session."""
    head = header(4, "one", reads.work)
    path_of(reads.home, reads.work, "one", 4).write_bytes(frame({**head, **more}) + frame(*turns(1)))
    assert reads.look() == []
    assert (reads.status["skipped"], reads.status["files"]) == ({why: 1}, 0)
    assert "one" not in json.dumps(reads.status)
    assert str(reads.work) not in json.dumps(reads.status)


def test_the_inherited_part_of_a_fork_is_left_out(reads: Reads) -> None:
    """The 0.1 line says how many records it is."""
    written(reads.home, header(0, "one", reads.work, seedLength=20), [frame(*turns(1, 2))])
    assert reads.look() == [said("one", 2)]


def test_a_newer_log_of_a_session_stands_for_the_older_one(reads: Reads) -> None:
    """One that is not known hides the session rather than have its old part told."""
    written(reads.home, header(0, "one", reads.work), [frame(*turns(1))])
    written(reads.home, header(4, "one", reads.work), [frame(*turns(1, 2))])
    written(reads.home, header(0, "two", reads.work), [frame(*turns(1))])
    written(reads.home, header(9, "two", reads.work), [frame(*turns(1))])
    assert reads.look() == [said("one", 1), said("one", 2)]
    assert reads.status["skipped"] == {"unknown-version": 1}


def test_a_session_in_another_projects_folder_than_it_says_is_left_alone(reads: Reads) -> None:
    """Its header claims a folder that the harness would keep elsewhere."""
    other = header(4, "one", reads.work.with_name("other"))
    path_of(reads.home, reads.work, "one", 4).write_bytes(frame(other) + frame(*turns(1)))
    assert reads.look() == []
    assert reads.status["skipped"] == {"other-folder": 1}


def test_only_named_folders_are_read(tmp_path: Path) -> None:
    """Sessions in them and below; a name that only begins the same is another folder."""
    reads = Reads(tmp_path, tmp_path / "work")
    for name in ("work", "work/below", "workshop", "elsewhere"):
        written(reads.home, header(4, name.replace("/", "-"), tmp_path / name), [frame(*turns(1))])
    assert sorted(reads.look()) == [said("work", 1), said("work-below", 1)]
    assert reads.status["skipped"] == {"not-named": 2}


def test_a_named_folder_is_the_real_one(tmp_path: Path) -> None:
    """Steps back and links lead out of it, and a link to it names it."""
    (tmp_path / "real" / "below").mkdir(parents=True)
    (tmp_path / "secret").mkdir()
    (tmp_path / "named").symlink_to("real")
    (tmp_path / "real" / "out").symlink_to(tmp_path / "secret")
    reads = Reads(tmp_path, tmp_path / "named")
    for number, name in enumerate(("named/../secret", "real/out", "real/below/../../secret", "real/below", "named")):
        written(reads.home, header(4, f"s{number}", Path(f"{tmp_path}/{name}")), [frame(*turns(1))])
    assert sorted(reads.look()) == [said("s3", 1), said("s4", 1)]
    assert reads.status["skipped"] == {"not-named": 3}


def test_a_session_of_another_project_is_refused_for_good_and_the_others_are_read(reads: Reads) -> None:
    """The refusal is tried again only when the log changes."""
    log = written(reads.home, header(4, "one", reads.work), [frame(*turns(1))])
    reads.refuses = ToolDenied("a session of that id belongs to another project")
    reads.look()
    assert reads.status["skipped"] == {"denied": 1}
    reads.refuses = None
    written(reads.home, header(4, "two", reads.work), [frame(*turns(1))])
    assert reads.look() == [said("two", 1)]
    added(log, frame(*turns(2)))
    assert reads.look() == [said("one", 1), said("one", 2)]


def test_a_damaged_frame_stops_its_log_until_it_changes_and_no_other(reads: Reads) -> None:
    """No line of it is seen; a repaired file is read on from there."""
    log = written(reads.home, header(4, "one", reads.work), [frame(*turns(1))])
    whole, last = log.read_bytes(), frame(*turns(2))
    for at in (len(last) - 1, len(last) // 2, 0):
        damaged = bytearray(last)
        damaged[at] ^= 0x55
        log.write_bytes(whole + damaged + frame(*turns(3)))
        os.utime(log, ns=(at, at))
        reads.look()
    assert [words for words in reads.told if words[1] != "Words 1."] == []
    assert set(reads.status["skipped"]) <= {"damaged-frame", "no-frame"}
    written(reads.home, header(4, "two", reads.work), [frame(*turns(1))])
    assert reads.look() == [said("two", 1)]
    log.write_bytes(whole + last + frame(*turns(3)))
    assert reads.look() == [said("one", 2), said("one", 3)]
    assert reads.status["skipped"] == {}


def test_no_line_of_a_damaged_frame_is_seen_however_long_it_is(reads: Reads) -> None:
    """Its turn stands at the beginning, and the damage shows with the last byte of the checksum."""
    filler = {"type": "tool/result", "seq": 30, "data": {"text": os.urandom(400_000).hex()}}
    damaged = bytearray(frame(*turns(1), filler))
    damaged[-1] ^= 0x55
    written(reads.home, header(4, "one", reads.work), [bytes(damaged)])
    assert reads.look() == []
    assert reads.status["skipped"] == {"damaged-frame": 1}


def test_a_frame_that_grows_without_end_is_refused(reads: Reads, monkeypatch: pytest.MonkeyPatch) -> None:
    """A few bytes that stand for many: read in steps, and given up."""
    monkeypatch.setattr(frames, "MAX_FRAME", 8 << 20)
    bomb = frame(b"\0" * (32 << 20))
    assert len(bomb) < 8192
    written(reads.home, header(4, "one", reads.work), [bomb, frame(*turns(1))])
    assert reads.look() == []
    assert reads.status["skipped"] == {"frame-too-large": 1}


def test_a_frame_of_empty_blocks_without_end_is_refused(reads: Reads) -> None:
    """Its sizes are added up to a bound; a file of them would keep the pass for minutes."""
    begun = (0xFD2FB528).to_bytes(4, "little") + b"\x00\x58"
    written(reads.home, header(4, "one", reads.work), [frame(*turns(1)), begun + b"\0" * (3 << 20)])
    assert reads.look() == [said("one", 1)]
    assert reads.status["skipped"] == {"frame-too-large": 1}


def test_a_pass_over_frames_without_content_can_be_stopped(reads: Reads) -> None:
    """A host that ends does not wait until a file of nothing is read."""
    nothing = b"\x50\x2a\x4d\x18" + bytes(4)
    written(reads.home, header(4, "one", reads.work), [nothing * 1000])
    asked: list[int] = []

    def is_stopped() -> bool:
        asked.append(1)
        return len(asked) > 20

    found = logs.find(reads.home)[0]
    with pytest.raises(frames.Stopped):
        LogReader(found.path, found.project).read(found, Terms(_never_taken, Cursors(reads.state), (), is_stopped))


def test_a_huge_line_is_passed_over_and_spoils_only_a_turn_whose_words_it_may_be(
    reads: Reads, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tool's result is nobody's word; a message that could not be read leaves its turn without words."""
    monkeypatch.setattr(frames, "MAX_LINE", 4096)
    huge = "x" * 10_000
    result = {"type": "tool/result", "seq": 14, "data": {"text": huge}}
    first = turns(1)
    second = turn(2, huge)
    written(reads.home, header(4, "one", reads.work), [frame(*first[:4], result, *first[4:], *second, *turns(3))])
    assert reads.look() == [said("one", 1), said("one", 3)]
    assert reads.status["turns"] == {"captured": 2, "oversized": 1}
    assert reads.status["unread_lines"] == 1


@pytest.mark.parametrize(
    "line", [b"{\n", b"[]\n", b"\xff\xfe\n", b'{"type": 1}\n', b"\n", b"null\n", b"[" * 9000 + b"\n"]
)
def test_a_line_that_is_no_record_stops_nothing(reads: Reads, line: bytes) -> None:
    """The turns around it are read."""
    written(reads.home, header(4, "one", reads.work), [frame(*turns(1), line, *turns(2))])
    assert reads.look() == [said("one", 1), said("one", 2)]


def test_bounds_of_a_turn_are_the_bridges_own() -> None:
    """So that a turn is captured by both or by neither."""
    bridge = (Path(gathering.__file__).parent / "bridge.mjs").read_text()
    assert f"MAX_TURN_RECORDS = {gathering.MAX_TURN_RECORDS};" in bridge
    assert f"MAX_TURN_BYTES = {gathering.MAX_TURN_TEXT >> 10} << 10;" in bridge


def test_a_turn_over_the_bounds_gives_no_words(reads: Reads) -> None:
    """Too many messages, or too much text."""
    first, second = turns(1), turns(2)
    many = [*first[:5], *[first[5]] * 300, first[-1]]
    much = [*second[:5], *turn(2, "", "y" * 300_000)[5:6], *turn(2, "", "z" * 300_000)[5:6], second[-1]]
    written(reads.home, header(4, "one", reads.work), [frame(*many), frame(*much), frame(*turns(3))])
    assert reads.look() == [said("one", 3)]
    assert reads.status["turns"]["oversized"] == 2


def test_links_and_strange_names_are_not_followed(reads: Reads, tmp_path: Path) -> None:
    """A link to a log, to a session's folder, to a project's; a log in no project's folder; another file."""
    log = written(tmp_path / "away", header(4, "one", reads.work), [frame(*turns(1))])
    project = reads.home / "sessions" / log.parent.parent.name
    (project / "two").mkdir(parents=True)
    (project / "two" / log.name).symlink_to(log)
    (project / "one").symlink_to(log.parent)
    (reads.home / "sessions" / "--linked--").symlink_to(log.parent.parent)
    (project / "three").mkdir()
    (project / "three" / "session.v4.jsonl.zstd.tmp").write_bytes(log.read_bytes())
    (project / "three" / "session.v04.jsonl.zstd").write_bytes(log.read_bytes())
    assert reads.look() == []
    assert reads.status["files"] == 0


@pytest.mark.parametrize(
    ("cwd", "key"),
    [
        ("/tmp/work dir.x", "--tmp-work~0020dir.x--"),
        ("/", "--root--"),
        ("/a~b//c:d", "--a~007Eb-c-d--"),
        ("/\u00e9\U0001f600", "--~00E9~D83D~DE00--"),
        ("/" + "a" * 300, f"--{'a' * 251}--"),
    ],
)
def test_a_folders_name_is_the_harness_own(cwd: str, key: str) -> None:
    """As it makes them of a path."""
    assert logs.folder_key(cwd) == key


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"format": 2}', b'{"format": 1, "head": 1}', b"\xff"])
def test_a_cursor_that_cannot_be_read_is_the_beginning(reads: Reads, data: bytes) -> None:
    """Capture knows what was kept."""
    written(reads.home, header(4, "one", reads.work), [frame(*turns(1))])
    assert len(reads.look()) == 1
    [cursor] = (reads.state / "dsh" / "tail").iterdir()
    assert "work" not in cursor.read_text()
    assert cursor.stat().st_mode & 0o777 == 0o600
    cursor.write_bytes(data)
    reads.restarted()
    assert len(reads.look()) == 1


def test_a_pass_that_is_stopped_goes_on_later(reads: Reads) -> None:
    """It ends after the turn it is at."""
    written(reads.home, header(4, "one", reads.work), split(turns(1, 2, 3), 7, 7))

    class Stopping(Reads):
        def _captured(self, header: Header, turn: Turn) -> bool:
            self.tail.stop()
            return super()._captured(header, turn)

    stopping = Stopping(reads.home.parent)
    assert stopping.look() == [said("one", 1)]
    assert reads.look() == [said("one", 2), said("one", 3)]


@pytest.mark.parametrize(
    ("seconds", "took", "wanted"), [(5, 0.0, 5), (5, 0.1, 5), (5, 0.5, 25), (5, 600, 60), (900, 600, 900)]
)
def test_passes_that_take_long_come_less_often(seconds: float, took: float, wanted: float) -> None:
    """Within a minute, or the pause of the settings."""
    assert following.pause(seconds, took) == wanted


def test_a_home_without_sessions_is_nothing_to_read(tmp_path: Path) -> None:
    """Neither a home without logs nor none at all is an error."""
    for home in (None, tmp_path, tmp_path / "none"):
        tail = Tail(home, Cursors(tmp_path), _never)
        tail.look()
        assert tail.status()["files"] == 0


def _never_taken(header: Header, turn: Turn) -> None:
    raise AssertionError((header, turn))


def _never(header: Header, turn: Turn) -> bool:
    raise AssertionError((header, turn))


def test_frames_of_every_shape_are_found_by_their_sizes(tmp_path: Path) -> None:
    """Single-segment frames, content sizes of all widths, raw and RLE blocks, skippable ones."""
    import zstandard

    parts: list[bytes] = [b"\x50\x2a\x4d\x18" + (5).to_bytes(4, "little") + b"hello"]
    for size in (0, 10, 300, 70_000, 3_000_000):
        for data in (os.urandom(size), b"a" * size):
            for checksum in (False, True):
                for content in (False, True):
                    parameters = zstandard.ZstdCompressionParameters(
                        write_checksum=checksum, write_content_size=content
                    )
                    parts.append(zstandard.ZstdCompressor(compression_params=parameters).compress(data))
    path = tmp_path / "frames"
    path.write_bytes(b"".join(parts))
    descriptor = os.open(path, os.O_RDONLY)
    try:
        at, size = 0, path.stat().st_size
        ends: list[int] = []
        while (end := frames.end_of_frame(descriptor, at, size)) is not None:
            frames.verify(descriptor, at, end, lambda: False)
            ends.append(end)
            at = end
    finally:
        os.close(descriptor)
    assert ends == list(_sums([len(part) for part in parts]))


def _sums(sizes: Sequence[int]) -> list[int]:
    return [sum(sizes[: at + 1]) for at in range(len(sizes))]
