"""What is not there is refused in the shape of the contract whose address it is; so is a method that is not taken."""

from __future__ import annotations

from typing import Any

import pytest

from tests.facades.world import World


def shape_of(body: Any) -> str:
    known = {
        frozenset({"code", "reason", "message"}): "lake",
        frozenset({"message", "code"}): "ci",
        frozenset({"jsonrpc", "error", "id"}): "rpc",
        frozenset({"code", "message", "details"}): "admin",
        frozenset({"success", "data", "message", "errorCode", "timestamp"}): "segments",
    }
    return known.get(frozenset(body), "our own" if "request_id" in body else "none")


@pytest.mark.parametrize(
    ("method", "path", "shape", "status"),
    [
        ("GET", "/api/v1/nothing", "ci", 404),
        ("GET", "/api/v1", "ci", 404),
        ("GET", "/api/v1/submit_job", "ci", 405),
        ("POST", "/api/v1/job_status/1", "ci", 405),
        ("GET", "/api/v1/job/1", "ci", 405),
        ("GET", "/api/v1/job/1/2", "ci", 404),
        ("GET", "/api/v1/jobsandmore", "ci", 404),
        ("GET", "/api/v1/jobs/7", "admin", 404),
        ("PUT", "/api/v1/jobs", "admin", 405),
        ("GET", "/api/v1/job-statuses/7", "admin", 404),
        ("GET", "/api/v1/scheduler", "admin", 405),
        ("GET", "/api/v1/job", "admin", 405),
        ("GET", "/api/nothing", "segments", 404),
        ("GET", "/api", "segments", 404),
        ("PATCH", "/api/jobs", "segments", 405),
        ("GET", "/lake/nothing", "lake", 404),
        ("GET", "/job/1/2/3", "lake", 404),
        ("GET", "/source", "lake", 404),
        ("GET", "/history/nothing", "lake", 404),
        ("GET", "/schedule/nothing", "lake", 404),
        ("GET", "/lake/job/create", "lake", 405),
        ("PATCH", "/job/create", "lake", 405),
        ("GET", "/rpc", "rpc", 405),
        ("POST", "/rpc/nothing", "rpc", 404),
        ("GET", "/nothing", "our own", 404),
        ("GET", "/jobs/1/nothing", "our own", 404),
        ("GET", "/v1/nothing", "our own", 404),
    ],
)
async def test_what_is_not_there_is_told_in_the_words_of_whose_address_it_is(
    world: World, method: str, path: str, shape: str, status: int
) -> None:
    answer = await world.http.request(method, path)
    assert (answer.status_code, shape_of(answer.json())) == (status, shape), answer.text
    assert ("allow" in answer.headers) == (status == 405)
