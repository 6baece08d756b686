"""The attempts that an agent holds, as far as one of its lines knows.

The store has the truth; this is a copy of it that is read again when a question needs it, so that a claim, a result or
a chunk costs no look at the store. What must stay true: nothing is taken of an attempt that the agent does not hold
under that fence.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from horae.core.model import Node
from horae.core.runs.orders import Assignment
from horae.ports.clock import Clock
from horae.ports.store.attempts import Attempts
from horae.rpc.agents.intake import Intake


class HeldAttempts:
    """Of one line of an agent."""

    def __init__(
        self, store: Attempts, clock: Clock, intake: Intake, node: Node, capacity: Mapping[str, int], *, fresh: float
    ) -> None:
        """`capacity`: kind → how many runs of it at once, where that is not the node's slots. What was read longer ago
        than `fresh` seconds is old."""
        self._store, self._clock, self._intake = store, clock, intake
        self._node, self._capacity, self._fresh = node, capacity, fresh
        self.held: dict[int, int] = {}  # run → fence, as of
        self._read_at = float("-inf")
        self._kinds: dict[int, str] = {}  # run → kind, of those that this line gave
        self._numbers: dict[tuple[int, int], int] = {}  # (run, fence) → number of the attempt, as far as it was needed
        self._jobs: dict[int, int] = {}  # run → its job, the same way
        self._claiming: Counter[str] = Counter()  # kind → runs that claims under way may give

    # ── reading the store ──
    async def look_up(self, attempts: Iterable[tuple[int, int]], *, fresh: bool) -> None:
        """Make sure that `held` knows about these attempts: one question for all of them, and only if need be."""
        is_old = fresh and self._is_old
        if is_old or any(self.held.get(run_id) != fence for run_id, fence in attempts):
            await self.read()

    @property
    def _is_old(self) -> bool:
        return self._clock.elapsed() - self._read_at > self._fresh

    async def read(self) -> None:
        now = self._clock.elapsed()
        held = dict(await self._store.load_running(self._node.name))
        for run_id, fence in [one for one in self._numbers if held.get(one[0]) != one[1]]:
            self._forget(run_id, fence)
        self.held, self._read_at = held, now

    async def learn_numbers(self, held: Mapping[int, int], run_ids: Iterable[int]) -> None:
        """Which numbers these attempts have, where this line did not give them; one question for all."""
        unknown = sorted({one for one in run_ids if one in held and (one, held[one]) not in self._numbers})
        for one in await self._store.load_held(unknown) if unknown else ():
            if (fence := held.get(one.run_id)) is not None:
                self._numbers[one.run_id, fence] = one.attempt
                self._jobs[one.run_id] = one.job_id

    def number_of(self, run_id: int, fence: int) -> int | None:
        return self._numbers.get((run_id, fence))

    def jobs_of(self, held: Mapping[int, int]) -> set[int]:
        return {job_id for run_id, job_id in self._jobs.items() if run_id in held}

    # ── claims ──
    async def bound(self, asked: Mapping[str, int]) -> dict[str, int]:
        """Return no more than the agent can take, by what it said; it asks for no more, unless our copy is old, or its
        results are on the way: those are not looked for again and again."""
        if self._is_old and any(self._room(kind) < limit for kind, limit in asked.items()):
            await self.read()
        rooms = {kind: min(limit, self._room(kind)) for kind, limit in asked.items()}
        return {kind: limit for kind, limit in rooms.items() if limit > 0}

    def _room(self, kind: str) -> int:
        """Return how many more runs of a kind this agent can take, by what this line has given it. Besides those in its
        slots as many may have ended: it asks for more before their results are here."""
        slots = self._capacity.get(kind, self._node.slots)
        held = sum(of == kind and run_id in self.held for run_id, of in self._kinds.items())
        return min(slots, 2 * slots - held - self._claiming[kind])

    @contextmanager
    def claiming(self, room: Mapping[str, int]) -> Iterator[None]:
        self._claiming.update(room)
        try:
            yield
        finally:
            self._claiming.subtract(room)

    def note_claimed(self, claimed: Sequence[Assignment]) -> None:
        for one in claimed:
            self.held[one.run_id] = one.fence
            self._kinds[one.run_id] = one.kind
            self._numbers[one.run_id, one.fence] = one.attempt
            self._jobs[one.run_id] = one.job_id
            self._intake.begin(one.run_id, one.fence)

    # ── what is over ──
    def note_finished(self, run_id: int, fence: int) -> None:
        self.held.pop(run_id, None)
        self._kinds.pop(run_id, None)
        self._forget(run_id, fence)

    def _forget(self, run_id: int, fence: int) -> None:
        self._numbers.pop((run_id, fence), None)
        self._jobs.pop(run_id, None)
        self._intake.forget(run_id, fence)

    def forget_held(self) -> None:
        """Forget who holds what: it is read again before it is needed."""
        self.held, self._read_at = {}, float("-inf")
