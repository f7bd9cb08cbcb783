"""JupyterLab in a real browser: what a person picks, runs and sees, and what is left when it is closed."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
from hosts import host_says
from hygiene import orphans
from jupyter_front import eventually, kernels_of
from lab_browser import Lab, LabPage, chromium

pytestmark = [pytest.mark.browser, pytest.mark.kernel, pytest.mark.timeout(600)]

KERNEL = "Python (rlm-memory)"
RECORD = (
    "memory.experiments.record(pd.DataFrame({'cohort': ['A', 'B', 'C'], 'rate': [0.1, 0.25, 0.5]}), "
    "title='Response by <cohort>', source='trial-warehouse', source_version='2026-08-21', tags=['cohort'])"
)


@pytest.fixture
def lab(tmp_path: Path, state_root: Path) -> Iterator[Lab]:
    """`rlm-memory lab` on this test's state root."""
    folder = tmp_path / "work"
    folder.mkdir()
    lab = Lab(folder)
    yield lab
    lab.end()


@pytest.fixture
def page(tmp_path: Path, lab: Lab) -> Iterator[LabPage]:
    with chromium(tmp_path / "profile") as driver:
        yield LabPage(driver)


def table_of(cell: Any) -> list[list[str]]:
    """The rows of the rendered HTML table in a cell's output, as text."""
    rows = cell.find_elements("css selector", ".jp-RenderedHTMLCommon table tr")
    return [[item.text for item in row.find_elements("css selector", "th, td")] for row in rows]


def brightness(element: Any) -> list[int]:
    """The grey values of an element's screenshot, the commonest first: the first is the background's."""
    from PIL import Image

    with Image.open(io.BytesIO(element.screenshot_as_png)) as image:
        counts = image.convert("L").histogram()
    return sorted((value for value in range(256) if counts[value]), key=lambda value: -counts[value])


def is_readable(element: Any, is_light: bool) -> bool:
    """Whether a picture of the element shows text that stands out from a light (or a dark) background."""
    seen = brightness(element)
    return (seen[0] > 200) == is_light and max(abs(seen[0] - value) for value in seen) > 150


def test_results_are_shown_as_tables_in_both_themes(lab: Lab, page: LabPage) -> None:
    """The launcher has the kernel; card, search and preview stand in the page, readable; its console stays quiet."""
    page.open_notebook(lab, KERNEL)
    for code in ("%load_ext rlm_memory", "import pandas as pd", RECORD, "memory.experiments.search('cohort')"):
        page.run_cell(code)
    page.run_cell("memory.experiments.search('cohort')[0].preview()")
    card, found, preview = page.executed(3), page.executed(4), page.executed(5)

    assert "Response by <cohort>" in card.find_element("css selector", ".jp-RenderedHTMLCommon strong").text
    assert dict(table_of(card)).keys() == {"size", "source", "tags", "id"}
    assert dict(table_of(card))["source"] == "trial-warehouse @ 2026-08-21"
    header, row = table_of(found)
    assert header == ["#", "title", "size", "source", "tags", "why", "id"]
    assert row[:5] == ["0", "Response by <cohort>", "3 x 2", "trial-warehouse @ 2026-08-21", "cohort"]
    assert row[6] == dict(table_of(card))["id"]
    assert table_of(preview) == [["cohort", "rate"], ["A", "0.1"], ["B", "0.25"], ["C", "0.5"]]
    sides = [cell.value_of_css_property("text-align") for cell in preview.find_elements("css selector", "td")]
    assert sides == ["left", "right"] * 3

    for theme, is_light in (("JupyterLab Light", True), ("JupyterLab Dark", False)):
        page.choose_theme(theme)
        for cell in (card, found, preview):
            table = cell.find_element("css selector", ".jp-RenderedHTMLCommon table")
            # A theme arrives in pieces, so the first picture may show one theme's background under the other's text.
            eventually(
                partial(is_readable, table, is_light), f"{theme}: the table's text stands out from its background"
            )
    assert page.complaints() == []


def test_the_kernel_menu_and_the_end_leave_memory_whole(
    lab: Lab, page: LabPage, state_root: Path, tmp_path: Path
) -> None:
    """Interrupt, restart, close: what was recorded is found after each, and no process, socket or folder stays."""
    page.open_notebook(lab, KERNEL)
    page.run_cell("%load_ext rlm_memory")
    page.run_cell("memory.experiments.record({'a': 1}, title='before').title")
    page.executed(2)
    page.run_cell("import time; print('it runs', flush=True); time.sleep(3600)")
    page.the(".jp-OutputArea-output", "it runs")
    page.menu("Kernel", "kernelmenu:interrupt")
    assert "KeyboardInterrupt" in page.executed(3).text
    page.run_cell("memory.experiments.load(memory.experiments.search('before')[0])")
    assert "{'a': 1}" in page.executed(4).text

    [first] = kernels_of(state_root)
    page.menu("Kernel", "kernelmenu:restart")
    page.click(".jp-Dialog .jp-mod-accept", "Restart")
    eventually(lambda: [item["generation"] for item in kernels_of(state_root)] == [2], "the host sees the restart")
    page.wait_idle(KERNEL)
    page.run_cell("%load_ext rlm_memory")
    page.run_cell("memory.experiments.load(memory.experiments.search('before')[0])")
    assert "{'a': 1}" in page.executed(2).text
    [second] = kernels_of(state_root)
    assert second["session"] == first["session"]
    assert not psutil.pid_exists(first["pid"])
    assert page.complaints() == []

    page.driver.quit()
    assert lab.end() == 0
    eventually(lambda: not kernels_of(state_root), "the host lets the kernel go")
    status = host_says(state_root, {"type": "status"})
    assert status is not None
    eventually(lambda: {process.pid for process in orphans()} == {status["pid"]}, "only the host still runs")
    assert not list((state_root / "attachments").iterdir())
    eventually(lambda: not list((state_root / "sessions").iterdir()), "the session folder is gone")
    assert not list(Path(os.environ["JUPYTER_RUNTIME_DIR"]).glob("kernel-*.json"))
    assert {path.name for path in lab.folder.iterdir()} <= {"Untitled.ipynb", ".ipynb_checkpoints"}
