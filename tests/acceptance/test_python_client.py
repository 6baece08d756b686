"""The Python client against a real server: the example, and what docs/howto/python-client.md promises."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from horae import Client, SyncClient
from horae.errors import NotFound
from horae.schemas import Run
from tests.acceptance.server import DEADLINE, Server

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("server")).start()
    yield server
    server.stop()


@pytest.mark.parametrize("flags", [[], ["--asyncio"]], ids=["sync", "async"])
def test_the_example_runs_its_job_and_shows_what_it_wrote(server: Server, flags: list[str]) -> None:
    program = [sys.executable, ROOT / "examples" / "python_client.py", server.url, *flags]
    done = subprocess.run(program, capture_output=True, text=True, timeout=DEADLINE)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.search(r"\nhello from run (\d+)\nrun \1 of greeting has succeeded\n$", done.stdout)


def test_the_programs_of_the_page_run(server: Server) -> None:
    page = (ROOT / "docs" / "howto" / "python-client.md").read_text()
    programs = re.findall(r"^```python\n(.*?)^```", page, re.M | re.S)[:2]
    for program in programs:
        text = program.replace("http://127.0.0.1:8080", server.url)
        done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=DEADLINE)
        assert (done.returncode, done.stderr) == (0, "")
        assert "hello\n" in done.stdout
        assert "succeeded" in done.stdout


def test_a_large_log_and_artifact_arrive_whole_in_both_twins(server: Server) -> None:
    steps = [{"run": "yes 0123456789 | head -n 300000 | tee big"}]
    with SyncClient(server.url) as client:
        job = client.submit({"name": "large", "steps": steps, "artifacts": ["big"]}).jobs[0]
        run = client.wait(client.run_now(job.id).id)
        assert (run.state, run.message) == ("succeeded", "")
        want = b"0123456789\n" * 300_000
        log = b"".join(client.log(run.id))
        assert want in log
        assert b"".join(client.artifact(run.id, "big")) == want

    async def again() -> None:
        async with Client(server.url) as client:
            assert b"".join([piece async for piece in client.log(run.id)]) == log
            assert b"".join([piece async for piece in client.artifact(run.id, "big")]) == want

    asyncio.run(again())


def test_many_orders_and_jobs_are_answered_one_by_one(server: Server) -> None:
    documents = [{"name": f"many {n}", "overlap": "allow", "steps": [{"run": "true"}]} for n in range(1_100)]
    with SyncClient(server.url) as client:
        jobs = client.submit_many(documents)
        assert [job.name for job in jobs] == [one["name"] for one in documents]
        later = client.run_now(jobs[0].id, priority=9, run_at="2199-01-01T00:00:00Z")
        assert (later.state, later.reason, later.priority) == ("blocked", "later", 9)
        made = client.run_many(
            {"job": job, "data": {"n": n}} for n, job in enumerate([jobs[0].id, "nobody", jobs[1].id])
        )
        assert [one.run and one.run.job_id for one in made] == [jobs[0].id, None, jobs[1].id]
        assert made[1].error is not None
        assert made[1].error.code == "E_NOT_FOUND"
        assert client.cancel(later.id).state == "cancelled"


def test_tasks_that_share_a_client_get_each_its_own_run(server: Server) -> None:
    with SyncClient(server.url) as client:
        kept, gone = client.submit_many(
            {"name": f"shared {n}", "overlap": "allow", "steps": [{"run": "true"}]} for n in range(2)
        )
        client.delete_job(gone.id)

    async def all_at_once() -> list[Any]:
        async with Client(server.url) as client:
            orders = [
                client.run_now(gone.id if n % 10 == 5 else kept.id, data={"n": n}, run_at="2199-01-01T00:00:00Z")
                for n in range(40)
            ]
            return await asyncio.gather(*orders, return_exceptions=True)

    made = asyncio.run(all_at_once())
    assert [one.data["n"] for one in made if isinstance(one, Run)] == [n for n in range(40) if n % 10 != 5]
    assert [type(one) for one in made[5::10]] == [NotFound] * 4
    with SyncClient(server.url) as client:
        assert len(client.runs(job_id=kept.id).items) == 36
        for one in made:
            if isinstance(one, Run):
                client.cancel(one.id)


def test_every_answer_of_a_real_server_is_read_as_its_type(server: Server) -> None:
    with SyncClient(server.url) as client:
        job = client.submit({"name": "typed", "schedule": "@daily", "steps": [{"run": "true"}]}).jobs[0]
        trigger = client.trigger(job.triggers[0].id)
        assert client.find_job(str(job.id)).triggers[0].id == trigger.id
        assert client.change_trigger(trigger.id, enabled=False).enabled is False
        assert (client.pause(job.id).paused, client.resume(job.id).paused) == (True, False)
        assert len(client.preview("@daily", count=3).moments) == 3
        assert client.health().status == "ok"
        assert client.overview().census.jobs >= 1
        assert [node.state for node in client.nodes().items] == ["live"]
        assert len(client.segments().items) == 100
        assert client.handlers().items == []
        made = client.create_token("laptop")
        assert made.id in [token.id for token in client.tokens().items]
        client.revoke_token(made.id)
        assert (client.set_secret("A", "1"), client.set_secret("A", "2")) == (True, False)
        assert [secret.version for secret in client.secrets().items] == [2]
        client.delete_secret("A")
        assert client.json.run_now(job.id)["job_id"] == job.id
        assert client.runs(job_id=job.id, limit=None).items[0].job_id == job.id
        client.delete_job(job.id)
