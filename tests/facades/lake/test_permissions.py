"""The permissions of the contract: each of its operations needs what its word stands for, and tokens take the words."""

from __future__ import annotations

import pytest

from horae.core.foreign_permissions import LAKE, read_any_role
from horae.core.roles import Permission, Role
from tests.facades.world import World

# What the contract asks of its users, by operation; workers come with a token of theirs.
ASKED = {
    "POST /lake/job/create": "lake_job:create", "GET /lake/job/{job_id}": "lake_job:view",
    "PUT /lake/job/{job_id}": "lake_job:edit", "DELETE /lake/job/{job_id}": "lake_job:delete",
    "POST /lake/job/list": "lake_job:view", "POST /lake/history/list": "lake_history:view",
    "POST /job/create": "ingestion_job:create",
    "PUT /job/{job_id}": "ingestion_job:edit", "DELETE /job/{job_id}": "ingestion_job:delete",
    "POST /job/list": "ingestion_job:view", "POST /history/list": "ingestion_history:view",
    "DELETE /job/multi_delete": "ingestion_job:delete", "PUT /schedule/job/multi_sync/now": "ingestion_job:force_run",
    "POST /source/create": "ingestion_source:create", "GET /source/{source_id}": "ingestion_source:view",
    "PUT /source/{source_id}": "ingestion_source:edit", "DELETE /source/{source_id}": "ingestion_source:delete",
    "POST /source/list": "ingestion_source:view", "DELETE /source/multi_delete": "ingestion_source:delete",
}  # fmt: skip


async def test_each_operation_needs_what_the_word_of_the_contract_stands_for(world: World) -> None:
    paths = world.gate.api.document["paths"]
    found = {
        f"{method.upper()} {path}": shown["x-permission"]
        for path, methods in paths.items()
        for method, shown in methods.items()
        if shown["tags"][0] in ("lake", "sync") and "x-permission" in shown
    }
    assert {asked: found[asked] for asked in ASKED} == {asked: LAKE[word] for asked, word in ASKED.items()}
    rest = {asked: needed for asked, needed in found.items() if asked not in ASKED}
    known = {*LAKE.values(), Permission.WORK, Permission.PAUSE}
    assert set(rest.values()) <= known, rest


@pytest.mark.parametrize(
    ("text", "role"),
    [
        ("lake_job:view", "read"), ("*:lake_job:view:*", "read"), ("lake_history:view:*", "read"),
        ("lake_job:view+lake_job:force_run+ingestion_job:kill", "read+runs.start+runs.cancel"),
        ("logs.read+lake_job:view", "viewer"), ("*:*:*:*", "admin"), ("operator", "operator"),
    ],
)  # fmt: skip
def test_a_role_is_read_from_words_of_the_contract(text: str, role: str) -> None:
    assert read_any_role(text) is Role(role)


@pytest.mark.parametrize(
    "text",
    ["7:lake_job:view:*", "lake_job:view:17", "lake_job:see", "*:*:*:*+read", "viewer+lake_job:view", ":", "a:" * 9999],
)
def test_words_that_mean_something_else_are_no_role(text: str) -> None:
    assert read_any_role(text) is None


async def test_a_token_is_made_with_words_of_the_contract_and_does_what_they_say(world: World) -> None:
    made = await world.http.post("/v1/tokens", json={"name": "bob", "role": "lake_job:view+lake_job:force_run"})
    assert (made.status_code, made.json()["role"]) == (201, "read+runs.start")
    refused = await world.http.post("/v1/tokens", json={"name": "bob", "role": "7:lake_job:view:*"})
    assert (refused.status_code, refused.json()["errors"][0]["path"]) == (422, "role")
