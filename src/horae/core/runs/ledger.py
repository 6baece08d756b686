"""What becomes of due moments: one run, and an account of every moment that passed meanwhile.

Decisions only: from a due row, its definition and the store's now to the `Fire` to ask of the store. The
scheduler asks here at the moment; whoever takes a trigger's moment away (a pause, a delete, a new schedule)
asks here first, for what is already due. So no moment is ever dropped without a record.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import NamedTuple

from horae.core.model import SECOND, Misfire, Moment, Policy, Reason, State
from horae.core.policy.demands import own_data
from horae.core.policy.queues import user_of
from horae.core.runs import lifecycle
from horae.core.runs.orders import NEVER, Definition, Due, Fire, LastRun, NewRun
from horae.core.time.schedule import Schedule, compile_text
from horae.core.work import policies
from horae.core.work.kinds import BY_SERVERS, EVERY
from horae.errors import Error

CATCH_UP = 1000  # missed moments of one trigger accounted for in one go, unless fewer are asked for
DELAY_POLL = SECOND  # how often a fixed-delay trigger looks whether its run has ended


class Unreadable(Error):
    """A trigger that a newer node, or one that knows more time zones, wrote."""

    code, status = "E_UNREADABLE", 409


class FiringPlan(NamedTuple):
    """A trigger as the scheduler remembers it."""

    version: int
    schedule: Schedule
    policy: Policy
    run: NewRun  # shared by all its runs, unless the policy sets a start deadline
    owner: str
    org: int
    user: str  # with whom its runs share (core.policy.queues.user_of)
    own_data: str | None  # of the job, JSON text, where the policy looks at data
    is_plain: bool  # one moment, one run: nothing to decide when it fires in time
    asks_first: bool  # it counts from the end of its last run, or is offered to others first: the store knows more


def new_run(
    job_id: int, kind: str, policy: Policy, due_at: Moment, *, data: str | None = None, pin: str | None = None,
    followed: bool = False,
) -> NewRun:  # fmt: skip
    """Return a run to be, as the job's policy wants it."""
    deadline = policy.start_deadline_seconds
    kind = EVERY if policy.every is not None else kind
    return NewRun(
        job_id=job_id, kind=kind, priority=policy.priority, overlap=policy.overlap, overlap_limit=policy.overlap_limit,
        start_by=None if deadline is None else due_at + round(deadline * SECOND), data=data,
        needs=() if kind in BY_SERVERS else policy.labels,
        pin=pin, followed=followed, depends=bool(policy.after),
    )  # fmt: skip


def plan_firing(definition: Definition) -> FiringPlan:
    """Raises Unreadable where this node cannot tell when, or how, to fire it."""
    try:
        return _plan(definition)
    except Exception as error:  # it may be of a newer version, name a zone that is not known here, or be broken
        why = error.message if isinstance(error, Error) else f"{type(error).__name__}: {error}"
        raise Unreadable(f"trigger {definition.trigger_id} cannot be read on this node: {why}") from error


def _plan(definition: Definition) -> FiringPlan:
    policy = policies.policy_from_text(definition.policy, exact=True)
    schedule = compile_text(definition.schedule, definition.trigger_id, definition.created_at)
    new = new_run(
        definition.job_id, definition.kind, policy, 0, data=definition.data, followed=definition.followed
    )  # fmt: skip
    counts_on = schedule.delay is not None  # from the end of its last run
    is_plain = policy.start_deadline_seconds is None and policy.misfire is Misfire.RUN_LATEST and not counts_on
    asks_first = policy.offered or counts_on
    owner, org = definition.owner, definition.org
    user = user_of(owner, {} if definition.annotations == "{}" else json.loads(definition.annotations))
    data = None if definition.spec is None else own_data(policy, json.loads(definition.spec))
    return FiringPlan(definition.version, schedule, policy, new, owner, org, user, data, is_plain, asks_first)


def offered_until(at: Moment, policy: Policy, longest: Moment) -> Moment:
    """Return how long a moment is left to schedulers outside Horae: never so long that it is too late for it
    afterwards."""
    limits = [longest]
    if policy.misfire is Misfire.SKIP:
        limits.append(lifecycle.MISFIRE_GRACE // 2)
    if policy.start_deadline_seconds is not None:
        limits.append(round(policy.start_deadline_seconds * SECOND) // 2)
    return at + min(limits)


def missed_since(entry: Due, plan: FiringPlan, now: Moment) -> int:
    """Return how many moments have come after that of a due row: 0 when none has, else a guess from the first two."""
    next_at = None if plan.schedule.delay is not None else plan.schedule.next_after(entry[0])
    return 0 if next_at is None or next_at > now else (now - entry[0]) // (next_at - entry[0])


def account_one(entry: Due, plan: FiringPlan, now: Moment) -> Fire | None:
    """Return what a trigger asks of the store as a rule: one run, of the one moment that is due. None where there is
    more to decide."""
    if not plan.is_plain:
        return None
    at, trigger_id, version, segment, reserved = entry
    next_at = plan.schedule.next_after(at)
    if next_at is None:
        next_at = NEVER
    elif next_at <= now:
        return None
    return Fire(trigger_id, segment, version, at, next_at, at, plan.run, at, reserved=reserved)


def account(entry: Due, plan: FiringPlan, now: Moment, last: LastRun | None = None, most: int = CATCH_UP) -> Fire:
    """Return what one due trigger asks of the store: one run, and an account of moments it missed, the oldest `most` of
    them.

    `last` is the trigger's last run: needed where the schedule counts from its end.
    """
    if plan.schedule.delay is not None:
        return _account_delay(entry, plan, last, plan.schedule.delay, now)
    if (fire := account_one(entry, plan, now)) is not None:
        return fire
    enough = most + lifecycle.kept(plan.policy)
    moments = [entry[0], *plan.schedule.moments(entry[0], now, enough)]
    count, state = lifecycle.missed(plan.policy, moments, now)
    if len(moments) > enough and count >= most:  # so many follow that none of these can be among those that run
        return _passed_over(entry, plan, moments[:most], state, moments[most])
    if count == len(moments):
        return _passed_over(entry, plan, moments, state, plan.schedule.next_after(moments[-1]))
    runs_at = moments[count]
    after = plan.schedule.next_after(runs_at)
    fire = _one(entry._replace(next_at=runs_at), plan, NEVER if after is None else after)
    return replace(fire, cur_at=entry[0], passed=_passed(moments[:count], state))


def give_up(entry: Due, definition: Definition) -> Fire:
    """Return the account of a due moment whose trigger cannot be read and is about to be taken away: no run, but a
    record."""
    at, trigger_id, version, segment, reserved = entry
    new = new_run(definition.job_id, definition.kind, Policy(), at)
    return Fire(
        trigger_id, segment, version, at, NEVER, at, new, at, born=False, passed=_passed([at], State.SKIPPED),
        reserved=reserved, reserve=reserved is not None,
    )  # fmt: skip


def skip(fire: Fire, reason: Reason) -> Fire:
    """Return the account without its run: that moment is skipped. A run id that others point at is kept for the
    next."""
    is_pointed_at = fire.reserved is not None or any(state is State.COALESCED for _, state, _ in fire.passed)
    passed = [*fire.passed, (fire.due_at, State.SKIPPED, str(reason))]
    return replace(fire, born=False, passed=passed, reserve=is_pointed_at)


def _account_delay(entry: Due, plan: FiringPlan, last: LastRun | None, delay: int, now: Moment) -> Fire:
    """A fixed-delay trigger counts from the end of its last run: fire, or move to the right moment."""
    schedule, due_at = plan.schedule, entry[0]
    after = schedule.next_after(now)  # no run that ends from now on can have a successor before this
    if last is not None and last.is_live:
        poll = now + min(delay, DELAY_POLL)
        return _moved(entry, plan, NEVER if after is None else poll)
    if last is not None and last.finished_at is not None:
        counted = schedule.next_after(last.finished_at)
        due_at = NEVER if counted is None else max(due_at, counted)
    if due_at > now:
        return _moved(entry, plan, due_at)
    fire = _one(entry._replace(next_at=due_at), plan, NEVER if after is None else after)
    return replace(fire, cur_at=entry[0])


def _one(entry: Due, plan: FiringPlan, next_at: Moment) -> Fire:
    at, trigger_id, version, segment, reserved = entry
    new = plan.run
    if plan.policy.start_deadline_seconds is not None:
        new = replace(new, start_by=at + round(plan.policy.start_deadline_seconds * SECOND))
    return Fire(trigger_id, segment, version, at, next_at, at, new, at, reserved=reserved)


def _moved(entry: Due, plan: FiringPlan, next_at: Moment) -> Fire:
    return replace(_one(entry, plan, next_at), born=False, last_at=None)


def _passed(moments: list[Moment], state: State) -> list[tuple[Moment, State, str]]:
    return [(moment, state, Reason.MISFIRE) for moment in moments]


def _passed_over(entry: Due, plan: FiringPlan, moments: list[Moment], state: State, next_at: Moment | None) -> Fire:
    """No run yet; a run id that earlier moments point at, or these do, is kept for the one that will come."""
    fire = _one(entry, plan, NEVER if next_at is None else next_at)
    reserve = state is State.COALESCED or entry[4] is not None
    return replace(fire, born=False, last_at=moments[-1], passed=_passed(moments, state), reserve=reserve)
