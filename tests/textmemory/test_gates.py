"""The gate table, cell by cell, and the rules around it."""

from __future__ import annotations

import itertools

import pytest
from rlm_memory_host.contracts.memory import Authority, Block, Caller, Kind, LayerKind, Sensitivity, Status
from rlm_memory_host.textmemory import gates
from rlm_memory_host.textmemory.gates import Outcome

A, C, S, R = Outcome.ACTIVE, Outcome.CANDIDATE, Outcome.SIGNAL, Outcome.REFUSED
TABLE = {
    Authority.OPERATOR: (A, A, A, A, A),
    Authority.USER: (A, A, A, A, S),
    Authority.MODEL: (A, A, C, C, S),
    Authority.BACKGROUND: (C, C, C, C, S),
    Authority.CHILD: (A, C, R, R, R),
}


@pytest.mark.parametrize("writer", gates.WRITERS)
def test_every_cell_is_the_pages(writer: Authority) -> None:
    """Writer by column."""
    assert tuple(gates.cell(writer, column) for column in gates.COLUMNS) == TABLE[writer]


def test_the_stricter_of_layer_and_text_decides() -> None:
    """A preference stays a preference in the session layer and in a project's."""
    for layer in (LayerKind.SESSION, LayerKind.PROJECT, LayerKind.PRESET, LayerKind.GLOBAL):
        assert gates.decide(Authority.MODEL, layer, ("personal",)).outcome is C
        assert gates.decide(Authority.CHILD, layer, ("personal",)).outcome is R
    for writer, layer, column in itertools.product(gates.WRITERS, LayerKind, gates.COLUMNS):
        with_column = gates.decide(writer, layer, (column,), has_cross_project_cue=True)
        assert with_column.outcome >= gates.decide(writer, layer, (), has_cross_project_cue=True).outcome


def test_a_users_global_needs_the_cue_in_that_message() -> None:
    """Without it the memory goes to the project, and the answer says so."""
    with_cue = gates.decide(Authority.USER, LayerKind.GLOBAL, (), has_cross_project_cue=True)
    without = gates.decide(Authority.USER, LayerKind.GLOBAL, ())
    assert (with_cue.layer, with_cue.note) == (LayerKind.GLOBAL, "")
    assert without.layer is LayerKind.PROJECT
    assert without.outcome is A
    assert without.note


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (Kind.FACT, "I prefer tabs"),
        (Kind.FACT, "The user prefers dark themes."),
        (Kind.DECISION, "My manager wants weekly reports"),
        (Kind.FACT, "Alice lives in Berlin"),
        (Kind.FACT, "用户喜欢喝茶"),
        (Kind.FACT, "我住在柏林"),
        (Kind.PROCEDURE, "She was diagnosed with depression"),
        (Kind.FACT, "他的工资很高"),
        (Kind.FACT, "card 4111 1111 1111 1111"),
        (Kind.PREFERENCE, "tabs"),
        (Kind.PERSON, "Bob"),
    ],
)
def test_declaring_a_harmless_kind_does_not_help(kind: Kind, text: str) -> None:
    """First person, preference, person and sensitive cues are read in the text itself."""
    assert gates.columns_of(kind, text) == ("personal",)


@pytest.mark.parametrize(
    "text",
    [
        "The project supports Python 3.10.",
        "The configuration lives in the settings module",
        "Use pytest for tests",
        "This workaround works for Linux",
        "The branch is named main",
        "测试使用 pytest",
    ],
)
def test_project_facts_stay_project_facts(text: str) -> None:
    """Usual notes about code fall in no personal column."""
    assert gates.columns_of(Kind.FACT, text) == ()


def test_sensitivity_is_only_tightened_by_reading() -> None:
    """Cues raise it, a clean text never lowers what was declared."""
    assert gates.sensitivity_of(Sensitivity.NORMAL, "diagnosed with cancer") is Sensitivity.SENSITIVE
    assert gates.sensitivity_of(Sensitivity.NORMAL, "身份证 11010519491231002x") is Sensitivity.SENSITIVE
    assert gates.sensitivity_of(Sensitivity.NORMAL, "id 078-05-1120") is Sensitivity.PROVISIONAL
    assert gates.sensitivity_of(Sensitivity.SENSITIVE, "tea") is Sensitivity.SENSITIVE
    assert gates.sensitivity_of(Sensitivity.NORMAL, "max token limit is 4096") is Sensitivity.NORMAL


def test_a_change_needs_the_authority_of_what_it_changes() -> None:
    """Operator, user, model, background, child, in this order; an unreviewed hand edit is protected as a user's."""
    order = [Authority.OPERATOR, Authority.USER, Authority.MODEL, Authority.BACKGROUND, Authority.CHILD]
    for (high, writer), (low, target) in itertools.product(enumerate(order), enumerate(order)):
        assert gates.may_change(writer, target) is (high <= low)
    assert not gates.may_change(Authority.MODEL, Authority.UNREVIEWED)
    assert gates.may_change(Authority.USER, Authority.UNREVIEWED)


def test_a_child_stays_a_child_whatever_it_quotes() -> None:
    """A quote verified by the host lifts a root's note, never a child's."""
    child = Caller(agent_kind="child", project="p")
    assert gates.writer_of(child, quoted=True) is Authority.CHILD
    assert gates.writer_of(Caller(agent_kind="root"), quoted=True) is Authority.USER
    assert gates.writer_of(Caller(agent_kind="none"), quoted=False) is Authority.MODEL
    assert gates.writer_of(Caller(agent_kind="root"), quoted=False, background=True) is Authority.BACKGROUND


def test_what_may_be_resident() -> None:
    """A person's word, normal, undisputed and no instruction."""
    block = Block("mem_a", "t", "t", "b", authority=Authority.USER)
    from dataclasses import replace

    assert gates.may_be_resident(block)
    assert not gates.may_be_resident(block, contested=True)
    for change in (
        {"authority": Authority.MODEL},
        {"authority": Authority.UNREVIEWED},
        {"status": Status.HIDDEN},
        {"sensitivity": Sensitivity.PROVISIONAL},
        {"flags": ("instruction_like",)},
        {"superseded_by": "mem_b"},
    ):
        assert not gates.may_be_resident(replace(block, **change))
