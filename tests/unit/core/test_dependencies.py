"""Jobs that come after others: how the documents are read, how a run is judged, and what it is given."""

from __future__ import annotations

import json
from itertools import pairwise, permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horae.core.jobdata import MAX_DATA
from horae.core.model import SECOND, After, Policy, State
from horae.core.policy.dependencies import (
    Predecessor,
    Seen,
    Verb,
    cycle_of,
    is_coming,
    judge,
    makers,
    merged,
    refuse_cycle,
)
from horae.core.work.specs import parse_job
from horae.errors import Invalid
from horae.testing import START, changed, make_job

LIVE = (State.QUEUED, State.RUNNING, State.BLOCKED)
ENDED = (State.SUCCEEDED, State.FAILED, State.TIMED_OUT, State.CANCELLED, State.SKIPPED)
afters = st.builds(
    After, st.sampled_from(["a", "b", 7]), st.sampled_from(["success", "failure", "end"]), st.just("same")
)
seen = st.none() | st.builds(Seen, st.integers(1, 99), st.sampled_from((*LIVE, *ENDED)), st.none())
predecessors = st.builds(Predecessor, afters, seen, st.sampled_from(["", "which was deleted"]))


def known(on: str, state: State | None, missing: str = "") -> Predecessor:
    return Predecessor(After("extract", on), None if state is None else Seen(12, state), missing)


# ── reading ──


def test_a_document_names_jobs_by_key_or_id():
    policy = parse_job({"name": "a", "handler": "a:b", "after": ["extract", 7, {"job": "x", "on": "end"}]}).policy
    assert policy.after == (After("extract"), After(7), After("x", "end"))


@pytest.mark.parametrize(
    ("after", "path", "code"),
    [
        ("extract", "after", "E_TYPE"),
        ([3.5], "after[0].job", "E_TYPE"),
        ([0], "after[0].job", "E_RANGE"),
        ([{"on": "end"}], "after[0].job", "E_REQUIRED"),
        ([{"job": "a", "on": "ends"}], "after[0].on", "E_ENUM"),
        ([{"job": "a", "moment": "last"}], "after[0].moment", "E_ENUM"),
        ([{"job": "a", "when": "x"}], "after[0].when", "E_UNKNOWN_FIELD"),
        (["a", {"job": "a", "on": "end"}], "after[1]", "E_FIELD_CONFLICT"),
        (["a"] * 51, "after", "E_LIMIT"),
    ],
)
def test_what_is_wrong_is_told_at_its_path(after: Any, path: str, code: str):
    with pytest.raises(Invalid) as raised:
        parse_job({"name": "a", "handler": "a:b", "after": after})
    assert (path, code) in [(problem.path, problem.code) for problem in raised.value.listed()]


# ── cycles ──


@given(st.dictionaries(st.integers(1, 8), st.lists(st.integers(1, 8), max_size=4), max_size=8))
def test_a_cycle_is_found_where_there_is_one_and_is_one(after: dict[int, list[int]]):
    path = cycle_of(after)
    reach = {job: set(before) for job, before in after.items()}
    for _ in range(8):
        reach = {job: before | {far for near in before for far in reach.get(near, ())} for job, before in reach.items()}
    assert bool(path) == any(job in before for job, before in reach.items())
    assert all(later in after[earlier] for earlier, later in pairwise(path))
    assert not path or path[0] == path[-1]


def test_a_cycle_is_told_from_the_job_that_closes_it():
    with pytest.raises(Invalid, match="load after extract after load") as raised:
        refuse_cycle({1: [2], 2: [1]}, {1: "extract", 2: "load"}, [2])
    assert raised.value.code == "E_CYCLE"


# ── judging ──


@pytest.mark.parametrize("state", ENDED)
@pytest.mark.parametrize("on", ["success", "failure", "end"])
def test_how_a_run_ended_decides(on: str, state: State):
    met = {
        "success": state is State.SUCCEEDED,
        "failure": state in (State.FAILED, State.TIMED_OUT, State.CANCELLED),
        "end": True,
    }
    assert judge([known(on, state)], START).verb is (Verb.GO if met[on] else Verb.NEVER)


@pytest.mark.parametrize("state", [*LIVE, None])
def test_what_is_still_to_end_is_waited_for(state: State | None):
    verdict = judge([known("end", state)], START)
    assert verdict.verb is Verb.WAIT
    assert verdict.sentence.startswith("waits for extract, due 2027-01-15T08:00:00Z, which is ")


@given(st.lists(predecessors, max_size=4))
def test_the_verdict_does_not_depend_on_the_order(them: list[Predecessor]):
    assert len({judge(order, START).verb for order in permutations(them)}) == 1


@given(st.lists(predecessors, max_size=4), predecessors)
def test_who_is_never_to_go_stays_so_whatever_else_becomes_known(them: list[Predecessor], more: Predecessor):
    if judge(them, START).verb is Verb.NEVER:
        assert judge([*them, more], START).verb is Verb.NEVER


@given(st.lists(predecessors, max_size=4))
def test_a_verdict_is_that_of_the_worst(them: list[Predecessor]):
    each = [judge([one], START).verb for one in them]
    worst = next((verb for verb in (Verb.NEVER, Verb.WAIT) if verb in each), Verb.GO)
    assert judge(them, START).verb is worst


# ── what may still come ──


def test_a_moment_comes_while_a_trigger_has_it_before_it():
    job = make_job(trigger_id=10, schedule={"every": "1m"}, next_at=START + 60 * SECOND)
    assert is_coming(job, START + 60 * SECOND)
    assert is_coming(job, START + 180 * SECOND)
    assert not is_coming(job, START + 90 * SECOND)
    assert not is_coming(job, START)
    assert not is_coming(changed(job, paused=True), START + 60 * SECOND)


def test_ends_make_runs_of_jobs_without_triggers_only():
    after = (After("a", id=1), After("b", moment="latest", id=2))
    assert makers(make_job(policy=Policy(after=after))) == after[:1]
    assert makers(make_job(policy=Policy(after=after[1:]))) == after[1:]
    assert makers(make_job(trigger_id=10, next_at=START, policy=Policy(after=after))) == ()


# ── data ──


def test_a_run_is_given_what_its_predecessors_said():
    them = [Predecessor(After("extract", id=3), Seen(12, State.SUCCEEDED, {"rows": 7}))]
    assert merged({"mode": "full"}, them) == {
        "mode": "full", "after": {"extract": {"run": 12, "state": "succeeded", "result": {"rows": 7}}},
    }  # fmt: skip


@given(st.lists(st.integers(0, 300_000), min_size=1, max_size=4))
def test_what_is_too_large_is_left_out_and_says_so(sizes: list[int]):
    them = [Predecessor(After(f"j{n}"), Seen(n, State.SUCCEEDED, "x" * size)) for n, size in enumerate(sizes)]
    told = merged({}, them)["after"]
    assert len(json.dumps(told)) <= MAX_DATA + 1000
    for n, size in enumerate(sizes):
        entry = told[f"j{n}"]
        assert entry["result"] == "x" * size or "too large" in entry["left_out"]
    assert sum(sizes) + 20 * len(sizes) > MAX_DATA or not any("left_out" in entry for entry in told.values())
