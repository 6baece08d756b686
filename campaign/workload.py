"""What the cluster is asked to do: a seeded mix of jobs, and requests to run them now.

Some jobs work for longer than every timer of the cluster: only such works can be found running twice. Some are paused,
resumed and given another schedule while the cluster breaks, and some are deleted, whatever they are doing.

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

from campaign import tasks, witness
from campaign.cluster import Cluster
from campaign.history import (
    CHANGES,
    DELETE,
    FAIL,
    INFO,
    OK,
    ORDER,
    PAUSE,
    RESUME,
    RUN,
    SECOND,
    SUBMIT,
    UPDATE,
    Journal,
    Operation,
    Plan,
    moment,
    now,
)

ZONES = ("UTC", "Europe/Berlin", "Asia/Kathmandu", "America/St_Johns", "Australia/Lord_Howe")
OVERLAPS = ("forbid", "forbid", "forbid", "allow", "queue", "replace")
EVERY_OVERLAP = ("forbid", "allow", "queue", "replace")
MISFIRES = ("run_latest", "run_latest", "run_all", "skip")
JOBS = 14  # with a schedule
REQUEST = 4.0  # seconds an answer may take before another node is asked
TRIES = 12
ONCE_EVERY, RUN_EVERY = 6.0, 1.5  # seconds between two jobs that run once, two requests to run now
CHANGE_EVERY, DOOM_EVERY = 1.5, 6.0  # seconds between two changes of a job, two jobs that are made and deleted
LONG = (6.0, 14.0)  # seconds of work that outlast the cluster's timers
PERSISTENT = 40  # tries of a change: while nobody knows whether it happened, nothing is known of its job
GONE = 404

Labour = tuple[float, float, float]  # least and most seconds, per cent of attempts that fail


class Workload:
    def __init__(self, cluster: Cluster, journal: Journal, seed: int) -> None:
        self._cluster = cluster
        self._journal = journal
        self._chance = random.Random(f"{seed} workload")
        self.jobs: dict[str, int] = {}  # name → id
        self._made: dict[str, Plan] = {}  # as they were first
        self._changing: dict[str, tuple[Plan, Labour]] = {}  # what is paused, resumed and updated
        self._paused: set[str] = set()
        self._doomed = 0
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
            plan = replace(plan, every=chance.randint(15, 90) * SECOND // 10)
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

    def _long(self, overlap: str) -> tuple[Plan, Labour]:
        every = self._chance.randint(7, 12) * SECOND
        return Plan(f"long-{overlap}", every=every, overlap=overlap, talks=True), (*LONG, 5.0)

    def _changed(self, overlap: str) -> tuple[Plan, Labour]:
        plan = Plan(f"changed-{overlap}", every=self._chance.randint(10, 40) * SECOND // 10, overlap=overlap)
        return plan, (0.0, self._chance.choice((0.3, 2.0)), 5.0)

    # ── the requests ──
    async def begin(self) -> None:
        self._changing = {plan.name: (plan, labour) for plan, labour in map(self._changed, EVERY_OVERLAP)}
        scheduled = [self._scheduled(number) for number in range(JOBS)]
        for plan, labour in (*scheduled, *map(self._long, EVERY_OVERLAP), *self._changing.values()):
            if not await self.submit(plan, labour):
                raise RuntimeError("a job was refused in calm weather: ops.jsonl says why")

    async def run(self, over: asyncio.Event) -> None:
        """Ask for more, until it is over. Changes of jobs are brought to their end."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._change_jobs(over))
            group.create_task(self._doom_jobs(over))
            asking = [group.create_task(ask()) for ask in (self._run_once_jobs, self._run_now)]
            await over.wait()
            for task in asking:
                task.cancel()

    async def _change_jobs(self, over: asyncio.Event) -> None:
        """Pause one that runs, or give it another schedule; resume one that is paused."""
        while await self._is_time(CHANGE_EVERY, over):
            name = self._chance.choice(list(self._changing))
            if name in self._paused:
                await self._change(RESUME, name)
                self._paused.discard(name)
            elif self._chance.random() < 0.5:
                await self._change(PAUSE, name)
                self._paused.add(name)
            else:
                await self._update(name)

    async def _is_time(self, calm: float, over: asyncio.Event) -> bool:
        await asyncio.sleep(self._chance.uniform(0.5, 1.5) * calm)
        return not over.is_set()

    async def _change(self, kind: str, name: str) -> None:
        self._keys += 1
        job_id = self.jobs[name]
        await self.insist(kind, f"{kind}-{self._keys}", f"/v1/jobs/{job_id}/{kind}", {}, job_id=job_id)

    async def _update(self, name: str) -> None:
        plan, labour = self._changing[name]
        if plan.every is None or self._chance.random() < 0.5:
            plan = replace(plan, every=self._chance.randint(10, 40) * SECOND // 10, seconds=None, minutes=None)
        else:
            plan = replace(plan, every=None, seconds=self._chance.choice((2, 3)), minutes=1)
        self._keys += 1
        self._changing[name], job_id = (plan, labour), self.jobs[name]
        document = _document(plan, labour, self._cluster.witnesses)
        await self.insist(UPDATE, f"update-{self._keys}", f"/v1/jobs/{job_id}", document, job_id=job_id, plan=plan)

    async def _doom_jobs(self, over: asyncio.Event) -> None:
        """Make a job and delete it a while later, whatever it is doing then."""
        while await self._is_time(DOOM_EVERY, over):
            self._doomed += 1
            overlap = self._chance.choice(EVERY_OVERLAP)
            plan = Plan(f"doomed-{self._doomed}", every=self._chance.randint(5, 20) * SECOND // 10, overlap=overlap)
            if not await self.submit(plan, (0.0, self._chance.choice((0.3, 5.0)), 5.0)):
                continue
            await asyncio.sleep(self._chance.uniform(1.0, 6.0))
            await self._delete(plan.name)

    async def _delete(self, name: str) -> None:
        job_id = self.jobs[name]
        await self.insist(DELETE, f"delete-{name}", f"/v1/jobs/{job_id}", None, job_id=job_id)

    async def _run_once_jobs(self) -> None:
        while True:
            await asyncio.sleep(self._chance.uniform(0.5, 1.5) * ONCE_EVERY)
            soon = now() // 1000 * 1000 + self._chance.randint(1000, 5000) * 1000
            at = self._chance.choice((0, soon))
            plan = Plan(name=f"once-{len(self.jobs)}", at=at)
            await self.submit(plan, self._labour(plan))

    async def _run_now(self) -> None:
        while True:
            await asyncio.sleep(self._chance.uniform(0.5, 1.5) * RUN_EVERY)
            self._keys += 1
            key = f"run-{self._keys}"
            name, job_id = self._chance.choice(
                [pair for pair in self.jobs.items() if not self._made[pair[0]].is_special]
            )
            body = {"data": data_of(self._made[name], key)}
            repeats = self._chance.choice((1, 1, 1, 2))  # an answered request may be sent again, too
            for _ in range(repeats):
                await self.insist(RUN, key, f"/v1/jobs/{job_id}/run", body, job_id=job_id)

    async def end(self) -> None:
        """Let nothing more come due, neither of a job whose submit was never answered. The cluster is healed."""
        known = set(self.jobs.values())
        found = await self._cluster.http.get(
            f"{self._cluster.nodes[0].url}/v1/jobs", params={"limit": 1000}, timeout=30
        )
        for job in found.raise_for_status().json()["items"]:
            if job["id"] not in known:
                self.jobs[f"stranger {job['id']}"] = job["id"]
        for name, job_id in self.jobs.items():
            if name in self._made and not self._made[name].has_moments:
                continue  # it follows what still runs
            await self.insist(PAUSE, name, f"/v1/jobs/{job_id}/pause", {}, job_id=job_id)

    async def submit(self, plan: Plan, labour: Labour) -> bool:
        document = _document(plan, labour, self._cluster.witnesses)
        answer = await self.insist(SUBMIT, f"submit-{plan.name}", "/v1/jobs", document, plan=plan)
        if answer is not None:
            self.jobs[plan.name], self._made[plan.name] = answer["jobs"][0]["id"], plan
        return answer is not None

    async def insist(self, kind: str, key: str, path: str, body: Any, **about: Any) -> Any:
        """Send a request until it is answered."""
        for _ in range(PERSISTENT if kind in CHANGES else TRIES):
            node = self._chance.choice(self._cluster.nodes)
            blank = Operation(kind, key, FAIL, now(), 0, **about)
            operation, answer = await self._send(blank, f"{node.url}{path}", body)
            self._journal.add(operation)
            is_busy = kind in CHANGES and operation.status == 409  # somebody else was faster: to be asked again
            if operation.outcome == OK or (400 <= operation.status < 500 and not is_busy):
                return answer
            await asyncio.sleep(0.2)
        return None

    async def _send(self, blank: Operation, url: str, body: Any) -> tuple[Operation, Any]:
        headers = {"Idempotency-Key": blank.key} if blank.kind not in CHANGES else {}
        method = {UPDATE: "PUT", DELETE: "DELETE"}.get(blank.kind, "POST")
        sent = None
        try:
            async with asyncio.timeout(REQUEST * self._cluster.slowness):
                response = await self._cluster.http.request(method, url, json=body, headers=headers)
        except httpx.ConnectError:
            return replace(blank, answered_at=now()), None
        except (httpx.TransportError, TimeoutError):
            return replace(blank, answered_at=now(), outcome=INFO), None
        except asyncio.CancelledError:  # the campaign's time is up: whether this one happened, nobody knows
            self._journal.add(replace(blank, answered_at=now(), outcome=INFO))
            raise
        heard = replace(blank, answered_at=now(), status=response.status_code)
        if blank.kind == DELETE and (response.is_success or response.status_code == GONE):
            return replace(heard, outcome=OK), None  # gone already: an earlier try of this request had its effect
        if response.is_success:
            sent = response.json()
            return _read(heard, sent), sent
        return replace(heard, outcome=INFO if response.status_code >= 500 else FAIL), None


def _read(heard: Operation, answer: Any) -> Operation:
    """Return what an answer tells."""
    if heard.kind in (RUN, ORDER):
        return replace(heard, outcome=OK, run_id=answer["id"])
    if heard.kind == UPDATE:
        return replace(heard, outcome=OK, created_at=moment(answer["triggers"][0]["created_at"]))
    if heard.kind != SUBMIT:
        return replace(heard, outcome=OK)
    job = answer["jobs"][0]
    next_at = job["triggers"][0]["next_at"] if job["triggers"] else None
    return replace(
        heard, outcome=OK, job_id=job["id"], created_at=moment(job["created_at"]), replayed=answer["replayed"],
        next_at=moment(next_at) if next_at else None,
    )  # fmt: skip


def _document(plan: Plan, labour: Labour, directory: Path) -> dict[str, Any]:
    """Return the job document of a plan. The shell gives way to the witness, so that no process stands between it and
    whoever kills it. The witness has a true clock, whatever that of its agent is."""
    habits = "talks" * plan.talks + "stubborn" * plan.stubborn or "none"
    words = [*(str(number) for number in labour), habits]
    program = f"unset LD_PRELOAD; exec {sys.executable} -I -S {witness.__file__} {directory} {' '.join(words)}"
    return document_of(plan, program)


def document_of(plan: Plan, run: str) -> dict[str, Any]:
    """Return the job document of a plan whose one step is `run`; of a workflow, that of each task."""
    document: dict[str, Any] = {
        "name": plan.name, "overlap": plan.overlap, **_work(plan, run),
        "misfire": {"policy": "run_all", "limit": plan.misfire_limit} if plan.misfire == "run_all" else plan.misfire,
    }  # fmt: skip
    if plan.has_moments:
        document["triggers"] = [_trigger(plan)]
    if plan.key:
        document["key"] = plan.key
    if plan.debounce is not None:
        document["debounce"] = {"seconds": plan.debounce, "at_most": plan.debounce_most}
    if plan.after:
        document["after"] = [{"job": plan.after, "on": plan.on}]
    if plan.timeout is not None:
        document["timeout"] = plan.timeout
    if plan.start_deadline is not None:
        document["start_deadline"] = plan.start_deadline
    return {**document, **_sharing(plan)}


def _work(plan: Plan, run: str) -> dict[str, Any]:
    retry = {"attempts": plan.attempts, "backoff": "500ms"}
    if not plan.tasks:
        return {"steps": [{"run": run}], "retry": retry}
    program, _, habits = run.rpartition(" ")
    listed = {task.lists: task.items for task in plan.tasks if task.lists}
    document: dict[str, Any] = {"tasks": {}}
    for task in plan.tasks:
        own = f"lists{listed[task.name]}" if task.name in listed else "echoes" if task.lists else habits
        document["tasks"][task.name] = tasks.document_of(task, {"steps": [{"run": f"{program} {own}"}], "retry": retry})
        if task.lists:
            document["returns"] = f"${{{task.name}.results}}"
    return document


def _sharing(plan: Plan) -> dict[str, Any]:
    """Where its runs wait, and what limits them."""
    document: dict[str, Any] = {"queue": plan.queue} if plan.queue else {}
    if plan.tenant:
        document["share"] = "data.tenant"
    if plan.at_once is not None:
        document["concurrency_limits"] = [{"limit": plan.at_once, "per": plan.at_once_per}]
    if plan.rate is not None:
        document["rate_limits"] = [{"rate": f"{plan.rate}/min", "burst": plan.burst, "per": plan.rate_per}]
    return document


def data_of(plan: Plan, key: str) -> dict[str, str]:
    """Return what a run by hand is given."""
    return {"key": key, **({"tenant": plan.tenant} if plan.tenant else {})}


def _trigger(plan: Plan) -> dict[str, Any]:
    data = {"data": {"tenant": plan.tenant}} if plan.tenant else {}
    return {**_schedule(plan), **data}


def _schedule(plan: Plan) -> dict[str, Any]:
    if plan.at is not None:
        return {"at": datetime.datetime.fromtimestamp(plan.at / SECOND, datetime.UTC).isoformat()}
    if plan.every is not None:
        return {"every": f"{plan.every // 1000}ms"}
    return {"cron": f"*/{plan.seconds} */{plan.minutes} * * * *", "timezone": plan.timezone}
