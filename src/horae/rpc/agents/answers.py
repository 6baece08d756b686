"""What an agent asks over its line, and the answer to each: one method per body of a frame.

What must stay true: what an agent sends is bounded; it is believed only about attempts that it holds. Results are
taken from any line: what an agent says of an attempt that it held stays true, and the fence decides.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import structlog

from horae.core.model import Node, Phase, Token
from horae.core.runs.holdings import Holding
from horae.core.runs.orders import Assignment, Result
from horae.core.signs import Terms
from horae.ports.clock import Clock
from horae.ports.outputs import OutputWriter
from horae.ports.transport import Queue, Topic
from horae.rpc.agents.attempts import HeldAttempts
from horae.rpc.agents.checks import read_ailment, read_free, read_progress, read_result
from horae.rpc.agents.frames import MAX_LIST, assignments, check_ids, done, invalid, read_attempts
from horae.rpc.agents.hints import WorkHints
from horae.rpc.agents.intake import Limits
from horae.rpc.agents.naming import Naming
from horae.service.access.agents import AgentAccess
from horae.service.execution import Execution, ExecutionStore, LocalLink
from horae.service.results import make_sound
from horae.web.proxies import Proxies
from horae.wire.generated import agents_pb2 as pb

log = structlog.get_logger()

MAX_CLAIM = 1000  # runs of one kind


@dataclass(frozen=True, slots=True)
class ServerParts:
    """What all sessions of a server work with."""

    execution: Execution
    store: ExecutionStore
    queue: Queue
    files: OutputWriter
    clock: Clock
    hints: WorkHints
    node: str
    terms: Terms
    limits: Limits  # of what is stored of one attempt
    naming: Naming
    credentials: AgentAccess | None  # of agents that join by themselves
    proxies: Proxies  # that are believed


class Answers:
    """Of one line of an agent."""

    def __init__(
        self,
        server: ServerParts,
        link: LocalLink,
        node: Node,
        attempts: HeldAttempts,
        send_hint: Callable[[Topic], None],
        claims: Collection[asyncio.Task[Any]],
        *,
        hints_runs: bool,
        token: Token | None = None,
        peer: str = "",
    ) -> None:
        """`claims` are under way. `token` is what it came in with, from `peer`. `hints_runs`: whether this agent is
        told of queued runs here."""
        self._server, self._link, self._node, self._attempts = server, link, node, attempts
        self._send_hint = send_hint
        self._claims = claims
        self._hints_runs = hints_runs
        self._token, self._peer = token, peer
        self._kinds = frozenset(node.kinds)
        self._is_held_back = False  # it asked for more than it could take before its results were here

    async def answer(self, body: str, asked: Any) -> list[pb.ServerFrame]:
        answers: list[pb.ServerFrame] = await getattr(self, f"_on_{body}")(asked)
        return answers

    async def _on_hello(self, _: pb.Hello) -> list[pb.ServerFrame]:
        raise invalid("hello is the first frame only")

    async def _on_join(self, join: pb.Join) -> list[pb.ServerFrame]:
        self._attempts.forget_held()
        await self._link.hello(self._node, read_attempts(join.held, join.fences))
        self._server.queue.announce("nodes")
        return [done()]

    async def _on_beat(self, beat: pb.Beat) -> list[pb.ServerFrame]:
        held = Holding(beat.held.count, beat.held.digest) if beat.HasField("held") else None
        answer = await self._link.beat(min(beat.busy, MAX_LIST), held, read_free(beat.free, self._node))
        if answer is None:
            self._attempts.forget_held()
            return [pb.ServerFrame(beat=pb.BeatAnswer(retired=True))]
        cancel = [pb.Held(run_id=run_id, fence=fence) for run_id, fence in answer.cancel]
        return [pb.ServerFrame(beat=pb.BeatAnswer(cancel=cancel, wanted=answer.wanted, in_doubt=answer.in_doubt))]

    async def _on_renew(self, renew: pb.Renew) -> list[pb.ServerFrame]:
        if self._token is None or self._server.credentials is None:
            raise invalid("only an agent that joined by itself has a credential to renew")
        await self._server.credentials.renew(self._token, self._node.name, renew.hash, self._peer)
        return [done()]

    # ── claims ──
    async def _on_claim(self, claim: pb.Claim) -> list[pb.ServerFrame]:
        asked = dict(claim.room) or {claim.kind: claim.limit}  # of protocol 1: one kind
        if not self._kinds.issuperset(asked) or not all(1 <= limit <= MAX_CLAIM for limit in asked.values()):
            raise invalid(f"a claim needs kinds that hello named and a limit from 1 to {MAX_CLAIM} for each")
        room = await self._attempts.bound(asked)
        self._is_held_back = room != asked
        hints = self._server.hints
        announcements = hints.announcements
        free = read_free(claim.free, self._node)
        claimed = [] if not room or hints.none_wait(room) else await self._claim(room, free)
        if self._hints_runs and room:
            missing = Counter(room)
            missing.subtract(one.kind for one in claimed)
            hints.note_claim(self._link, self._node, missing, announcements, partial(self._send_hint, "runs"))
        return assignments(claimed)

    async def _claim(self, room: dict[str, int], free: Mapping[str, int]) -> list[Assignment]:
        with self._attempts.claiming(room):
            claimed = await self._link.claim(room, free)
        self._attempts.note_claimed(claimed)
        return claimed

    # ── results ──
    async def _on_finish(self, finish: pb.Finish) -> list[pb.ServerFrame]:
        results = self._read_results(finish)
        await self._attempts.look_up(((one.run_id, one.fence) for one in results), fresh=False)
        held = self._attempts.held  # a join that comes meanwhile forgets it
        mine = [one for one in results if held.get(one.run_id) == one.fence]
        await self._check_outputs(held, mine)
        accepted = await self._link.finish(mine) if mine else set()
        self._server.naming.begin([one for one in mine if one.run_id in accepted])
        for result in mine:
            self._attempts.note_finished(result.run_id, result.fence)
        if mine and self._is_held_back:  # it believes that nothing waits
            self._is_held_back = False
            self._send_hint("runs")
        self._server.execution.note_fenced(len(results) - len(mine))
        self._log_refused(results, accepted)
        return [pb.ServerFrame(accepted=pb.Accepted(run_ids=sorted(accepted)))]

    def _read_results(self, finish: pb.Finish) -> list[Result]:
        """Return one for each attempt: of several, the first."""
        found: dict[tuple[int, int], Result] = {}
        for one in finish.results:
            if (result := read_result(one, self._server.files)) is not None:
                found.setdefault((result.run_id, result.fence), result)
        return list(found.values())

    async def _check_outputs(self, held: Mapping[int, int], results: Sequence[Result]) -> None:
        """An attempt ends with its own log, or with none."""
        with_output = [one for one in results if one.output is not None]
        await self._attempts.learn_numbers(held, (one.run_id for one in with_output))
        for one in with_output:
            number = self._attempts.number_of(one.run_id, one.fence) or 0
            if one.output != self._server.files.ref(one.run_id, number, one.fence):
                one.output = None
                make_sound(one, ["its output is not that of this attempt"])

    def _log_refused(self, results: Sequence[Result], accepted: set[int]) -> None:
        for result in results:
            if result.run_id not in accepted:
                log.warning("result.fenced", node=self._node.name, run=result.run_id, fence=result.fence)

    # ── notes ──
    async def _on_note_phases(self, noted: pb.NotePhases) -> list[pb.ServerFrame]:
        if len(noted.items) > MAX_LIST or any(one.phase not in (Phase.PREPARING, Phase.RUNNING) for one in noted.items):
            raise invalid(f"phases are 0 (preparing) or 1 (running), at most {MAX_LIST} at once")
        mine = await self._held_of(noted.items)
        await self._link.note_phases([(one.run_id, one.fence, Phase(one.phase)) for one in mine])
        return [done()]

    async def _on_note_progress(self, noted: pb.NoteProgress) -> list[pb.ServerFrame]:
        if len(noted.items) > MAX_LIST:
            raise invalid(f"at most {MAX_LIST} words on progress at once")
        mine = await self._held_of(noted.items)
        await self._link.note_progress([(one.run_id, one.fence, read_progress(one)) for one in mine])
        return [done()]

    async def _held_of(self, items: Sequence[Any]) -> list[Any]:
        await self._attempts.look_up(((one.run_id, one.fence) for one in items), fresh=False)
        return [one for one in items if self._attempts.held.get(one.run_id) == one.fence]

    async def _on_note_ailment(self, noted: pb.NoteAilment) -> list[pb.ServerFrame]:
        await self._link.note_ailment(read_ailment(noted))
        return [done()]

    # ── questions ──
    async def _on_load_previous(self, asked: pb.LoadPrevious) -> list[pb.ServerFrame]:
        """Of jobs of which it holds a run; what others did is not its business."""
        check_ids(asked.job_ids)
        attempts = self._attempts
        held = attempts.held
        if not attempts.jobs_of(held).issuperset(asked.job_ids):
            await attempts.read()
            held = attempts.held
            await attempts.learn_numbers(held, held)
        mine = [job_id for job_id in asked.job_ids if job_id in attempts.jobs_of(held)]
        found = await self._link.load_previous(mine) if mine else {}
        return [pb.ServerFrame(previous_results=pb.PreviousResults(results=found))]

    async def _on_disown(self, disown: pb.Disown) -> list[pb.ServerFrame]:
        """After the claims that are still under way: one of them may be what the agent asks about."""
        held = read_attempts(disown.held, disown.fences)
        if self._claims:
            await asyncio.wait(tuple(self._claims))
        strangers = sorted(await self._link.disown(held))
        told = pb.Strangers(run_ids=[run_id for run_id, _ in strangers], fences=[fence for _, fence in strangers])
        return [pb.ServerFrame(strangers=told)]

    async def _on_goodbye(self, _: pb.Goodbye) -> list[pb.ServerFrame]:
        await self._link.goodbye()
        self._server.queue.announce("nodes")
        log.info("agent.left", node=self._node.name)
        return [done()]
