"""Runs by request: one, or very many at once.

What a request needs to know of its job is remembered, and goes to the store with the version at which it was read. The
store carries an order out only if the job still has that version: so the usual request is one statement, and what is
remembered may be as old as it likes.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

import msgspec

from horae.core.definitions import Group, Idempotency, MadeAlike, Receipt
from horae.core.model import DEFAULT_ORG, OWNER_SHARE, SECOND, Job, Json, Moment, Overlap, Policy, Reason, Run, record
from horae.core.policy.breaker import paused_because
from horae.core.policy.debounce import calm_of, why_waiting
from horae.core.policy.demands import own_data, reads_data
from horae.core.policy.queues import user_of
from horae.core.runs.ledger import new_run
from horae.core.runs.orders import Order
from horae.core.time.moments import format_moment
from horae.core.work.kinds import BY_SERVERS
from horae.errors import Conflict, Error, NotFound, Unavailable
from horae.ports import deeds
from horae.ports.store.definitions import Definitions
from horae.ports.store.runs import Runs
from horae.ports.transport import Queue
from horae.service.batching import Coalescer, read_ahead
from horae.service.jobs.admission import Admission
from horae.service.jobs.changes import TRIES, refuse_mismatch
from horae.service.jobs.data import DataCheck, refusal
from horae.service.policy.placing import Candidate, Placing

BATCH = 1000  # orders in one transaction
REMEMBERED = 10_000  # jobs of which we know what their runs are like


class OrderStore(Definitions, Runs, Protocol):
    """Jobs, and the runs that are asked for."""


@dataclass(frozen=True, slots=True)
class Asker:
    """Who asks: keys of jobs are those of this owner."""

    owner: str = "local"
    org: int = DEFAULT_ORG
    is_bound: bool = False  # what belongs to other organisations does not exist


ANYBODY = Asker()


@record
class RunRequest:
    """A run that somebody wants."""

    job: int | str  # its id, or its key
    data: Json | None = None
    node: str | None = None  # the only one that may run it
    priority: int | None = None  # None: that of the job
    run_at: Moment | None = None  # None: now
    idempotency: Idempotency | None = None
    trigger_id: int | None = None  # that somebody outside has fired
    is_alone: bool = False  # it is one of its own, whatever else comes: it is not debounced
    resumes: int | None = None  # a run of the workflow of which it takes over what succeeded


class Recipe(NamedTuple):
    """What has to be known of a job to run it."""

    job_id: int
    org: int
    version: int
    kind: str
    policy: Policy
    handler: str | None  # of Python code, whose parameters may say what data it takes
    owner: str
    annotations: Json  # for whom a contract made it
    user: str  # with whom its runs share (core.policy.queues.user_of)
    own_data: str | None  # of the job, JSON text, where its policy looks at data
    followed: bool  # others come after it


_encode = msgspec.json.Encoder(order="deterministic").encode


class OrderBatch(NamedTuple):
    """What goes to the store together."""

    requests: Sequence[RunRequest | Error]
    promise: Idempotency | None = None  # for all of them, where none has a key of its own choice


class AlikeBatch(NamedTuple):
    """Requests that go to the store together, and differ in their data alone."""

    request: RunRequest  # without data, and without a key of its own
    data: Sequence[str | None]  # JSON text, as it is kept
    promise: Idempotency | None  # for all of them
    read: Callable[[], OrderBatch]  # the same, one by one


class RunsAlike(NamedTuple):
    """What an AlikeBatch has come to, where nothing stood in its way."""

    made: MadeAlike
    data: Sequence[str | None]  # of each run


Answers = Sequence[Run | Error] | RunsAlike  # to one batch


class Orders:
    def __init__(
        self,
        store: OrderStore,
        queue: Queue,
        data: DataCheck,
        admission: Admission,
        placing: Placing,
    ) -> None:
        self._store = store
        self._placing = placing
        self._admission = admission
        self._data = data
        self._queue = queue
        self._recipes: dict[Hashable, Recipe] = {}
        self._waiting = Coalescer(self._enqueue_waiting, limit=BATCH)
        self.start_at_once: Callable[[Order], Awaitable[Receipt | None]] | None = None  # by an agent of this process
        self.note_made: Callable[[Sequence[Run]], None] | None = None  # is told of runs that were made

    async def place(self, request: RunRequest, asker: Asker = ANYBODY) -> Run:
        """Make one run; requests that wait together are one batch. As _place, without the books of many."""
        for _ in range(TRIES):
            answer = await self._try_one(request, asker)
            if isinstance(answer, Error):
                raise answer
            if answer is not None:
                return answer
        raise _contended(request)

    async def _try_one(self, request: RunRequest, asker: Asker) -> Run | Error | None:
        """As _try."""
        name = _name(request.job, asker)
        known = self._recipes.get(name)
        if known is None:
            recipe = (await self._read((request.job,), asker))[request.job]
        else:
            recipe = _visible(request.job, known, asker)
        if isinstance(recipe, Error):
            return recipe
        if recipe.handler is not None and (wrong := await self._find_wrong({0: request}, {request.job: recipe})):
            return wrong[0]
        if not await self._admission.is_open(recipe) and (refused := await self._admission.admit({0: recipe})):
            return refused[0]
        order = _order(recipe, request, request.idempotency)
        await self._placing.place([_candidate(recipe, order)])
        if order.run.barred:
            return _barred(recipe)
        _name_subject([recipe])
        receipt = await self._waiting.add((recipe, order))
        if receipt.stale or not (receipt.ids or receipt.mismatch):
            self._recipes.pop(name, None)
        if receipt.stale:
            return None
        return _answer(recipe, receipt, await self._load([receipt]) if receipt.replayed else {})

    async def place_many(self, batches: AsyncIterator[OrderBatch], asker: Asker) -> list[Run | Error]:
        """As place_batches, of requests each for itself: for each its run, or why there is none."""
        answers: list[Run | Error] = []
        async for some in self.place_batches(batches, asker):
            assert not isinstance(some, RunsAlike)
            answers += some
        return answers

    async def place_batch(self, batch: OrderBatch | AlikeBatch, asker: Asker) -> Answers:
        """As place_batches, of one alone: whatever the store fails with is raised, for nothing was made."""
        deeds.note(is_bulk=True)
        return await self._place_batch(batch, asker)

    async def place_batches(
        self, batches: AsyncIterator[OrderBatch | AlikeBatch], asker: Asker
    ) -> AsyncGenerator[Answers, None]:
        """Make runs, a batch at a time, and yield what became of each batch; what is refused already stays so. Where
        the store fails on the way, what was not made says so; where it fails at once, nothing was made."""
        deeds.note(is_bulk=True)
        is_first, failed = True, None
        async with aclosing(read_ahead(batches)) as coming:
            async for batch in coming:
                if failed is None:
                    try:
                        answers = await self._place_batch(batch, asker)
                    except Unavailable as error:
                        if is_first:
                            raise
                        failed = error
                if failed is not None:
                    requests = (batch.read() if isinstance(batch, AlikeBatch) else batch).requests
                    answers = [each if isinstance(each, Error) else failed for each in requests]
                yield answers
                is_first = False

    async def _place_batch(self, batch: OrderBatch | AlikeBatch, asker: Asker) -> Answers:
        if isinstance(batch, AlikeBatch):
            made = await self._place_alike(batch, asker)
            if made is not None:
                return made
            batch = batch.read()
        requests = {number: each for number, each in enumerate(batch.requests) if isinstance(each, RunRequest)}
        made_of = await self._place(requests, asker, batch.promise) if requests else {}
        return [each if isinstance(each, Error) else made_of[number] for number, each in enumerate(batch.requests)]

    async def _place_alike(self, batch: AlikeBatch, asker: Asker) -> RunsAlike | None:
        """Make runs that differ in their data alone, where nobody has to look at that; None: nothing was made."""
        recipe = (await self._find((batch.request.job,), asker))[batch.request.job]
        if isinstance(recipe, Error) or not _is_blind(recipe.policy):
            return None
        if recipe.handler is not None and await self._data.load_schemas((recipe.handler,)):
            return None
        if not await self._admission.is_open(recipe):
            return None
        order = _order(recipe, batch.request, None)
        await self._placing.place([_candidate(recipe, order)])
        if order.run.barred:
            return None  # one by one they are told why
        _name_subject([recipe])
        made = await self._store.enqueue_alike(order, batch.data, batch.promise)
        if made is None:
            return None
        self._tell([recipe], [Receipt([made.ids[0]], run=made.run)])
        return RunsAlike(made, batch.data)

    async def find_job(self, name: int | str, asker: Asker) -> int:
        """Return the id of the job that is named by its id or its key; paused and deleted ones have runs too."""
        if isinstance(name, int):
            jobs = await self._store.load_jobs([name])
        else:
            jobs = await self._store.find_keys(asker.org, asker.owner, [name])
        if not jobs or (asker.is_bound and jobs[0].org != asker.org):
            raise _missing(name)
        return jobs[0].id

    async def _enqueue_waiting(self, waiting: list[tuple[Recipe, Order]]) -> Sequence[Receipt]:
        """What waits together, each for itself; whoever has something to do is told once."""
        receipts = await self._enqueue_all([order for _, order in waiting])
        self._tell([recipe for recipe, _ in waiting], receipts)
        return receipts

    async def _enqueue_all(self, orders: list[Order]) -> Sequence[Receipt]:
        """One that comes alone may start as it is made."""
        if self.start_at_once is not None and len(orders) == 1:
            receipt = await self.start_at_once(orders[0])
            if receipt is not None:
                return [receipt]
        return await self._store.enqueue(orders)

    async def _place(
        self,
        requests: Mapping[int, RunRequest],
        asker: Asker,
        promise: Idempotency | None = None,
    ) -> dict[int, Run | Error]:
        """Jobs that were changed since we looked are looked at again, then under the keys of the orders themselves."""
        answers: dict[int, Run | Error] = {}
        left = dict(requests)
        for _ in range(TRIES):
            answers |= await self._try(left, asker, promise)
            left = {number: request for number, request in left.items() if number not in answers}
            if not left:
                break
            promise = None
        return answers | {number: _contended(request) for number, request in left.items()}

    async def _try(
        self, requests: Mapping[int, RunRequest], asker: Asker, promise: Idempotency | None
    ) -> dict[int, Run | Error]:
        """Return an answer to each request, but those whose job is no longer as we knew it. One `promise` for all of
        them saves a row for each."""
        recipes = await self._find({request.job for request in requests.values()}, asker)
        answers: dict[int, Run | Error] = dict(await self._find_wrong(requests, recipes))
        known = {number: r for number, it in requests.items() if isinstance(r := recipes[it.job], Recipe)}
        answers |= await self._admission.admit({number: r for number, r in known.items() if number not in answers})
        orders: dict[int, tuple[Recipe, Order]] = {}
        for number, request in requests.items():
            recipe = recipes[request.job]
            if isinstance(recipe, Error):
                answers[number] = recipe
            elif number not in answers:
                orders[number] = recipe, _order(recipe, request, None if promise else request.idempotency)
        if not orders:
            return answers
        await self._placing.place([_candidate(recipe, order) for recipe, order in orders.values()])
        answers |= {number: _barred(recipe) for number, (recipe, order) in orders.items() if order.run.barred}
        orders = {number: order for number, order in orders.items() if number not in answers}
        if not orders:
            return answers
        group = None if promise is None else Group(promise, list(orders))
        _name_subject([recipe for recipe, _ in orders.values()])
        receipts = await self._store.enqueue([order for _, order in orders.values()], group)
        earlier = await self._load([receipt for receipt in receipts if receipt.replayed])
        for (number, (recipe, _)), receipt in zip(orders.items(), receipts, strict=True):
            if receipt.stale or not (receipt.ids or receipt.mismatch):
                self._recipes.pop(_name(requests[number].job, asker), None)
            if not receipt.stale:
                answers[number] = _answer(recipe, receipt, earlier)
        self._tell([recipe for recipe, _ in orders.values()], receipts)
        return answers

    async def _find_wrong(
        self, requests: Mapping[int, RunRequest], recipes: Mapping[int | str, Recipe | Error]
    ) -> dict[int, Error]:
        """Return why handlers would refuse their data, as far as they say what they take: most say nothing."""
        handlers = {r.handler for r in recipes.values() if isinstance(r, Recipe) and r.handler is not None}
        schemas = await self._data.load_schemas(handlers)
        if not schemas:
            return {}
        asked = {
            number: (recipe, request.data)
            for number, request in requests.items()
            if isinstance(recipe := recipes[request.job], Recipe) and recipe.handler in schemas
        }
        without = sorted({recipe.job_id for recipe, data in asked.values() if data is None})
        own = {job.id: job.spec.get("data", {}) for job in await self._store.load_jobs(without)} if without else {}
        wrong = {
            number: refusal(schemas[recipe.handler or ""], own.get(recipe.job_id, {}) if data is None else data)
            for number, (recipe, data) in asked.items()
        }
        return {number: error for number, error in wrong.items() if error is not None}

    async def _load(self, replayed: Sequence[Receipt]) -> dict[int, Run]:
        """Return the runs that earlier requests with the same keys have made."""
        return {run.id: run for run in await self._store.load_runs([r.ids[0] for r in replayed])} if replayed else {}

    def _tell(self, recipes: Sequence[Recipe], receipts: Sequence[Receipt]) -> None:
        """Wake whoever has something to do now. Repeats too: whoever came first may not have lived to say it."""
        made = [receipt.run for receipt in receipts if receipt.run is not None]
        if self.note_made is not None and made:
            self.note_made(made)
        if any(run.reason == Reason.LIMIT for run in made):
            self._queue.announce("limits")
        if any(receipt.ids and not receipt.is_started for receipt in receipts):
            self._queue.announce("runs")
        if any(run.reason in (Reason.LATER, Reason.DEBOUNCE) for run in made):
            self._queue.announce("waiting")
        if any(recipe.policy.overlap is Overlap.REPLACE for recipe in recipes):
            self._queue.announce("cancel")
        if any(r.kind in BY_SERVERS or r.followed or r.policy.after for r in recipes):
            self._queue.announce("endings")

    # ── what is known of jobs ──
    async def _find(self, jobs: Iterable[int | str], asker: Asker) -> dict[int | str, Recipe | Error]:
        found: dict[int | str, Recipe | Error] = {}
        unknown = []
        for job in jobs:
            recipe = self._recipes.get(_name(job, asker))
            if recipe is None:
                unknown.append(job)
            else:
                found[job] = _visible(job, recipe, asker)
        return found | await self._read(unknown, asker) if unknown else found

    async def _read(self, names: Sequence[int | str], asker: Asker) -> dict[int | str, Recipe | Error]:
        ids, keys = [name for name in names if isinstance(name, int)], [name for name in names if isinstance(name, str)]
        jobs: dict[int | str, Job] = {job.id: job for job in await self._store.load_jobs(ids)} if ids else {}
        if keys:
            jobs |= {job.key or "": job for job in await self._store.find_keys(asker.org, asker.owner, keys)}
        return {name: self._remember(name, jobs.get(name), asker) for name in names}

    def _remember(self, name: int | str, job: Job | None, asker: Asker) -> Recipe | Error:
        """Return what can be run; only that is remembered: a pause may end at any time."""
        if job is None:
            return _missing(name)
        handler = job.spec["handler"] if job.kind == "python" else None
        recipe = Recipe(
            job.id, job.org, job.version, job.kind, job.policy, handler, job.owner, job.annotations,
            user_of(job.owner, job.annotations), own_data(job.policy, job.spec), job.followed,
        )  # fmt: skip
        seen = _visible(name, recipe, asker)
        if isinstance(seen, Error):
            return seen
        if job.deleted_at is not None:
            return _deleted(job.id)
        if job.paused:
            why = f", because {because}" if (because := paused_because(job)) else ""
            return Conflict(f"job {job.id} is paused{why}; resume it first", code="E_PAUSED")
        if len(self._recipes) >= REMEMBERED:
            del self._recipes[next(iter(self._recipes))]
        self._recipes[_name(name, asker)] = recipe
        return recipe


def _name_subject(recipes: Sequence[Recipe]) -> None:
    """Say in the audit log which job it is; of several, none."""
    ids = {recipe.job_id for recipe in recipes}
    deeds.note(kind="job", subject=str(ids.pop()) if len(ids) == 1 else "")


def _name(job: int | str, asker: Asker) -> Hashable:
    return job if isinstance(job, int) else (asker.org, asker.owner, job)


def _visible(job: int | str, recipe: Recipe, asker: Asker) -> Recipe | Error:
    return recipe if not asker.is_bound or recipe.org == asker.org else _missing(job)


def _barred(recipe: Recipe) -> Error:
    return Conflict(
        f"{recipe.owner}, the owner of job {recipe.job_id}, was disabled or may not run it any more",
        code="E_OWNER",
        hint="a job runs with the rights of its owner: enable it, or let somebody else submit the job",
    )


def _is_blind(policy: Policy) -> bool:
    """Return whether runs do not meet each other, and nothing about them depends on their data."""
    is_apart = policy.overlap is Overlap.ALLOW and policy.debounce is None
    return is_apart and policy.share == OWNER_SHARE and not reads_data(policy)


def _candidate(recipe: Recipe, order: Order) -> Candidate:
    return Candidate(order.run, recipe.policy, recipe.owner, recipe.org, recipe.user, recipe.own_data)


def _order(recipe: Recipe, request: RunRequest, idempotency: Idempotency | None) -> Order:
    policy = recipe.policy
    data = None if request.data is None else _encode(request.data).decode()
    new = new_run(recipe.job_id, recipe.kind, policy, 0, data=data, pin=request.node, followed=recipe.followed)
    if request.priority is not None:
        new.priority = request.priority
    new.resumes = request.resumes
    deadline = policy.start_deadline_seconds  # counted from the moment that the store sets: it alone knows the time
    within = None if deadline is None else round(deadline * SECOND)
    is_held = policy.debounce is not None and request.run_at is None and not request.is_alone
    calm = calm_of(policy.debounce, recipe.own_data if data is None else data) if is_held else None
    return Order(
        new, idempotency, recipe.version, request.run_at, within, trigger_id=request.trigger_id, calm=calm,
        deed=deeds.pending(),
    )  # fmt: skip


def _answer(recipe: Recipe, receipt: Receipt, earlier: Mapping[int, Run]) -> Run | Error:
    try:
        refuse_mismatch(receipt)
    except Conflict as error:
        return error
    if not receipt.ids:
        return _deleted(recipe.job_id)
    run_id = receipt.ids[0]
    if receipt.run is not None and receipt.run.reason == Reason.DEBOUNCE:
        why = why_waiting(recipe.policy.debounce, receipt.run.eligible_at, format_moment)
        return replace(receipt.run, message=f"replaced the order that waited; {why}" if receipt.run.replaced else why)
    return receipt.run or earlier.get(run_id) or NotFound(f"there is no run {run_id}")


def _missing(job: int | str) -> NotFound:
    return NotFound(f"there is no job {job}" if isinstance(job, int) else f"you have no job with the key '{job}'")


def _deleted(job_id: int) -> NotFound:
    return NotFound(f"job {job_id} was deleted")


def _contended(request: RunRequest) -> Conflict:
    return Conflict(f"job {request.job} is being changed by somebody else; try again")
