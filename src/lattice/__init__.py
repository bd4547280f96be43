"""Lattice runs distributed training anywhere and keeps it running."""

from __future__ import annotations

TYPE_CHECKING = False  # typing itself takes a while to load
if TYPE_CHECKING:
    from lattice.errors import AgentFailedError, WorkerFailedError
    from lattice.launching.api import Launcher, LaunchHandle, launch
    from lattice.launching.handlers import add_filter_to_handler, file_handler, stream_handler
    from lattice.launching.result import LaunchResult
    from lattice.worker import Notice, heartbeat, notice, on_notice

__version__ = "0.1.0"
__all__ = [
    "AgentFailedError",
    "LaunchHandle",
    "LaunchResult",
    "Launcher",
    "Notice",
    "WorkerFailedError",
    "__version__",
    "add_filter_to_handler",
    "file_handler",
    "heartbeat",
    "launch",
    "notice",
    "on_notice",
    "stream_handler",
]
_PLACES = {
    "lattice.errors": ("AgentFailedError", "WorkerFailedError"),
    "lattice.launching.api": ("LaunchHandle", "Launcher", "launch"),
    "lattice.launching.handlers": ("add_filter_to_handler", "file_handler", "stream_handler"),
    "lattice.launching.result": ("LaunchResult",),
    "lattice.worker": ("Notice", "heartbeat", "notice", "on_notice"),
}


def __getattr__(name: str) -> object:
    # Loaded when asked for: the agent, which needs none of it, must start in a blink.
    for module, names in _PLACES.items():
        if name in names:
            from importlib import import_module

            return getattr(import_module(module), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
