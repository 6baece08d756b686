"""The RPC contract over JSON-RPC: its document replayed, and what each of its calls does."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from horae.contracts import CONTRACTS
from horae.contracts.rpc import jsonrpc, rendering
from horae.core.model import SECOND, Phase, Reason, Run, State
from horae.core.work.specs import parse_job
from horae.testing import START, make_job
from horae.web import app as web
from tests.facades.world import NODE, World

DOCUMENT = Path(__file__).parent / "document"
NOOP = "horae.handlers:noop"
NOW = START // SECOND


async def send(world: World, body: Any, **headers: str) -> Any:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    answer = await world.http.post("/rpc", content=content, headers=headers)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def call(world: World, method: str, *params: Any, **named: Any) -> Any:
    answer = await send(world, {"jsonrpc": "2.0", "id": 1, "method": method, "params": named or list(params)})
    assert "result" in answer, answer
    return answer["result"]


async def refused(world: World, method: str, *params: Any, **named: Any) -> tuple[int, str]:
    answer = await send(world, {"jsonrpc": "2.0", "id": 1, "method": method, "params": named or list(params)})
    return answer["error"]["code"], answer["error"]["data"]["code"]


# ── the document ───────────────────────────────────────────────────────────────────────────────────


async def test_every_call_of_the_document_has_its_answer(world: World) -> None:
    answers = await send(world, (DOCUMENT / "calls.json").read_bytes())
    results = {answer["id"]: answer.get("result", answer) for answer in answers}

    job = {
        "job_id": 1, "user_id": "user-1", "job_type": "periodic", "schedule": "*/5 * * * *", "code_location": NOOP,
        "status": "pending", "priority": 5, "retry_count": 0, "created_at": NOW, "next_execution": NOW,
    }  # fmt: skip
    assert results == {
        "submit_job(user_id, schedule, code_location)": 1,
        "retrieve_all_jobs(user_id)": [job],
        "get_exec_history(job_id)": [],
        "get_jobs_in_next_5_mins()": [job],
        "Job Dispatching": 1,
        "Health Checks (Heart Beats)": {"status": "ok", "worker_id": "worker-1", "cancel": [], "lost": []},
        "Status Updates": {"status": "ok", "cancel": False},
        "Job Cancellation": {"cancelled": [1]},
        "delete_job(user_id, job_id)": True,
    }


# ── clients ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("schedule", "kind", "shown", "next_at"),
    [
        ("30 9 * * *", "periodic", "30 9 * * *", NOW + 5400),
        ("1h30m", "periodic", "1h30m", NOW + 5400),
        (NOW + 60, "one-time", NOW + 60, NOW + 60),
        (str(NOW + 60), "one-time", NOW + 60, NOW + 60),
        (None, "one-time", None, NOW),
    ],
)
async def test_a_schedule_is_cron_a_duration_a_moment_or_now(
    world: World, schedule: Any, kind: str, shown: Any, next_at: int
) -> None:
    await call(world, "submit_job", "u", schedule, NOOP)
    [job] = await call(world, "retrieve_all_jobs", "u")
    assert (job["job_type"], job["schedule"], job["next_execution"]) == (kind, shown, next_at)


@pytest.mark.parametrize(
    ("location", "spec"),
    [
        ("package.module:function", {"handler": "package.module:function"}),
        ("jobs/report", {"handler": "jobs/report"}),
        ("report", {"handler": "report"}),
        ("/srv/scripts/a.sh", {"script": "/srv/scripts/a.sh"}),
        ("https://example.org/repo.git", {"checkout": {"url": "https://example.org/repo.git"}, "script": "run.sh"}),
        (
            "ssh://ann@example.org/repo.git@feature/x#ci/go.sh",
            {"checkout": {"url": "ssh://ann@example.org/repo.git", "ref": "feature/x"}, "script": "ci/go.sh"},
        ),
        (
            "git@example.org:team/repo.git@v1",
            {"checkout": {"url": "git@example.org:team/repo.git", "ref": "v1"}, "script": "run.sh"},
        ),
    ],
)
async def test_code_lies_in_a_handler_a_repository_or_a_file(world: World, location: str, spec: dict[str, Any]) -> None:
    job_id = await call(world, "submit_job", user_id="u", schedule="1h", code_location=location)
    assert (await world.jobs.get(job_id)).spec == spec
    [job] = await call(world, "retrieve_all_jobs", "u")
    assert job["code_location"].startswith(location)


async def test_who_asks_a_repository_over_https_may_be_a_token_and_is_hidden(world: World) -> None:
    await call(
        world, "submit_job", user_id="u", schedule="1h", code_location="https://tok3n@example.org/a.git@v1#go.sh"
    )
    [job] = await call(world, "retrieve_all_jobs", "u")
    assert job["code_location"] == "https://******@example.org/a.git@v1#go.sh"


async def test_jobs_belong_to_the_user_they_were_made_for_others_to_their_owner(world: World) -> None:
    made = await call(world, "submit_job", 42, "1h", NOOP)
    native = (await world.http.post("/v1/jobs", json={"name": "n", "steps": [{"run": "x"}]})).json()["jobs"][0]["id"]
    odd = {"name": "odd", "steps": [{"run": "x"}], "annotations": {"rpc": {"user_id": {"no": "user"}}}}
    await world.http.post("/v1/jobs", json=odd)

    assert [(job["job_id"], job["user_id"]) for job in await call(world, "retrieve_all_jobs", 42)] == [(made, 42)]
    assert await call(world, "retrieve_all_jobs", "42") == await call(world, "retrieve_all_jobs", 42)
    assert [job["job_id"] for job in await call(world, "retrieve_all_jobs", "local")] == [native]
    [job] = await call(world, "retrieve_all_jobs", "local")
    assert (job["job_type"], job["code_location"], job["next_execution"]) == ("event-based", "n", None)


async def test_only_whom_a_job_was_made_for_deletes_it(world: World) -> None:
    job_id = await call(world, "submit_job", "ann", "1h", NOOP)
    assert await refused(world, "delete_job", "bob", job_id) == (-32003, "E_POLICY")
    assert await call(world, "delete_job", "ann", job_id) is True
    assert await refused(world, "delete_job", "ann", job_id) == (-32004, "E_NOT_FOUND")
    assert await call(world, "retrieve_all_jobs", "ann") == []


async def test_priority_and_retries_are_taken(world: World) -> None:
    job_id = await call(world, "submit_job", user_id="u", code_location=NOOP, priority=9, retry_times=2)
    job = await world.jobs.get(job_id)
    assert (job.policy.priority, job.policy.retry.attempts) == (9, 3)


async def test_resources_are_taken(world: World) -> None:
    asked = {"gpu": 1, "cpus": 1.5, "memory": "512MiB"}
    job_id = await call(world, "submit_job", user_id="u", code_location=NOOP, resources=asked)
    assert (await world.jobs.get(job_id)).policy.resources == (("cpus", 1500), ("gpu", 1), ("memory", 2**29))
    assert await refused(world, "submit_job", user_id="u", code_location=NOOP, resources={"gpu": 0.5}) == (
        -32602, "E_TYPE",
    )  # fmt: skip


async def test_history_is_newest_first_and_tells_who_worked(world: World) -> None:
    job_id = await call(world, "submit_job", "u", "1m", NOOP)
    for state in (State.SUCCEEDED, State.FAILED):
        world.clock.advance(60)
        await world.fire()
        await world.work("python", state, "broken" if state is State.FAILED else "")
    rows = await call(world, "get_exec_history", job_id)
    assert rows[0] == {
        "execution_id": 2, "job_id": job_id, "status": "failed", "worker_id": NODE, "retry_count": 0,
        "scheduled_for": NOW + 120, "started_at": NOW + 120, "finished_at": NOW + 120, "created_at": NOW + 120,
        "message": "broken", "exit_code": 1, "logs_path": "/v1/runs/2/log",
    }  # fmt: skip
    assert [row["status"] for row in rows] == ["failed", "completed"]
    assert await call(world, "get_exec_history", job_id, 1) == rows[:1]


async def test_the_next_five_minutes_begin_now_and_end_before_the_fifth(world: World) -> None:
    ids = [await call(world, "submit_job", "u", NOW + seconds, NOOP) for seconds in (0, 299, 300)]
    theirs = parse_job({"name": "x", "schedule": "1m", "steps": [{"run": "x"}]})
    await world.jobs.submit([theirs], owner="x", org=2)
    found = await call(world, "get_jobs_in_next_5_mins")
    assert [(job["job_id"], job["next_execution"]) for job in found] == [(ids[0], NOW), (ids[1], NOW + 299)]


# ── dispatch and cancel ────────────────────────────────────────────────────────────────────────────


async def test_a_dispatched_job_runs_now_and_again_only_when_it_has_ended(world: World) -> None:
    job_id = await call(world, "submit_job", "u", "1h", NOOP)
    execution = await call(world, "dispatch", job_id)
    assert await call(world, "dispatch", job_id) == execution
    assert await call(world, "dispatch", job_id, execution) == execution
    await world.work("python")
    assert await refused(world, "dispatch", job_id, execution) == (-32009, "E_TERMINAL")
    assert await call(world, "dispatch", job_id) > execution


async def test_a_due_moment_that_is_dispatched_is_not_fired_again(world: World) -> None:
    job_id = await call(world, "submit_job", "u", NOW + 60, NOOP)
    world.clock.advance(60)
    await call(world, "dispatch", job_id)
    await world.fire()
    rows = await call(world, "get_exec_history", job_id)
    assert [row["scheduled_for"] for row in rows] == [NOW + 60]


async def test_a_node_without_a_free_slot_takes_nothing(world: World) -> None:
    job_id = await call(world, "submit_job", "u", "1h", NOOP)
    object.__setattr__(world.services.local_node, "busy", lambda: 8)
    assert await refused(world, "dispatch", job_id) == (-32029, "E_LIMITED")
    assert (await world.rows())[2] == 0


async def test_cancel_ends_one_execution_or_all_of_a_job(world: World) -> None:
    job_id = await call(world, "submit_job", "u", "1h", NOOP)
    execution = await call(world, "dispatch", job_id)
    assert await call(world, "cancel", job_id=job_id) == {"cancelled": [execution]}
    assert await call(world, "cancel", job_id=job_id) == {"cancelled": []}
    assert await refused(world, "cancel", execution_id=execution) == (-32009, "E_TERMINAL")
    assert await refused(world, "cancel", job_id=job_id, execution_id=execution) == (-32602, "E_FIELD_CONFLICT")
    assert (await call(world, "get_exec_history", job_id))[0]["status"] == "cancelled"


# ── workers ────────────────────────────────────────────────────────────────────────────────────────


async def waiting(world: World) -> int:
    """Return an execution that nobody has taken yet."""
    job_id = await call(world, "submit_job", "u", "1h", NOOP, 5, 1)
    return int(await call(world, "dispatch", job_id))


async def status_of(world: World, execution: int) -> str:
    run = await world.jobs.get_run(execution)
    return rendering.WORDS[run.state]


@pytest.mark.parametrize(("word", "state"), [("completed", State.SUCCEEDED), ("CANCELLED", State.CANCELLED)])
async def test_a_worker_takes_an_execution_reports_and_ends_it(world: World, word: str, state: State) -> None:
    execution = await waiting(world)
    taken = await call(world, "status_update", execution_id=execution, status="running", worker_id="w", progress=10)
    assert taken == {"status": "ok", "cancel": False}
    run = await world.jobs.get_run(execution)
    assert (run.state, run.phase, run.node) == (State.RUNNING, Phase.RUNNING, "w@agent")
    [loan] = await world.services.lending.loans()
    assert (loan.progress, loan.until_at) == ({"progress": 10}, START + 30 * SECOND)
    await call(world, "status_update", execution, word, "w", "done")
    ended = await world.jobs.get_run(execution)
    assert (ended.state, ended.message) == (state, "done")


async def test_an_execution_that_failed_is_tried_again_as_its_job_says(world: World) -> None:
    execution = await waiting(world)
    await call(world, "status_update", execution, "running", "w")
    await call(world, "status_update", execution, "failed", "w", "broken")
    assert await status_of(world, execution) == "pending"


async def test_another_worker_can_neither_prolong_nor_end_what_it_does_not_hold(world: World) -> None:
    execution = await waiting(world)
    await call(world, "status_update", execution, "running", "w")
    for word in ("running", "completed", "failed"):
        assert await refused(world, "status_update", execution, word, "thief") == (-32009, "E_CONFLICT")
    assert await status_of(world, execution) == "running"


async def test_what_nobody_holds_cannot_be_ended_and_taking_it_needs_a_name(world: World) -> None:
    execution = await waiting(world)
    assert await refused(world, "status_update", execution, "completed", "w") == (-32009, "E_CONFLICT")
    assert await refused(world, "status_update", execution, "running") == (-32602, "E_REQUIRED")
    assert await status_of(world, execution) == "scheduled"


async def test_a_heartbeat_prolongs_what_the_worker_holds_and_tells_what_to_stop(world: World) -> None:
    execution = await waiting(world)
    await call(world, "status_update", execution, "running", "w")
    other = await waiting(world)
    await call(world, "status_update", other, "running", "other")
    world.clock.advance(20)
    assert await call(world, "heartbeat", "w", 1, 4) == {"status": "ok", "worker_id": "w", "cancel": [], "lost": []}
    until = {loan.run_id: (loan.until_at - START) // SECOND for loan in await world.services.lending.loans()}
    assert until == {execution: 50, other: 30}
    await call(world, "cancel", execution_id=execution)
    assert (await call(world, "heartbeat", "w"))["cancel"] == [execution]
    assert (await call(world, "status_update", execution, "running", "w"))["cancel"] is True
    [node] = [node for node in await world.services.external_members.members("agent") if node.name.startswith("w@")]
    assert (node.busy, node.slots, node.state) == (1, 4, "live")


async def test_a_heartbeat_without_a_worker_is_that_of_this_node(world: World) -> None:
    assert await call(world, "heartbeat") == {"status": "ok", "worker_id": NODE, "load": 0, "capacity": 8}


# ── JSON-RPC ───────────────────────────────────────────────────────────────────────────────────────


async def test_a_notification_acts_and_gets_no_answer(world: World) -> None:
    body = {"jsonrpc": "2.0", "method": "submit_job", "params": ["u", "1h", NOOP]}
    for each in (body, [body, body]):
        answer = await world.http.post("/rpc", json=each)
        assert (answer.status_code, answer.content) == (204, b"")
    assert len(await call(world, "retrieve_all_jobs", "u")) == 3


async def test_a_batch_answers_each_call_that_wants_an_answer_whatever_becomes_of_the_others(world: World) -> None:
    answers = await send(
        world,
        [
            {"jsonrpc": "2.0", "method": "submit_job", "params": ["u", "1h", NOOP], "id": "a"},
            {"jsonrpc": "2.0", "method": "submit_job", "params": ["u", "never", NOOP]},
            {"jsonrpc": "2.0", "method": "no_such_method", "id": 2.5},
            5,
            {"jsonrpc": "1.0", "method": "heartbeat", "id": 3},
            {"jsonrpc": "2.0", "method": "heartbeat", "id": None},
        ],
    )
    assert [(each["id"], each.get("error", {}).get("code")) for each in answers] == [
        ("a", None), (2.5, -32601), (None, -32600), (3, -32600), (None, None),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", -32700), (b"{", -32700), (b"\xff", -32700), (b'{"a": 1, "a": 2}', -32700), (b"[" * 5000, -32700),
        (b"NaN", -32700), (b"[]", -32600), (b"5", -32600), (b"null", -32600), (b"{}", -32600),
        (b'{"jsonrpc": 2.0, "method": "heartbeat", "id": 1}', -32600),
        (b'{"jsonrpc": "2.0", "method": 5, "id": 1}', -32600),
        (b'{"jsonrpc": "2.0", "method": "heartbeat", "params": null, "id": 1}', -32600),
        (b'{"jsonrpc": "2.0", "method": "heartbeat", "params": "x", "id": 1}', -32600),
        (b'{"jsonrpc": "2.0", "method": "heartbeat", "id": {}}', -32600),
        (b'{"jsonrpc": "2.0", "method": "heartbeat", "id": true}', -32600),
    ],
)  # fmt: skip
async def test_what_is_no_call_is_refused_as_the_standard_says(world: World, body: bytes, code: int) -> None:
    assert (await send(world, body))["error"]["code"] == code


async def test_a_batch_has_at_most_100_calls(world: World) -> None:
    one = {"jsonrpc": "2.0", "method": "heartbeat", "id": 1}
    assert len(await send(world, [one] * 100)) == 100
    assert (await send(world, [one] * 101))["error"]["code"] == -32600


async def test_a_repeat_with_the_same_key_makes_nothing_twice(world: World) -> None:
    one = {"jsonrpc": "2.0", "method": "submit_job", "params": ["u", "1h", NOOP], "id": 1}
    first = await send(world, [one, one], **{"Idempotency-Key": "k"})
    again = await send(world, [one, one], **{"Idempotency-Key": "k"})
    assert [each["result"] for each in first] == [each["result"] for each in again] == [1, 2]


async def test_a_fault_of_ours_shows_nothing_of_itself() -> None:
    async def broken(method: str, params: Any, number: int) -> Any:
        raise RuntimeError("the password is secret")

    answer = await jsonrpc.answer(b'{"jsonrpc": "2.0", "method": "x", "id": 1}', broken)
    assert answer["error"]["code"] == -32603
    assert "secret" not in json.dumps(answer)


async def test_beyond_loopback_a_token_is_needed_and_tells_who_owns_what_is_made(world: World) -> None:
    _, token = await world.services.access.create("t", "user", "ann", None)
    gate = web.create_app(world.services, CONTRACTS, version="1", loopback_only=False)
    one = {"jsonrpc": "2.0", "method": "submit_job", "params": ["u", "1h", NOOP], "id": 1}
    async with httpx.AsyncClient(transport=httpx.ASGITransport(gate), base_url="https://rpc.example.org") as far:
        stranger = await far.post("/rpc", json=one)
        assert (stranger.status_code, stranger.json()["error"]["code"], stranger.json()["id"]) == (401, -32001, None)
        known = await far.post("/rpc", json=one, headers={"Authorization": f"Bearer {token}"})
    assert (await world.jobs.get(known.json()["result"])).owner == "ann"


def test_every_run_has_a_word() -> None:
    for state, reason, phase in itertools.product(State, Reason, Phase):
        run = Run(1, 1, None, START, state, reason, 1, 1, 5, "python", START, phase=phase)
        word = rendering.execution(run)["status"]
        assert word in {"pending", "scheduled", "running", "completed", "failed", "cancelled", "skipped", "coalesced"}
        assert rendering.job(make_job(), run)["status"] == word
