"""Orders of one client that wait together: who sends for whom, and what each is told."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from horae.client import Client, SyncClient, making, running
from horae.client.address import find_server
from horae.client.steps import Call, Hear, Later, Steps
from horae.client.together import MOST, MOST_BYTES, WAYS, Together
from horae.client.wire import Answer, Request
from horae.errors import Denied, Error, Invalid, Unavailable
from horae.wire.http import Cut, Incoming, NotConnected
from tests.unit.fake_api import RUN, Fake, problem, serving

SERVER = find_server("http://127.0.0.1:1", None, insecure=False, ca_file=None)
DEADLINE = 30.0


class Caller:
    """One call, driven by hand: `at` is what it wants next, `gave` or `raised` how it ended."""

    def __init__(self, together: Together, number: int, **given: Any) -> None:
        self.call: Call[Any] = running.run_now(7, data={"n": number}, **given)
        self.steps: Steps = together.place(self.call) if self.call.order else self.call.steps()
        self.at: Any = None
        self.gave: bytes | None = None
        self.raised: Error | None = None
        self._go(lambda: next(self.steps))

    def _go(self, act: Any) -> None:
        self.at = None
        try:
            self.at = act()
        except StopIteration as end:
            self.gave = end.value
        except Error as error:
            self.raised = error

    def answered(self, status: int, body: Any) -> None:
        head = f"HTTP/1.1 {status} x\r\nContent-Type: application/json\r\n\r\n".encode()
        incoming = Incoming()
        incoming.feed(head)
        self._go(lambda: self.steps.send(Answer(SERVER, incoming, json.dumps(body).encode())))

    def fails(self, fault: Exception) -> None:
        self._go(lambda: self.steps.throw(fault))

    def hears(self) -> None:
        """Go on, if there is something to hear."""
        assert isinstance(self.at, Hear)
        if self.at.slot.done():
            self._go(lambda slot=self.at.slot: self.steps.send(slot.result()))

    def hears_nothing(self) -> None:
        assert isinstance(self.at, Hear)
        self._go(lambda: self.steps.send(None))

    def goes_on(self) -> Any:
        """It is given its answer; returns what is to be done when the others had a turn."""
        assert isinstance(self.at, Later)
        act = self.at.act
        self._go(lambda: self.steps.send(None))
        return act

    def stops(self) -> None:
        self.steps.close()
        self.at = None


def run(number: int) -> dict[str, Any]:
    return {**RUN, "id": 100 + number, "data": {"n": number}}


def refusal(code: str, status: int = 422) -> dict[str, Any]:
    return {"status": status, "code": code, "detail": f"no: {code}", "title": "t", "errors": []}


@pytest.fixture
def together() -> Together:
    return Together(Future)


@pytest.fixture
def busy(together: Together) -> list[Caller]:
    """One whose order is on its way."""
    caller = Caller(together, 0)
    assert caller.at.path == "/v1/jobs/7/run"
    return [caller]


def test_one_after_the_other_goes_as_it_always_did(together: Together) -> None:
    for number in range(3):
        caller = Caller(together, number)
        assert caller.at.path == "/v1/jobs/7/run"
        caller.answered(201, run(number))
        assert json.loads(caller.gave or b"")["id"] == 100 + number


def test_those_who_wait_are_one_request_and_each_is_told_of_its_own(together: Together, busy: list[Caller]) -> None:
    waiting = [Caller(together, number) for number in range(10, 14)]
    assert all(isinstance(one.at, Hear) and not one.at.slot.done() for one in waiting)
    busy[0].answered(201, run(0))
    first, *others = waiting
    first.hears()
    assert (first.at.method, first.at.path) == ("POST", "/v1/runs")
    assert json.loads(first.at.body) == [{"job": 7, "data": {"n": number}} for number in range(10, 14)]
    first.answered(200, {"runs": [run(10), refusal("E_DATA"), run(12), refusal("E_NOT_FOUND", 404)]})
    for one in others:
        one.hears()
    first.goes_on()()
    assert [json.loads(one.gave)["id"] if one.gave else None for one in waiting] == [110, None, 112, None]
    assert [one.raised.code if one.raised else "" for one in waiting] == ["", "E_DATA", "", "E_NOT_FOUND"]


def test_a_way_that_is_free_again_is_taken_by_the_next(together: Together, busy: list[Caller]) -> None:
    waiting = [Caller(together, number) for number in range(10, 13)]
    busy[0].answered(201, run(0))
    later = Caller(together, 20)
    assert not isinstance(later.at, Request), "the way belongs to who waited"
    waiting[0].hears()
    waiting[0].answered(200, {"runs": [run(10), run(11), run(12)]})
    waiting[0].goes_on()()
    later.hears()
    assert later.at.path == "/v1/jobs/7/run", "one that waits alone is sent as always"
    later.answered(201, run(20))
    assert Caller(together, 30).at.path == "/v1/jobs/7/run"


def test_what_is_asked_for_as_soon_as_one_is_told_goes_with_the_next(together: Together, busy: list[Caller]) -> None:
    waiting = [Caller(together, number) for number in range(10, 14)]
    busy[0].answered(201, run(0))
    waiting[0].hears()
    waiting[0].answered(200, {"runs": [run(number) for number in range(10, 14)]})
    again = []
    for one in waiting[1:]:
        one.hears()
        again.append(Caller(together, 20))
    waiting[0].goes_on()()
    again[0].hears()
    assert len(json.loads(again[0].at.body)) == 3


def test_nobody_waits_long_for_a_request_that_is_slow(together: Together, busy: list[Caller]) -> None:
    waiting = [Caller(together, number) for number in range(10, 13)]
    waiting[1].hears_nothing()
    assert isinstance(waiting[1].at, Hear), "the first sends for all"
    waiting[0].hears_nothing()
    assert len(json.loads(waiting[0].at.body)) == 3
    later = [Caller(together, number) for number in range(20, 22)]
    busy[0].answered(201, run(0))
    later[0].hears()
    assert len(json.loads(later[0].at.body)) == 2
    waiting[0].stops()
    waiting[1].hears()
    waiting[1].answered(200, {"runs": [run(10), run(11), run(12)]})
    waiting[1].goes_on()()
    later[0].answered(200, {"runs": [run(20), run(21)]})
    later[0].goes_on()()
    assert Caller(together, 30).at.path == "/v1/jobs/7/run"


def test_however_slow_it_is_so_many_requests_are_on_their_way_at_most(together: Together, busy: list[Caller]) -> None:
    waiting = []
    for number in range(1, WAYS + 3):
        waiting.append(Caller(together, number))
        waiting[-1].hears_nothing()
    assert sum(isinstance(one.at, Request) for one in [*busy, *waiting]) == WAYS


def test_orders_with_a_key_of_their_own_go_alone(together: Together, busy: list[Caller]) -> None:
    caller = Caller(together, 5, key="mine")
    assert (caller.at.path, caller.at.headers["Idempotency-Key"]) == ("/v1/jobs/7/run", "mine")


def test_what_is_refused_as_a_whole_is_tried_one_by_one(together: Together, busy: list[Caller]) -> None:
    """Somebody may run this job by a grant, and not every job."""
    waiting = [Caller(together, number) for number in range(10, 13)]
    busy[0].answered(201, run(0))
    waiting[0].hears()
    waiting[0].answered(403, refusal("E_ROLE", 403))
    for one in waiting[1:]:
        one.hears()
    waiting[0].goes_on()()
    assert [one.at.path for one in waiting] == ["/v1/jobs/7/run"] * 3
    waiting[0].answered(201, run(10))
    waiting[1].answered(403, refusal("E_ROLE", 403))
    assert waiting[0].gave
    assert isinstance(waiting[1].raised, Denied)


def test_when_the_server_is_gone_all_are_told_and_the_ways_are_free(together: Together, busy: list[Caller]) -> None:
    waiting = [Caller(together, number) for number in range(10, 13)]
    busy[0].answered(201, run(0))
    waiting[0].hears()
    while waiting[0].at is not None:
        assert not isinstance(waiting[0].at, Hear)
        if isinstance(waiting[0].at, Request):
            waiting[0].fails(NotConnected(SERVER, "refused"))
        elif isinstance(waiting[0].at, Later):
            waiting[0].goes_on()()
        else:
            waiting[0]._go(lambda: waiting[0].steps.send(None))
    heard = [one.at.slot.exception() for one in waiting[1:]]
    assert isinstance(waiting[0].raised, Unavailable)
    assert all(isinstance(one, Unavailable) and one is not waiting[0].raised for one in heard)
    assert Caller(together, 20).at.path == "/v1/jobs/7/run"


def test_a_broken_connection_is_tried_again_under_the_same_key(together: Together, busy: list[Caller]) -> None:
    waiting = [Caller(together, number) for number in range(10, 12)]
    busy[0].answered(201, run(0))
    waiting[0].hears()
    before = waiting[0].at
    waiting[0].fails(Cut(SERVER, "reset"))
    waiting[0]._go(lambda: waiting[0].steps.send(None))  # the pause
    assert waiting[0].at == before


def test_whoever_sends_for_others_and_is_stopped_hands_over(together: Together, busy: list[Caller]) -> None:
    waiting = [Caller(together, number) for number in range(10, 13)]
    busy[0].answered(201, run(0))
    waiting[0].hears()
    before = waiting[0].at
    waiting[1].stops()
    waiting[0].stops()
    waiting[2].hears()
    assert waiting[2].at == before, "the same orders under the same key: they may have been taken"
    waiting[2].answered(200, {"runs": [run(10), run(11), run(12)]})
    waiting[2].goes_on()()
    assert json.loads(waiting[2].gave or b"")["id"] == 112
    assert Caller(together, 20).at.path == "/v1/jobs/7/run"


def test_whoever_was_to_send_and_is_stopped_before_hands_over(together: Together, busy: list[Caller]) -> None:
    waiting = [Caller(together, number) for number in range(10, 13)]
    busy[0].answered(201, run(0))
    assert waiting[0].at.slot.done()
    waiting[0].stops()
    waiting[1].hears()
    assert waiting[1].at.path == "/v1/runs"


def test_a_way_is_free_when_all_who_waited_have_stopped(together: Together, busy: list[Caller]) -> None:
    waiting = [Caller(together, number) for number in range(10, 13)]
    busy[0].answered(201, run(0))
    waiting[0].hears()
    for one in reversed(waiting):
        one.stops()
    assert Caller(together, 20).at.path == "/v1/jobs/7/run"


def test_who_stopped_waiting_is_not_sent(together: Together, busy: list[Caller]) -> None:
    waiting = [Caller(together, number) for number in range(10, 13)]
    waiting[1].stops()
    busy[0].answered(201, run(0))
    waiting[0].hears()
    assert [order["data"]["n"] for order in json.loads(waiting[0].at.body)] == [10, 12]


def test_what_was_not_done_for_want_of_the_database_is_tried_again_alone(
    together: Together, busy: list[Caller]
) -> None:
    waiting = [Caller(together, number) for number in range(10, 12)]
    busy[0].answered(201, run(0))
    waiting[0].hears()
    waiting[0].answered(200, {"runs": [run(10), refusal("E_UNAVAILABLE", 503)]})
    waiting[1].hears()
    assert waiting[1].at.path == "/v1/jobs/7/run"


@pytest.mark.parametrize(("count", "data"), [(MOST + 5, 1), (20, MOST_BYTES // 8)], ids=["by number", "by size"])
def test_no_more_go_together_than_fit(together: Together, busy: list[Caller], count: int, data: int) -> None:
    waiting = [Caller(together, 0, priority=1) for _ in range(count - 1)]
    waiting.append(Caller(together, 0))
    for one in waiting:
        slot = one.at.slot
        assert not slot.done()
    if data > 1:
        together._waiting = [one._replace(order=b"x" * data) for one in together._waiting]
    busy[0].answered(201, run(0))
    batch = waiting[0].at.slot.result()
    assert 1 < len(batch.members) <= MOST
    assert sum(len(one.order) for one in batch.members) <= MOST_BYTES
    assert len(together._waiting) == count - len(batch.members)


@pytest.mark.parametrize("body", [{"runs": [RUN]}, {"items": []}, [], "x"], ids=["too few", "a page", "a list", "text"])
def test_an_answer_that_is_none_of_horae_is_said_to_be_so(together: Together, busy: list[Caller], body: Any) -> None:
    waiting = [Caller(together, number) for number in range(10, 12)]
    busy[0].answered(201, run(0))
    waiting[0].hears()
    waiting[0].answered(200, body)
    waiting[0].goes_on()()
    assert "not as Horae does" in str(waiting[0].raised)
    assert isinstance(waiting[1].at.slot.exception(), Unavailable)


def test_a_problem_that_speaks_of_a_job_id_is_still_a_problem(together: Together, busy: list[Caller]) -> None:
    waiting = [Caller(together, number) for number in range(10, 12)]
    busy[0].answered(201, run(0))
    waiting[0].hears()
    said = {**refusal("E_TYPE"), "detail": 'about "job_id": nothing', "errors": [{"path": "job_id", "code": "E_TYPE"}]}
    waiting[0].answered(200, {"runs": [said, run(11)]})
    waiting[0].goes_on()()
    assert isinstance(waiting[0].raised, Invalid)


# ── with a server, and real tasks and threads ──


@pytest.fixture
def fake() -> Iterator[Fake]:
    with serving() as one:
        yield one


class Gate:
    """Answers orders; those that come alone not before it is open."""

    def __init__(self, fake: Fake) -> None:
        self._open = threading.Event()
        fake.post("/v1/jobs/7/run", self._alone)
        fake.post("/v1/runs", self._many)

    def open(self) -> None:
        self._open.set()

    def _alone(self, request: Any) -> Any:
        assert self._open.wait(DEADLINE)
        return 201, run(json.loads(request.body)["data"]["n"])

    def _many(self, request: Any) -> Any:
        numbers = [order["data"]["n"] for order in json.loads(request.body)]
        return 200, {"runs": [refusal("E_DATA") if number == 9 else run(number) for number in numbers]}


def test_tasks_that_share_a_client(fake: Fake) -> None:
    gate = Gate(fake)

    async def all_at_once() -> list[Any]:
        async with Client(fake.url) as client:
            tasks = [asyncio.create_task(client.run_now(7, data={"n": number})) for number in range(20)]
            while not fake.requests:
                await asyncio.sleep(0)
            tasks[12].cancel()
            gate.open()
            return await asyncio.gather(*tasks, return_exceptions=True)

    ended = asyncio.run(all_at_once())
    assert isinstance(ended[9], Invalid)
    assert isinstance(ended[12], asyncio.CancelledError)
    assert [one.id for number, one in enumerate(ended) if number not in (9, 12)] == [
        100 + number for number in range(20) if number not in (9, 12)
    ]
    assert len(fake.requests) < 10


def test_threads_that_share_a_client(fake: Fake) -> None:
    gate = Gate(fake)
    with SyncClient(fake.url) as client, ThreadPoolExecutor(20) as pool:
        calls = [pool.submit(client.json.run_now, 7, data={"n": number}) for number in range(20) if number != 9]
        until = time.monotonic() + DEADLINE
        while len(client._orders._waiting) < 18 and not fake.asked("POST", "/v1/runs"):
            assert time.monotonic() < until
        gate.open()
        assert [call.result(DEADLINE)["data"]["n"] for call in calls] == [n for n in range(20) if n != 9]
    assert len(fake.requests) < 10


def test_tasks_that_ask_again_as_soon_as_they_are_told_stay_together(fake: Fake) -> None:
    gate = Gate(fake)
    gate.open()

    async def one(client: Client) -> None:
        for number in range(20, 30):
            assert (await client.run_now(7, data={"n": number})).id == 100 + number

    async def all_at_once() -> None:
        async with Client(fake.url) as client, asyncio.TaskGroup() as group:
            for _ in range(16):
                group.create_task(one(client))

    asyncio.run(all_at_once())
    together = [len(json.loads(request.body)) for request in fake.asked("POST", "/v1/runs")]
    assert sum(together) + len(fake.asked("POST", "/v1/jobs/7/run")) == 160
    assert sum(together) / len(together) > 8


def test_a_problem_has_its_own_traceback_in_each_task(fake: Fake) -> None:
    gate = Gate(fake)
    fake.post("/v1/runs", problem(503, "E_UNAVAILABLE", "no database", hint="wait"))

    async def all_at_once() -> list[Any]:
        async with Client(fake.url) as client:
            tasks = [asyncio.create_task(client.run_now(7, data={"n": number})) for number in range(4)]
            while not fake.requests:
                await asyncio.sleep(0)
            gate.open()
            return (await asyncio.gather(*tasks, return_exceptions=True))[1:]

    refused = asyncio.run(all_at_once())
    assert {(type(one), one.code, one.hint) for one in refused} == {(Unavailable, "E_UNAVAILABLE", "wait")}
    assert len({id(one) for one in refused}) == 3


# ── very many in one call ──


def test_answers_are_read_while_the_next_part_is_with_the_server(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("horae.client.making.MANY", 100)
    read: list[int] = []

    def answer(request: Any) -> Any:
        numbers = [order["data"]["n"] for order in json.loads(request.body)]
        return 200, {"runs": [run(number) for number in numbers]}

    class Answers(making.OrderAnswers):
        def all(self) -> list[Any]:
            found = super().all()
            read.append(len(found))
            return found

    monkeypatch.setattr(running, "OrderAnswers", Answers)
    fake.post("/v1/runs", answer)
    with SyncClient(fake.url) as client:
        made = client.run_many({"job": 7, "data": {"n": n}} for n in range(250))
        plain = client.json.run_many({"job": 7, "data": {"n": n}} for n in range(250))
    assert [one.run.id for one in made if one.run] == [100 + n for n in range(250)]
    assert [one["run"]["id"] for one in plain] == [100 + n for n in range(250)]
    assert read == [0, 100, 200, 250] * 2


def test_an_answer_that_cannot_be_read_is_told_when_all_is_sent(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("horae.client.making.MANY", 100)
    fake.post("/v1/runs", {"runs": [{"job_id": 7, "id": "x"}]})
    with SyncClient(fake.url) as client, pytest.raises(Unavailable):
        client.run_many({"job": 7} for _ in range(250))
    assert len(fake.requests) == 3
