"""A Python process that is no kernel and that a test drives block by block, as it drives a kernel cell by cell."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from real_kernels import Outcome

LOOP = textwrap.dedent(
    """
    import contextlib, io, json, sys

    def _serve():
        # The names of a block are the process's own, so that what it defines can be pickled; ours are not among them.
        names, out = vars(sys.modules["__main__"]), sys.stdout
        for line in sys.stdin:
            said, error = io.StringIO(), None
            try:
                with contextlib.redirect_stdout(said):
                    exec(compile(json.loads(line), "block", "exec"), names)
            except BaseException as fault:
                error = f"{type(fault).__name__}: {fault}"
            print(json.dumps([said.getvalue(), error]), file=out, flush=True)

    _serve()
    """
)


class Script:
    """One process. `run` gives what a block printed and the error that it ended with."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    @property
    def pid(self) -> int:
        return self.process.pid

    def begin(self, code: str) -> None:
        """Start a block without waiting for its end."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(code) + "\n")
        self.process.stdin.flush()

    def end(self) -> Outcome:
        """Wait for the end of the block that runs."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the process ended within a block"
        text, error = json.loads(line)
        return Outcome(text=text, error=error)

    def run(self, code: str) -> Outcome:
        self.begin(code)
        return self.end()

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)


@contextmanager
def running_script(cwd: Path, **environment: str) -> Iterator[Script]:
    """A process in that folder; it ends with the context, by itself where it can."""
    process = subprocess.Popen(
        [sys.executable, "-u", "-c", LOOP],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=cwd, env={**os.environ, **environment},
    )  # fmt: skip
    try:
        yield Script(process)
    finally:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()
