"""Horae: a distributed job scheduler."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from horae.handlers import Cancel, Cancellation, Context, Retry, handler, provider

if TYPE_CHECKING:
    from horae.app.embedding import embedded
    from horae.client import Client
    from horae.inbox import enqueue, wake

__version__ = "0.1.0"

__all__ = [
    "Cancel",
    "Cancellation",
    "Client",
    "Context",
    "Retry",
    "__version__",
    "embedded",
    "enqueue",
    "handler",
    "provider",
    "wake",
]


def __getattr__(name: str) -> Any:
    """Load what is asked for: a handler's process and the command line do without."""
    if name == "Client":
        from horae.client import Client

        return Client
    if name in ("enqueue", "wake"):
        from horae import inbox

        return getattr(inbox, name)
    if name == "embedded":
        from horae.app.embedding import embedded

        return embedded
    raise AttributeError(f"module 'horae' has no attribute {name!r}")
