"""Runs that start as they are made: where the process that makes one has an agent with a free slot, and nothing waits.

    asked for ──► made, and given to the agent here, in one statement ──► started
        └──► anything in the way ──► enqueued, announced, claimed, as all others

It saves a run that comes alone the second statement, and the way there. A run is the agent's from the commit on: if
this process dies then, or the answer is lost, it is taken back from the node like every run that was claimed and not
begun.
"""

from __future__ import annotations

from functools import partial
from typing import Protocol

from horae.core.definitions import Receipt
from horae.core.runs.orders import Assignment, Order
from horae.errors import Unavailable
from horae.ports.clock import Clock
from horae.service.agent.agent import Agent, Made

PAUSE = 1.0  # seconds without another try, after one that something was in the way of


class Starter(Protocol):
    """The way of an agent in this process to what is ordered here (service.execution.LocalLink)."""

    def may_start_new(self, order: Order) -> bool: ...
    async def start_new(self, order: Order) -> tuple[Receipt | None, list[Assignment] | None]: ...


class AtOnce:
    def __init__(self, link: Starter, agent: Agent, clock: Clock) -> None:
        self._link = link
        self._agent = agent
        self._clock = clock
        self._not_before = float("-inf")

    async def start(self, order: Order) -> Receipt | None:
        """Make a run and start it here; None: nothing was done."""
        kind = order.run.kind
        if not self._agent.may_take_new(kind) or not self._link.may_start_new(order):
            return None
        if self._clock.elapsed() < self._not_before:
            return None
        try:
            receipt = await self._agent.take_new(kind, partial(self._make, order))
        except Unavailable:
            if order.idempotency is None:
                raise
            return None  # whether it was made, its key tells
        if receipt is None:
            self._not_before = self._clock.elapsed() + PAUSE
        return receipt

    async def _make(self, order: Order) -> Made[Receipt | None]:
        return Made(*await self._link.start_new(order))
