"""The small thing that every part of a store stands on.

What is done in one transaction is written once for both databases, as a generator of named queries: it is handed the
rows of each before it says the next.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Generator, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from horae.core.model import Moment
from horae.core.runs.orders import Cancelled
from horae.errors import Unavailable
from horae.stores import limits
from horae.stores.queries import load_queries
from horae.stores.rows import Row, encode, from_json

Part = tuple[Cancelled, bool]  # some runs ended, and whether they were the last


async def ended_in_parts(step: Callable[[], Awaitable[Part | None]]) -> Cancelled | None:
    """Repeat a step until it is done; None as soon as it cannot be."""
    ended: set[int] = set()
    while (part := await step()) is not None:
        cancelled, is_last = part
        ended |= cancelled.ended
        if is_last:
            return replace(cancelled, ended=ended)
    return None


def too_slow() -> Unavailable:
    """A user's read was given up, so that it does not keep others waiting."""
    return Unavailable(
        f"reading this takes longer than {limits.READ_TIME:g} s, so it was given up",
        code="E_READ_TIME",
        hint="narrow the filter: name a job, a time span or fewer states",
    )


BETWEEN = "\x1f"  # texts that are strung together: JSON has none within, nor has any name
T = TypeVar("T")
Steps = Generator[tuple[Any, ...], Sequence[Row], T]  # yields (name of a query, *arguments)


class Database:
    """What the parts of a store need of a database: to read, to write, and to do several things at once."""

    dialect: str

    def __init__(self) -> None:
        self.queries = load_queries(self.dialect)

    async def read(self, statement: str, *args: Any) -> Sequence[Row]:
        raise NotImplementedError  # each database has its own way to reach a reader

    async def write(self, statement: str, *args: Any) -> Sequence[Row]:
        raise NotImplementedError  # and its own writer

    async def _transact(self, steps: Callable[[], Steps[T]]) -> T:
        """Carry out the steps in one transaction, again from the first if it lost a race."""
        raise NotImplementedError  # and its own way to keep several statements together

    async def _transact_apart(self, steps: Callable[[], Steps[T]]) -> T:
        """As _transact, of what can wait."""
        return await self._transact(steps)

    async def now(self) -> Moment:
        raise NotImplementedError  # each database has its own clock

    def _frozen_now(self) -> Moment | None:
        """Return the moment of a clock that is not the server's own; None: the server's decides."""
        raise NotImplementedError

    def _fence_floor(self) -> int | None:
        """Return the lowest fence that a claim may get now; None while nothing may be claimed."""
        raise NotImplementedError

    async def _get(self, name: str, *args: Any) -> Sequence[Row]:
        return await self.read(self.queries[name], *args)

    async def _put(self, name: str, *args: Any) -> Sequence[Row]:
        return await self.write(self.queries[name], *args)

    def _statement(self, text: str) -> str:
        return text if self.dialect == "postgres" else re.sub(r"\$(\d+)", r"?\1", text)

    def _list(self, values: Sequence[Any]) -> Any:
        """Return a list as one argument: an array in PostgreSQL, JSON text in SQLite."""
        return list(values) if self.dialect == "postgres" else encode(list(values))

    def _column(self, value: Any) -> list[Any]:
        """Return a column that is one value: an array in PostgreSQL, none if it is empty; JSON text in SQLite."""
        return value or [] if self.dialect == "postgres" else _column_of(value)

    def _texts(self, value: Any) -> list[str]:
        """Return a column of texts that is one value: strung together in PostgreSQL, JSON text in SQLite."""
        return _strung(value) if self.dialect == "postgres" else _column_of(value)


def _strung(text: str | None) -> list[str]:
    """Return texts that were strung together. The same again and again is one object."""
    if text is None:
        return []
    first = text.partition(BETWEEN)[0]
    count = text.count(BETWEEN) + 1
    return [first] * count if text == BETWEEN.join([first] * count) else text.split(BETWEEN)


def _column_of(text: str) -> list[Any]:
    """Return a list out of JSON. One that says the same again and again is read once: its values are one object."""
    value = text.partition(",")[0].removeprefix("[")
    if text.endswith(f",{value}]"):
        count = text.count(",") + 1
        if text == f"[{','.join([value] * count)}]":
            return from_json(f"[{value}]") * count  # type: ignore[no-any-return]
    return from_json(text)  # type: ignore[no-any-return]
