"""Lines of logs and names of jobs, as the native API gives them."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from horae.contracts import CONTRACTS
from horae.core.model import State
from horae.web import app as web
from tests.facades.world import OWN, World, from_here

DEADLINE = 180.0
LOG = b"one\ntwo is bad\nthree\nfour is bad\nfive\n"


@pytest.fixture
async def api(world: World) -> AsyncIterator[httpx.AsyncClient]:
    gate = web.create_app(world.services, CONTRACTS, version="1.2.3", free_pass=OWN)
    async with httpx.AsyncClient(transport=from_here(gate), base_url="http://127.0.0.1:8080") as client:
        yield client


async def ended(world: World, log: bytes = LOG) -> int:
    """Return a run that has written and succeeded: to follow it ends at once."""
    work = await world.start_run()
    await work.write(log)
    await work.end(State.SUCCEEDED)
    return work.run_id


@pytest.mark.parametrize(
    ("asked", "got"),
    [({"tail": 2}, b"four is bad\nfive\n"), ({"tail": 0}, b""), ({"tail": 99}, LOG),
     ({"grep": "bad"}, b"two is bad\nfour is bad\n"), ({"grep": "bad", "tail": 3}, b"four is bad\n"),
     ({"grep": "b.d"}, b""), ({"grep": "bad", "offset": 15}, b"four is bad\n"),
     ({"grep": "bad", "limit": 1}, b"two is bad\n")],
)  # fmt: skip
async def test_a_log_gives_its_last_lines_and_those_that_hold_a_text(
    api: httpx.AsyncClient, world: World, asked: dict[str, Any], got: bytes
) -> None:
    answer = await api.get(f"/v1/runs/{await ended(world)}/log", params=asked)
    assert (answer.status_code, answer.content) == (200, got)
    end = LOG.index(b"three") if asked.get("limit") else len(LOG)
    assert answer.headers["horae-log-offset"] == str(end)


@pytest.mark.parametrize(
    ("query", "code"),
    [("tail=-1", "E_RANGE"), ("tail=x", "E_TYPE"), ("tail=1&offset=3", "E_FIELD_CONFLICT"), ("grep=", "E_EMPTY"),
     ("grep=a%0Ab", "E_CHAR"), (f"grep={'x' * 1001}", "E_LEN")],
)  # fmt: skip
async def test_what_is_no_line_or_text_is_refused(api: httpx.AsyncClient, world: World, query: str, code: str) -> None:
    answer = await api.get(f"/v1/runs/{await ended(world)}/log?{query}")
    assert (answer.status_code, answer.json()["code"]) == (422, code)


async def test_lines_beside_a_byte_range_are_a_conflict(api: httpx.AsyncClient, world: World) -> None:
    run_id = await ended(world)
    for query in ("tail=1", "grep=a"):
        answer = await api.get(f"/v1/runs/{run_id}/log?{query}", headers={"range": "bytes=0-1"})
        assert (answer.status_code, answer.json()["code"]) == (422, "E_FIELD_CONFLICT")


async def followed(api: httpx.AsyncClient, run_id: int, query: str, last: str = "") -> str:
    """Return the text that a follower of an ended run gets."""
    headers = {"last-event-id": last} if last else {}
    async with asyncio.timeout(DEADLINE):
        answer = await api.get(f"/v1/runs/{run_id}/log/follow{query}", headers=headers)
    assert answer.status_code == 200, answer.text
    events = [dict(line.split(": ", 1) for line in part.split("\n")) for part in answer.text.strip().split("\n\n")]
    return "".join(json.loads(one["data"])["text"] for one in events if one["event"] == "log")


async def test_a_follower_may_begin_with_the_last_lines_but_goes_on_where_it_was(
    api: httpx.AsyncClient, world: World
) -> None:
    run_id = await ended(world)
    assert await followed(api, run_id, "?tail=1") == "five\n"
    assert await followed(api, run_id, "?tail=0") == ""
    assert await followed(api, run_id, "?tail=1", last="1:4") == LOG[4:].decode()
    assert await followed(api, run_id, "?attempt=1") == LOG.decode()
    answer = await api.get(f"/v1/runs/{run_id}/log/follow?attempt=2")
    assert (answer.status_code, answer.json()["code"]) == (404, "E_NOT_FOUND")


async def test_the_lines_of_a_run_that_has_not_started_are_none(api: httpx.AsyncClient, world: World) -> None:
    run = await world.queue_run()
    for query in ("tail=3", "grep=a"):
        answer = await api.get(f"/v1/runs/{run.id}/log?{query}")
        assert (answer.status_code, answer.content, answer.headers["horae-log-offset"]) == (200, b"", "0")


# ── times ──


async def test_a_log_tells_when_its_pieces_were_stored(api: httpx.AsyncClient, world: World) -> None:
    run_id = await ended(world)
    answer = (await api.get(f"/v1/runs/{run_id}/log/times")).json()
    assert (answer["attempt"], [one["offset"] for one in answer["items"]]) == (1, [0])
    assert re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z", answer["items"][0]["at"])
    waiting = await world.queue_run()
    assert (await api.get(f"/v1/runs/{waiting.id}/log/times")).json()["items"] == []
    for query, code, status in (("attempt=2", "E_NOT_FOUND", 404), ("limit=10001", "E_RANGE", 422)):
        refused = await api.get(f"/v1/runs/{run_id}/log/times?{query}")
        assert (refused.status_code, refused.json()["code"]) == (status, code)


async def test_the_times_of_a_log_are_told_also_when_its_node_has_another_name_now(
    api: httpx.AsyncClient, world: World
) -> None:
    work = await world.start_run()
    await work.write(LOG)
    await work.end(State.SUCCEEDED, output=f"earlier:{work.ref}")
    assert (await api.get(f"/v1/runs/{work.run_id}/log")).content == LOG
    assert len((await api.get(f"/v1/runs/{work.run_id}/log/times")).json()["items"]) == 1


# ── names ──


async def test_runs_and_triggers_are_listed_with_the_names_of_their_jobs(api: httpx.AsyncClient, world: World) -> None:
    document = {"name": "nightly", "schedule": "0 3 * * *", "steps": [{"run": "ls"}]}
    [job] = (await api.post("/v1/jobs", json=document)).json()["jobs"]
    run = (await api.post(f"/v1/jobs/{job['id']}/run", json={})).json()
    lists = [(await api.get(path)).json()["items"] for path in ("/v1/runs", "/v1/triggers")]
    assert [[one["job_name"] for one in items] for items in lists] == [["nightly"], ["nightly"]]
    assert (await api.get(f"/v1/runs/{run['id']}")).json()["job_name"] == "nightly"
    assert (await api.post(f"/v1/runs/{run['id']}/cancel")).json()["job_name"] == "nightly"
    await api.delete(f"/v1/jobs/{job['id']}")
    assert (await api.get("/v1/runs")).json()["items"][0]["job_name"] == "nightly"


async def test_runs_are_listed_by_the_node_that_ran_them(api: httpx.AsyncClient, world: World) -> None:
    run_id = await ended(world)
    node = (await api.get(f"/v1/runs/{run_id}")).json()["node"]
    waiting = await world.queue_run()
    assert [run["id"] for run in (await api.get("/v1/runs", params={"node": node})).json()["items"]] == [run_id]
    assert (await api.get("/v1/runs", params={"node": "another"})).json()["items"] == []
    assert waiting.id in [run["id"] for run in (await api.get("/v1/runs")).json()["items"]]
