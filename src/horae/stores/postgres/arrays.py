"""Values → arrays: a batch is one argument per column."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import msgspec

from horae.core.definitions import Group, Idempotency
from horae.core.model import Job, Overlap, State
from horae.core.policy.order import places_of, share_of
from horae.core.runs.lifecycle import first_phase
from horae.core.runs.orders import NEVER, Fire, NewRun, Order, Result, Waiting, Want
from horae.core.runs.waits import Signal, answer_parts
from horae.core.waits import awaited
from horae.stores.attempts import next_standing
from horae.stores.lines import Lines
from horae.stores.orders import kept_share, waiting_outcome
from horae.stores.postgres import marks
from horae.stores.rows import job_values, to_json

Columns = list[Sequence[Any]]


def columns(rows: Sequence[tuple[Any, ...]], width: int) -> Columns:
    """Rows as arrays. A column of nothing but NULLs is left empty, and unnest fills it up: encoding a thousand
    elements would take a tenth of what a whole run may cost."""
    if not rows:
        return [()] * width
    return [
        () if column[0] is None and column.count(None) == len(column) else column for column in zip(*rows, strict=True)
    ]


def sparse(column: list[Any]) -> Sequence[Any]:
    """As columns does it, with one of them."""
    return () if not column or (column[0] is None and column.count(None) == len(column)) else column


def numbers(column: Collection[int | None]) -> str:
    """Numbers as a PostgreSQL array literal, for statements that take thousands a second: the library asks of each
    element of an array whether it is an array, which takes twenty times as long as to write it."""
    return "{" + msgspec.json.encode(column).decode()[1:-1] + "}"


def sparse_numbers(column: list[Any]) -> str:
    """The same of a column that may be of nothing but NULLs."""
    return numbers(sparse(column))


def due_rows(jobs: Sequence[Job]) -> list[tuple[int, ...]]:
    return [
        (t.id, job.id, NEVER if t.next_at is None else t.next_at, job.version, job.segment)
        for job in jobs
        for t in job.triggers
    ]


def due_arrays(jobs: Sequence[Job]) -> Columns:
    return columns(due_rows(jobs), 5)


def submit_arrays(jobs: Sequence[Job]) -> Columns:
    return columns([job_values(job) for job in jobs], 18) + due_arrays(jobs)


def array_text(labels: Sequence[str]) -> str | None:
    """Labels as a PostgreSQL array literal, because a list of lists cannot be ragged."""
    return "{" + ",".join(f'"{label}"' for label in labels) + "}" if labels else None


def fire_arrays(fires: Sequence[Fire], lines: Lines) -> Columns:
    """What has its usual value goes as NULL, and costs nothing when that holds for the whole batch. Column by column:
    rows would have to be turned round."""
    runs = [f.run for f in fires]
    texts: list[list[str | None]] = [
        [r.data for r in runs], [array_text(r.needs) if r.needs else None for r in runs]
    ]  # fmt: skip
    own: list[list[int | None]] = [
        [f.trigger_id for f in fires], [f.segment for f in fires], [f.version for f in fires],
        [f.cur_at for f in fires], [f.next_at for f in fires], [f.last_at for f in fires],
        [None if f.due_at == f.cur_at else f.due_at for f in fires], [None if f.born else True for f in fires],
        [r.overlap or None for r in runs], [r.start_by for r in runs], [f.reserved for f in fires],
        [f.reserve or None for f in fires],
        [None if f.last_at == f.cur_at == f.due_at and not f.passed else f.newest for f in fires],
        [r.demand for r in runs], [r.followed or None for r in runs], [r.depends or None for r in runs],
    ]  # fmt: skip
    share, nth, *shares = share_arrays(runs, lines)
    return [*map(sparse, texts), *map(sparse_numbers, own), numbers(share), numbers(nth), *shares]


def share_arrays(runs: Sequence[NewRun], lines: Lines) -> Columns:
    """To which share each run belongs, and which one of it it is; then the shares."""
    shares, numbers, nths = places_of(runs)
    rows = [
        (share.kind, share.queue, share.priority, share.key, share.stride, lines.at(share.line) - share.stride)
        for share in shares
    ]
    return [numbers, nths, *columns(rows, 6)]


class _OrderRow(msgspec.Struct, omit_defaults=True):
    """An order as the statement reads it."""

    job_id: int
    overlap: int
    start_by: int | None = None
    data: str | None = None
    needs: str | None = None
    pin: str | None = None
    version: int | None = None
    run_at: int | None = None
    start_within: int | None = None
    demand: int | None = None
    share: int | None = None
    nth: int | None = None
    scope: str | None = None
    key: str | None = None
    digest: str | None = None
    placed_id: int | None = None
    placed_at: int | None = None
    parent_id: int | None = None
    task: str | None = None
    followed: bool | None = None
    resumes: int | None = None
    trigger_id: int | None = None
    depends: bool | None = None
    barred: bool | None = None


def order_rows(orders: Sequence[Order], lines: Lines) -> tuple[Any, ...]:
    """Return the jobs of the orders, the orders as JSON, and the shares that they belong to."""
    numbers, nths, *shares = share_arrays([order.run for order in orders], lines)
    nobody = [None] * len(orders)
    rows = [
        _OrderRow(
            b.job_id, b.overlap, b.start_by, b.data, array_text(b.needs), b.pin, order.version, order.run_at,
            order.start_within, b.demand, share, nth, *_key(key),
            placed and placed.run_id, placed and placed.created_at, b.parent_id, b.task, b.followed or None, b.resumes,
            order.trigger_id, b.depends or None, b.barred or None,
        )
        for order, share, nth in zip(orders, numbers or nobody, nths or nobody, strict=True)
        for b, key, placed in ((order.run, order.idempotency, order.placed),)
    ]  # fmt: skip
    return list({order.run.job_id for order in orders}), to_json(rows).decode(), *shares


def alike_row(order: Order, data: Sequence[str | None], promise: Idempotency | None, lines: Lines) -> tuple[Any, ...]:
    """Return what orders have in common that differ in their data alone, with the data; `promise`: for all of them."""
    run, share, outcome = order.run, share_of(order.run), waiting_outcome(order.run)
    gate = None if run.overlap == Overlap.ALLOW else run.job_id
    return (
        run.job_id, order.version, share.kind, share.queue, share.priority, share.key, share.stride,
        lines.at(share.line) - share.stride, data, *_key(promise or order.idempotency), promise is not None, gate,
        run.overlap, outcome.state, outcome.reason, run.start_by, order.start_within, run.needs or None, run.pin,
        run.demand, order.trigger_id, run.parent_id, run.task, run.followed or None, run.resumes, run.depends or None,
    )  # fmt: skip


def together_rows(orders: Sequence[Order], lines: Lines) -> tuple[Any, ...]:
    """Return job, version, data and key of orders that are alike else, and then what they have in common."""
    run, share, outcome = orders[0].run, share_of(orders[0].run), waiting_outcome(orders[0].run)
    keys = [_key(order.idempotency) for order in orders]
    return (
        [order.run.job_id for order in orders], [order.version for order in orders],
        [order.run.data for order in orders], *map(list, zip(*keys, strict=True)),
        share.kind, share.queue, share.priority, share.key, share.stride, lines.at(share.line) - share.stride,
        run.overlap, outcome.state, outcome.reason, run.start_by, orders[0].start_within, run.needs or None, run.pin,
        run.demand, orders[0].trigger_id, run.parent_id, run.task, run.followed or None, run.resumes,
        run.depends or None,
    )  # fmt: skip


def started_row(order: Order, want: Want, labels: Sequence[str], floor: int, lines: Lines) -> tuple[Any, ...]:
    """Return an order, and who is to have its run."""
    run, share = order.run, share_of(order.run)
    gate = None if run.overlap == Overlap.ALLOW else run.job_id
    return (
        run.job_id, order.version, share.kind, share.queue, share.priority, share.key, share.stride,
        lines.at(share.line) - share.stride, run.data, *_key(order.idempotency), gate, run.overlap, order.trigger_id,
        run.followed or None, want.node, want.session, labels, first_phase(want.kind), floor,
    )  # fmt: skip


def group_row(group: Group | None) -> tuple[Any, ...]:
    """Return the key of a group of orders, and where each of them stands in it."""
    return (None, None, None, ()) if group is None else (*_key(group.promise), group.places)


class _CalmRow(msgspec.Struct, omit_defaults=True):
    """An order that waits for others of its kind, as the statement reads it."""

    job_id: int
    overlap: int
    kind: str
    queue: int
    priority: int
    share: str
    debounce: str
    wait: int
    at_most: int | None = None
    data: str | None = None
    needs: str | None = None
    pin: str | None = None
    version: int | None = None
    start_within: int | None = None
    demand: int | None = None
    followed: bool | None = None
    trigger_id: int | None = None
    scope: str | None = None
    key: str | None = None
    digest: str | None = None


def calm_rows(orders: Sequence[Order]) -> tuple[Any, ...]:
    """Return the jobs of orders that wait for others of their kind, and the orders as JSON."""
    rows = [
        _CalmRow(
            b.job_id, b.overlap, b.kind, b.queue, b.priority, kept_share(b), calm.key, calm.wait, calm.at_most, b.data,
            array_text(b.needs), b.pin, order.version, order.start_within, b.demand, b.followed or None,
            order.trigger_id, *_key(key),
        )
        for order in orders
        for b, key, calm in ((order.run, order.idempotency, order.calm),)
        if calm is not None
    ]  # fmt: skip
    return list({order.run.job_id for order in orders}), to_json(rows).decode()


def _key(key: Idempotency | None) -> tuple[str | None, str | None, str | None]:
    return (key.scope, key.key, key.digest) if key else (None, None, None)


def want_arrays(wants: Sequence[Want]) -> Columns:
    return columns([(want.node, want.kind, want.capacity, first_phase(want.kind), want.session) for want in wants], 5)


def claim_arrays(wants: Sequence[Want], begin: marks.Begin) -> Columns:
    return want_arrays(wants) + columns(begin.gaps, 4) + columns(begin.marks, 5)


def result_arrays(results: Sequence[Result]) -> Columns:
    """A plain success goes as four columns: its state and texts are the usual ones."""
    usual = State.SUCCEEDED
    own: list[list[int | None]] = [
        [r.run_id for r in results], [r.fence for r in results],
        [None if r.state is usual else r.state for r in results],
        [r.started_at for r in results], [r.finished_at for r in results], [r.exit_code for r in results],
    ]  # fmt: skip
    texts: list[list[str | None]] = [
        [r.reason or None for r in results], [r.message or None for r in results], [r.result for r in results],
        [r.output for r in results],
    ]  # fmt: skip
    return [*map(sparse_numbers, own), *map(sparse, texts)]


def waiting_arrays(waiting: Sequence[Waiting]) -> Columns:
    rows = [
        (w.result.run_id, w.result.fence, *next_standing(w), w.eligible_at, int(w.lost),
         w.result.state, w.result.reason, w.result.started_at, w.result.finished_at, w.result.exit_code,
         w.result.message, w.result.output, w.begun, w.wait and awaited(w.wait))
        for w in waiting
    ]  # fmt: skip
    return columns(rows, 15)


def signal_arrays(signals: Sequence[Signal]) -> Columns:
    rows = [
        (one.run_id, one.name, *answer_parts(one), key and key.scope, key and key.key, key and key.digest)
        for one in signals
        for key in (one.idempotency,)
    ]
    return columns(rows, 7)
