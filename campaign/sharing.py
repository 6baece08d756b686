"""The judge of queues and limits: who held what at the same time, how many started in a time, and whose turn it was.

A run *holds* what it demands while the store says that it is running. Where that was written down (the simulation sees
every change of a row) it is exact; else its witnesses tell, which begin a little after their claim and end a little
before its report. So what is counted at once is never counted too high; `noted_late` is for starts, which a late
witness brings closer together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from campaign.case import FOR_EVER, Case, Violation, Work
from campaign.history import SECOND, Hold, QueuePlan, shown

MINUTE = 60 * SECOND
LEAST_STARTS = 24  # of two shares together, for a ratio to mean anything
UNEVEN = 0.1  # of the starts of two shares, those that may be one's instead of the other's …
AT_ONCE = 6  # … and so many more: what is claimed together has no order, and a newcomer finds its line a little behind
UNSEEN = 20  # … and so many more where witnesses tell: what was claimed and never begun is not seen
STUCK = 30 * SECOND  # for which a run may wait for a limit that is free, once everything is healed

Interval = tuple[int, int]  # from, until


@dataclass(slots=True)
class Key:
    """What runs of several jobs may have in common: so many at once, or so many in a time."""

    name: str
    capacity: int | None = None
    period: int | None = None  # µs from one start to the next
    burst: int = 1


def keys_of(work: Work, queues: Sequence[QueuePlan]) -> Iterator[Key]:
    plan = work.plan
    if plan.at_once is not None:
        yield Key(f"at once, per {_whose(work, plan.at_once_per)}", plan.at_once)
    if plan.rate is not None:
        yield Key(f"rate, per {_whose(work, plan.rate_per)}", None, -(-MINUTE // plan.rate), plan.burst)
    for queue in queues:
        if queue.name == plan.queue and queue.concurrency is not None:
            yield Key(f"queue {queue.name}", queue.concurrency)


def _whose(work: Work, per: str) -> str:
    return {"job": f"job {work.plan.name}", "owner": "owner"}.get(per, f"{per} {work.plan.tenant}")


def _holds(case: Case) -> list[Hold]:
    """In the order of their beginnings."""
    seen = [Hold(one.run, one.started_at, one.last_at) for one in case.history.witnesses]
    return sorted(case.history.holds or seen, key=lambda one: one.since)


def _by_key(case: Case) -> dict[str, tuple[Key, list[Hold]]]:
    found: dict[str, tuple[Key, list[Hold]]] = {}
    for hold in _holds(case):
        run = case.runs.get(hold.run)
        work = case.work_of(run) if run is not None else None
        for key in keys_of(work, case.history.queues) if work is not None else ():
            found.setdefault(key.name, (key, []))[1].append(hold)
    return found


def within_limits(case: Case) -> Iterator[Violation]:
    """Of no key are more runs running at once than it allows."""
    for key, holds in _by_key(case).values():
        running: list[Hold] = []
        for hold in holds if key.capacity is not None else ():
            running = [one for one in running if _until(one) > hold.since] + [hold]
            if key.capacity is not None and len(running) > key.capacity:
                runs = ", ".join(str(one.run) for one in running)
                what = f"{len(running)} at once at {shown(hold.since)}, {key.capacity} allowed: runs {runs}"
                yield Violation("limit", f"{key.name}: {what}", run=hold.run)


def within_rates(case: Case) -> Iterator[Violation]:
    """In no window are there more starts than the burst, and one for each period in it.

    That is GCRA: `ready` is when the next start would come if starts came evenly.
    """
    late = round(case.history.noted_late * SECOND)
    for key, holds in _by_key(case).values():
        ready = 0
        for hold in holds if key.period is not None else ():
            assert key.period is not None
            if hold.since + late < ready - (key.burst - 1) * key.period:
                early = (ready - (key.burst - 1) * key.period - hold.since) / SECOND
                what = f"started at {shown(hold.since)}, {early:.3f} s before the rate allowed it"
                yield Violation("rate", f"{key.name}: {what}", run=hold.run)
            ready = max(ready, hold.since) + key.period


def shared_fairly(case: Case) -> Iterator[Violation]:
    """While two shares of a queue both have something waiting, they start by their weights."""
    allowed = AT_ONCE if case.history.holds else AT_ONCE + UNSEEN
    for queue in case.history.queues:
        waits = _waits(case, queue)
        for one, other in combinations(sorted(waits), 2):
            share = queue.weights[one] / (queue.weights[one] + queue.weights[other])
            for since, until in _both(_merged(waits[one]), _merged(waits[other])):
                mine, theirs = (sum(since <= at <= until for _, at in waits[who]) for who in (one, other))
                number, expected = mine + theirs, share * (mine + theirs)
                if number >= LEAST_STARTS and abs(mine - expected) > allowed + UNEVEN * number:
                    weights = f"{queue.weights[one]} to {queue.weights[other]}"
                    what = f"{one} and {other}, {weights}, both waited from {shown(since)} to {shown(until)}"
                    yield Violation("fair", f"queue {queue.name}: {what}, and {mine} and {theirs} were started")


def _waits(case: Case, queue: QueuePlan) -> dict[str, list[Interval]]:
    """From when to when each run of a share waited for its first start; of those that nothing but the queue limits."""
    first: dict[int, int] = {}
    for hold in _holds(case):
        first.setdefault(hold.run, hold.since)
    waits: dict[str, list[Interval]] = defaultdict(list)
    for work in case.works.values():
        plan = work.plan
        if plan.queue == queue.name and plan.tenant in queue.weights and plan.at_once is plan.rate is None:
            waits[plan.tenant] += [(run.created_at, first[run.id]) for run in work.runs if run.id in first]
    return {who: sorted(each) for who, each in waits.items()}


def _merged(waits: Sequence[Interval]) -> list[Interval]:
    """The times in which one of them lasts."""
    merged: list[Interval] = []
    for since, until in waits:
        if merged and since <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], until))
        else:
            merged.append((since, until))
    return merged


def _both(some: Sequence[Interval], others: Sequence[Interval]) -> Iterator[Interval]:
    for one in some:
        for other in others:
            since, until = max(one[0], other[0]), min(one[1], other[1])
            if since < until:
                yield since, until


def let_go(case: Case) -> Iterator[Violation]:
    """Once everything is healed, no run waits for long for a limit of which nothing is in use."""
    healed_at = case.history.healed_at
    by_key = _by_key(case) if healed_at is not None else {}
    for key, holds in by_key.values():
        free_since = max(healed_at or 0, *(_until(one) for one in holds if _until(one) != FOR_EVER), 0)
        waiting = [run for run in case.runs.values() if run.state == "blocked" and run.reason == "limit"]
        for run in waiting if all(_until(one) != FOR_EVER for one in holds) else ():
            work = case.work_of(run)
            names = {one.name for one in keys_of(work, case.history.queues)} if work is not None else set()
            waited = case.history.read_at - max(free_since, run.created_at)
            if key.name in names and waited > STUCK + (key.period or 0):
                what = f"{key.name}: nothing is in use of it, and it waits for {waited / SECOND:.0f} s"
                yield Violation("stuck", what, run=run.id, at=run.due_at)


def _until(hold: Hold) -> int:
    return FOR_EVER if hold.until is None else hold.until
