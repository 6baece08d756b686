"""The tables from Horae's states to the contract's words: total, and right where the contract says so."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from horae.contracts.cluster import vocabulary
from horae.core.members import Life, Member
from horae.core.model import Job, Node, Phase, Policy, Reason, Run, Standing, State, Trigger
from horae.testing import make_job

NODE = Node("n1", ("agent",), (), (), 8, "1", "", 0, 0, 0)
RUN = Run(1, 1, 1, 0, State.QUEUED, "", 1, 1, 5, "shell", 0)


def job(next_at: int | None = None, last_at: int | None = None, **changes: object) -> Job:
    trigger = Trigger(1, 1, {"at": "2027-01-01T00:00:00Z"}, None, True, 1, next_at, last_at, 0)
    return replace(make_job(1), triggers=(trigger,), **changes)  # type: ignore[arg-type]


def run(state: State, reason: str = "", phase: Phase = Phase.PREPARING, **changes: int) -> Run:
    return replace(RUN, state=state, reason=reason, phase=phase, **changes)


@pytest.mark.parametrize(("state", "reason", "phase"), list(itertools.product(State, Reason, Phase)))
def test_every_state_has_a_word_of_the_contract(state: State, reason: Reason, phase: Phase) -> None:
    latest = run(state, reason, phase)
    assert vocabulary.word_of(latest) in vocabulary.STATUSES
    for about in (job(), job(5), job(None, 5), job(deleted_at=7)):
        shown = vocabulary.show_job(about, Standing(latest, None))
        assert shown["status"] in vocabulary.STATUSES
    assert vocabulary.show_execution(latest, None)["status"] in vocabulary.STATUSES


@pytest.mark.parametrize(
    ("latest", "word"),
    [
        (run(State.QUEUED), "SCHEDULED"),
        (run(State.BLOCKED, Reason.OVERLAP), "SCHEDULED"),
        (run(State.BLOCKED, Reason.RETRY), "PENDING"),
        (run(State.RUNNING), "SCHEDULED"),
        (run(State.RUNNING, phase=Phase.RUNNING), "RUNNING"),
        (run(State.SUCCEEDED), "COMPLETED"),
        (run(State.FAILED, Reason.EXIT), "FAILED"),
        (run(State.TIMED_OUT), "FAILED"),
        (run(State.CANCELLED), "CANCELLED"),
    ],
)
def test_a_job_without_a_next_moment_has_the_word_of_its_run(latest: Run, word: str) -> None:
    assert vocabulary.job_word(job(None, 5), Standing(latest, None)) == word


@pytest.mark.parametrize("state", [state for state in State if state.is_terminal])
def test_a_job_that_has_a_next_moment_is_pending_after_each_run(state: State) -> None:
    assert vocabulary.job_word(job(5), Standing(run(state), None)) == "PENDING"


def test_a_job_that_never_ran_is_pending() -> None:
    assert vocabulary.job_word(job(5), Standing()) == "PENDING"
    assert vocabulary.job_word(make_job(1), Standing()) == "PENDING"


def test_a_job_whose_only_moment_was_skipped_has_failed() -> None:
    assert vocabulary.job_word(job(None, 5), Standing()) == "FAILED"


@pytest.mark.parametrize("state", list(State))
def test_a_deleted_job_is_cancelled_whatever_its_run_came_to(state: State) -> None:
    assert vocabulary.job_word(job(5, deleted_at=7), Standing(run(state), None)) == "CANCELLED"


def test_every_life_of_a_member_has_a_word() -> None:
    words = [vocabulary.member_word(Member(NODE, life)) for life in Life]
    assert sorted(words) == sorted(vocabulary.WORKER_STATUSES)


@pytest.mark.parametrize(
    ("latest", "retries"),
    [
        (None, 0),
        (run(State.RUNNING, attempt=1), 0),
        (run(State.BLOCKED, Reason.RETRY, attempt=1), 1),
        (run(State.RUNNING, attempt=2), 1),
        (run(State.RUNNING, attempt=3, lost=2), 0),
    ],
)
def test_retries_are_counted_without_attempts_that_were_lost(latest: Run | None, retries: int) -> None:
    assert vocabulary.retries_of(latest) == retries


@pytest.mark.parametrize(
    ("schedule", "word"),
    [
        ({"at": "2027-01-01T00:00:00Z"}, "ONE_TIME"),
        ({"cron": "0 2 * * *"}, "DAILY"),
        ({"period": {"unit": "week"}}, "WEEKLY"),
        ({"period": {"unit": "month"}}, "MONTHLY"),
        ({"every": "1h"}, "DAILY"),
    ],
)
def test_jobs_of_others_have_the_nearest_frequency(schedule: dict[str, object], word: str) -> None:
    trigger = replace(job(5).triggers[0], schedule=schedule)
    assert vocabulary.frequency_of(replace(job(5), triggers=(trigger,))) == word


def test_a_job_of_others_shows_its_work_as_a_payload_that_could_be_sent_back() -> None:
    about = replace(make_job(1), kind="shell", spec={"steps": [{"name": "a", "run": "true"}]}, policy=Policy())
    assert vocabulary.payload_of(about) == '{"steps":[{"name":"a","run":"true"}]}'
    assert vocabulary.show_job(about, Standing())["userId"] is None
