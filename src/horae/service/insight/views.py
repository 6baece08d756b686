"""Looking at things: logs, previews, the overview, readiness, metrics. Reads only.

Output lies in a directory of the node that stored it, and its name says of which: `NODE:runs/…`. Here it is read
from the files of this node, or asked of the other.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, Protocol

from horae.core import watched
from horae.core.members import Life, is_external_name, life_of, plain_name
from horae.core.model import SECOND, SEGMENTS, Census, Json, Moment, Node, NodeState, Run, RunFilter, State, Trigger
from horae.core.runs.orders import NEVER
from horae.core.time.schedule import Previewed, preview
from horae.errors import Error, Invalid, NotFound, Unavailable
from horae.ports.clock import Clock
from horae.ports.outputs import OutputReader, Written
from horae.ports.store.cluster import Leases, Nodes, SegmentLoad, Segments
from horae.ports.store.definitions import Definitions
from horae.ports.store.moments import Moments
from horae.ports.store.runs import Runs
from horae.ports.store.signals import Signals
from horae.ports.transport import Peers
from horae.service.cluster.coordination import LEADER, patience
from horae.service.lines import Index, Looked, find_lines, find_tail, index_lines, match_lines, size_of
from horae.service.metrics import Metrics

STALLED_AFTER = 60 * SECOND  # a due moment this old means that firing does not get through
FOLLOW_SLICE = 256 * 1024  # bytes of a log given at once
ARTIFACT_PIECE = 1024 * 1024  # bytes of an artifact given at once
SHOWN_RUNS = 20  # of the overview
ENDED = tuple(state for state in State if state.is_terminal)
SHOWN_DUE = 12
LOOKED_AT_DUE = 120  # of all organisations, for those of one
READY_SECONDS = 2.0  # for which strangers are told the same
LOADS_SECONDS = 5.0  # for which everybody is told the same of the load of segments
SOON = 3600 * SECOND  # what is due within it is load
CENSUS_SECONDS = 10.0  # for which /metrics shows the same of the store
CENSUS_PATIENCE = 3.0  # seconds that it waits for the store


class InsightStore(Runs, Signals, Moments, Nodes, Leases, Segments, Definitions, Protocol):
    """What there is to look at."""


@dataclass(frozen=True, slots=True)
class LogSlice:
    data: bytes
    offset: int
    next_offset: int
    run: Run
    attempt: int


class Artifact(NamedTuple):
    path: str
    size: int


def artifacts_of(run: Run) -> list[Artifact]:
    return artifacts_in(run.result)


def artifacts_in(result: object) -> list[Artifact]:
    """As a result names them. A result is what the work gave: of most kinds it may be anything."""
    listed = result.get("artifacts") if isinstance(result, dict) else None
    named = [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
    return [Artifact(str(one.get("path")), size) for one in named if type(size := one.get("size")) is int and size >= 0]


@dataclass(frozen=True, slots=True)
class Overview:
    census: Census
    nodes: list[Node]
    segments: dict[int, tuple[str, int]]
    recent: list[Run]  # the newest that have ended
    due: list[Trigger]  # the soonest
    node: str
    behind: tuple[int, int] = (0, 0)  # triggers that this node catches up, and about how many moments they missed
    unreadable: Mapping[int, str] = field(default_factory=dict)  # triggers that this node cannot fire, and why


@dataclass(frozen=True, slots=True)
class Readiness:
    ready: bool
    checks: dict[str, str]  # what was looked at → "ok" or what is wrong


class Insight:
    def __init__(
        self,
        store: InsightStore,
        files: OutputReader,
        clock: Clock,
        metrics: Metrics,
        *,
        node: str,
        checks: dict[str, Callable[[], str]],
        peers: Peers | None = None,
        offer_seconds: float = 60.0,
        lease_seconds: float = 15.0,
        warnings: Sequence[str] = (),
    ) -> None:
        """`checks` are this process's own parts: each says "ok" or what is wrong. `peers` reach other nodes.
        `offer_seconds`: how long a moment may be left to a scheduler outside Horae. `lease_seconds`: how long a leader
        may be silent. `warnings` are what whoever looks at this process should know first."""
        self.warnings = warnings
        self._store = store
        self._files = files
        self._clock = clock
        self._metrics = metrics
        self._checks = checks
        self._peers = peers
        self._ready, self._asking = (False, -math.inf), asyncio.Lock()  # what strangers are told, and until when
        self._loads: tuple[dict[int, SegmentLoad], float] = ({}, -math.inf)  # of segments, and until when it is good
        self._loading = asyncio.Lock()
        self._counted_until, self._counting = -math.inf, asyncio.Lock()  # how long a census is good enough for /metrics
        self._offer = round(offer_seconds * SECOND)
        self._lease = lease_seconds
        self.node = node

    def now(self) -> Moment:
        """Return the clock of this process, for display."""
        return self._clock.now()

    def preview(self, schedule: Json, *, start: Moment | None, count: int) -> list[Previewed]:
        now = self._clock.now()
        begin = now if start is None else start
        return preview(schedule, seed=0, created_at=min(begin, now), start=begin, count=count)

    async def job_names(self, job_ids: Iterable[int]) -> dict[int, str]:
        """Return names by id, deleted jobs included; one that is gone altogether has none."""
        return await self._store.load_job_names(sorted(set(job_ids)))

    # ── logs ──
    async def read_log(
        self, run_id: int, *, attempt: int | None, offset: int, limit: int, tail: int | None = None, grep: str = ""
    ) -> LogSlice:
        """Return a part of a log: from an offset on, or its last lines (`tail`); of those, the ones that hold a text
        (`grep`), as far as was looked for it."""
        run = await self._run(run_id)
        if tail is not None:
            attempt, offset = await self.find_tail(run, attempt, tail)
        if not grep:
            return await self._slice(run, attempt, offset, limit)
        number, refs = await self._parts(run, attempt)
        found, end = await find_lines(partial(self._read_parts, refs), offset, limit, grep)
        return LogSlice(found, offset, end, run, number)

    async def find_tail(self, run: Run, attempt: int | None, lines: int) -> tuple[int, int]:
        """Return an attempt (the latest, unless named), and where its last lines begin."""
        number, refs = await self._parts(run, attempt)
        return number, await find_tail(partial(self._read_parts, refs), lines)

    async def index_log(
        self, run_id: int, attempt: int | None, offset: int, line: int, limit: int
    ) -> tuple[Run, int, Index]:
        """Return where the lines of a log lie, as far as was looked, and of which attempt."""
        run = await self._run(run_id)
        number, refs = await self._parts(run, attempt)
        return run, number, await index_lines(partial(self._read_parts, refs), offset, line, limit)

    async def log_size(self, run_id: int, attempt: int | None) -> tuple[int, int]:
        """Return an attempt (the latest, unless named) and how many bytes its log has."""
        number, refs = await self._parts(await self._run(run_id), attempt)
        return number, await size_of(partial(self._read_parts, refs))

    async def log_times(self, run_id: int, attempt: int | None, offset: int, limit: int) -> tuple[int, list[Written]]:
        """Return an attempt (the latest, unless named) and when pieces of its log were stored, from the one that holds
        a byte on."""
        number, refs = await self._parts(await self._run(run_id), attempt)
        found, begin = list[Written](), 0
        for ref in refs:
            pieces = await self._written(ref, max(0, offset - begin), limit - len(found))
            found += [Written(begin + one.offset, one.at) for one in pieces]
            if ref is refs[-1] or len(found) >= limit:
                break
            begin += await size_of(partial(self._read, ref))
        return number, found

    async def log_sizes(self, runs: Sequence[Run], known: Mapping[int, int]) -> dict[int, int]:
        """Return how many bytes the logs of the latest attempts have at least, by run. `known` of them were there
        before; those of another node are looked at from there on, a piece at a time."""
        is_near = self._files.is_shared or all(run.node in (None, self.node) for run in runs)
        nodes = {} if is_near else {node.name: node for node in await self._store.list_nodes()}
        sizes = await asyncio.gather(*(self._log_size(run, known.get(run.id, 0), nodes) for run in runs))
        return {run.id: size for run, size in zip(runs, sizes, strict=True)}

    async def _log_size(self, run: Run, known: int, nodes: Mapping[str, Node]) -> int:
        try:
            if run.fence > run.attempt:  # it has waited: its log lies in parts
                return known + len((await self._slice(run, None, known, FOLLOW_SLICE)).data)
            if run.fence == 0 and run.output is None and run.kind != watched.WATCHED:
                return 0
            ref = run.output or self._ref_by(run, nodes)
            place, found, name = ref.rpartition(":")
            if not found or place == self.node or self._files.is_shared:
                return await self._files.size(name)
            node = nodes.get(place)
            if node is None or node.state == NodeState.GONE or not node.grpc or self._peers is None:
                return known
            return known + len(await self._peers.read_output(node, name, known, FOLLOW_SLICE))
        except Error:  # that its log cannot be read is said where it is read
            return known

    def _ref_by(self, run: Run, nodes: Mapping[str, Node]) -> str:
        """Return where the log of a run lies that has not said so yet."""
        if run.kind == watched.WATCHED:
            return self._files.ref(run.id, *watched.OUTPUT)
        ref = self._files.ref(run.id, run.attempt, run.fence)
        node = nodes.get(run.node or "")
        return (
            ref if node is None or run.node == self.node or self._files.is_shared else f"{node.via or node.name}:{ref}"
        )

    async def match_log(
        self, run_id: int, text: str, *, attempt: int | None, offset: int, line: int, limit: int
    ) -> tuple[int, Looked]:
        """Return lines of a log that hold a text, as far as was looked, and of which attempt."""
        number, refs = await self._parts(await self._run(run_id), attempt)
        return number, await match_lines(partial(self._read_parts, refs), offset, line, limit, text)

    async def _slice(self, run: Run, attempt: int | None, offset: int, limit: int) -> LogSlice:
        number, refs = await self._parts(run, attempt)
        data = await self._read_parts(refs, offset, limit)
        return LogSlice(data, offset, offset + len(data), run, number)

    async def _parts(self, run: Run, attempt: int | None) -> tuple[int, list[str]]:
        """Return an attempt and where its log lies, in order: each time that it waited, a part of it has ended."""
        if run.fence <= run.attempt:  # every claim was an attempt: none has waited
            number, ref = await self._ref(run, attempt)
            return number, [] if ref is None else [ref]
        turns = await self._store.list_turns(run.id)
        latest = max([run.attempt, *(turn.attempt for turn in turns)])
        wanted = latest if attempt is None else attempt
        refs = [turn.output for turn in turns if turn.attempt == wanted and turn.output is not None]
        if wanted > run.attempt and refs:  # it may go on, and nobody has it yet
            return wanted, refs
        number, ref = await self._ref(run, wanted)
        return number, refs if ref is None or ref in refs else [*refs, ref]

    async def _read_parts(self, refs: Sequence[str], offset: int, limit: int) -> bytes:
        """Read a log that lies in several parts as if it were one."""
        data = b""
        for number, ref in enumerate(refs, 1):
            piece = await self._read(ref, offset, limit - len(data))
            data += piece
            if len(data) >= limit or number == len(refs):
                break
            offset = 0 if piece else max(0, offset - await size_of(partial(self._read, ref)))
        return data

    async def _read(self, ref: str, offset: int, limit: int) -> bytes:
        place, found, name = ref.rpartition(":")
        if not found or place == self.node or self._files.is_shared:
            return await self._files.read(name, offset, limit)
        node = await self._asked(place)
        if node is not None and self._peers is not None:
            return await self._peers.read_output(node, name, offset, limit)
        if await self._files.size(name):  # this node under an earlier name
            return await self._files.read(name, offset, limit)
        raise Unavailable(
            f"this output lies with the node {place}, which is gone",
            hint=f"start {place} again with its data directory, then ask again",
        )

    async def _written(self, ref: str, offset: int, limit: int) -> list[Written]:
        """Return when pieces of one part of a log were stored. What lies here does so whatever this node was called
        then."""
        place, found, name = ref.rpartition(":")
        is_here = not found or place == self.node or self._files.is_shared
        node = None if is_here else await self._asked(place)
        if node is None or self._peers is None:
            return await self._files.written(name, offset, limit)
        return await self._peers.list_pieces(node, name, offset, limit)

    async def _asked(self, name: str) -> Node | None:
        """Return a node that can be asked for what lies with it."""
        node = await self._node(name)
        return node if node is not None and node.state != NodeState.GONE and node.grpc else None

    async def _node(self, name: str) -> Node | None:
        return next((node for node in await self._store.list_nodes() if node.name == name), None)

    async def _ref(self, run: Run, attempt: int | None) -> tuple[int, str | None]:
        """Return the output of an attempt: the run's own, or that of an earlier one by number."""
        if attempt is None or attempt == run.attempt:
            if run.kind == watched.WATCHED and run.output is None:
                return run.attempt, self._files.ref(run.id, *watched.OUTPUT)
            if run.fence == 0:
                return run.attempt, None
            # A run that was lost, or cancelled while it waited for a retry, ended without naming its output.
            return run.attempt, run.output or await self._placed(run.id, run.attempt, run.fence, run.node)
        for one in await self._store.list_attempts(run.id):
            if one.attempt == attempt:
                return attempt, one.output or await self._placed(run.id, attempt, one.fence, one.node)
        raise NotFound(f"run {run.id} has no attempt {attempt}; it is at attempt {run.attempt}")

    async def _placed(self, run_id: int, attempt: int, fence: int, node: str | None) -> str:
        """Return where the output of an attempt that did not say lies: with its node, or the one its agent came
        through."""
        ref = self._files.ref(run_id, attempt, fence)
        if node is None or node == self.node or self._files.is_shared:
            return ref
        known = await self._node(node)
        return ref if known is None else f"{known.via or node}:{ref}"

    # ── artifacts ──
    async def list_artifacts(self, run_id: int) -> list[Artifact]:
        """Return what the last attempt of a run kept, in the order in which it lies."""
        return artifacts_of(await self._run(run_id))

    async def find_artifact(self, run_id: int, path: str) -> tuple[str, Artifact]:
        """Return where an artifact lies, and what is known of it."""
        run = await self._run(run_id)
        _, ref = await self._ref(run, None)
        for number, one in enumerate(artifacts_of(run)):
            if one.path == path and ref is not None:
                place, colon, name = ref.rpartition(":")
                named = f"{place}{colon}{self._files.artifact_ref(name, path)}"
                numbered = f"{place}{colon}{self._files.file_ref(name, number)}"
                return (named if await self._has_bytes(named) else numbered), one
        raise NotFound(f"run {run_id} has no artifact of that name", hint=f"`horae artifacts {run_id}` lists them")

    async def _has_bytes(self, ref: str) -> bool:
        """Return whether an artifact lies there under its name. A node of an earlier version knows no such names, and
        what waits for a store that is away has none yet."""
        try:
            return bool(await self._read(ref, 0, 1))
        except (NotFound, Invalid, Unavailable):
            return False

    async def read_artifact(self, ref: str, offset: int) -> bytes:
        """Return the next piece of an artifact; empty at its end."""
        return await self._read(ref, offset, ARTIFACT_PIECE)

    async def follow(self, run_id: int, *, attempt: int | None, offset: int) -> AsyncIterator[LogSlice]:
        """The log as it grows, from an attempt (or the latest) on, until the run has ended and all was given.

        A slice without data tells that the run changed its state, or is further on. When the run is tried
        again, the log of the new attempt follows, from its beginning.
        """
        run = await self._run(run_id)
        attempt = max(run.attempt if attempt is None else attempt, 1)
        while True:
            if attempt <= run.attempt:
                part = await self._slice(run, attempt, offset, FOLLOW_SLICE)
                if part.data:
                    offset = part.next_offset
                    yield part
                    continue
            if attempt < run.attempt:  # all of it was given, and it will not grow any more
                attempt, offset = attempt + 1, 0
                continue
            if run.state.is_terminal:
                return
            await self._files.changed(self._files.ref(run.id, run.attempt, run.fence))
            before, run = run, await self._run(run_id)
            if (run.state, run.attempt, run.progress) != (before.state, before.attempt, before.progress):
                yield LogSlice(b"", offset, offset, run, attempt)

    async def _run(self, run_id: int) -> Run:
        run = await self._store.get_run(run_id)
        if run is None:
            raise NotFound(f"there is no run {run_id}")
        return run

    # ── the whole ──
    async def overview(self, org: int | None = None) -> Overview:
        """With `org`, only its jobs, triggers and runs; what is counted is of all."""
        unreadable = self._metrics.unreadable()
        census, recent, nodes, segments, (due, own) = await asyncio.gather(
            self._count(), self._store.list_runs(RunFilter(states=ENDED, org=org), None, SHOWN_RUNS),
            self._store.list_nodes(), self._store.load_segments(), self._triggers(org, list(unreadable)),
        )  # fmt: skip
        return Overview(
            census=census,
            nodes=nodes,
            segments=segments,
            recent=recent.items,
            due=due,
            node=self.node,
            behind=self._metrics.behind(),
            unreadable={trigger_id: unreadable[trigger_id] for trigger_id in own},
        )

    async def _triggers(self, org: int | None, unreadable: Sequence[int]) -> tuple[list[Trigger], Sequence[int]]:
        """Return the soonest, and which of those that nobody here can read are of an organisation."""
        due, own = await asyncio.gather(self._next_due(org), self._of_org(org, unreadable))
        return due, own

    async def _next_due(self, org: int | None) -> list[Trigger]:
        """Return the soonest. Those of an organisation are found among the soonest of all: of very many there may be
        fewer than there are."""
        looked_at = SHOWN_DUE if org is None else LOOKED_AT_DUE
        rows = await self._store.load_due(range(SEGMENTS), (-1, 0), NEVER, looked_at)
        own = await self._of_org(org, [row.trigger_id for row in rows])
        return await self._store.load_triggers(own[:SHOWN_DUE])

    async def _of_org(self, org: int | None, trigger_ids: Sequence[int]) -> Sequence[int]:
        """Return those that belong to an organisation, in their order."""
        if org is None or not trigger_ids:
            return trigger_ids
        ours = {one.trigger_id for one in await self._store.load_definitions(trigger_ids) if one.org == org}
        return [id_ for id_ in trigger_ids if id_ in ours]

    async def _count(self) -> Census:
        """Return a census; what /metrics shows of the store is as old as the last one."""
        census = await self._store.census()
        taken = await self._store.load_taken_segments()
        now = await self._store.now()
        self._metrics.waiting = census.live
        self._metrics.oldest_due, self._metrics.oldest_queued = (
            0.0 if at is None else max(0, now - at) / SECOND for at in (census.oldest_due_at, census.oldest_queued_at)
        )
        self._metrics.outside_segments = Counter(
            plain_name(worker) for worker, _ in taken.values() if is_external_name(worker)
        )
        return census

    async def nodes(self) -> list[Node]:
        return await self._store.list_nodes()

    async def segments(self) -> dict[int, tuple[str, int]]:
        """Segment → (owner, term)."""
        return await self._store.load_segments()

    async def segment_loads(self) -> Mapping[int, SegmentLoad]:
        """Return what there is to schedule of each segment, and what of it is due within the hour. It is counted for
        everybody at most once in LOADS_SECONDS."""
        async with self._loading:
            loads, until = self._loads
            if self._clock.elapsed() >= until:
                counted = await self._store.count_by_segment(await self._store.now() + SOON)
                loads = {number: counted.get(number, SegmentLoad()) for number in range(SEGMENTS)}
                self._loads = loads, self._clock.elapsed() + LOADS_SECONDS
            return loads

    async def leader(self) -> Node | None:
        """Return the node that leads; None while nobody does. A lease has no clock of its own, and stands as it was
        when its owner dies: so the owner must have been heard within it, or be this node, which knows."""
        lease = await self._store.get_lease(LEADER)
        found = await self._node(lease.owner) if lease is not None and lease.owner else None
        if found is None or (found.name == self.node and self._metrics.leads()):
            return found
        is_heard = life_of(found, await self._store.now(), patience(self._lease)) in (Life.ONLINE, Life.RESERVED)
        return found if is_heard else None

    async def leader_term(self) -> int:
        """Return how often somebody was elected."""
        lease = await self._store.get_lease(LEADER)
        return 0 if lease is None else lease.term

    async def is_ready(self) -> bool:
        """As readiness, for strangers: however many ask, it is looked at once in READY_SECONDS."""
        async with self._asking:
            ready, until = self._ready
            if self._clock.elapsed() >= until:
                ready = (await self.readiness()).ready
                self._ready = (ready, self._clock.elapsed() + READY_SECONDS)
            return ready

    async def readiness(self) -> Readiness:
        """Return whether work gets through, not merely whether the process lives."""
        checks = {name: check() for name, check in self._checks.items()}
        checks["progress"] = await self._progress()
        return Readiness(all(answer.startswith("ok") for answer in checks.values()), checks)

    async def _progress(self) -> str:
        try:
            census = await self._count()
            now = await self._store.now()
            late = now - census.oldest_due_at if census.oldest_due_at is not None else 0
            patience = STALLED_AFTER
            if late >= patience and self._metrics.outside_segments:
                patience += self._offer  # it may be left to somebody who lets it pass
        except Error as error:
            return error.message
        return "ok" if late < patience else self._excuse() or f"the oldest due moment has waited for {late // SECOND} s"

    def _excuse(self) -> str:
        """Why moments may wait here although all is well."""
        triggers, moments = self._metrics.behind()
        if triggers:
            return f"ok: catching up; {triggers} triggers have about {moments} missed moments left"
        unreadable = len(self._metrics.unreadable())
        return f"ok, but {unreadable} triggers cannot be read by this node: its log names them" if unreadable else ""

    async def metrics(self) -> bytes:
        """What is counted in the store is at most CENSUS_SECONDS old; or older, where the store does not say."""
        async with self._counting:
            if self._clock.elapsed() >= self._counted_until:
                with suppress(Error, TimeoutError):
                    async with asyncio.timeout(CENSUS_PATIENCE):
                        await self._count()
                self._counted_until = self._clock.elapsed() + CENSUS_SECONDS
        return self._metrics.text()
