"""What queues, shares and limits cost: claims while very much waits, and the census with all of them in use."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

from bench.figure import Aim, Bench, Line, Void, figure, measure
from bench.figures.census import BUDGET, count, fill, judge, per_run
from bench.figures.rates import lead
from bench.load import CHUNK, at, drafts, sleep_until
from bench.node import node, now
from bench.places import Place
from horae.core.model import SECOND, Json, Overlap, Policy, State
from horae.core.policy.demands import Offer, Whose, demand_of
from horae.core.policy.queues import Queue
from horae.core.runs.orders import Assignment, NewRun, Order, Result, Want
from horae.core.work import specs
from horae.ports.store import Store
from horae.queues.local import LocalQueue
from horae.service.jobs import Jobs

CLAIMED = 100  # runs at a time
LOOK_EVERY = 10  # claims: so often somebody looks for runs that a limit may let go
NODE, KIND = "bench", "python"
OWNERS = {"ann": 1, "bob": 2, "eve": 4, "dan": 1}  # with their weights
LIMITED = 200  # of so many jobs, one has limits, and another asks for more than a slot
DEMANDS: tuple[Json, Json] = (
    {
        "concurrency_limits": [{"limit": 10_000, "per": "owner"}],
        "rate_limits": [{"rate": "100000/s", "burst": 10_000, "per": "owner"}],
    },
    {"resources": {"cpus": 0.01, "gpu": 1}},
)
OFFERED = "gpu=1000"
REST = 0.5  # seconds at the end of a turn in which nothing falls due any more
Cost = tuple[dict[str, float], dict[str, Any]]  # of a run, and what was seen
LATE = """SELECT j.policy LIKE '%limits%' OR j.policy LIKE '%gpu%',
  percentile_cont(0.5) WITHIN GROUP (ORDER BY h.started_at - h.due_at) / 1000
FROM history h JOIN jobs j ON j.id = h.job_id GROUP BY 1"""


# ── claims while much waits ──


@figure(
    "waiting",
    "runs claimed per second of claiming, with so many queued and as many blocked runs of one owner; bare: with 1,000",
    size=[1_000_000], quick={"size": [20_000]},
)  # fmt: skip
async def waiting(bench: Bench) -> AsyncIterator[Line]:
    for size in bench["size"]:
        line = Line("waiting", bench.store, "runs/s", aim=Aim("at least", 0.8, "quotient"), detail={"size": size})

        async def ours(size: int = size) -> tuple[float, dict[str, Any]]:
            async with bench.places.fresh(bench.store) as place:
                return await _claim(place, size)

        async def few() -> float:
            async with bench.places.fresh(bench.store) as place:
                return (await _claim(place, 1000))[0]

        yield await measure(line, bench["trials"], ours, few)


async def _claim(place: Place, size: int, claims: int = 200) -> tuple[float, dict[str, Any]]:
    """Claim, finish and make as many again, so that always as much waits."""
    store = await place.open()
    plain = await _fill(store, size)
    await place.settle()
    await _hold_limit(store)
    spent, looked = 0.0, 0.0
    for number in range(claims):
        began = time.perf_counter()
        if number % LOOK_EVERY == 0:
            claimed = await store.claim_demanding([Offer(NODE, None, {KIND: CLAIMED}, {})])
            looked += time.perf_counter() - began
            if any(claimed.given):
                raise Void("a run was started whose limit is full")
        (given,) = await store.claim([Want(NODE, KIND, CLAIMED)])
        spent += time.perf_counter() - began
        if given is None or len(given) != CLAIMED:
            raise Void(f"{CLAIMED} runs were to be had, got {given and len(given)}")
        await _finish(store, given)
        await store.enqueue([plain] * CLAIMED)
    await store.close()
    await _judge(place, size)
    looks = -(-claims // LOOK_EVERY)
    detail = {"claim_ms": round((spent - looked) / claims * 1000, 3), "look_ms": round(looked / looks * 1000, 3)}
    return claims * CLAIMED / spent, detail


async def _fill(store: Store, size: int) -> Order:
    """Make runs of two jobs of one owner: some that wait for an agent, of which one more is returned, and some that are
    blocked by a limit."""
    service = Jobs(store, LocalQueue())
    narrow = specs.parse_job({"name": "narrow", "handler": "horae.handlers:noop", "concurrency_limits": [{"limit": 1}]})
    made = (await service.submit([*drafts(1), narrow])).jobs
    demand = demand_of(narrow.policy, Queue(0, "default"), Whose(made[1].id, "local", 0))
    assert demand is not None
    [demand_id] = await store.demand_ids([demand])
    plain = _order(made[0].id, narrow.policy)
    limited = Order(replace(_order(made[1].id, narrow.policy).run, demand=demand_id))
    for order in (limited, plain):
        for first in range(0, size, CHUNK):
            await store.enqueue([order] * min(CHUNK, size - first))
    return plain


def _order(job_id: int, policy: Policy) -> Order:
    return Order(NewRun(job_id, KIND, policy.priority, Overlap.ALLOW, share="local"))


async def _hold_limit(store: Store) -> None:
    """Start the one run that the limit allows: the others wait for it."""
    for _ in range(2):  # of those that wait, ordinary ones are as many in front of it as there is room for
        claimed = await store.claim_demanding([Offer(NODE, None, {KIND: CLAIMED}, {})])
        if any(claimed.given):
            return
    raise Void("the first of the limited runs was not started")


async def _finish(store: Store, given: list[Assignment]) -> None:
    now = time.time_ns() // 1000
    await store.finish([Result(a.run_id, a.fence, State.SUCCEEDED, finished_at=now) for a in given])


async def _judge(place: Place, size: int) -> None:
    states = dict(await place.rows("SELECT state, count(*) FROM live GROUP BY state"))
    expected = {int(State.QUEUED): size, int(State.BLOCKED): size - 1, int(State.RUNNING): 1}
    if states != expected:
        raise Void(f"{expected} expected, got {states}")


# ── the census with all of it in use ──


@figure(
    "census-shared",
    "the census with owners of several weights, limits and resources in use; bare: without any of it, in turns",
    stores=("postgres",), trials=5, rate=[5000], seconds=[5], lead=None,
    quick={"rate": [2000], "seconds": [3], "trials": 1},
)  # fmt: skip
async def census_shared(bench: Bench) -> AsyncIterator[Line]:
    for rate in bench["rate"]:
        for seconds in bench["seconds"]:
            detail: dict[str, Any] = {"rate": rate, "seconds": seconds, "owners": OWNERS, "limited": f"2 of {LIMITED}"}
            try:
                bare, ours, late = await _take_turns(bench, rate, seconds)
            except Void as why:
                yield Line("census-shared", bench.store, "per run", detail=detail, void=str(why))
                continue
            detail |= late
            for name, budget in BUDGET.items():
                yield _median_line(f"census-shared.{name}", bench.store, budget, detail, [
                    (one[name], other[name], {**seen, **{f"bare_{key}": plain[key] for key in ("batches", "queries")}})
                    for (one, seen), (other, plain) in zip(ours, bare, strict=True)
                ])  # fmt: skip


def _median_line(
    name: str, store: str, budget: float, detail: dict[str, Any], turns: list[tuple[float, float, dict[str, Any]]]
) -> Line:
    """Return the turn with the median quotient of its two halves."""
    turns = sorted(turns, key=lambda turn: turn[0] / turn[1])
    value, bare, seen = turns[len(turns) // 2]
    quotients = [round(ours / bare, 3) for ours, bare, _ in turns]
    own = {"budget": budget, "is_within": value <= budget, "quotients": quotients}
    return Line(name, store, "per run", value, bare, Aim("at most", 1.05, "quotient"), own | detail | seen)


async def _take_turns(bench: Bench, rate: int, seconds: int) -> tuple[list[Cost], list[Cost], dict[str, Any]]:
    """Return what runs cost in each turn without shares and with them, and how late those were.

    Both halves are up all the time, each on a database of its own, and the moments of one fall due while the other
    rests: what the machine does beside meets both.
    """
    size = round(rate * (seconds - REST))
    began = now() + 2 * lead(bench, size) * SECOND
    costs: tuple[list[Cost], list[Cost]] = ([], [])
    async with AsyncExitStack() as stack:
        places = [await stack.enter_async_context(bench.places.fresh(bench.store)) for _ in costs]
        for number, (place, fill_it) in enumerate(zip(places, (fill, _fill_shared), strict=True)):
            start_at, jitter = at(began + number * seconds * SECOND), f"{round((seconds - REST) * 1000) - 1}ms"
            await fill_it(place, size, {"every": f"{2 * seconds}s", "start_at": start_at, "jitter": jitter})
        nodes = [await stack.enter_async_context(node(place, resources=OFFERED)) for place in places]
        for one in nodes:
            await one.go()
        await sleep_until(began)
        for turn in range(bench["trials"] + 1):
            for number, (place, one) in enumerate(zip(places, nodes, strict=True)):
                end = began + (2 * turn + number + 1) * seconds * SECOND
                before = await count(place, one)
                await asyncio.sleep(max(0, end - now()) / SECOND)
                after = await count(place, one)
                if turn:  # the first has filled every cache
                    await judge(place, before, after)
                    costs[number].append(per_run(before, after))
        return *costs, await _lateness(places[1])


async def _lateness(place: Place) -> dict[str, Any]:
    """How late runs start, ms p50."""
    late = dict(await place.rows(LATE))
    return {"late_ms": {"limited": round(late[True], 1), "ordinary": round(late[False], 1)}}


async def _fill_shared(place: Place, size: int, schedule: Json) -> None:
    """With jobs of several owners, some of which have limits that they do not reach, or ask for what is plentiful."""
    store = await place.open()
    service = Jobs(store, LocalQueue())
    await service.queues.put("default", {"weights": OWNERS})
    read = (specs.parse_job({"name": "limited", "handler": "horae.handlers:noop", **said}) for said in DEMANDS)
    policies = dict(zip((0, LIMITED // 2), (draft.policy for draft in read), strict=True))
    jobs = [
        replace(draft, policy=policies.get(number % LIMITED, draft.policy))
        for number, draft in enumerate(drafts(size, schedule=schedule))
    ]
    owners = list(OWNERS)
    portion = min(CHUNK, -(-size // len(owners)))
    for number, first in enumerate(range(0, size, portion)):
        await service.submit(jobs[first : first + portion], owner=owners[number % len(owners)])
    await store.close()
    await place.settle()
