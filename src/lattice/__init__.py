"""Lattice runs distributed training anywhere and keeps it running."""

from __future__ import annotations

TYPE_CHECKING = False  # typing itself takes a while to load
if TYPE_CHECKING:
    from lattice.errors import AgentFailedError, WorkerFailedError
    from lattice.launching.api import Launcher, LaunchHandle, launch
    from lattice.launching.display.states import HostStatus
    from lattice.launching.handlers import add_filter_to_handler, file_handler, stream_handler
    from lattice.launching.kept import LogLine
    from lattice.launching.result import LaunchResult
    from lattice.roles import peers
    from lattice.worker import Notice, heartbeat, notice, on_notice

__version__ = "0.1.0"
__all__ = [
    "AgentFailedError",
    "HostStatus",
    "LaunchHandle",
    "LaunchResult",
    "Launcher",
    "LogLine",
    "Notice",
    "WorkerFailedError",
    "__version__",
    "add_filter_to_handler",
    "file_handler",
    "heartbeat",
    "launch",
    "notice",
    "on_notice",
    "peers",
    "stream_handler",
]
_PLACES = {
    "lattice.errors": ("AgentFailedError", "WorkerFailedError"),
    "lattice.launching.api": ("LaunchHandle", "Launcher", "launch"),
    "lattice.launching.display.states": ("HostStatus",),
    "lattice.launching.handlers": ("add_filter_to_handler", "file_handler", "stream_handler"),
    "lattice.launching.kept": ("LogLine",),
    "lattice.launching.result": ("LaunchResult",),
    "lattice.roles": ("peers",),
    "lattice.worker": ("Notice", "heartbeat", "notice", "on_notice"),
}
_PARTS = ("checkpoint", "rl")
"""packages of which the import of Lattice itself is enough"""


def __getattr__(name: str) -> object:
    # Loaded when asked for: the agent, which needs none of it, must start in a blink.
    from importlib import import_module

    for module, names in _PLACES.items():
        if name in names:
            return getattr(import_module(module), name)
    if name in _PARTS:
        return import_module(f"lattice.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_PARTS})
