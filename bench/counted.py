"""`python -m bench.counted up …` is `horae up`, whose every answer also says what it cost: a header with the
milliseconds until it was made, and each statement that the store was asked meanwhile, by its name, with its own."""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any

from horae.cli import main
from horae.stores.postgres import PostgresStore
from horae.stores.queries import load_queries
from horae.stores.sqlite import SqliteStore
from horae.web import http

HEADER = b"x-bench-cost"
WORDS = 60  # characters of a statement that has no name

Cost = tuple[float, list[tuple[str, float]]]  # when it began; statements
_cost: ContextVar[Cost | None] = ContextVar("cost", default=None)


def count_statements(store: type, method: str, place: int, dialect: str) -> None:
    """Note what passes through a method, whose argument at this place is the statement."""
    names = {text: name for name, text in load_queries(dialect).items()}
    ask: Callable[..., Awaitable[Any]] = getattr(store, method)

    async def noting(self: Any, *args: Any) -> Any:
        began = time.perf_counter()
        try:
            return await ask(self, *args)
        finally:
            if (cost := _cost.get()) is not None:
                text = args[place]
                took = round((time.perf_counter() - began) * 1000, 2)
                cost[1].append((names.get(text) or " ".join(text.split())[:WORDS], took))

    setattr(store, method, noting)


def tell_cost() -> None:
    begin, start = http.Request.__init__, http.Request.start

    def began(self: http.Request, *args: Any) -> None:
        begin(self, *args)
        _cost.set((time.perf_counter(), []))

    async def told(self: http.Request, status: int, headers: http.RawHeaders) -> None:
        if (cost := _cost.get()) is not None:
            spent = {"ms": round((time.perf_counter() - cost[0]) * 1000, 2), "statements": cost[1]}
            headers = [*headers, (HEADER, json.dumps(spent).encode())]
        await start(self, status, headers)

    http.Request.__init__, http.Request.start = began, told  # type: ignore[method-assign]


if __name__ == "__main__":
    count_statements(PostgresStore, "_once_more", 1, "postgres")
    count_statements(SqliteStore, "read", 0, "sqlite")
    tell_cost()
    main()
