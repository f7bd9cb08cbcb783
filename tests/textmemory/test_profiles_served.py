"""Other documents' tool tables, switches and linked folders, as a real host serves them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rlm_memory_host.textmemory import bindings
from rlm_memory_host.textmemory.opening import open_memory
from served import LOAD, host

pytestmark = [pytest.mark.kernel, pytest.mark.fronts]
NAMES = "print(sorted(tool['name'] for tool in dsh_tools.list() if 'harness' not in tool['name']))"
ARTIFACTS = ["memory_artifact_record", "memory_artifact_resolve"]


@pytest.mark.parametrize(
    ("profile", "names", "write", "read"),
    [
        (
            "runtime",
            ["memory_forget", "memory_list", "memory_propose", "memory_read", "memory_search"],
            "dsh_tools.call('memory_propose', {'content': 'The dock is made of oak.'})['state']",
            "dsh_tools.call('memory_search', {'query': 'dock'})['results'][0]['text']",
        ),
        (
            "plugin",
            [
                *("memory_consolidate", "memory_expand", "memory_feedback", "memory_forget", "memory_habits"),
                *("memory_recall", "memory_remember", "memory_status"),
            ],
            "dsh_tools.call('memory_remember', {'title': 'Dock', 'content': 'The dock is made of oak.'})['state']",
            "dsh_tools.call('memory_recall', {'query': 'dock'})['items'][0]['excerpt']",
        ),
    ],
)
def test_a_profile_replaces_the_text_tools(
    state_root: Path, start_kernel: Callable[..., Any], profile: str, names: list[str], write: str, read: str
) -> None:
    """Its document's own names, and the artifact tools beside them; a switched-off tool is not listed."""
    off = "memory_forget"
    settings = f'[memory]\nprofile = "{profile}"\n[tools]\n{off} = false\n'
    with host(state_root, settings):
        kernel = start_kernel()
        listed = kernel.run(f"{LOAD}\n{NAMES}").ok().strip()
        assert listed == str(sorted([*(name for name in names if name != off), *ARTIFACTS]))
        assert kernel.run(f"print({write})").ok().strip() == "active"
        assert kernel.run(f"print({read})").ok().strip() == "The dock is made of oak."


def test_profile_riko_refuses_a_notebook_which_has_no_preset(
    state_root: Path, start_kernel: Callable[..., Any]
) -> None:
    """Its six tools are listed, its texts are out of reach, and exact results work as ever."""
    names = [f"memory_{name}" for name in ("correct", "forget", "get_resident", "remember", "restore", "suppress")]
    with host(state_root, '[memory]\nprofile = "riko"\n'):
        kernel = start_kernel()
        assert kernel.run(f"{LOAD}\n{NAMES}").ok().strip() == str(sorted([*names, *ARTIFACTS]))
        refused = kernel.run("dsh_tools.call('memory_get_resident', {})")
        assert "preset" in str(refused.error)
        record = "memory.experiments.record([1, 2], title='Numbers', source='lab', source_version='1')"
        assert kernel.run(f"print({record}.experiment_id[:4])").ok().strip() == "exp_"


def test_a_folder_opens_the_project_that_it_was_linked_to(
    state_root: Path, tmp_path: Path, start_kernel: Callable[..., Any]
) -> None:
    """A claim alone opens nothing; once an operator linked the folder, its kernels share the project's memory."""
    folders = [tmp_path / name for name in ("first", "second", "claims")]
    for folder in folders:
        (folder / ".memory").mkdir(parents=True)
        (folder / ".memory" / "project.id").write_text("harbour\n")
    store = open_memory(state_root).store
    for folder in folders[:2]:
        bindings.bind(store, folder, "harbour")
    with host(state_root, ""):
        first, second, claims = (start_kernel(cwd=folder) for folder in folders)
        first.run(f"{LOAD}\nmemory.remember('The dock is made of oak.')").ok()
        assert second.run(f"{LOAD}\nprint(len(memory.search('dock')))").ok().strip() == "1"
        assert claims.run(f"{LOAD}\nprint(len(memory.search('dock')))").ok().strip() == "0"
