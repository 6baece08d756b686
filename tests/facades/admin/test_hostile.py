"""Requests that mean harm or make no sense: never a 500, always the contract's own failure, and nothing changed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from horae.contracts.admin.guids import Kind, guid
from horae.core.model import Job
from tests.facades.admin.jobs import job_guid, make
from tests.facades.world import World

STATUSES, JOB = "/api/v1/job-statuses", "/api/v1/job"
NESTED: Any = 0
for _ in range(60):
    NESTED = [NESTED]
WRONG_TYPES: list[Any] = [True, False, [], {}, ["x"], {"value": "x"}, 1.5, -0.5, NESTED]
NUMBERS: list[Any] = [
    0,
    -1,
    -(2**31),
    2**31,
    2**63,
    10**30,
    1e308,
    "0",
    "-1",
    "9" * 10,
    "9" * 400,
    "1e3",
    "0x10",
    "",
    " 1",
]
TEXTS = [
    "'; DROP TABLE jobs; --", "1 OR 1=1", "../../../../etc/passwd", "..\\..\\windows", "%00", "%2e%2e%2f", "${jndi:x}",
    "<script>alert(1)</script>", "{{7*7}}", "\u0000", "\ud7ff\u202e", "é" * 36, "a" * 100_000, "0" * 36, "-" * 36,
    "null", "00000000-0000-0000-0000-000000000000", "D2166A1D-94A6-45A5-BA10-F54AA51B7538",
    "686f7261-656a-8002-8000-000000000001", "{686f7261-656a-8000-8000-000000000000",
    "686f7261-656a-8000-8000-00000000000g", "١٢٣", "\r\nX-Evil: 1", "${IFS}",
]  # fmt: skip
BODIES = [
    b"", b" ", b"{", b"[", b"null", b"[]", b"1", b'"text"', b"true", b"{]", b'{"a": 1,}', b"\xff\xfe", b"\x00", b"NaN",
    b'{"Page": NaN}', b'{"Page": 1, "Page": 1}', b"PageSize=1&Page=1", b"<xml/>", b"- yaml: true", b"[" * 100_000,
    b'{"a":' * 100_000, b'{"PageSize": 1e999, "Page": 1}', b"{" + b'"a":1,' * 50_000 + b'"b":1}', b"x" * 10_000_000,
]  # fmt: skip


class Hostile(NamedTuple):
    method: str
    path: str
    body: bytes = b""
    is_fine: bool = False  # odd, but the contract has an answer to it


def requests(disabled: Job, foreign: Job) -> Iterator[Hostile]:
    """`disabled` exists, so that everything beside its id is looked at too; it cannot run."""
    good = {"PageSize": 10, "Page": 1}
    for name in good:
        for value in [*WRONG_TYPES, *NUMBERS, *TEXTS, None]:
            yield _json(STATUSES, {**good, name: value})
    for value in (*WRONG_TYPES, *NUMBERS[:7]):
        yield _json(STATUSES, {**good, "TraceId": value})
        yield _json(STATUSES, {**good, "ScheduleJobStatusId": value})
        yield _json(JOB, {"JobId": value})
        yield _json(JOB, {"JobId": job_guid(disabled), "JobData": value})
    for text in TEXTS:
        yield _json(STATUSES, {**good, "TraceId": text}, is_fine=len(text) <= 1000 and "\0" not in text)
        yield _json(STATUSES, {**good, "ScheduleJobStatusId": text}, is_fine=_is_guid(text))
        yield _json(JOB, {"JobId": text})
        yield _json(JOB, {"JobId": job_guid(disabled), "JobData": text})
    for job_id in (job_guid(foreign), guid(Kind.TRIGGER, 1), guid(Kind.RUN, 1), guid(Kind.JOB, 2**63 - 1)):
        yield _json(JOB, {"JobId": job_id})
    for body in BODIES:
        yield Hostile("POST", STATUSES, body)
        yield Hostile("POST", JOB, body)
    for method in ("DELETE", "PATCH", "OPTIONS", "TRACE"):
        for path in (STATUSES, JOB, "/api/v1/jobs", "/api/v1/scheduler"):
            yield Hostile(method, path)


def _json(path: str, value: Any, *, is_fine: bool = False) -> Hostile:
    return Hostile("POST", path, json.dumps(value).encode(), is_fine)


def _is_guid(text: str) -> bool:
    return len(text) == 36 and set(text) <= set("0123456789abcdefABCDEF-") and text.count("-") == 4


async def test_no_hostile_request_breaks_or_changes_anything(world: World) -> None:
    disabled, foreign = await make(world, "disabled", paused=True), await make(world, "foreign", org=2)
    asked = list(dict.fromkeys(requests(disabled, foreign)))
    before = await world.rows()
    for each in asked:
        answer = await world.http.request(each.method, each.path, content=each.body)
        told = f"{each.method} {each.path} {each.body[:80]!r} → {answer.status_code} {answer.text[:200]}"
        if each.is_fine:
            assert (answer.status_code, answer.json()) == (200, {"Items": []}), told
            continue
        assert 400 <= answer.status_code < 500, told
        failure = answer.json()
        assert failure.keys() == {"code", "message", "details"}, told
        assert 0 < failure["code"] <= 16, told
        assert failure["message"], told
        assert len(answer.content) < 2000, told
    assert len(asked) >= 200
    assert await world.rows() == before
