"""What every `rlm-memory experiments` command works with: the store, the project, a way to stop, progress, output.

Owns: opening the store beside or without a running host (the locks are the store's own), telling the project, Ctrl-C,
bars, printing. Does not own: what a command does.

Ctrl-C and SIGTERM are taken as a wish: the step that runs is finished or undone, nothing after it begins, and the
command ends with exit code 2. A second Ctrl-C ends the process where it stands; that leaves what a crash leaves, which
the next command and `experiments gc` deal with.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from rlm_memory_host import settings
from rlm_memory_host.attach.project import project_of
from rlm_memory_host.cli import consent
from rlm_memory_host.contracts.scope import Scope
from rlm_memory_host.errors import ToolCancelled, ToolDenied, ToolInput

if TYPE_CHECKING:
    from rich.table import Table

    from rlm_memory_host.artifacts import ArtifactStore
    from rlm_memory_host.artifacts.project import Project

SESSION: Final = "command-line"
PLAIN_WIDTH: Final = 160
"""Columns of a table where nobody looks at a terminal."""

ProjectOption = Annotated[str | None, typer.Option("--project", help="Project id; unset: told from the folder.")]
DryOption = Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")]
IdsArgument = Annotated[list[str] | None, typer.Argument(help="Ids, or 8 or more of their first characters.")]


class Stop:
    """The wish to stop: set by a signal, asked between steps."""

    def __init__(self) -> None:
        self.is_wanted = False

    def check(self) -> None:
        """Raises ToolCancelled when somebody wants to stop."""
        if self.is_wanted:
            raise ToolCancelled("stopped; what was finished stays, the rest was not begun")

    @contextmanager
    def on_signals(self) -> Generator[None]:
        """Take SIGINT and SIGTERM as the wish while the body runs; the second SIGINT is Python's own again."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def want(_number: int, _frame: FrameType | None) -> None:
            self.is_wanted = True
            signal.signal(signal.SIGINT, signal.default_int_handler)

        before = {number: signal.signal(number, want) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


@dataclass(frozen=True, slots=True)
class Desk:
    """One command's tools."""

    settings: settings.Settings
    store: ArtifactStore
    scope: Scope
    stop: Stop
    as_json: bool

    @property
    def project(self) -> Project:
        """The project's pieces."""
        return self.store.project(self.scope)

    def of(self, project_id: str) -> Project:
        """Another project's pieces."""
        return self.store.project(Scope(project_id, SESSION, None))

    def say(self, value: Any, *lines: str | Table) -> None:
        """Print for programs or for people."""
        if self.as_json:
            print(json.dumps(value, sort_keys=True, ensure_ascii=False))
            return
        from rich.console import Console

        console = Console(width=None if sys.stdout.isatty() else PLAIN_WIDTH, highlight=False, markup=False)
        for line in lines:
            console.print(line, soft_wrap=isinstance(line, str))

    @contextmanager
    def progress(self, what: str) -> Generator[Callable[[int, int], None]]:
        """A bar on the terminal's error output, where there is one and people read it; call it with (done, total)."""
        if self.as_json or not sys.stderr.isatty():
            yield lambda _done, _total: None
            return
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn(what), BarColumn(), DownloadColumn(), TimeRemainingColumn())
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(what, total=None)
            yield lambda done, total: bar.update(task, completed=done, total=max(total, 1))


@contextmanager
def open_desk(config: Path | None, state_root: Path | None, project: str | None, as_json: bool) -> Generator[Desk]:
    """The store of the settings, for the project that was named or told from the current folder."""
    from rlm_memory_host.artifacts import ArtifactStore
    from rlm_memory_host.assembly.artifacts import bounds_of, index_folder_of

    if project is not None and not project.strip():
        raise ToolInput("--project names no project; leave it out to have it told from the folder")
    loaded = settings.load(config, state_root).settings
    told = project or project_of(Path.cwd(), loaded.project.id).id
    stop = Stop()
    with (
        stop.on_signals(),
        ArtifactStore(
            loaded.artifact_root,
            bounds_of(loaded),
            integrity=loaded.artifacts.integrity,
            index_folder=index_folder_of(loaded),
        ) as store,
    ):
        yield Desk(loaded, store, Scope(told, SESSION, None), stop, as_json)


def only_a_person(action: str) -> None:
    """Raises ToolDenied inside a kernel's or an agent's process tree: what deletes or moves results is a person's."""
    if consent.is_inside_kernel():
        raise ToolDenied(f"{action} is a person's command; it does not run inside a kernel or an agent", "NOT_A_PERSON")


def plain(text: str) -> str:
    """Text of a card for a terminal: tabs become spaces, and what a terminal would obey is replaced."""
    spaced = text.expandtabs(4)
    return "".join(character if character.isprintable() or character == "\n" else "�" for character in spaced)


def sized(count: int) -> str:
    """Bytes for people."""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024 or unit == "GiB":
            return f"{count} B" if unit == "B" else f"{value:,.1f} {unit}"
        value /= 1024
    return f"{count} B"


def table(*columns: str) -> Table:
    """An empty table; columns whose name ends in > are numbers."""
    from rich.table import Table

    made = Table(box=None, pad_edge=False)
    for column in columns:
        is_number = column.endswith(">")
        made.add_column(column.rstrip(">"), justify="right" if is_number else "left", no_wrap=is_number)
    return made
