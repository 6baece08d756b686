"""Queues: where runs wait for an agent, and what holds for all that wait there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from horae.core.model import Moment

DEFAULT_QUEUE = 0  # the id of the queue of jobs that name none
DEFAULT_NAME = "default"
HEAVIEST = 1000  # weight of a share


class QueueState(StrEnum):
    OPEN = "open"
    PAUSED = "paused"  # nothing starts; what comes waits
    DRAINING = "draining"  # nothing new is taken; what waits is started


@dataclass(frozen=True, slots=True)
class Queue:
    id: int
    name: str
    state: QueueState = QueueState.OPEN
    priority_offset: int = 0  # added to the priority of its runs when queues are compared
    labels: tuple[str, ...] = ()  # an agent must have all of them to take from it
    kinds: tuple[str, ...] = ()  # of work that it takes; empty: every kind
    concurrency: int | None = None  # runs of it that may run at once
    rate: str | None = None  # starts, such as 100/min (core.policy.limits)
    burst: int = 1  # starts at once, under a rate
    weights: Mapping[str, int] = field(default_factory=dict)  # of shares; one that is not named has 1
    most_waiting: int | None = None  # runs of one owner that may wait
    version: int = 1
    created_at: Moment = 0
    updated_at: Moment = 0

    def weight_of(self, share: str) -> int:
        return self.weights.get(share, 1)
