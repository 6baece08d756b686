"""Work that other programs hand over inside their own transactions: what becomes of a row of the inbox.

Judged after the caller has committed, by the rules of run-now. Whoever handed it over is gone by then, so a refusal is
a value to be kept, not an error to be raised.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from horae.core.definitions import Idempotency, Receipt
from horae.core.fields import Fields, Problems, encoded
from horae.core.jobdata import MAX_DATA
from horae.core.model import LARGEST_ID, SECOND, Moment, Policy, Run
from horae.core.policy.debounce import calm_of
from horae.core.policy.demands import own_data
from horae.core.runs.ledger import new_run
from horae.core.runs.orders import Order
from horae.errors import Invalid

SWEEP = 1.0  # seconds between two looks from the beginning
SHARE = 10  # times as long as such a look takes
PATIENCE = 5.0  # seconds for which a missing row is looked for
MOST_MISSING = 200  # rows that are looked for
FURTHEST = 10_000  # numbers back from the last row in which missing ones are told


class Handed(NamedTuple):
    """A row of the inbox."""

    id: int  # the receipt that its caller got
    made_at: Moment
    run_at: Moment | None
    org: int
    priority: int | None
    role: str  # of the database: who handed it over
    owner: str  # for whom
    job: str  # its id or key
    key: str | None  # of idempotency
    data: str | None  # JSON text

    @property
    def job_id(self) -> int | None:
        """Return the id that `job` is: digits are one, anything else is a key."""
        is_id = self.job.isascii() and self.job.isdecimal() and int(self.job) <= LARGEST_ID
        return int(self.job) if is_id else None


class Target(NamedTuple):
    """What is to be known of a job that is there."""

    id: int
    org: int
    owner: str
    key: str | None
    kind: str
    paused: bool
    policy: Policy
    annotations: str  # JSON text
    spec: str | None  # JSON text, where the policy looks at data
    followed: bool | None = None  # others come after it


class Refusal(NamedTuple):
    """Work that becomes no run."""

    handed: Handed
    code: str
    message: str


class Drained(NamedTuple):
    """What one batch of the inbox became."""

    receipts: list[int]  # of all rows that were taken
    runs: list[int]  # made, or found by their idempotency key
    refused: list[Refusal]
    made: Sequence[Run] = ()  # of those runs, the new ones
    replaces: bool = False  # a run may have been asked to stop


class Since(NamedTuple):
    """Where in the inbox to look: behind a row, and at some before it."""

    above: int
    missing: Sequence[int] = ()


BEGINNING = Since(0)


class Reading:
    """How far the inbox was read.

    A row that was taken leaves its entry in the index until vacuum may take it away, and it may not while any
    transaction is open that is older; so a look begins behind the last row that was seen. Rows commit in another order
    than they are numbered, so those that were missing before it are looked at too, the latest of them, for a while.
    Whatever that leaves out is found by a look from the beginning: after a second, or, so that these never take more
    than a tenth of the time, after ten times as long as it took.
    """

    def __init__(self) -> None:
        self._above = 0
        self._missing: dict[int, float] = {}  # receipt → until when it is looked for
        self._sweep_at = 0.0

    def since(self, now: float) -> Since:
        """`now`: seconds that have passed since any moment."""
        if now >= self._sweep_at:
            return BEGINNING
        self._missing = {receipt: until for receipt, until in self._missing.items() if until > now}
        return Since(self._above, list(self._missing))

    def note(self, since: Since, receipts: Sequence[int], began: float, now: float) -> None:
        """After a look that took these, oldest first."""
        if since is BEGINNING:
            self._sweep_at = now + max(SWEEP, SHARE * (now - began))
        for receipt in receipts:
            self._missing.pop(receipt, None)
        if not receipts or receipts[-1] <= self._above:
            return
        first = max(self._above + 1, receipts[-1] - FURTHEST)
        gaps = set(range(first, receipts[-1])).difference(receipts)
        self._missing.update((receipt, now + PATIENCE) for receipt in sorted(gaps))
        self._missing = dict(list(self._missing.items())[-MOST_MISSING:])
        self._above = receipts[-1]


class Grant(NamedTuple):
    """For whom a role of the database hands work over."""

    role: str
    org: int
    owner: str


class Level(NamedTuple):
    """How full the inbox is."""

    waiting: int
    oldest_at: Moment | None
    refused: int
    is_used: bool  # somebody may hand work over, or has done so before
    seen_at: Moment


def judge(handed: Handed, target: Target | None, now: Moment) -> Order | Refusal:
    """Return the run to be asked for, or why there can be none."""
    if target is None or (target.org, target.owner) != (handed.org, handed.owner):
        return Refusal(handed, "E_NOT_FOUND", f"{handed.owner} has no job {handed.job!r}")
    if target.paused:
        return Refusal(handed, "E_PAUSED", f"job {target.id} is paused; it is handed in again when that is resumed")
    try:
        data = _read(handed.data)
    except Invalid as error:
        return Refusal(handed, error.code, error.message)
    run = new_run(target.id, target.kind, target.policy, now, data=data, followed=bool(target.followed))
    if handed.priority is not None:
        run = replace(run, priority=handed.priority)
    deadline = target.policy.start_deadline_seconds
    within = None if deadline is None else round(deadline * SECOND)
    calm = (
        None
        if handed.run_at is not None
        else calm_of(target.policy.debounce, _own_data(target) if data is None else data)
    )
    return Order(run, _idempotency(handed, target.id), run_at=handed.run_at, start_within=within, calm=calm)


def _own_data(target: Target) -> str | None:
    return None if target.spec is None else own_data(target.policy, json.loads(target.spec))


def judge_receipt(handed: Handed, receipt: Receipt) -> Refusal | None:
    """Return why an order that was placed made no run, if it made none."""
    if receipt.mismatch:
        message = f"the key {handed.key!r} was used with other work for this job"
        return Refusal(handed, "E_IDEMPOTENCY_MISMATCH", message)
    return None if receipt.ids else Refusal(handed, "E_NOT_FOUND", f"job {handed.job!r} was deleted")


def _read(data: str | None) -> str | None:
    """Return data as run-now keeps it; the database takes numbers that no handler could be given."""
    if data is None:
        return None
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise Invalid(f"data cannot be read: {error}", code="E_JSON_SYNTAX") from error
    problems = Problems()
    read = Fields({"data": value}, "", problems).json("data", MAX_DATA)
    problems.raise_any()
    return encoded(read)


def _idempotency(handed: Handed, job_id: int) -> Idempotency | None:
    if handed.key is None:
        return None
    said = json.dumps([handed.data, handed.priority, handed.run_at])
    scope = f"inbox {handed.org} {handed.owner} {job_id}"
    return Idempotency(scope, handed.key, hashlib.sha256(said.encode()).hexdigest())
