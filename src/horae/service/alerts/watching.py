"""What is going on: the leader makes signs of events and of looks at the store, alerts of signs, and messages of
alerts.

Where there are no rules, it looks for some once a minute, and is told when one is made. Events are read by the batch;
what they change is written with the place up to which they were read, in one transaction. A batch that changes nothing
is not written down at once: should somebody die, it is read again, and changes nothing again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

import structlog

from horae.core.alerts.messages import SHOWN, Group, Spoken, compose, due_at
from horae.core.alerts.rules import Rule
from horae.core.alerts.signs import (
    FINISHED,
    KINDS,
    STARTED,
    JobFacts,
    Start,
    disk_signs,
    late_signs,
    node_signs,
    queue_signs,
    signs_of,
    slow_signs,
)
from horae.core.alerts.states import Alert, Key, Sign, find_silent, follow_all, follow_look
from horae.core.events import BEGINNING, Cursor, Event, EventFilter
from horae.core.model import SECOND, Moment
from horae.errors import Conflict
from horae.ports.clock import Clock
from horae.ports.store.alerts import READER, AlertMessages, AlertRules, Alerts
from horae.ports.store.cluster import Nodes
from horae.ports.store.events import Events
from horae.ports.store.moments import StoreClock
from horae.ports.store.queues import Queues
from horae.ports.store.runs import Runs
from horae.ports.transport import Queue

log = structlog.get_logger()

TOGETHER = 2000  # events read at once
IN_A_ROW = 20  # batches that are read before something else has its turn
FRESH = 2 * SECOND  # an event that is no older is the newest, as far as telling goes
REFRESH = 60.0  # seconds for which what is known of rules holds, unless a change is announced
WAKE = 1.0  # seconds after which it looks for what other nodes did
GAP = 0.05  # seconds between two looks: a storm is a few batches
LOOK = 15.0  # seconds between two looks for what no event tells
NOTE = 60.0  # seconds after which the place is written down, though nothing has changed
MOST_LATE = 10_000  # waiting runs, and jobs that are slow, that are looked at
DISK_HOLDS = 300 * SECOND  # for which it counts how full a disk was


class WatchingStore(AlertRules, Alerts, AlertMessages, Events, Runs, Nodes, Queues, StoreClock, Protocol):
    """Rules and alerts, and what they are made of."""


class AlertWatching:
    def __init__(self, store: WatchingStore, queue: Queue, clock: Clock, *, is_leader: Callable[[], bool]) -> None:
        self._store = store
        self._clock = clock
        self._is_leader = is_leader
        self._hint, self._events = queue.watch("alerts"), queue.watch("events")
        self._rules: list[Rule] = []
        self._refreshed = self._looked = float("-inf")
        self._noted = 0.0
        self._place: Cursor | None = None  # up to which events were read; None: to be looked up
        self._written: Cursor | None = None  # that the store has
        self._tell_after: float | None = (
            0.0  # by the clock, when there may be something to tell; None: there is nothing
        )
        self.on_told: Callable[[], None] = lambda: None  # called when there is something to deliver

    @property
    def has_rules(self) -> bool:
        return bool(self._rules)

    async def step(self) -> None:
        """Go once round; wait for more."""
        if not self._is_leader():
            self._forget()
            await self._clock.sleep(WAKE)
            return
        await self._refresh()
        if not self._rules:
            self._place = None
            await self._hint.wait(REFRESH)
            self._refreshed = float("-inf")
            return
        await self.go_round()
        await self._events.wait(WAKE)
        await self._clock.sleep(GAP)

    async def go_round(self) -> None:
        """Read what happened, look for what did not, and let be told what is to be told."""
        for _ in range(IN_A_ROW):
            if not await self._read():
                break
        if self._clock.elapsed() - self._looked >= LOOK:
            await self._look()
            self._looked = self._clock.elapsed()
        if self._tell_after is not None and self._clock.elapsed() >= self._tell_after:
            await self._tell()

    def _forget(self) -> None:
        self._place, self._rules, self._refreshed, self._tell_after = None, [], float("-inf"), 0.0

    async def _refresh(self) -> None:
        if self._hint.is_due:
            await self._hint.wait(0)
            self._refreshed = float("-inf")
        if self._clock.elapsed() - self._refreshed >= REFRESH:
            self._refreshed = self._clock.elapsed()
            self._rules, self._tell_after = await self._store.list_alert_rules(), 0.0

    # ── events ──
    async def _read(self) -> bool:
        """Follow a batch of events; return whether there are more that are older than just now."""
        if self._place is None:
            self._place = self._written = await self._store.load_reader(READER)
            if self._place is None:
                return False  # the last rule was deleted just now
        late = any(rule.when == "late" for rule in self._rules)
        where = EventFilter((*KINDS, *((STARTED,) if late else ())))
        try:
            events, place = await self._store.read_events(self._place, TOGETHER, where)
        except Conflict as error:
            log.error("alerts.events_left_out", why=error.message)
            events, place = await self._store.read_events(BEGINNING, TOGETHER, where)
        if not events:
            return False
        now = await self._store.now()
        if not await self._save(await self._follow(events, now), place):
            self._place = None  # somebody else has read on
            return False
        return events[-1].at < now - FRESH

    async def _follow(self, events: Sequence[Event], now: Moment) -> dict[Key, Alert | None]:
        ended = [event.run_id for event in events if event.kind == FINISHED and event.run_id is not None]
        tasks = await self._store.find_tasks(ended) if ended else set()
        events = [event for event in events if event.run_id not in tasks]  # people see their workflow alone
        jobs = await self._store.load_job_facts(sorted({event.job_id for event in events if event.job_id is not None}))
        signs = signs_of(events, jobs, await self._starts(events))
        wanted = {rule.when for rule in self._rules}
        return await self._followed([sign for sign in signs if sign.when in wanted], now)

    async def _starts(self, events: Sequence[Event]) -> dict[int, Start]:
        ids = sorted({event.run_id for event in events if event.kind == STARTED and event.run_id is not None})
        runs = await self._store.load_runs(ids) if ids else []
        return {run.id: Start(run.due_at, run.attempt == 1) for run in runs if run.parent_id is None}

    async def _followed(self, signs: Sequence[Sign], now: Moment) -> dict[Key, Alert | None]:
        if not signs:
            return {}
        subjects = {sign.subject for sign in signs} | {""}
        alerts = await self._store.load_alerts(sorted(subjects))
        return follow_all(self._rules, alerts, signs, now)

    async def _save(self, changed: Mapping[Key, Alert | None], place: Cursor) -> bool:
        """Write what has changed with the place; where nothing has, now and then the place alone."""
        assert self._written is not None
        if changed or self._clock.elapsed() - self._noted >= NOTE:
            if not await self._store.save_alerts(changed, (self._written, place)):
                return False
            self._written, self._noted = place, self._clock.elapsed()
            if changed:
                self._tell_after = 0.0
        self._place = place
        return True

    # ── looks ──
    async def _look(self) -> None:
        """Look for what no event tells, as far as rules ask for it."""
        now, wanted = await self._store.now(), {rule.when for rule in self._rules if rule.enabled}
        nodes = await self._store.list_nodes() if wanted & {"node_gone", "disk_full"} else []
        if "node_gone" in wanted:
            await self._take("node_gone", node_signs(nodes, now), now)
        if "disk_full" in wanted:
            disks = await self._store.load_disks(now - DISK_HOLDS)
            await self._take("disk_full", disk_signs(disks, nodes, now), now)
        if "queue_waiting" in wanted:
            await self._take("queue_waiting", await self._queue_signs(now), now)
        if "slow" in wanted:
            unusual = await self._store.list_unusual(MOST_LATE)
            await self._take("slow", slow_signs(unusual, await self._facts(unusual), now), now)
        if "late" in wanted:
            await self._look_for_late(now)
        if "silent" in wanted:
            changed = find_silent(self._rules, await self._store.load_alerts([""]), now)
            await self._keep(changed)
        if await self._store.remind(now):
            self._tell_after = 0.0

    async def _queue_signs(self, now: Moment) -> list[Sign]:
        return queue_signs(await self._store.list_queues(), await self._store.load_queue_figures(), now)

    async def _look_for_late(self, now: Moment) -> None:
        shortest = min(rule.after or 0.0 for rule in self._rules if rule.when == "late")
        late = await self._store.list_late(now - round(shortest * SECOND), MOST_LATE)
        if late:
            signs = late_signs(late, await self._facts([one.job_id for one in late]), now)
            await self._keep(await self._followed(signs, now))

    async def _facts(self, job_ids: Sequence[int]) -> dict[int, JobFacts]:
        return await self._store.load_job_facts(job_ids) if job_ids else {}

    async def _take(self, when: str, signs: Sequence[Sign], now: Moment) -> None:
        names = sorted({rule.name for rule in self._rules if rule.when == when})
        alerts = await self._store.load_alerts_of(names)
        await self._keep(follow_look(self._rules, when, alerts, signs, now))

    async def _keep(self, changed: Mapping[Key, Alert | None]) -> None:
        if changed:
            await self._store.save_alerts(changed)
            self._tell_after = 0.0

    # ── telling ──
    async def _tell(self) -> None:
        """Tell what is due, and note when the next is."""
        now, self._tell_after = await self._store.now(), None
        groups = await self._store.load_groups()
        spoken = await self._store.load_spoken() if groups else {}
        rules = {(rule.org, rule.name): rule for rule in self._rules if rule.enabled}
        for group in groups:
            rule, said = rules.get((group.org, group.rule)), spoken.get((group.org, group.rule))
            if rule is None or said is None:
                continue
            wait = (due_at(rule, group, said.told_at) - now) / SECOND
            if wait <= 0:
                await self._tell_group(rule, group, said, now)
            else:
                at = self._clock.elapsed() + wait
                self._tell_after = at if self._tell_after is None else min(at, self._tell_after)

    async def _tell_group(self, rule: Rule, group: Group, spoken: Spoken, now: Moment) -> None:
        shown = await self._with_messages(await self._store.load_pending(group.org, group.rule, SHOWN))
        if await self._store.tell(group, rule, spoken, compose(rule, group, shown, now), now):
            self.on_told()
        else:
            self._tell_after = 0.0  # somebody else has told something

    async def _with_messages(self, alerts: Sequence[Alert]) -> list[Alert]:
        """Return alerts with what their runs say of themselves."""
        ids = [alert.run_id for alert in alerts if alert.run_id is not None]
        said = {run.id: run.message for run in await self._store.load_runs(ids)} if ids else {}
        return [
            replace(alert, text=f"{alert.text}: {' '.join(said[alert.run_id].split())[:200]}")
            if alert.run_id is not None and said.get(alert.run_id) else alert
            for alert in alerts
        ]  # fmt: skip
