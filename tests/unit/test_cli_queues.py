"""`horae queues`, against a small server that answers as told."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner

from horae.cli import app
from tests.unit.fake_api import JOB, Fake, page, problem, serving

FIGURES = {
    "waiting": 12, "waiting_is_cut": False, "blocked": {"retry": 2, "limit": 5}, "blocked_is_cut": False, "running": 3,
    "oldest_due_at": "2027-01-15T08:00:00Z", "oldest_wait_seconds": 75.0, "in_last_minute": 60, "out_last_minute": 58,
}  # fmt: skip
QUEUE = {
    "name": "reports", "state": "open", "priority_offset": 0, "labels": [], "kinds": [], "concurrency": 5,
    "rate": "100/min", "burst": 10, "weights": {"ann": 2}, "most_waiting": None, "version": 3,
    "created_at": None, "updated_at": None, "figures": FIGURES,
}  # fmt: skip


@pytest.fixture
def api() -> Iterator[Fake]:
    with serving() as fake:
        yield fake


def invoke(api: Fake, *args: str) -> Any:
    return CliRunner().invoke(app, ["queues", *args, "--server", api.url])


def sent(api: Fake) -> Any:
    return json.loads(api.requests[-1].body)


def test_queues_are_listed_with_how_they_stand(api: Fake):
    api.get("/v1/queues", page(QUEUE))
    head, row = invoke(api).stdout.splitlines()
    assert head.split() == [
        "NAME",
        "STATE",
        "WAITING",
        "BLOCKED",
        "RUNNING",
        "LIMIT",
        "OLDEST",
        "WAIT",
        "IN/MIN",
        "OUT/MIN",
    ]
    assert " ".join(row.split()) == "reports open 12 limit 5 retry 2 3 5 at once 100/min, burst 10 1m15s 60 58"


def test_counts_that_were_cut_have_a_plus(api: Fake):
    cut = {**FIGURES, "waiting": 10_000, "waiting_is_cut": True, "blocked_is_cut": True}
    api.get("/v1/queues", page({**QUEUE, "figures": cut}))
    row = invoke(api).stdout.splitlines()[1]
    assert "10000+" in row
    assert "limit 5+ retry 2+" in row


def test_json_is_the_answer_of_the_api(api: Fake):
    api.get("/v1/queues", page(QUEUE))
    assert json.loads(invoke(api, "--json").stdout) == page(QUEUE)


def test_set_makes_a_queue(api: Fake):
    api.get("/v1/queues/reports", problem(404, "E_NOT_FOUND", "there is no queue 'reports'"))
    api.routes["PUT", "/v1/queues/reports"] = QUEUE
    result = invoke(api, "set", "reports", "--concurrency", "5", "--weight", "ann=2", "--weight", "a=b=3")
    assert result.stdout == "queue reports is made\n"
    assert sent(api) == {"concurrency": 5, "weights": {"ann": 2, "a=b": 3}}


def test_set_changes_only_what_is_said_of_the_version_it_has_seen(api: Fake):
    api.get("/v1/queues/reports", QUEUE)
    api.routes["PUT", "/v1/queues/reports"] = QUEUE
    result = invoke(
        api, "set", "reports", "--rate", "none", "--weight", "bob=4", "--priority-offset", "-2", "--label", "gpu",
        "--kind", "none", "--most-waiting", "100",
    )  # fmt: skip
    assert result.stdout == "queue reports is changed\n"
    assert sent(api) == {
        "state": "open", "priority_offset": -2, "labels": ["gpu"], "kinds": [], "concurrency": 5, "rate": None,
        "weights": {"ann": 2, "bob": 4}, "most_waiting": 100,
    }  # fmt: skip
    assert api.requests[-1].headers["if-match"] == '"3"'


@pytest.mark.parametrize(
    "args", [("--concurrency", "many"), ("--weight", "ann"), ("--weight", "=2"), ("--weight", "ann=x")]
)
def test_set_refuses_what_cannot_be_meant(api: Fake, args: tuple[str, str]):
    result = invoke(api, "set", "reports", *args)
    assert (result.exit_code, api.requests) == (2, [])
    assert "E_USAGE" in result.stderr


@pytest.mark.parametrize(
    ("verb", "said"),
    [("pause", "is paused: nothing in it starts"), ("resume", "is open"), ("drain", "takes nothing new")],
)
def test_a_queue_is_paused_resumed_and_drained(api: Fake, verb: str, said: str):
    api.post(f"/v1/queues/reports/{verb}", QUEUE)
    assert invoke(api, verb, "reports").stdout == f"queue reports {said}\n"
    assert json.loads(invoke(api, verb, "reports", "--json").stdout) == QUEUE


def test_a_queue_is_deleted(api: Fake):
    api.routes["DELETE", "/v1/queues/reports"] = (204, b"")
    assert invoke(api, "delete", "reports").stdout == "queue reports is deleted\n"


def test_a_queue_in_use_ends_with_the_code_of_a_conflict(api: Fake):
    api.routes["DELETE", "/v1/queues/reports"] = problem(409, "E_QUEUE_IN_USE", "needed by 1 job")
    assert invoke(api, "delete", "reports").exit_code == 5


def test_a_job_that_paused_itself_says_why(api: Fake):
    job = {**JOB, "paused": True, "paused_because": "its last 3 runs failed"}
    api.get("/v1/jobs", page(job))
    api.get("/v1/jobs/7", job)
    listed = CliRunner().invoke(app, ["jobs", "--server", api.url]).stdout
    shown = CliRunner().invoke(app, ["jobs", "show", "7", "--server", api.url]).stdout
    assert "paused (its last 3 runs failed)" in listed
    assert "yes, because its last 3 runs failed" in shown
