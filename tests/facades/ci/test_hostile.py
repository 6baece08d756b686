"""Requests that nobody means well: each is refused in the contract's own form, and changes nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from horae.core.work.specs import parse_job
from tests.facades.world import World

API = "/api/v1"
DEEP: Any = "x"
for _ in range(50):
    DEEP = [DEEP]

IDS = (
    "0", "-1", "abc", "1.5", "9223372036854775808", "9" * 40, "1e3", "true", "null", "%00", "1%27%20OR%201=1--",
    "..%5c..%5cetc%5cpasswd", "%F0%9F%92%A5", "%D9%A1", "1%0d%0aX:%20y", "999999",
)  # fmt: skip
BY_ID = (
    ("GET", "job_status"), ("GET", "retrieve_history_execution"), ("GET", "last_execution_logs"),
    ("GET", "execution_logs"), ("DELETE", "job"),
)  # fmt: skip
QUERIES = ("format=xml", "format=", "follow=maybe", "follow=1", "format=../../x", "follow=true&format=%27--")
PAGES = ("limit=0", "limit=-1", "limit=99999999999999999999", "limit=x", "cursor=%27--", "cursor=%00")

SQL, PATH, LONG = "' OR 1=1 --", "../../etc/passwd", "x" * 5000
FIELDS: dict[str, list[Any]] = {
    "name": [None, 5, True, [], {}, "", " ", "-x", "a\nb", "a\x00b", LONG, DEEP],
    "schedule": [5, True, [], {}, "", "x", "61 * * * *", "* * *", "* * * * * * * *", "-5m", "0s", SQL, PATH,
                 "* * * * * ; rm -rf", "0 0 31 2 *", LONG, DEEP, "\x00", "5 5 5 32", {"cron": "* * * * *"}],
    "run_once": ["yes", 1, 0, None, [], {}, SQL],
    "steps": [None, 5, "make", {}, [], [5], [{}], [{"run": 5}], [{"run": ""}], [{"run": "x", "nme": "y"}],
              [{"run": "x", "name": "a"}, {"run": "y", "name": "a"}], [{"run": "x"}] * 201, [{"run": "\x00"}],
              [{"run": "x", "privileged": True}], [{"run": "x", "name": LONG}], DEEP, [{"run": "y" * 70_000}]],
    "url": [None, 5, "", "-x", "ext::sh -c id", "fd::3", PATH, SQL, "ftp://x/y", "https://", "file://x", LONG, {}],
    "branch": ["main"],
    "image": [None, 5, "", "-v", "a b", SQL, "../x", LONG, [], {}],
    "priority": [-1, 10, "5", True, 1.5, None, [], 2**70, SQL],
    "env": [5, "A=b", [], {"A": 5}, {"A-B": "x"}, {"": "x"}, {"A": "\x00"}, {"A": "x" * 70_000}, {SQL: "x"}, None],
    "timeout": [0, -1, "x", None, [], "1y", SQL, True, 10**12, DEEP],
    "format": [None, 5, "pdf", "", [], {}, SQL, PATH],
    **{name: ["x"] for name in ("schedul", "Name", "__proto__", SQL, "user_id", "job_id", "triggers", "kind", "spec")},
    "privileged": [True],
    "user": ["root"],
    "task": ["x"],  # without steps, see below
}  # fmt: skip
TASKS: list[Any] = [None, 5, "", "deploy", [], ["build", "deploy"], [5], {}, ["build"] * 3, SQL]
BODIES = (
    b"", b" ", b"\xff\xfe", b"\x00", b"jobs", b"5", b"null", b"jobs: 5", b"jobs: []", b"jobs: {}", b"[]", b"- 5",
    b"{{{", b"jobs: *a", b"&a [*a]", b"jobs: !!python/object/apply:os.system [id]", b"job: []", b"jobs: []\njobs: []",
    b"a: 1\n---\nb: 2", b"%TAG ! tag:x\n---\njobs: []", b"jobs:\n\t- name: x", b"[" * 10_000, b"{a: " * 10_000,
    b"a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b]\nd: [*c,*c,*c,*c,*c,*c,*c]",
    b"x" * 10_000_000, b"jobs:\n" + b"- {name: x, run_once: true, steps: [{run: x}]}\n" * 101,
)  # fmt: skip
LOGINS = (
    b'{"token": 5}', b'{"token": []}', b'{"token": "horae_u_1_x"}', b'{"token": "horae_a_1_' + b"x" * 43 + b'"}',
    b'{"token": "horae_u_1\' OR 1=1 --"}', b"{", b"[" * 10_000, b"x" * 10_000_000, b'{"token": {"$ne": 1}}', b"\xff",
    b'{"token": "horae_u_1_\\u0000"}',
)  # fmt: skip


def hostile(foreign_job: int, foreign_run: int, job: int) -> Iterator[tuple[str, str, bytes]]:
    for method, route in BY_ID:
        theirs = foreign_run if route == "execution_logs" else foreign_job
        for identity in (*IDS, str(theirs)):
            yield method, f"{API}/{route}/{identity}", b""
        yield "PUT", f"{API}/{route}/1", b"x"
        yield "PATCH", f"{API}/{route}/{SQL.replace(' ', '%20')}", b"x"
    for query in QUERIES:
        yield "GET", f"{API}/last_execution_logs/{job}?{query}", b""
    for query in PAGES:
        yield "GET", f"{API}/retrieve_history_execution/{job}?{query}", b""
    good = {"name": "a", "run_once": True, "steps": [{"run": "true"}]}
    for name, values in FIELDS.items():
        for value in values:
            changed = {**good, name: value}
            if name == "task":
                del changed["steps"]
            yield "POST", f"{API}/submit_job", json.dumps({"jobs": [good, changed]}).encode()
    for value in TASKS:
        yield "POST", f"{API}/submit_job", json.dumps([{"name": "a", "run_once": True, "task": value}]).encode()
    for name in good:
        yield "POST", f"{API}/submit_job", json.dumps([{k: v for k, v in good.items() if k != name}]).encode()
    for body in BODIES:
        yield "POST", f"{API}/submit_job", body
    for body in LOGINS:
        yield "POST", f"{API}/login", body
    for route in ("login", "submit_job"):
        yield "DELETE", f"{API}/{route}", b""


async def test_hundreds_of_hostile_requests_are_refused_in_form_and_change_nothing(world: World) -> None:
    draft = parse_job({"name": "theirs", "schedule": "1h", "run_once": True, "steps": [{"run": "x"}]})
    [theirs] = (await world.jobs.submit([draft], owner="ann", org=2)).jobs
    their_run = await world.jobs.run_now(theirs.id)
    [ours] = (await world.jobs.submit([draft], owner="local")).jobs
    await world.jobs.run_now(ours.id)
    before = await world.rows()
    requests = list(hostile(theirs.id, their_run.id, ours.id))
    assert len(set(requests)) == len(requests) > 200

    for method, path, body in requests:
        answer = await world.http.request(method, path, content=body)
        what = f"{method} {path} {body[:200]!r}: {answer.status_code} {answer.text[:300]}"
        assert 400 <= answer.status_code < 500, what
        assert answer.headers["content-type"] == "application/json", what
        shown = answer.json()
        assert isinstance(shown["message"], str), what
        assert answer.status_code == 401 or shown["code"].startswith("E_"), what
        assert len(answer.text) < 50_000, what
    assert await world.rows() == before
