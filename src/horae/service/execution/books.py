"""What becomes of runs whose attempts are over: which end, and which are tried again."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

from horae.core.model import SECOND, Moment, Reason, State
from horae.core.runs import lifecycle
from horae.core.runs.calls import Calls
from horae.core.runs.orders import Held, Result, Waiting
from horae.core.runs.waits import goes_on_at, in_words
from horae.core.waits import Wait
from horae.core.work import policies
from horae.ports.store.attempts import NO_CALLS

REFUSED_WAIT = 5 * SECOND  # of a run for which an agent had less free than was believed
DOUBTFUL = (State.FAILED, State.TIMED_OUT, State.QUEUED, State.BLOCKED)  # the run may not be over


class Books:
    """What a batch of attempts comes to: runs that end, and runs that are tried again."""

    def __init__(self, now: Moment, final: Sequence[Result] = (), loss_wait: float = 0.0) -> None:
        """`loss_wait`: seconds before what was lost may begin again."""
        self.now = now
        self._after_loss = now + round(loss_wait * SECOND) if loss_wait else None
        self.final = list(final)
        self.waiting: list[Waiting] = []
        self.jobs: dict[int, int] = {}  # run → job, of those judged
        self.roots: dict[int, int] = {}  # run → the one at the top, of tasks among them
        self.calls: Mapping[int, Calls] = NO_CALLS  # what they call
        self.breakers: set[int] = set()  # runs of jobs that pause themselves when they fail too often

    @cached_property
    def run_ids(self) -> set[int]:
        """Asked once all are judged."""
        return {result.run_id for result in self.final} | {waiting.result.run_id for waiting in self.waiting}

    def unlucky(self, accepted: Collection[int]) -> Iterator[Result]:
        """Attempts that failed, ran out of time or were lost, whether or not their run is tried again."""
        results = (*self.final, *(waiting.result for waiting in self.waiting if waiting.begun))
        return (each for each in those_in_doubt(results) if each.run_id in accepted)

    def failing(self, accepted: Collection[int]) -> set[int]:
        """Return the jobs of runs that failed for good, of those that want it to have consequences."""
        failed = (State.FAILED, State.TIMED_OUT)
        ended = (each.run_id for each in self.final if each.run_id in self.breakers and each.state in failed)
        return {self.jobs[run_id] for run_id in ended if run_id in accepted}

    def judge(self, result: Result, held: Held) -> None:
        """Decide about an attempt that did not succeed."""
        self.jobs[result.run_id] = held.job_id
        if held.root is not None:
            self.roots[result.run_id] = held.root
        if "pause_after_failures" in held.policy:
            self.breakers.add(result.run_id)
        if result.state is State.BLOCKED and result.wait is not None:
            self._judge_wait(result, result.wait, held)
        elif result.state is State.QUEUED or result.reason == Reason.LOST:
            self._judge_loss(result, held)
        else:
            self._judge_failure(result, held)

    def _judge_loss(self, result: Result, held: Held) -> None:
        """A run for which its agent had less free than it asks for was not lost: it has not begun. It is not given out
        at once again: should they go on to differ about what is free, they do so in peace."""
        is_refused = result.state is State.QUEUED and result.reason == Reason.LIMIT
        reason, losses = (Reason.LIMIT, 0) if is_refused else (Reason.LOST, held.lost + 1)
        verdict = lifecycle.after_loss(lost=losses, cancel_requested=held.cancel_requested)
        lost = replace(result, state=State.FAILED, reason=reason, finished_at=result.finished_at or self.now)
        if verdict.state is not State.QUEUED:
            self.final.append(replace(lost, state=verdict.state, reason=verdict.reason))
        elif is_refused:
            self.waiting.append(Waiting(lost, self.now + REFUSED_WAIT, begun=False))
        else:
            self.waiting.append(Waiting(lost, self._after_loss, lost=True))

    def _judge_wait(self, result: Result, wait: Wait, held: Held) -> None:
        """One that is not over. What it waits for may have come already: the store sees that."""
        waits = replace(result, reason=wait.reason, finished_at=result.finished_at or self.now)
        if held.cancel_requested:
            self.final.append(replace(waits, state=State.CANCELLED, reason=Reason.REQUESTED, wait=None))
            return
        waits.message = in_words(wait, self.now)
        self.waiting.append(Waiting(waits, goes_on_at(wait, self.now), begun=False, wait=wait))

    def _judge_failure(self, result: Result, held: Held) -> None:
        verdict = lifecycle.after_failure(
            policies.policy_from_text(held.policy), state=result.state, reason=result.reason, attempt=held.attempt,
            lost=held.lost, run_id=result.run_id, final=result.final or held.cancel_requested,
            retry_after=result.retry_after,
        )  # fmt: skip
        if verdict.state is State.BLOCKED:
            self.waiting.append(Waiting(result, self.now + round(verdict.wait_seconds * SECOND)))
        else:
            self.final.append(result)


def those_in_doubt(results: Sequence[Result]) -> list[Result]:
    return [r for r in results if r.state is not State.SUCCEEDED and r.state in DOUBTFUL]
