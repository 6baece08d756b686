"""What the cluster is asked to do: a seeded mix of jobs, and requests to run them now.

Every request is written down with its outcome. `ok` happened; `fail` did not; `info` may have: the connection
broke, the time was up, or the server said 503. A request is repeated with the same Idempotency-Key, on another
node, until one of them is answered; so whatever is answered must have happened once.
"""

from __future__ import annotations

import asyncio
import datetime
import random
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx

from campaign import witness
from campaign.cluster import Cluster
from campaign.history import FAIL, INFO, OK, PAUSE, RUN, SECOND, SUBMIT, Journal, Operation, Plan, moment, now

ZONES = ("UTC", "Europe/Berlin", "Asia/Kathmandu", "America/St_Johns", "Australia/Lord_Howe")
OVERLAPS = ("forbid", "forbid", "forbid", "allow", "queue", "replace")
MISFIRES = ("run_latest", "run_latest", "run_all", "skip")
JOBS = 26  # with a schedule
REQUEST = 4.0  # seconds an answer may take before another node is asked
TRIES = 12
ONCE_EVERY, RUN_EVERY = 6.0, 1.5  # seconds between two jobs that run once, two requests to run now

Labour = tuple[float, float, float]  # least and most seconds, per cent of attempts that fail


class Workload:
    def __init__(self, cluster: Cluster, journal: Journal, seed: int) -> None:
        self._cluster = cluster
        self._journal = journal
        self._chance = random.Random(f"{seed} workload")
        self._jobs: dict[str, int] = {}  # name → id
        self._keys = 0

    # ── the plan ──
    def _scheduled(self, number: int) -> tuple[Plan, Labour]:
        chance = self._chance
        plan = Plan(
            name=f"job-{number}", overlap=chance.choice(OVERLAPS), misfire=chance.choice(MISFIRES),
            misfire_limit=chance.choice((2, 5, 100)), talks=number % 3 == 0, stubborn=number % 5 == 0,
        )  # fmt: skip
        if number % 3 == 2:
            plan = replace(
                plan,
                seconds=chance.choice((2, 3, 4, 5)),
                minutes=chance.choice((1, 1, 2)),
                timezone=chance.choice(ZONES),
            )
        else:
            plan = replace(plan, every=chance.randint(10, 70) * SECOND // 10)
        if number % 4 == 1:
            plan = replace(plan, attempts=chance.choice((2, 3)))
        if number % 9 == 4:
            plan = replace(plan, timeout=1.0)
        if number % 9 == 6:
            plan = replace(plan, start_deadline=2.0)
        return plan, self._labour(plan)

    def _labour(self, plan: Plan) -> Labour:
        most = self._chance.choice((0.1, 0.3, 0.5, 1.0, 3.0))
        return 0.0, max(most, 2.0) if plan.timeout else most, 40.0 if plan.attempts > 1 else 5.0

    # ── the requests ──
    async def begin(self) -> None:
        for number in range(JOBS):
            if not await self._submit(*self._scheduled(number)):
                raise RuntimeError("a job was refused in calm weather: ops.jsonl says why")

    async def run(self, seconds: float) -> None:
        """Ask for more, until the time is up."""
        try:
            async with asyncio.timeout(seconds), asyncio.TaskGroup() as group:
                group.create_task(self._run_once_jobs())
                group.create_task(self._run_now())
        except TimeoutError:
            return

    async def _run_once_jobs(self) -> None:
        while True:
            await asyncio.sleep(self._chance.uniform(0.5, 1.5) * ONCE_EVERY)
            soon = now() // 1000 * 1000 + self._chance.randint(1000, 5000) * 1000
            at = self._chance.choice((0, soon))
            plan = Plan(name=f"once-{len(self._jobs)}", at=at)
            await self._submit(plan, self._labour(plan))

    async def _run_now(self) -> None:
        while True:
            await asyncio.sleep(self._chance.uniform(0.5, 1.5) * RUN_EVERY)
            self._keys += 1
            key = f"run-{self._keys}"
            job_id = self._chance.choice(list(self._jobs.values()))
            repeats = self._chance.choice((1, 1, 1, 2))  # an answered request may be sent again, too
            for _ in range(repeats):
                await self._insist(RUN, key, f"/v1/jobs/{job_id}/run", {"data": {"key": key}}, job_id=job_id)

    async def end(self) -> None:
        """Let nothing more come due. The cluster is healed."""
        for name, job_id in self._jobs.items():
            await self._insist(PAUSE, name, f"/v1/jobs/{job_id}/pause", {}, job_id=job_id)

    async def _submit(self, plan: Plan, labour: Labour) -> bool:
        document = _document(plan, labour, self._cluster.witnesses)
        answer = await self._insist(SUBMIT, f"submit-{plan.name}", "/v1/jobs", document, plan=plan)
        if answer is not None:
            self._jobs[plan.name] = answer["jobs"][0]["id"]
        return answer is not None

    async def _insist(self, kind: str, key: str, path: str, body: Any, **about: Any) -> Any:
        """Send a request until it is answered."""
        for _ in range(TRIES):
            node = self._chance.choice(self._cluster.nodes)
            blank = Operation(kind, key, FAIL, now(), 0, **about)
            operation, answer = await self._send(blank, f"{node.url}{path}", body)
            self._journal.add(operation)
            if answer is not None or 400 <= operation.status < 500:
                return answer
            await asyncio.sleep(0.2)
        return None

    async def _send(self, blank: Operation, url: str, body: Any) -> tuple[Operation, Any]:
        headers = {"Idempotency-Key": blank.key} if blank.kind != PAUSE else {}
        sent = None
        try:
            async with asyncio.timeout(REQUEST):
                response = await self._cluster.http.post(url, json=body, headers=headers)
        except httpx.ConnectError:
            return replace(blank, answered_at=now()), None
        except (httpx.TransportError, TimeoutError):
            return replace(blank, answered_at=now(), outcome=INFO), None
        except asyncio.CancelledError:  # the campaign's time is up: whether this one happened, nobody knows
            self._journal.add(replace(blank, answered_at=now(), outcome=INFO))
            raise
        heard = replace(blank, answered_at=now(), status=response.status_code)
        if response.is_success:
            sent = response.json()
            return _read(heard, sent), sent
        return replace(heard, outcome=INFO if response.status_code >= 500 else FAIL), None


def _read(heard: Operation, answer: Any) -> Operation:
    """What an answer tells."""
    if heard.kind == RUN:
        return replace(heard, outcome=OK, run_id=answer["id"])
    if heard.kind == PAUSE:
        return replace(heard, outcome=OK)
    job = answer["jobs"][0]
    next_at = job["triggers"][0]["next_at"]
    return replace(
        heard, outcome=OK, job_id=job["id"], created_at=moment(job["created_at"]), replayed=answer["replayed"],
        next_at=moment(next_at) if next_at else None,
    )  # fmt: skip


def _document(plan: Plan, labour: Labour, directory: Path) -> dict[str, Any]:
    """The job document of a plan. The shell gives way to the witness, so that no process stands between it and
    whoever kills it."""
    habits = "talks" * plan.talks + "stubborn" * plan.stubborn or "none"
    words = [*(str(number) for number in labour), habits]
    program = f"exec {sys.executable} -I -S {witness.__file__} {directory} {' '.join(words)}"
    document: dict[str, Any] = {
        "name": plan.name, "steps": [{"run": program}], "overlap": plan.overlap,
        "misfire": {"policy": "run_all", "limit": plan.misfire_limit} if plan.misfire == "run_all" else plan.misfire,
        "retry": {"attempts": plan.attempts, "backoff": "500ms"}, "triggers": [_trigger(plan)],
    }  # fmt: skip
    if plan.timeout is not None:
        document["timeout"] = plan.timeout
    if plan.start_deadline is not None:
        document["start_deadline"] = plan.start_deadline
    return document


def _trigger(plan: Plan) -> dict[str, Any]:
    if plan.at is not None:
        return {"at": datetime.datetime.fromtimestamp(plan.at / SECOND, datetime.UTC).isoformat()}
    if plan.every is not None:
        return {"every": f"{plan.every // 1000}ms"}
    return {"cron": f"*/{plan.seconds} */{plan.minutes} * * * *", "timezone": plan.timezone}
