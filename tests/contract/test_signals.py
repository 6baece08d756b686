"""Runs that wait for a moment or a signal, on both stores."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from horae.core.definitions import Idempotency
from horae.core.model import SECOND, Overlap, Policy, Reason, State
from horae.core.runs.calls import Calls
from horae.core.runs.orders import Assignment, NewRun, Order, Result, Waiting
from horae.core.runs.waits import MAX_ANSWERS, Signal, Told
from horae.core.waits import Call, Wait
from horae.ports.store import Store
from horae.testing import START, FakeClock, make_job

from ..claiming import claim
from .test_store import submit


async def claimed_run(store: Store, job_id: int = 1) -> Assignment:
    await submit(store, make_job(job_id, policy=Policy()))
    await store.enqueue([Order(NewRun(job_id, "python", 5, 0))])
    (one,) = await claim(store, "n1", "python", (), 1)
    return one


def waiting(a: Assignment, wait: Wait, eligible_at: int | None = None, output: str | None = None) -> Waiting:
    result = Result(a.run_id, a.fence, State.BLOCKED, wait.reason, START, START, message="waits", output=output)
    return Waiting(result, eligible_at, begun=False, wait=wait)


def for_signal(name: str = "go") -> Wait:
    return Wait(Reason.SIGNAL, name)


async def wait_for(store: Store, a: Assignment, name: str = "go", until: int | None = None) -> None:
    finished = await store.finish([], [waiting(a, for_signal(name), until)])
    assert finished.accepted == {a.run_id}


async def claim_again(store: Store) -> list[Assignment]:
    return await claim(store, "n1", "python", (), 10)


def said(a: Assignment, name: str = "go") -> object:
    assert a.answers is not None
    return msgspec.json.decode(a.answers)[name].get("value")


async def test_a_run_that_waits_for_a_signal_is_blocked_and_says_for_which(store: Store) -> None:
    one = await claimed_run(store)
    await wait_for(store, one, until=START + SECOND)
    run = await store.get_run(one.run_id)
    assert run is not None
    assert (run.state, run.reason, run.awaits, run.eligible_at) == (State.BLOCKED, "signal", "go", START + SECOND)
    assert (run.message, run.attempt) == ("waits", 1)
    assert await claim_again(store) == []


async def test_a_signal_wakes_the_run_that_waits_for_it(store: Store) -> None:
    one = await claimed_run(store)
    await wait_for(store, one)
    assert await store.signal([Signal(one.run_id, "go", '{"x":[1.0,null]}', "ann")]) == [Told.WOKEN]
    (again,) = await claim_again(store)
    assert (again.run_id, again.attempt) == (one.run_id, 1)
    assert again.fence > one.fence
    assert said(again) == {"x": [1.0, None]}
    run = await store.get_run(one.run_id)
    assert run is not None
    assert run.awaits is None


async def test_what_an_answer_says_stays_as_it_was_written(store: Store, clock: FakeClock) -> None:
    one = await claimed_run(store)
    await wait_for(store, one)
    await store.signal([Signal(one.run_id, "go", '{"b":1.50,"a":"\\u00e9\\"}"}', 'an"n')])
    (again,) = await claim_again(store)
    assert again.answers == (f'{{"go":{{"at":{clock.now()},"by":"an\\"n","value":{{"b":1.50,"a":"\\u00e9\\"}}"}}}}}}')


async def test_a_signal_that_comes_before_the_run_waits_is_kept(store: Store) -> None:
    one = await claimed_run(store)
    assert await store.signal([Signal(one.run_id, "go", "1"), Signal(one.run_id, "other", "2")]) == [Told.KEPT] * 2
    finished = await store.finish([], [waiting(one, for_signal())])
    assert (finished.accepted, finished.promoted) == ({one.run_id}, 1)
    (again,) = await claim_again(store)
    assert (again.attempt, said(again), said(again, "other")) == (1, 1, 2)


async def test_a_signal_of_another_name_does_not_wake(store: Store) -> None:
    one = await claimed_run(store)
    await wait_for(store, one)
    assert await store.signal([Signal(one.run_id, "stop", "1")]) == [Told.KEPT]
    assert await claim_again(store) == []


async def test_a_name_is_answered_once(store: Store) -> None:
    one = await claimed_run(store)
    first = Signal(one.run_id, "go", "1", "ann")
    assert await store.signal([first]) == [Told.KEPT]
    assert await store.signal([first, first._replace(value="2")]) == [Told.ANSWERED] * 2
    await wait_for(store, one)
    (again,) = await claim_again(store)
    assert said(again) == 1


async def test_a_repeated_signal_is_the_same_even_when_the_run_has_ended(store: Store) -> None:
    one = await claimed_run(store)
    first = Signal(one.run_id, "go", "1", "ann", Idempotency("ann POST", "key-1", "digest"))
    assert await store.signal([first]) == [Told.KEPT]
    assert await store.signal([first]) == [Told.REPEATED]
    other = first._replace(idempotency=Idempotency("ann POST", "key-1", "other"))
    assert await store.signal([other]) == [Told.MISMATCH]
    await store.finish([Result(one.run_id, one.fence, State.SUCCEEDED)])
    assert await store.signal([first]) == [Told.REPEATED]


async def test_a_signal_that_comes_twice_at_once_is_the_same(store: Store) -> None:
    one = await claimed_run(store)
    first = Signal(one.run_id, "go", "1", "ann", Idempotency("ann POST", "key-1", "digest"))
    other = first._replace(idempotency=Idempotency("ann POST", "key-1", "other"))
    assert await store.signal([first, first, other]) == [Told.KEPT, Told.REPEATED, Told.MISMATCH]


async def test_a_signal_to_no_live_run_is_absent(store: Store) -> None:
    one = await claimed_run(store)
    await store.finish([Result(one.run_id, one.fence, State.SUCCEEDED)])
    assert await store.signal([Signal(one.run_id, "go", "1"), Signal(10**9, "go", "1")]) == [Told.ABSENT] * 2


async def test_a_run_is_told_no_more_than_fits(store: Store) -> None:
    one = await claimed_run(store)
    large = '"' + "x" * (MAX_ANSWERS // 2) + '"'
    assert await store.signal([Signal(one.run_id, "a", large), Signal(one.run_id, "b", large)]) == [
        Told.KEPT,
        Told.FULL,
    ]


async def test_many_runs_are_told_at_once(store: Store) -> None:
    await submit(store, make_job(1, policy=Policy()))
    await store.enqueue([Order(NewRun(1, "python", 5, 1)) for _ in range(50)])
    claimed = await claim(store, "n1", "python", (), 50)
    await store.finish([], [waiting(a, for_signal()) for a in claimed])
    told = await store.signal([Signal(a.run_id, "go", str(number)) for number, a in enumerate(claimed)])
    assert told == [Told.WOKEN] * 50
    again = {a.run_id: said(a) for a in await claim(store, "n1", "python", (), 50)}
    assert again == {a.run_id: number for number, a in enumerate(claimed)}


async def test_of_two_signals_at_once_one_counts(store: Store) -> None:
    one = await claimed_run(store)
    await wait_for(store, one)
    told = await asyncio.gather(*(store.signal([Signal(one.run_id, "go", str(n))]) for n in range(8)))
    assert sorted(answer for (answer,) in told) == ["answered"] * 7 + ["woken"]
    (again,) = await claim_again(store)
    assert said(again) == next(number for number, (answer,) in enumerate(told) if answer is Told.WOKEN)


async def test_a_signal_meets_the_wait_whichever_comes_first(store: Store) -> None:
    for job_id in range(1, 11):
        one = await claimed_run(store, job_id)
        await asyncio.gather(store.signal([Signal(one.run_id, "go", "1")]), wait_for(store, one))
        (again,) = await claim_again(store)
        assert again.run_id == one.run_id
        await store.finish([Result(again.run_id, again.fence, State.SUCCEEDED)])


async def test_a_signal_that_does_not_come_in_time_is_told_as_late(store: Store, clock: FakeClock) -> None:
    one = await claimed_run(store)
    await store.signal([Signal(one.run_id, "other", "2")])
    await wait_for(store, one, until=START + 10 * SECOND)
    assert (await store.sweep()).next_at == START + 10 * SECOND
    clock.advance(10)
    assert (await store.sweep()).queued == 1
    (again,) = await claim_again(store)
    assert again.attempt == 1
    assert msgspec.json.decode(again.answers or "")["go"] == {"at": START + 10 * SECOND, "late": True}
    assert said(again, "other") == 2
    assert await store.signal([Signal(one.run_id, "go", "1")]) == [Told.LATE]


@pytest.mark.parametrize(("kind", "is_noted"), [("python", False), ("wait", True)])
async def test_servers_are_told_of_what_goes_on_only_where_they_do_it_themselves(
    store: Store, clock: FakeClock, kind: str, is_noted: bool
) -> None:
    await submit(store, make_job(1))
    await store.enqueue([Order(NewRun(1, kind, 5, 0))])
    (one,) = await claim(store, "n1", kind, (), 1)
    await store.finish([], [waiting(one, Wait(Reason.SNOOZED), START + 5 * SECOND)])
    clock.advance(5)
    swept = await store.sweep()
    assert (swept.queued, swept.noted) == (1, is_noted)


async def test_a_snoozed_run_goes_on_at_its_moment(store: Store, clock: FakeClock) -> None:
    one = await claimed_run(store)
    await store.finish([], [waiting(one, Wait(Reason.SNOOZED), START + 5 * SECOND)])
    run = await store.get_run(one.run_id)
    assert run is not None
    assert (run.state, run.reason, run.eligible_at) == (State.BLOCKED, "snoozed", START + 5 * SECOND)
    assert await store.signal([Signal(one.run_id, "go", "1")]) == [Told.KEPT]
    clock.advance(5)
    assert (await store.sweep()).queued == 1
    (again,) = await claim_again(store)
    assert (again.attempt, said(again)) == (1, 1)


async def test_turns_of_an_attempt_keep_what_they_wrote_and_are_no_attempts(store: Store) -> None:
    one = await claimed_run(store)
    await store.finish([], [waiting(one, for_signal("a"), output="runs/0/1/1-1")])
    await store.signal([Signal(one.run_id, "a", "1"), Signal(one.run_id, "b", "1")])
    (two,) = await claim_again(store)
    await store.finish([], [waiting(two, for_signal("b"), output="runs/0/1/1-2")])
    (three,) = await claim_again(store)
    await store.finish([], [waiting(three, for_signal("c"))])
    assert await store.list_attempts(one.run_id) == []
    assert await store.load_attempts([one.run_id]) == []
    turns = await store.list_turns(one.run_id)
    assert [(turn.attempt, turn.fence, turn.output) for turn in turns] == [
        (1, one.fence, "runs/0/1/1-1"),
        (1, two.fence, "runs/0/1/1-2"),
    ]


async def test_a_waiting_run_is_cancelled_at_once(store: Store) -> None:
    one = await claimed_run(store)
    await wait_for(store, one)
    assert (await store.cancel([one.run_id], "requested")).ended == {one.run_id}
    run = await store.get_run(one.run_id)
    assert run is not None
    assert (run.state, run.attempt) == (State.CANCELLED, 1)


async def test_a_run_that_somebody_wants_cancelled_does_not_begin_to_wait(store: Store) -> None:
    one = await claimed_run(store)
    await store.cancel([one.run_id], "requested")
    await wait_for(store, one)
    run = await store.get_run(one.run_id)
    assert run is not None
    assert (run.state, run.reason) == (State.CANCELLED, "requested")


async def test_a_waiting_run_ends_with_its_job(store: Store) -> None:
    one = await claimed_run(store)
    await wait_for(store, one)
    await store.delete_job(1)
    run = await store.get_run(one.run_id)
    assert run is not None
    assert (run.state, run.reason) == (State.CANCELLED, "deleted")


async def test_an_old_fence_makes_nobody_wait(store: Store) -> None:
    one = await claimed_run(store)
    stale = one._replace(fence=one.fence - 1)
    assert (await store.finish([], [waiting(stale, for_signal())])).accepted == set()


async def test_a_retry_finds_what_the_run_was_told(store: Store, clock: FakeClock) -> None:
    one = await claimed_run(store)
    await wait_for(store, one)
    await store.signal([Signal(one.run_id, "go", "7")])
    (two,) = await claim_again(store)
    failed = Result(two.run_id, two.fence, State.FAILED, "error", START, START)
    await store.finish([], [Waiting(failed, clock.now() + SECOND)])
    clock.advance(1)
    await store.sweep()
    (three,) = await claim_again(store)
    assert (three.attempt, said(three)) == (2, 7)


# ── calls ──


def call_of(a: Assignment, number: int = 1, job_id: int = 2) -> Order:
    task = f"call:{number}"
    return Order(NewRun(job_id, "shell", 5, Overlap.ALLOW, parent_id=a.run_id, task=task, followed=True))


async def calling(store: Store, *numbers: int, job_id: int = 2) -> Assignment:
    """A run that has called others."""
    await submit(store, make_job(2, kind="shell", policy=Policy()))
    one = await claimed_run(store)
    wait = Wait(Reason.CHILDREN, calls=tuple(Call(f"call:{number}", "2") for number in numbers))
    orders = [call_of(one, number, job_id) for number in numbers]
    finished = await store.finish([], [waiting(one, wait)], {one.run_id: Calls(orders)})
    assert finished.accepted == {one.run_id}
    return one


async def end_called(store: Store, limit: int = 10, state: State = State.SUCCEEDED) -> list[Assignment]:
    called = await claim(store, "n1", "shell", (), limit)
    await store.finish([Result(a.run_id, a.fence, state, result=f'{{"of":{a.run_id}}}') for a in called])
    return called


async def test_what_its_owner_may_not_run_has_failed_and_its_caller_goes_on(store: Store) -> None:
    await submit(store, make_job(2, kind="shell", policy=Policy()))
    one = await claimed_run(store)
    order = call_of(one)
    order.run.barred = True
    wait = Wait(Reason.CHILDREN, calls=(Call("call:1", "2"),))
    await store.finish([], [waiting(one, wait)], {one.run_id: Calls([order])})
    assert await claim(store, "n1", "shell", (), 10) == []
    [task] = await store.load_tasks([one.run_id])
    called = await store.get_run(task.run_id)
    assert called is not None
    assert (called.state, called.reason) == (State.FAILED, Reason.OWNER)
    assert (await store.answer_calls(await store.load_endings(0, 10))).queued == 1


async def test_calls_are_made_with_the_wait_for_them(store: Store) -> None:
    one = await calling(store, 1, 2)
    run = await store.get_run(one.run_id)
    assert run is not None
    assert (run.state, run.reason) == (State.BLOCKED, "children")
    tasks = await store.load_tasks([one.run_id])
    assert sorted(task.task for task in tasks) == ["call:1", "call:2"]


async def test_a_caller_goes_on_when_all_that_it_called_have_ended(store: Store) -> None:
    one = await calling(store, 1, 2)
    (first,) = await end_called(store, 1)
    assert (await store.answer_calls(await store.load_endings(0, 10))).queued == 0
    assert await claim_again(store) == []
    (second,) = await end_called(store)
    assert (await store.answer_calls(await store.load_endings(0, 10))).queued == 1
    assert await store.load_endings(0, 10) == []
    (again,) = await claim_again(store)
    assert (again.run_id, again.attempt) == (one.run_id, 1)
    told = msgspec.json.decode(again.answers or "")
    assert [(told[f"call:{n}"]["run"], told[f"call:{n}"]["value"]) for n in (1, 2)] == [
        (a.run_id, {"of": a.run_id}) for a in (first, second)
    ]


async def test_a_repeated_wait_calls_nothing_a_second_time(store: Store) -> None:
    one = await calling(store, 1)
    again = waiting(one, Wait(Reason.CHILDREN, calls=(Call("call:1", "2"),)))
    assert (await store.finish([], [again], {one.run_id: Calls([call_of(one)])})).accepted == set()
    assert len(await store.load_tasks([one.run_id])) == 1


async def test_a_row_that_is_acted_on_twice_tells_once(store: Store) -> None:
    await calling(store, 1)
    await end_called(store)
    rows = await store.load_endings(0, 10)
    answered = await asyncio.gather(store.answer_calls(rows), store.answer_calls(rows))
    assert sum(one.queued for one in answered) == 1
    (again,) = await claim_again(store)
    assert (again.answers or "").count("call:1") == 1


async def test_a_call_of_a_job_that_was_deleted_has_failed(store: Store) -> None:
    await calling(store, 1, job_id=77)
    assert (await store.answer_calls(await store.load_endings(0, 10))).queued == 1
    (again,) = await claim_again(store)
    assert msgspec.json.decode(again.answers or "")["call:1"]["state"] == "failed"


async def test_a_cancelled_caller_ends_when_nothing_that_it_called_is_live(store: Store) -> None:
    one = await calling(store, 1, 2)
    await claim(store, "n1", "shell", (), 1)
    assert (await store.cancel([one.run_id], "requested")).marked == {one.run_id}
    rows = await store.load_endings(0, 10)
    await store.answer_calls(rows)
    run = await store.get_run(one.run_id)
    assert run is not None
    assert run.state is State.BLOCKED
    tasks = await store.load_tasks([one.run_id])
    await store.cancel([task.run_id for task in tasks], "requested")
    (running,) = [task for task in await store.load_tasks([one.run_id]) if not task.state.is_terminal]
    await store.finish([Result(running.run_id, 1, State.CANCELLED)])
    await store.answer_calls(await store.load_endings(0, 10))
    run = await store.get_run(one.run_id)
    assert run is not None
    assert (run.state, run.reason) == (State.CANCELLED, "requested")
