"""Loops and signals: the roles of a process, each a few lines around a service.

Every role lives the same life: start, tick until told to stop, give back what it holds. A tick that fails
because the store cannot be reached is repeated with a growing pause; anything else ends the process, loudly.

Stopping order matters: the scheduler first, so that nothing new is fired here; then the agent drains, while
the coordinator still beats and leads, or peers would reap runs that are just finishing; then the lease.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import structlog

from horae.app.pace import Pace
from horae.core.model import SECOND, Moment
from horae.errors import Unavailable
from horae.ports.clock import Clock
from horae.ports.transport import Link, Queue
from horae.service.agent.agent import RUNS_PER_CLAIM, Agent
from horae.service.agent.delivery import RESULTS_PER_REPORT
from horae.service.alerts.disks import AlertDisks
from horae.service.alerts.telling import AlertTelling
from horae.service.alerts.watching import AlertWatching
from horae.service.audit import Audit
from horae.service.audit.sealing import Sealer
from horae.service.cluster.coordination import Cluster
from horae.service.external.dispatching import Dispatching
from horae.service.external.pushing import Pushing
from horae.service.firing import Firing
from horae.service.insight.learning import Learning
from horae.service.jobs.inbox import Inbox
from horae.service.jobs.overdue import Overdue
from horae.service.policy.barring import Barring
from horae.service.retention import Retention
from horae.service.workflows.driver import Driver

log = structlog.get_logger()

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0  # seconds between tries when the store is away
MIN_SWEEP_GAP = 0.02  # seconds between sweeps for hints: a flood of submits costs fifty sweeps a second at most
OWN = 5.0  # seconds after which a scheduler asks which segments are its own, should nobody tell it
BREATH = 0.01  # seconds after moments have fired in which their runs are claimed, before more of the past is written
LONGEST_BREATH = 0.1  # seconds after which it is the past's turn, however much fires
LOOK_FOR_WORKERS = 1.0  # seconds between looks for workers that can be called, and for what they shall stop
PUSH_GAP = 0.05  # seconds between two rounds of calls to them
HEALTH = 10.0  # seconds between two questions how they are
SEAL, SEAL_SOON = 3.0, 0.5  # seconds between looks for rows of the audit log, and while there are some
PURGE = 60.0  # seconds between looks for what is past its time
TIDY = 3600.0  # seconds between looks for output that nothing points at
LEARN = 60.0  # seconds between looks at how long runs took
NEXT_PURGE = 0.1  # and between batches of it: others have their turn
PROGRESS_GAP = 1.0  # seconds between two words on how far the work of an agent is
INBOX_SOON, INBOX_LATE = 0.002, 0.1  # seconds between looks at the inbox: while work arrives, and when none has
INBOX_BESIDE = 1.0  # the latter where another leads, who looks as often
INBOX_TEND = 5.0  # seconds between looks at whether it is used and how full it is, and for jobs that were resumed
INBOX_UNUSED = 1.0  # seconds for which whoever drains it rests, without a look, where nobody has ever used it
LOOK_FOR_ENDINGS = 2.0  # seconds after which a server looks for ends of runs of which nobody told it
POLL = 5.0  # seconds after which an agent looks for runs that nobody announced;
REMOTE_POLL = 60.0  # where a server looks on behalf of all its agents
ROOM = 0.02  # seconds for which an agent waits at most until a large claim fits, where thousands of runs start a second
BEAT_PAUSE = 0.5  # longest between two tries of a beat: every further second is one of the lease


async def persist(
    name: str, step: Callable[[], Awaitable[None]], clock: Clock, *, longest: float = LONGEST_PAUSE
) -> None:
    """Repeat a step for ever; wait and try again while the store is out of reach."""
    pause = FIRST_PAUSE
    while True:
        try:
            await step()
            pause = FIRST_PAUSE
        except Unavailable as error:
            log.warning("store.unavailable", role=name, error=error.message, retry_seconds=pause)
            await clock.sleep(pause)
            pause = min(pause * 2, longest)


class SchedulerRole:
    """Fires the moments of its segments, each at its time."""

    def __init__(self, firing: Firing, cluster: Cluster, queue: Queue, clock: Clock, *, scan_interval: float) -> None:
        self._firing = firing
        self._cluster = cluster
        self._due = queue.watch("due")
        self._clock = clock
        self._scan_interval = scan_interval
        self._pace = Pace(clock)
        self._swept = self._asked = self._caught_up = 0.0
        self._hinted = True

    async def step(self) -> None:
        """Fire what is due, then sleep until the next moment, a hint or the next sweep."""
        elapsed = self._clock.elapsed()
        if self._hinted or self._firing.is_superseded or elapsed - self._asked >= OWN:
            self._firing.own(await self._cluster.own_segments())
            self._asked = elapsed
        sweep = self._hinted or elapsed - self._swept >= self._scan_interval
        if sweep:
            await self._firing.set_clock()
        await self._firing.refill(sweep=sweep)
        if sweep:
            self._swept, self._hinted = elapsed, False
        taken = self._firing.taken
        wake_at = await self._firing.tick()
        if sweep:
            self._firing.note_scan(self._clock.elapsed() - elapsed)
        taken = self._firing.taken - taken
        if self._firing.is_behind:
            wake_at = await self._catch_up(wake_at, has_fired=taken > 0)
        pause = self._pace.after(taken)
        seconds = min((wake_at - self._firing.now()) / SECOND, self._scan_interval)
        self._hinted = await self._due.wait(max(pause, seconds))  # also when late: others have their turn
        if self._hinted:
            gap = self._swept + MIN_SWEEP_GAP - self._clock.elapsed()
            await self._clock.sleep(gap) if gap > 0 else None

    async def _catch_up(self, wake_at: Moment, *, has_fired: bool) -> Moment:
        """A portion of what was missed, unless moments have just fired or are about to; return when to look again."""
        firing = self._firing
        portion = round(firing.backlog.seconds * SECOND)
        is_its_turn = self._clock.elapsed() - self._caught_up >= LONGEST_BREATH
        if not is_its_turn and has_fired:
            return min(wake_at, firing.now() + round(BREATH * SECOND))
        if not is_its_turn and wake_at - firing.now() < portion:
            return wake_at
        await firing.catch_up()
        self._caught_up = self._clock.elapsed()
        return firing.now()

    async def run(self) -> None:
        await persist("scheduler", self.step, self._clock)


class WorkflowRole:
    """Does what servers do themselves, as soon as there is something: it is told, and looks now and then."""

    def __init__(self, driver: Driver, queue: Queue, clock: Clock) -> None:
        self._driver = driver
        self._endings = queue.watch("endings")
        self._clock = clock

    async def step(self) -> None:
        if not await self._driver.step():
            await self._endings.wait(LOOK_FOR_ENDINGS)

    async def run(self) -> None:
        await persist("workflows", self.step, self._clock)


class CoordinatorRole:
    """Watches the nodes and campaigns for the lead; as leader, looks after nodes, segments and waiting runs.

    Three loops, because none may wait for another: the lease is renewed whatever the leader is at, and what takes long
    and can wait is done apart from both.
    """

    def __init__(
        self,
        cluster: Cluster,
        queue: Queue,
        clock: Clock,
        *,
        interval: float,
        look: float,
        overdue: Overdue | None = None,
        barring: Barring | None = None,
    ) -> None:
        """A leader renews its lease every `interval`; who beats and who leads is looked at every `look` seconds. What
        is `overdue` at the start is enqueued by the first that leads; `barring` ends what waits of owners that may not
        run it any more."""
        self._overdue = overdue
        self._barring = barring
        self._cluster = cluster
        self._waiting, self._nodes = queue.watch("waiting"), queue.watch("nodes")
        self._clock = clock
        self._interval = interval
        self._look = look
        self._looked_at = float("-inf")

    async def campaign(self) -> None:
        """Renew the lease, or watch that of the leader."""
        leads = await self._cluster.campaign()
        await self._clock.sleep(self._interval if leads else self._look)

    async def step(self) -> None:
        cluster, now = self._cluster, self._clock.elapsed()
        is_told = self._nodes.is_due and await self._nodes.wait(0)
        if is_told or now - self._looked_at >= self._look:
            await (cluster.lead() if cluster.is_leader else cluster.look())
            self._looked_at = now
        more = await cluster.sweep() if cluster.is_leader else None
        longest = min(1.0, self._look)
        wait = longest if more is None else min(more, longest)
        if wait > 0:
            await self._waiting.wait(wait)

    async def tidy(self) -> None:
        if self._overdue is not None:
            await (self._overdue.enqueue() if self._cluster.is_leader else self._overdue.begin())
        if self._cluster.is_leader:
            await self._cluster.tidy()
            if self._barring is not None:
                await self._barring.tend()
        await self._clock.sleep(self._look)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(persist("leader", self.campaign, self._clock, longest=self._look))
            group.create_task(persist("coordinator", self.step, self._clock))
            group.create_task(persist("upkeep", self.tidy, self._clock))


class OutsideRole:
    """Where it leads, sends on what workers outside Horae lost or failed at. Apart from leading: they may be slow to
    answer."""

    def __init__(self, cluster: Cluster, dispatching: Dispatching, clock: Clock, *, look: float) -> None:
        self._cluster = cluster
        self._dispatching = dispatching
        self._clock = clock
        self._look = look

    async def step(self) -> None:
        if self._cluster.is_leader and self._cluster.has_outside:
            await self._dispatching.reassign()
        await self._clock.sleep(self._look)

    async def run(self) -> None:
        await persist("outside workers", self.step, self._clock)


class PushRole:
    """Where it leads, sends runs to workers outside Horae that can be called, asks for their health, and tells them
    what to stop. Three loops, because a worker that is slow to answer must hold up nothing else."""

    def __init__(self, cluster: Cluster, pushing: Pushing, queue: Queue, clock: Clock) -> None:
        self._cluster = cluster
        self._pushing = pushing
        self._runs, self._cancels = queue.watch("runs"), queue.watch("cancel")
        self._clock = clock

    async def push(self) -> None:
        """Without such workers nobody waits for runs: there may be thousands a second."""
        if not self._may_be_needed or not await self._pushing.has_workers():
            await self._clock.sleep(LOOK_FOR_WORKERS)
        elif not await self._pushing.push():
            await self._runs.wait(LOOK_FOR_WORKERS)
        await self._clock.sleep(PUSH_GAP)

    async def ask_health(self) -> None:
        if self._may_be_needed:
            await self._pushing.ask_health()
        await self._clock.sleep(HEALTH)

    async def tell_cancelled(self) -> None:
        if self._may_be_needed:
            await self._pushing.tell_cancelled()
        await self._cancels.wait(LOOK_FOR_WORKERS)
        await self._clock.sleep(PUSH_GAP)

    @property
    def _may_be_needed(self) -> bool:
        """Costs no statement: whoever leads looks at all nodes anyway."""
        return self._cluster.is_leader and self._cluster.has_outside

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(persist("push", self.push, self._clock))
            group.create_task(persist("health", self.ask_health, self._clock))
            group.create_task(persist("cancel", self.tell_cancelled, self._clock))


class InboxRole:
    """Moves what others handed over in their own transactions on to the agents. Nobody tells when such a transaction
    commits, unless it cares to, so it looks: often while work arrives, and ten times a second when none has. Where
    nobody has ever handed anything over, nor may, it does not look at all."""

    def __init__(self, cluster: Cluster, inbox: Inbox, queue: Queue, clock: Clock) -> None:
        self._cluster = cluster
        self._inbox = inbox
        self._hint = queue.watch("inbox")
        self._clock = clock
        self._pause = INBOX_SOON

    async def step(self) -> None:
        if not self._inbox.is_used:
            if await self._hint.wait(INBOX_UNUSED):
                await self._inbox.tend()
            return
        if await self._inbox.drain():
            self._pause = INBOX_SOON
        longest = INBOX_LATE if self._cluster.is_leader else INBOX_BESIDE
        is_hinted = await self._hint.wait(self._pause)
        self._pause = INBOX_SOON if is_hinted else min(self._pause * 1.5, longest)

    async def tend(self) -> None:
        await self._inbox.tend()
        await self._clock.sleep(INBOX_TEND)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(persist("inbox", self.step, self._clock))
            group.create_task(persist("inbox", self.tend, self._clock))


class RetentionRole:
    """Tidies this node's outputs now and then; where it leads, drops what is past its time, apart from leading,
    which must not wait for it."""

    def __init__(self, cluster: Cluster, retention: Retention, clock: Clock) -> None:
        self._cluster = cluster
        self._retention = retention
        self._clock = clock
        self._tidied_at = float("-inf")

    async def step(self) -> None:
        if self._clock.elapsed() - self._tidied_at >= TIDY:
            await self._retention.tidy(is_leader=self._cluster.is_leader)
            self._tidied_at = self._clock.elapsed()
        has_more = self._cluster.is_leader and await self._retention.purge()
        await self._clock.sleep(NEXT_PURGE if has_more else PURGE)

    async def run(self) -> None:
        await persist("retention", self.step, self._clock)


class AuditRole:
    """Where it leads, seals the audit log and drops what is past its time; everywhere, tells of refusals."""

    def __init__(self, cluster: Cluster, audit: Audit, sealer: Sealer, clock: Clock) -> None:
        self._cluster = cluster
        self._audit = audit
        self._sealer = sealer
        self._clock = clock
        self._dropped_at = float("-inf")

    async def step(self) -> None:
        await self._audit.tell_refused()
        sealed = await self._sealer.seal() if self._cluster.is_leader else 0
        if self._cluster.is_leader and self._clock.elapsed() - self._dropped_at >= PURGE:
            has_more = await self._sealer.drop()
            self._dropped_at = self._dropped_at if has_more else self._clock.elapsed()
        await self._clock.sleep(SEAL_SOON if sealed else SEAL)

    async def run(self) -> None:
        await persist("audit", self.step, self._clock)


class LearningRole:
    """Where it leads, learns how long runs take, now and then."""

    def __init__(self, cluster: Cluster, learning: Learning, clock: Clock) -> None:
        self._cluster = cluster
        self._learning = learning
        self._clock = clock

    async def step(self) -> None:
        if self._cluster.is_leader and (learned := await self._learning.learn()).unusual:
            log.info("durations.unusual", jobs=learned.unusual[:10], count=len(learned.unusual))
        await self._clock.sleep(LEARN)

    async def run(self) -> None:
        await persist("learning", self.step, self._clock)


class AlertRole:
    """Where it leads, turns what happens into messages and sends them, apart from each other: a channel may be slow. On
    every server, notes how full its disk is, where somebody asks."""

    def __init__(self, watching: AlertWatching, telling: AlertTelling, disks: AlertDisks, clock: Clock) -> None:
        self._watching = watching
        self._telling = telling
        self._disks = disks
        self._clock = clock

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(persist("alerts", self._watching.step, self._clock))
            group.create_task(persist("alert messages", self._telling.step, self._clock))
            group.create_task(persist("disks", self._disks.step, self._clock))


class AgentRole:
    """Keeps an agent claiming, reporting and beating."""

    def __init__(self, agent: Agent, link: Link, clock: Clock, *, interval: float, poll: float = POLL) -> None:
        """`poll`: seconds after which it looks for runs that nobody announced."""
        self._agent = agent
        self._poll = poll
        self._pace, self._claim_pace = Pace(clock), Pace(clock)
        self._link = link
        self._clock = clock
        self._interval = interval

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(persist("agent", self._claim, self._clock))
            group.create_task(persist("agent", self._report, self._clock))
            group.create_task(persist("agent", self._beat, self._clock, longest=BEAT_PAUSE))
            group.create_task(persist("agent", self._send_phases, self._clock))
            group.create_task(persist("agent", self._send_progress, self._clock))
            group.create_task(persist("agent", self._send_ailment, self._clock))
            group.create_task(self._keep())
            group.create_task(self._recover())

    async def _keep(self) -> None:
        while True:
            await self._agent.delivery.results_made.wait()
            await self._agent.delivery.keep()

    async def _recover(self) -> None:
        while True:
            await self._agent.health.recover()

    async def _send_ailment(self) -> None:
        await self._agent.health.changed.wait()
        await self._agent.delivery.send_ailment()

    async def _send_phases(self) -> None:
        await self._agent.delivery.phases_changed.wait()
        await self._agent.delivery.send_phases()

    async def _send_progress(self) -> None:
        await self._agent.delivery.progress_made.wait()
        await self._agent.delivery.send_progress()
        await self._clock.sleep(PROGRESS_GAP)

    async def _claim(self) -> None:
        agent = self._agent
        agent.workload.slot_freed.clear()
        if agent.is_hungry and (count := await agent.claim()):
            await asyncio.sleep(0)  # what was started runs while more is fetched
            if self._claim_pace.after(count):
                await self._room()
            return
        if agent.is_hungry or agent.draining:
            await self._clock.sleep(FIRST_PAUSE)  # results pile up, or nothing may be taken
        await self._next_chance()

    async def _room(self) -> None:
        """Until a large claim fits, but not for long: it costs much the same for few runs."""
        workload = self._agent.workload
        with suppress(TimeoutError):
            async with asyncio.timeout(ROOM):
                while workload.hungry and not workload.has_room_for(RUNS_PER_CLAIM):
                    workload.slot_freed.clear()
                    await workload.slot_freed.wait()

    async def _next_chance(self) -> None:
        """Until runs are announced, a slot of a wanted kind is free, or the poll is due."""
        freed = asyncio.create_task(self._agent.workload.slot_freed.wait())
        told = asyncio.create_task(self._link.wait("runs", self._poll))
        try:
            await asyncio.wait((freed, told), return_when=asyncio.FIRST_COMPLETED)
            if told.done():
                told.result()
                self._agent.workload.wake()
        finally:
            for task in (freed, told):
                task.cancel()
            await asyncio.gather(freed, told, return_exceptions=True)

    async def _report(self) -> None:
        await self._agent.delivery.results_ready.wait()
        count = await self._agent.delivery.report()
        pause = self._pace.after(count)
        if pause and count < RESULTS_PER_REPORT:
            await self._clock.sleep(pause)

    async def _beat(self) -> None:
        """With work in hand, more often: what an outage leaves of the lease is counted from the last beat before it."""
        await self._agent.leash.beat()
        rest = self._agent.leash.heartbeat_seconds or self._interval
        while rest > 0:
            step = min(rest, self._agent.leash.renewal_seconds)
            if await self._link.wait("cancel", step) or self._agent.busy:
                return
            rest -= step
