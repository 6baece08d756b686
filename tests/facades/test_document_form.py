"""One form of the document of a job: what GET returns, PUT and submit accept."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import Phase, given, settings

from horae.core.model import State
from tests.facades.world import BOTH, World
from tests.unit.core.job_documents import documents

Json = dict[str, Any]
JOB = {"name": "nightly", "key": "nightly", "schedule": "0 3 * * *", "steps": [{"run": "echo hello"}]}
OWN = ("id", "version", "created_at", "updated_at")
FOREIGN: list[tuple[str, str, Any]] = [  # jobs that came by the contracts of others: path, and what is sent
    ("/api/jobs", "POST", {"jobName": "Test Job", "userId": 1, "frequency": "DAILY",
     "executionTime": "2030-12-31T10:00:00Z", "payload": "Test payload", "maxRetries": 3, "segment": 5}),
]  # fmt: skip


def invented(count: int) -> list[Json]:
    """Return documents, always the same."""
    found: list[Json] = []

    @settings(max_examples=count, database=None, derandomize=True, deadline=None, phases=[Phase.generate])
    @given(documents)
    def collect(document: Json) -> None:
        found.append({**document, "key": f"key {len(found)}"})

    collect()
    return found


async def made(world: World, document: Json) -> Json:
    answer = await world.http.post("/v1/jobs", json=document)
    assert answer.status_code == 201, answer.text
    return await read(world, answer.json()["jobs"][0]["id"])


async def read(world: World, job_id: int) -> Json:
    shown: Json = (await world.http.get(f"/v1/jobs/{job_id}")).json()
    return shown


def meaning(shown: Json) -> Json:
    """Return a document without what Horae makes."""
    own = ("id", "job_id", "version", "created_at", "next_at", "last_at")
    triggers = [{name: value for name, value in each.items() if name not in own} for each in shown["triggers"]]
    return {name: value for name, value in shown.items() if name not in OWN} | {"triggers": triggers}


@BOTH
@pytest.mark.parametrize("count", [15, pytest.param(60, marks=pytest.mark.long)])
async def test_what_get_returns_is_put_back_without_a_change_and_submitted_as_a_new_job(
    world: World, count: int
) -> None:
    await world.jobs.queues.put("reports", {})
    await made(world, {"name": "extract", "key": "extract", "steps": [{"run": "date"}]})
    for number in range(6):  # up to job 7, which others come after too
        await made(world, {"name": f"other {number}", "steps": [{"run": "date"}]})
    for document in invented(count):
        shown = await made(world, document)

        put = await world.http.put(f"/v1/jobs/{shown['id']}", json=shown)
        assert (put.status_code, put.json()) == (200, {k: v for k, v in shown.items() if k != "cursor"}), document
        again = await world.http.post("/v1/jobs", json=shown)  # its key makes it an update
        assert (again.status_code, again.json()["jobs"][0]["version"]) == (201, 1), again.text
        copy = await made(world, {**shown, "key": f"{shown['key']} copy"})
        assert copy["id"] != shown["id"]
        assert meaning(copy) == {**meaning(shown), "key": copy["key"]}
        assert await read(world, shown["id"]) == shown


@BOTH
async def test_a_list_of_jobs_is_submitted_as_it_was_read(world: World) -> None:
    for number in range(3):
        await made(world, {**JOB, "key": f"k{number}"})
    page = (await world.http.get("/v1/jobs")).json()["items"]

    answer = await world.http.post("/v1/jobs", json=page)

    assert answer.json()["jobs"] == page


@BOTH
async def test_a_job_goes_on_between_reading_and_sending_it_back(world: World) -> None:
    shown = await made(world, {**JOB, "schedule": "1m"})
    world.clock.advance(61)
    await world.fire()
    later = await read(world, shown["id"])
    assert later["triggers"][0]["last_at"] is not None

    put = await world.http.put(f"/v1/jobs/{shown['id']}", json={**shown, "name": "renamed"})

    assert put.status_code == 200, put.text
    assert (put.json()["name"], put.json()["version"]) == ("renamed", 2)
    assert put.json()["triggers"][0]["last_at"] == later["triggers"][0]["last_at"]


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("id", 99), ("id", "7"), ("org", 2), ("owner", "eve"), ("version", 7), ("version", "1"),
        ("created_at", "2001-01-01T00:00:00Z"), ("updated_at", "never"), ("deleted_at", "2001-01-01T00:00:00Z"),
        ("triggers[0].id", 999), ("triggers[0].job_id", 8), ("triggers[0].version", 2),
        ("triggers[0].description", "now and then"), ("triggers[0].created_at", None),
        ("triggers[0].next_at", "2040-01-01T00:00:00Z"), ("triggers[0].next_at", None),
        ("triggers[0].last_at", "2020-01-01T00:00:00Z"),
    ],
)  # fmt: skip
async def test_a_field_of_horae_that_was_changed_is_refused_at_its_path(world: World, path: str, value: Any) -> None:
    shown = await made(world, JOB)
    changed = {**shown, "triggers": [dict(shown["triggers"][0])]}
    (changed["triggers"][0] if "." in path else changed)[path.rsplit(".", 1)[-1]] = value

    put = await world.http.put(f"/v1/jobs/{shown['id']}", json=changed)

    assert (put.status_code, put.json()["code"]) == (422, "E_READ_ONLY"), put.text
    assert [error["path"] for error in put.json()["errors"]] == [path]
    assert await read(world, shown["id"]) == shown
    if path not in ("id", "created_at"):  # else it is of another installation
        posted = await world.http.post("/v1/jobs", json=[changed])
        assert [error["path"] for error in posted.json()["errors"]] == [f"jobs[0].{path}"]


async def test_a_document_of_an_earlier_version_is_not_put_back(world: World) -> None:
    shown = await made(world, JOB)
    await world.http.post(f"/v1/jobs/{shown['id']}/pause")

    stale = await world.http.put(f"/v1/jobs/{shown['id']}", json=shown)

    assert (stale.status_code, stale.json()["code"]) == (412, "E_VERSION_CONFLICT")
    assert "version 2" in stale.json()["detail"]
    del shown["version"]
    del shown["updated_at"]
    for trigger in shown["triggers"]:
        trigger.pop("version"), trigger.pop("next_at")
    assert (await world.http.put(f"/v1/jobs/{shown['id']}", json=shown)).json()["paused"] is False


async def test_a_repeated_submit_of_a_read_document_is_answered_as_before(world: World) -> None:
    shown = await made(world, JOB)
    key = {"Idempotency-Key": "one"}
    first = await world.http.post("/v1/jobs", json={**shown, "name": "new"}, headers=key)
    again = await world.http.post("/v1/jobs", json={**shown, "name": "new"}, headers=key)
    assert (first.json()["jobs"], again.json()["replayed"]) == (again.json()["jobs"], True)


async def test_a_document_of_another_installation_is_submitted_without_its_ids(world: World) -> None:
    work = {"name": "a", "key": "a", "steps": [{"run": "true"}]}
    mine = await made(world, {**work, "triggers": [{"every": "1h"}, {"every": "2h"}]})
    foreign = {**mine, "created_at": "2001-01-01T00:00:00Z", "version": 12}
    foreign["triggers"] = [{**mine["triggers"][1], "id": mine["triggers"][0]["id"]}]

    answer = await world.http.post("/v1/jobs", json=foreign)

    assert answer.status_code == 201, answer.text
    assert [t["id"] for t in answer.json()["jobs"][0]["triggers"]] == [mine["triggers"][1]["id"]]


async def test_a_field_or_two_of_horae_alone_are_refused(world: World) -> None:
    for fields in ({"id": 1}, {"version": 1}, {"created_at": "2001-01-01T00:00:00Z"}, {"org": 1}):
        answer = await world.http.post("/v1/jobs", json={**JOB, **fields})
        assert (answer.status_code, answer.json()["code"]) == (422, "E_READ_ONLY")


async def test_a_trigger_is_put_back_as_it_was_read(world: World) -> None:
    shown = (await made(world, JOB))["triggers"][0]
    address = f"/v1/triggers/{shown['id']}"

    assert (await world.http.put(address, json=shown)).json() == shown
    wrong = await world.http.put(address, json={**shown, "next_at": "2040-01-01T00:00:00Z"})
    assert (wrong.status_code, [error["path"] for error in wrong.json()["errors"]]) == (422, ["next_at"])


async def test_secrets_stay_hidden_and_stay_what_they_are(world: World) -> None:
    document = {"name": "a", "key": "a", "kind": "git_python", "main_file": "a.py",
                "source": {"url": "https://example.org/a.git", "password": "correct horse"}}  # fmt: skip
    shown = await made(world, document)
    assert shown["spec"]["source"]["password"] == "******"

    assert (await world.http.put(f"/v1/jobs/{shown['id']}", json=shown)).json() == shown
    assert (await world.http.post("/v1/jobs", json=shown)).json()["jobs"] == [shown]
    as_new = await world.http.post("/v1/jobs", json={**shown, "key": "b"})
    assert (as_new.status_code, as_new.json()["code"]) == (422, "E_FIELD_CONFLICT")


async def test_a_cursor_that_moved_is_no_change_and_one_that_was_written_is(world: World) -> None:
    document = {"name": "s", "key": "s", "kind": "sync", "source": {"type": "database", "url": "postgresql://db/x"},
                "read": {"table": "t"}, "mode": "incremental", "cursor": "updated",
                "destinations": [{"type": "files", "path": "b"}]}  # fmt: skip
    shown = await made(world, document)
    await world.jobs.cursors.set(shown["id"], {"at": 1})
    moved = await read(world, shown["id"])
    address = f"/v1/jobs/{shown['id']}"

    assert (await world.http.put(address, json=shown)).status_code == 200
    assert (await world.http.put(address, json=moved)).status_code == 200
    changed = await world.http.put(address, json={**moved, "cursor": {**moved["cursor"], "value": {"at": 2}}})
    assert [error["path"] for error in changed.json()["errors"]] == ["cursor"]


@pytest.mark.parametrize(("path", "method", "body"), FOREIGN, ids=[row[0] for row in FOREIGN])
async def test_jobs_of_other_contracts_are_put_back_as_they_are(
    world: World, path: str, method: str, body: Any
) -> None:
    assert (await world.http.request(method, path, json=body)).is_success
    [shown] = (await world.http.get("/v1/jobs")).json()["items"]

    put = await world.http.put(f"/v1/jobs/{shown['id']}", json=shown)
    copy = await world.http.post("/v1/jobs", json=shown)

    assert put.json() == shown
    assert meaning(copy.json()["jobs"][0]) == meaning(shown)


async def test_a_dry_run_says_what_would_become_of_each_job(world: World) -> None:
    shown = await made(world, JOB)
    await made(world, {**JOB, "key": "b"})
    sent = [shown, {**JOB, "key": "b", "name": "new"}, {**JOB, "key": "c"}]

    answer = await world.http.post("/v1/jobs?dry_run=true", json=sent)

    assert answer.status_code == 200, answer.text
    items = answer.json()["items"]
    assert [item.pop("triggers")[0]["description"] for item in items] == ["at 03:00 every day, UTC"] * 3
    assert items == [
        {"name": "nightly", "key": "nightly", "outcome": "unchanged", "job_id": shown["id"]},
        {"name": "new", "key": "b", "outcome": "changed", "job_id": shown["id"] + 1},
        {"name": "nightly", "key": "c", "outcome": "created", "job_id": None},
    ]
    assert len((await world.http.get("/v1/jobs")).json()["items"]) == 2
    wrong = await world.http.post("/v1/jobs?dry_run=true", json=[{**JOB, "schedule": "often"}])
    assert wrong.json()["errors"][0]["path"] == "jobs[0].schedule"


# ── runs again ──


@BOTH
async def test_runs_are_run_again_with_their_data_and_priority(world: World) -> None:
    job = await world.submit(overlap="allow")
    old = await world.jobs.run_now(job.id, data={"n": 1}, priority=8)
    await world.work("shell", State.FAILED)
    live = await world.jobs.run_now(job.id)

    answer = await world.http.post("/v1/runs/rerun", json={"runs": [old.id, live.id, 999]})

    assert answer.status_code == 200, answer.text
    made_, unfinished, missing = answer.json()["items"]
    assert (made_["run_id"], made_["run"]["data"], made_["run"]["priority"]) == (old.id, {"n": 1}, 8)
    assert made_["run"]["id"] not in (old.id, live.id)
    assert (unfinished["run_id"], unfinished["error"]["code"]) == (live.id, "E_NOT_ENDED")
    assert missing["error"]["code"] == "E_NOT_FOUND"


@BOTH
async def test_a_repeated_request_runs_nothing_a_second_time(world: World) -> None:
    job = await world.submit(overlap="allow")
    for _ in range(3):
        await world.jobs.run_now(job.id)
    failed = [run.id for run in await world.work("shell", State.FAILED)]
    asked = {"where": {"job": job.id, "state": ["failed"]}}

    first = await world.http.post("/v1/runs/rerun", json=asked, headers={"Idempotency-Key": "k"})
    again = await world.http.post("/v1/runs/rerun", json=asked, headers={"Idempotency-Key": "k"})

    assert {item["run_id"] for item in first.json()["items"]} == set(failed)
    assert [item["run"]["id"] for item in again.json()["items"]] == [
        item["run"]["id"] for item in first.json()["items"]
    ]


async def test_a_filter_of_runs_is_tried_without_running_any(world: World) -> None:
    one, other = await world.submit(overlap="allow"), await world.submit(key="other", overlap="allow")
    await world.jobs.run_now(one.id)
    await world.work("shell", State.FAILED)
    await world.jobs.run_now(other.id)
    await world.work("shell", State.TIMED_OUT)
    await world.jobs.run_now(other.id)
    await world.work("shell", State.SUCCEEDED)

    async def found(**where: Any) -> list[tuple[int, str]]:
        answer = await world.http.post("/v1/runs/rerun", json={"where": where, "dry_run": True})
        assert answer.status_code == 200, answer.text
        return [(item["run"]["job_id"], item["run"]["state"]) for item in answer.json()["items"]]

    assert await found(job="other") == [(other.id, "timed_out")]  # failed and timed out ones, unless said
    assert await found(state=["succeeded"]) == [(other.id, "succeeded")]
    assert await found(job=one.id, due_until="2001-01-01T00:00:00Z") == []
    assert len(await found(node="node-1")) == 2
    assert await found(node="elsewhere") == []
    assert len((await world.http.get("/v1/runs")).json()["items"]) == 3


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({}, "runs"), ({"runs": [1], "where": {}}, "where"), ({"where": {"state": ["queued"]}}, "where.state"),
        ({"where": {"state": "failed"}}, "where.state"), ({"runs": []}, "runs"), ({"runs": ["1"]}, "runs[0]"),
        ({"where": {"job": True}}, "where.job"), ({"where": {"due_from": "yesterday"}}, "where.due_from"),
    ],
)  # fmt: skip
async def test_bad_requests_to_run_again_are_refused(world: World, body: Json, path: str) -> None:
    answer = await world.http.post("/v1/runs/rerun", json=body)
    assert answer.status_code == 422, answer.text
    assert path in [error["path"] for error in answer.json()["errors"]]


async def test_an_order_whose_job_is_of_the_wrong_type_is_told_both_that_would_do(world: World) -> None:
    answer = await world.http.post("/v1/runs", json=[{"job": True}])
    assert "id" in answer.json()["runs"][0]["detail"]
    assert "key" in answer.json()["runs"][0]["detail"]
