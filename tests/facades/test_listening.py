"""Triggers on events over HTTP: made, shown, changed and refused."""

from __future__ import annotations

from typing import Any

import pytest

from tests.facades.world import BOTH, World

JOB = {"steps": [{"run": "true"}]}


def on(job: int | str, *states: str) -> dict[str, Any]:
    return {"on": {"job": job, "states": list(states)}}


@BOTH
async def test_a_trigger_on_an_event_is_made_shown_and_given_back(world: World) -> None:
    extract = {"name": "extract", "key": "extract", **JOB}
    alarm = {"name": "alarm", "key": "alarm", **JOB, "triggers": [on("extract", "failed", "timed_out")]}
    answer = await world.http.post("/v1/jobs", json={"jobs": [extract, alarm]})
    assert answer.status_code == 201, answer.text
    first, second = answer.json()["jobs"]
    [trigger] = second["triggers"]
    assert trigger["description"] == "when a run of extract failed or timed out"
    assert trigger["next_at"] is None
    assert trigger["schedule"] == {"on": {"job": "extract", "states": ["failed", "timed_out"], "id": first["id"]}}
    path = f"/v1/jobs/{second['id']}"
    shown = (await world.http.get(path)).json()
    again = await world.http.put(path, json=shown)
    assert (again.status_code, again.json()["version"]) == (200, shown["version"]), again.text
    heard = (await world.http.get(f"/v1/jobs/{first['id']}")).json()
    assert [each["key"] for each in heard["followers"]] == ["alarm"]


@BOTH
async def test_a_trigger_on_nodes_is_made_shown_and_given_back(world: World) -> None:
    document = {"name": "alarm", **JOB, "triggers": [{"on": {"node": "any", "states": ["joined", "gone"]}}]}
    answer = await world.http.post("/v1/jobs", json=document)
    assert answer.status_code == 201, answer.text
    [trigger] = answer.json()["jobs"][0]["triggers"]
    assert trigger["description"] == "when a node is gone or has joined"
    assert trigger["schedule"] == {"on": {"node": "any", "states": ["gone", "joined"]}}
    path = f"/v1/jobs/{answer.json()['jobs'][0]['id']}"
    shown = (await world.http.get(path)).json()
    again = await world.http.put(path, json=shown)
    assert (again.status_code, again.json()["version"]) == (200, shown["version"]), again.text


async def test_a_schedule_becomes_an_event_and_back(world: World) -> None:
    extract = await world.submit(name="extract")
    job = await world.submit(name="alarm", triggers=[{"every": "1h"}])
    path = f"/v1/triggers/{job.triggers[0].id}"
    made = await world.http.put(path, json=on(extract.id, "succeeded"))
    assert (made.status_code, made.json()["next_at"]) == (200, None), made.text
    assert made.json()["schedule"]["on"]["id"] == extract.id
    back = await world.http.put(path, json={"every": "1h"})
    assert back.json()["next_at"] is not None


@pytest.mark.parametrize(
    ("event", "code"),
    [
        ({"job": "nobody", "states": ["failed"]}, "E_NOT_FOUND"),
        ({"job": 1, "states": ["broken"]}, "E_ENUM"),
        ({"node": "gone"}, "E_REQUIRED"),
        ({"node": "any", "states": ["failed"]}, "E_ENUM"),
        ([], "E_TYPE"),
    ],
)
async def test_a_wrong_event_is_refused_when_it_is_added(world: World, event: Any, code: str) -> None:
    job = await world.submit(name="alarm")
    answer = await world.http.post(f"/v1/jobs/{job.id}/triggers", json={"on": event})
    assert (answer.status_code, answer.json()["code"]) == (422, code), answer.text


async def test_a_preview_of_an_event_has_no_moments(world: World) -> None:
    answer = await world.http.post("/v1/preview", json=on("extract", "failed"))
    assert (answer.status_code, answer.json()["moments"]) == (200, []), answer.text
