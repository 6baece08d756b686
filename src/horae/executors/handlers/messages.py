"""What an agent and its worker processes say to each other.

Both sides send frames, four bytes of length and one msgpack value, and every frame carries as many things as are ready.
The first frame is the agent's Setup; then

    agent  ──►  worker   Orders: calls to begin, runs to stop, handlers to describe
    worker ──►  agent    Report: output by run, how runs ended, how far they are, what handlers take, what was loaded
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from horae.core.waits import Wait

# In the message of an End that is QUEUED:
STALE = "stale"  # the worker's code is no longer what its files say; `result` is one of those
ELSEWHERE = "elsewhere"  # the handler needs another environment: `result` is its Requirements as JSON, or null


class Setup(msgspec.Struct, array_like=True):
    is_shared: bool
    search_path: list[str]
    jobs_directory: str | None
    environment: str = ""  # digest of the requirements for which the worker was started


class Call(msgspec.Struct, array_like=True, gc=False):
    """One attempt to run."""

    run_id: int
    attempt: int
    fence: int
    job_id: int
    job_name: str
    due_at: int
    handler: str
    data: str | None  # JSON text, read by whoever runs the handler
    env: dict[str, str]
    previous: str | None  # JSON text
    installation: str = ""  # its part of the trace id
    answers: str | None = None  # JSON text: what the run was told while it waited
    begun_at: int = 0
    callbacks: str | None = None  # of its addresses (Assignment.callbacks)
    trace: str = ""  # its traceparent, where that is not of its run alone


class Orders(msgspec.Struct, array_like=True):
    calls: list[Call]
    stops: list[int]
    asked: list[str] = []  # handlers


class End(msgspec.Struct, array_like=True, gc=False):
    """How one call ended. QUEUED: it was not run, because its handler is of another sort (in `message`), STALE or
    ELSEWHERE."""

    run_id: int
    state: int
    message: str = ""
    result: str | None = None
    retry_after: float | None = None
    final: bool = False  # another attempt cannot help
    classes: list[str] = []  # of the exception, nearest first (core.runs.retrying)
    why: str = ""  # it may be repeated, or not
    wait: Wait | None = None  # of one that is BLOCKED: for what


class Description(msgspec.Struct, array_like=True):
    """What a handler takes."""

    handler: str
    schema: str | None = None  # JSON Schema of its data; None: anything, or it cannot be loaded
    files: list[str] = []  # where that is written; none: nobody knows
    is_stale: bool = False  # its files changed while they were read: ask a new process
    requirements: str = ""  # its Requirements as JSON, where it needs an environment of its own: ask there
    result: str | None = None  # JSON Schema of what it returns; None: anything, or nobody knows


class Load(msgspec.Struct, array_like=True):
    """A handler that was loaded, or why it could not be."""

    handler: str  # as the job names it
    version: str
    function: str = ""
    file: str = ""
    kind: str = ""  # async, plain or inline
    error: str = ""


class Report(msgspec.Struct, array_like=True):
    output: dict[int, bytes]
    ends: list[End]
    progress: dict[int, dict[str, Any]] = {}
    descriptions: list[Description] = []
    loads: list[Load] = []


_encoder = msgspec.msgpack.Encoder()


def frame(value: Setup | Orders | Report) -> bytes:
    body = _encoder.encode(value)
    return len(body).to_bytes(4) + body


class Frames:
    """Puts frames together again from whatever pieces the socket gives."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        self._bytes += data
        while len(self._bytes) >= 4:
            end = 4 + int.from_bytes(self._bytes[:4])
            if len(self._bytes) < end:
                return
            body = bytes(self._bytes[4:end])
            del self._bytes[:end]
            yield body
