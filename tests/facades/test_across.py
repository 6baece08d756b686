"""Requests that cross contracts: a job made by one is read, run and cancelled through all the others."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from horae.core.model import State
from tests.facades.world import BOTH, World

YEAR = 4_102_444_800_000  # 2100-01-01 in epoch milliseconds: nothing here is due by itself
Made = tuple[int, str]  # the job's id and its kind
Call = Callable[[World, int], Awaitable[Any]]


async def _json(answer: Any, status: int = 200) -> Any:
    assert answer.status_code == status, answer.text
    return answer.json()


async def _rpc(world: World, method: str, **params: Any) -> Any:
    body = await _json(
        await world.http.post("/rpc", json={"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
    )
    assert "error" not in body, body
    return body["result"]


# ── made by ──


async def by_native(world: World) -> Made:
    body = {"name": "made natively", "run_at": "2100-01-01T00:00:00Z", "steps": [{"run": "true"}]}
    return (await _json(await world.http.post("/v1/jobs", json=body), 201))["jobs"][0]["id"], "shell"


async def by_lake(world: World) -> Made:
    job = {
        "class_name": "sql_job", "creator_id": "", "display_name": "made by lake", "last_run_time": 0,
        "last_sync_status": "Initialized", "current_sync_status": "Initialized",
        "schedule_time": {"class_name": "schedule_once", "start_time": YEAR},
        "query_info": {"query": "select 1", "outputs": []},
    }  # fmt: skip
    return (await _json(await world.http.post("/lake/job/create", json={"job": job})))["job"]["job_id"], "spark_sql"


async def by_ci(world: World) -> Made:
    body = 'jobs:\n  - name: made by ci\n    schedule: "0 0 1 1 *"\n    steps: [{name: a, run: "true"}]\n'
    return (await _json(await world.http.post("/api/v1/submit_job", content=body), 201))["job_id"], "shell"


async def by_rpc(world: World) -> Made:
    made = await _rpc(
        world, "submit_job", user_id="u1", schedule=YEAR // 1000, code_location="horae.handlers:noop"
    )  # fmt: skip
    return int(made if isinstance(made, int) else made["job_id"]), "python"


async def by_cluster(world: World) -> Made:
    body = {
        "jobName": "made by segments", "userId": 1, "frequency": "ONE_TIME", "executionTime": "2100-01-01T00:00:00Z",
        "payload": "hello", "maxRetries": 0, "segment": 5,
    }  # fmt: skip
    return (await _json(await world.http.post("/api/jobs", json=body)))["data"]["id"], "python"


MAKERS = {"native": by_native, "lake": by_lake, "ci": by_ci, "rpc": by_rpc, "cluster": by_cluster}


# ── read through: the word each contract has for the job's status ──


async def native_word(world: World, job_id: int) -> str:
    runs = await _json(await world.http.get("/v1/runs", params={"job_id": job_id}))
    return str(runs["items"][0]["state"]) if runs["items"] else "none"


async def lake_word(world: World, job_id: int) -> str:
    return str((await _json(await world.http.get(f"/lake/job/{job_id}")))["job"]["current_sync_status"])


async def ci_word(world: World, job_id: int) -> str:
    return str((await _json(await world.http.get(f"/api/v1/job_status/{job_id}")))["status"])


async def rpc_word(world: World, job_id: int) -> str:
    history = await _rpc(world, "get_exec_history", job_id=job_id)
    return str(history[0]["status"]) if history else "none"


async def admin_word(world: World, job_id: int) -> str:
    name = (await world.jobs.get(job_id)).name
    jobs = (await _json(await world.http.get("/api/v1/jobs")))["Jobs"]
    [guid] = [job["JobId"] for job in jobs if job["JobName"] == name]
    items = (await _json(await world.http.post("/api/v1/job-statuses", json={"PageSize": 50, "Page": 1})))["Items"]
    words = [item["Status"] for item in items if item["JobId"] == guid]
    return str(words[0]) if words else "none"


async def cluster_word(world: World, job_id: int) -> str:
    return str((await _json(await world.http.get(f"/api/jobs/{job_id}")))["data"]["status"])


READERS = {
    "native": native_word, "lake": lake_word, "ci": ci_word, "rpc": rpc_word, "admin": admin_word,
    "cluster": cluster_word,
}  # fmt: skip
WORDS = {  # reader → (never run, queued, succeeded)
    "native": ("none", "queued", "succeeded"),
    "lake": ("Initialized", "Queued", "Finished"),
    "ci": ("SCHEDULED", "SCHEDULED", "SUCCEEDED"),
    "rpc": ("none", "scheduled", "completed"),
    "admin": ("none", "InProgress", "Finished"),
    "cluster": ("PENDING", "SCHEDULED", None),  # a job that has moments to come is PENDING again
}


# ── run through ──


async def run_by_native(world: World, job_id: int) -> None:
    await _json(await world.http.post(f"/v1/jobs/{job_id}/run", json={}), 201)


async def run_by_lake(world: World, job_id: int) -> None:
    assert (await _json(await world.http.put(f"/lake/schedule/job/{job_id}/now", json={}))) == {"success": True}


async def run_by_rpc(world: World, job_id: int) -> None:
    await _rpc(world, "dispatch", job_id=job_id)


async def run_by_admin(world: World, job_id: int) -> None:
    name = (await world.jobs.get(job_id)).name
    jobs = (await _json(await world.http.get("/api/v1/jobs")))["Jobs"]
    [guid] = [job["JobId"] for job in jobs if job["JobName"] == name]
    await _json(await world.http.post("/api/v1/job", json={"JobId": guid}))


RUNNERS: dict[str, Call] = {
    "native": run_by_native, "lake": run_by_lake, "rpc": run_by_rpc, "admin": run_by_admin,
}  # fmt: skip


# ── cancelled through ──


async def cancel_by_native(world: World, job_id: int) -> None:
    run = (await _json(await world.http.get("/v1/runs", params={"job_id": job_id})))["items"][0]
    await _json(await world.http.post(f"/v1/runs/{run['id']}/cancel", json={}), 202)


async def cancel_by_lake(world: World, job_id: int) -> None:
    assert (await _json(await world.http.put(f"/lake/schedule/job/{job_id}/kill", json={}))) == {"success": True}


async def cancel_by_rpc(world: World, job_id: int) -> None:
    await _rpc(world, "cancel", job_id=job_id)


async def cancel_by_ci(world: World, job_id: int) -> None:
    assert (await world.http.delete(f"/api/v1/job/{job_id}")).is_success


async def cancel_by_cluster(world: World, job_id: int) -> None:
    await _json(await world.http.delete(f"/api/jobs/{job_id}"))


CANCELLERS: dict[str, Call] = {
    "native": cancel_by_native, "lake": cancel_by_lake, "rpc": cancel_by_rpc, "ci": cancel_by_ci,
    "cluster": cancel_by_cluster,
}  # fmt: skip


@BOTH
@pytest.mark.parametrize("maker", MAKERS)
async def test_a_job_made_by_one_contract_is_read_by_all(world: World, maker: str) -> None:
    job_id, kind = await MAKERS[maker](world)
    await _check_words(world, job_id, 0)
    await run_by_native(world, job_id)
    await _check_words(world, job_id, 1)
    await world.work(kind)
    await _check_words(world, job_id, 2)


async def _check_words(world: World, job_id: int, column: int) -> None:
    for reader, read in READERS.items():
        wanted = WORDS[reader][column]
        word = await read(world, job_id)
        assert wanted is None or word == wanted, f"{reader} says {word}"


@pytest.mark.parametrize("runner", RUNNERS)
@pytest.mark.parametrize("maker", MAKERS)
async def test_a_job_made_by_one_contract_is_run_by_the_others(world: World, maker: str, runner: str) -> None:
    job_id, kind = await MAKERS[maker](world)
    await RUNNERS[runner](world, job_id)
    [run] = await world.work(kind)
    assert (run.job_id, run.state) == (job_id, State.SUCCEEDED)


@BOTH
@pytest.mark.parametrize("canceller", CANCELLERS)
@pytest.mark.parametrize("maker", MAKERS)
async def test_a_run_of_a_job_made_by_one_contract_is_cancelled_by_the_others(
    world: World, maker: str, canceller: str
) -> None:
    job_id, kind = await MAKERS[maker](world)
    await run_by_native(world, job_id)
    await CANCELLERS[canceller](world, job_id)
    assert await world.claim(kind) == []
    [run] = (await _json(await world.http.get("/v1/runs", params={"job_id": job_id})))["items"]
    assert run["state"] == "cancelled"


async def test_a_body_that_is_not_json_is_not_told_to_be_yaml_where_none_is_read(world: World) -> None:
    answer = await world.http.post("/lake/job/create", content=b"x")
    assert answer.status_code == 400
    assert "YAML" not in answer.text
