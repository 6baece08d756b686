"""The silent form of events, for a node without a broker: nothing is made, kept or published."""

from __future__ import annotations

from collections.abc import Sequence

from horae.core.model import Job, Run
from horae.core.runs.orders import Assignment, Result
from horae.service.events import Events


class NoEvents(Events):
    def __init__(self) -> None:
        """Nobody listens."""

    def job_submitted(self, job: Job) -> None:
        return

    def job_deleted(self, job_id: int) -> None:
        return

    def job_paused(self, job: Job, because: str) -> None:
        return

    def run_queued(self, run: Run) -> None:
        return

    def runs_started(self, node: str, claimed: Sequence[Assignment]) -> None:
        return

    def run_goes_on(self, result: Result, job_id: int) -> None:
        return
