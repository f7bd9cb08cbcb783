"""The Jupyter kernel provisioner `rlm-memory-provisioner`: what a running kernel cannot give itself.

Owns: the host started before the kernel, the kernel's environment, registering the kernel, the lifeline that tells the
host when the kernel will not come back. Does not own: which environment that is (`environment`), the sandbox's command
(`sandbox`), sessions (`kernels`).

Managers drive it from whatever loop they have, each call perhaps in another one, so nothing here belongs to a loop: the
lifeline is a plain socket, and what blocks runs in a thread. No asyncio.subprocess for the same reason.

Source: design page "Kernel <-> host", How a kernel finds its host.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jupyter_client.provisioning.local_provisioner import LocalProvisioner
from rlm_memory import wire

from rlm_memory_host import settings
from rlm_memory_host.attach import dial
from rlm_memory_host.attach.environment import kernel_environment
from rlm_memory_host.errors import HostError, SettingsError


class MemoryProvisioner(LocalProvisioner):
    """Start an ipykernel beside a host that is there before it. One instance a kernel, over all its restarts."""

    _lifeline: socket.socket | None = None
    _state_root: Path | None = None
    _connection_file: Path | None = None
    _session_dir: Path | None = None

    async def pre_launch(self, **kwargs: Any) -> dict[str, Any]:
        """Have a host and a session, then give the launch arguments with the kernel's environment.

        Raises RuntimeError, which front ends show, when the settings are wrong or no host can be started: a kernel
        that was asked for with memory does not start without.
        """
        try:
            return await self._prepared(await super().pre_launch(**kwargs))
        except HostError as error:
            self._release()
            raise RuntimeError(f"rlm-memory: {error}") from error
        except BaseException:
            self._release()
            raise

    async def _prepared(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        given: dict[str, str] = kwargs["env"]
        # An outer RLM session's folder is not this kernel's, and no reason to refuse a state root.
        environ = {name: value for name, value in given.items() if name != "RLM_SESSION_DIR"}
        loaded = settings.load(environ=environ).settings
        cwd = Path(kwargs.get("cwd") or Path.cwd()).absolute()
        await asyncio.to_thread(self._reach_host, loaded.state_root, cwd, environ)
        assert self._session_dir is not None
        made = kernel_environment(given, loaded.kernel, session_dir=self._session_dir, state_root=loaded.state_root)
        if made.removed:
            self.log.warning(
                "rlm-memory: credentials are in this Jupyter server's environment (%s). The kernel does not get them, "
                "but its code can read them from the server's process; hand them to the host by another way "
                "(rlm-memory doctor says which)",
                ", ".join(made.removed),
            )
        return {**kwargs, "env": made.variables}

    async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> Any:
        """Start the process and have the host attach to it."""
        connection_info = await super().launch_kernel(cmd, **kwargs)
        try:
            await asyncio.to_thread(self._register, Path(kwargs.get("cwd") or Path.cwd()).absolute())
        except HostError as error:
            # The extension finds the host by itself, or says why not where the user sees it.
            self.log.warning("rlm-memory: the host did not attach to the new kernel: %s", error)
        return connection_info

    async def cleanup(self, restart: bool = False) -> None:
        """Release the kernel's session, unless the kernel comes back. Twice is once."""
        await super().cleanup(restart=restart)
        if not restart:
            self.ports_cached = False
            self._release()

    def _reach_host(self, state_root: Path, cwd: Path, environ: Mapping[str, str]) -> None:
        """Have the session and the lifeline; a restart keeps both where the host still lives. Blocks."""
        path = self._told_connection_file()
        kept = self._lifeline is not None and not dial.is_gone(self._lifeline)
        if kept and (path, state_root) == (self._connection_file, self._state_root):
            return
        self._release()
        question = {
            "type": "prepare",
            "protocol": wire.PROTOCOL,
            "connection_file": str(path),
            "cwd": str(cwd),
        }
        self._lifeline, answer = dial.open_line_starting(state_root, question, environ)
        self._session_dir = Path(answer["session_dir"])
        self._connection_file, self._state_root = path, state_root

    def _register(self, cwd: Path) -> None:
        assert self._state_root is not None
        line: dict[str, Any] = {
            "type": wire.ATTACH,
            "protocol": wire.PROTOCOL,
            "connection_file": str(self._connection_file),
            "pid": self.pid,  # pyright: ignore[reportUnknownMemberType]
            "cwd": str(cwd),
        }
        if dial.ask(self._state_root, line) is None:
            raise HostError("it ended meanwhile")

    def _told_connection_file(self) -> Path:
        manager: Any = self.parent
        name = getattr(manager, "connection_file", None)
        if not name:
            raise SettingsError("the provisioner needs a kernel manager with a connection file")
        # As the manager passes it to the kernel: under its real path.
        return Path(os.path.realpath(name))

    def _release(self) -> None:
        lifeline, self._lifeline = self._lifeline, None
        if lifeline is not None:
            lifeline.close()
