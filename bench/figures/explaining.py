"""How long an explanation takes, and how many statements, with very many triggers and runs behind it: within the
process, from a real server by the clock of whoever asks it, and by the command."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from functools import partial
from statistics import median
from typing import Any, NamedTuple

from bench.counted import HEADER
from bench.figure import Aim, Bench, Line, Void, figure, percentile
from bench.loadgen import Wire
from bench.node import Server, ready, server, time_command
from bench.past import DAYS, FAILING, SKIPPING, fill, rest
from horae.core.model import Node, RunFilter, State
from horae.core.time.moments import format_moment
from horae.ports.store import Store
from horae.queues.local import LocalQueue
from horae.service.insight.explaining import Explaining
from horae.service.policy.queues import Queues

LIMIT = 50.0  # milliseconds
TIMES = 30  # each is asked for so often, after a first time that warms up
NODES = 50

Times = tuple[float, float, int]  # median and p99 in milliseconds, and statements


class Question(NamedTuple):
    about: str  # run, job or trigger
    id: int
    at: str | None = None


@figure(
    "explain",
    "the slowest explanation of a run, a job or a trigger, p99, in the process and from a server; statements of each",
    registered=[100_000], size=[10_000_000], trials=TIMES, quick={"registered": [2_000], "size": [20_000]},
)  # fmt: skip
async def explain(bench: Bench) -> AsyncIterator[Line]:
    for registered in bench["registered"]:
        for size in bench["size"]:
            async with bench.places.fresh(bench.store) as place:
                took = await fill(place, registered, size)
                detail = {"registered": registered, "runs": size, "fill_s": round(took)}
                store = await place.open()
                try:
                    questions = await _questions(store, registered, size)
                    await _register_nodes(store)
                    detail["round_trip_ms"] = await _round_trip(store)
                    times = await _time_service(store, questions, bench["trials"])
                finally:
                    await store.close()
                yield _line("explain", bench.store, detail, times)
                await rest(place)
                async with server(place, program="bench.counted", roles="api") as up:
                    await ready(up)
                    detail["cli_s"] = await _time_commands(up, questions)
                    times = await _time_server(up, questions, bench["trials"])
                yield _line("explain.http", bench.store, detail, times)


def _line(name: str, store: str, detail: dict[str, Any], times: dict[str, Times]) -> Line:
    slowest = max(times, key=lambda asked: times[asked][1])
    told = {**detail, "slowest": slowest, "p50_p99_ms_statements": times}
    return Line(name, store, "ms", times[slowest][1], aim=Aim("at most", LIMIT), detail=told)


async def _round_trip(store: Store) -> float:
    """Median of a statement that does nothing, in milliseconds: what is asked cannot be faster than its statements."""
    took = []
    for _ in range(TIMES):
        began = time.perf_counter()
        await store.load_owner(-1)
        took.append((time.perf_counter() - began) * 1000)
    return round(median(took), 2)


async def _register_nodes(store: Store) -> None:
    """Agents that could take a run, and stay for as long as questions are asked."""
    now = time.time_ns() // 1000
    for number in range(NODES):
        await store.register_node(
            Node(f"node {number}", ("agent",), ("python",), (), 20, "1", "", now, now + DAYS, 0)
        )  # fmt: skip


async def _time_service(store: Any, questions: dict[str, Question], times: int) -> dict[str, Times]:
    """Name → what it takes within the process."""
    counted, why = _Counter(store), Explaining(store, Queues(store, LocalQueue()))
    found = {}
    for name, (about, number, at) in questions.items():
        ask = partial(why.run, number) if about == "run" else partial(getattr(why, about), number, at)
        await ask()
        took, before = [], counted.statements
        for _ in range(times):
            began = time.perf_counter()
            await ask()
            took.append((time.perf_counter() - began) * 1000)
        found[name] = _told(took, round((counted.statements - before) / times))
    return found


async def _time_server(up: Server, questions: dict[str, Question], times: int) -> dict[str, Times]:
    """Name → what it takes by the clock of whoever asks a server over a connection that is open."""
    wire = await Wire.connect(up.port)
    found = {}
    try:
        for name, (about, number, at) in questions.items():
            path = f"/v1/explain/{about}s/{number}{f'?at={at}' if at else ''}"
            await _ask(wire, path)
            answers = [await _ask(wire, path) for _ in range(times)]
            found[name] = _told([ms for ms, _ in answers], max(statements for _, statements in answers))
    finally:
        wire.close()
    return found


async def _ask(wire: Wire, path: str) -> tuple[float, int]:
    """Return milliseconds and statements."""
    began = time.perf_counter()
    status, head, body = await wire.answer("GET", path)
    took = (time.perf_counter() - began) * 1000
    if status != 200:
        raise Void(f"{path}: {status} {body.decode()[:200]}")
    return took, len(json.loads(head.partition(HEADER + b": ")[2].partition(b"\r\n")[0])["statements"])


async def _time_commands(up: Server, questions: dict[str, Question]) -> dict[str, float]:
    """Name → seconds of a command, with the start of its process."""
    return {
        name: await time_command(up, "explain", f"run:{number}", "--json")
        for name, (about, number, _) in questions.items() if about == "run"
    }  # fmt: skip


def _told(took: list[float], statements: int) -> Times:
    return round(median(took), 2), round(percentile(sorted(took), 0.99), 2), statements


class _Counter:
    """Counts what is read of a store."""

    def __init__(self, store: Any) -> None:
        self.statements = 0
        name = "_once_more" if hasattr(store, "_once_more") else "read"  # where all reads of PostgreSQL, of SQLite meet
        read = getattr(store, name)

        async def counting(*args: Any) -> Any:
            self.statements += 1
            return await read(*args)

        setattr(store, name, counting)


async def _questions(store: Store, jobs: int, runs: int) -> dict[str, Question]:
    """Name → what is asked."""
    now = time.time_ns() // 1000
    questions = {}
    for state in State:
        for run in (await store.list_runs(RunFilter(states=(state,)), None, 1)).items:
            questions[f"run: {state.word}"] = Question("run", run.id)
    old = (await store.get_run(runs // 2)) or (await store.get_run(1))
    assert old is not None
    moments = {
        "job that always fails, at no moment": (FAILING, now - DAYS // 2),
        "job always skipped, at no moment": (SKIPPING, now - DAYS // 2),
        "job at the moment of a record": (old.job_id, old.due_at),
        "job at a moment to come": (jobs // 2, now + DAYS),
    }
    for name, (job_id, at) in moments.items():
        questions[f"at: {name}"] = Question("job", job_id, format_moment(at))
    for name, job_id in {"any": jobs // 2, "that always fails": FAILING, "always skipped": SKIPPING}.items():
        questions[f"job: {name}"] = Question("job", job_id)
    questions["trigger"] = Question("trigger", jobs // 2)
    questions["trigger at a moment to come"] = Question("trigger", jobs // 2, format_moment(now + DAYS))
    return questions
