"""Many remote agents in one process: each is the real Agent behind a real link over gRPC; only what executes is not.

Runs of jobs whose name begins with `hold` never end; all others end at once. It says when every agent has joined, and
then does what it is told on standard input, one word a line:

    stat   answer with counts, CPU time and memory, as one JSON line
    stop   end, without a word to the server
"""

from __future__ import annotations

import asyncio
import json
import logging
import resource
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import structlog
import uvloop

from bench.child import orders, say
from horae.app.machine import SystemClock
from horae.app.roles import REMOTE_POLL, AgentRole
from horae.core.model import Node, State
from horae.core.runs.orders import Result
from horae.files import open_files
from horae.links.grpc import GrpcLink
from horae.links.session import Credentials
from horae.links.spool import AgentSpool
from horae.ports.work import Done, Executor, Keeper, Kept, Work
from horae.service.agent.agent import Agent

KINDS = ("python", "shell", "git_python")
HOLD = "hold"
AT_ONCE = 20  # agents of a process that join at the same time


class Counts:
    """Of all agents of the process."""

    def __init__(self) -> None:
        self.connected: set[int] = set()
        self.joins = self.done = 0

    def note(self, number: int, word: str) -> None:
        if word == "joined":
            self.connected.add(number)
            self.joins += 1
        else:
            self.connected.discard(number)


class NoWork:
    """An executor that has done everything at once, but what is held."""

    def __init__(self, kind: str, slots: int, counts: Counts) -> None:
        self.kind, self.slots = kind, slots
        self._counts = counts

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    def start(self, works: Sequence[Work], done: Done) -> None:
        for work in works:
            if not work.assignment.name.startswith(HOLD):
                asyncio.get_running_loop().call_soon(self._end, work, done)

    def _end(self, work: Work, done: Done) -> None:
        self._counts.done += 1
        a, at = work.assignment, work.started_at
        done(Result(a.run_id, a.fence, State.SUCCEEDED, started_at=at, finished_at=at))

    def stop(self, run_id: int, reason: str) -> None: ...


class NoKeeper:
    is_alive = True
    keeps = False
    kept: Sequence[Kept] = ()

    async def open(self) -> None: ...

    def renew(self, seconds: float) -> None: ...

    async def close(self) -> None: ...


async def live(
    number: int, settings: dict[str, Any], counts: Counts, joined: asyncio.Semaphore, door: asyncio.Semaphore
) -> None:
    """One agent, for ever; a few at a time join."""
    clock, directory = SystemClock(), Path(settings["directory"]) / str(number)
    spool = AgentSpool(open_files(directory / "outputs"), directory)
    credentials = Credentials(identity=f"{number:016x}", session=f"{number:016x}")
    link = GrpcLink([settings["server"]], spool, credentials, on_change=lambda word, _: counts.note(number, word))
    executors = {kind: cast(Executor, NoWork(kind, settings["slots"], counts)) for kind in KINDS}
    now = clock.now()
    node = Node(
        name=f"agent-{number}", roles=("agent",), kinds=KINDS, labels=("linux", "x86_64"), slots=settings["slots"],
        version="bench", address="", started_at=now, heartbeat_at=now, beat=0,
    )  # fmt: skip
    agent = Agent(
        node, link, executors, spool, cast(Keeper, NoKeeper()), clock, lease_seconds=15.0, output_limit=1 << 20
    )  # fmt: skip
    async with asyncio.TaskGroup() as group:
        async with door:
            group.create_task(link.run())
            await agent.join()
        joined.release()
        group.create_task(AgentRole(agent, link, clock, interval=5.0, poll=REMOTE_POLL).run())


def stat(counts: Counts) -> dict[str, Any]:
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {
        "lines": len(counts.connected), "joins": counts.joins, "done": counts.done, "cpu": time.process_time(),
        "memory_mib": round(memory),
    }  # fmt: skip


async def main(settings: dict[str, Any]) -> None:
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    counts, joined = Counts(), asyncio.Semaphore(0)
    reader = await orders()
    numbers = range(settings["first"], settings["first"] + settings["count"])
    door = asyncio.Semaphore(AT_ONCE)
    agents = [asyncio.create_task(live(number, settings, counts, joined, door)) for number in numbers]
    for _ in numbers:
        await joined.acquire()
    say(ready=True)
    while (await reader.readline()).decode().strip() == "stat":
        say(**stat(counts))
    for agent in agents:
        agent.cancel()
    await asyncio.gather(*agents, return_exceptions=True)
    say(stopped=True)


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main(json.loads(sys.argv[1])))
