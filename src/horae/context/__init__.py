"""What a handler is given of its run, and how it answers: `Context`, `Cancellation`, `Retry`, `Cancel`.

Beside it: `waiting` (for a moment, a signal or another run),
`signatures` (what else its parameters ask for), `results` (what it says that it returns) and `lines` (how a log line
looks).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol, TypeVar, overload

from horae.context.results import convert_result
from horae.context.waiting import Pause, Seconds, Waits, check_name
from horae.core.model import Json, Moment
from horae.core.runs.traces import trace_id, traceparent
from horae.core.waits import callback_path
from horae.core.work.progress import make_progress

T = TypeVar("T")

_YEAR = 365 * 86_400.0  # the longest wait a handler can ask for
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LOOK = 0.05  # seconds between two looks of somebody who waits to be cancelled


class Retry(Exception):
    """Raise it to fail this attempt and be tried again `after` seconds, as far as the job's retries go."""

    def __init__(self, after: float, message: str = "the handler asked to be tried again") -> None:
        super().__init__(message)
        self.after = min(max(0.0, float(after)), _YEAR)
        self.message = message


class Cancel(Exception):
    """Raise it to end the run as cancelled: there is nothing to do and a retry cannot help."""

    def __init__(self, reason: str = "the handler cancelled its run") -> None:
        super().__init__(reason)
        self.reason = reason


class Channel(Protocol):
    """The way from a handler back to whoever runs it."""

    def write(self, data: bytes) -> None: ...

    def note_progress(self, progress: Json) -> None:
        """Tell how far it is (core.work.progress), from any thread, as often as it likes; the newest word counts."""

    def is_stopped(self) -> bool: ...


class Context:
    """What a handler knows about its run, and how it answers.

    It can be printed to: `print("half way", file=context)`. Facts of the run are attributes and never
    environment variables, because many runs share a process; `env` is the `env` of the job's spec.
    """

    __slots__ = (
        "_answers",
        "_begun_at",
        "_callbacks",
        "_channel",
        "_installation",
        "_trace",
        "_waits",
        "attempt",
        "data",
        "due_at",
        "env",
        "fence",
        "job_id",
        "job_name",
        "previous_result",
        "run_id",
    )

    def __init__(
        self,
        channel: Channel,
        run_id: int,
        attempt: int,
        fence: int,
        job_id: int,
        job_name: str,
        due_at: Moment,
        data: Json,
        env: dict[str, str],
        previous_result: Any = None,
        installation: str = "",
        answers: str | None = None,
        begun_at: Moment = 0,
        callbacks: str | None = None,
        trace: str = "",
    ) -> None:
        self._channel = channel
        self._trace = trace  # the traceparent, where it is not that of the run alone
        self._installation = installation
        self._answers = answers  # JSON text: what the run was told while it waited
        self._begun_at = begun_at or due_at
        self._callbacks = callbacks  # the key of its addresses, and where they are
        self._waits: Waits | None = None  # made when it is wanted: most handlers never wait
        self.run_id = run_id
        self.attempt = attempt
        self.fence = fence
        self.job_id = job_id
        self.job_name = job_name
        self.due_at = due_at
        self.data = data
        self.env = env
        self.previous_result = previous_result  # of the job's last success, if its spec asks for it

    @property
    def scheduled_for(self) -> datetime:
        """The moment this run was due, in UTC."""
        return _EPOCH + timedelta(microseconds=self.due_at)

    @property
    def trace_id(self) -> str:
        """The W3C trace id of the run, the same in all its attempts; tasks of a workflow have that of the workflow."""
        return self._trace[3:35] or trace_id(self.run_id, self._installation)

    @property
    def traceparent(self) -> str:
        """The trace as it is handed on to other services; this attempt is the span."""
        return self._trace or traceparent(self.run_id, self.fence, self._installation)

    @property
    def cancelled(self) -> bool:
        """Whether the run was asked to stop. A long `def` handler looks here now and then and returns;
        `async def` handlers are cancelled at their next await without looking."""
        return self._channel.is_stopped()

    def log(self, text: object) -> None:
        """Write one line to the run's output."""
        self.write(f"{text}\n")

    def write(self, text: str) -> int:
        """Write text to the run's output, as a file would."""
        self._channel.write(text.encode("utf-8", "backslashreplace"))
        return len(text)

    def flush(self) -> None:
        """Nothing waits here; print(…, flush=True) asks."""

    def progress(self, done: float, total: float | str | None = None, message: str = "") -> None:
        """Say how far it is: so many of so many, or, by a float alone, how much of it, 0 to 1. Whoever looks at the run
        sees it while it goes on; calling it often costs nothing. A text in second place is the message."""
        told = make_progress(done, None, total) if isinstance(total, str) else make_progress(done, total, message)
        self._channel.note_progress(told)

    # ── waiting ──
    def snooze(self, seconds: Seconds | None = None, *, until: datetime | None = None) -> None:
        """End here, and begin again from the top after so many seconds, or at a moment; one that has come is not
        waited for. It is no attempt more, and holds no slot meanwhile."""
        self._waiting().snooze(seconds, until)

    def signal(self, name: str, *, timeout: Seconds | None = None) -> Any:
        """Return what the run was told under this name. Until somebody does (`horae signal`, POST
        /v1/runs/{id}/signals/{name}), the handler ends here, and begins again from the top then; after `timeout`
        seconds in vain, TimeoutError is raised here."""
        return self._waiting().signal(name, timeout)

    def callback_url(self, name: str) -> str:
        """Return the address at which a system outside tells this run something under a name, without a login: it
        posts any JSON, once, and `signal` of that name returns it. The same in every attempt."""
        check_name(name)
        if self._callbacks is None:
            raise RuntimeError("this run has no callback addresses: give its server the setting public_url")
        key, _, address = self._callbacks.partition(" ")
        return address + callback_path(key, self.run_id, name)

    @overload
    def call(self, job: str | int, data: Json | None = None) -> Any: ...
    @overload
    def call(self, job: str | int, data: Json | None = None, *, returns: type[T]) -> T: ...
    def call(self, job: str | int, data: Json | None = None, *, returns: Any = None) -> Any:
        """Have another job run, by key or id, and return its result, as the type `returns` if that is given. Meanwhile
        the handler has ended; when that run has, it begins again from the top. CallFailed is raised where it did not
        succeed, Invalid where its result does not fit."""
        (result,) = self._waiting().call_all([(job, data)])
        return result if returns is None else convert_result(result, returns)

    def call_all(self, calls: Sequence[tuple[str | int, Json | None]]) -> list[Any]:
        """As call, of many at once, (job, data) each: return their results in the same order, when all have ended."""
        return self._waiting().call_all(calls)

    def _waiting(self) -> Waits:
        if self._waits is None:
            self._waits = Waits(self._answers, self._begun_at)
        return self._waits

    @property
    def swallowed(self) -> Pause | None:
        """What was raised here to make the handler wait: it has no business to return after that."""
        return None if self._waits is None else self._waits.pause


class Cancellation:
    """Whether the run of a class handler was asked to stop."""

    __slots__ = ("_context",)

    def __init__(self, context: Context) -> None:
        self._context = context

    @property
    def is_cancelled(self) -> bool:
        return self._context.cancelled

    async def wait(self) -> None:
        """Return when the run is asked to stop. Whoever awaits this in the handler's own task is cancelled instead."""
        while not self.is_cancelled:  # noqa: ASYNC110  # a plain handler's channel can only be looked at
            await asyncio.sleep(_LOOK)

    def raise_if_cancelled(self) -> None:
        if self.is_cancelled:
            raise Cancel("the run was asked to stop")
