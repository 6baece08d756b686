"""Very many at once: POST /v1/runs, and submits of thousands."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from horae.core.model import State
from horae.web import app as web
from horae.web import http
from horae.web.native import bodies, many

from .test_native import JOB, problem_of, submitted
from .world import HERE, OWN, World, from_here

LINES = {"content-type": "application/x-ndjson"}
FREE = {**JOB, "overlap": "allow"}


@pytest.fixture
async def api(world: World) -> AsyncIterator[httpx.AsyncClient]:
    gate = web.create_app(world.services, (), version="1.2.3", free_pass=OWN)
    async with httpx.AsyncClient(transport=from_here(gate), base_url=HERE) as client:
        yield client


def lines(items: list[Any]) -> bytes:
    return b"\n".join(json.dumps(item).encode() for item in items) + b"\n"


async def make(api: httpx.AsyncClient, **fields: Any) -> int:
    made = (await api.post("/v1/jobs", json={**FREE, **fields})).json()
    return int(made["jobs"][0]["id"])


# ── runs ──


async def test_each_order_has_its_own_answer_in_their_order(api: httpx.AsyncClient) -> None:
    job = await make(api, key="report")
    paused = await make(api, paused=True)
    orders = [
        {"job": job, "data": {"n": 1}}, {"job": "report", "priority": 9, "node": "n1"}, {"job": 999}, {"job": "nobody"},
        {"job": paused}, {"jb": job}, {"job": job, "priority": 10}, {"job": job, "run_at": "soon"}, 7,
        {"job": job, "run_at": "2099-01-01T00:00:00Z"}, {"job": True}, {"job": 0}, {"job": job, "data": []},
        {"job": job, "idempotency_key": None}, {"job": job, "priority": None},
    ]  # fmt: skip
    answer = await api.post("/v1/runs", json={"runs": orders})
    assert answer.status_code == 200
    got = answer.json()["runs"]
    assert [each.get("code") for each in got] == [
        None, None, "E_NOT_FOUND", "E_NOT_FOUND", "E_PAUSED", "E_UNKNOWN_FIELD", "E_RANGE", "E_TIME_SYNTAX", "E_TYPE",
        None, "E_TYPE", "E_RANGE", "E_TYPE", "E_TYPE", "E_TYPE",
    ]  # fmt: skip
    assert [each["status"] for each in got if "code" in each] == [404, 404, 409, *[422] * 9]
    assert (got[0]["data"], got[0]["state"], got[1]["priority"]) == ({"n": 1}, "queued", 9)
    assert (got[9]["state"], got[9]["reason"], got[9]["due_at"]) == ("blocked", "later", "2099-01-01T00:00:00Z")
    read = (await api.get(f"/v1/runs/{got[0]['id']}")).json()
    more = {"attempts", "job_name"}  # of a run that is read: orders are answered without a further look
    assert got[0] == {name: value for name, value in read.items() if name not in more}


async def test_lines_are_answered_in_lines(api: httpx.AsyncClient) -> None:
    job = await make(api)
    for media in ("application/x-ndjson", "application/jsonl; charset=utf-8"):
        body = lines([{"job": job}, {"job": 999}]) + b"\n  \n" + b"{no\n"
        answer = await api.post("/v1/runs", content=body, headers={"content-type": media})
        assert answer.headers["content-type"] == "application/x-ndjson"
        got = [json.loads(line) for line in answer.text.splitlines()]
        assert [each.get("code") for each in got] == [None, "E_NOT_FOUND", "E_JSON_SYNTAX"]


async def test_a_bare_array_is_a_list_of_orders(api: httpx.AsyncClient) -> None:
    job = await make(api)
    assert len((await api.post("/v1/runs", json=[{"job": job}] * 3)).json()["runs"]) == 3


async def test_a_key_of_the_request_or_of_an_order_never_acts_twice(api: httpx.AsyncClient, world: World) -> None:
    job = await make(api)
    orders = [{"job": job}, {"job": job, "idempotency_key": "mine"}, {"job": job, "idempotency_key": "mine"}]
    first = (await api.post("/v1/runs", json=orders, headers={"idempotency-key": "k"})).json()["runs"]
    again = (await api.post("/v1/runs", json=orders, headers={"idempotency-key": "k"})).json()["runs"]
    other = (await api.post("/v1/runs", json=orders, headers={"idempotency-key": "k2"})).json()["runs"]
    assert [run["id"] for run in again] == [run["id"] for run in first]
    assert first[1]["id"] == first[2]["id"] == other[1]["id"]
    assert other[0]["id"] != first[0]["id"]
    orders[0] = {"job": job, "data": {"a": 1}}
    changed = (await api.post("/v1/runs", json=orders, headers={"idempotency-key": "k"})).json()["runs"]
    assert [each.get("code") for each in changed] == ["E_IDEMPOTENCY_MISMATCH", None, None]


async def test_jobs_of_other_organisations_do_not_exist(api: httpx.AsyncClient, world: World) -> None:
    job = await make(api, key="report")
    _, token = await world.services.access.create("them", "user", "bob", None, org=2)
    theirs = {"authorization": f"Bearer {token}"}
    got = (await api.post("/v1/runs", json=[{"job": job}, {"job": "report"}], headers=theirs)).json()["runs"]
    assert [each["code"] for each in got] == ["E_NOT_FOUND", "E_NOT_FOUND"]
    problem_of(await api.post(f"/v1/jobs/{job}/run", headers=theirs), 404, "E_NOT_FOUND")


@pytest.mark.parametrize(
    ("body", "media", "status", "code"),
    [
        (b"", "application/json", 400, "E_BODY_EMPTY"),
        (b"{", "application/json", 400, "E_JSON_SYNTAX"),
        (b"[1,]", "application/json", 400, "E_JSON_SYNTAX"),
        (b'{"runs": [1]', "application/json", 400, "E_JSON_SYNTAX"),
        (b'{"runs": [], "more": 1}', "application/json", 422, "E_UNKNOWN_FIELD"),
        (b'{"runs": [{"job": 1}], "runs": []}', "application/json", 422, "E_DUP_KEY"),
        (b'{"runs": {}}', "application/json", 422, "E_TYPE"),
        (b"{}", "application/json", 422, "E_TYPE"),
        (b"[]", "application/json", 422, "E_EMPTY"),
        (b"\n", "application/x-ndjson", 422, "E_EMPTY"),
        (b"[" * 100_000, "application/json", 400, "E_DEPTH"),
        (b"[" + b"1," * 10_000 + b"1]", "application/json", 422, "E_LIMIT"),
        (b"1\n" * 10_001, "application/x-ndjson", 422, "E_LIMIT"),
        (b"a: 1", "text/plain", 415, "E_MEDIA_TYPE"),
    ],
)
async def test_a_body_that_cannot_be_read_is_refused_as_a_whole(
    api: httpx.AsyncClient, body: bytes, media: str, status: int, code: str
) -> None:
    problem_of(await api.post("/v1/runs", content=body, headers={"content-type": media}), status, code)


async def test_an_order_that_is_too_large_refuses_itself(api: httpx.AsyncClient) -> None:
    job = await make(api)
    large = {"job": job, "data": {"a": "x" * (270 * 1024)}}
    got = (await api.post("/v1/runs", json=[large, {"job": job}])).json()["runs"]
    assert (got[0]["code"], got[0]["status"], got[1]["state"]) == ("E_TOO_LARGE", 413, "queued")


async def test_ten_thousand_orders_are_one_request(api: httpx.AsyncClient, world: World) -> None:
    job = await make(api)
    body = lines([{"job": job, "data": {"n": n}} for n in range(10_000)])
    answer = await api.post("/v1/runs", content=body, headers={**LINES, "idempotency-key": "k"})
    got = [json.loads(line) for line in answer.text.splitlines()]
    assert [run["data"]["n"] for run in got] == list(range(10_000))
    assert len({run["id"] for run in got}) == 10_000
    again = await api.post("/v1/runs", content=body, headers={**LINES, "idempotency-key": "k"})
    assert [json.loads(line)["id"] for line in again.text.splitlines()] == [run["id"] for run in got]


@pytest.mark.parametrize("media", ["application/json", "application/x-ndjson"])
async def test_orders_alike_are_answered_as_the_runs_are_read(api: httpx.AsyncClient, media: str) -> None:
    job = await make(api, key="a:b")
    given = [{"b": 1.0, "a": ":\\"}, None, {"é": ["x", {"data": None, "id": 7}]}, {}]
    orders = [{"job": "a:b", "priority": 9, **({} if data is None else {"data": data})} for data in given]
    body = lines(orders) if media in LINES.values() else json.dumps(orders).encode()
    answer = await api.post("/v1/runs", content=body, headers={"content-type": media})
    got = [json.loads(line) for line in answer.text.splitlines()] if media in LINES.values() else answer.json()["runs"]
    assert [(run["job_id"], run["data"], run["priority"]) for run in got] == [(job, data, 9) for data in given]
    for run in got:
        read = (await api.get(f"/v1/runs/{run['id']}")).json()
        assert run == {name: value for name, value in read.items() if name not in ("attempts", "job_name")}


ODD = [
    b'{"job": 1, "job": 1}', b'{"job": 1, "data": {"a": 1, "a": 2}}', b'{"job": 1, "data": {"a": "\\u0000"}}',
    b'{"job": 1, "data": {"a": 9223372036854775808}}',
    b'{"job": 1, "data": {"a": NaN}}', b'{"job": 1.0}', b'{"job": true}',
    b'{"job": "1"}', b'{"job": 1, "data": null}', b'{"job": 1, "priority": 10}', b'{"job": 1, "priority": 5.0}',
    b'{"job": 1, "idempotency_key": "k"}', b'{"job": 1, "more": 1}',
    b'{"job": 1, "data": ' + b"[" * 99 + b"]" * 99 + b"}",
    b'{"job": 1, "data": {"a": 1e999}}', b'{"job": 1, "data": "\xff"}', b'{"data": {}}', b"7", b"{", b'{"job": 0}',
    b'{"job": 2}', b'{"job": 1},{"job": 1}', b"{'job': 1}", b'{"job": 1, "data": {"a": "\xc2\x85"}}',
]  # fmt: skip


@pytest.mark.parametrize("odd", ODD, ids=[str(number) for number in range(len(ODD))])
def test_an_odd_order_among_others_is_read_by_itself(odd: bytes) -> None:
    usual = b'{"job": 1, "data": {"n": 1}}'
    for is_lines in (False, True):
        assert bodies.read_alike([usual, usual], is_lines=is_lines) is not None
        assert bodies.read_alike([usual, odd], is_lines=is_lines) is None
        assert bodies.read_alike([odd, usual], is_lines=is_lines) is None


def test_lines_that_only_together_are_orders_are_none() -> None:
    halves = [b'{"job": 1},{"job": 1,"data":{"x":[1', b"2]}}"]
    assert bodies.read_alike(halves, is_lines=True) is None


async def test_one_run_takes_a_priority_and_a_moment(api: httpx.AsyncClient, world: World) -> None:
    job = await make(api)
    answer = await api.post(f"/v1/jobs/{job}/run", json={"priority": 1, "run_at": "2099-01-01T00:00:00Z"})
    run = answer.json()
    assert (run["priority"], run["state"], run["reason"]) == (1, "blocked", "later")
    assert run["eligible_at"] == run["due_at"] == "2099-01-01T00:00:00Z"
    assert (await api.post(f"/v1/runs/{run['id']}/cancel")).json()["state"] == "cancelled"


# ── jobs ──


@pytest.mark.parametrize("form", ["object", "array", "lines"])
async def test_thousands_of_jobs_are_one_request(api: httpx.AsyncClient, world: World, form: str) -> None:
    jobs = [{**JOB, "name": f"job {n}", "key": f"k{n}"} for n in range(2300)]
    document: Any = {"jobs": jobs} if form == "object" else jobs
    body = lines(jobs) if form == "lines" else json.dumps(document).encode()
    media = LINES if form == "lines" else {"content-type": "application/json"}
    headers = {**media, "idempotency-key": "k"}
    first, again = [await api.post("/v1/jobs", content=body, headers=headers) for _ in range(2)]
    assert (first.status_code, again.status_code) == (201, 201)
    if form == "lines":
        made, repeated = [[json.loads(line) for line in answer.text.splitlines()] for answer in (first, again)]
    else:
        made, repeated = first.json()["jobs"], again.json()["jobs"]
        assert (first.json()["replayed"], again.json()["replayed"]) == (False, True)
    assert [job["name"] for job in made] == [job["name"] for job in jobs]
    assert repeated == made
    assert (await world.rows())[0] == 2300


# ── jobs that are read while they arrive ──


def large(form: str, count: int = 2300) -> tuple[bytes, dict[str, str]]:
    """Return a body of more than an ordinary one may have."""
    jobs = [{**JOB, "name": f"job {n}", "key": f"k{n}", "annotations": {"pad": "x" * 500}} for n in range(count)]
    if form == "lines":
        return lines(jobs), dict(LINES)
    document: Any = {"jobs": jobs} if form == "object" else jobs
    return json.dumps(document).encode(), {"content-type": "application/json"}


async def torn(body: bytes, size: int = 70_001) -> AsyncIterator[bytes]:
    for at in range(0, len(body), size):
        yield body[at : at + size]


@pytest.mark.parametrize("form", ["object", "array", "lines"])
async def test_a_large_list_is_the_same_however_it_arrives(api: httpx.AsyncClient, world: World, form: str) -> None:
    body, media = large(form)
    assert len(body) > http.BODY_LIMIT
    headers = {**media, "idempotency-key": "k"}
    first = await api.post("/v1/jobs", content=torn(body), headers=headers)
    again = await api.post("/v1/jobs", content=body, headers=headers)
    assert (first.status_code, again.status_code) == (201, 201)
    made, repeated = (
        [json.loads(line) for line in answer.text.splitlines()] if form == "lines" else answer.json()["jobs"]
        for answer in (first, again)
    )  # fmt: skip
    assert [job["name"] for job in made] == [f"job {n}" for n in range(2300)]
    assert repeated == made
    assert (await world.rows())[0] == 2300


@pytest.mark.parametrize("form", ["object", "array", "lines"])
async def test_one_wrong_job_at_the_end_of_a_large_list_refuses_all(
    api: httpx.AsyncClient, world: World, form: str
) -> None:
    body, media = large(form)
    wrong = body.replace(b'"key": "k2299"', b'"kye": "k2299"')
    found = problem_of(await api.post("/v1/jobs", content=torn(wrong), headers=media), 422, "E_UNKNOWN_FIELD")
    assert found["errors"][0]["path"] == "jobs[2299].kye"
    assert (await world.rows())[0] == 0


@pytest.mark.parametrize(
    ("form", "end", "status", "code"),
    [("array", b"", 400, "E_JSON_SYNTAX"), ("object", b"]", 400, "E_JSON_SYNTAX"),
     ("array", b'] {"more": 1}', 400, "E_JSON_SYNTAX"), ("object", b'], "more": 1}', 400, "E_JSON_SYNTAX"),
     ("array", b", {}" * 10_000 + b"]", 422, "E_LIMIT"), ("lines", b"{}\n" * 10_000, 422, "E_LIMIT"),
     ("lines", b'{"name": "' + b"x" * (2 << 20), 422, "E_TOO_LARGE")],
    ids=["no end", "half an end", "two documents", "another field", "too many", "too many lines", "one too large"],
)  # fmt: skip
async def test_a_large_list_that_makes_no_sense_is_refused(
    api: httpx.AsyncClient, world: World, form: str, end: bytes, status: int, code: str
) -> None:
    body, media = large(form)
    begun = body if form == "lines" else body[: -len(b"]}" if form == "object" else b"]")]
    problem_of(await api.post("/v1/jobs", content=torn(begun + end), headers=media), status, code)
    assert (await world.rows())[0] == 0


async def test_a_large_document_that_is_no_list_is_too_large(api: httpx.AsyncClient) -> None:
    text = json.dumps({**JOB, "annotations": {"pad": "x" * (2 << 20)}}).encode()
    for media in ("application/json", "application/yaml"):
        answer = await api.post("/v1/jobs", content=torn(text), headers={"content-type": media})
        problem_of(answer, 413, "E_TOO_LARGE")
    problem_of(await api.post("/v1/jobs", content=torn(text), headers={"content-type": "a/b"}), 415, "E_MEDIA_TYPE")


async def test_more_than_the_limit_is_refused_as_it_comes(
    api: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(many, "MANY_BYTES", http.BODY_LIMIT + 1000)
    body, media = large("lines")
    problem_of(await api.post("/v1/jobs", content=torn(body), headers=media), 413, "E_TOO_LARGE")


async def test_who_stops_in_the_middle_has_made_nothing_and_a_repeat_makes_all_once(
    api: httpx.AsyncClient, world: World
) -> None:
    body, media = large("lines")

    gate = web.create_app(world.services, (), version="1.2.3", free_pass=OWN)

    async def left(scope: http.Scope, receive: http.Receive, send: http.Send) -> None:
        """Whoever asks is gone after the first piece."""
        coming = iter([{**await receive(), "more_body": True}, {"type": "http.disconnect"}])

        async def instead() -> http.Message:
            return next(coming)

        await gate(scope, instead, send)
        await send({"type": "http.response.start", "status": 499, "headers": []})  # the gate has sent nothing
        await send({"type": "http.response.body", "body": b""})

    headers = {**media, "idempotency-key": "k"}
    async with httpx.AsyncClient(transport=from_here(left), base_url=HERE) as leaving:
        part = body[: 9 * len(body) // 10]
        assert (await leaving.post("/v1/jobs", content=part, headers=headers)).status_code == 499
    assert (await world.rows())[0] == 0
    for _ in range(2):
        assert (await api.post("/v1/jobs", content=torn(body), headers=headers)).status_code == 201
    assert (await world.rows())[0] == 2300


async def test_a_dry_run_of_a_large_list_makes_nothing(api: httpx.AsyncClient, world: World) -> None:
    body, media = large("array")
    answer = await api.post("/v1/jobs", params={"dry_run": "true"}, content=torn(body), headers=media)
    assert {item["outcome"] for item in answer.json()["items"]} == {"created"}
    assert (await world.rows())[0] == 0


async def test_one_wrong_job_of_thousands_refuses_all(api: httpx.AsyncClient, world: World) -> None:
    jobs: list[Any] = [{**JOB, "name": f"job {n}", "annotations": {"pad": "x" * 50}} for n in range(1500)]
    jobs[1200] = {**JOB, "nam": "x"}
    jobs[1300] = "no job"
    found = problem_of(await api.post("/v1/jobs", json={"jobs": jobs}), 422, "E_UNKNOWN_FIELD")
    assert [each["path"] for each in found["errors"]] == ["jobs[1200].nam", "jobs[1300]"]
    torn = lines(jobs[:10]) + b'{"name": "x", "name": "y"}\n'
    found = problem_of(await api.post("/v1/jobs", content=torn, headers=LINES), 422, "E_DUP_KEY")
    assert found["errors"][0]["path"] == "jobs[10].name"
    twins = [{**JOB, "key": "same", "annotations": {"pad": "x" * 9999}}] * 20
    problem_of(await api.post("/v1/jobs", json=twins), 422, "E_DUP_NAME")
    assert (await world.rows())[0] == 0


async def test_a_key_used_for_few_is_not_good_for_many(api: httpx.AsyncClient) -> None:
    key = {"idempotency-key": "k"}
    assert (await api.post("/v1/jobs", json=JOB, headers=key)).status_code == 201
    many_jobs = [{**JOB, "name": f"job {n}"} for n in range(1100)]
    problem_of(await api.post("/v1/jobs", json=many_jobs, headers=key), 409, "E_IDEMPOTENCY_MISMATCH")


async def test_a_body_beyond_the_limit_is_refused_by_its_length(api: httpx.AsyncClient) -> None:
    headers = {"content-type": "application/json", "content-length": str(many.MANY_BYTES + 1)}
    problem_of(await api.post("/v1/jobs", content=b"[]", headers=headers), 413, "E_TOO_LARGE")
    problem_of(await api.post("/v1/runs", content=b"[]", headers=headers), 413, "E_TOO_LARGE")


async def test_only_a_few_large_bodies_are_read_at_once() -> None:
    intake, entered = many.Intake(), []

    class Asked:
        def __init__(self, length: int) -> None:
            self._length = str(length)

        def header(self, _: bytes) -> str:
            return self._length

        async def read(self, limit: int, seconds: float) -> bytes:
            entered.append(limit)
            await asyncio.sleep(0)
            return b"[]"

    async def hold(request: Any) -> None:
        async with intake.body(request):
            await done.wait()

    done = asyncio.Event()
    holders = [asyncio.create_task(hold(Asked(http.BODY_LIMIT + 1))) for _ in range(many.LARGE_AT_ONCE)]
    while len(entered) < many.LARGE_AT_ONCE:
        await asyncio.sleep(0)
    with pytest.raises(Exception, match="limit"):
        await hold(Asked(http.BODY_LIMIT + 1))
    done.set()
    await hold(Asked(100))
    await asyncio.gather(*holders)
    await hold(Asked(http.BODY_LIMIT + 1))


async def test_orders_that_wait_are_among_the_runs_of_their_job(api: httpx.AsyncClient, world: World) -> None:
    job = (await submitted(api))["id"]
    later = {"run_at": "2099-01-01T00:00:00Z"}
    made = [(await api.post(f"/v1/jobs/{job}/run", json=body)).json() for body in (later, {}, later)]
    assert [run["state"] for run in made] == ["blocked", "queued", "blocked"]
    listed = (await api.get("/v1/runs", params={"job_id": job, "state": "blocked"})).json()["items"]
    assert {run["id"] for run in listed} == {made[0]["id"], made[2]["id"]}
    await api.delete(f"/v1/jobs/{job}")
    runs = [await world.jobs.get_run(run["id"]) for run in made]
    assert {run.state for run in runs} == {State.CANCELLED}
