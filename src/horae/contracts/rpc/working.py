"""The calls of workers of their own: they beat, take executions, write their output and report.

What must stay true: an execution is lent to one worker at a time, and who does not hold it cannot prolong, end or write
to it; a heartbeat prolongs what the worker says that it holds, or all of its own where it does not say; a report that
is repeated after a lost answer does no harm.
"""

from __future__ import annotations

from contextlib import suppress

from horae.contracts.rpc import reading, rendering
from horae.contracts.rpc.caller import Caller, Finder
from horae.contracts.rpc.workers import LEASE
from horae.core.fields import Fields
from horae.core.members import node_name, org_label, org_of, plain_name
from horae.core.model import Json, Loan, Node, Phase, Run, State
from horae.core.runs.stages import RPC
from horae.errors import Conflict, Invalid, NotFound
from horae.service import Services
from horae.service.external.dispatching import tags

MOST_TAKEN = 100  # executions of one batch
MAX_WRITTEN = 256 * 1024  # characters of output in one call
REPORTS = {"completed": State.SUCCEEDED, "failed": State.FAILED, "cancelled": State.CANCELLED}
RUNNING, GIVEN_BACK = rendering.WORDS[State.RUNNING], rendering.WORDS[State.QUEUED]


class WorkerCalls:
    def __init__(self, services: Services) -> None:
        self._services = services
        self._lending = services.lending
        self._find = Finder(services.jobs)

    # ── signs of life ──

    async def heartbeat(self, fields: Fields, caller: Caller) -> Json:
        """A worker's sign of life, which prolongs what it holds; without a worker, that of this node."""
        worker, address, held = reading.worker_id(fields), reading.address(fields), reading.held(fields)
        load = fields.number("load", None, 0, 1_000_000, whole=True)
        capacity = fields.number("capacity", None, 1, 1_000_000, whole=True)
        fields.problems.raise_any()
        if worker is None:
            node = self._services.local_node
            return {"status": "ok", "worker_id": node.node, "load": node.busy(), "capacity": node.slots}
        org = caller.who.org
        await self._beat(worker, address, load, capacity, tags(RPC, is_trusted=not caller.who.is_local), org)
        loans = await self._held_by(worker, org)
        known = [loan for loan in loans if held is None or loan.run_id in held]
        stop = [loan.run_id for loan in known if await self._renewed(loan)]
        lost = sorted((held or frozenset()) - {loan.run_id for loan in loans})
        return {"status": "ok", "worker_id": worker, "cancel": stop, "lost": lost}

    async def _beat(
        self, worker: str, address: str | None, load: int | None, capacity: int | None, labels: tuple[str, ...],
        org: int,
    ) -> None:  # fmt: skip
        members = self._services.external_members
        known: Node | None = None
        with suppress(NotFound):
            known = await members.get("agent", worker, org=org)
        if known is None or (address is not None and (known.address, _said(known)) != (address, labels)):
            await members.join("agent", worker, address=address or "", slots=capacity or 0, labels=labels, org=org)
        await members.beat("agent", worker, busy=load, slots=capacity, org=org)

    async def _held_by(self, worker: str, org: int) -> list[Loan]:
        """Return what a worker has: another organisation may have one of the same name that never registered."""
        loans = [loan for loan in await self._lending.loans() if loan.worker == _holder(worker)]
        jobs = await self._services.jobs.get_many(sorted({loan.job_id for loan in loans})) if loans else ()
        ours = {job.id for job in jobs if job.org == org}
        return [loan for loan in loans if loan.job_id in ours]

    async def _renewed(self, loan: Loan) -> bool:
        """Prolong a loan; return whether its worker shall stop."""
        with suppress(Conflict, NotFound):  # it has ended meanwhile
            return await self._lending.report(loan.run_id, loan.attempt, worker=loan.worker, seconds=LEASE)
        return False

    # ── executions ──

    async def take_due_jobs(self, fields: Fields, caller: Caller) -> list[Json]:
        """Return what waits and was made by submit_job, the most urgent first, on loan from now on."""
        worker, limit = reading.worker_id(fields), fields.number("limit", 1, 1, MOST_TAKEN, whole=True)
        fields.problems.raise_any()
        assert worker is not None, "its absence was noted"
        lent = await self._lending.lend_due(org=caller.who.org, worker=_holder(worker), seconds=LEASE, limit=limit)
        return [{**rendering.order(each.job, each.run), "lease_seconds": LEASE} for each in lent]

    async def status_update(self, fields: Fields, caller: Caller) -> Json:
        """`running` takes an execution that waits, or prolongs one that is held; `scheduled` gives it back; the other
        words end it."""
        execution_id, worker = reading.identity(fields, "execution_id"), reading.worker_id(fields)
        status, message = (fields.text("status") or "").lower(), fields.text("message", 4096) or ""
        progress, attempt = fields.number("progress", None, 0, 100), reading.attempt(fields)
        exit_code = fields.number("exit_code", None, -(2**31), 2**31 - 1, whole=True)
        if "status" in fields.values and status not in (RUNNING, GIVEN_BACK, *REPORTS):
            fields.fault("status", "E_ENUM", f"must be one of {RUNNING}, {GIVEN_BACK}, {', '.join(REPORTS)}")
        fields.problems.raise_any()
        run = await self._find.run(execution_id, caller)
        if status in REPORTS and await self._was_reported(run, worker, attempt, REPORTS[status]):
            return {"status": "ok", "cancel": False}
        loan = await self._loan(run, worker, attempt)
        if status == RUNNING:
            return {"status": "ok", "cancel": await self._running(run, loan, worker, progress)}
        if status == GIVEN_BACK:
            await self._give_back(run, loan)
        else:
            await self._lending.finish(
                run.id, loan.attempt if loan else None, REPORTS[status], message=message, exit_code=exit_code,
                output=await self._services.outside_logs.find(loan) if loan else None,
            )  # fmt: skip
        return {"status": "ok", "cancel": False}

    async def _was_reported(self, run: Run, worker: str | None, attempt: int | None, state: State) -> bool:
        """Return whether this worker has said the same before, and the answer was lost."""
        if worker is None or run.state is State.RUNNING:
            return False
        if run.state.is_terminal and attempt in (None, run.attempt):
            return run.node == _holder(worker) and run.state is state
        earlier = await self._services.jobs.list_attempts(run.id) if attempt is not None else ()
        return any((each.attempt, each.node, each.state) == (attempt, _holder(worker), state) for each in earlier)

    async def _loan(self, run: Run, worker: str | None, attempt: int | None = None) -> Loan | None:
        found = await self._lending.loans([run.id])
        if found and worker is not None and found[0].worker != _holder(worker):
            raise Conflict(f"execution {run.id} is held by another worker")
        if found and attempt not in (None, found[0].attempt):
            raise Conflict(f"execution {run.id} is at attempt {found[0].attempt} by now, not at {attempt}")
        if not found and attempt not in (None, run.attempt + 1) and run.state is State.QUEUED:
            raise Conflict(f"attempt {attempt} of execution {run.id} is over: it waits for its next one")
        return found[0] if found else None

    async def _running(self, run: Run, loan: Loan | None, worker: str | None, progress: float | None) -> bool:
        if loan is None:
            if worker is None:
                raise Invalid("who takes an execution must say who it is", code="E_REQUIRED", path="worker_id")
            run = await self._lending.lend_run(run.id, worker=_holder(worker), seconds=LEASE)
        attempt, holder = (loan.attempt, loan.worker) if loan is not None else (run.attempt, _holder(worker or ""))
        said = None if progress is None else {"progress": progress}
        return await self._lending.report(
            run.id, attempt, worker=holder, seconds=LEASE, phase=Phase.RUNNING, progress=said
        )

    async def _give_back(self, run: Run, loan: Loan | None) -> None:
        """One that was begun counts as lost: somebody may have seen what it did."""
        attempt = loan.attempt if loan is not None else None
        if run.phase is Phase.RUNNING and run.state is State.RUNNING:
            await self._lending.give_up(run.id, attempt, f"given back by its worker {plain_name(run.node or '')}")
        else:
            await self._lending.give_back(run.id, attempt)

    # ── output ──

    async def write_log(self, fields: Fields, caller: Caller) -> Json:
        """Return the next piece of the output of an execution that the worker holds; answers where the one after
        begins."""
        execution_id, worker = reading.identity(fields, "execution_id"), reading.worker_id(fields)
        offset, attempt = fields.number("offset", 0, 0, reading.LARGEST_ID, whole=True), reading.attempt(fields)
        text = reading.output(fields, MAX_WRITTEN)
        fields.problems.raise_any()
        run = await self._find.run(execution_id, caller)
        loan = await self._loan(run, worker, attempt)
        if loan is None:
            raise Conflict(f"execution {run.id} is not held by this worker: it is {rendering.WORDS[run.state]}")
        size = await self._services.outside_logs.append(loan, offset, text.encode())
        return {"next_offset": size}


def _said(node: Node) -> tuple[str, ...]:
    """Return the labels with which a worker registered."""
    return tuple(label for label in node.labels if label != org_label(org_of(node)))


def _holder(worker: str) -> str:
    """Under which name a worker holds what it has."""
    return node_name("agent", worker)
