"""`horae limits` and `horae resources`, against a small server that answers as told."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner

from horae.cli import app
from tests.unit.fake_api import Fake, page, serving

AT_ONCE = {
    "key": "at_once:owner:ann", "name": "owner ann", "per": "owner", "capacity": 5, "rate": None, "burst": 1,
    "used": 5, "waiting": 12, "next_at": None, "runs": [7, 8],
}  # fmt: skip
RATE = {
    **AT_ONCE,
    "name": "job 12",
    "per": "job",
    "capacity": None,
    "rate": "100/min",
    "burst": 10,
    "used": 0,
    "runs": [],
}
RESOURCE = {"name": "license-x", "capacity": 2, "used": 1, "waiting": 3}


@pytest.fixture
def api() -> Iterator[Fake]:
    with serving() as fake:
        yield fake


def invoke(api: Fake, *args: str) -> Any:
    return CliRunner().invoke(app, [*args, "--server", api.url])


def test_limits_are_listed_with_how_they_stand(api: Fake):
    api.get("/v1/limits", page(AT_ONCE, RATE))
    _, first, second = invoke(api, "limits").stdout.splitlines()
    assert first.split() == ["owner", "ann", "owner", "5", "at", "once", "5", "12", "7", "8"]
    assert second.split() == ["job", "12", "job", "100/min,", "burst", "10", "0", "12"]
    assert json.loads(invoke(api, "limits", "--json").stdout)["items"] == [AT_ONCE, RATE]


def test_resources_are_listed_set_and_deleted(api: Fake):
    api.get("/v1/resources", page(RESOURCE))
    assert invoke(api, "resources").stdout.splitlines()[1].split() == ["license-x", "2", "1", "3"]
    api.routes["PUT", "/v1/resources/license-x"] = RESOURCE
    assert invoke(api, "resources", "set", "license-x", "2").stdout == "the cluster has 2 of license-x\n"
    assert json.loads(api.requests[-1].body) == {"capacity": 2}
    api.routes["DELETE", "/v1/resources/license-x"] = (204, b"")
    assert invoke(api, "resources", "delete", "license-x").stdout == "license-x is counted no longer\n"


def test_how_much_there_is_must_be_a_number(api: Fake):
    assert invoke(api, "resources", "set", "license-x", "two").exit_code == 2
