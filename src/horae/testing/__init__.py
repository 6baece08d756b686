"""For tests of jobs, ours and users': a handler called with a context, a whole Horae on a virtual clock, and a clock
that moves when told.

Loaded piece by piece: a pytest that has the plugin and no test of jobs pays for none of it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from horae.testing.calls import Handled, run_handler, run_handler_async
    from horae.testing.clock import START, FakeClock, changed, make_job
    from horae.testing.worlds import AsyncWorld, World, world

_HOMES = {
    **dict.fromkeys(("START", "FakeClock", "changed", "make_job"), "clock"),
    **dict.fromkeys(("Handled", "run_handler", "run_handler_async"), "calls"),
    **dict.fromkeys(("AsyncWorld", "World", "world"), "worlds"),
}

__all__ = [
    "START",
    "AsyncWorld",
    "FakeClock",
    "Handled",
    "World",
    "changed",
    "make_job",
    "run_handler",
    "run_handler_async",
    "world",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'horae.testing' has no attribute {name!r}")
    return getattr(import_module(f"horae.testing.{_HOMES[name]}"), name)
