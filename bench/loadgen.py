"""Load on a Horae over HTTP: plain sockets kept alive, because a client library would measure itself.

As a program it is a process of its own: `python -m bench.loadgen submit PORT CLIENTS TOTAL [TOKEN]` submits so many
jobs, one a request, and prints the rate and the times of the answers as one JSON line; `run PORT CLIENTS TOTAL NAME`
asks for so many runs, under keys that begin with the name.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Iterator
from typing import Any

import uvloop

JOB = {"name": "bench", "handler": "horae.handlers:noop", "schedule": "0 3 1 1 *"}
# Nobody takes its runs: what is measured is the door, not the work behind it.
KEPT_JOB = {"name": "bench", "handler": "horae.handlers:noop", "overlap": "allow", "labels": ["nobody"]}
KEPT_JOBS = 50
Ask = tuple[str, bytes, str]  # path, body, headers


class Wire:
    """One connection, one request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, token: str = "") -> None:
        self._reader = reader
        self._writer = writer
        self._login = f"Authorization: Bearer {token}\r\n" if token else ""

    @classmethod
    async def connect(cls, port: int, token: str = "") -> Wire:
        return cls(*await asyncio.open_connection("127.0.0.1", port), token)

    async def ask(self, method: str, path: str, body: bytes = b"", headers: str = "") -> tuple[int, bytes]:
        """Return the status and the body of the answer; `headers` are lines with their ends."""
        status, _, answer = await self.answer(method, path, body, headers)
        return status, answer

    async def answer(self, method: str, path: str, body: bytes = b"", headers: str = "") -> tuple[int, bytes, bytes]:
        """Return the same with the head of the answer."""
        head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{self._login}{headers}Content-Length: {len(body)}\r\n"
        self._writer.write(head.encode() + b"Content-Type: application/json\r\n\r\n" + body)
        answer = await self._reader.readuntil(b"\r\n\r\n")
        length = next(int(line[15:]) for line in answer.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        return int(answer[9:12]), answer, await self._reader.readexactly(length)

    async def json(self, method: str, path: str, document: Any = None) -> Any:
        body = b"" if document is None else json.dumps(document).encode()
        status, answer = await self.ask(method, path, body)
        if status >= 400:
            raise RuntimeError(f"{method} {path}: {status} {answer.decode()}")
        return json.loads(answer)

    def close(self) -> None:
        self._writer.close()


async def submit(port: int, clients: int, total: int, token: str = "") -> dict[str, Any]:
    """Jobs, one a request."""
    body = json.dumps(JOB).encode()
    return await _post(port, clients, total, token, (("/v1/jobs", body, "") for _ in range(total)))


async def run(port: int, clients: int, total: int, name: str) -> dict[str, Any]:
    """Runs of a few jobs, one a request, each with data and an Idempotency-Key, as the client sends them."""
    wire = await Wire.connect(port)
    jobs = [(await wire.json("POST", "/v1/jobs", KEPT_JOB))["jobs"][0]["id"] for _ in range(KEPT_JOBS)]
    wire.close()
    asks = (
        (
            f"/v1/jobs/{jobs[number % KEPT_JOBS]}/run",
            b'{"data": {"number": 1}}',
            f"Idempotency-Key: {name}-{number}\r\n",
        )
        for number in range(total)
    )
    return await _post(port, clients, total, "", asks)


async def _post(port: int, clients: int, total: int, token: str, asks: Iterator[Ask]) -> dict[str, Any]:
    """Many clients at once, each with one request under way."""
    times: list[float] = []

    async def client() -> None:
        wire = await Wire.connect(port, token)
        for path, body, headers in asks:
            began = time.perf_counter()
            status, answer = await wire.ask("POST", path, body, headers)
            times.append(time.perf_counter() - began)
            if status != 201:
                raise RuntimeError(f"{status} {answer.decode()}")
        wire.close()

    began = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(clients):
            group.create_task(client())
    seconds = time.perf_counter() - began
    times.sort()
    return {
        "rate": total / seconds,
        "p50_ms": round(times[len(times) // 2] * 1000, 2),
        "p99_ms": round(times[len(times) * 99 // 100] * 1000, 2),
        "own_cpu_us": round(time.process_time() / total * 1e6, 1),
    }


WAYS = {"submit": submit, "run": run}

if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        print(json.dumps(runner.run(WAYS[sys.argv[1]](*map(int, sys.argv[2:5]), *sys.argv[5:]))))
