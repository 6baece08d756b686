"""The past of jobs at a glance, and jobs by words: the same on every store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date
from itertools import pairwise

import pytest

from horae.core.definitions import Sort
from horae.core.insight.timeline import Mark
from horae.core.model import SECOND, JobFilter, Overlap, State
from horae.core.runs.orders import NewRun, Order
from horae.ports.store import Store
from horae.service.jobs import glances as service
from horae.service.jobs.glances import DAY, KEPT_FOR, Glances, start_of
from horae.testing import START, FakeClock, make_job
from tests.contract.test_search import keep, names, queue, run


async def test_the_last_fates_of_many_jobs_are_read_together_oldest_first(store: Store):
    one, other, idle = make_job(1), make_job(2), make_job(3)
    await keep(store, one, other, idle)
    first = [await run(store, one, state) for state in (State.FAILED, State.SUCCEEDED, State.TIMED_OUT)]
    second = await run(store, other)

    found = await store.load_fates([1, 2, 3, 99], 2)

    assert found == {1: [(first[1], State.SUCCEEDED), (first[2], State.TIMED_OUT)], 2: [(second, State.SUCCEEDED)]}
    assert await store.load_fates([], 2) == {}


async def test_tasks_of_workflows_are_no_fates_of_a_job(store: Store):
    job = make_job(1)
    await keep(store, job)
    parent = await run(store, job)
    [receipt] = await store.enqueue([Order(NewRun(1, job.kind, 5, Overlap.ALLOW, parent_id=parent, task="a"))])
    await store.cancel(receipt.ids, "requested")

    assert await store.load_fates([1], 9) == {1: [(parent, State.SUCCEEDED)]}


async def test_runs_are_counted_by_the_day_on_which_they_were_made(store: Store, clock: FakeClock):
    job, other = make_job(1), make_job(2)
    await keep(store, job, other)
    glances = Glances(store)
    await run(store, job, State.FAILED)
    await run(store, other)
    clock.advance(DAY / 1_000_000)
    await run(store, job)
    await run(store, job)

    days = await glances.days(1, 3)

    today = clock.now() // DAY * DAY
    assert [(day.start_at, dict(day.runs)) for day in days] == [
        (today - 2 * DAY, {}),
        (today - DAY, {State.FAILED: 1}),
        (today, {State.SUCCEEDED: 2}),
    ]
    await run(store, job, State.FAILED)  # what was learned of the days before does not hide it
    assert dict((await glances.days(1, 1))[0].runs) == {State.SUCCEEDED: 2, State.FAILED: 1}


@pytest.mark.parametrize(
    ("zone", "counted"),
    [("UTC", [0, 2, 1]), ("Asia/Tokyo", [0, 1, 2]), ("America/New_York", [0, 3, 0]), ("America/Santiago", [0, 3, 0])],
)
async def test_days_are_those_of_a_zone(store: Store, clock: FakeClock, zone: str, counted: list[int]):
    """Runs at 10:00, 20:00 and, a day later, 02:00 of UTC."""
    await keep(store, job := make_job(1))
    clock.advance(-(clock.now() % DAY) / 1_000_000 + 34 * 3600)
    for hours in (10, 6, 6):
        await run(store, job)
        clock.advance(hours * 3600)
    days = await Glances(store).days(1, 3, zone)
    assert [sum(day.runs.values()) for day in days] == counted


def test_a_day_whose_midnight_never_comes_begins_when_clocks_are_put_forward():
    santiago = "America/Santiago"  # on 2026-09-06 from 24:00 to 01:00
    hours = [start_of(date(2026, 9, day), santiago) // (3600 * 1_000_000) for day in (5, 6, 7)]
    assert [later - sooner for sooner, later in pairwise(hours)] == [24, 23]


async def test_days_without_any_run_are_empty(store: Store):
    await keep(store, make_job(1))
    assert [dict(day.runs) for day in await Glances(store).days(1, 2)] == [{}, {}]


async def test_jobs_are_found_by_words_of_their_name_or_key(store: Store):
    await keep(
        store,
        make_job(1, name="Nightly Report"),
        make_job(2, name="report 100%"),
        replace(make_job(3, name="other"), key="nightly_report"),
        make_job(4, name="nothing"),
    )

    async def found(words: str, **more: object) -> list[int]:
        listed = (await store.list_jobs(JobFilter(words=words, **more), None, 9)).items  # type: ignore[arg-type]
        searched = await store.search_jobs(JobFilter(words=words, **more), [Sort("id", True)], 0, 9)  # type: ignore[arg-type]
        assert [job.id for job in listed] == [job.id for job in searched.items]
        assert searched.total == len(listed)
        return [job.id for job in listed]

    assert await found("REPORT") == [3, 2, 1]
    assert await found("report night") == [3, 1]
    assert await found("100%") == [2]
    assert await found("%") == [2]
    assert await found("_") == [3]
    assert await found("absent") == []
    assert await found("report", kind="nothing") == []
    assert await found("report", org=7) == []


async def test_jobs_found_by_words_come_in_pages_and_sorted(store: Store):
    await keep(store, *(make_job(number, name=f"job {9 - number}") for number in range(1, 6)))

    first = await store.list_jobs(JobFilter(words="job"), None, 2)
    second = await store.list_jobs(JobFilter(words="job"), first.cursor, 9)
    assert [job.id for job in (*first.items, *second.items)] == [5, 4, 3, 2, 1]
    assert second.cursor is None
    found = await store.search_jobs(JobFilter(words="job"), [Sort("name")], 1, 2)
    assert (names(found.items), found.total) == (["job 5", "job 6"], 5)


async def test_days_long_over_are_not_counted_again_for_a_while(
    store: Store, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
):
    await keep(store, make_job(1))
    await run(store, make_job(1))
    clock.advance(5 * DAY / 1_000_000)
    glances, stretches, count = Glances(store), [], store.count_between

    async def noting(job_id: int, bounds: Sequence[int]) -> list[Mapping[State, int]]:
        stretches.append(len(bounds) - 1)
        return await count(job_id, bounds)

    monkeypatch.setattr(store, "count_between", noting)
    first = await glances.days(1, 10)
    assert await glances.days(1, 10) == first
    assert sum(day.runs.get(State.SUCCEEDED, 0) for day in first) == 1
    assert (await glances.days(1, 12))[2:] == first
    clock.advance(KEPT_FOR / 1_000_000)
    await glances.days(1, 10)
    assert stretches == [10, 2, 12, 10]


HOUR = 3600 * SECOND


def ids(marks: Sequence[Mark]) -> list[int]:
    return sorted(mark.id for mark in marks)


async def test_a_time_with_few_runs_is_read_whole_without_those_before_and_after_it(store: Store, clock: FakeClock):
    job = make_job(1)
    await keep(store, job)
    before = await run(store, job)
    clock.advance(HOUR / SECOND)
    at = clock.now()
    within = [await run(store, job), await run(store, job, State.FAILED)]
    parent = within[0]
    [task] = await store.enqueue([Order(NewRun(1, job.kind, 5, Overlap.ALLOW, parent_id=parent, task="a"))])
    await store.cancel(task.ids, "requested")
    clock.advance(HOUR / SECOND)
    after = await run(store, job)

    found = await Glances(store).sample(at, at + SECOND)

    assert found.is_whole
    assert ids(found.marks) == within
    assert {mark.state for mark in found.marks} == {State.SUCCEEDED, State.FAILED}
    assert found.marks[0] == Mark(within[0], 1, State.SUCCEEDED, at, at, at)
    assert ids((await Glances(store).sample(START - HOUR, clock.now() + 1)).marks) == [before, *within, after]
    assert (await Glances(store).sample(at, at + SECOND, org=7)).marks == []


async def test_of_very_many_runs_some_of_each_part_of_the_time_stand_for_the_others(
    store: Store, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
):
    job = make_job(1)
    await keep(store, job)
    await run(store, job)
    clock.advance(1)
    at = clock.now()
    made = [await run(store, job) for _ in range(12)]
    for name, value in (("READ_WHOLE", 11), ("PIECES", 3), ("PIECE", 2)):
        monkeypatch.setattr(service, name, value)

    found = await Glances(store).sample(at, at + SECOND)

    assert ids(found.marks) == [made[0], made[1], made[4], made[5], made[8], made[9]]
    assert found.weight == 2.0
    monkeypatch.setattr(service, "READ_WHOLE", 12)
    assert ids((await Glances(store).sample(at, at + SECOND)).marks) == made


async def test_the_newest_runs_of_each_job_are_read_with_those_that_go_on(
    store: Store, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
):
    busy, idle, other = make_job(1), make_job(2), make_job(3)
    await keep(store, busy, idle, other)
    ended = [await run(store, busy, state) for state in (State.SUCCEEDED, State.FAILED, State.SUCCEEDED)]
    once = await run(store, idle)
    await run(store, other)
    waiting = await queue(store, busy)
    monkeypatch.setattr(service, "NEWEST", 2)
    glances = Glances(store)

    assert ids(await glances.newest([1, 2], START, START + SECOND)) == sorted([*ended[1:], once, waiting])
    assert ids(await glances.newest([1], START + HOUR, START + 2 * HOUR)) == [waiting]  # since before, and still
    assert await glances.newest([], START, START + SECOND) == []
    assert ids(await glances.live(START + SECOND)) == [waiting]
    assert await glances.live(START + SECOND, org=7) == []
    assert await glances.live(START) == []


async def test_the_newest_jobs_whose_name_holds_a_text_are_found_whatever_the_case(store: Store):
    named = ["Straße 100%", "straße", "Other", "STREET"]
    await keep(store, *(make_job(number, name=name) for number, name in enumerate(named, start=1)))
    glances = Glances(store)

    assert await glances.named("STR", None, 9) == [4, 2, 1]
    assert await glances.named("straß", None, 9) == [2, 1]
    assert await glances.named("0%", None, 9) == [1]
    assert await glances.named("str", 1, 2) == [4, 2]
    assert await glances.named("str", 7, 9) == []
