"""Runs as spans of traces: told once they have ended, from what the books know of them.

    run ─┬─ submit    by request: when it was asked for, linked with the trace of who asked
         ├─ fire      by a trigger: from its moment until it was made
         ├─ claim     from when it could be claimed until an agent began an attempt
         ├─ attempt ── execute ── step …   (the last two are told by the agent: service.agent.spans)
         └─ run …     of each task

The leader reads the ends of runs as others read events, a batch at a time, and notes its place: what it has told is not
told again, but for the last batch if it dies. Nobody waits for it, and no run costs a statement of its own. What never
began has no trace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Protocol

import structlog

from horae.core.events import EventFilter
from horae.core.model import SECOND, Attempt, Job, Moment, Run, State
from horae.core.runs import traces
from horae.ports.clock import Clock
from horae.ports.store.definitions import Definitions
from horae.ports.store.events import Events
from horae.ports.store.runs import Runs
from horae.ports.telemetry import Attribute, Span, SpanKind, SpanRef, SpanSink
from horae.ports.transport import Queue
from horae.service.events.places import LeadersPlace
from horae.service.roots import Roots

log = structlog.get_logger()

READER = "traces"
BATCH_GAP = 0.1  # seconds between two batches: telling must not hold up what it is about
LOOK = 1.0  # seconds after which it looks for what other nodes did
TOO_OLD = 3600 * SECOND  # what ended before that is passed by
LONGEST_MESSAGE = 1000  # characters
MOST_LINKS = 100  # of one request with the runs that it made
ENDS = EventFilter(kinds=("run.finished",))
NEVER_BEGAN = (State.SKIPPED, State.COALESCED)
FAILED = (State.FAILED, State.TIMED_OUT)


@dataclass(slots=True)
class Asking:
    """A request that is part of somebody's trace, and the runs that it made."""

    at: SpanRef
    made: list[SpanRef] = field(default_factory=list)


asking: ContextVar[Asking | None] = ContextVar("horae_asking", default=None)


class TracingStore(Events, Runs, Definitions, Protocol):
    """Ends of runs, and what they are about."""


class Tracing:
    def __init__(
        self, store: TracingStore, sink: SpanSink, queue: Queue, clock: Clock, *, installation: str, ratio: float,
        is_leader: Callable[[], bool],
    ) -> None:  # fmt: skip
        self._store = store
        self._sink = sink
        self._clock = clock
        self._installation = installation
        self._ratio = ratio
        self._roots = Roots(store)
        self._watch = queue.watch("events")
        self._place = LeadersPlace(store, READER, is_leader, store.last_event, ENDS)

    # ── orders ──
    def note_orders(self, runs: Iterable[Run]) -> None:
        """Tell that runs were asked for; within a request that is part of a trace, both are linked."""
        request, now = asking.get(), self._clock.now()
        told = []
        for run in runs:
            trace = traces.trace_id(run.id, self._installation)
            if traces.is_sampled(trace, self._ratio):
                if request is not None and len(request.made) < MOST_LINKS:
                    request.made.append(SpanRef(trace, traces.span_id(run.id)))
                told.append(self._submit_span(run, trace, request, now))
        self._sink.put(told)

    def _submit_span(self, run: Run, trace: str, request: Asking | None, now: Moment) -> Span:
        at = SpanRef(trace, traces.span_id(run.id, part="submit"))
        links = () if request is None else (request.at,)
        attributes: dict[str, Attribute] = {"horae.run.id": run.id, "horae.job.id": run.job_id}
        begun_at = min(run.created_at, now)
        return Span(at, traces.span_id(run.id), "submit", begun_at, now, attributes, SpanKind.PRODUCER, links=links)

    # ── ends ──
    async def step(self) -> None:
        """Tell of a batch of runs that ended; wait for more when there are none."""
        if not await self.tell():
            await self._watch.wait(LOOK)
        await self._clock.sleep(BATCH_GAP)

    async def tell(self) -> bool:
        """Tell of a batch; return whether there were any ends."""
        events, place = await self._place.read()
        if not events:
            return False
        oldest = self._clock.now() - TOO_OLD
        if events[0].at < oldest:
            log.warning("traces.left_out", why="it ended more than an hour ago")
            await self._place.save(max(place, await self._store.find_events(oldest)))
        else:
            self._sink.put(await self._spans_of([event.run_id for event in events if event.run_id is not None]))
            await self._place.save(place)
        return True

    async def _spans_of(self, run_ids: Sequence[int]) -> list[Span]:
        ended = [run for run in await self._store.load_runs(sorted(set(run_ids))) if run.state not in NEVER_BEGAN]
        roots = await self._roots.find(ended)
        told = [run for run in ended if self._is_told(roots[run.id])]
        if not told:
            return []
        again = [run.id for run in told if run.attempt > 1 or run.lost]
        past: dict[int, list[Attempt]] = {}
        for attempt in await self._store.load_attempts(again) if again else ():
            past.setdefault(attempt.run_id, []).append(attempt)
        jobs = {job.id: job for job in await self._store.load_jobs(sorted({run.job_id for run in told}))}
        return [
            span
            for run in told
            for span in spans_of(
                run,
                past.get(run.id, ()),
                jobs.get(run.job_id),
                traces.trace_id(roots[run.id], self._installation),
            )
        ]

    def _is_told(self, root: int) -> bool:
        return traces.is_sampled(traces.trace_id(root, self._installation), self._ratio)


# ── what is told ───────────────────────────────────────────────────────────────────────────────────


def spans_of(run: Run, past: Sequence[Attempt], job: Job | None, trace: str) -> Iterator[Span]:
    """Yield the spans of a run that has ended. `past` are its attempts before the last."""
    own, parent = traces.span_id(run.id), None if run.parent_id is None else traces.span_id(run.parent_id)
    ended_at = run.finished_at or run.created_at
    name = job.name if job is not None else f"job {run.job_id}"
    told = name if run.task is None else run.task
    yield Span(
        SpanRef(trace, own), parent, f"run {told}", min(run.due_at, run.created_at), ended_at, _about(run, job),
        failure=_failure(run.state, run.message),
    )  # fmt: skip
    if run.trigger_id is not None and run.created_at >= run.due_at:
        at = SpanRef(trace, traces.span_id(run.id, part="fire"))
        attributes: dict[str, Attribute] = {"horae.run.id": run.id, "horae.trigger.id": run.trigger_id}
        yield Span(at, own, "fire", run.due_at, run.created_at, attributes)
    since = max(run.created_at, run.due_at)
    for attempt in (*past, *_last(run)):
        yield from _attempt_spans(attempt, own, trace, since)
        since = attempt.finished_at


def _last(run: Run) -> tuple[Attempt, ...]:
    """Return the attempt that ended a run, if any did."""
    if run.started_at is None or not run.fence:
        return ()
    last = Attempt(
        run.id, run.attempt, run.fence, run.node, run.state, run.reason, run.started_at,
        run.finished_at or run.started_at, run.exit_code, run.message, run.output,
    )  # fmt: skip
    return (last,)


def _attempt_spans(attempt: Attempt, run: str, trace: str, since: Moment) -> Iterator[Span]:
    begun_at = attempt.finished_at if attempt.started_at is None else attempt.started_at
    waited = SpanRef(trace, traces.span_id(attempt.run_id, attempt.fence, "claim"))
    attributes: dict[str, Attribute] = {
        "horae.run.id": attempt.run_id, "horae.run.attempt": attempt.attempt, "horae.run.fence": attempt.fence,
        "horae.run.state": attempt.state.word, "horae.run.reason": str(attempt.reason),
    }  # fmt: skip
    if attempt.node is not None:
        attributes["horae.node"] = attempt.node
    if attempt.exit_code is not None:
        attributes["process.exit.code"] = attempt.exit_code
    yield Span(waited, run, "claim", min(since, begun_at), begun_at, {"horae.run.id": attempt.run_id})
    at = SpanRef(trace, traces.span_id(attempt.run_id, attempt.fence))
    yield Span(
        at, run, f"attempt {attempt.attempt}", begun_at, attempt.finished_at, attributes,
        failure=_failure(attempt.state, attempt.message),
    )  # fmt: skip


def _about(run: Run, job: Job | None) -> dict[str, Attribute]:
    about: dict[str, Attribute] = {
        "horae.run.id": run.id, "horae.job.id": run.job_id, "horae.job.kind": run.kind,
        "horae.run.state": run.state.word, "horae.run.reason": str(run.reason), "horae.run.attempts": run.attempt,
    }  # fmt: skip
    if job is not None:
        about |= {"horae.job.name": job.name, "horae.job.owner": job.owner}
    if run.parent_id is not None:
        about |= {"horae.run.parent": run.parent_id, "horae.run.task": run.task or ""}
    return about


def _failure(state: State, message: str) -> str | None:
    return (message or state.word)[:LONGEST_MESSAGE] if state in FAILED else None
