"""Fingerprints: what counts, what does not, what is refused, and values that may not change by accident."""

from __future__ import annotations

import ast
import copy
import datetime
import decimal
import functools
import hashlib
import math
import os
import subprocess
import sys
import zoneinfo
from collections import Counter
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rlm_memory import errors, explain, fingerprints, recording, surroundings
from rlm_memory.results import Recorded

VECTORS: list[tuple[Any, Any, Any, str]] = [
    ("select 1", None, None, "73034935059bc9edd01aed102f87fb711329aff3a061b67cd95f80b50bdaf584"),
    (
        "select a\n  from t",
        {"year": 2026, "rate": 0.1},
        None,
        "775029f2c7a32f7115b0aa41efde52223041af95a6205ca9cdee56c7957690c0",
    ),
    ("f", [1, 1.0, True, "1", None, b"1"], None, "3b57f93a4b11ecf2c3d4e9046c354bb530171807ed3076bc997fa550cee90e2e"),
    (
        "f",
        {"day": datetime.date(2026, 1, 2), "big": 1e300, "set": {"b", "a"}, "é": float("nan")},
        None,
        "5590f3e37124db74fb62d4624f81116e5d5182cc033fba05de336b810d6dbc1c",
    ),
    ("f", None, [Recorded("exp_a", "art_x")], "b9aa2930f7f2d790c81fe661b7f0f24d92ccfeadd2d8e606e7e51bb9ec12b13a"),
    (
        "f",
        None,
        {"cohorts": Recorded("exp_a", "art_x"), "n": 3},
        "b85df4a467cdb316b42aec17a33d79a53679c0a5951325d295dfaa13ff57218b",
    ),
]


def test_the_fingerprint_forgives_layout_and_nothing_else() -> None:
    """Indentation in common, line ends and trailing blanks; not words, case or blanks inside a line."""
    one = fingerprints.fingerprint("select a\n  from t")
    assert fingerprints.fingerprint("\n    select a  \r\n      from t\n\n") == one
    for other in ("select a\nfrom t", "SELECT a\n  from t", "select  a\n  from t", "select a\n  from t "[:-2]):
        assert fingerprints.fingerprint(other) != one


def test_parameters_keep_their_types_apart() -> None:
    """Sixteen values that look alike somewhere give sixteen fingerprints; order of keys and of sets does not count."""
    day = datetime.date(2026, 1, 1)
    values: list[Any] = [1, 1.0, True, "1", b"1", [1], {"1": 1}, {1: 1}, {"int": "1"}, {1}, day, str(day), 0.0, -0.0]
    values += [datetime.datetime(2026, 1, 1), datetime.timedelta(1)]  # noqa: DTZ001 - a naive time is the case
    assert len({fingerprints.fingerprint(params={"v": value}) for value in values}) == len(values)
    assert fingerprints.fingerprint(params={"a": 1, "b": {3, 1}}) == fingerprints.fingerprint(
        params={"b": {1, 3}, "a": 1}
    )
    nan = float("nan")
    assert fingerprints.fingerprint(params=nan) == fingerprints.fingerprint(params=nan)


def test_inputs_count_by_content(tmp_path: Path) -> None:
    """A file by its bytes, a recorded result by its artifact, wherever they lie."""
    for name in ("a", "b"):
        (tmp_path / name).write_text("same")
    assert fingerprints.fingerprint(inputs=[tmp_path / "a"]) == fingerprints.fingerprint(inputs=[tmp_path / "b"])
    here, there = Recorded("exp_a", "art_x"), Recorded("exp_b", "art_x")
    assert fingerprints.fingerprint(inputs=[here]) == fingerprints.fingerprint(inputs=[there])
    (tmp_path / "b").write_text("other")
    assert fingerprints.fingerprint(inputs=[tmp_path / "a"]) != fingerprints.fingerprint(inputs=[tmp_path / "b"])


def test_what_has_no_stable_form_is_refused_by_name() -> None:
    """An object would only have an address; and a caller's own digest must be one."""
    with pytest.raises(errors.Invalid, match=r"params\['x'\] is a object"):
        fingerprints.fingerprint(params={"x": object()})
    for odd in ("x" * 64, "A" * 64, "a" * 63, 1):
        with pytest.raises(errors.Invalid, match="64 lowercase"):
            fingerprints.check(odd)


def test_nothing_given_has_one_documented_constant() -> None:
    """A changed scheme would lose every earlier fingerprint, so these two values may not change by accident."""
    assert fingerprints.NOTHING_GIVEN == "9106ab837da22bf93dd9c72ab1f1cd9e96c801a5e751efc239a8fd5d8e9b478f"
    assert (
        fingerprints.fingerprint("select 1", {"n": 1})
        == "a147337e339f665962f498b7b13c9c3df54998485db72801676797ddcbcae3ce"
    )


@pytest.mark.parametrize(("query", "params", "inputs", "digest"), VECTORS)
def test_known_computations_keep_their_fingerprints(query: Any, params: Any, inputs: Any, digest: str) -> None:
    """In this session, whatever the version of Python; a change here loses what everybody recorded."""
    assert fingerprints.fingerprint(query, params, inputs) == digest


@pytest.mark.parametrize(
    ("given", "canonical"),
    [
        ({"query": "  select 1  \r\n\n"}, '{"query":"select 1","scheme":1}'),
        (
            {"query": "f", "params": {"b": 1e3, "a": [True, None, "é", 2]}},
            r'{"params":{"map":{"\"a\"":[true,null,"é",{"int":"2"}],"\"b\"":{"float":"1000.0"}}},"query":"f","scheme":1}',
        ),
        (
            {"inputs": {"n": 3, "cohorts": Recorded("exp_a", "art_x")}},
            '{"inputs":{"cohorts":{"artifact":"art_x"},"n":{"int":"3"}},"scheme":1}',
        ),
        ({"params": {2, 10}}, r'{"params":{"set":["{\"int\":\"10\"}","{\"int\":\"2\"}"]},"scheme":1}'),
    ],
)
def test_a_fingerprint_is_the_hash_of_its_canonical_form(given: Any, canonical: str) -> None:
    """As anybody else would compute it: sorted keys, no spaces, tagged types, trimmed lines."""
    assert fingerprints.fingerprint(**given) == hashlib.sha256(canonical.encode()).hexdigest()


def test_another_session_with_another_hash_seed_comes_to_the_same() -> None:
    """The order of sets and keys differs between processes; the fingerprint does not."""
    code = (
        "from rlm_memory import fingerprints\n"
        "print(fingerprints.fingerprint('q', {'s': {'a', 'b', 'c'}, 'z': 1, 'a': {'y': 2.50, 'x': 1e3}}))"
    )
    said = {
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout.strip()
        for seed in ("1", "2")
    }
    here = fingerprints.fingerprint("q", {"a": {"x": 1000.0, "y": 2.5}, "z": 1, "s": {"c", "a", "b"}})
    assert said == {here}


def test_a_refusal_names_the_place() -> None:
    """Deep inside, in inputs, a name that is no text, a value that contains itself, text that is no text."""
    loop: list[Any] = []
    loop.append(loop)
    refused: list[tuple[dict[str, Any], str]] = [
        ({"params": {"a": [1, {"b": object()}]}}, r"params\['a'\]\[1\]\['b'\] is a object"),
        ({"inputs": [1, object()]}, r"inputs\[1\] is a object"),
        ({"inputs": {1: "a", "1": "b"}}, "inputs has the name 1, a int"),
        ({"params": {"a": loop}}, "contains itself"),
        ({"params": {"a": "\ud800"}}, "lone surrogate"),
        ({"query": " \n "}, "query is empty"),
    ]
    for asked, words in refused:
        with pytest.raises(errors.Invalid, match=words):
            fingerprints.fingerprint(**asked)


def test_numpy_times_are_not_integers() -> None:
    """The item of a time in nanoseconds is an integer; its fingerprint is that of a time."""
    np = pytest.importorskip("numpy")
    moment = np.datetime64("2026-01-01", "ns")
    assert fingerprints.fingerprint(params=moment) != fingerprints.fingerprint(params=int(moment.astype("int64")))
    assert fingerprints.fingerprint(params=np.int64(3)) == fingerprints.fingerprint(params=3)


# -- components and reasons --------------------------------------------------------------------------------------------


def earlier(version: str = "v1", **given: Any) -> explain.Earlier:
    return explain.Earlier("exp_a", "art_a", version, fingerprints.describe(**given).components)


def test_the_component_that_changed_is_named() -> None:
    """Code, one parameter, one input, the version; what is new and what is gone."""
    before = earlier(query="a", params={"n": 1, "old": 1}, inputs={"x": 1})
    now = fingerprints.describe("b", {"n": 2, "new": 1}, {"x": 1}).components
    assert explain.changed(before, now, "v2") == (
        *("code", "params['n']", "params['new']", "params['old']", "source_version"),
    )
    assert explain.words(before, now, "v2") == (
        "code changed, params['n'] changed, params['new'] is new, params['old'] is gone, "
        "source_version changed from 'v1' to 'v2' since art_a"
    )
    assert explain.changed(before, before.components, "v1") == ()


def test_the_nearest_earlier_record_is_the_one_compared() -> None:
    """The fewest changes win, then the newest, which comes first; records that say nothing are passed over."""
    far = earlier(query="other", params={"n": 9})
    near, twin = earlier(query="q", params={"n": 1}), earlier(query="q", params={"n": 3})
    silent = explain.Earlier("exp_s", "art_s", "v1", {})
    now = fingerprints.describe("q", {"n": 2}).components
    assert explain.nearest([silent, far, near, twin], now, "v1") is near
    assert explain.nearest([silent], now, "v1") is None


def test_many_parameters_are_one_component() -> None:
    """The notes beside a card stay small."""
    found = fingerprints.describe("q", {f"p{at}": at for at in range(100)}).components
    assert set(found) == {"code", "params"}


# -- what code reads around it -----------------------------------------------------------------------------------------

RATE = 3


def scaled(value: int) -> int:
    return value * RATE


def reads_more(value: int) -> int:
    return scaled(value) + len(str(Path.cwd()))


def test_globals_and_own_functions_count_and_libraries_do_not() -> None:
    """A rate two calls away is part of the computation; built-ins, classes and modules are not."""
    found = surroundings.of_function(reads_more, ())
    assert found.params == {
        "scaled()": fingerprints.normal_text(fingerprints.function_text(scaled)),
        "scaled().RATE": 3,
    }
    assert surroundings.of_function(reads_more, ("RATE",)).params.keys() == {"scaled()"}


def test_what_cannot_be_told_apart_is_refused_by_name() -> None:
    """A captured object, a partial: each holds values that no fingerprint sees."""
    held = object()
    bound = functools.partial(scaled, 2)
    for function, name in ((lambda: held, "held"), (lambda: bound(), "bound")):
        with pytest.raises(errors.Invalid, match=f"reads '{name}'"):
            surroundings.of_function(function, ())
        assert surroundings.of_function(function, (name,)).params == {}


def test_a_cell_reads_what_it_does_not_set_first() -> None:
    """So a second run of the same cell, when its own names exist, is the same computation."""
    text = (
        "import math\ntotal = 0\nfor x in xs:\n    total += x * math.pi\n"
        "class A:\n    y = 1\n    z = y + in_class\n"
        "def g(n): return n * in_function + total\n"
        "[total * k for _ in xs]"
    )
    names: dict[str, Any] = {"xs": [1, 2], "k": 2, "in_class": 5, "in_function": 6}
    ran = {"total": 9, "x": 1, "A": object(), "g": object(), "y": object(), "unused": object()}
    cell = ast.parse(text)
    assert surroundings.of_cell(cell, names | ran, ()).params == names
    assert surroundings.of_cell(cell, names, ()).params == names


@pytest.mark.parametrize(
    "text",
    [
        "if False:\n    k = 1\nk",
        "if False:\n    k = 1\nelif a:\n    k = 2\nk",
        "for k in []:\n    pass\nk",
        "while a > 9:\n    k = 1\nk",
        "try:\n    1 / 0\n    k = 1\nexcept ZeroDivisionError:\n    pass\nk",
        "with contextlib.suppress(ValueError):\n    int('x')\n    k = 1\nk",
        "match a:\n    case 9:\n        k = 1\nk",
        "a and (k := 1)\nk",
        "n = sum(k for _ in [1])\nk = 5\nn",
        "n = [k for _ in [1]]\nk = 5\nn",
        "n = (lambda: k)()\nk = 5\nn",
        "def f(): return k\nn = f()\nk = 5\nn",
        "def f(): return k\nif False:\n    k = 1\nf()",
        "def f(): return k\nif False:\n    k = 1\n    f()\nf()",
        "if a:\n    def f(): return k\nelse:\n    def f(): return 0\nf()\nk = 3",
        "k += 1\nk",
        "k: int\nk",
        "k = k + 1\nk",
        "k = 1\ndel k\nk = 2 if a else k",
        "class A:\n    n = k\nA.n\nk = 5",
    ],
)
def test_a_name_that_a_cell_may_not_set_counts(text: str) -> None:
    """A branch that is not taken, a loop without a turn: what is read then is the notebook's own, and may change."""
    names: dict[str, Any] = {"k": 7, "a": 1}
    assert surroundings.of_cell(ast.parse(text), names, ("a",)).params == {"k": 7}


@pytest.mark.parametrize(
    "text",
    [
        "if a:\n    k = 1\nelse:\n    k = 2\nk",
        "if a:\n    k = 1\nelse:\n    raise ValueError\nk",
        "try:\n    k = 1\nexcept ValueError:\n    k = 2\nk",
        "try:\n    k = 1\nexcept ValueError as fault:\n    raise TypeError from fault\nk",
        "try:\n    pass\nfinally:\n    k = 1\nk",
        "with open('x') as f:\n    k = f.read()\nk",
        "for k in [1]:\n    print(k)",
        "for x in [1]:\n    if x:\n        continue\n    k = x\n    print(k)",
        "def f(): return k\nk = 5\nf()",
        "def f(): return f, g, k\ndef g(): return f()\nk = 5\ng()",
        "import os.path as k\nk",
        "from os import path as k\nk",
        "k, x = 1, 2\nprint(k, [k for k in [1]], f'{k}')",
        "class k:\n    y = 1\nk",
        "while (k := 5) < 3:\n    pass\nk",
    ],
)
def test_a_name_that_a_cell_surely_sets_does_not_count(text: str) -> None:
    """So a cell that ran already is reused although its own names exist by now."""
    ran: dict[str, Any] = {"k": object(), "x": object(), "f": object(), "g": object(), "a": 1, "fault": object()}
    assert surroundings.of_cell(ast.parse(text), ran, ("a",)).params == {}


def test_times_below_a_microsecond_stay_apart() -> None:
    """pandas' Timedelta holds nanoseconds; one of whole microseconds is the plain class's."""
    pd = pytest.importorskip("pandas")
    one, two = (fingerprints.fingerprint(params={"gap": pd.Timedelta(n, "ns")}) for n in (1, 2))
    assert one != two
    plain = fingerprints.fingerprint(params={"gap": datetime.timedelta(seconds=3)})
    assert fingerprints.fingerprint(params={"gap": pd.Timedelta(3, "s")}) == plain


# -- the whole kind: what is the same shares a fingerprint, and nothing else does --------------------------------------

ZONES = (
    None,
    datetime.UTC,
    datetime.timezone(datetime.timedelta(hours=1)),
    *map(zoneinfo.ZoneInfo, ("UTC", "Europe/London", "Europe/Berlin")),
)
MOMENTS = st.builds(
    datetime.datetime,
    st.just(2026),
    st.sampled_from([1, 10]),
    st.sampled_from([1, 25]),
    st.sampled_from([0, 2]),
    tzinfo=st.sampled_from(ZONES),
    fold=st.integers(0, 1),
)
HOURS = st.builds(datetime.time, st.integers(0, 1), tzinfo=st.sampled_from(ZONES), fold=st.integers(0, 1))
LEAVES = st.one_of(
    st.sampled_from([None, True, False, 0, 1, -1, 2**70, "", "1", "a", "int", b"", b"1", bytearray(b"1")]),
    st.sampled_from([0.0, -0.0, 1.0, 1e3, math.inf, -math.inf]) | st.builds(float, st.just("nan")),
    st.sampled_from([0j, complex(0, -0.0), 1 + 0j, complex(math.nan, 1)]),
    st.sampled_from([decimal.Decimal("1"), decimal.Decimal("1.0"), decimal.Decimal("NaN")]),
    st.sampled_from([datetime.date(2026, 1, 1), datetime.timedelta(1), datetime.timedelta(0, 0, 1)]),
    st.sampled_from([PurePosixPath("a"), PurePosixPath("1")]),
    MOMENTS,
    HOURS,
)
KEYS = LEAVES.filter(lambda value: not isinstance(value, bytearray))
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(KEYS, inner, max_size=3)
        | st.sets(KEYS, max_size=3)
    ),
    max_leaves=6,
)


def told(value: Any) -> Any:
    """What the rules say that a value is, as nested tuples; written apart from the code that is tested."""
    if isinstance(value, dict):
        return ("mapping", frozenset(Counter((told(name), told(item)) for name, item in value.items()).items()))
    if isinstance(value, (set, frozenset)):
        return ("set", frozenset(Counter(map(told, value)).items()))
    if isinstance(value, (list, tuple)):
        return ("list", tuple(map(told, value)))
    if isinstance(value, (bytes, bytearray)):
        return ("bytes", bytes(value))
    if isinstance(value, (datetime.datetime, datetime.time)):
        zone = value.tzinfo
        fixed = zone is not None and zone.utcoffset(None) is not None
        return (type(value), value.isoformat(), value.fold, None if fixed or zone is None else str(zone))
    return (type(value), repr(value) if not isinstance(value, int) else int(value))


@settings(max_examples=400, deadline=None)
@given(VALUES, VALUES)
def test_two_values_share_a_fingerprint_exactly_where_the_rules_call_them_one(a: Any, b: Any) -> None:
    """Drawn from few leaves, so that near misses are common."""
    same = fingerprints.fingerprint(params=a) == fingerprints.fingerprint(params=b)
    assert same == (told(a) == told(b))


def again(value: Any) -> Any:
    """The same value, made anew, with keys and members in the other order and tuples for lists."""
    if isinstance(value, dict):
        return {again(name): again(item) for name, item in reversed(list(value.items()))}
    if isinstance(value, list):
        return tuple(map(again, value))
    if isinstance(value, set):
        return frozenset(reversed(list(value)))
    return copy.copy(value)


@settings(max_examples=200, deadline=None)
@given(VALUES)
def test_a_value_made_anew_keeps_its_fingerprint(value: Any) -> None:
    """Neither identity nor order of keys counts."""
    assert fingerprints.fingerprint(params=value) == fingerprints.fingerprint(params=again(value))


def test_names_that_are_all_nan_do_not_hide_one_another() -> None:
    """Python keeps two NaN keys; the canonical form keeps both values, in any order."""
    one, two = float("nan"), float("nan")
    assert fingerprints.fingerprint(params={one: 1, two: 2}) == fingerprints.fingerprint(params={two: 2, one: 1})
    assert fingerprints.fingerprint(params={one: 1, two: 2}) != fingerprints.fingerprint(params={one: 3, two: 2})
    assert fingerprints.describe(params={one: 1, two: 2}).components.keys() == {"params"}


def test_zones_of_every_library_count_by_name() -> None:
    """A zone counts even where its offset is another's today; one offset for ever is that offset, whoever made it."""
    noon = datetime.datetime(2026, 1, 1, 12)  # noqa: DTZ001 - the zone comes below
    london, lisbon = (noon.replace(tzinfo=zoneinfo.ZoneInfo(name)) for name in ("Europe/London", "Europe/Lisbon"))
    assert london.isoformat() == lisbon.isoformat()
    assert fingerprints.fingerprint(params=london) != fingerprints.fingerprint(params=lisbon)
    utc = {noon.replace(tzinfo=zone) for zone in (datetime.UTC, zoneinfo.ZoneInfo("UTC"))}
    tz = pytest.importorskip("dateutil.tz")
    utc |= {noon.replace(tzinfo=tz.tzutc())}
    assert len({fingerprints.fingerprint(params=one) for one in utc}) == 1
    by_dateutil = fingerprints.fingerprint(params=noon.replace(tzinfo=tz.gettz("Europe/London")))
    assert by_dateutil != fingerprints.fingerprint(params=noon.replace(tzinfo=datetime.UTC))

    class Shifting(datetime.tzinfo):
        def utcoffset(self, when: datetime.datetime | None) -> datetime.timedelta | None:
            return None if when is None else datetime.timedelta(hours=when.hour % 2)

    with pytest.raises(errors.Invalid, match=r"params\['at'\] is in a time zone of class Shifting that has no name"):
        fingerprints.fingerprint(params={"at": noon.replace(tzinfo=Shifting())})


def test_paths_of_bytes_count_and_only_files_are_inputs(tmp_path: Path) -> None:
    """A path object may give bytes; a folder or a pipe, which has no bytes to count, is refused by name."""

    class Octets:
        def __init__(self, path: bytes) -> None:
            self.path = path

        def __fspath__(self) -> bytes:
            return self.path

    assert fingerprints.fingerprint(params=Octets(b"a")) != fingerprints.fingerprint(params=PurePosixPath("a"))
    assert fingerprints.fingerprint(params=Octets(b"a\xff")) != fingerprints.fingerprint(params=Octets(b"a\xfe"))
    (tmp_path / "data").write_text("same")
    given = Octets(bytes(tmp_path / "data"))
    assert fingerprints.fingerprint(inputs=[given]) == fingerprints.fingerprint(inputs=[tmp_path / "data"])
    os.mkfifo(tmp_path / "pipe")
    for odd in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(errors.Invalid, match=r"inputs\['x'\] is '.*', which is not a regular file"):
            fingerprints.fingerprint(inputs={"x": odd})


def test_numpy_scalars_count_as_the_values_they_equal() -> None:
    """Whatever their width; what Python has no equal of keeps its own text, and no two share one."""
    np = pytest.importorskip("numpy")
    for scalar, plain in ((np.float32(0.5), 0.5), (np.uint8(3), 3), (np.bool_(True), True), (np.complex64(1j), 1j)):
        assert fingerprints.fingerprint(params=scalar) == fingerprints.fingerprint(params=plain)
    third = np.longdouble(1) / 3
    odd = [third, np.nextafter(third, np.longdouble(1)), np.clongdouble(third), float(third)]
    odd += [np.array([(1, 2)], dtype=[(name, "i4"), ("y", "i4")])[0] for name in ("x", "z")]
    assert len({fingerprints.fingerprint(params=value) for value in odd}) == len(odd)

    class Itself:
        ndim = 0

        def item(self) -> Any:
            return self

    with pytest.raises(errors.Invalid, match="params is a Itself, which has no canonical form"):
        fingerprints.fingerprint(params=Itself())


def test_whole_numbers_of_any_length_count() -> None:
    """Python writes no more than 4,300 decimal digits; longer numbers count all the same."""
    big = 10**5000
    assert fingerprints.fingerprint(params=big) == fingerprints.fingerprint(params=10**5000)
    assert fingerprints.fingerprint(params=big) != fingerprints.fingerprint(params=big + 1)


def test_classes_named_like_another_form_do_not_look_like_it() -> None:
    """A date of a class called `path` is a date."""
    odd = type("path", (datetime.date,), {})(2026, 1, 1)
    assert fingerprints.fingerprint(params=odd) != fingerprints.fingerprint(params=PurePosixPath("2026-01-01"))
    assert fingerprints.fingerprint(params=odd) == fingerprints.fingerprint(params=datetime.date(2026, 1, 1))


def test_lambdas_of_one_line_are_told_apart() -> None:
    """Their source is the same line; their place in it is not, wherever the line is indented."""
    pair = [lambda x: x + 1, lambda x: x + 2]
    marks = [fingerprints.fingerprint(one) for one in pair]
    assert marks[0] != marks[1]
    for _ in "once":
        pair = [lambda x: x + 1, lambda x: x + 2]
    assert marks == [fingerprints.fingerprint(one) for one in pair]


class Failing(os.PathLike[str]):
    """A value that fails however it is looked at."""

    def __fspath__(self) -> str:
        raise RuntimeError("no path")

    def __repr__(self) -> str:
        raise RuntimeError("no text")

    @property
    def artifact_id(self) -> str:
        raise RuntimeError("no id")


@pytest.mark.parametrize("argument", ["params", "inputs"])
@pytest.mark.parametrize(
    "value",
    [Failing(), [Failing()], {"a": Failing()}, {Failing(): 1}, {"a": [{"b": Failing()}]}, {Failing(): Failing()}],
)
def test_a_value_that_fails_when_it_is_looked_at_is_refused_under_its_argument(argument: str, value: object) -> None:
    """What a caller's own class raises does not come through as if it were ours."""
    with pytest.raises(errors.Invalid, match=argument):
        fingerprints.describe(**{argument: value})


@pytest.mark.parametrize("path", [Path("\x00"), Path("x" * 5000), Path("/"), Path("/dev/null")])
def test_a_file_that_cannot_be_read_is_refused_as_an_input(path: Path) -> None:
    """Names that no file has, a folder, a device."""
    with pytest.raises(errors.Invalid, match=r"^inputs\[0\] is "):
        fingerprints.describe(inputs=[path])


@pytest.mark.parametrize("seconds", ["3", "x", float("nan"), float("inf"), -1, 10**400, True, object(), [1]])
def test_seconds_of_computing_are_a_number_that_can_be_added_up(seconds: object) -> None:
    """Anything else is refused before anything is recorded."""
    with pytest.raises(errors.Invalid, match=r"^compute_seconds must be "):
        recording.lineage_notes(fingerprints.Described(""), [], seconds)  # type: ignore[arg-type]


class Unlisted:
    def __iter__(self) -> Any:
        raise TypeError("iteration over nothing")


def test_tags_that_give_no_texts_are_refused() -> None:
    """One that only calls itself iterable is told too, as an array without axes does."""
    for tags in (Unlisted(), 5, "text", [1], {"a": 1, 2: 3}):
        with pytest.raises(errors.Invalid, match=r"^(tags|a tag) must be "):
            recording.check_labels("title", None, "source", "1", tags)
