"""A workflow whose servers and agents are killed while its tasks fan out and in: each is done once.

There are 60 items in `make test`, and 200 where it may be long, or HORAE_KILL_JOBS; and a kill for every 25 of them on
PostgreSQL, for every 20 on SQLite and for every 50 where it is long. It says what it did: `pytest -s`.
"""

from __future__ import annotations

import os
import random
import sqlite3
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from .agent import AgentProcess
from .server import DEADLINE, Server
from .test_inbox import sql
from .test_remote_agents import NO_AGENT, at

pytestmark = pytest.mark.slow

FEW, MANY = 60, int(os.environ.get("HORAE_KILL_JOBS", "200"))
TIMERS = ("--heartbeat-interval", "0.5s", "--lease", "6s")

# Each task is its own witness: it holds a lock while it is at work, and a second one that finds it taken says so. The
# lock goes with the process.
HANDLERS = """
import asyncio
import fcntl
from contextlib import contextmanager
from pathlib import Path

from horae import Context, handler

HERE = Path(__file__).parents[1]


def note(word, what, context):
    with open(HERE / "journal", "a") as journal:
        journal.write(f"{word} {what} {context.run_id} {context.fence}\\n")


@contextmanager
def at_work(what, context):
    with open(HERE / "locks" / what, "a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            note("OVERLAP", what, context)
        note("start", what, context)
        yield
        note("end", what, context)


@handler
async def numbers(context: Context):
    with at_work("numbers", context):
        return list(range(context.data["count"]))


@handler
async def square(context: Context):
    with at_work(f"square[{context.data['index']}]", context):
        await asyncio.sleep(context.data["pause"])
        return context.data["number"] ** 2


@handler
async def check(context: Context):
    with at_work("check", context):
        found = context.data["squares"]
        assert found == [number ** 2 for number in range(context.data["count"])], found
        return sum(found)


@handler
async def branch(context: Context):
    with at_work(context.data["name"], context):
        if context.data["name"] == "right" and (HERE / "broken").exists():
            raise ValueError("broken")
        return [context.data["name"], context.data.get("from")]
"""


def squares(count: int, *, at_once: int, pause: float) -> dict[str, Any]:
    """A list that a task returned, a task for each item of it, and one that looks at all their results."""
    data = {"number": "${item}", "index": "${index}", "pause": pause}
    return {
        "name": "squares", "key": "squares", "returns": "${check.result}",
        "tasks": {
            "numbers": {"handler": "kills:numbers", "data": {"count": count}},
            "square": {
                "needs": ["numbers"], "for_each": "${numbers.result}", "at_once": at_once, "handler": "kills:square",
                "data": data,
            },
            "check": {
                "needs": ["square"], "handler": "kills:check",
                "data": {"squares": "${square.results}", "count": count},
            },
        },
    }  # fmt: skip


def prepare(directory: Path) -> None:
    for name in ("jobs", "locks"):
        (directory / name).mkdir()
    (directory / "jobs" / "kills.py").write_text(HANDLERS)
    (directory / "journal").touch()


class Cast:
    """Servers and agents, each a process of its own."""

    def __init__(self, directory: Path, database: str | None, servers: int, agents: int) -> None:
        prepare(directory)
        self.directory, self._database = directory, database
        flags = (*NO_AGENT, *TIMERS, *(("--database", database) if database else ()))
        self.servers = []
        for number in range(servers):
            (directory / f"s{number}").mkdir()
            self.servers.append(Server(directory / f"s{number}", *flags, "--node", f"s{number}"))
        where = ",".join(at(server) for server in self.servers)
        more = ("--jobs-directory", str(directory / "jobs"), "--handler-slots", "8")
        self.agents = [AgentProcess(directory, where, f"a{number}", *more) for number in range(agents)]
        self.kills: Counter[str] = Counter()

    def start(self) -> Cast:
        for server in self.servers:
            server.launch()
        for agent in self.agents:
            agent.start()
        for server in self.servers:
            server.wait_until_up()
        for agent in self.agents:
            agent.joined()
        return self

    @property
    def server(self) -> Server:
        return self.servers[0]

    def stop(self) -> None:
        with ExitStack() as stack:
            for one in self.servers:
                stack.callback(one.stop)
            for two in self.agents:
                stack.callback(two.stop)

    def kill(self, victim: Server | AgentProcess) -> None:
        """And start it again, while the others go on."""
        victim.kill()
        if isinstance(victim, Server):
            self.kills["server"] += 1
            victim.launch()
        else:
            self.kills["agent"] += 1
            victim.start()

    def rows(self, statement: str) -> list[Any]:
        if self._database is not None:
            return sql(self._database, statement)
        with closing(sqlite3.connect(self.server.directory / "data" / "horae.db", timeout=30)) as connection:
            return connection.execute(statement).fetchall()

    def journal(self) -> list[list[str]]:
        """Return what the tasks have noted: word, task, run, fence."""
        return [line.split() for line in (self.directory / "journal").read_text().splitlines()]

    def wait_for_ends(self, count: int) -> None:
        """Wait until so many different tasks have come to an end, whoever knows of it."""

        def ended() -> bool:
            return len({what for word, what, *_ in self.journal() if word == "end"}) >= count

        self.server.wait_until(ended, f"{count} tasks to end", 2 * DEADLINE)


@pytest.fixture
def cast(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cast]:
    if request.param == "sqlite":
        made = Cast(tmp_path, None, servers=1, agents=2)
    else:
        made = Cast(tmp_path, request.getfixturevalue("postgres_url"), servers=2, agents=3)
    yield made.start()
    made.stop()


def play(cast: Cast, items: int, dice: random.Random) -> None:
    """Kill a server as the fan-out and the fan-in begin, and whoever is drawn again and again while the items pass:
    only agents, where all would have to wait for the one server."""
    is_alone = len(cast.servers) == 1
    kills = items // (25 if not is_alone else 50 if items > FEW else 20)
    victims: list[Server | AgentProcess] = [*cast.agents, *(() if is_alone else cast.servers)]
    cast.wait_for_ends(1)
    cast.kill(dice.choice(cast.servers))
    for number in range(1, kills):
        cast.wait_for_ends(number * items // kills)
        time.sleep(dice.uniform(0, 0.2))
        cast.kill(dice.choice(victims))
    cast.wait_for_ends(1 + items)
    cast.kill(dice.choice(cast.servers))
    for server in cast.servers:
        server.wait_until_up()


@pytest.mark.parametrize(
    ("cast", "items"),
    [("sqlite", FEW), *(pytest.param(store, MANY, marks=pytest.mark.long) for store in ("sqlite", "postgres"))],
    indirect=["cast"],
)
def test_every_item_is_done_once_and_the_sum_is_right_whoever_is_killed(cast: Cast, items: int) -> None:
    seed = random.randrange(1 << 30)
    began = time.monotonic()
    parent = order(cast.server, squares(items, at_once=items // 4, pause=0.7))
    play(cast, items, random.Random(seed))
    run = cast.server.ended(parent)
    took = time.monotonic() - began

    tasks = tasks_of(cast.server, parent)
    lost = sum(task["lost"] for task in tasks)
    version = cast.rows(f"SELECT version FROM flows WHERE run_id = {parent}")[0][0]
    print(f"\nseed {seed}: {len(tasks)} tasks, killed {dict(cast.kills)}, {lost} attempts lost, {version} steps, "
          f"{took:.1f} s")  # fmt: skip
    assert (run["state"], run["result"]) == ("succeeded", sum(n**2 for n in range(items))), f"seed {seed}"
    check_tasks(cast, tasks, items)


def tasks_of(server: Server, parent: int) -> list[Any]:
    return server.every("/v1/runs", parent=parent)


def check_tasks(cast: Cast, tasks: list[Any], count: int) -> None:
    """Each task has one run, which succeeded; none was at work twice at once; and nothing is left over."""
    labels = {"numbers", "check", *(f"square[{number}]" for number in range(count))}
    assert Counter(task["task"] for task in tasks) == Counter(labels)
    assert {task["state"] for task in tasks} == {"succeeded"}
    assert not [line for line in cast.journal() if line[0] == "OVERLAP"]
    by_label = {task["task"]: task for task in tasks}
    fences: dict[str, int] = {}
    ended = set()
    for word, what, run_id, fence in cast.journal():
        assert int(run_id) == by_label[what]["id"], "one run is all that a task ever has"
        if word == "start":
            assert int(fence) > fences.get(what, 0)
            fences[what] = int(fence)
        else:
            ended.add((what, int(fence)))
    assert ended >= {(task["task"], task["fence"]) for task in tasks}, "what succeeded has come to its end"
    begun = Counter(what for word, what, *_ in cast.journal() if word == "start")
    assert all(begun[task["task"]] <= 1 + task["lost"] for task in tasks), "and only what was lost is done again"
    cast.server.wait_until(lambda: not cast.rows("SELECT 1 FROM endings UNION ALL SELECT 1 FROM live"), "nothing left")


# ── at certain lines ──


WITHIN, BEHIND = "_step:after:{}", "move_flows:after:{}"  # made and not committed; committed and nobody told
SOME = [WITHIN.format(2), BEHIND.format(1)]  # of the fan-out
EVERY = [WITHIN.format(1), BEHIND.format(1)] * 20  # more than it has


@pytest.mark.parametrize("points", [SOME, pytest.param(EVERY, marks=pytest.mark.long)], ids=["some", "every"])
def test_a_server_that_dies_in_its_steps_does_each_of_them_once(tmp_path: Path, points: list[str]) -> None:
    """One life ends within a step that is not committed, the next right behind that step, and so on."""
    cast = Cast(tmp_path, None, servers=1, agents=1)
    try:
        cast.agents[0].start()
        deaths = list(lives(cast.server, points))
        assert len(deaths) >= min(len(points), 8), "the beginning, the fan-out, the fan-in and the end"
        [run] = cast.server.every("/v1/runs")
        assert (run["state"], run["result"]) == ("succeeded", sum(n**2 for n in range(20)))
        check_tasks(cast, tasks_of(cast.server, run["id"]), 20)
    finally:
        cast.stop()


def lives(server: Server, points: list[str]) -> Iterator[str]:
    """Order a run, and let the server die where it is told, until it is told no more or the run ends."""
    runs: list[int] = []

    def is_over() -> str:
        return is_dead(server) or has_ended(server, runs[0])

    for point in points:
        server.launch(sys.executable, "-m", "tests.acceptance.doomed", str(server.directory / "mark"), point)
        runs = runs or [order(server.wait_until_up(), squares(20, at_once=20, pause=0.1))]
        if server.wait_until(is_over, "a death or the end") == "ended":
            return
        assert (server.directory / "mark").read_text() == point
        yield point
    server.start()
    server.ended(runs[0])


def is_dead(server: Server) -> str:
    assert server.process is not None
    code = server.process.poll()
    assert code in (None, -9), server.log()
    return "dead" if code else ""


def has_ended(server: Server, run_id: int) -> str:
    try:
        return "ended" if server.get(f"/v1/runs/{run_id}")["state"] == "succeeded" else ""
    except httpx.TransportError:
        return ""


def order(server: Server, workflow: dict[str, Any]) -> int:
    """Return a run of it."""
    [job] = server.submit(workflow)
    return int(server.post(f"/v1/jobs/{job['id']}/run", status=201)["id"])


# ── from where it failed ──


def test_a_diamond_that_is_retried_does_only_the_failed_branch_and_what_follows(tmp_path: Path) -> None:
    prepare(tmp_path)
    (tmp_path / "broken").touch()
    server = Server(tmp_path, *TIMERS, "--jobs-directory", str(tmp_path / "jobs")).start()
    try:
        first = server.ended(order(server, DIAMOND))
        assert (first["state"], first["message"]) == ("failed", "a task failed: right")
        assert begun(tmp_path) == ["left", "left-more", "right", "top"]
        (tmp_path / "broken").unlink()
        (tmp_path / "journal").write_text("")
        server.kill()  # what is taken over lies in the store
        server.start()

        second = server.ended(server.post(f"/v1/runs/{first['id']}/retry", status=201)["id"])
        assert begun(tmp_path) == ["bottom", "right", "right-more"]
        right = ["right-more", ["right", ["top", None]]]
        assert second["state"] == "succeeded"
        assert second["result"] == ["bottom", [["left-more", ["left", ["top", None]]], right]]
        assert server.get(f"/v1/runs/{first['id']}")["state"] == "failed"
    finally:
        server.stop()


def branch(name: str, *needs: str, given: Any = None) -> dict[str, Any]:
    return {"needs": list(needs), "handler": "kills:branch", "data": {"name": name, "from": given}}


DIAMOND = {
    "name": "diamond",
    "tasks": {
        "top": branch("top"),
        "left": branch("left", "top", given="${top.result}"),
        "left-more": branch("left-more", "left", given="${left.result}"),
        "right": branch("right", "top", given="${top.result}"),
        "right-more": branch("right-more", "right", given="${right.result}"),
        "bottom": branch("bottom", "left-more", "right-more", given=["${left-more.result}", "${right-more.result}"]),
    },
    "returns": "${bottom.result}",
}


def begun(directory: Path) -> list[str]:
    lines = (line.split() for line in (directory / "journal").read_text().splitlines())
    return sorted(what for word, what, *_ in lines if word == "start")
