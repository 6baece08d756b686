"""The audit log: who did what, who was refused, and who was given a secret.

    a write       its row goes with the change, in the same transaction (stores.audit); where the store could not tell
                  that something was done, the row is written before the answer is sent
    a refusal     the first of its kind at once, the next ones are counted and told every minute
    a secret      before it is given out

What must stay true: whatever was answered with success has its row, once, whenever a process dies. Strangers
cannot fill the disk: of what they are refused, a minute has at most `KINDS` rows of a node, and one with the rest.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Protocol

from horae.core.audit import AuditFilter, Check, Deed, Gone, Head, Outcome, Place, Row, read_head, read_place
from horae.core.model import Page
from horae.errors import Denied, Error, Unauthenticated, Unavailable
from horae.ports import deeds
from horae.ports.clock import Clock
from horae.ports.store.audit import AuditLog
from horae.ports.store.moments import StoreClock
from horae.service.batching import Coalescer, read_ahead
from horae.service.metrics import Metrics

TOGETHER = 500  # rows of one write
WINDOW = 60.0  # seconds in which refusals of a kind are one row, and a count
KINDS = 64  # of refusals that are told apart in that time
LOOKED_AT = 500  # rows that are verified before others have a turn
SLICE = 20_000  # rows of which one call verifies the hashes
PART = 4000  # of these are read at once: the next while the last are looked at


class AuditStore(AuditLog, StoreClock, Protocol):
    """Who did what, and when it is."""


@dataclass(slots=True)
class _Refused:
    """Refusals of one kind that no row tells of yet."""

    deed: Deed
    count: int = 0


class _Watch:
    """Audit.watch. Every write goes through it: a generator would cost several times as much."""

    __slots__ = ("_audit", "_deed")

    def __init__(self, audit: Audit, deed: Deed) -> None:
        self._audit = audit
        self._deed = deed

    async def __aenter__(self) -> None:
        deeds.carry(self._deed)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                await self._audit.settle(self._deed)
            elif isinstance(error, Error):
                await self._audit.fail(self._deed, error.code)
        finally:
            deeds.carry(None)


class Audit:
    def __init__(self, store: AuditStore, clock: Clock, metrics: Metrics) -> None:
        self._store = store
        self._clock = clock
        self._metrics = metrics
        self._rows = Coalescer(self._append, limit=TOGETHER)
        self._refused: dict[tuple[str, ...], _Refused] = {}
        self._since = clock.elapsed()
        self._ids = map("audit-{}-{:x}".format, itertools.repeat(secrets.token_hex(5)), itertools.count(1))

    def watch(self, deed: Deed) -> _Watch:
        """Whatever is written within is of this deed; its row is there afterwards, unless nothing was done."""
        deed.request_id = deed.request_id or next(self._ids)
        return _Watch(self, deed)

    @asynccontextmanager
    async def call(self, deed: Deed, *, is_told: bool) -> AsyncIterator[None]:
        """As watch, of a call that nobody else watches: also who is refused is told."""
        try:
            if is_told:
                async with self.watch(deed):
                    yield
            else:
                yield
        except (Denied, Unauthenticated) as error:
            await self.refuse(deed, error.code)
            raise

    async def settle(self, deed: Deed) -> None:
        """It is done: its row is there when this returns."""
        if deed.is_void:
            return
        if deed.rows == 0:
            await self._rows.add(deed)
        self._metrics.audited[str(deed.outcome)] += 1

    async def fail(self, deed: Deed, code: str) -> None:
        """It broke off; if something was done before, say so."""
        if deed.rows:
            deed.outcome, deed.code, deed.is_bulk = Outcome.FAILED, code, False
            await self._rows.add(deed)
            self._metrics.audited[Outcome.FAILED] += 1

    async def refuse(self, deed: Deed, code: str) -> None:
        """Who asked may not. The first of a kind has its row when this returns; without the store, they are told of it
        all the same."""
        deed.outcome, deed.code, deed.request_id = Outcome.REFUSED, code, deed.request_id or next(self._ids)
        self._metrics.audited[Outcome.REFUSED] += 1
        with suppress(Unavailable):
            await self._refuse(deed, code)

    async def _refuse(self, deed: Deed, code: str) -> None:
        await self.tell_refused()
        kind: tuple[str, ...] = (code, deed.who or deed.address, deed.via, deed.operation)
        if kind not in self._refused and len(self._refused) >= KINDS:
            kind, deed = ("",), replace(deed, who="", via="", address="", operation="", kind="", subject="", code="")
        known = self._refused.get(kind)
        if known is not None:
            known.count += 1
            return
        self._refused[kind] = _Refused(deed)
        await self._rows.add(deed)

    async def tell_refused(self, *, at_once: bool = False) -> None:
        """Once a minute, or at once, write how many more were refused of each kind."""
        if not self._refused or (not at_once and self._clock.elapsed() - self._since < WINDOW):
            if not self._refused:
                self._since = self._clock.elapsed()
            return
        counted = [each for each in self._refused.values() if each.count]
        self._refused, self._since = {}, self._clock.elapsed()
        if counted:
            await self._store.append_audit([
                replace(each.deed, count=each.count, request_id=next(self._ids), nth=0, rows=0) for each in counted
            ])  # fmt: skip

    async def read(self, done: Sequence[Deed]) -> None:
        """Secrets are about to be given out."""
        for deed in done:
            deed.outcome, deed.request_id = Outcome.READ, deed.request_id or next(self._ids)
        await self._store.append_audit(done)
        self._metrics.audited[Outcome.READ] += len(done)

    async def _append(self, done: list[Deed]) -> list[None]:
        await self._store.append_audit(done)
        for deed in done:
            deed.is_sent = True
            deed.confirm()
        return [None] * len(done)

    # ── reading ──

    async def page(self, where: AuditFilter, before: int | None, limit: int) -> Page:
        """Newest first; the cursor is the id to go on before."""
        rows = await self._store.list_audit(where, before, limit + 1)
        return Page(rows[:limit], str(rows[limit - 1].id) if len(rows) > limit else None)

    async def sealed(self, after: int, limit: int) -> Page:
        """Rows in the order of their numbers; the cursor is the number to go on after."""
        rows = await self._store.read_sealed(after, limit)
        return Page(
            [row for row in rows if isinstance(row, Row)], str(rows[-1].seq) if len(rows) == limit else None
        )  # fmt: skip

    async def head(self) -> Head:
        return await self._store.audit_head()

    async def verify(self, cursor: str | None, head: str | None) -> tuple[Check, Head, bool]:
        """Look at the next rows of the chain; return what was found, the head, and whether that was the end.

        The head is read first: rows that are sealed meanwhile are beyond it, and are looked at next time."""
        place = read_place(cursor, "cursor") if cursor else None
        noted = read_head(head, "head") if head else None
        while True:
            known = await self._store.audit_head()
            if place is None or place.seq < known.first_seq:
                place = Place(known.first_seq, known.first_hash, known.first_hash)
            check = Check(place, noted)
            rows = await self._look_from(check)
            if (await self._store.audit_head()).first_seq <= place.seq:
                break  # else rows were dropped meanwhile: what is left is looked at
        is_last = not rows or (rows[-1].seq or 0) >= known.seq
        if rows:
            check.see_strays(await self._store.find_strays(place.seq, check.place.seq), rows)
        if is_last:
            check.end(await self._store.audit_head() if check.place.seq > known.seq else known)
        return check, known, is_last

    async def _look_from(self, check: Check) -> list[Row | Gone]:
        """Look at the next rows, and return them."""
        seen: list[Row | Gone] = []
        async with aclosing(read_ahead(self._parts(check.place.seq))) as parts:
            async for rows in parts:
                await _look_at(check, rows)
                seen += rows
        return seen

    async def _parts(self, after: int) -> AsyncIterator[list[Row | Gone]]:
        for _ in range(SLICE // PART):
            rows = await self._store.read_sealed(after, PART)
            if rows:
                yield rows
            if len(rows) < PART:
                return
            after = rows[-1].seq or 0


async def _look_at(check: Check, rows: Sequence[Row | Gone]) -> None:
    """Others have a turn in between."""
    for start in range(0, len(rows), LOOKED_AT):
        check.see(rows[start : start + LOOKED_AT])
        await asyncio.sleep(0)
