"""How an agent in the same process reaches the service."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from secrets import token_hex

import structlog

from horae.core.definitions import Receipt
from horae.core.model import Node, NodeState, Phase
from horae.core.runs.holdings import Fenced, Holding
from horae.core.runs.orders import Assignment, Order, Result
from horae.core.signs import Beat, Sign
from horae.errors import Invalid, Superseded, Unavailable
from horae.ports.transport import Queue, Topic
from horae.service.execution.attempts import ANY_FENCE, Execution, ExecutionStore
from horae.service.workflows.beside import Beside

log = structlog.get_logger(__name__)
CONVINCING_BEATS = 2  # in a row that must find the books different
LINK_TOPICS: tuple[Topic, ...] = ("runs", "cancel")  # that wake an agent


class LocalLink:
    """The Link of an agent that lives in this process, or whose frames arrive in it.

    `place` is the node whose directory holds the output of its runs, and is noted with them. Who `may_stand_by` takes
    only what is pinned to it, unless it is the active node (see Store.claim).
    """

    def __init__(
        self, execution: Execution, store: ExecutionStore, queue: Queue, *, place: str = "", may_stand_by: bool = False
    ) -> None:
        self._execution = execution
        self._store = store
        self._place = place
        self._may_stand_by = may_stand_by
        self._watches = {topic: queue.watch(topic) for topic in LINK_TOPICS}
        self._node: Node | None = None
        self.beside = Beside()
        self.line = token_hex(16)
        self.session: int | None = None  # of our line; None before there is one, and then whoever comes is welcome
        self._is_joining = False  # a registration is under way, or broke off: whether it happened, nobody knows
        self._differed = 0  # beats in a row after which the books differed from what the agent holds

    async def hello(self, node: Node, held: Collection[Fenced] = ()) -> None:
        """Registered first: from then on no claim of an earlier line or life can come, and what is held is all there
        is to take back."""
        self._node = node
        self._is_joining = True
        self.session = await self._store.register_node(node, session=self.session, line=self.line)
        await self._execution.reap(node.name, keep={*held, *self.beside.attempts}, session=self.session)
        self._is_joining = False

    async def take_up(self, node: Node) -> None:
        self._node = node

    def resume(self, node: Node, session: int) -> None:
        """Go on with a node that has joined through another link; with session 0, one that is not there yet."""
        self._node, self.session = node, session

    async def claim(self, room: Mapping[str, int], free: Mapping[str, int] | None = None) -> list[Assignment]:
        session = self.session
        try:
            return await self._execution.claim(self._me, room, session, free=free, may_stand_by=self._may_stand_by)
        except Superseded as error:
            if session == self.session:
                raise
            raise Unavailable("this node has registered anew since it asked") from error

    def may_start_new(self, order: Order) -> bool:
        """Return whether this node may have the run of an order as it is made."""
        return self.session is not None and not self._may_stand_by and self._execution.may_start_new(order)

    async def start_new(self, order: Order) -> tuple[Receipt | None, list[Assignment] | None]:
        """As Execution.start_new, for this node."""
        assert self.session is not None, "may_start_new comes first"
        return await self._execution.start_new(order, self._me, self.session)

    async def finish(self, results: Sequence[Result]) -> set[int]:
        return await self._execution.finish([self._placed(result) for result in results] if self._place else results)

    async def note_phases(self, phases: Sequence[tuple[int, int, Phase]]) -> None:
        await self._store.set_phases(phases, session=self.session)

    async def note_progress(self, notes: Sequence[tuple[int, int, str]]) -> None:
        """What the store cannot write is left out: it is no more than a word on the way."""
        try:
            await self._store.note_progress(notes, session=self.session)
        except Invalid:
            for note in notes if len(notes) > 1 else ():
                await self.note_progress([note])

    def _placed(self, result: Result) -> Result:
        """What others wrote says itself where it lies."""
        return (
            result
            if result.output is None or ":" in result.output
            else replace(result, output=f"{self._place}:{result.output}")
        )

    async def beat(self, busy: int, held: Holding | None = None, free: Mapping[str, int] | None = None) -> Beat | None:
        """One beat after which the books differ says little: a claim or a result may be under way. Two in a row do.
        Who has not joined must do that first, under whatever session we have by now."""
        if self._is_joining:
            return None
        held = held and self.beside.added_to(held)
        answer = await self._execution.beat(Sign(self._me.name, busy, self.session, held, free))
        if answer is None or (held is not None and not answer.differs):
            self._differed = 0
        elif answer.differs:
            self._differed += 1
            if self._differed >= CONVINCING_BEATS:
                self._differed = 0
                log.warning("books.differ", node=self._me.name, held=held.size if held else 0)
                return replace(answer, in_doubt=True)
        return answer

    async def note_ailment(self, ailment: str) -> None:
        await self._store.note_ailment(self._me.name, ailment, session=self.session)

    async def wait(self, topic: Topic, seconds: float) -> bool:
        return await self._watches[topic].wait(seconds)

    async def load_previous(self, job_ids: Sequence[int]) -> dict[int, str]:
        return await self._store.load_previous(job_ids)

    async def disown(self, held: Collection[Fenced]) -> set[Fenced]:
        async with self.beside.claiming:
            keep = {*held, *self.beside.attempts}
            ours = await self._execution.reap(self._me.name, keep=keep, session=self.session)
        runs = {run_id for run_id, _ in ours}
        return {one for one in held if one not in ours and (one[1] != ANY_FENCE or one[0] not in runs)}

    async def goodbye(self) -> None:
        await self._store.retire_node(self._me.name, NodeState.GONE, session=self.session)

    @property
    def _me(self) -> Node:
        assert self._node is not None, "hello comes first"
        return self._node
