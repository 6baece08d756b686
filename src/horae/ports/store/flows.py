"""Workflows under way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from horae.core.runs.flows import Flow, Move, Moved, Parent, Task


class Flows(Protocol):
    """Runs that wait for their tasks. The graph stays with its run until that is dropped from history."""

    async def load_parents(self, run_ids: Sequence[int]) -> list[Parent]:
        """Live runs that may become parents."""

    async def load_flows(self, run_ids: Sequence[int]) -> list[Flow]:
        """Those of these runs that have a graph; ended ones too."""

    async def load_tasks(self, parent_ids: Sequence[int]) -> list[Task]:
        """All tasks of these, live and ended, without results."""

    async def load_busy(self, fan_outs: Sequence[tuple[int, str]]) -> set[tuple[int, str]]:
        """Of (run, task) those of which an item is live."""

    async def load_results(self, run_ids: Sequence[int]) -> dict[int, str]:
        """Run → its result, JSON text, for those ended ones that have one."""

    async def move_flows(self, moves: Sequence[Move]) -> Moved:
        """Each move happens only if its flow has that version and its run still waits, or, at its beginning, if its run
        is running under that fence: then it waits from now on, blocked(children), and holds no slot. In one transaction
        for all: tasks are made as `enqueue` makes runs, those of jobs that are gone fail; unrun ones become history;
        live ones are cancelled, as `cancel` does; runs that end become history, and a successor takes their gate; the
        rows of the outbox are dropped. A run that somebody wants cancelled when it begins makes no tasks."""
