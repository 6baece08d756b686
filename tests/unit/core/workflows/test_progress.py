"""What comes next in a workflow."""

from __future__ import annotations

from horae.core.model import State
from horae.core.workflows.progress import Make, Skip, Step, TaskState, advance


def a_spec(**tasks: dict) -> dict:
    return {"tasks": {name: {"job": name, **task} for name, task in tasks.items()}}


def ended(name: str, state: State = State.SUCCEEDED, result: object = None) -> TaskState:
    return TaskState(name, None, 1, state, result)


def test_what_needs_nothing_is_made_first_and_what_needs_it_then():
    spec = a_spec(first={}, second={"needs": ["first"]})

    assert advance(spec, None, []) == Step(make=(Make("first", None, None),))
    assert advance(spec, None, [ended("first", State.RUNNING)]) == Step()
    assert advance(spec, None, [ended("first")]) == Step(make=(Make("second", None, None),))


def test_what_needs_a_success_is_skipped_behind_a_failure_and_so_on_down():
    spec = a_spec(first={}, second={"needs": ["first"]}, third={"needs": ["second"]})

    step = advance(spec, None, [ended("first", State.FAILED)])

    assert step.skipped == (
        Skip("second", "it needs the success of first, which has failed"),
        Skip("third", "it needs the success of second, which was skipped"),
    )
    assert step.end is not None
    assert (step.end.state, step.end.reason, step.end.message) == (State.FAILED, "children", "a task failed: first")
