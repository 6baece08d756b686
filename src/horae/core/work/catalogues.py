"""What is known of the Python handlers of a node, and of all nodes together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from horae.core.model import Moment


@dataclass(frozen=True, slots=True)
class HandlerFact:
    """What is known of one Python handler of an agent."""

    name: str  # as a job names it
    file: str
    kind: str  # async, plain or inline; empty where that cannot be told
    version: str  # of its code: the same wherever that says the same
    loaded_at: Moment | None = None  # when a worker loaded this version, if one has
    error: str = ""  # why it cannot be used
    function: str = ""  # or class, in the file


class HandlerList(NamedTuple):
    """The handlers of one node, by name."""

    items: Sequence[HandlerFact] = ()
    left_out: int = 0  # how many more there are


class Told(StrEnum):
    """What a node told of its handlers."""

    LISTED = "listed"
    SILENT = "silent"  # it did not answer in time
    UNKNOWN = "unknown"  # it cannot be asked


class NodeHandlers(NamedTuple):
    node: str
    told: Told
    handlers: HandlerList = HandlerList()
    note: str = ""  # why there are none, or not all
