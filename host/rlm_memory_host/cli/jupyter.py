"""`rlm-memory lab`, `rlm-memory run`, `rlm-memory attach`."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rlm_memory import wire

from rlm_memory_host import settings
from rlm_memory_host.attach import dial, kernelspec
from rlm_memory_host.cli.host import ConfigOption, RootOption
from rlm_memory_host.errors import SettingsError
from rlm_memory_host.process import given_umask

PASSED_ON = {"allow_extra_args": True, "ignore_unknown_options": True}


def lab(context: typer.Context) -> None:
    """Start JupyterLab with the kernel rlm-memory as its default; all arguments go to JupyterLab."""
    if importlib.util.find_spec("jupyterlab") is None:
        raise SettingsError("JupyterLab is not installed in this environment; pip install jupyterlab")
    _need_kernelspec(kernelspec.NAME)
    options = [f"--MappingKernelManager.untracked_message_types={name}" for name in kernelspec.UNTRACKED]
    command = [sys.executable, "-m", "jupyterlab", *options]
    command += [f"--MultiKernelManager.default_kernel_name={kernelspec.NAME}", *context.args]
    os.umask(given_umask())
    sys.stdout.flush()
    os.execv(sys.executable, command)


def run(
    notebook: Annotated[Path, typer.Argument(help="The notebook; it is not changed.")],
    output: Annotated[
        Path | None, typer.Option("--output", help="Where the result goes; else NAME.executed.ipynb beside it.")
    ] = None,
    kernel: Annotated[str, typer.Option("--kernel", help="The kernelspec to run it with.")] = kernelspec.NAME,
    timeout: Annotated[float | None, typer.Option("--timeout", min=1, help="Seconds that one cell may take.")] = None,
) -> None:
    """Execute a notebook and write the result: exit 0 fine, 1 a cell failed, 2 it could not be run."""
    for name in ("nbclient", "nbformat"):
        if importlib.util.find_spec(name) is None:
            raise SettingsError(f"{name} is not installed in this environment; pip install {name}")
    nbformat: Any = importlib.import_module("nbformat")
    try:
        book: Any = nbformat.read(notebook, as_version=4)
    except FileNotFoundError:
        raise SettingsError(f"there is no notebook {notebook}") from None
    except Exception as error:
        raise SettingsError(f"{notebook.name} cannot be read as a notebook ({type(error).__name__})") from error
    _need_kernelspec(kernel)
    os.umask(given_umask())
    target = output or notebook.with_name(f"{notebook.stem}.executed.ipynb")
    failed = _execute(book, kernel, notebook.absolute().parent, timeout)
    _write(target, nbformat.writes(book))
    print(f"{'a cell failed' if failed else 'done'}: {target}")
    if failed:
        print(f"rlm-memory: {failed}", file=sys.stderr)
        raise typer.Exit(1)


def _execute(book: Any, kernel: str, folder: Path, timeout: float | None) -> str | None:
    """Run all cells; the first failure in one line, None where there was none."""
    nbclient: Any = importlib.import_module("nbclient")
    exceptions: Any = importlib.import_module("nbclient.exceptions")
    total = len(book.cells)

    def show(**told: Any) -> None:
        print(f"cell {told['cell_index'] + 1} of {total}", file=sys.stderr, flush=True)

    client = nbclient.NotebookClient(
        book,
        kernel_name=kernel,
        timeout=timeout,
        resources={"metadata": {"path": str(folder)}},
        on_cell_start=show,
    )
    try:
        client.execute()
    except exceptions.CellExecutionError as error:
        return f"{error.ename}: {error.evalue}".splitlines()[0][:500]
    except exceptions.CellTimeoutError:
        return f"a cell took longer than {timeout:g} s"
    except exceptions.DeadKernelError:
        return "the kernel died"
    except RuntimeError as error:
        raise SettingsError(f"the kernel did not start: {error}") from error
    return None


def _write(target: Path, text: str) -> None:
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(text, "utf-8")
        temporary.replace(target)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise SettingsError(f"--output: {target} cannot be written ({error.strerror})") from error


def _need_kernelspec(name: str) -> None:
    from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel

    try:
        KernelSpecManager().get_kernel_spec(name)
    except NoSuchKernel:
        hint = "; `rlm-memory kernel install` installs it" if name == kernelspec.NAME else ""
        raise SettingsError(f"there is no kernelspec {name!r} here{hint}") from None


def attach(
    existing: Annotated[Path, typer.Option("--existing", help="The kernel's connection file.")],
    folder: Annotated[
        Path | None, typer.Option("--folder", help="The kernel's folder, which tells its project; else this one.")
    ] = None,
    config: ConfigOption = None,
    state_root: RootOption = None,
) -> None:
    """Have the host serve a kernel that runs already and cannot load the extension."""
    root = settings.load(config, state_root).settings.state_root
    line: dict[str, Any] = {
        "type": wire.ATTACH,
        "protocol": wire.PROTOCOL,
        "connection_file": str(existing.absolute()),
        "cwd": str((folder or Path.cwd()).absolute()),
    }
    connection, answer = dial.open_line_starting(root, line, os.environ)
    connection.close()
    print(f"attached: session {answer['session']}, generation {answer['generation']}, host pid {answer['pid']}")
