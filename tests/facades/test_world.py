"""The hand-driven Horae of these tests works like the real one."""

from __future__ import annotations

from horae.core.model import State
from tests.facades.world import World


async def test_a_job_made_over_http_fires_runs_and_has_its_log(world: World) -> None:
    made = await world.http.post("/v1/jobs", json={"name": "a", "steps": [{"run": "true"}], "run_once": True})
    assert made.status_code == 201, made.text
    await world.fire()
    [run] = await world.work("shell", log=b"hello\n")
    assert run.state is State.SUCCEEDED
    log = await world.http.get(f"/v1/runs/{run.id}/log")
    assert log.text == "hello\n"
