"""Every request of the source document is sent, and the answer has every field that the text shows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.facades.world import World

DOCUMENT = Path(__file__).parent / "document"
DECIDED = {"org_id", "job_id", "creator_id", "next_run_time"}  # by the server


def text(name: str) -> Any:
    return json.loads((DOCUMENT / f"{name}.json").read_text())


def differences(expected: Any, got: Any, path: str = "") -> list[str]:
    """Return where an answer lacks what the document shows. More than it shows is allowed."""
    if isinstance(expected, dict):
        if not isinstance(got, dict):
            return [f"{path}: no object"]
        missing = [f"{path}.{name}: missing" for name in expected if name not in got]
        known = [name for name in expected if name in got]
        return missing + [each for name in known for each in differences(expected[name], got[name], f"{path}.{name}")]
    if isinstance(expected, list):
        if not isinstance(got, list) or len(got) != len(expected):
            return [f"{path}: another length"]
        return [each for i, one in enumerate(expected) for each in differences(one, got[i], f"{path}[{i}]")]
    is_decided = path.rpartition(".")[2] in DECIDED
    alike = type(expected) is type(got) if is_decided else expected == got
    return [] if alike else [f"{path}: {expected!r} expected, got {got!r}"]


def test_a_missing_field_and_a_wrong_value_are_found() -> None:
    assert differences({"a": 1, "job_id": 1, "b": [{"c": 2}]}, {"a": 2, "job_id": "x", "b": [{}]}) == [
        ".a: 1 expected, got 2",
        ".job_id: 1 expected, got 'x'",
        ".b[0].c: missing",
    ]


async def test_the_document_can_be_replayed(world: World) -> None:
    made = await world.http.post("/lake/job/create", json=text("create-java.request"))
    assert made.status_code == 200, made.text
    assert differences(text("create-java.response"), made.json()) == []
    job_id = made.json()["job"]["job_id"]
    assert made.json()["job"]["next_run_time"] == world.clock.now() // 1000  # when it was made, though 0 was asked for
    assert made.json()["job"]["creator_id"] == "local"

    got = await world.http.request("GET", f"/lake/job/{job_id}", json=text("get.request"))
    assert (got.status_code, differences(text("get.response"), got.json())) == (200, [])
    assert got.json() == made.json()

    await world.fire()
    listed = await world.http.post("/lake/job/list", json=text("list.request"))
    assert (listed.status_code, differences(text("list.response"), listed.json())) == (200, [])

    change = text("update.request")
    change["job"]["job_id"] = job_id
    changed = await world.http.put(f"/lake/job/{job_id}", json=change)
    assert (changed.status_code, changed.json()) == (200, text("update.response"))
    assert (await world.http.get(f"/lake/job/{job_id}")).json()["job"]["build_tool"] == "sbt"

    deleted = await world.http.request("DELETE", f"/lake/job/{job_id}", json=text("delete.request"))
    assert (deleted.status_code, deleted.json()) == (200, text("delete.response"))
    gone = await world.http.get(f"/lake/job/{job_id}")
    assert (gone.status_code, gone.json()) == (
        400,
        {"code": 400, "reason": "bad_request", "message": f"No job was found for id = {job_id}."},
    )


@pytest.mark.parametrize("output", ["output-hadoop", "output-clickhouse"])
async def test_the_sql_job_can_be_made_with_each_output(world: World, output: str) -> None:
    request, expected = text("create-sql.request"), text("create-sql.response")
    request["job"]["query_info"]["outputs"] = expected["job"]["query_info"]["outputs"] = [text(output)]
    made = await world.http.post("/lake/job/create", json=request)
    assert (made.status_code, differences(expected, made.json())) == (200, [])
    again = await world.http.get(f"/lake/job/{made.json()['job']['job_id']}")
    assert again.json()["job"]["query_info"]["outputs"] == [text(output)]
