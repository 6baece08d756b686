"""Agents: those that register by HTTP (job store, execution coordinator), and this node's own (worker agent).

The lists show both, because jobs are run by both.
"""

from __future__ import annotations

from horae.contracts.cluster.envelope import ASSIGNMENT, JOB, Envelope, Rows
from horae.contracts.cluster.reading import MAX_HOST, Sent, path_id, path_worker, query, read_json, read_sent
from horae.contracts.cluster.scheduling import MANY, read_address
from horae.contracts.cluster.vocabulary import (
    WORKER_STATUSES,
    capacity_of,
    checkpoint_of,
    member_word,
    show_assignment,
    show_elapsed,
    show_worker,
    stamp,
    worker_of,
)
from horae.core import model
from horae.core.definitions import Sort
from horae.core.members import Member, is_external, is_for, plain_name
from horae.core.model import Attempt, Json, Loan, Moment, Node, OperatorWish, Run, RunFilter, State
from horae.core.roles import Permission
from horae.errors import NotFound
from horae.service import Services
from horae.service.external.dispatching import tags
from horae.service.external.transitions import SEGMENTS_CONTRACT, Transitions
from horae.web import http

LISTED = 1000  # running jobs in one answer
MOST_EVENTS = 1000

_STATUS = query("status", f"One of {', '.join(WORKER_STATUSES)}.")


class Agents:
    def __init__(self, services: Services, envelope: Envelope, transitions: Transitions) -> None:
        self._services = services
        self._envelope = envelope
        self._transitions = transitions

    def operations(self, rows: Rows) -> list[http.Operation]:
        row, stored, executing = rows.row, "/api/workers", "/api/execution-coordinator"
        one, own = f"{executing}/workers/{{worker}}", "/api/worker-agent"
        load, capacity = query("currentLoad", "Jobs it runs now."), query("capacity", "Jobs it can run at once.")
        host, port = query("host", "Where it listens."), query("port", "And on which port.")
        return [
            row("POST", stored, self.store_worker, "Register an agent with its segment", needs=Permission.WORK),
            row("GET", stored, self.workers, "List agents", needs=Permission.READ),
            row("PUT", f"{stored}/{{worker}}/status", self.set_status, "Change the status of an agent", _STATUS,
                needs=Permission.CLUSTER),
            row("POST", f"{stored}/{{worker}}/heartbeat", self.beat, "An agent's sign of life", load, capacity,
                needs=Permission.WORK),
            row("POST", one, self.register, "Register an agent", capacity, host, port, needs=Permission.WORK),
            row("GET", one, self.get_worker, "Read an agent", needs=Permission.READ),
            row("DELETE", one, self.leave, "Let an agent leave", needs=Permission.WORK),
            row("POST", f"{one}/heartbeat", self.beat, "An agent's sign of life", load, capacity, _STATUS,
                needs=Permission.WORK),
            row("GET", f"{executing}/workers", self.workers, "List agents", needs=Permission.READ),
            row("GET", f"{executing}/assignments", self.assignments, "List who runs what",
                query("workerId", "What this agent runs."), needs=Permission.READ),
            row("GET", f"{executing}/assignments/{{job_id}}", self.assignment, "Say who runs a job",
                missing=ASSIGNMENT, needs=Permission.READ),
            row("GET", f"{executing}/health", self.health, "How the agents are", needs=Permission.READ),
            row("GET", f"{executing}/reassignments", self.reassignments, "List jobs that lost their agent",
                query("limit", "How many at most, 20 unless said."), needs=Permission.READ),
            row("POST", f"{own}/dispatch", self.dispatch, "Let an agent run a due job, registered or our own",
                query("workerId", "The agent; this node's own unless said."), missing=JOB, scope="agent",
                errors=(404, 409, 503), needs=Permission.WORK),
            row("GET", f"{own}/status", self.status, "How this node's agent is", needs=Permission.READ),
            row("GET", f"{own}/jobs/running", self.running, "List what this node's agent runs", needs=Permission.READ),
        ]  # fmt: skip

    # ── members ──

    async def store_worker(self, request: http.Request) -> http.Answer:
        """The job store's way; the segment is kept and given back, and means nothing else."""
        sent = await read_json(request)
        name = sent.worker("workerId")
        segment = sent.whole("segment", low=0, high=MANY, needed="Segment is required")
        capacity = sent.whole("capacity", low=1, high=MANY) or 0
        labels = (f"segment={segment}",)
        org = http.principal(request).org
        await self._services.external_members.join("agent", name, slots=capacity, labels=labels, org=org)
        return await self._shown(request, name)

    async def register(self, request: http.Request) -> http.Answer:
        sent = await read_sent(request)
        address = read_address(sent)
        capacity = sent.whole("capacity", low=1, high=MANY) or 0
        name = path_worker(request)
        labels = tags(SEGMENTS_CONTRACT, is_trusted=not http.principal(request).is_local) if address else ()
        org = http.principal(request).org
        await self._services.external_members.join(
            "agent", name, address=address, slots=capacity, labels=labels, org=org
        )
        return await self._shown(request, name)

    async def beat(self, request: http.Request) -> http.Answer:
        """One that was given up is back with it."""
        sent, name, org = await read_sent(request), path_worker(request), http.principal(request).org
        load = sent.whole("currentLoad", low=0, high=MANY)
        capacity = sent.whole("capacity", low=1, high=MANY)
        word = sent.word("status", WORKER_STATUSES)
        beats = self._services.local_node.metrics.heartbeats
        try:
            await self._services.external_members.beat("agent", name, busy=load, slots=capacity, org=org)
        except NotFound:
            beats["agent", "unknown"] += 1
            raise
        beats["agent", "ok"] += 1
        if word is not None:
            await self._become(name, word, org)
        return self._envelope.give("Heartbeat recorded")

    async def set_status(self, request: http.Request) -> http.Answer:
        word = Sent(request.args).word("status", WORKER_STATUSES, needed="status is required") or ""
        await self._become(path_worker(request), word, http.principal(request).org)
        return self._envelope.give("Worker status updated")

    async def _become(self, name: str, word: str, org: int) -> None:
        members = self._services.external_members
        if word in ("OFFLINE", "UNHEALTHY"):
            await members.leave("agent", name, in_peace=word == "OFFLINE", org=org)
        else:
            node = await members.beat("agent", name, org=org)
            await self._services.nodes.want(node.name, OperatorWish.LIVE if word == "ONLINE" else OperatorWish.CORDONED)

    async def leave(self, request: http.Request) -> http.Answer:
        name, org = path_worker(request), http.principal(request).org
        await self._services.external_members.leave("agent", name, org=org)
        return self._envelope.give("Worker deregistered")

    async def workers(self, request: http.Request) -> http.Answer:
        return self._envelope.give([show_worker(each) for each in await self._agents(request)])

    async def get_worker(self, request: http.Request) -> http.Answer:
        return await self._shown(request, path_worker(request))

    async def _agents(self, request: http.Request) -> list[Member]:
        """Horae's own, and those that registered for the organisation of whoever asks."""
        found = await self._services.external_members.picture.members("agent")
        return [each for each in found if is_for(each.node, http.principal(request).org)]

    async def _shown(self, request: http.Request, name: str) -> http.Answer:
        found = next((each for each in await self._agents(request) if each.name == name), None)
        if found is None:
            raise NotFound(f"there is no agent {name}", hint="register it first")
        return self._envelope.give(show_worker(found))

    # ── who runs what ──

    async def assignment(self, request: http.Request) -> http.Answer:
        job = await self._services.jobs.get(path_id(request), org=http.principal(request).org)
        run = (await self._transitions.standing(job)).latest
        if run is None or run.state is not State.RUNNING:
            raise NotFound(f"nobody runs job {job.id} now")
        return self._envelope.give(show_assignment(run, await self._transitions.loan(run)))

    async def assignments(self, request: http.Request) -> http.Answer:
        worker = Sent(request.args).text("workerId")
        runs = [run for run, _ in await self._running(http.principal(request).org)]
        loans = {loan.run_id: loan for loan in await self._services.lending.loans()}
        shown = [show_assignment(run, loans.get(run.id)) for run in runs if worker in (None, run.node, worker_of(run))]
        return self._envelope.give(shown)

    async def _running(self, org: int) -> list[tuple[Run, str]]:
        """Runs under way, oldest first, each with the name of its job."""
        where = RunFilter(states=(State.RUNNING,), org=org)
        return (await self._services.jobs.search_runs(where, [Sort("id")], 0, LISTED)).items

    async def health(self, request: http.Request) -> http.Answer:
        shown = [show_worker(node) for node in await self._agents(request)]
        online = [worker for worker in shown if worker["status"] in ("ONLINE", "UNASSIGNED")]
        return self._envelope.give(
            {
                "totalWorkers": len(shown),
                "onlineWorkers": len(online),
                "unhealthyWorkers": sum(worker["status"] == "UNHEALTHY" for worker in shown),
                "totalCapacity": sum(worker["capacity"] for worker in online),
                "usedCapacity": sum(worker["currentLoad"] for worker in online),
                "reassignmentEvents": len(await self._lost(request, MOST_EVENTS)),
            }
        )

    async def reassignments(self, request: http.Request) -> http.Answer:
        """Attempts that were lost with their agent, newest first, and who has the run now."""
        limit = Sent(request.args).whole("limit", low=1, high=MOST_EVENTS) or 20
        lost = await self._lost(request, limit)
        loans = {loan.run_id: loan for loan in await self._services.lending.loans([run.id for _, run in lost])}
        return self._envelope.give([_show_event(*each, loans.get(each[1].id)) for each in lost])

    async def _lost(self, request: http.Request, limit: int) -> list[tuple[Attempt, Run]]:
        found = await self._services.jobs.list_lost(limit)
        jobs = await self._services.jobs.get_many(sorted({run.job_id for _, run in found}))
        ours = {job.id for job in jobs if job.org == http.principal(request).org}
        return [(attempt, run) for attempt, run in found if run.job_id in ours]

    # ── this node as a worker agent ──

    async def dispatch(self, request: http.Request) -> http.Answer:
        """Runs the job as it was submitted; what else the body says about it is not needed. An agent that registered is
        called, if it is asked for by name or by its host and port."""
        counts = self._services.local_node.metrics.dispatches
        sent = await read_json(request)
        job_id = sent.whole("jobId", low=1, high=model.LARGEST_ID, needed="jobId is required") or 0
        _check_dispatch(sent)
        try:
            job = await self._services.jobs.get(job_id, org=http.principal(request).org)
            await self._transitions.dispatch(job, await self._asked(request, Sent({**request.args, **sent.values})))
        except Exception:
            counts["refused"] += 1
            raise
        counts["accepted"] += 1
        return self._envelope.give("Job execution triggered")

    async def _asked(self, request: http.Request, sent: Sent) -> Node | None:
        """Return the registered agent that a dispatch is for; None for Horae's own."""
        name = sent.text("workerId", "agentId")
        host = sent.text("workerHost", "host", longest=MAX_HOST)
        port = sent.whole("workerPort", "port", low=1, high=65535)
        agents = await self._agents(request)
        if name is not None:
            found = [each.node for each in agents if each.name == name]
        elif host is not None and port is not None:
            found = [each.node for each in agents if each.node.address == f"{host}:{port}"]
        else:
            return None
        if not found:
            raise NotFound(
                f"there is no agent {name or f'{host}:{port}'}", code="E_NO_WORKER", hint="register it first"
            )
        outside = [node for node in found if is_external(node)]
        return outside[0] if outside else None

    async def status(self, request: http.Request) -> http.Answer:
        local_node = self._services.local_node
        finished = local_node.metrics.finished
        found = next((each for each in await self._agents(request) if each.name == local_node.node), None)
        load, capacity = (found.load, capacity_of(found.node)) if found else (0, 0)
        failed = finished["failed"] + finished["timed_out"]
        return self._envelope.give(
            {
                "workerId": local_node.node,
                "status": member_word(found) if found else "OFFLINE",
                "capacity": capacity,
                "currentLoad": load,
                "availableSlots": max(0, capacity - load),
                "totalJobsExecuted": finished["succeeded"] + failed,
                "successfulJobs": finished["succeeded"],
                "failedJobs": failed,
            }
        )

    async def running(self, request: http.Request) -> http.Answer:
        now, node = await self._services.jobs.now(), self._services.local_node.node
        runs = await self._running(http.principal(request).org)
        return self._envelope.give([_show_running(run, name, now) for run, name in runs if run.node == node])


def _check_dispatch(sent: Sent) -> None:
    """The contract's fields, under both of their names."""
    sent.text("jobName")
    sent.instant("executionTime", "scheduledTime")
    sent.whole("userId", low=-(2**63), high=2**63 - 1)
    sent.whole("maxRetries", low=0, high=MANY)
    sent.whole("retryCount", "currentRetryCount", low=0, high=MANY)


def _show_running(run: Run, name: str, now: Moment) -> Json:
    started = run.started_at if run.started_at is not None else now
    return {
        "jobId": run.job_id,
        "jobName": name,
        "startTime": stamp(started),
        "elapsedTime": show_elapsed(now - started),
    }


def _show_event(attempt: Attempt, run: Run, loan: Loan | None) -> Json:
    is_held = run.attempt > attempt.attempt
    return {
        "jobId": run.job_id,
        "fromWorkerId": None if attempt.node is None else plain_name(attempt.node),
        "toWorkerId": worker_of(run) if is_held else None,
        "reason": "Worker failure detected",
        "checkpointData": checkpoint_of(loan),
        "success": is_held,
        "errorMessage": None if is_held else "No healthy worker available",
        "createdAt": stamp(attempt.finished_at),
    }
