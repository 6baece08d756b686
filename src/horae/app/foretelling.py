"""A forecast of very many triggers, made by a process of its own that reads the database itself.

It takes a second or two of a processor. In a thread of a server it would take turns with every request: each answer of
the database would be waited for twice. So it is made beside, with less urgency than anything else, and sent back.

    server ── the database, and what is asked ──► python -m horae.app.foretelling ── the forecast ──► server

The process ends with its work, and its memory with it. Where the database is goes through a pipe, because it may have a
password in it.
"""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import PIPE

import msgspec

from horae.core.insight.forecast import Forecast
from horae.errors import Unavailable
from horae.service.insight.forecasting import Asked, Forecasting
from horae.stores.postgres import PostgresStore

PROGRAM = (sys.executable, "-P", "-m", "horae.app.foretelling")
LESS_URGENT = 10  # as `nice` counts
_encode = msgspec.msgpack.Encoder().encode
_read_asked = msgspec.msgpack.Decoder(tuple[str, Asked]).decode
_read_found = msgspec.msgpack.Decoder(Forecast).decode


class ForecastProcess:
    def __init__(self, url: str) -> None:
        """`url`: of a PostgreSQL."""
        self._url = url

    async def make(self, asked: Asked) -> Forecast:
        # In a session of its own: what is pressed at a terminal is for the server.
        process = await asyncio.create_subprocess_exec(*PROGRAM, stdin=PIPE, stdout=PIPE, start_new_session=True)
        try:
            found, _ = await process.communicate(_encode((self._url, asked)))
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode:
            raise Unavailable(f"the process that makes forecasts ended with {process.returncode}")
        return _read_found(found)


async def _foretell(url: str, asked: Asked) -> bytes:
    store = PostgresStore(url, readers=1)
    try:
        return _encode(await Forecasting(store).make(**asked._asdict()))
    finally:
        await store.close()


def main() -> None:
    os.nice(LESS_URGENT)
    url, asked = _read_asked(sys.stdin.buffer.read())
    sys.stdout.buffer.write(asyncio.run(_foretell(url, asked)))


if __name__ == "__main__":
    main()
