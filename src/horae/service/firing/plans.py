"""What a scheduler remembers of triggers, so that a moment costs a look-up: the firing plan of each.

A definition that cannot be read here stops nobody else: its trigger is passed by, and tried again at every sweep and
with every new version; by then it may have an owner that can read it.
"""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from horae.core.runs.ledger import FiringPlan, Unreadable, plan_firing
from horae.core.runs.orders import Definition, Due

log = structlog.get_logger()

MAX_PLANS = 200_000  # kept; the oldest go first


class Plans:
    def __init__(self) -> None:
        self._plans: dict[int, FiringPlan] = {}
        self._unreadable: dict[int, tuple[int, str]] = {}  # trigger → version, and why this node cannot fire it
        self._passed_by: dict[int, int] = {}  # those of them, with their version, that were met since the last sweep

    def get(self, trigger_id: int, version: int) -> FiringPlan | None:
        """Return the plan of this version of a trigger, if it is known."""
        plan = self._plans.get(trigger_id)
        return plan if plan is not None and plan.version == version else None

    def unknown(self, rows: Sequence[Due]) -> list[int]:
        """Return the triggers of these that are not known in their version."""
        get = self._plans.get
        return [row[1] for row in rows if (plan := get(row[1])) is None or plan[0] != row[2]]

    def read(self, definition: Definition) -> None:
        """Remember a definition, or that it cannot be read."""
        trigger_id, version = definition.trigger_id, definition.version
        try:
            self._plans[trigger_id] = plan_firing(definition)
        except Unreadable as error:
            if self._unreadable.get(trigger_id) != (version, error.message):
                log.warning("trigger.unreadable", job_id=definition.job_id, version=version, error=error.message)
            self._unreadable[trigger_id] = (version, error.message)
            self._passed_by[trigger_id] = version
            self._plans.pop(trigger_id, None)
        else:
            self._unreadable.pop(trigger_id, None)
            self._passed_by.pop(trigger_id, None)

    def shrink(self) -> None:
        while len(self._plans) > MAX_PLANS:
            del self._plans[next(iter(self._plans))]

    def untried(self, rows: Sequence[Due]) -> Sequence[Due]:
        """Return those but what could not be read, in this very version, since the last sweep."""
        passed = self._passed_by
        return [row for row in rows if passed.get(row[1]) != row[2]] if passed else rows

    def readable(self, rows: Sequence[Due]) -> Sequence[Due]:
        """Return those but what could not be read, in whatever version, since the last sweep."""
        passed = self._passed_by
        return [row for row in rows if row[1] not in passed] if passed else rows

    def try_again(self) -> None:
        """Let what could not be read be read again; what was not met since the last time is gone, or not ours."""
        self._unreadable = {key: found for key, found in self._unreadable.items() if key in self._passed_by}
        self._passed_by.clear()

    def unreadable(self) -> dict[int, str]:
        """Trigger → why this node cannot fire it."""
        return {trigger_id: why for trigger_id, (_, why) in self._unreadable.items()}
