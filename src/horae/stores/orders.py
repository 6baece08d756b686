"""What becomes of orders, as far as both databases decide it alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from horae.core.definitions import Receipt
from horae.core.model import Moment, Overlap, Phase, Reason, Run, State
from horae.core.policy.order import STRIDE, share_of
from horae.core.runs.ledger import new_run
from horae.core.runs.orders import MadeRun, NewRun, Order, Outcome, Placed, Swept
from horae.core.work import policies
from horae.core.work.kinds import BY_SERVERS
from horae.stores.attempts import count_demanding
from horae.stores.idempotency import Known, replay
from horae.stores.rows import Row, decode

LATER = Outcome(State.BLOCKED, Reason.LATER)
CALMING = Outcome(State.BLOCKED, Reason.DEBOUNCE)
TIMED = (LATER, CALMING)  # until a moment, without a gate
FOLLOWING = Outcome(State.BLOCKED, Reason.OVERLAP)
QUEUED = Outcome(State.QUEUED)
LIMITED = Outcome(State.BLOCKED, Reason.LIMIT)
DEPENDENT = Outcome(State.BLOCKED, Reason.DEPENDENCY)
BARRED = Outcome(State.SKIPPED, Reason.OWNER)
GONE = Receipt([])
STALE = Receipt([], stale=True)


def first_of_each(orders: Sequence[Order]) -> list[int]:
    """Return which orders to carry out: of those that share an idempotency key, the first."""
    seen: set[tuple[str, str]] = set()
    first = []
    for number, order in enumerate(orders):
        if (key := order.idempotency) is None:
            first.append(number)
        elif (key.scope, key.key) not in seen:
            seen.add((key.scope, key.key))
            first.append(number)
    return first


def waits_for_calm(order: Order) -> bool:
    """Return whether it waits for others of its kind; one that may not run has nothing to wait for."""
    return order.calm is not None and not order.run.barred


def are_alike(orders: Sequence[Order]) -> bool:
    """Return whether orders take no gate, and differ in their job, data, key and who asks alone."""
    common = _common(orders[0])
    return all(
        order.is_ordinary and order.run.overlap == Overlap.ALLOW and _common(order) == common for order in orders
    )


def _common(order: Order) -> tuple[object, ...]:
    run = order.run
    return (
        run.kind, run.queue, run.priority, run.share, run.weight, run.demand, run.needs, run.pin, run.start_by,
        order.start_within, order.trigger_id, run.followed, run.depends, run.parent_id, run.task, run.resumes,
    )  # fmt: skip


def refused(order: Order, version: int | None) -> Receipt | None:
    """Return the receipt of an order that its job does not allow; `version` is that of the job, if it is alive."""
    if version is None:
        return GONE
    return None if order.version in (None, version) else STALE


def waiting_outcome(run: NewRun) -> Outcome:
    """What a run becomes that nothing else of its job hinders."""
    if run.depends:
        return DEPENDENT
    return QUEUED if run.demand is None else LIMITED


def overlapped(holder: int | None) -> Outcome:
    """What a run becomes under `forbid` when another is live. Who that is, is not known if it came at the same moment
    by another hand."""
    who = "" if holder is None else f": run {holder}"
    return Outcome(State.SKIPPED, Reason.OVERLAP, f"another run of this job was live{who}")


def full(waiting: int) -> Outcome:
    """What a run becomes under `queue` when enough are waiting."""
    return Outcome(State.SKIPPED, Reason.OVERLAP, f"{waiting} runs of this job were waiting already")


def receipt(made: MadeRun, outcome: Outcome, now: Moment) -> Receipt:
    """Return the receipt of a run that was made now, as a reader would find it."""
    run, state = made.run, outcome.state
    is_over = state.is_terminal
    return Receipt(
        [made.run_id],
        run=Run(
            made.run_id, run.job_id, made.trigger_id, made.due_at, state, outcome.reason, 0, 0, run.priority, run.kind,
            made.created_at, decode(run.data), Phase.RUNNING, pin=None if is_over else run.pin,
            eligible_at=made.due_at if outcome in TIMED else None, finished_at=now if is_over else None,
            message=outcome.message, parent_id=run.parent_id, task=run.task,
        ),
    )  # fmt: skip


def made_alike(order: Order, first_id: int, now: Moment) -> Run:
    """Return the first of runs that were made of orders like this one; data is that of each."""
    run = receipt(
        replace(order, run=replace(order.run, data=None)).made(first_id, now), waiting_outcome(order.run), now
    ).run
    assert run is not None
    return run


def calmed(order: Order, run_id: int, created_at: Moment, due_at: Moment, now: Moment) -> MadeRun:
    """Return the run of an order that waits for others of its kind, be it that of the first of them."""
    return replace(order, run_at=due_at, placed=Placed(run_id, created_at)).made(run_id, now)


def calm_receipt(made: MadeRun, now: Moment, *, replaced: bool) -> Receipt:
    run = receipt(made, CALMING, now).run
    assert run is not None
    return Receipt([run.id], run=replace(run, replaced=replaced))


def replies(orders: Sequence[Order], made: Mapping[int, Receipt], known: Known) -> list[Receipt]:
    """One receipt per order: what was made of it, or what its idempotency key stands for. A key that was neither made
    nor known is that of a twin which came to nothing, or was dropped this moment: its order is to be tried again."""
    return [made.get(number) or replay(order.idempotency, known) or STALE for number, order in enumerate(orders)]


def kept_share(run: NewRun) -> str:
    """Return with whom an order for later will share, and how much, as `waited` reads it."""
    share = share_of(run)
    return f"{share.stride} {share.key}"


def waited(row: Row) -> Order:
    """Return an order whose moment has come: what the job says it is now, and of the order what it said itself."""
    (
        run_id,
        job_id,
        due_at,
        created_at,
        start_by,
        priority,
        data,
        pin,
        kind,
        policy,
        queue,
        share,
        demand,
        trigger_id,
        followed,
    ) = row
    new = new_run(job_id, kind, policies.policy_from_text(policy), due_at, data=data, pin=pin)
    stride, _, key = (share or f"{STRIDE} ").partition(" ")
    whose = {
        "queue": queue,
        "share": key,
        "weight": STRIDE // int(stride),
        "demand": demand,
        "followed": bool(followed),
    }
    new = replace(new, priority=priority, start_by=start_by, **whose)
    return Order(new, run_at=due_at, placed=Placed(run_id, created_at), trigger_id=trigger_id)


def swept(released: Sequence[Row], begun: Sequence[Run], expired: int, now: Moment, overdue: int) -> Swept:
    """Return what a pass has come to: runs (id, demand, kind) that were let go, and orders whose moment has come."""
    queued = len(released) + sum(run.state is State.QUEUED or run.reason == Reason.LIMIT for run in begun)
    demanding = count_demanding(released) + sum(run.reason == Reason.LIMIT for run in begun)
    kinds = {row[2] for row in released} | {run.kind for run in begun}
    is_noted = bool(expired or overdue or kinds & BY_SERVERS)
    return Swept(queued, expired, now, demanding, is_noted)
