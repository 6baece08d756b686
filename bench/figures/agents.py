"""Many remote agents on one server: what they cost while nothing happens, when all come at once, and at work.

The agents are real ones (bench/agents.py), a few hundred in a process; the server is one process of its own. What is
counted is what the database does for them.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

from bench.agents import HOLD, KINDS
from bench.figure import Aim, Bench, Line, Void, figure
from bench.load import CHUNK, submit
from bench.node import Node, _environment, _free_port, node
from bench.places import Place
from horae.core.model import State
from horae.core.runs.ledger import new_run
from horae.core.runs.orders import Order
from horae.core.work import specs
from horae.queues.shared import SharedQueue
from horae.stores.postgres.notices import Notices

PATIENCE = 240.0  # seconds
LOOK = 0.1  # seconds between two looks
SETTLE = 3.0  # seconds in which what was begun ends, and the server has counted it
SHARES = (0.35, 0.35, 0.3)  # of the agents, in a process each; the last one dies
SLOTS = 4  # of each kind
FEW = 10  # runs of which a hint tells
WORK = {"python": {"handler": "horae.handlers:noop"}, "shell": {"steps": [{"name": "one", "run": "true"}]}}
COUNTERS = "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()"
IDLE_AIM = Aim("at most", 5)  # transactions a second for a hundred agents


@dataclass(frozen=True, slots=True)
class Count:
    at: float
    transactions: int
    stat: dict[str, Any]

    def since(self, before: Count) -> dict[str, Any]:
        seconds = self.at - before.at
        return {
            "seconds": round(seconds, 2),
            "transactions": self.transactions - before.transactions,
            "statements": self.stat["statements"] - before.stat["statements"],
            "cpu_share": round((self.stat["cpu"] - before.stat["cpu"]) / seconds, 3),
            "memory_mib": self.stat["memory_mib"],
        }


@figure(
    "agents",
    "many agents on one server: idle, all at once, told of a few runs, draining a backlog, and many of them dead",
    stores=("postgres",), agents=[1000], size=[100_000], seconds=[20],
    quick={"agents": [50], "size": [2000], "seconds": [5]},
)  # fmt: skip
async def agents(bench: Bench) -> AsyncIterator[Line]:
    for count in bench["agents"]:
        async with bench.places.fresh(bench.store) as place:
            world = World(place, count, bench["size"][0], bench["seconds"][0])
            try:
                async for line in world.figures():
                    yield line
            except Void as why:
                yield Line("agents", bench.store, "", detail={"agents": count}, void=str(why))
            finally:
                await world.close()


class World:
    """A server, its agents, and what is done to them."""

    def __init__(self, place: Place, count: int, size: int, seconds: float) -> None:
        self._place, self._count, self._size, self._seconds = place, count, size, seconds
        self._port = _free_port()
        self._server = AsyncExitStack()
        self._crowds = AsyncExitStack()
        self._crowd: list[Node] = []
        self._jobs: dict[str, list[int]] = {}
        self.one: Node | None = None

    async def figures(self) -> AsyncIterator[Line]:
        await self._load()
        await self._start_server("front")
        for kind, figure_of in (
            ("join", self._join), ("idle", self._idle), ("hello", self._hello), ("hint", self._hint),
            ("drain", self._drain), ("leader", self._leader),
        ):  # fmt: skip
            print(f"bench: agents.{kind}", file=sys.stderr)
            line = await figure_of()
            line.figure, line.store = f"agents.{kind}", self._place.store
            line.detail = {"agents": self._count, **line.detail}
            yield line

    async def close(self) -> None:
        await self._crowds.aclose()
        await self._server.aclose()

    # ── the figures ──
    async def _join(self) -> Line:
        before = await self._counted()
        await self._start_crowd()
        cost = (await self._counted()).since(before)
        return Line("", "", "statements per agent", cost["statements"] / self._count, detail=cost)

    async def _idle(self) -> Line:
        await asyncio.sleep(SETTLE)
        before, lines = await self._counted(), await self._stats()
        await asyncio.sleep(self._seconds)
        cost = (await self._counted()).since(before)
        self._judge_lines(lines, await self._stats())
        value = cost["transactions"] / cost["seconds"] / self._count * 100
        detail = {**cost, "per_second": round(cost["transactions"] / cost["seconds"], 1)}
        return Line("", "", "transactions/s per 100 agents", value, aim=IDLE_AIM, detail=detail)

    async def _hello(self) -> Line:
        """Return the server is restarted, and everybody comes again."""
        joins = sum(stat["joins"] for stat in await self._stats())
        await self._server.aclose()
        began = time.monotonic()
        await self._start_server("front")
        await self._until("joins", joins + self._count)
        after = await self._counted()  # of a process that has done nothing else
        detail = {
            "statements": after.stat["statements"], "cpu_seconds": round(after.stat["cpu"], 2),
            "all_back_s": round(time.monotonic() - began, 2),
        }  # fmt: skip
        return Line("", "", "statements per agent", after.stat["statements"] / self._count, detail=detail)

    async def _hint(self) -> Line:
        """Return a few runs, of which everybody could be told."""
        await asyncio.sleep(SETTLE)
        before, done = await self._counted(), sum(stat["done"] for stat in await self._stats())
        began = time.monotonic()
        await self._order("python", FEW)
        await self._until("done", done + FEW)
        taken = time.monotonic() - began
        await asyncio.sleep(SETTLE)
        cost = (await self._counted()).since(before)
        detail = {"runs": FEW, "all_done_s": round(taken, 3), **cost}
        return Line("", "", "statements", cost["statements"], detail=detail)

    async def _drain(self) -> Line:
        before, done = await self._counted(), sum(stat["done"] for stat in await self._stats())
        began = time.monotonic()
        for kind in WORK:
            await self._order(kind, self._size // len(WORK))
        queued = time.monotonic() - began
        await self._until("done", done + self._size)
        await self._finished()
        taken = time.monotonic() - began
        after = await self._counted()
        cost = after.since(before)
        claims = after.stat["batches"].get("claim", 0) - before.stat["batches"].get("claim", 0)
        detail = {
            "runs": self._size, "queued_s": round(queued, 2), **cost,
            "transactions_per_run": round(cost["transactions"] / self._size, 4), "claims_that_found": claims,
        }  # fmt: skip
        return Line("", "", "runs/s", self._size / taken, detail=detail)

    async def _leader(self) -> Line:
        """Return the server and a process of agents die, each agent with runs; another server takes over."""
        dead = self._crowd[-1]
        await self._order("hold", self._count * SLOTS)
        await self._held(self._count * SLOTS)
        names = (await dead.stat())["lines"]
        dead.kill()
        assert self.one is not None
        self.one.kill()
        await self._start_server("second", is_first=False)
        before = await self._counted()
        began, first = time.monotonic(), 0.0
        while (gone := (await self._place.rows("SELECT count(*) FROM nodes WHERE state = 'gone'"))[0][0]) < names:
            first = first or (time.monotonic() if gone else 0.0)
            if time.monotonic() - began > PATIENCE:
                raise Void(f"{gone} of {names} dead agents were found after {PATIENCE:.0f} s")
            await asyncio.sleep(LOOK)
        burial = time.monotonic() - (first or time.monotonic())
        await self._requeued()
        cost = (await self._counted()).since(before)
        detail = {"dead": names, "first_to_last_s": round(burial, 2), **cost}
        return Line("", "", "statements per dead agent", cost["statements"] / names, detail=detail)

    # ── the parts ──
    async def _start_server(self, name: str, *, is_first: bool = True) -> None:
        """The same name comes again as the same node."""
        if not is_first:
            self._server.pop_all()  # it is dead already
        flags = {"roles": "api,coordinator,scheduler", "grpc_port": str(self._port), "node": name}
        self.one = await self._server.enter_async_context(node(self._place, **flags))
        await self.one.go()
        await self.one.serve()

    async def _start_crowd(self) -> None:
        first = 0
        for share in SHARES:
            count = round(self._count * share)
            crowd = _crowd(self._place, self._port, first, count)
            self._crowd.append(await self._crowds.enter_async_context(crowd))
            first += count
        for each in self._crowd:
            await each.hear(PATIENCE)

    async def _counted(self) -> Count:
        assert self.one is not None
        ((transactions,),) = await self._place.rows(COUNTERS)
        return Count(time.monotonic(), transactions, await self.one.stat())

    async def _stats(self) -> list[dict[str, Any]]:
        return [await each.stat() for each in self._crowd]

    def _judge_lines(self, before: Sequence[dict[str, Any]], after: Sequence[dict[str, Any]]) -> None:
        lines, joins = (sum(stat[name] for stat in after) for name in ("lines", "joins"))
        if lines != self._count or joins != sum(stat["joins"] for stat in before):
            raise Void(f"{self._count} agents should stay connected; {lines} are, and some came again")

    async def _until(self, what: str, target: int) -> None:
        deadline = time.monotonic() + PATIENCE
        while (reached := sum(stat[what] for stat in await self._stats())) < target:
            if time.monotonic() > deadline:
                raise Void(f"{reached} of {target} {what} after {PATIENCE:.0f} s")
            await asyncio.sleep(LOOK)

    async def _finished(self) -> None:
        while (await self._place.rows("SELECT count(*) FROM live"))[0][0]:
            await asyncio.sleep(LOOK)
        bad = (await self._place.rows(f"SELECT count(*) FROM history WHERE state <> {int(State.SUCCEEDED)}"))[0][0]
        if bad:
            raise Void(f"{bad} runs did not succeed")

    async def _held(self, count: int) -> None:
        deadline = time.monotonic() + PATIENCE
        while (held := (await self._place.rows("SELECT count(*) FROM live WHERE state = 1"))[0][0]) < count:
            if time.monotonic() > deadline:
                raise Void(f"{held} of {count} runs are held after {PATIENCE:.0f} s")
            await asyncio.sleep(LOOK)

    async def _requeued(self) -> None:
        statement = "SELECT count(*) FROM live l JOIN nodes n ON n.name = l.node WHERE l.state = 1 AND n.state = 'gone'"
        while (await self._place.rows(statement))[0][0]:
            await asyncio.sleep(LOOK)

    async def _load(self) -> None:
        """Jobs of each kind, one for each run that is to wait."""
        store = await self._place.open()
        policy = {"overlap": "allow"}
        for kind, work in {**WORK, "hold": WORK["python"]}.items():
            name = HOLD if kind == "hold" else kind
            await submit(store, [specs.parse_job({"name": name, **work, **policy})])
            self._jobs[kind] = [row[0] for row in await self._place.rows(f"SELECT id FROM jobs WHERE name = '{name}'")]
        await store.close()

    async def _order(self, kind: str, count: int) -> None:
        """Runs that wait, and the word that they do."""
        store = await self._place.open()
        queue = SharedQueue(lambda: Notices.open(self._place.flags["database"], timeout=5.0))
        await queue.open()
        await queue.is_listening.wait()
        policy = specs.parse_job({"name": "any", **WORK["python"], "overlap": "allow"}).policy
        moment, (job_id,) = await store.now(), self._jobs[kind]
        run_kind = "python" if kind == "hold" else kind
        new = new_run(job_id, run_kind, policy, moment)
        for start in range(0, count, CHUNK):
            await store.enqueue([Order(new) for _ in range(min(CHUNK, count - start))])
            queue.announce("runs")
        sent = queue.sent
        while queue.others and queue.sent == sent:
            await asyncio.sleep(0.005)
        await queue.close()
        await store.close()


@asynccontextmanager
async def _crowd(place: Place, port: int, first: int, count: int) -> AsyncIterator[Node]:
    settings = {
        "server": f"127.0.0.1:{port}", "first": first, "count": count, "slots": SLOTS,
        "directory": str(place.directory / "crowd"),
    }  # fmt: skip
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.agents", json.dumps(settings), stdin=PIPE, stdout=PIPE, env=_environment()
    )
    handle = Node(process)
    try:
        yield handle
    finally:
        handle.kill()
        await process.wait()


assert set(WORK) < set(KINDS)
