"""Every request of source document 3, as it stands there, answered with every field the contract shows."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from horae.contracts.admin.declarations import read_declaration
from horae.core.model import SECOND
from horae.web.documents import read_yaml
from tests.facades.admin.jobs import job_guid
from tests.facades.world import World

DOCUMENT = Path(__file__).parent / "document"
REQUESTS = json.loads((DOCUMENT / "requests.json").read_text())
SHAPES = {
    "guid": re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[48][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"),
    "trace": re.compile(r"[0-9a-f]{32}"),
    "text": re.compile(r".+"),
}
PARTS = {"year", "month", "day", "hours", "minutes", "seconds", "nanos"}


def fits(shown: Any, wanted: Any) -> bool:
    if isinstance(wanted, dict):
        return isinstance(shown, dict) and all(name in shown and fits(shown[name], wanted[name]) for name in wanted)
    if isinstance(wanted, list):
        return isinstance(shown, list) and bool(shown) and all(fits(each, wanted[0]) for each in shown)
    if wanted == "flag":
        return isinstance(shown, bool)
    if wanted == "moment":
        return isinstance(shown, dict) and shown.keys() == PARTS and all(type(part) is int for part in shown.values())
    return isinstance(shown, str) and SHAPES[wanted].fullmatch(shown) is not None


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda each: f"{each['method']} {each['path']}")
async def test_a_request_of_the_document_is_answered_as_it_says(world: World, request_: dict[str, Any]) -> None:
    declared = read_declaration(read_yaml((DOCUMENT / "jobs.yaml").read_bytes()))
    [job] = (await world.jobs.submit(declared.drafts)).jobs
    world.clock.advance(3600)
    await world.fire()
    await world.work("python")

    body = json.loads(json.dumps(request_.get("body")).replace("<JobId>", job_guid(job)))
    answer = await world.http.request(request_["method"], request_["path"], json=body)

    assert answer.status_code == 200, answer.text
    assert fits(answer.json(), request_["answer"]), answer.json()


def test_the_comparison_can_fail() -> None:
    wanted = REQUESTS[0]["answer"]
    assert not fits({"Jobs": []}, wanted)
    assert not fits({"Jobs": [{"JobId": "12", "JobName": "a"}]}, wanted)
    assert not fits({"at": {"year": SECOND}}, {"at": "moment"})
