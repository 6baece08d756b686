"""Work that other programs hand over inside their own transactions: what becomes of a row of the inbox.

Judged after the caller has committed, by the rules of run-now. Whoever handed it over is gone by then, so a refusal is
a value to be kept, not an error to be raised.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import NamedTuple

from horae.core.definitions import Idempotency, Receipt
from horae.core.fields import Fields, Problems, encoded
from horae.core.model import LARGEST_ID, Moment, Policy
from horae.core.runs.ledger import new_run
from horae.core.runs.orders import Order
from horae.core.work.commands import MAX_DATA
from horae.errors import Invalid


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


class Refused(NamedTuple):
    """Work that becomes no run."""

    handed: Handed
    code: str
    message: str


class Drained(NamedTuple):
    """What one batch of the inbox became."""

    runs: list[int]  # made, or found by their idempotency key
    refused: list[Refused]
    replaces: bool = False  # a run may have been asked to stop

    @property
    def taken(self) -> int:
        return len(self.runs) + len(self.refused)


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


def judge(handed: Handed, target: Target | None, now: Moment) -> Order | Refused:
    """Return the run to be asked for, or why there can be none."""
    if target is None or (target.org, target.owner) != (handed.org, handed.owner):
        return Refused(handed, "E_NOT_FOUND", f"{handed.owner} has no job {handed.job!r}")
    if target.paused:
        return Refused(handed, "E_PAUSED", f"job {target.id} is paused; it is handed in again when that is resumed")
    try:
        data = _read(handed.data)
    except Invalid as error:
        return Refused(handed, error.code, error.message)
    run = new_run(target.id, target.kind, target.policy, now, data=data)
    if handed.priority is not None:
        run = replace(run, priority=handed.priority)
    return Order(run, _idempotency(handed, target.id))


def judge_receipt(handed: Handed, receipt: Receipt) -> Refused | None:
    """Return why an order that was placed made no run, if it made none."""
    if receipt.mismatch:
        message = f"the key {handed.key!r} was used with other work for this job"
        return Refused(handed, "E_IDEMPOTENCY_MISMATCH", message)
    return None if receipt.ids else Refused(handed, "E_NOT_FOUND", f"job {handed.job!r} was deleted")


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
