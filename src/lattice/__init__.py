"""Lattice runs distributed training anywhere and keeps it running."""

from __future__ import annotations

TYPE_CHECKING = False  # typing itself takes a while to load
if TYPE_CHECKING:
    from lattice.worker import Notice, heartbeat, notice, on_notice

__version__ = "0.1.0"
__all__ = ["Notice", "__version__", "heartbeat", "notice", "on_notice"]


def __getattr__(name: str) -> object:
    # Loaded when asked for: the agent, which needs none of it, must start in a blink.
    if name in __all__:
        from lattice import worker

        return getattr(worker, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
