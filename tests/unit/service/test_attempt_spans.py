"""What an agent tells of its attempts."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from horae.core.model import State
from horae.core.runs import traces
from horae.core.runs.orders import Assignment, Result
from horae.ports.telemetry import Span
from horae.ports.work import Step
from horae.service.agent.spans import AttemptSpans

HERE = "0123456789abcdef"


class Kept(list[Span]):
    def put(self, spans: Sequence[Span]) -> None:
        self.extend(spans)


def given(run_id: int = 7, fence: int = 3, **fields: object) -> Assignment:
    return Assignment(run_id, fence, 2, 5, None, 0, "shell", "nightly", "{}", "{}", None)._replace(**fields)


def test_an_agent_that_tells_nothing_has_its_work_part_of_the_attempt():
    spans = AttemptSpans(None, "a1")
    assert spans.begin(given(), HERE, None) == ("", False)  # made when somebody asks: most never do
    assert spans.begin(given(), HERE, 1.0) == ("", False)
    assert spans.begin(given(root=1), HERE, None) == (traces.traceparent(7, 3, HERE, root=1), False)
    parent, _ = spans.begin(given(), HERE, 0.0)
    assert parent.endswith("-00")


def test_execution_and_steps_are_told_below_the_attempt():
    sink = Kept()
    spans = AttemptSpans(sink, "a1")
    parent, has_steps = spans.begin(given(root=1), HERE, 1.0)
    spans.note_step(given(), Step(0, "build", 10, 20, 1))
    spans.end(Result(7, 3, State.FAILED, started_at=5, finished_at=25, message="build ended with exit code 1"), 30)
    step, execute = sink
    assert has_steps
    assert parent == f"00-{traces.trace_id(1, HERE)}-{execute.at.span_id}-01"
    assert (execute.name, execute.parent, execute.begun_at, execute.ended_at) == (
        "execute shell", traces.span_id(7, 3), 5, 25,
    )  # fmt: skip
    assert (execute.failure, execute.attributes["horae.node"]) == ("build ended with exit code 1", "a1")
    assert (step.name, step.parent, step.begun_at, step.failure) == ("build", execute.at.span_id, 10, "exit code 1")
    assert {span.at.trace_id for span in sink} == {traces.trace_id(1, HERE)}


@pytest.mark.parametrize("fence", [2, 4])
def test_an_attempt_that_is_another_is_told_nothing_of(fence: int):
    sink = Kept()
    spans = AttemptSpans(sink, "a1")
    spans.begin(given(), HERE, 1.0)
    spans.note_step(given(fence=fence), Step(0, "build", 10, 20, 0))
    spans.end(Result(7, fence, State.SUCCEEDED), 30)
    assert sink == []


def test_what_is_not_sampled_is_not_told():
    sink = Kept()
    spans = AttemptSpans(sink, "a1")
    parent, has_steps = spans.begin(given(), HERE, 0.0)
    spans.note_step(given(), Step(0, "build", 10, 20, 0))
    spans.end(Result(7, 3, State.SUCCEEDED), 30)
    assert (sink, has_steps, parent[-2:]) == ([], False, "00")
