"""Hundreds of requests that nobody should send: refused in the contract's own words, and nothing changes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import product
from typing import Any

from horae.core.work import specs
from tests.facades.lake.bodies import Client, java, source, sync
from tests.facades.world import World

Request = tuple[str, str, bytes]

FRAGMENTS = [
    "'; DROP TABLE jobs; --",
    '" OR 1=1 --',
    "../../etc/passwd",
    "%00",
    "${jndi:ldap://x}",
    "<script>",
    "\u202e",
    "-rf",
]
WRONG: list[Any] = [True, -1, 2**63, 2**80, 1.5, [], {}, [[]], {"class_name": "x"}, "", "\x07", "x" * 200_000]
PATH_IDS = ["0", "-1", str(2**63), str(10**40), "1.5", "abc", "%27%20OR%201=1", "..%5C..%5Cpasswd", "%00", "1%0a"]


def paths(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where the leaves of a body are."""
    if isinstance(value, dict) and value:
        for key, member in value.items():
            yield from paths(member, (*at, key))
    else:
        yield at


def changed(value: Any, at: tuple[Any, ...], new: Any) -> Any:
    if not at:
        return new
    return {**value, at[0]: changed(value[at[0]], at[1:], new)}


def encode(value: Any) -> bytes:
    return json.dumps(value).encode()


SQL = {"class_name": "sql_job", "display_name": "q", "query_info": {"query": "select 1", "outputs": [7]}}
REPORT = {"class_name": "java_job_progress", "run_id": 1001, "job_id": 1, "job_status": "Finished"}
WEEKLY = {"class_name": "schedule_weekly", "recur_every": 1, "at_hour": 24, "include_days": ["SOMEDAY"]}
MONTHLY = {"class_name": "schedule_monthly", "recur_every_month": 1, "recur_on_days": [0], "at_minute": 60}
BROKEN: list[tuple[str, str, Any]] = [  # each wrong in more than one place, so that no change of one makes it right
    ("POST", "/lake/job/create", java(schedule_time=WEEKLY)),
    ("POST", "/lake/job/create", java(schedule_time=MONTHLY)),
    ("POST", "/lake/job/create", {"job": SQL | {"last_run_time": -5}}),
    ("POST", "/job/create", sync(destinations=["Mars"], sync_mode="Never")),
    ("POST", "/source/create", source(database_type="Access", jdbc_url=None)),
    ("POST", "/lake/schedule/job/report", REPORT),
    ("POST", "/schedule/job/report", REPORT | {"sync_id": 1001}),
    ("POST", "/lake/job/list", {"from": -1, "size": 5000, "keyword": 3, "sorts": [{"field": "drop"}]}),
    ("POST", "/history/list", {"from": "a", "size": {}, "sorts": [{"field": "job_id", "order": 7}]}),
]
ROUTES = [
    ("GET", "/lake/job/{}"), ("PUT", "/lake/job/{}"), ("PUT", "/lake/schedule/job/{}/now"),
    ("PUT", "/lake/schedule/job/{}/kill"), ("PUT", "/job/{}"), ("PUT", "/schedule/job/{}/now"), ("GET", "/source/{}"),
    ("PUT", "/source/{}"), ("GET", "/source/{}/organization/1"), ("DELETE", "/lake/job/{}"), ("DELETE", "/source/{}"),
]  # fmt: skip
WITH_BODY = [
    ("POST", "/lake/job/create"), ("POST", "/job/create"), ("POST", "/job/multi_create"),
    ("POST", "/job/multi_create_jobs"), ("DELETE", "/job/multi_delete"), ("DELETE", "/source/multi_delete"),
    ("POST", "/source/create"), ("POST", "/lake/schedule/job/report"), ("POST", "/schedule/job/report"),
    ("PUT", "/schedule/job/multi_sync/now"), ("POST", "/job/list"),
]  # fmt: skip
NO_BODIES = [
    b"", b"{", b"null", b"[]", b"7", b'"x"', b"\xff\xfe", b"{}", b'{"a":1,"a":2}', b"[" * 100_000, b"\x00",
    b'{"job":' * 80 + b"1" + b"}" * 80, b'{"job": NaN}', b'{"job": [], "jobs": {}, "ids": "1"}', b" " * (10 << 20),
    b'{"ids": [' + b"1," * 2000 + b"1]}", b'{"ids": [0]}', b'{"ids": [-1, "x"]}',
    b'{"job": {"class_name": {}}, "base_job": 1, "data_source": []}',
]  # fmt: skip


def hostile(foreign: int, own: int) -> Iterator[Request]:
    for method, path, body in BROKEN:
        for at, new in product(paths(body), [*WRONG, *FRAGMENTS]):
            yield method, path, encode(changed(body, at, new))
    for (method, path), written in product(ROUTES, [*PATH_IDS, str(foreign)]):
        if method != "DELETE" or written != str(foreign):  # which is a success that deletes nothing: see test_lake_jobs
            yield method, path.format(written), encode(java())
    for (method, path), content in product(WITH_BODY, NO_BODIES):
        yield method, path, content
    for at_time, mode in product([-1, 2**62, "x", [], {}, True], ["Twice", 7, {}]):
        yield "PUT", f"/lake/schedule/job/{own}/now", encode({"at_time": at_time, "mode": mode})
    for method, path in (("PATCH", "/lake/job/list"), ("POST", f"/lake/job/{own}"), ("GET", "/job/create")):
        yield method, path, b"{}"


async def everything(world: World, foreign: int, own: int, source_id: int) -> Any:
    jobs = [await world.jobs.get(each) for each in (foreign, own)]
    sources = await world.services.sources.search(1, None, (), 0, 100)
    return await world.rows(), jobs, sources, await world.services.sources.get(1, source_id)


async def test_hostile_requests_are_refused_in_the_shape_of_the_contract_and_change_nothing(
    client: Client, world: World
) -> None:
    draft = specs.parse_job({"name": "theirs", "kind": "spark_sql", "query": "select 1", "run_once": True})
    foreign = (await world.jobs.submit([draft], owner="them", org=2)).jobs[0].id
    theirs = await world.services.sources.add(org=2, owner="them", name="x", kind="jdbc_source", config={})
    assert theirs.id == foreign  # so that one number stands for both
    own = await client.make(java())
    source_id = (await client.ask("POST", "/source/create", source()))["id"]
    before = await everything(world, foreign, own, source_id)
    requests = list(dict.fromkeys(hostile(foreign, own)))
    assert len(requests) > 200
    wrong = []
    for method, path, content in requests:
        answer = await world.http.request(method, path, content=content)
        body = answer.json()
        fits = isinstance(body, dict) and body.keys() == {"code", "reason", "message"}
        if answer.status_code not in (400, 405, 413) or not fits or body["code"] != answer.status_code:
            wrong.append((method, path, content[:200], answer.status_code, answer.text[:200]))
    assert wrong == []
    assert await everything(world, foreign, own, source_id) == before


async def test_S12_fragments_of_other_languages_are_just_text(client: Client) -> None:
    """What may be any text is kept as it was sent, or refused; it is never taken for anything else."""
    for fragment, (method, body) in product(FRAGMENTS, [("/lake", java()), ("", sync())]):
        for at in paths(body):
            answer = await client.send("POST", f"{method}/job/create", changed(body, at, fragment))
            assert answer.status_code in (200, 400), answer.text
            if answer.status_code == 200 and at[-1] in answer.json()["job"]:
                assert answer.json()["job"][at[-1]] == fragment
    listed = await client.ask("POST", "/lake/job/list", {"keyword": FRAGMENTS[0], "size": 1000})
    assert {row["job"]["display_name"] for row in listed["data"]} == {FRAGMENTS[0]}
    assert (await client.ask("POST", "/lake/job/list", {"keyword": "nothing' OR '1'='1"}))["total"] == 0
