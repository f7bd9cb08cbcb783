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
import shutil
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jupyter_client.provisioning.local_provisioner import LocalProvisioner
from rlm_memory import wire

from rlm_memory_host import settings
from rlm_memory_host.attach import dial, sandbox
from rlm_memory_host.attach.environment import kernel_environment
from rlm_memory_host.errors import HostError, SettingsError
from rlm_memory_host.settings import Settings


class MemoryProvisioner(LocalProvisioner):
    """Start an ipykernel beside a host that is there before it. One instance a kernel, over all its restarts."""

    _lifeline: socket.socket | None = None
    _state_root: Path | None = None
    _connection_file: Path | None = None
    _session_dir: Path | None = None
    _objects: Path | None = None
    _channels: Path | None = None
    """The folder of a sandboxed kernel's sockets; None without a sandbox."""

    async def pre_launch(self, **kwargs: Any) -> dict[str, Any]:
        """Have a host and a session, then give the launch arguments with the kernel's environment.

        Raises RuntimeError, which front ends show, when the settings are wrong or no host can be started: a kernel
        that was asked for with memory does not start without.
        """
        try:
            environ = _without_outer_session(kwargs.get("env") or os.environ)
            loaded = settings.load(environ=environ).settings
            bwrap = self._enter_sandbox() if loaded.kernel.sandbox == "bubblewrap" else None
            return await self._prepared(await super().pre_launch(**kwargs), loaded, bwrap)
        except HostError as error:
            self._release()
            raise RuntimeError(f"rlm-memory: {error}") from error
        except BaseException:
            self._release()
            raise

    def _enter_sandbox(self) -> str:
        """Before the connection file is written: sockets in a folder instead of ports, since there is no network."""
        bwrap = sandbox.program()
        manager: Any = self.parent
        self._channels = sandbox.channels_folder(str(self.kernel_id))  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
        manager.transport, manager.ip, manager.cache_ports = "ipc", str(self._channels / "k"), False
        # Signals of a terminal reach bwrap and not the kernel behind it.
        self.kernel_spec.interrupt_mode = "message"
        return bwrap

    async def _prepared(self, kwargs: dict[str, Any], loaded: Settings, bwrap: str | None) -> dict[str, Any]:
        given: dict[str, str] = kwargs["env"]
        environ = _without_outer_session(given)
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
        if bwrap is None:
            return {**kwargs, "env": made.variables}
        assert self._channels is not None
        assert self._connection_file is not None
        places = sandbox.Places(
            loaded.state_root, self._session_dir, self._channels, self._objects, self._connection_file, cwd
        )
        inside = sandbox.environment(made.variables)
        return {**kwargs, "env": inside, "independent": True, "cmd": sandbox.command(bwrap, places, kwargs["cmd"])}

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
        self._drop_lifeline()
        question = {
            "type": "prepare",
            "protocol": wire.PROTOCOL,
            "connection_file": str(path),
            "cwd": str(cwd),
            "objects": self._channels is not None,
        }
        self._lifeline, answer = dial.open_line_starting(state_root, question, environ)
        self._session_dir = Path(answer["session_dir"])
        self._objects = Path(answer["objects"]) if answer.get("objects") else None
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

    def _drop_lifeline(self) -> None:
        lifeline, self._lifeline = self._lifeline, None
        if lifeline is not None:
            lifeline.close()

    def _release(self) -> None:
        self._drop_lifeline()
        channels, self._channels = self._channels, None
        if channels is not None:
            shutil.rmtree(channels, ignore_errors=True)


def _without_outer_session(environ: Mapping[str, str]) -> dict[str, str]:
    """An outer RLM session's folder is not this kernel's, and no reason to refuse a state root."""
    return {name: value for name, value in environ.items() if name != "RLM_SESSION_DIR"}
