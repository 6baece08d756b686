"""`horae explain`, against a small server that answers as told."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner

from horae.cli import app
from tests.unit.fake_api import Fake, page, serving

SENTENCE = {
    "code": "run.skipped.overlap", "text": "it was skipped: another run of this job was live: run 5",
    "data": {"holder": 5}, "policy": "overlap: forbid", "unblock": "overlap: queue, or overlap: allow",
    "page": "/docs/explain#run.skipped.overlap",
}  # fmt: skip
RUN: dict[str, Any] = {
    "about": "run", "id": 6, "job_id": 3, "job_name": "slow", "run_id": 6, "at": None, "now": "2026-11-18T00:50:01Z",
    "next_at": None, "sentences": [SENTENCE],
}  # fmt: skip
JOB = {**RUN, "about": "job", "id": 3}
TRIGGER = {**RUN, "about": "trigger", "id": 9}


@pytest.fixture
def api() -> Iterator[Fake]:
    with serving() as fake:
        fake.get("/v1/explain/runs/6", RUN)
        fake.get("/v1/explain/jobs/3", JOB)
        fake.get("/v1/explain/triggers/9", TRIGGER)
        fake.get("/v1/jobs/3", {"id": 3, "name": "slow"})
        yield fake


def invoke(api: Fake, *args: str) -> Any:
    return CliRunner().invoke(app, ["explain", *args, "--server", api.url])


def asked(api: Fake) -> str:
    return api.requests[-1].path


def test_a_run_is_explained_in_sentences_with_what_decided_and_what_would_change_it(api: Fake):
    result = invoke(api, "6")
    assert result.stdout.splitlines() == [
        "run 6 of slow",
        "- it was skipped: another run of this job was live: run 5 [run.skipped.overlap]",
        "    decided by: overlap: forbid",
        "    to change it: overlap: queue, or overlap: allow",
    ]
    assert f"{api.url}/docs/explain#run.skipped.overlap" in result.stderr
    assert json.loads(invoke(api, "6", "--json").stdout) == RUN


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ("6", "/v1/explain/runs/6"),
        ("run:6", "/v1/explain/runs/6"),
        ("job:3", "/v1/explain/jobs/3"),
        ("trigger:9", "/v1/explain/triggers/9"),
    ],
)
def test_what_is_meant_is_told_apart(api: Fake, given: str, path: str):
    assert invoke(api, given).exit_code == 0
    assert asked(api) == path


def test_a_word_is_the_key_or_name_of_a_job(api: Fake):
    api.get("/v1/jobs", page({"id": 3, "name": "slow"}))
    assert invoke(api, "slow").stdout.splitlines()[0] == "job 3 slow"


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ("2027-03-28T02:30", "2027-03-28T02:30"),
        ("2027-03-28 02:30:05", "2027-03-28T02:30:05"),
        ("2027-03-28", "2027-03-28T00:00"),
        ("2027-03-28T02:30:00Z", "2027-03-28T02:30:00Z"),
    ],
)
def test_a_moment_without_an_offset_is_left_to_the_zone_of_the_trigger(api: Fake, given: str, sent: str):
    assert invoke(api, "job:3", "--at", given).exit_code == 0
    assert api.requests[-1].query == {"at": sent}


def test_a_time_of_today_is_given_its_date(api: Fake):
    invoke(api, "trigger:9", "--at", "2:30")
    assert api.requests[-1].query["at"].endswith("T02:30")


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (["6", "--at", "02:30"], "E_USAGE"),
        (["job:3", "--at", "soon"], "E_USAGE"),
        (["trigger:nightly"], "E_USAGE"),
    ],
)
def test_what_makes_no_sense_is_refused(api: Fake, args: list[str], code: str):
    result = invoke(api, *args, "--json")
    assert (result.exit_code, json.loads(result.stderr)["code"]) == (2, code)
