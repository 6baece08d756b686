"""What users do with their builds beyond the document: log out, list, see attempts, send forms, fetch files."""

from __future__ import annotations

import json

import httpx
import pytest

from horae.contracts import CONTRACTS
from horae.core.model import State
from horae.errors import Unauthenticated
from horae.service.access import SESSION, Access
from horae.service.access.credentials import CACHE_SECONDS
from horae.web import app as web
from tests.facades.ci.test_ci import API, get, one, submit
from tests.facades.world import World


async def test_a_logout_ends_the_session_and_not_the_token(world: World) -> None:
    _, token = await world.services.access.create("ci", "user", "ann", None)
    gate = web.create_app(world.services, CONTRACTS, version="1", loopback_only=False)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(gate), base_url="https://ci.example.org") as far:
        assert (await far.post(f"{API}/logout")).status_code == 401
        session = (await far.post(f"{API}/login", json={"token": token})).cookies["session"]
        assert (await far.get(f"{API}/user_jobs")).status_code == 200
        answer = await far.post(f"{API}/logout")
        assert (answer.status_code, answer.json()) == (200, {"user": "ann"})
        assert "Max-Age=0" in answer.headers["set-cookie"]
        assert not far.cookies
        kept = {"cookie": f"session={session}"}
        assert (await far.get(f"{API}/user_jobs", headers=kept)).status_code == 401
        assert (await far.get(f"{API}/user_jobs", headers={"authorization": f"Bearer {token}"})).status_code == 200


async def test_a_session_that_ended_elsewhere_is_refused_within_seconds(world: World) -> None:
    access, other = world.services.access, Access(world.store, world.clock)
    token, _ = await access.create("ci", "user", "ann", None)
    session = await access.open_session(token)
    assert (await other.check(session, SESSION)).owner == "ann"
    await access.sessions.leave(session[:-1] + ("A" if session[-1] != "A" else "B"))  # only who has it ends it
    assert (await access.check(session, SESSION)).owner == "ann"
    await access.sessions.leave(session)
    await access.sessions.leave(session)
    world.clock.advance(CACHE_SECONDS)
    for one_of_them in (access, other):
        with pytest.raises(Unauthenticated):
            await one_of_them.check(session, SESSION)


# ── owners ─────────────────────────────────────────────────────────────────────────────────────────


async def test_what_is_anns_is_not_bobs_and_the_operator_sees_all(world: World) -> None:
    names = ("ann", "bob", "local")
    made = [await world.services.access.create(name, "user", name, None) for name in names]
    ann, bob, operator = ({"authorization": f"Bearer {text}"} for _, text in made)
    job_id = (await submit(world, one(), **ann))["job_id"]
    await world.fire()
    [run] = await world.work("shell", log=b"hello\n")
    routes = [
        ("GET", f"job_status/{job_id}"), ("GET", f"retrieve_history_execution/{job_id}"),
        ("GET", f"last_execution_logs/{job_id}"), ("GET", f"execution_logs/{run.id}"),
        ("GET", f"artifacts/{run.id}/x"), ("GET", "user_jobs?user_id=ann"), ("DELETE", f"job/{job_id}"),
    ]  # fmt: skip
    for method, path in routes:
        refused = await world.http.request(method, f"{API}/{path}", headers=bob)
        assert (refused.status_code, refused.json()["code"]) == (403, "E_NOT_OWNER"), path
    for who in (ann, operator, {}):
        for _, path in routes[:4]:
            assert (await world.http.get(f"{API}/{path}", headers=who)).status_code == 200, path
        [row] = (await world.http.get(f"{API}/user_jobs?user_id=ann", headers=who)).json()
        assert row == {
            "user_id": "ann", "job_id": job_id, "name": "a", "is_recurring": False, "schedule": None,
            "created_time": "2027-01-15T08:00:00Z", "status": "SUCCEEDED", "next_execution_time": None,
        }  # fmt: skip
    assert (await world.http.get(f"{API}/user_jobs", headers=bob)).json() == []
    assert (await world.http.delete(f"{API}/job/{job_id}", headers=operator)).status_code == 200


async def test_a_users_jobs_are_listed_by_the_page(world: World) -> None:
    for number in range(5):
        await submit(world, one(name=f"job {number}", schedule="1h30m", run_once=False))
    path: str | None = f"{API}/user_jobs?limit=2&user_id=local"
    seen = []
    while path:
        answer = await world.http.get(path)
        seen.append([(row["name"], row["schedule"], row["is_recurring"]) for row in answer.json()])
        path = answer.links["next"]["url"] if answer.links else None
    assert [len(page) for page in seen] == [2, 2, 1]
    assert sorted(row for page in seen for row in page) == [(f"job {n}", "1h30m", True) for n in range(5)]


# ── attempts ───────────────────────────────────────────────────────────────────────────────────────


async def test_every_attempt_has_its_row_and_its_log(world: World) -> None:
    job_id = (await submit(world, one(retry=3, format="junit")))["job_id"]
    await world.fire()
    first = await world.take(1)
    await first.write("── step 1/1 step 1 ──\nfirst\n".encode())
    second = await first.fail_once()
    await second.write(b"second\n")
    await second.end(State.SUCCEEDED)

    [row] = await get(world, f"retrieve_history_execution/{job_id}")
    assert [(it["attempt"], it["status"], it["exit_code"]) for it in row["attempts"]] == [
        (1, "FAILED", 3),
        (2, "SUCCEEDED", None),
    ]
    one_, two = (it["logs_path"] for it in row["attempts"])
    assert (await world.http.get(f"{one_}&format=text")).text.endswith("first\n")
    assert (await world.http.get(f"{two}&format=text")).text == "second\n"
    assert '<failure message="FAILED"' in (await world.http.get(one_)).text
    assert "<failure" not in (await world.http.get(two)).text
    missing = await world.http.get(f"{API}/execution_logs/1?attempt=3")
    assert (missing.status_code, "has no attempt 3" in missing.json()["message"]) == (404, True)


async def test_an_attempt_that_is_to_be_repeated_stands_once(world: World) -> None:
    job_id = (await submit(world, one(retry=3)))["job_id"]
    await world.fire()
    await (await world.take(1)).end(State.FAILED, exit_code=3)
    [row] = await get(world, f"retrieve_history_execution/{job_id}")
    assert (row["status"], [it["status"] for it in row["attempts"]]) == ("SCHEDULED", ["FAILED"])
    assert (await get(world, f"job_status/{job_id}"))["last_execution"] == row


# ── forms and files ────────────────────────────────────────────────────────────────────────────────


async def test_a_file_may_come_as_the_file_of_a_form(world: World) -> None:
    key = {"Idempotency-Key": "k"}
    answers = [
        await world.http.post(f"{API}/submit_job", files={"file": ("jobs.yaml", one())}, data={"a": "b"}, headers=key)
        for _ in range(2)
    ]
    assert [answer.status_code for answer in answers] == [201, 201]
    assert answers[0].json()["job_ids"] == answers[1].json()["job_ids"]  # its boundary was another one
    for files in ({}, {"a": ("a", one()), "b": ("b", one())}):
        form = {**files, "note": (None, "x")}
        wrong = await world.http.post(f"{API}/submit_job", files=form)
        assert (wrong.status_code, "a form with one file expected" in wrong.json()["message"]) == (400, True)


async def test_a_kept_file_is_downloaded_by_the_address_of_the_history(world: World) -> None:
    job_id = (await submit(world, one(artifacts=["dist"])))["job_id"]
    await world.fire()
    work = await world.take(1)
    await work.write(b"x")
    kept = {"artifacts": [{"path": "dist/ä b.txt", "size": 5}, {"path": "dist/none", "size": 0}]}
    await work.keep(0, b"hello")
    await work.end(State.SUCCEEDED, result=json.dumps(kept))

    [row] = await get(world, f"retrieve_history_execution/{job_id}")
    url = row["artifacts"][0]["url"]
    assert url == "/api/v1/artifacts/1/dist/%C3%A4%20b.txt"
    for _ in range(2):  # by its number, then by its name
        answer = await world.http.get(url)
        assert (answer.content, answer.headers["content-type"]) == (b"hello", "application/octet-stream")
        await world.files.name_file(work.ref, 0, "dist/ä b.txt", 5)
    assert (await world.http.get(row["artifacts"][1]["url"])).content == b""
    gone = await world.http.get(f"{API}/artifacts/1/dist/other")
    assert (gone.status_code, set(gone.json())) == (404, {"message", "code"})
