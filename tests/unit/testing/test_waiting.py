"""Handlers that wait, on the virtual clock."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from horae import CallFailed, Context, handler
from horae.testing import run_handler, world


@handler
async def asks(context: Context) -> object:
    context.log("asked")
    answer = context.signal("go")
    context.log(f"told {answer}")
    return answer


@handler
def waits_an_hour(context: Context) -> str:
    try:
        return str(context.signal("go", timeout=timedelta(hours=1)))
    except TimeoutError as error:
        return f"late: {error}"


@handler
async def swallows(context: Context) -> str:
    try:
        context.signal("go")
    except BaseException:
        return "went on"
    return ""


@handler
async def snoozes(context: Context) -> str:
    context.snooze(until=context.scheduled_for + timedelta(minutes=10))
    return "awake"


@handler
async def asks_in_a_group(context: Context) -> object:
    async def ask(name: str) -> object:
        return context.signal(name)

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(ask(name)) for name in ("a", "b")]
    return [task.result() for task in tasks]


def submit(horae, function) -> object:
    return horae.submit({"name": "job", "handler": function, "overlap": "allow"})


def test_a_handler_that_asks_for_a_signal_waits_until_it_comes() -> None:
    with world() as horae:
        job = submit(horae, asks)
        run = horae.run_now(job)
        assert (run.state, run.reason) == ("blocked", "signal")
        horae.pass_time(days=20)
        assert horae.run(run).state == "blocked"
        run = horae.signal(run, "go", {"x": 1})
        assert (run.state, run.result, run.attempt) == ("succeeded", {"x": 1}, 1)
        assert horae.log(run) == "asked\nasked\ntold {'x': 1}\n"


def test_a_signal_that_does_not_come_in_time_is_a_timeout() -> None:
    with world() as horae:
        run = horae.run_now(submit(horae, waits_an_hour))
        horae.pass_time(minutes=59)
        assert horae.run(run).state == "blocked"
        horae.pass_time(minutes=1)
        assert horae.run(run).result == "late: no signal go came in time"


def test_a_handler_that_swallows_its_pause_fails_and_says_so() -> None:
    with world() as horae:
        run = horae.run_now(submit(horae, swallows))
        assert run.state == "failed"
        assert "must not catch Pause" in run.message


def test_a_snoozed_run_goes_on_at_its_moment_as_the_same_attempt() -> None:
    with world() as horae:
        run = horae.run_now(submit(horae, snoozes))
        assert (run.state, run.reason) == ("blocked", "snoozed")
        horae.pass_time(minutes=11)
        run = horae.run(run)
        assert (run.state, run.result, run.attempt) == ("succeeded", "awake", 1)


def test_tasks_of_a_group_wait_one_after_the_other() -> None:
    with world() as horae:
        run = horae.run_now(submit(horae, asks_in_a_group))
        assert run.reason == "signal"
        horae.signal(run, "a", 1)
        run = horae.signal(run, "b", 2)
        assert (run.state, run.result) == ("succeeded", [1, 2])


def test_run_handler_says_for_what_a_handler_waits() -> None:
    waits = run_handler(asks)
    assert waits.state == "blocked"
    assert waits.wait is not None
    assert waits.wait.awaits == "go"
    assert run_handler(asks, signals={"go": 7}).result == 7


@pytest.mark.parametrize("name", ["", "a b", "call:1", "x" * 129])
def test_a_name_of_a_signal_is_checked(name: str) -> None:
    @handler
    async def asks_for_it(context: Context) -> object:
        return context.signal(name)

    assert "the name of a signal" in run_handler(asks_for_it).message


@handler
async def doubles(context: Context) -> int:
    number: int = context.data["number"]
    if number < 0:
        raise ValueError("a number above zero")
    return number * 2


@handler
async def calls_one(context: Context) -> object:
    context.log("calls")
    return context.call("doubles", {"number": 21})


@handler
def calls_many(context: Context) -> object:
    first = context.call("doubles", {"number": 1})
    return [first, *context.call_all([("doubles", {"number": number}) for number in range(2, 6)])]


@handler
async def calls_badly(context: Context) -> str:
    try:
        context.call(context.data["job"], {"number": -1})
    except CallFailed as error:
        return f"{error.state}: {error.message}"
    return ""


def calling(horae, function):
    horae.submit({"name": "doubles", "key": "doubles", "handler": doubles})
    return horae.submit({"name": "caller", "handler": function})


def test_a_call_waits_for_the_other_run_and_returns_its_result() -> None:
    with world() as horae:
        run = horae.run_now(calling(horae, calls_one))
        assert (run.state, run.result, run.attempt) == ("succeeded", 42, 1)
        assert horae.log(run) == "calls\ncalls\n"


def test_calls_are_answered_in_their_order_and_made_once() -> None:
    with world() as horae:
        run = horae.run_now(calling(horae, calls_many))
        assert run.result == [2, 4, 6, 8, 10]
        assert len(horae.runs("doubles")) == 5


def test_a_call_that_fails_is_raised_with_its_message() -> None:
    with world() as horae:
        job = calling(horae, calls_badly)
        assert horae.run_now(job, {"job": "doubles"}).result == "failed: ValueError: a number above zero"
        assert horae.run_now(job, {"job": "nobody"}).result == "failed: there is no job with the key 'nobody'"


def test_who_cancels_a_caller_cancels_what_it_called() -> None:
    with world() as horae:
        horae.submit({"name": "asks", "key": "asks", "handler": asks})

        @handler
        async def calls_asks(context: Context) -> object:
            return context.call("asks")

        run = horae.run_now(horae.submit({"name": "caller", "handler": calls_asks}))
        assert (run.state, run.reason) == ("blocked", "children")
        run = horae.cancel(run)
        assert (run.state, run.reason) == ("cancelled", "requested")
        assert [(each.state, each.reason) for each in horae.runs("asks")] == [("cancelled", "requested")]


# ── waiting without code ──


def waiting_for(horae, **wait: object):
    return horae.run_now(horae.submit({"name": "waits", "wait": wait}))


def test_a_wait_for_a_time_succeeds_when_it_has_passed() -> None:
    with world() as horae:
        run = waiting_for(horae, **{"for": "10m"})
        assert (run.state, run.reason) == ("blocked", "snoozed")
        horae.pass_time(minutes=10)
        assert horae.run(run).state == "succeeded"


def test_a_wait_until_a_moment_that_has_passed_is_over() -> None:
    with world() as horae:
        assert waiting_for(horae, until="2027-01-01T00:00:00Z").state == "succeeded"
        run = waiting_for(horae, until="2027-01-16T00:00:00Z")
        horae.pass_time(days=1)
        assert horae.run(run).state == "succeeded"


def test_a_wait_for_a_signal_has_it_as_its_result() -> None:
    with world() as horae:
        run = waiting_for(horae, signal="paid")
        assert horae.signal(run, "paid", {"amount": 7}).result == {"amount": 7}


@pytest.mark.parametrize(
    ("otherwise", "state", "reason"),
    [("fail", "failed", "timeout"), ("go_on", "succeeded", ""), ("skip", "skipped", "signal")],
)
def test_a_wait_in_vain_ends_as_the_job_says(otherwise: str, state: str, reason: str) -> None:
    with world() as horae:
        run = waiting_for(horae, signal="paid", within="2d", otherwise=otherwise)
        horae.pass_time(days=2)
        run = horae.run(run)
        assert (run.state, run.reason) == (state, reason)


def test_an_approval_is_a_task_of_a_workflow() -> None:
    with world() as horae:
        job = horae.submit(
            {
                "name": "release",
                "tasks": {
                    "ask": {"wait": {"signal": "yes"}},
                    "publish": {"needs": ["ask"], "handler": "horae.handlers:echo", "data": {"told": "${ask.result}"}},
                },
                "returns": "${publish.result}",
            }
        )
        run = horae.run_now(job)
        assert (run.state, run.reason) == ("blocked", "children")
        (ask,) = [each for each in horae.runs() if each.state == "blocked" and each.reason == "signal"]
        horae.signal(ask, "yes", 5)
        run = horae.run(run)
        assert (run.state, run.result) == ("succeeded", {"told": 5})
