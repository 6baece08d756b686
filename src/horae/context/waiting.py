"""How a handler waits: it ends, its run is blocked and holds no slot; when it may go on, it begins again from the top.

What it has waited for before is answered at once the next time: signals by their name, calls by their place. So a
handler must come by the same calls in the same order, and what it does before them should do no harm when it is done
again.

What must stay true: nothing here blocks. Either the answer is there, or Pause is raised.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from horae.core.model import Json, Moment, Reason
from horae.core.runs.results import MAX_WAIT
from horae.core.runs.waits import MAX_CALLS, read_answers
from horae.core.waits import SIGNAL_NAME, Call, Wait

Seconds = float | timedelta
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Pause(BaseException):
    """Ends a handler that waits. It is no Exception, so that `except Exception` lets it pass; whoever catches
    everything must raise it again."""

    def __init__(self, wait: Wait) -> None:
        super().__init__("the handler waits; it begins again when it may go on")
        self.wait = wait


class CallFailed(Exception):
    """A run that was called did not succeed."""

    def __init__(self, run_id: int, state: str, message: str) -> None:
        super().__init__(f"run {run_id}, which was called, is {state}{f': {message}' if message else ''}")
        self.run_id = run_id
        self.state = state
        self.message = message


class Waits:
    """What one run was told, and what it asks for next."""

    __slots__ = ("_answers", "_begun_at", "_calls", "pause")

    def __init__(self, answers: str | None, begun_at: Moment) -> None:
        """`begun_at`: when the agent began with it."""
        self._answers = read_answers(answers)
        self._begun_at = begun_at
        self._calls = 0  # that the handler came by
        self.pause: Pause | None = None  # that was raised

    def snooze(self, seconds: Seconds | None, until: datetime | None) -> None:
        if (seconds is None) == (until is None):
            raise ValueError("snooze takes seconds, or until=, and one of them")
        if until is not None and until.tzinfo is None:
            raise ValueError("until has no time zone: datetime.now(UTC) + timedelta(hours=1)")
        if until is None:
            raise self._pause(Wait(Reason.SNOOZED, seconds=_seconds(seconds)))
        moment = (until - _EPOCH) // timedelta(microseconds=1)
        if moment > self._begun_at:
            raise self._pause(Wait(Reason.SNOOZED, until=moment))

    def signal(self, name: str, timeout: Seconds | None) -> Any:
        check_name(name)
        said = self._answers.get(name)
        if said is None:
            raise self._pause(Wait(Reason.SIGNAL, name, None if timeout is None else _seconds(timeout)))
        if "late" in said:
            raise TimeoutError(f"no signal {name} came in time")
        return said["value"]

    def call_all(self, calls: Sequence[tuple[str | int, Json | None]]) -> list[Any]:
        first = self._calls + 1
        self._calls += len(calls)
        asked = [_call(number, *call) for number, call in enumerate(calls, first)]
        unanswered = [call for call in asked if call.task not in self._answers]
        if len(unanswered) > MAX_CALLS:
            raise ValueError(f"at most {MAX_CALLS} calls at once, got {len(unanswered)}")
        if unanswered:
            raise self._pause(Wait(Reason.CHILDREN, calls=tuple(unanswered)))
        return [_returned(self._answers[call.task]) for call in asked]

    def _pause(self, wait: Wait) -> Pause:
        self.pause = Pause(wait)
        return self.pause


def check_name(name: str) -> None:
    if not SIGNAL_NAME.fullmatch(name):
        raise ValueError(f"the name of a signal is up to 128 letters, digits and . _ -; got {name!r}")


def _seconds(given: Seconds | None) -> float:
    seconds = given.total_seconds() if isinstance(given, timedelta) else float(given or 0.0)
    if not (math.isfinite(seconds) and 0 <= seconds <= MAX_WAIT):
        raise ValueError(f"seconds from 0 to {MAX_WAIT:.0f}, a year, expected; got {seconds:g}")
    return seconds


def _call(number: int, job: str | int, data: Json | None) -> Call:
    return Call(f"call:{number}", str(job), None if data is None else msgspec.json.encode(data).decode())


def _returned(said: Json) -> Any:
    if said["state"] != "succeeded":
        raise CallFailed(said["run"], said["state"], said.get("message", ""))
    return said.get("value")
