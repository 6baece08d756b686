"""The timers of a cluster: the same for all its nodes, or one would declare another gone that merely beats slower.

They are kept in the store. Whoever starts while others live takes what they have; whoever starts alone, all others
gone or silent, brings its own. After it has joined, a node looks once more: of two that started at once with timers of
their own, one finds the other's, and does not go on.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import msgspec
import structlog

from horae.core.model import SECOND
from horae.errors import ConfigError
from horae.ports.store.moments import StoreClock
from horae.ports.store.vault import Settings

log = structlog.get_logger()

NAME = "timers"
SILENT_LEASES = 2  # after so many leases without a beat nobody's timers bind anybody


class Timers(NamedTuple):
    """As the settings of these names."""

    heartbeat_interval: float
    lease: float
    worker_timeout: float
    scheduler_mode: str


class TimerStore(Settings, StoreClock, Protocol):
    """Where the timers are kept."""


async def agree(store: TimerStore, node: str, ours: Timers) -> Timers:
    """Return the timers that this node must have."""
    mine = msgspec.json.encode(ours._asdict()).decode()
    kept = await store.keep_setting(NAME, mine)
    while kept != mine:
        theirs = _read(kept, ours)
        since = await store.now() - round(SILENT_LEASES * theirs.lease * SECOND)
        if not await store.replace_setting(NAME, kept, mine, unless_beaten_since=since):
            if (again := await store.get_setting(NAME)) == kept:
                _warn(node, ours, theirs)
                return theirs
            kept = again or mine
        else:
            log.info("timers.set", node=node, **ours._asdict())
            kept = mine
    return ours


async def confirm(store: Settings, ours: Timers) -> None:
    """Refuse to go on when another node has set others meanwhile."""
    kept = await store.get_setting(NAME)
    theirs = ours if kept is None else _read(kept, ours)
    if theirs != ours:
        raise ConfigError(
            f"another node that started at the same time has set other timers: {_listed(ours, theirs)}",
            code="E_TIMERS",
            path=_different(ours, theirs)[0],
            hint="start this node again: it takes those of the cluster",
        )


def _read(text: str, ours: Timers) -> Timers:
    """Return what a version without one of them has kept says nothing of it."""
    known = msgspec.json.decode(text)
    return Timers(**{name: known.get(name, value) for name, value in ours._asdict().items()})


def _different(ours: Timers, theirs: Timers) -> list[str]:
    return [name for name in Timers._fields if getattr(ours, name) != getattr(theirs, name)]


def _listed(ours: Timers, theirs: Timers) -> str:
    return ", ".join(
        f"{name} {getattr(theirs, name)} instead of {getattr(ours, name)}" for name in _different(ours, theirs)
    )


def _warn(node: str, ours: Timers, theirs: Timers) -> None:
    log.warning(
        "timers.differ", node=node, taken=_listed(ours, theirs), because="all nodes of a cluster have the same",
        hint="to change them, stop all nodes: the first that starts brings its own",
    )  # fmt: skip
