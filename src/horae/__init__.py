"""Horae: a distributed job scheduler."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from horae.app.embedding import embedded
    from horae.client import Client, SyncClient
    from horae.handlers import CallFailed, Cancel, Cancellation, Context, Pause, Retry, handler, provider
    from horae.inbox import enqueue, wake

__version__ = "0.1.0"

__all__ = [
    "CallFailed",
    "Cancel",
    "Cancellation",
    "Client",
    "Context",
    "Pause",
    "Retry",
    "SyncClient",
    "__version__",
    "embedded",
    "enqueue",
    "handler",
    "provider",
    "wake",
]

_PLACES = {
    "Client": "horae.client",
    "SyncClient": "horae.client",
    "embedded": "horae.app.embedding",
    "enqueue": "horae.inbox",
    "wake": "horae.inbox",
    **dict.fromkeys(
        ("CallFailed", "Cancel", "Cancellation", "Context", "Pause", "Retry", "handler", "provider"), "horae.handlers"
    ),
}


def __getattr__(name: str) -> Any:
    """Load what is asked for: a handler's process does without the client, the command line without handlers."""
    if name not in _PLACES:
        raise AttributeError(f"module 'horae' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_PLACES[name]), name)
