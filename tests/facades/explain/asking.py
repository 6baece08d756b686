"""Asking for explanations as clients do, and looking at what is answered."""

from __future__ import annotations

from typing import Any

from horae.core.insight.why.codes import CODES
from horae.core.model import Run, State
from horae.core.runs.orders import Result
from horae.service.policy.placing import Placing
from horae.service.secrets.sealing import Sealing
from horae.service.workflows.dependencies import Dependencies
from horae.service.workflows.flows import Workflows
from horae.service.workflows.outbox import Outbox
from horae.service.workflows.parts import Parts
from tests.facades.world import World


class Answer:
    """An explanation as it was sent."""

    def __init__(self, body: Any) -> None:
        self.body = body
        self.codes = [one["code"] for one in body["sentences"]]
        for one in body["sentences"]:
            assert one["page"] == f"/docs/explain#{one['code']}"
            assert one["code"] in CODES

    def get(self, code: str) -> Any:
        """Return the sentence of this code, of which there must be one at least."""
        assert code in self.codes, self.body
        return next(one for one in self.body["sentences"] if one["code"] == code)

    @property
    def first(self) -> Any:
        return self.body["sentences"][0]


async def ask(world: World, path: str, **where: Any) -> Answer:
    answer = await world.http.get(f"/v1/explain/{path}", params=where)
    assert answer.status_code == 200, answer.text
    return Answer(answer.json())


async def why_run(world: World, run: Run | int) -> Answer:
    return await ask(world, f"runs/{run if isinstance(run, int) else run.id}")


async def why_job(world: World, job_id: int, at: str | None = None) -> Answer:
    return await ask(world, f"jobs/{job_id}", **({} if at is None else {"at": at}))


async def why_trigger(world: World, trigger_id: int, at: str | None = None) -> Answer:
    return await ask(world, f"triggers/{trigger_id}", **({} if at is None else {"at": at}))


async def runs_of(world: World, job_id: int) -> list[Any]:
    """The records of a job, the newest first."""
    items: list[Any] = (await world.http.get("/v1/runs", params={"job_id": job_id})).json()["items"]
    return items


async def act(world: World) -> None:
    """What servers do about ends and arrivals."""
    placing = Placing(world.store, world.queue)
    workflows = Workflows(world.store, world.queue, placing, Parts(world.store, Sealing(world.store)))
    await world.execution.finish(await workflows.begin(await world.claim("workflow")))
    outbox = Outbox(world.store, workflows, dependencies=Dependencies(world.store, world.queue, placing).act)
    await outbox.act()


async def finish(world: World, claimed: Any, state: State = State.SUCCEEDED, **fields: Any) -> None:
    now = world.clock.now()
    given = {"started_at": now, "finished_at": now, **fields}
    await world.execution.finish([Result(claimed.run_id, claimed.fence, state, **given)])
