"""The agent: claims runs, executes them, reports.

    claim ──► start ──► (executor works, output streams to files) ──► done ──► report, in batches

It reaches the service through a Link only, never the store. Here is the work itself, from the claim to its result, and
the life of the agent around it. Beside it:

    workload   what it holds, and what may still be claimed
    delivery   results and news on their way to the service
    leash      the lease, without which the keeper kills all work

Work may outlive its agent, within that lease. The next one takes it up before it joins, and asks first: a node that was
declared gone has nothing any more, and what is not its own in the books is killed. Only then is the lease renewed.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec
import structlog

from horae.core.model import Json, Moment, Node, Phase, Reason, State
from horae.core.policy.resources import asks_of
from horae.core.runs import lifecycle
from horae.core.runs.holdings import Fenced
from horae.core.runs.orders import Assignment, Result
from horae.core.work import kinds, policies
from horae.core.work.progress import read_progress
from horae.errors import Error, Unavailable
from horae.ports.clock import Clock
from horae.ports.outputs import Output, OutputWriter, Spool
from horae.ports.telemetry import SpanSink
from horae.ports.transport import Link
from horae.ports.work import Executor, Keeper, Kept, LastingExecutor, Memo, Sandbox, Step, Work
from horae.service.agent.delivery import Delivery
from horae.service.agent.health import Examine, Health, always_well
from horae.service.agent.leash import Leash
from horae.service.agent.secrets import Secrecy
from horae.service.agent.spans import AttemptSpans
from horae.service.agent.workload import Successor, Workload
from horae.service.results import make_sound

log = structlog.get_logger()
T = TypeVar("T")

RUNS_PER_CLAIM = 1000  # in one statement
MOST_UNREPORTED = 20_000  # results waiting for the service beyond which nothing more is claimed
LOOK_SECONDS = 0.1  # between looks at what still runs
LINGER_SECONDS = 5.0  # for work to end by itself before it is left to the next agent


class Instructions(NamedTuple):
    """What an agent reads of a job."""

    spec: Json
    timeout_seconds: float | None
    asks_previous: bool  # for the result of the job's last success
    names_secrets: bool
    asks_more: bool  # than a slot


@lru_cache(maxsize=10_000)
def _read(spec: str, policy: str) -> Instructions:
    """Of the texts of a job, read once however many runs it has."""
    read = msgspec.json.decode(spec, type=dict[str, Any])
    rules = policies.policy_from_text(policy)
    return Instructions(
        read,
        rules.timeout_seconds,
        bool(read.get("previous_result")),
        '"secret"' in spec,
        bool(asks_of(rules.resources)),
    )


def read_assignment(a: Assignment) -> Instructions:
    """Return them with the source that the spec names, if it does."""
    read = _read(a.spec, a.policy)
    if a.source is None:
        return read
    return read._replace(spec={**read.spec, "source": msgspec.json.decode(a.source)})


class Made(NamedTuple, Generic[T]):
    """A run that is given to whoever makes it."""

    answer: T
    ours: Sequence[Assignment] | None = ()  # None: there may be something, and we do not know what


class Agent:
    def __init__(
        self,
        node: Node,
        link: Link,
        executors: Mapping[str, Executor],
        files: OutputWriter,
        keeper: Keeper,
        clock: Clock,
        *,
        lease_seconds: float,
        output_limit: int,
        spool: Spool | None = None,
        sandboxes: Sequence[Sandbox] = (),
        examine: Examine = always_well,
        installation: str = "",
        spans: SpanSink | None = None,
        trace_ratio: float | None = None,
    ) -> None:
        """The lease, the `installation` and the `trace_ratio` hold until the service names its own. `spool` keeps
        results over a crash. `sandboxes` are those that the executors use. `examine` looks whether this machine can
        work. `spans` takes what is told of attempts."""
        self.node = node
        self._link = link
        self._executors = executors
        self._files = files
        self._keeper = keeper
        self._clock = clock
        self._output_limit = output_limit
        self._sandboxes = sandboxes
        self._secrecies: dict[int, Secrecy] = {}  # of held runs that use secrets
        self._preparing: set[int] = set()  # held runs of which it was told that they prepare
        self._is_handed_on = False  # work was left to the next agent
        self.draining = False
        self.health = Health(clock, examine, self._go_on)
        self.workload = Workload(executors, keeper, node.resources)
        self.delivery = Delivery(link, self.workload, self.health, spool)
        self.leash = Leash(node, link, keeper, clock, self.workload, self.delivery, self.health, lease_seconds)
        self.leash.installation, self.leash.trace_ratio = installation, trace_ratio
        self._spans = AttemptSpans(spans, node.name)

    @property
    def busy(self) -> int:
        return self.workload.busy

    def capacity(self, kind: str) -> int:
        """Return how many more runs of a kind could be started now."""
        if self.draining or self.leash.cordoned or self.health.ailment or not self.leash.is_joined:
            return 0
        return self.workload.free[kind]

    @property
    def is_hungry(self) -> bool:
        """Whether a claim makes sense now: free slots for kinds of which more may wait, or doubts to clear first."""
        return self.leash.in_doubt or self.workload.has_hunger

    def _go_on(self) -> None:
        """The machine is well again."""
        self.workload.wake()
        self.workload.slot_freed.set()
        self.delivery.results_made.set()

    async def join(self) -> None:
        """Come up: no work of an earlier life is alive, and the service has taken back what it held."""
        await self.prepare()
        await self.leash.greet()

    async def prepare(self) -> None:
        """Be ready to work. What an earlier life finished and could not report is reported now."""
        await self._keeper.open()
        kept = list(self._keeper.kept)
        for sandbox in self._sandboxes:
            await sandbox.open([one.name for one in kept])
        for laster in self.workload.lasters.values():
            laster.expect(kept)
        for executor in self._executors.values():
            await executor.open()
        await self.delivery.load([_fenced(one) for one in kept])
        await self._take_up(kept)

    # ── taking up ──
    async def _take_up(self, kept: Sequence[Kept]) -> None:
        """Go on with work that outlived an earlier life of this agent; what we cannot go on with is dead before we
        join."""
        known = self.delivery.attempts()
        for one in kept:
            try:
                memo = msgspec.json.decode(one.memo, type=Memo)
                executor = self.workload.lasters.get(memo.assignment.kind)
                if _fenced(one) in known or executor is None:
                    raise Error("its result is known, or nobody here does such work")
                await self._take_up_one(executor, one, memo)
            except (Error, msgspec.MsgspecError, ValueError, TypeError) as error:
                log.warning("work.dropped", attempt=one.name, error=str(error))
                await one.process.kill(0)
                os.close(one.source)
                os.close(one.file)
                self._keeper.release(one.name)
        if held := self.workload.held:
            log.info("work.taken_up", attempts=",".join(f"{run_id}-{one.fence}" for run_id, one in held.items()))

    async def _take_up_one(self, executor: LastingExecutor, kept: Kept, memo: Memo) -> None:
        a, read = memo.assignment, read_assignment(memo.assignment)
        timeout = read.timeout_seconds
        output = await self._files.reopen(a.run_id, a.attempt, a.fence, self._output_limit)
        may_outlive = self.workload.may_outlive_us(a.kind)
        work = self._work(a, read, output, self._clock.now(), None, may_outlive=may_outlive)
        if (read.names_secrets or a.kind in kinds.WITH_SECRETS) and (why := self._give_secrets(work)):
            raise Error(why)
        executor.take_up(work, kept, memo, self._done)
        rest = None if timeout is None else max(0.0, timeout - (self._clock.elapsed() - memo.begun))
        self.workload.hold(executor, [a], [rest])
        self.workload.is_idle.clear()

    # ── claim and start ──
    async def claim(self) -> int:
        """Fill the free slots once; return how many runs were started."""
        if self.draining or not self.leash.is_joined or self.leash.is_over:
            return 0
        if self.leash.in_doubt:
            await self.leash.clear_doubt()
            if self.leash.is_over:  # the answer took its time
                return 0
        if self.leash.cordoned or self.health.ailment or self.delivery.waiting > MOST_UNREPORTED:
            return 0
        free = self.workload.free
        capacity = {kind: min(free[kind], RUNS_PER_CLAIM) for kind in self.workload.hungry if free[kind] > 0}
        if not capacity:
            return 0
        life = self.leash.life
        claimed = await self._claim(capacity)
        found = Counter([a.kind for a in claimed])
        self.workload.hungry -= {kind for kind, limit in capacity.items() if found[kind] < limit}
        return await self._take(claimed, life) if claimed else 0

    async def _claim(self, capacity: Mapping[str, int]) -> list[Assignment]:
        self.leash.claims += 1
        try:
            return await self._link.claim(capacity, dict(self.workload.free_resources))
        except Unavailable:
            self.leash.in_doubt = True
            raise
        finally:
            self.leash.claims -= 1

    # ── what starts as it is made ──
    def may_take_new(self, kind: str) -> bool:
        """Return whether a run that is being made could start here: a slot is free, as far as we know nothing waits for
        it, and no claim is under way that may bring something for it."""
        leash, workload = self.leash, self.workload
        is_sure = not (leash.claims or leash.in_doubt or leash.is_over or leash.agreeing.locked())
        is_sated = kind in workload.free and kind not in workload.hungry
        return is_sure and is_sated and self.capacity(kind) > 0 and self.delivery.waiting <= MOST_UNREPORTED

    async def take_new(self, kind: str, make: Callable[[], Awaitable[Made[T]]]) -> T:
        """Start a run as soon as it is made, and return what came of making it. Its slot is kept meanwhile. It is
        ours from the moment that it is made: should the answer be lost, we are in doubt, as after a claim."""
        leash, free = self.leash, self.workload.free
        async with leash.agreeing:
            life = leash.life
            free[kind] -= 1
            leash.claims += 1
            try:
                made = await make()
                if made.ours:
                    await self._take(made.ours, life)
                elif made.ours is None:
                    leash.doubt()
            except BaseException:
                leash.doubt()
                raise
            finally:
                free[kind] += 1
                leash.claims -= 1
        return made.answer

    async def _take(self, claimed: Sequence[Assignment], life: int) -> int:
        """Start what was claimed, or hand it back: nothing that is ours may lie about unstarted."""
        read = [(a, told) for a in claimed if (told := self._read(a)) is not None]
        curious = {a.job_id for a, told in read if told.asks_previous}
        try:
            previous = await self._link.load_previous(sorted(curious)) if curious else {}
        except BaseException:
            self._hand_back([a for a, _ in read])
            raise
        if self.draining or self.health.ailment or life != self.leash.life or self.leash.is_over:
            self._hand_back([a for a, _ in read])
            return 0
        if demanding := [a for a, told in read if told.asks_more]:
            read = self._within_room(read, demanding)
        fresh: dict[str, list[tuple[Assignment, Instructions]]] = {}
        held = self.workload.held
        for each in read:
            a = each[0]
            if a.run_id in held:
                self._wait_for_copy(self._executors[a.kind], a, previous.get(a.job_id))
            else:
                fresh.setdefault(a.kind, []).append(each)
        for kind, works in fresh.items():
            self._start(self._executors[kind], works, previous)
        return len(read)

    def _within_room(
        self, read: list[tuple[Assignment, Instructions]], demanding: Sequence[Assignment]
    ) -> list[tuple[Assignment, Instructions]]:
        """Return what we have room for; the rest is handed back, with the reason. Most ask for a slot alone, and those
        were claimed for free ones: but for the `demanding` they are only counted."""
        every, asking = [a.kind for a, _ in read], [a.kind for a in demanding]
        plain = {kind: every.count(kind) - asking.count(kind) for kind in {*asking}}
        beyond = self.workload.beyond_room(demanding, plain)
        if not beyond:
            return read
        self._hand_back(beyond, Reason.LIMIT, f"the agent {self.node.name} has less free than it asks for")
        return [each for each in read if each[0] not in beyond]

    def _read(self, a: Assignment) -> Instructions | None:
        """Fail a run whose job this agent cannot read: a newer version may have written it. The others go on."""
        try:
            return read_assignment(a)
        except (ValueError, TypeError, AttributeError) as error:
            now = self._clock.now()
            message = f"the agent {self.node.name} (version {self.node.version}) cannot read this job: {error}"
            self.delivery.add(Result(a.run_id, a.fence, State.FAILED, Reason.ERROR, now, now, message=message))
            self.delivery.announce()
            return None

    def _wait_for_copy(self, executor: Executor, a: Assignment, previous: str | None) -> None:
        """A run is given to us of which we still have an earlier attempt at work: that one was taken from us without
        our knowing. It is killed, and certainly gone before the new one starts."""
        self.workload.add_successor(Successor(executor, a, previous))
        self.workload.let_go(a.run_id)

    def _start_successor(self, run_id: int) -> None:
        executor, a, previous = self.workload.pop_successor(run_id)
        if self.draining or self.health.ailment or not self.leash.is_joined or self.leash.is_over:
            self._hand_back([a])
        else:
            self._start(executor, [(a, read_assignment(a))], {} if previous is None else {a.job_id: previous})

    def _hand_back(self, claimed: Sequence[Assignment], reason: str = "", message: str = "") -> None:
        now = self._clock.now()
        for a in claimed:
            self.delivery.add(Result(a.run_id, a.fence, State.QUEUED, reason, finished_at=now, message=message))
        self.delivery.announce()

    def _start(
        self, executor: Executor, read: Sequence[tuple[Assignment, Instructions]], previous: Mapping[int, str]
    ) -> None:
        """What is of one kind."""
        now = self._clock.now()
        self.workload.hold(executor, [a for a, _ in read], [told.timeout_seconds for _, told in read])
        works, refused = [], []
        open_output, limit = self._files.open, self._output_limit
        has_secrets, may_outlive = executor.kind in kinds.WITH_SECRETS, self.workload.may_outlive_us(executor.kind)
        for a, told in read:
            output = open_output(a.run_id, a.attempt, a.fence, limit)
            work = self._work(a, told, output, now, previous.get(a.job_id), may_outlive=may_outlive)
            if (has_secrets or told.names_secrets) and (why := self._give_secrets(work)):
                refused.append(Result(a.run_id, a.fence, State.FAILED, Reason.ERROR, now, now, message=why))
            else:
                works.append(work)
        self.workload.is_idle.clear()
        executor.start(works, self._done)
        for result in refused:
            self._done(result)

    def _work(
        self, a: Assignment, read: Instructions, output: Output, now: Moment, previous: str | None, *, may_outlive: bool
    ) -> Work:
        trace, has_spans = self._spans.begin(a, self.leash.installation, self.leash.trace_ratio)
        return Work(
            a, read.spec, output, read.timeout_seconds, now, previous, a.cursor, self,
            a if may_outlive else None, self.leash.installation, trace=trace, has_spans=has_spans,
        )  # fmt: skip

    def _give_secrets(self, work: Work) -> str:
        """Return why the work cannot be started, if a secret is missing; else it has those that it needs."""
        a = work.assignment
        others = list(kinds.texts_in(a.kind, work.spec))
        if not others and '"secret"' not in a.spec and a.source is None:
            return ""
        secrecy = self._secrecies[a.run_id] = Secrecy(a.secrets, others)
        return secrecy.cover(work, self._files.ref(a.run_id, a.attempt, a.fence))

    # ── what the work tells ──
    def note_phase(self, assignment: Assignment, phase: Phase) -> None:
        """Most work runs from the start, which the service knows: nothing is told of it, unless it was preparing."""
        run_id, kind = assignment.run_id, assignment.kind
        if run_id not in self.workload.held or not lifecycle.may_prepare(kind):
            return
        if phase is Phase.PREPARING:
            self._preparing.add(run_id)
        if run_id in self._preparing or lifecycle.first_phase(kind) is Phase.PREPARING:
            self.delivery.note_phase((assignment.run_id, assignment.fence), phase)

    def note_progress(self, assignment: Assignment, progress: Json) -> None:
        run_id = assignment.run_id
        if run_id not in self.workload.held or not (said := read_progress(progress)):
            return
        text = msgspec.json.encode(said).decode()
        secrecy = self._secrecies.get(run_id)
        hidden = text if secrecy is None else secrecy.hide_json(text)
        self.delivery.note_progress((run_id, assignment.fence), hidden)

    def note_step(self, assignment: Assignment, step: Step) -> None:
        self._spans.note_step(assignment, step)

    def _done(self, result: Result) -> None:
        run_id, workload, delivery = result.run_id, self.workload, self.delivery
        running = workload.end(run_id)
        delivery.drop_news(run_id)
        self._preparing.discard(run_id)
        if running is None:
            return
        if result.ailment:
            self.health.note(result.ailment)
        make_sound(result)
        if (secrecy := self._secrecies.pop(run_id, None)) is not None:
            secrecy.hide(result)
        if self._spans.is_telling:
            self._spans.end(result, self._clock.now())
        kind = running.executor.kind
        delivery.add(_handed_back(result) if workload.was_let_go(run_id) else result)
        if run_id in workload.successors:
            self._start_successor(run_id)
        if not workload.held:
            workload.is_idle.set()
        delivery.announce()
        if kind in workload.hungry:
            workload.slot_freed.set()

    # ── stop ──
    async def drain(self, seconds: float) -> None:
        """Claim no more; let what runs finish within the time, then kill it and hand it back."""
        self._stop_claiming()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.workload.is_idle.wait()
        self.workload.let_go_all()
        for executor in self._executors.values():
            await executor.close()
        await self.delivery.report_last()

    def _stop_claiming(self) -> None:
        self.draining = self.delivery.is_last = True

    async def hand_on(self, seconds: float) -> bool:
        """As drain, but leave what can go on without us to the next agent: it has the rest of the lease to come. False
        when there is nothing of that kind."""
        if not self._keeper.keeps:
            await self.drain(seconds)
            return False
        self._stop_claiming()
        await self._linger(seconds)
        lasting = self.workload.lasting()
        for run_id in [run_id for run_id in self.workload.held if run_id not in lasting]:
            self.workload.let_go(run_id)
        for kind, executor in self._executors.items():
            laster = self.workload.lasters.get(kind)
            await (executor.close() if laster is None else laster.leave())
        left = [f"{run_id}-{running.fence}" for run_id in lasting if (running := self.workload.end(run_id)) is not None]
        self._is_handed_on = bool(left)
        if left:
            log.info("work.left", attempts=",".join(left), because="the next agent may take it up")
        await self.delivery.report_last()
        return self._is_handed_on

    async def _linger(self, seconds: float) -> None:
        """Let what runs finish within the time; less when all of it would go on without us."""
        workload, began = self.workload, self._clock.elapsed()
        while workload.held and (waited := self._clock.elapsed() - began) < seconds:
            if waited >= LINGER_SECONDS and set(workload.held) == workload.lasting():
                break
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await workload.is_idle.wait()

    async def leave(self) -> None:
        if self._is_handed_on:  # no goodbye: what we hold is ours until the lease is over
            await self._keeper.leave()
            return
        await self._keeper.close()
        for sandbox in self._sandboxes:
            await sandbox.close()
        await self._link.goodbye()


def _fenced(kept: Kept) -> Fenced:
    run_id, fence = map(int, kept.name.split("-"))
    return run_id, fence


def _handed_back(result: Result) -> Result:
    """Return an attempt that our own stop ended: not its failure, so it goes back to the queue."""
    if result.state is State.SUCCEEDED or result.reason in (Reason.TIMEOUT, Reason.REQUESTED):
        return result
    result.state, result.reason = State.QUEUED, ""
    return result
