"""A queue in miniature: owners whose runs are given passes when they are made, and agents that claim by them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from horae.core.policy.admission import Head, admit
from horae.core.policy.demands import Demand, Offer
from horae.core.policy.limits import Limit
from horae.core.policy.order import Places, Share, passes

KIND = "python"


class WaitingLine:
    """One line of one queue, with all that `order` and `admit` decide about it."""

    def __init__(self, weights: Mapping[str, int], limits: Mapping[str, Limit] | None = None) -> None:
        self.weights = dict(weights)
        self.limits = dict(limits or {})
        self.now = 1_000_000
        self.owners: dict[int, str] = {}
        self.waiting: list[Head] = []
        self.running: dict[int, Demand] = {}
        self._last: dict[str, int] = {}
        self._far = 0

    def order(self, owner: str, count: int, demand: Demand | None = None) -> None:
        """Make runs."""
        share = Share(KIND, 0, 5, owner, self.weights[owner])
        for turn in passes(Places([share], [], []), count, [max(self._last.get(owner, 0), self._far)]):
            run_id = len(self.owners) + 1
            self.owners[run_id] = owner
            self._last[owner] = turn
            self.waiting.append(Head(run_id, 5, turn, KIND, demand_id=1, demand=demand or Demand()))

    def claim(self, slots: int) -> list[str]:
        """Start what may be started; return whose it was."""
        usage: Counter[str] = Counter()
        for demand in self.running.values():
            usage.update(dict(demand.uses))
        admission = admit(self.waiting, usage, self.limits, [Offer("n", None, {KIND: slots}, {})], [], self.now)
        started = {start.run_id for start in admission.starts}
        self.limits |= admission.moved
        for head in [head for head in self.waiting if head.run_id in started]:
            self._far = max(self._far, head.turn)
            self.running[head.run_id] = head.demand
            self.waiting.remove(head)
        return [self.owners[start.run_id] for start in admission.starts]

    def finish(self, count: int) -> None:
        for run_id in list(self.running)[:count]:
            del self.running[run_id]
