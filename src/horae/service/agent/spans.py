"""What an agent tells of its attempts: that it carried them out, and their steps. The service tells of the attempt
itself, from its books: so the trace is whole also where an agent tells nothing."""

from __future__ import annotations

from horae.core.model import Moment, State
from horae.core.runs import traces
from horae.core.runs.orders import Assignment, Result
from horae.ports.telemetry import Attribute, Span, SpanKind, SpanRef, SpanSink
from horae.ports.work import Step

FAILED = (State.FAILED, State.TIMED_OUT)
LONGEST_MESSAGE = 1000  # characters


class AttemptSpans:
    def __init__(self, sink: SpanSink | None, node: str) -> None:
        """Without a sink, nothing is told."""
        self._sink = sink
        self._node = node
        self._held: dict[int, tuple[Assignment, str]] = {}  # run → its attempt and trace, of those that are told of

    @property
    def is_telling(self) -> bool:
        """Whether any attempt is told of."""
        return bool(self._held)

    def begin(self, a: Assignment, installation: str, ratio: float | None) -> tuple[str, bool]:
        """Return the traceparent of what an attempt starts, where it is not that of its run alone, and whether its
        steps are told of. `ratio` is that of the service; None: it tells of none."""
        if self._sink is None:
            if a.root is None and ratio in (None, 1.0):
                return "", False
            given = traces.traceparent(
                a.run_id, a.fence, installation, root=a.root, ratio=1.0 if ratio is None else ratio
            )
            return given, False
        part = traces.EXECUTE
        parent = traces.traceparent(
            a.run_id, a.fence, installation, root=a.root, part=part, ratio=1.0 if ratio is None else ratio
        )
        is_sampled = parent.endswith("1")
        if is_sampled:
            self._held[a.run_id] = (a, parent[3:35])
        return parent, is_sampled

    def note_step(self, a: Assignment, step: Step) -> None:
        held = self._held.get(a.run_id)
        if self._sink is None or held is None or held[0].fence != a.fence:
            return
        at = SpanRef(held[1], traces.span_id(a.run_id, a.fence, traces.step_part(step.number)))
        parent = traces.span_id(a.run_id, a.fence, traces.EXECUTE)
        attributes: dict[str, Attribute] = {
            "horae.run.id": a.run_id, "horae.step.name": step.name, "process.exit.code": step.exit_code,
        }  # fmt: skip
        failure = f"exit code {step.exit_code}" if step.exit_code else None
        self._sink.put([Span(at, parent, step.name, step.begun_at, step.ended_at, attributes, failure=failure)])

    def end(self, result: Result, now: Moment) -> None:
        held = self._held.pop(result.run_id, None)
        if self._sink is None or held is None or held[0].fence != result.fence:
            return
        a, trace = held
        at = SpanRef(trace, traces.span_id(a.run_id, a.fence, traces.EXECUTE))
        attributes: dict[str, Attribute] = {
            "horae.run.id": a.run_id, "horae.job.id": a.job_id, "horae.job.name": a.name, "horae.job.kind": a.kind,
            "horae.run.attempt": a.attempt, "horae.node": self._node, "horae.run.state": result.state.word,
        }  # fmt: skip
        ended_at = result.finished_at or now
        self._sink.put(
            [
                Span(
                    at, traces.span_id(a.run_id, a.fence), f"execute {a.kind}", result.started_at or ended_at, ended_at,
                    attributes, SpanKind.CONSUMER,
                    (result.message or result.state.word)[:LONGEST_MESSAGE] if result.state in FAILED else None,
                )
            ]
        )  # fmt: skip
