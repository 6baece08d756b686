"""What comes next in a workflow."""

from __future__ import annotations

import cProfile
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from horae.core.model import State
from horae.core.workflows.progress import (
    End,
    Fail,
    Make,
    Skip,
    Step,
    TaskState,
    adopt,
    advance,
    label,
    results_needed,
    split_label,
)


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


@pytest.mark.parametrize(
    ("on", "state", "is_made"),
    [
        ("success", State.SUCCEEDED, True), ("success", State.FAILED, False), ("success", State.SKIPPED, False),
        ("failure", State.SUCCEEDED, False), ("failure", State.FAILED, True), ("failure", State.TIMED_OUT, True),
        ("failure", State.CANCELLED, True), ("failure", State.SKIPPED, False),
        ("end", State.SUCCEEDED, True), ("end", State.TIMED_OUT, True), ("end", State.SKIPPED, True),
    ],
)  # fmt: skip
def test_a_need_holds_by_how_the_task_ended(on: str, state: State, is_made: bool):
    spec = a_spec(first={}, second={"needs": [{"task": "first", "on": on}]})

    step = advance(spec, None, [ended("first", state)])

    assert bool(step.make) is is_made
    assert bool(step.skipped) is not is_made


def test_a_task_is_judged_only_when_all_that_it_needs_has_ended():
    spec = a_spec(a={}, b={}, both={"needs": ["a", "b"]})

    assert advance(spec, None, [ended("a", State.FAILED), ended("b", State.RUNNING)]) == Step()


def test_a_task_that_may_fail_holds_nobody_up():
    spec = a_spec(
        first={"may_fail": True}, second={"needs": ["first"]}, third={"needs": [{"task": "first", "on": "failure"}]}
    )
    first = ended("first", State.FAILED)

    assert [each.task for each in advance(spec, None, [first]).make] == ["second", "third"]
    assert the_end(spec, [first, ended("second"), ended("third")]).state is State.SUCCEEDED


def test_a_condition_that_does_not_hold_skips_and_one_that_cannot_be_decided_fails():
    spec = a_spec(first={}, second={"needs": ["first"], "if": "first.result.n > data.least"})

    assert advance(spec, {"least": 1}, [ended("first", result={"n": 2})]).make == (Make("second", None, None),)
    [skip] = advance(spec, {"least": 3}, [ended("first", result={"n": 2})]).skipped
    assert skip == Skip("second", "its condition does not hold: first.result.n > data.least")
    step = advance(spec, {"least": 3}, [ended("first", result=[])])
    assert step.failed == (Fail("second", None, "if: there is no first.result.n: first.result is a list of 0"),)
    assert step.end is not None
    assert step.end.message == "a task failed: second"


def test_data_is_rendered_and_what_cannot_be_fails_its_task():
    spec = a_spec(first={}, second={"needs": ["first"], "data": {"all": "${first.result}", "x": "${data.x.y}"}})

    [make] = advance(spec, {"x": {"y": 1}}, [ended("first", result=[1, {"a": None}])]).make
    assert make.data == {"all": [1, {"a": None}], "x": 1}
    step = advance(spec, {}, [ended("first")])
    assert step.failed == (Fail("second", None, "data: there is no data.x: data is a mapping without it"),)
    large = advance(spec, {"x": {"y": 1}}, [ended("first", result="x" * 300_000)])
    assert large.failed[0].message == "data: it is more than 256 KiB as JSON"


# ── fan-out ──

SPREAD = {"for_each": "${data.list}", "data": {"x": "${item}", "n": "${index}"}}


def items(name: str, *states: State, results: bool = True) -> list[TaskState]:
    return [TaskState(name, index, index, state, index if results else None) for index, state in enumerate(states)]


def test_a_fan_out_makes_a_run_for_each_item_and_what_needs_it_sees_results_in_their_order():
    spec = a_spec(each=SPREAD, after={"needs": ["each"], "data": {"all": "${each.results}", "how": "${each.state}"}})
    data = {"list": ["a", "b", "c"]}

    step = advance(spec, data, [])
    assert step.make == tuple(Make("each", n, {"x": x, "n": n}) for n, x in enumerate("abc"))
    done = items("each", *[State.SUCCEEDED] * 3)
    assert advance(spec, data, done[:2] + items("each", *[State.RUNNING] * 3)[2:]) == Step()
    [make] = advance(spec, data, [done[2], done[0], done[1]]).make
    assert make.data == {"all": [0, 1, 2], "how": "succeeded"}


def test_a_fan_out_over_nothing_has_succeeded():
    spec = a_spec(each=SPREAD, after={"needs": ["each"], "data": {"all": "${each.results}"}})

    assert advance(spec, {"list": []}, []).make == (Make("after", None, {"all": []}),)


def test_a_fan_out_fails_with_an_item_unless_it_may():
    states = [State.SUCCEEDED, State.FAILED, State.SUCCEEDED]
    data = {"list": [1, 2, 3]}

    assert the_end(a_spec(each=SPREAD), items("each", *states), data).message == "a task failed: each (1 of 3)"
    lenient = a_spec(each={**SPREAD, "may_fail": True}) | {"returns": "${each.results}"}
    end = the_end(lenient, [TaskState("each", n, n, s, n if n != 1 else None) for n, s in enumerate(states)], data)
    assert (end.state, end.result) == (State.SUCCEEDED, [0, None, 2])


def test_only_so_many_items_go_on_at_once():
    spec = a_spec(each={**SPREAD, "at_once": 2})
    data = {"list": [1, 2, 3, 4]}

    assert [make.index for make in advance(spec, data, []).make] == [0, 1]
    assert advance(spec, data, items("each", State.RUNNING, State.QUEUED)) == Step()
    assert [make.index for make in advance(spec, data, items("each", State.RUNNING, State.FAILED)).make] == [2]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"a": 1}, "for_each: a list expected, got a mapping"),
        (None, "for_each: a list expected, got null"),
        ([0] * 10_001, "for_each: at most 10,000 items, got 10,001"),
    ],
)
def test_what_is_no_list_fails_the_fan_out(value: object, words: str):
    assert advance(a_spec(each=SPREAD), {"list": value}, []).failed == (Fail("each", None, words),)


def test_an_item_whose_data_cannot_be_fails_alone():
    spec = a_spec(each={"for_each": "${data.list}", "at_once": 1, "data": {"x": "${item.file}"}})

    step = advance(spec, {"list": [{}, {"file": "a"}, {"file": "x" * 300_000}]}, [])

    assert step.failed == (Fail("each", 0, "data: there is no item.file: item is a mapping without it"),)
    assert step.make == (Make("each", 1, {"x": "a"}),)
    step = advance(spec, {"list": [{"file": "a"}, {"file": "x" * 300_000}]}, items("each", State.SUCCEEDED))
    assert step.failed == (Fail("each", 1, "data: at most 256 KiB as JSON, got 292 KiB"),)
    assert step.end is not None


def test_a_large_result_that_is_named_often_is_refused_before_it_is_written_out():
    result = ["x" * 1_000_000]
    often = ["${first.result} and more"] * 5000
    spec = a_spec(first={}, second={"needs": ["first"], "data": {"all": often}})

    step = advance(spec, None, [ended("first", result=result)])
    assert step.failed == (Fail("second", None, "data: it is more than 256 KiB as JSON"),)
    end = the_end(a_spec(first={}) | {"returns": often}, [ended("first", result=result)])
    assert end.message == "returns: it is more than 2 MiB as JSON"
    spread = a_spec(first={}, each={"needs": ["first"], "for_each": often})
    assert advance(spread, None, [ended("first", result=result)]).failed[0].message == (
        "for_each: it is more than 2 MiB as JSON"
    )
    many = a_spec(each={"for_each": list(range(10_000)), "data": {"all": "${data.text}"}})
    assert "more than 64 MiB" in advance(many, {"text": "x" * 10_000}, []).failed[0].message


# ── ends ──


def the_end(spec: dict, tasks: list[TaskState], data: dict | None = None) -> End:
    end = advance(spec, data, tasks).end
    assert end is not None
    return end


def test_a_workflow_returns_what_it_says_or_says_why_not():
    spec = a_spec(a={}) | {"returns": {"n": "${a.result.n}"}}

    assert the_end(spec, [ended("a", result={"n": 4})]) == End(State.SUCCEEDED, "", "", {"n": 4})
    assert the_end(spec, [ended("a")]) == End(
        State.FAILED, "error", "returns: there is no a.result.n: a.result is null"
    )


def test_a_cancelled_workflow_makes_nothing_and_ends_with_its_last_task():
    spec = a_spec(a={}, b={"needs": ["a"]}, c={})

    assert advance(spec, None, [ended("a"), ended("c", State.RUNNING)], cancelled=True) == Step()
    end = advance(spec, None, [ended("a"), ended("c", State.CANCELLED)], cancelled=True).end
    assert end is not None
    assert (end.state, end.reason) == (State.CANCELLED, "requested")


def test_the_message_names_a_few_tasks_that_failed():
    spec = a_spec(**{name: {} for name in "abcde"})

    assert the_end(spec, [ended(name, State.FAILED) for name in "abcde"]).message == "tasks failed: a, b, c and 2 more"


# ── results ──


def test_only_results_that_somebody_refers_to_are_needed():
    spec = a_spec(
        a={}, b={"needs": ["a"], "if": "a.state == 'x'"}, c={"needs": ["b"], "data": {"x": ["${b.result.y}"]}},
        d={"needs": ["c"], "for_each": "${c.result}"},
    ) | {"returns": "${d.results}"}  # fmt: skip

    assert results_needed(spec) == {"b", "c", "d"}
    assert results_needed(spec, [ended("a", State.RUNNING)]) == set()
    assert results_needed(spec, [ended("a"), ended("b", State.RUNNING)]) == set()
    assert results_needed(spec, [ended("a"), ended("b"), ended("c", State.RUNNING)]) == set()
    assert results_needed(spec, [ended("a"), ended("b"), ended("c"), *items("d", State.RUNNING)]) == {"c"}
    assert "d" in results_needed(spec, [ended("a"), ended("b"), ended("c"), *items("d", State.SUCCEEDED)])


# ── retry from where it failed ──


def test_a_retry_adopts_what_succeeded_and_whose_needs_did():
    spec = a_spec(
        a={}, b={"needs": ["a"]}, c={"needs": ["a"]}, d={"needs": ["b", "c"]},
        clean={"needs": [{"task": "b", "on": "failure"}]},
        no={"needs": ["a"], "if": "a.result"}, after={"needs": [{"task": "no", "on": "end"}]},
    )  # fmt: skip
    failed = {"b": State.FAILED, "d": State.SKIPPED, "no": State.SKIPPED}
    tasks = [ended(name, failed.get(name, State.SUCCEEDED)) for name in spec["tasks"]]

    kept = adopt(spec, tasks)

    assert [each.name for each in kept] == ["a", "c", "after"]
    step = advance(spec, None, kept)
    assert ([each.task for each in step.make], [each.task for each in step.skipped]) == (["b"], ["no"])


def test_a_retry_adopts_items_one_by_one():
    spec = a_spec(each=SPREAD, after={"needs": ["each"]})
    tasks = [*items("each", State.SUCCEEDED, State.FAILED, State.SUCCEEDED), ended("after", State.SKIPPED)]

    kept = adopt(spec, tasks)

    assert [each.index for each in kept] == [0, 2]
    assert [make.index for make in advance(spec, {"list": ["a", "b", "c"]}, kept).make] == [1]


def test_labels_of_tasks_read_back():
    for name, index in (("convert", None), ("convert", 17), ("a-b_c", 0)):
        assert split_label(label(name, index)) == (name, index)


# ── whatever happens ──


@st.composite
def graphs(draw: st.DrawFn) -> tuple[dict, dict]:
    """A workflow of any form, and how each of its tasks would end."""
    tasks: dict[str, dict] = {}
    fates: dict[str, State] = {}
    for number in range(draw(st.integers(1, 7))):
        name = f"t{number}"
        task: dict = {"job": name}
        if tasks:
            needed = draw(st.lists(st.sampled_from(sorted(tasks)), max_size=3, unique=True))
            ons = st.sampled_from(["success", "success", "failure", "end"])
            task["needs"] = [{"task": each, "on": draw(ons)} for each in needed]
            if needed and draw(st.booleans()):
                view = "results" if "for_each" in tasks[needed[0]] else "result"
                wanted = draw(
                    st.sampled_from([f"{needed[0]}.{view}", f"{needed[0]}.state == 'failed'", f"{needed[0]}.{view}[0]"])
                )
                task["if"] = wanted
                task["data"] = {"from": f"${{{needed[0]}.{view}}}"}
        if draw(st.integers(0, 2)) == 0:
            task["for_each"] = draw(st.sampled_from([[], [1], [1, 2, 3, 4], "${data.list}", "${data.missing}"]))
            task |= draw(st.sampled_from([{}, {"at_once": 1}, {"at_once": 2}]))
        task["may_fail"] = draw(st.booleans())
        tasks[name] = task
        for label_ in [name, *(f"{name}[{n}]" for n in range(5))]:
            fates[label_] = draw(
                st.sampled_from([State.SUCCEEDED] * 3 + [State.FAILED, State.TIMED_OUT, State.CANCELLED])
            )
    return {"tasks": tasks, "returns": {"all": [f"${{{name}.state}}" for name in tasks]}}, fates


DATA = {"list": [5, 6, 7]}


def played(
    spec: dict, fates: dict, random: Any, old: list[TaskState] | None = None
) -> tuple[dict, End, list[TaskState]]:
    """Run a workflow; what goes on ends in any order, one or several between two steps."""
    tasks = {label(each.name, each.index): each for each in old or []}
    words: dict[str, str] = {}
    for _ in range(1000):
        step = advance(spec, DATA, shuffled(tasks, random))
        assert len(made_by(step)) == len(set(made_by(step)))
        assert tasks.keys().isdisjoint(made_by(step))
        for make in step.make:
            tasks[label(make.task, make.index)] = TaskState(make.task, make.index, 1, State.QUEUED)
        for skip in step.skipped:
            tasks[skip.task] = TaskState(skip.task, None, 1, State.SKIPPED)
            words[skip.task] = skip.message
        for fail in step.failed:
            tasks[label(fail.task, fail.index)] = TaskState(fail.task, fail.index, 1, State.FAILED)
            words[label(fail.task, fail.index)] = fail.message
        again = advance(spec, DATA, shuffled(tasks, random))
        assert again == Step(end=step.end)
        if step.end is not None:
            assert all(each.state.is_terminal for each in tasks.values())
            return {name: each.state for name, each in tasks.items()} | words, step.end, list(tasks.values())
        live = [name for name, each in tasks.items() if not each.state.is_terminal]
        assert live, "it neither goes on nor ends"
        for name in random.sample(live, random.randint(1, len(live))):
            each, fate = tasks[name], fates[name]
            tasks[name] = TaskState(each.name, each.index, 1, fate, [name] if fate is State.SUCCEEDED else None)
    raise AssertionError("it never ends")


def made_by(step: Step) -> list[str]:
    parts = [
        *((one.task, one.index) for one in (*step.make, *step.failed)),
        *((one.task, None) for one in step.skipped),
    ]
    return [label(*part) for part in parts]


def shuffled(tasks: dict[str, TaskState], random: Any) -> list[TaskState]:
    found = list(tasks.values())
    random.shuffle(found)
    return found


@settings(max_examples=200, deadline=None)
@given(graphs(), st.randoms(use_true_random=False))
def test_in_whatever_order_tasks_end_the_same_is_made_and_the_workflow_ends_alike(graph: tuple, random: Any):
    spec, fates = graph

    first, end, _ = played(spec, fates, random)
    second, other_end, _ = played(spec, fates, random)

    assert first == second
    assert end == other_end


@settings(max_examples=100, deadline=None)
@given(graphs(), st.randoms(use_true_random=False))
def test_a_retry_after_which_all_goes_well_is_as_if_it_had_at_once(graph: tuple, random: Any):
    spec, fates = graph
    well = dict.fromkeys(fates, State.SUCCEEDED)
    _, _, before = played(spec, fates, random)

    kept = adopt(spec, before)
    again, end, _ = played(spec, well, random, kept)

    assert (again, end) == played(spec, well, random)[:2]
    assert all(each.state is State.SUCCEEDED for each in kept)


@settings(max_examples=100, deadline=None)
@given(graphs(), st.randoms(use_true_random=False))
def test_results_that_are_not_needed_change_nothing(graph: tuple, random: Any):
    spec, fates = graph
    _, _, tasks = played(spec, fates, random)
    some = random.sample(tasks, random.randint(0, len(tasks)))
    needed = results_needed(spec, some)

    bare = [each if each.name in needed else TaskState(each.name, each.index, 1, each.state) for each in some]

    assert advance(spec, DATA, bare) == advance(spec, DATA, some)


def test_ten_thousand_items_are_no_more_than_ten_times_the_work_of_one_thousand():
    spec = a_spec(each=SPREAD, after={"needs": ["each"], "data": {"all": "${each.results}"}})

    def calls(count: int) -> int:
        """Return how many functions are called: the same on every machine."""
        profile = cProfile.Profile()
        data, tasks = {"list": list(range(count))}, items("each", *[State.SUCCEEDED] * (count - 1), State.RUNNING)
        profile.enable()
        advance(spec, data, [])
        advance(spec, data, tasks)
        profile.disable()
        return sum(entry.callcount for entry in profile.getstats())

    assert calls(10_000) < 12 * calls(1000)
