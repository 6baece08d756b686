"""Horae within a program: this test is the program, and in the end one that is killed."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import structlog

import horae
from horae import Context, handler
from horae.errors import ConfigError, Error, Invalid

from .server import DEADLINE, Server

pytestmark = pytest.mark.slow

QUICK: dict[str, Any] = {"heartbeat_interval": 0.5, "lease": 2}
SOURCE = Path(horae.__file__).parents[1]
ROOT = Path(__file__).parents[2]

calls: list[tuple[int, Any]] = []
hold = asyncio.Event()
begun = asyncio.Event()


@handler(inline=True)
async def here(context: Context) -> str:
    calls.append((os.getpid(), asyncio.get_running_loop()))
    context.log("called")
    return context.data.get("who", "")


@handler(inline=True)
async def patient(context: Context) -> int:
    begun.set()
    await hold.wait()
    return context.attempt


@handler(name="shared_task", inline=True)
async def go_on(context: Context) -> str:
    return "taken over"


@handler
async def elsewhere(context: Context) -> int:
    return os.getpid()


@pytest.fixture(autouse=True)
def fresh() -> None:
    global hold, begun
    calls.clear()
    hold, begun = asyncio.Event(), asyncio.Event()


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest) -> str | None:
    return request.getfixturevalue("postgres_url") if request.param == "postgres" else None


async def test_an_inline_handler_runs_in_the_loop_of_the_program(tmp_path: Path, database: str | None) -> None:
    async with horae.embedded(data=tmp_path / "state", database=database, handlers=[here]) as app:
        job = await app.submit({"name": "here", "handler": here})
        run = await app.wait(await app.run_now(job, {"who": "Ada"}), timeout=DEADLINE)
        assert (run.state, run.result) == ("succeeded", "Ada")
        assert await app.log(run) == "called\n"
        assert [one.id for one in await app.runs("here")] == [run.id]
        assert [one.name for one in await app.jobs()] == ["here"]
    assert calls == [(os.getpid(), asyncio.get_running_loop())]


async def test_a_due_moment_fires(tmp_path: Path) -> None:
    async with horae.embedded(data=tmp_path / "state") as app:
        hold.set()
        await app.submit({"name": "now", "handler": patient, "run_once": True})
        async with asyncio.timeout(DEADLINE):
            await begun.wait()


async def test_other_handlers_and_steps_run_in_processes_as_usual(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(ROOT)  # where workers import from
    async with horae.embedded(data=tmp_path / "state") as app:
        job = await app.submit({"name": "elsewhere", "handler": elsewhere})
        run = await app.wait(await app.run_now(job), timeout=DEADLINE)
        assert run.state == "succeeded", run.message
        assert run.result not in (None, os.getpid())
        await app.submit({"name": "shell", "steps": [{"run": "echo from a shell"}]})
        run = await app.wait(await app.run_now("shell"), timeout=DEADLINE)
        assert "from a shell" in await app.log(run)


async def test_the_process_stays_the_programs_own(tmp_path: Path) -> None:
    def process() -> dict[str, Any]:
        umask = os.umask(0o022)
        os.umask(umask)
        return {
            "umask": umask,
            "signals": {one: signal.getsignal(one) for one in signal.valid_signals()},
            "logging": (list(logging.root.handlers), logging.root.level),
            "structlog": (structlog.is_configured(), structlog.get_config()),
            "collector": gc.get_threshold(),
            "directory": os.getcwd(),
        }

    before = process()
    async with horae.embedded(data=tmp_path / "state"):
        assert process() == before
    assert process() == before
    assert (tmp_path / "state").stat().st_mode & 0o077 == 0


async def test_what_runs_at_the_end_of_the_block_is_finished_first(tmp_path: Path) -> None:
    async with horae.embedded(data=tmp_path / "state") as app:
        await app.submit({"name": "patient", "handler": patient})
        run = await app.run_now("patient")
        async with asyncio.timeout(DEADLINE):
            await begun.wait()
        asyncio.get_running_loop().call_later(0.3, hold.set)
    async with horae.embedded(data=tmp_path / "state") as app:
        ended = await app.run(run)
        assert (ended.state, ended.result) == ("succeeded", 1)


async def test_a_block_that_is_cancelled_is_left_in_order(tmp_path: Path, database: str | None) -> None:
    async def program() -> None:
        async with horae.embedded(data=tmp_path / "state", database=database) as app:
            await app.submit({"name": "patient", "handler": patient})
            await app.run_now("patient")
            await asyncio.Event().wait()

    task = asyncio.create_task(program())
    async with asyncio.timeout(DEADLINE):
        await begun.wait()
    hold.set()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with horae.embedded(data=tmp_path / "state", database=database) as app:
        assert [run.state for run in await app.runs("patient")] == ["succeeded"]


async def test_what_the_block_raises_is_raised(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="of the program"):
        async with horae.embedded(data=tmp_path / "state"):
            raise ValueError("of the program")


async def test_a_second_one_on_the_same_sqlite_file_is_refused_and_told_who_has_it(tmp_path: Path) -> None:
    async with horae.embedded(data=tmp_path / "state"):
        with pytest.raises(ConfigError, match=f"in use by pid {os.getpid()}, node .* within a program") as caught:
            async with horae.embedded(data=tmp_path / "state"):
                pass
        assert caught.value.code == "E_SINGLE_NODE_LOCK"


async def test_the_block_ends_with_the_reason_when_its_parts_break(tmp_path: Path) -> None:
    async def program() -> None:
        async with horae.embedded(data=tmp_path / "state", **QUICK):
            for child in _children():
                os.kill(child, signal.SIGKILL)
            await asyncio.Event().wait()

    with pytest.raises(Error, match="the keeper process of this agent died"):
        await program()


def _children() -> list[int]:
    return [int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"leese": 2}, "embedded has no setting leese"),
        ({"port": 8080}, "embedded has no setting port"),
        ({"lease": "soon"}, "lease must be"),
        ({"database": "mysql://here"}, "database must be"),
    ],
)
async def test_settings_that_cannot_be_used_are_refused(tmp_path: Path, settings: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        async with horae.embedded(data=tmp_path / "state", **settings):
            pass
    assert not (tmp_path / "state").exists()


async def test_a_handler_that_no_worker_could_import_is_refused(tmp_path: Path) -> None:
    @handler
    async def local(context: Context) -> None:
        """Defined here alone."""

    with pytest.raises(Invalid, match="cannot be imported by a worker process"):
        async with horae.embedded(data=tmp_path / "state", handlers=[local]):
            pass


async def test_a_server_goes_on_where_a_program_has_left(tmp_path: Path) -> None:
    async with horae.embedded(data=tmp_path / "data", handlers=[here]) as app:
        await app.submit({"name": "kept", "steps": [{"run": "true"}]})
        run = await app.wait(await app.run_now("kept"), timeout=DEADLINE)
    server = Server(tmp_path).start()
    try:
        assert server.http.get(f"/v1/runs/{run.id}").json()["state"] == "succeeded"
        with pytest.raises(ConfigError, match="in use by pid"):
            async with horae.embedded(data=tmp_path / "data"):
                pass
    finally:
        server.stop()


PROGRAM = """
import asyncio, sys
import horae
from horae import handler

@handler(name="shared_task", inline=True)
async def begin(context):
    print("begun", flush=True)
    await asyncio.Event().wait()

async def main(data, database):
    settings = {"heartbeat_interval": 0.5, "lease": 2}
    async with horae.embedded(data=data, database=database or None, handlers=[begin], **settings) as app:
        await app.submit({"name": "task", "handler": begin})
        await app.run_now("task")
        await asyncio.Event().wait()

asyncio.run(main(*sys.argv[1:]))
"""


async def test_what_a_killed_program_ran_is_taken_over(tmp_path: Path, database: str | None) -> None:
    """On SQLite by the next program on the file, on PostgreSQL by another that lives."""
    (tmp_path / "program.py").write_text(PROGRAM)
    theirs, ours = tmp_path / "theirs", tmp_path / "ours" if database else tmp_path / "theirs"
    program = await asyncio.create_subprocess_exec(
        sys.executable, str(tmp_path / "program.py"), str(theirs), database or "", stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
    )  # fmt: skip
    assert program.stdout is not None
    async with asyncio.timeout(DEADLINE):
        assert await program.stdout.readline() == b"begun\n"
    program.kill()
    await program.wait()
    async with horae.embedded(data=ours, database=database, handlers=[go_on], **QUICK) as app:
        (run,) = await app.runs("task")
        ended = await app.wait(run, timeout=DEADLINE)
        assert (ended.state, ended.attempt, ended.result) == ("succeeded", 2, "taken over")
