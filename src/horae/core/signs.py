"""Signs of life: what nodes say of themselves, and what they are told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from horae.core.model import OperatorWish
from horae.core.runs.holdings import Holding


@dataclass(frozen=True, slots=True)
class Beat:
    """The answer to a node's sign of life."""

    cancel: list[tuple[int, int]]  # (run id, fence) of its runs that shall stop
    wanted: OperatorWish = OperatorWish.LIVE  # see Node.wanted
    in_doubt: bool = False  # the store may have lost claims: the agent must compare what it holds (Link.disown)
    differs: bool = False  # what it said to hold is not what the books say: something may be under way, or lost


class Sign(NamedTuple):
    """A node's sign of life."""

    name: str
    busy: int
    session: int | None = None  # under which it is given: see Store.register_node
    held: Holding | None = None  # what the node holds, where it says so
    free: Mapping[str, int] | None = None  # of its resources (see Node.free), where it says so


class NewLine(NamedTuple):
    """A connection of a remote agent to a server."""

    name: str  # of the agent
    identity: str  # see Node.identity
    via: str  # the server
    line: str  # its own name


class Terms(NamedTuple):
    """What a service tells an agent that joins."""

    lease_seconds: float
    heartbeat_seconds: float
    installation: str = ""  # its part of trace ids
    trace_ratio: float | None = None  # the share of traces of which it tells (core.runs.traces); None: of none
