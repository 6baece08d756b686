"""Whatever an older version has let into the store is shown, or said to be unreadable: never a fault of the server."""

from __future__ import annotations

from typing import Any

import pytest

from horae.core.model import State
from horae.core.runs.orders import Result
from tests.facades.world import BOTH, World

DEEP = "[" * 20_000 + "]" * 20_000
ROWS: dict[str, dict[str, Any]] = {
    "far ahead": {"started_at": 2**62, "finished_at": 2**62},
    "far behind": {"started_at": -(2**62), "finished_at": -(2**62)},
    "a deep result": {"result": DEEP},
    "a result that no parser stands": {"result": "[" * 900 + "]" * 900},
    "no JSON": {"result": '{"n": NaN}'},
    "a large exit code": {"exit_code": 2**31 - 1},
}  # fmt: skip
PAGES = (
    "/v1/runs", "/v1/runs?state=succeeded", "/v1/overview", "/", "/v1/runs/{run}", "/runs/{run}", "/runs",
    "/jobs/{job}", "/v1/runs/{run}/explain", "/api/jobs/{job}/history",
)  # fmt: skip


@BOTH
@pytest.mark.parametrize("case", ROWS)
async def test_a_stored_extreme_is_shown_on_every_page(world: World, case: str):
    made = await world.http.post("/v1/jobs", json={"name": "a", "handler": "horae.handlers:noop"})
    job = made.json()["jobs"][0]["id"]
    run = (await world.http.post(f"/v1/jobs/{job}/run")).json()["id"]
    (claimed,) = await world.claim("python")
    given = {"finished_at": world.clock.now(), **ROWS[case]}
    await world.store.finish([Result(run, claimed.fence, State.SUCCEEDED, **given)])

    for page in PAGES:
        answer = await world.http.get(page.format(run=run, job=job))
        assert answer.status_code in (200, 404), (page, answer.text[:300])
    shown = (await world.http.get("/v1/runs")).json()["items"]
    assert [one["state"] for one in shown] == ["succeeded"]
