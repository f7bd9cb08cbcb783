"""The table of codes agrees with the kernel's classes, with the wire, and with its own page.

Renew the page: python -c "from rlm_memory_host.contracts import codes; print(codes.page(), end='')" > docs/codes.md
"""

from __future__ import annotations

import inspect
from pathlib import Path

from rlm_memory import errors, wire
from rlm_memory_host import errors as host_errors
from rlm_memory_host.contracts.codes import CODES, page
from rlm_memory_host.process import AlreadyRunning


def test_every_code_that_a_kernel_can_receive_has_its_class() -> None:
    """Both tables name the same class for the same code, and neither has a code that the other lacks."""
    assert {code: row.exception for code, row in CODES.items() if row.exception} == {
        code: kind.__name__ for code, kind in errors.BY_CODE.items()
    }


def test_every_code_of_the_wire_is_in_the_table() -> None:
    """A constant of `wire` whose value is its own name is a code."""
    named = {name for name, value in vars(wire).items() if name.isupper() and value == name}
    assert named <= CODES.keys()


def test_every_code_that_the_host_raises_by_default_is_in_the_table() -> None:
    """An error class whose code nobody documented cannot be added."""
    kinds = [kind for _, kind in inspect.getmembers(host_errors, inspect.isclass) if issubclass(kind, Exception)]
    assert {kind.default_code for kind in [*kinds, AlreadyRunning] if hasattr(kind, "default_code")} <= CODES.keys()


def test_the_page_is_the_table() -> None:
    """`docs/codes.md` is made from the table and not edited by hand."""
    assert (Path(__file__).parents[2] / "docs" / "codes.md").read_text() == page()
