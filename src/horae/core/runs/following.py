"""What is asked of a store when runs ended after which others come, and what it answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from horae.core.model import record
from horae.core.runs.orders import Order


class Birth(NamedTuple):
    """A run that the end of another makes, or an event."""

    ending_id: int  # the row of the outbox that says so
    order: Order
    once: bool  # one for each moment of its job: `order.run_at`; else one for each row, or idempotency key


@record
class Follow:
    """Rows of the outbox that are to be acted on, all in one transaction."""

    endings: Sequence[int]
    births: Sequence[Birth] = ()
    waiting: Sequence[int] = ()  # jobs whose waiting runs are to be judged anew
    unfollowed: Sequence[int] = ()  # jobs after which, as it seems, nobody comes any more


@record
class Followed:
    """What was done."""

    taken: int = 0  # rows that nobody else had acted on
    queued: int = 0  # runs that wait for an agent now
    demanding: int = 0  # of these, who demand more than a slot
    noted: bool = False  # something else is to be acted on now
    held: bool = False  # some wait for others of their kind (core.policy.debounce)
    stale: bool = False  # a job has changed since it was read: nothing was done
