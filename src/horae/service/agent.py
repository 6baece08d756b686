"""The agent: claims runs, executes them, reports.

    claim ──► start ──► (executor works, output streams to files) ──► done ──► report, in batches

It reaches the service through a Link only, never the store. It trusts itself no longer than its lease:
the keeper kills all work unless every beat that the service answered renews it, so a run can never go on
here after somebody else was allowed to start it.

Work may outlive its agent, within that lease. The next one takes it up before it joins, and asks first: a node that was
declared gone has nothing any more, and what is not its own in the books is killed. Only then is the lease renewed.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from typing import Any

import msgspec
import structlog

from horae.core import figures, hiding, lifecycle, specs
from horae.core.holdings import Fenced, Holding, holding_of
from horae.core.model import Json, Moment, Node, Phase, Reason, State
from horae.errors import Error, MachineFault, Unavailable
from horae.ports import (
    Assignment,
    Clock,
    Executor,
    Files,
    Keeper,
    Kept,
    LastingExecutor,
    Link,
    Memo,
    Output,
    Result,
    Sandbox,
    Spool,
    Work,
)
from horae.service.health import Examine, Health, always_well
from horae.service.results import make_sound
from horae.service.secrecy import Secrecy

log = structlog.get_logger()

MAX_CLAIM = 1000  # runs claimed in one statement
MAX_UNREPORTED = 20_000  # results waiting for the service beyond which nothing more is claimed
LOOK = 0.1  # seconds between looks at what still runs
LINGER = 5.0  # seconds for work to end by itself before it is left to the next agent
SETTLE = 10.0  # seconds for the last results, and the output they wait for, when the agent stops
RENEWALS = 10  # in the time of one lease, while there is work
SHORTEST_RENEWAL = 0.2  # seconds
TRUST = 0.85  # share of the lease after which the keeper kills: the rest is time for the killing


@lru_cache(maxsize=10_000)
def decode_spec(text: str) -> Any:
    """A job's spec, decoded once per distinct text."""
    return msgspec.json.decode(text)


def _whole_spec(assignment: Assignment) -> Any:
    """The spec, with the source that it names."""
    spec = decode_spec(assignment.spec)
    return spec if assignment.source is None else {**spec, "source": msgspec.json.decode(assignment.source)}


class Agent:
    def __init__(
        self,
        node: Node,
        link: Link,
        executors: Mapping[str, Executor],
        files: Files,
        keeper: Keeper,
        clock: Clock,
        *,
        lease_seconds: float,
        output_limit: int,
        spool: Spool | None = None,
        sandboxes: Sequence[Sandbox] = (),
        examine: Examine = always_well,
    ) -> None:
        """The lease holds until the service names its own. `spool` keeps results over a crash. `sandboxes` are those
        that the executors use. `examine` looks whether this machine can work."""
        self.node = node
        self._link = link
        self._executors = executors
        self._files = files
        self._keeper = keeper
        self._clock = clock
        self._lease = lease_seconds
        self._output_limit = output_limit
        self._spool = spool
        self._sandboxes = sandboxes
        self._kept: set[int] = set()  # results (by id()) that are in the spool
        self.heartbeat_seconds: float | None = None  # as the service wants it
        self._unreleased: set[Fenced] = set()  # attempts that the keeper may still hold for a next life
        self._held: dict[int, tuple[Executor, int, asyncio.TimerHandle | None]] = {}  # run → where, fence, timeout
        self._secrecies: dict[int, Secrecy] = {}  # of held runs that use secrets
        # Found once: to look whether something has all methods of a protocol is slow.
        self._lasters = {kind: one for kind, one in executors.items() if isinstance(one, LastingExecutor)}
        self._free = {kind: executor.slots for kind, executor in executors.items()}
        self._hungry = set(executors)  # kinds of which more may be waiting
        self._results: list[Result] = []
        self._phases: dict[int, tuple[int, Phase]] = {}  # run → fence and phase, of those to be told
        self._progress: dict[int, tuple[int, str]] = {}  # run → fence and progress, of those to be told
        self._reporting = asyncio.Lock()
        self._in_doubt = False  # a claim broke off, or the books differ: runs may be ours without our knowing
        self._is_claiming = False  # what a claim is about to bring is not held yet
        self._compared_at = float("-inf")  # when a beat last said what we hold
        self._let_go: set[int] = set()  # runs that we stop because they are not ours any more
        self._successors: dict[int, tuple[Executor, Assignment, str | None]] = {}  # wait until our copy of it is gone
        self._life = 0  # how often the service gave us up
        self._is_joined = False
        self._trusted_until = 0.0  # by our clock: when the keeper kills all work and starts no more
        self._is_idle = asyncio.Event()  # nothing is held
        self._is_idle.set()
        self.results_ready = asyncio.Event()
        self.results_made = asyncio.Event()  # for the spool
        self.phases_changed = asyncio.Event()
        self.progress_made = asyncio.Event()
        self.slot_freed = asyncio.Event()
        if spool is not None:
            spool.on_settled = self.results_ready.set
        self.health = Health(clock, examine, self._go_on)
        self.draining = False
        self._is_handed_on = False  # work was left to the next agent
        self.cordoned = False  # by its operator: what runs goes on, nothing new is taken

    @property
    def busy(self) -> int:
        return len(self._held)

    @property
    def renewal_seconds(self) -> float:
        """How long to wait between two beats while something is held."""
        return max(self._lease / RENEWALS, SHORTEST_RENEWAL)

    def room(self, kind: str) -> int:
        """How many more runs of a kind could be started now."""
        if self.draining or self.cordoned or self.health.ailment or not self._is_joined:
            return 0
        return self._free[kind]

    @property
    def is_hungry(self) -> bool:
        """Whether a claim makes sense now: free slots for kinds of which more may wait, or doubts to settle first."""
        return self._in_doubt or any(self._free[kind] > 0 for kind in self._hungry)

    async def join(self) -> None:
        """Come up: no work of an earlier life is alive, and the service has taken back what it held."""
        await self.prepare()
        await self.greet()

    async def prepare(self) -> None:
        """Be ready to work. What an earlier life finished and could not report is reported now."""
        await self._keeper.open()
        kept = list(self._keeper.kept)
        for sandbox in self._sandboxes:
            await sandbox.open([one.name for one in kept])
        for laster in self._lasters.values():
            laster.expect(kept)
        for executor in self._executors.values():
            await executor.open()
        if self._spool is not None:
            self._results = await self._spool.load([_fenced(one) for one in kept])
            self._kept = set(map(id, self._results))
            self.results_ready.set()
        await self._take_up(kept)

    async def greet(self) -> None:
        """Join. What was taken up is ours only if the service still knows us, and this is answered within a lease of
        its saying so: nobody is declared gone in less."""
        since = self._clock.elapsed()
        if self._held and not await self._is_still_ours():
            self._stop_all()
            await self._is_idle.wait()
        sent = self._clock.elapsed()
        terms = await self._link.hello(self.node, self._attempts())
        if terms is not None:
            self._lease, self.heartbeat_seconds = terms
        if self._held and self._clock.elapsed() - since >= self._lease * TRUST:
            self._stop_all()
            await self._is_idle.wait()
            await self.greet()
            return
        self._renew(sent)
        self._is_joined = True
        if self.health.ailment:  # which the service forgets when we join
            self.health.changed.set()

    # ── taking up ──
    async def _take_up(self, kept: Sequence[Kept]) -> None:
        """Go on with work that outlived an earlier life of this agent; what we cannot go on with is dead before we
        join."""
        known = {(result.run_id, result.fence) for result in self._results}
        for one in kept:
            try:
                memo = msgspec.json.decode(one.memo, type=Memo)
                executor = self._lasters.get(memo.assignment.kind)
                if _fenced(one) in known or executor is None:
                    raise Error("its result is known, or nobody here does such work")
                await self._take_up_one(executor, one, memo)
            except (Error, msgspec.MsgspecError, ValueError, TypeError) as error:
                log.warning("work.dropped", attempt=one.name, error=str(error))
                await one.process.kill(0)
                os.close(one.source)
                os.close(one.file)
                self._keeper.release(one.name)
        if self._held:
            log.info("work.taken_up", attempts=",".join(f"{run_id}-{held[1]}" for run_id, held in self._held.items()))

    async def _take_up_one(self, executor: LastingExecutor, kept: Kept, memo: Memo) -> None:
        a = memo.assignment
        timeout = specs.policy_from_text(a.policy).timeout_seconds
        output = await self._files.reopen(a.run_id, a.attempt, a.fence, self._output_limit)
        work = self._work(a, output, timeout, self._clock.now(), {})
        if why := self._secrets_missing(work):
            raise Error(why)
        executor.take_up(work, kept, memo, self._done)
        rest = None if timeout is None else max(0.0, timeout - (self._clock.elapsed() - memo.begun))
        self._free[executor.kind] -= 1
        self._hold(executor, a, rest)
        self._is_idle.clear()

    async def _is_still_ours(self) -> bool:
        """Whether the service has not given us up; what is not ours in its books is killed."""
        await self._link.take_up(self.node)
        if await self._link.beat(self.busy) is None:
            return False
        self._drop_strangers(await self._link.disown(self._attempts()))
        return True

    def _renew(self, sent: float) -> None:
        """The lease counts from before the call that was answered: a slow answer does not lengthen it."""
        was_over = self._is_lease_over
        self._trusted_until = sent + self._lease * TRUST
        self._keeper.renew(self._trusted_until - self._clock.elapsed())
        if was_over:
            self.wake()
            self.slot_freed.set()

    @property
    def _is_lease_over(self) -> bool:
        """Whatever we claimed now would be lost at once, and claimed and lost again until it counts as failed."""
        return self._clock.elapsed() >= self._trusted_until

    # ── claim and start ──
    def wake(self) -> None:
        """Somebody announced runs: every kind may have some."""
        self._hungry = set(self._executors)

    async def claim(self) -> int:
        """Fill the free slots once; answers how many runs were started."""
        if self.draining or not self._is_joined or self._is_lease_over:
            return 0
        if self._in_doubt:
            await self._settle()
            if self._is_lease_over:  # the answer took its time
                return 0
        if self.cordoned or self.health.ailment or len(self._results) > MAX_UNREPORTED:
            return 0
        room = {kind: min(self._free[kind], MAX_CLAIM) for kind in self._hungry if self._free[kind] > 0}
        if not room:
            return 0
        life = self._life
        claimed = await self._claim_room(room)
        found = Counter(a.kind for a in claimed)
        self._hungry -= {kind for kind, limit in room.items() if found[kind] < limit}
        return await self._take(claimed, life) if claimed else 0

    async def _settle(self) -> None:
        """Agree with the service on what is ours. Only between claims: what one is about to bring is not held yet.
        Should a claim that broke off have its effect later still, the beats find it."""
        self._in_doubt = False
        try:
            strangers = await self._link.disown(self._attempts())
        except BaseException:
            self._in_doubt = True
            raise
        self._drop_strangers(strangers)

    def _drop_strangers(self, strangers: Collection[Fenced]) -> None:
        """What we hold and is not ours."""
        for run_id, fence in strangers:
            held = self._held.get(run_id)
            if held is not None and held[1] == fence:
                self._stop_lost(run_id)
            successor = self._successors.get(run_id)
            if successor is not None and successor[1].fence == fence:
                del self._successors[run_id]
                self._free[successor[0].kind] += 1

    def _attempts(self) -> list[Fenced]:
        """All that is ours, as far as we know: what runs, what waits for our own copy to end, what is to be told."""
        return [
            *((run_id, fence) for run_id, (_, fence, _) in self._held.items()),
            *((run_id, a.fence) for run_id, (_, a, _) in self._successors.items()),
            *((result.run_id, result.fence) for result in self._results),
        ]

    def _stop_lost(self, run_id: int) -> None:
        if run_id not in self._let_go:
            self._let_go.add(run_id)
            self._held[run_id][0].stop(run_id, Reason.LOST)

    async def _claim_room(self, room: Mapping[str, int]) -> list[Assignment]:
        self._is_claiming = True
        try:
            return await self._link.claim(room)
        except Unavailable:
            self._in_doubt = True
            raise
        finally:
            self._is_claiming = False

    async def _take(self, claimed: Sequence[Assignment], life: int) -> int:
        """Start what was claimed, or hand it back: nothing that is ours may lie about unstarted."""
        claimed = [a for a in claimed if not self._refuse_unreadable(a)]
        curious = {a.job_id for a in claimed if decode_spec(a.spec).get("previous_result")}
        try:
            previous = await self._link.load_previous(sorted(curious)) if curious else {}
        except BaseException:
            self._hand_back(claimed)
            raise
        if self.draining or self.health.ailment or life != self._life or self._is_lease_over:
            self._hand_back(claimed)
            return 0
        for a in claimed:
            if a.run_id in self._held:
                self._wait_for_copy(self._executors[a.kind], a, previous.get(a.job_id))
        fresh = [a for a in claimed if a.run_id not in self._held]
        for kind in dict.fromkeys(a.kind for a in fresh):
            self._start(self._executors[kind], [a for a in fresh if a.kind == kind], previous)
        return len(claimed)

    def _refuse_unreadable(self, a: Assignment) -> bool:
        """Fail a run whose job this agent cannot read: a newer version may have written it. The others go on."""
        try:
            readable = isinstance(_whole_spec(a), dict) and specs.policy_from_text(a.policy) is not None
            why = "" if readable else "its spec is no object"
        except (ValueError, TypeError, AttributeError) as error:
            why = str(error)
        if why:
            now = self._clock.now()
            message = f"the agent {self.node.name} (version {self.node.version}) cannot read this job: {why}"
            self._results.append(Result(a.run_id, a.fence, State.FAILED, Reason.ERROR, now, now, message=message))
            self.results_ready.set()
            self.results_made.set()
        return bool(why)

    def _wait_for_copy(self, executor: Executor, a: Assignment, previous: str | None) -> None:
        """A run is given to us of which we still have an earlier attempt at work: that one was taken from us without
        our knowing. It is killed, and certainly gone before the new one starts."""
        self._free[executor.kind] -= 1
        earlier = self._successors.pop(a.run_id, None)
        if earlier is not None:
            self._free[earlier[0].kind] += 1
        self._successors[a.run_id] = (executor, a, previous)
        self._stop_lost(a.run_id)

    def _start_successor(self, run_id: int) -> None:
        executor, a, previous = self._successors.pop(run_id)
        self._free[executor.kind] += 1  # as a start takes it
        if self.draining or self.health.ailment or not self._is_joined:
            self._hand_back([a])
        else:
            self._start(executor, [a], {} if previous is None else {a.job_id: previous})

    def _hand_back(self, claimed: Sequence[Assignment]) -> None:
        now = self._clock.now()
        self._results += [Result(a.run_id, a.fence, State.QUEUED, finished_at=now) for a in claimed]
        self.results_ready.set()
        self.results_made.set()

    def _start(self, executor: Executor, claimed: Sequence[Assignment], previous: Mapping[int, str]) -> None:
        now = self._clock.now()
        self._free[executor.kind] -= len(claimed)
        works, refused = [], []
        for a in claimed:
            timeout = specs.policy_from_text(a.policy).timeout_seconds
            output = self._files.open(a.run_id, a.attempt, a.fence, self._output_limit)
            work = self._work(a, output, timeout, now, previous)
            if why := self._secrets_missing(work):
                refused.append(Result(a.run_id, a.fence, State.FAILED, Reason.ERROR, now, now, message=why))
            else:
                works.append(work)
            self._hold(executor, a, timeout)
        self._is_idle.clear()
        executor.start(works, self._done)
        for result in refused:
            self._done(result)

    def _work(
        self, a: Assignment, output: Output, timeout: float | None, now: Moment, previous: Mapping[int, str]
    ) -> Work:
        return Work(
            a, _whole_spec(a), output, timeout, now, previous.get(a.job_id), a.cursor,
            tell_phase=partial(self._note_phase, a), tell_progress=partial(self._note_progress, a),
            origin=a if a.kind in self._lasters and self._keeper.keeps else None,
        )  # fmt: skip

    def _hold(self, executor: Executor, a: Assignment, timeout: float | None) -> None:
        timer = None
        if timeout is not None:
            timer = asyncio.get_running_loop().call_later(timeout, executor.stop, a.run_id, Reason.TIMEOUT)
        self._held[a.run_id] = (executor, a.fence, timer)
        if a.kind in self._lasters and self._keeper.keeps:
            self._unreleased.add((a.run_id, a.fence))

    def _secrets_missing(self, work: Work) -> str:
        """Answers why the work cannot be started, if a secret is missing; else it has those that it needs."""
        a = work.assignment
        return self._give_secrets(work) if '"secret"' in a.spec or a.kind in hiding.KINDS else ""

    def _give_secrets(self, work: Work) -> str:
        """Answers why the work cannot be started, if a secret is missing."""
        a = work.assignment
        others = list(hiding.texts_in(a.kind, work.spec))
        if not others and '"secret"' not in a.spec and a.source is None:
            return ""
        secrecy = self._secrecies[a.run_id] = Secrecy(a.secrets, others)
        return secrecy.cover(work, self._files.ref(a.run_id, a.attempt, a.fence))

    def _note_phase(self, assignment: Assignment, phase: Phase) -> None:
        """Most kinds run from the start, which the service knows: nothing is told of them."""
        if lifecycle.first_phase(assignment.kind) is Phase.PREPARING and assignment.run_id in self._held:
            self._phases[assignment.run_id] = (assignment.fence, phase)
            self.phases_changed.set()

    def _note_progress(self, assignment: Assignment, progress: Json) -> None:
        run_id = assignment.run_id
        if run_id not in self._held or not (said := figures.read_progress(progress)):
            return
        text = msgspec.json.encode(said).decode()
        secrecy = self._secrecies.get(run_id)
        self._progress[run_id] = (assignment.fence, text if secrecy is None else secrecy.hide_json(text))
        self.progress_made.set()

    def _done(self, result: Result) -> None:
        held = self._held.pop(result.run_id, None)
        self._phases.pop(result.run_id, None)
        self._progress.pop(result.run_id, None)
        if held is None:
            return
        executor, _, timer = held
        if timer is not None:
            timer.cancel()
        if result.ailment:
            self.health.note(result.ailment)
        make_sound(result)
        if (secrecy := self._secrecies.pop(result.run_id, None)) is not None:
            secrecy.hide(result)
        self._free[executor.kind] += 1
        self._results.append(_handed_back(result) if result.run_id in self._let_go else result)
        self._let_go.discard(result.run_id)
        if result.run_id in self._successors:
            self._start_successor(result.run_id)
        if not self._held:
            self._is_idle.set()
        self.results_ready.set()
        self.results_made.set()
        if executor.kind in self._hungry:
            self.slot_freed.set()

    # ── report ──
    async def tell_ailment(self) -> None:
        """Say what this machine is short of, once it is; kept and repeated when the service cannot be reached."""
        self.health.changed.clear()
        try:
            await self._link.note_ailment(self.health.ailment)
        except BaseException:
            self.health.changed.set()
            raise

    async def tell_phases(self) -> None:
        """Send the phases that have changed, once; kept and repeated when the service cannot be reached."""
        self.phases_changed.clear()
        told = dict(self._phases)
        if not told:
            return
        try:
            await self._link.note_phases([(run_id, fence, phase) for run_id, (fence, phase) in told.items()])
        except BaseException:
            self.phases_changed.set()
            raise
        self._phases = {run_id: news for run_id, news in self._phases.items() if told.get(run_id) != news}

    async def tell_progress(self) -> None:
        """Send how far the work is, once. What cannot be sent is dropped: there is newer soon."""
        self.progress_made.clear()
        told, self._progress = self._progress, {}
        if told:
            await self._link.note_progress([(run_id, fence, text) for run_id, (fence, text) in told.items()])

    async def report(self) -> int:
        """Send what is finished, once; kept and repeated when the service cannot be reached."""
        async with self._reporting:
            self.results_ready.clear()
            self.check_keeper()
            batch = self._deliverable()
            if not batch:
                return 0
            try:
                await self._link.finish(batch)
                self._delivered(batch)  # only now: until it is answered, we hold them
            finally:
                if self._results or self.draining:  # whoever drains waits for the last one
                    self.results_ready.set()
            return len(batch)

    def _deliverable(self) -> list[Result]:
        unsettled = self._spool.unsettled if self._spool is not None else ()
        if not unsettled:
            return self._results[:MAX_CLAIM]
        return [result for result in self._results if (result.run_id, result.fence) not in unsettled][:MAX_CLAIM]

    def _delivered(self, batch: Sequence[Result]) -> None:
        sent = set(map(id, batch))
        self._release(batch)
        self._results = [result for result in self._results if id(result) not in sent]
        if self._spool is not None:
            self._kept -= sent
            self._spool.forget(batch)

    def _release(self, results: Sequence[Result]) -> None:
        """Results that a next life need not find out once more."""
        for attempt in [(result.run_id, result.fence) for result in results] if self._unreleased else ():
            if attempt in self._unreleased:
                self._unreleased.discard(attempt)
                self._keeper.release(_name_of(attempt))

    async def keep(self) -> None:
        """Put results that wait to be reported on disk, so that they survive us."""
        self.results_made.clear()
        fresh = [result for result in self._results if id(result) not in self._kept]
        if self._spool is None or not fresh:
            return
        self._kept |= set(map(id, fresh))
        try:
            await self._spool.keep(fresh)
        except MachineFault as error:  # they wait in memory, and are tried again with the next, or when there is room
            self._kept -= set(map(id, fresh))
            self.health.note(error.message)
            return
        self._release(fresh)
        waiting = set(map(id, self._results))
        self._spool.forget([result for result in fresh if id(result) not in waiting])

    # ── lease ──
    def check_keeper(self) -> None:
        """Without its keeper an agent can neither start nor kill anything, and what ran is dead: it ends.
        The next start takes the runs back."""
        if not self._keeper.is_alive:
            raise Error("the keeper process of this agent died; its work died with it, and so must the agent")

    async def beat(self) -> None:
        """Say that we live, renew the keeper's leash, kill what shall be cancelled."""
        self.check_keeper()
        if not self._is_joined:
            await self._come_back()  # which broke off
            return
        sent = self._clock.elapsed()
        answer = await self._link.beat(self.busy, self._holding(sent))
        if answer is None:
            await self._start_anew()
            return
        self._renew(sent)
        if answer.in_doubt:
            self._in_doubt = True
            self.slot_freed.set()
        self._set_cordoned(answer.wanted != "live")
        for run_id, fence in answer.cancel:
            held = self._held.get(run_id)
            if held is not None and held[1] == fence:
                held[0].stop(run_id, Reason.REQUESTED)

    def _go_on(self) -> None:
        """The machine is well again."""
        self.wake()
        self.slot_freed.set()
        self.results_made.set()

    def _holding(self, now: float) -> Holding | None:
        """What we hold, for the service to compare. While something is under way the two sides differ as a rule, so
        nothing is said then; but not for long, because under load something always is."""
        is_busy = self._is_claiming or self._reporting.locked()
        if is_busy and now - self._compared_at < self._lease / 3:
            return None
        self._compared_at = now
        return holding_of(self._attempts())

    def _set_cordoned(self, cordoned: bool) -> None:
        was, self.cordoned = self.cordoned, cordoned
        if was and not cordoned:
            self.wake()
            self.slot_freed.set()

    async def _start_anew(self) -> None:
        """The service gave us up for dead: nothing we hold is ours any more, and all of it is gone before
        we come back. What a claim that is under way brings belongs to the old life."""
        self._is_joined = False
        self._life += 1
        self._stop_all()
        await self._come_back()

    async def _come_back(self) -> None:
        await self._is_idle.wait()
        await self.greet()
        self.wake()

    def _stop_all(self) -> None:
        for run_id in list(self._held):
            self._stop_lost(run_id)

    # ── stop ──
    async def drain(self, seconds: float) -> None:
        """Claim no more; let what runs finish within the time, then kill it and hand it back."""
        self.draining = True
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._is_idle.wait()
        self._stop_all()
        for executor in self._executors.values():
            await executor.close()
        await self._report_quietly()

    async def hand_on(self, seconds: float) -> bool:
        """As drain, but leave what can go on without us to the next agent: it has the rest of the lease to come. False
        when there is nothing of that kind."""
        if not self._keeper.keeps:
            await self.drain(seconds)
            return False
        self.draining = True
        began = self._clock.elapsed()
        while self._held and (waited := self._clock.elapsed() - began) < seconds:
            if waited >= LINGER and set(self._held) == self._lasting():
                break
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK):
                    await self._is_idle.wait()
        lasting = self._lasting()
        for run_id in [run_id for run_id in self._held if run_id not in lasting]:
            self._stop_lost(run_id)
        for kind, executor in self._executors.items():
            laster = self._lasters.get(kind)
            await (executor.close() if laster is None else laster.leave())
        left = [f"{run_id}-{self._held.pop(run_id)[1]}" for run_id in lasting if run_id in self._held]
        self._is_handed_on = bool(left)
        if left:
            log.info("work.left", attempts=",".join(left), because="the next agent may take it up")
        await self._report_quietly()
        return self._is_handed_on

    def _lasting(self) -> set[int]:
        """The runs that would go on without us."""
        return set(self._held) & set[int]().union(*(one.lasting() for one in self._lasters.values()))

    async def _report_quietly(self) -> None:
        try:
            async with asyncio.timeout(SETTLE):
                while self._results:
                    if not await self.report() and self._results:
                        await self.results_ready.wait()
        except (Unavailable, TimeoutError):
            return  # start-up recovery takes it back

    async def leave(self) -> None:
        if self._is_handed_on:  # no goodbye: what we hold is ours until the lease is over
            await self._keeper.leave()
            return
        await self._keeper.close()
        for sandbox in self._sandboxes:
            await sandbox.close()
        await self._link.goodbye()


def _name_of(attempt: Fenced) -> str:
    """As the keeper knows it."""
    return f"{attempt[0]}-{attempt[1]}"


def _fenced(kept: Kept) -> Fenced:
    run_id, fence = map(int, kept.name.split("-"))
    return run_id, fence


def _handed_back(result: Result) -> Result:
    """An attempt that our own stop ended: not its failure, so it goes back to the queue."""
    if result.state is State.SUCCEEDED or result.reason in (Reason.TIMEOUT, Reason.REQUESTED):
        return result
    result.state, result.reason = State.QUEUED, ""
    return result
