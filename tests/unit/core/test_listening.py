"""Triggers on events: how the documents are read and said, who is fired, and what the run is told."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from horae.core.model import Run, State, Trigger
from horae.core.policy.listening import fired_by, fired_by_node, followed_ids, is_following, told
from horae.core.time import schedule
from horae.core.time.moments import format_moment
from horae.core.time.outside import NodeEvent
from horae.core.work.specs import parse_job, parse_trigger
from horae.errors import Invalid
from horae.testing import START, make_job


def on(*states: str, job: int | str = "extract", **more: Any) -> dict[str, Any]:
    return {"on": {"job": job, "states": list(states), **more}}


def on_node(*states: str, node: Any = "any", **more: Any) -> dict[str, Any]:
    return {"on": {"node": node, "states": list(states), **more}}


@pytest.mark.parametrize(
    ("document", "words"),
    [
        (on("failed"), "when a run of extract failed"),
        (on("timed_out", "failed"), "when a run of extract failed or timed out"),
        (on("skipped", "cancelled", job=7), "when a run of 7 was cancelled or was skipped"),
        (on_node("joined", "gone"), "when a node is gone or has joined"),
        (on_node("draining", node="web-1"), "when the node web-1 is draining"),
    ],
)
def test_an_event_is_said_in_words_and_read_again_as_itself(document: dict[str, Any], words: str) -> None:
    read = parse_trigger(document).schedule
    assert schedule.describe(read) == words
    assert parse_trigger(read).schedule == read
    assert parse_trigger({"schedule": read}).schedule == read


def test_states_are_kept_once_in_one_order_and_the_id_is_looked_up_anew() -> None:
    read = parse_trigger(on("failed", "succeeded", "failed", id=99)).schedule
    assert read == {"on": {"job": "extract", "states": ["succeeded", "failed"]}}


def test_an_event_has_no_moment() -> None:
    compiled = schedule.compile_schedule(parse_trigger(on("failed")).schedule, seed=1, created_at=START)
    assert compiled.first() is None
    assert compiled.next_after(START + 1) is None


@pytest.mark.parametrize(
    ("document", "path", "code"),
    [
        ({"on": "extract"}, "on", "E_TYPE"),
        ({"on": {}}, "on.job", "E_REQUIRED"),
        ({"on": {"job": "extract"}}, "on.states", "E_REQUIRED"),
        (on(), "on.states", "E_EMPTY"),
        ({"on": {"job": "extract", "states": "failed"}}, "on.states", "E_TYPE"),
        (on("success"), "on.states[0]", "E_ENUM"),
        (on("failed", "running"), "on.states[1]", "E_ENUM"),
        ({"on": {"job": "extract", "states": [1]}}, "on.states[0]", "E_TYPE"),
        ({"on": {"job": "extract", "states": [[]]}}, "on.states[0]", "E_TYPE"),
        (on("failed", job=0), "on.job", "E_RANGE"),
        ({"on": {"job": True, "states": ["failed"]}}, "on.job", "E_TYPE"),
        (on("failed", when="now"), "on.when", "E_UNKNOWN_FIELD"),
        ({"on": {"node": "any"}}, "on.states", "E_REQUIRED"),
        (on_node("failed"), "on.states[0]", "E_ENUM"),
        (on_node("gone", node=""), "on.node", "E_EMPTY"),
        (on_node("gone", node=7), "on.node", "E_TYPE"),
        (on_node("gone", node="n" * 129), "on.node", "E_LEN"),
        (on_node("gone", job="extract"), "on.node", "E_FIELD_CONFLICT"),
        (on_node("gone", id=3), "on.id", "E_UNKNOWN_FIELD"),
        ({**on("failed"), "timezone": "UTC"}, "timezone", "E_UNKNOWN_FIELD"),
        ({**on("failed"), "cron": "* * * * *"}, "cron", "E_UNKNOWN_FIELD"),
    ],
)
def test_a_wrong_event_is_refused_at_its_path(document: dict[str, Any], path: str, code: str) -> None:
    with pytest.raises(Invalid) as refused:
        parse_trigger(document)
    assert (path, code) in [(problem.path, problem.code) for problem in refused.value.listed()]


def test_a_state_that_is_misspelt_is_answered_with_the_one_that_was_meant() -> None:
    with pytest.raises(Invalid) as refused:
        parse_trigger(on("timedout"))
    [problem] = refused.value.listed()
    assert problem.hint == "did you mean timed_out?"


@pytest.mark.parametrize(
    "stored",
    [
        {"on": 1},
        {"on": {}},
        {"on": {"job": "a", "states": []}},
        {"on": {"job": "a", "states": ["lost", []]}},
        on_node("failed"),
        on_node(),
    ],
)
def test_what_a_newer_node_wrote_is_said_to_be_that(stored: dict[str, Any]) -> None:
    assert "cannot be read" in schedule.in_words(stored)


def trigger(*states: str, job_id: int = 12, **fields: Any) -> Trigger:
    [made] = make_job(1, trigger_id=11, next_at=START).triggers
    return replace(made, schedule=on(*states, id=job_id), **fields)


def test_who_is_fired_listens_to_that_job_and_state_and_is_enabled() -> None:
    job = replace(make_job(1), triggers=(trigger("failed"), trigger("failed", enabled=False), trigger("succeeded")))
    assert fired_by(job, 12, State.FAILED) == [job.triggers[0]]
    assert fired_by(job, 12, State.COALESCED) == []
    assert fired_by(job, 13, State.FAILED) == []
    assert fired_by(job, 12, None) == []
    assert fired_by(replace(job, paused=True), 12, State.FAILED) == []


def test_who_listens_to_nodes_is_fired_by_that_node_and_state() -> None:
    heard = [on_node("gone"), on_node("gone", "joined", node="n1"), on_node("joined"), on("failed", id=12)]
    job = replace(make_job(1), triggers=tuple(replace(trigger("failed"), schedule=each) for each in heard))
    gone = NodeEvent("n1", "gone", "silent", START)
    assert fired_by_node(job, gone) == list(job.triggers[:2])
    assert fired_by_node(job, gone._replace(node="n2")) == [job.triggers[0]]
    assert fired_by_node(job, gone._replace(state="joined")) == list(job.triggers[1:3])
    before = min(each.created_at for each in job.triggers) - 1
    assert fired_by_node(job, gone._replace(state="joined", seen_at=before)) == []
    assert fired_by_node(job, gone._replace(seen_at=before)) == list(job.triggers[:2]), (
        "it was heard before, and is gone now"
    )
    assert fired_by_node(replace(job, paused=True), gone) == []
    assert fired_by(job, 12, State.FAILED) == [job.triggers[3]]
    assert followed_ids(job) == [12]
    assert not is_following(replace(job, triggers=job.triggers[:3]))


def test_who_listens_follows_as_who_comes_after() -> None:
    draft = parse_job({"name": "a", "handler": "a:b", "triggers": [on("failed")]})
    assert is_following(draft)
    assert followed_ids(draft) == []  # nobody has looked them up yet
    assert followed_ids(replace(make_job(1), triggers=(trigger("failed"), trigger("failed", job_id=3)))) == [3, 12]
    assert not is_following(make_job(1, trigger_id=11, next_at=START))


def test_what_it_is_told_stands_beside_the_data_of_the_trigger_or_else_of_the_job() -> None:
    run = Run(
        id=5, job_id=12, trigger_id=None, due_at=START, state=State.FAILED, reason="exit", attempt=1, fence=1,
        priority=5, kind="python", created_at=START, message="it broke", result={"a": 1},
    )  # fmt: skip
    job = replace(make_job(1), spec={"data": {"own": 1}})
    event = {
        "job": "extract", "run": 5, "state": "failed", "reason": "exit", "message": "it broke", "result": {"a": 1},
        "due_at": format_moment(START),
    }  # fmt: skip
    assert told(job, trigger("failed"), run) == {"own": 1, "event": event}
    assert told(job, trigger("failed", data={"b": 2}), run) == {"b": 2, "event": event}
    short = told(job, trigger("failed"), run, most=5)["event"]
    assert (short["result"], "too large" in short["left_out"]) == (None, True)
