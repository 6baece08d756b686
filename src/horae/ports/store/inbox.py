"""Work that other programs hand over inside their own transactions. Only a database that they share has it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from horae.core.model import Moment
from horae.core.runs.inbox import Drained, Grant, Handed, Level, Refusal, Since, Target
from horae.core.runs.orders import NewRun, Order

Judge = Callable[[Handed, Target | None, Moment], Order | Refusal]
PlaceHanded = Callable[[Sequence[tuple[Target, NewRun]]], Awaitable[None]]


class Inbox(Protocol):
    async def has_handed(self, since: Since) -> bool:
        """Return whether there is anything to drain. As cheap as can be: it is asked ten times a second."""

    async def drain(self, judge: Judge, place: PlaceHanded, limit: int, since: Since) -> Drained:
        """Take up to `limit` rows, oldest first, and whatever was missing, and make of each what `judge` says, in one
        transaction: a run, where `place` says and under the rules of `enqueue`, or a row among the refused. Rows that
        another process takes just now are left to it."""

    async def readmit(self) -> int:
        """Put back what was refused because its job was paused, where it no longer is; return how many."""

    async def level(self) -> Level:
        """Return how full it is."""

    async def drop_refused(self, before: Moment) -> int:
        """Forget what was refused before a moment; return how many."""


class InboxGrants(Protocol):
    """For operators: who may hand work over, and what was refused."""

    async def grant_inbox(self, role: str, org: int, owner: str) -> None:
        """Let a role of the database hand work over for an owner, instead of any other it did it for. Raises NotFound
        where there is no such role."""

    async def revoke_inbox(self, role: str) -> bool:
        """Let it no more; return whether it was let."""

    async def list_grants(self) -> list[Grant]: ...

    async def list_refused(self, limit: int) -> list[Refusal]:
        """Newest first."""

    async def retry_refused(self, receipts: Sequence[int] | None) -> list[int]:
        """Hand refused work in again, all of it for None; return the receipts of what was."""
