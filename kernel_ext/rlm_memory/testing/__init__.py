"""A host for tests: it attaches to a real kernel's channels and answers as told, with delays, drops and silence.

    with FakeHost(tmp_path / "store") as host:
        host.attach(kernel_manager.connection_file)       # or host.listen(state_root), and kernels dial it
        ...
        assert host.seen[-1].kind == "dsh_tools.call"

`FakeHost(folder, foreign=True)` knows only `dsh_tools.list` and `dsh_tools.call`, as a plain DSH host does.
`python -m rlm_memory.testing --state-root DIR` runs one as a process of its own, to be killed.
`foreignshim` is the other half: a kernel's side that knows the two shared requests and nothing of the extension.
"""

from rlm_memory.testing.fakehost import FakeHost, Seen
from rlm_memory.testing.fakestore import FakeStore, ToolFault

__all__ = ["FakeHost", "FakeStore", "Seen", "ToolFault"]
