"""A Jupyter server extension of one line: the host's answers are not the end of a running cell.

Owns: adding the two message types to what the server does not track. Does not own: why (`kernelspec.UNTRACKED`).
"""

from __future__ import annotations

from typing import Any


def _jupyter_server_extension_points() -> list[dict[str, str]]:  # pyright: ignore[reportUnusedFunction]
    return [{"module": "rlm_memory_host.attach.serverext"}]


def _load_jupyter_server_extension(app: Any) -> None:  # pyright: ignore[reportUnusedFunction]
    kernels = app.kernel_manager
    kept = list(kernels.untracked_message_types)
    kernels.untracked_message_types = [*kept, *(name for name in ("comm_msg", "comm_close") if name not in kept)]
