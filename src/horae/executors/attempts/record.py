"""The record of an attempt while it is made: what its sections took and said, why it was stopped, and the result that
follows from it."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable

from horae.core.model import SECOND, Json, Moment, Reason, State
from horae.core.runs.orders import Result
from horae.errors import Denied, Error, Unavailable, machine_fault
from horae.executors.attempts.output import FLOOD_TIMES
from horae.executors.attempts.sections import Section
from horae.executors.processes.keeper import LEASE_RAN_OUT
from horae.executors.processes.process import DIED
from horae.ports.clock import Clock
from horae.ports.work import Exit, Step, Work

_write_json = json.JSONEncoder(ensure_ascii=False).encode

_STATES: dict[str, State] = {  # any other stop: cancelled
    Reason.TIMEOUT: State.TIMED_OUT,
    Reason.LOST: State.FAILED,
    Reason.OUTPUT_LIMIT: State.FAILED,
}


class Record:
    def __init__(self, work: Work, clock: Clock) -> None:
        self._work = work
        self._clock = clock
        self.started_at: Moment = clock.now()
        self.reason = ""  # why it was stopped
        self.steps: list[Json] = []
        self.cursor: str | None = None  # how far a section said it came
        self._fault: Json = {}  # what the last section said of its failure

    def count(self, section: Section, exit_: Exit, seconds: float) -> None:
        """Note how long a section took."""
        number = self.next_step(section)
        if section.goes_on:
            seconds += self.steps.pop()["seconds"]
        self.steps.append({"name": section.name, "seconds": round(seconds, 3), "exit_code": exit_.code})
        now = self._clock.now()
        self._work.note_step(Step(number, section.name, now - round(seconds * SECOND), now, exit_.code))

    def next_step(self, section: Section) -> int:
        """Return the number of the step that a section is, or goes on with."""
        return len(self.steps) - section.goes_on

    def reader(self, note: Callable[[Json], None]) -> Callable[[Json], None]:
        """Return what reads the notes of a section: how far it came ({"cursor"}), and why it failed ({"error":
        {"message", "final"?}})."""
        self._fault = {}

        def read(told: Json) -> None:
            if isinstance(fault := told.get("error"), dict) and isinstance(fault.get("message"), str):
                self._fault = fault
            if isinstance(cursor := told.get("cursor"), dict):
                self.cursor = json.dumps(cursor)
            note(told)

        return read

    def judge(self, section: Section, exit_: Exit, wall: str = "") -> Result:
        """Return the result of an attempt that ends with this section, whose exit says why; `wall` is what it is told
        of the wall that it met."""
        if self.reason:
            return self.stopped(f" in {section.what}", exit_, wall)
        reason = section.reason
        if self._fault and not exit_.message and not exit_.reason:
            result = self.result(State.FAILED, reason, self._fault["message"], exit_.code)
            result.final = self._fault.get("final") is True
            return result
        if exit_.message:
            reason = Reason.LOST if exit_.message in (LEASE_RAN_OUT, DIED.message) else Reason.ERROR
        colon = ":" if exit_.message else ""
        message = f"{section.what}{colon} {verdict(exit_)}{'; ' * bool(wall)}{wall}"
        result = self.result(State.FAILED, exit_.reason or reason, message, exit_.code)
        result.ailment = exit_.ailment
        return result

    def broken(self, error: Exception) -> Result:
        """Return the result of an attempt that we could not make: lost, where the machine or what we need is to
        blame."""
        ailment = machine_fault(error)
        message = _words_of(error) if isinstance(error, Error) else f"the attempt could not be made: {ailment or error}"
        is_lost = bool(ailment) or isinstance(error, Unavailable)
        result = self.result(State.FAILED, Reason.LOST if is_lost else Reason.ERROR, message)
        result.ailment = ailment
        return result

    def stopped(self, where: str, exit_: Exit | None = None, wall: str = "") -> Result:
        """Return the result of an attempt that was stopped."""
        words: dict[str, str] = {
            Reason.TIMEOUT: f"stopped{where} after its timeout of {self._work.timeout_seconds} s",
            Reason.LOST: f"stopped{where} because its agent was closed",
            Reason.OUTPUT_LIMIT: f"stopped{where}: it wrote more than {FLOOD_TIMES} times the output that is kept",
        }
        message = words.get(self.reason, f"cancelled{where}")
        if exit_ and exit_.message:
            message += f"; {exit_.message}"
        if wall:
            message += f"; {wall}"
        state = _STATES.get(self.reason, State.CANCELLED)
        return self.result(state, self.reason, message, exit_.code if exit_ else None)

    def result(self, state: State, reason: str, message: str, exit_code: int | None = None) -> Result:
        return Result(
            self._work.assignment.run_id,
            self._work.assignment.fence,
            state,
            reason,
            started_at=self.started_at,
            finished_at=self._clock.now(),
            exit_code=exit_code,
            message=message,
            result=self.facts(),
            cursor=self.cursor if state is State.SUCCEEDED else None,
        )

    def facts(self) -> str:
        return _write_json({"steps": self.steps, **self._work.facts})


def verdict(exit_: Exit) -> str:
    """Return how a section ended, in words."""
    return exit_.message or _ending(exit_.code)


def _words_of(error: Error) -> str:
    """Return what happened, its code where it has one of its own, and what to do."""
    has_code = isinstance(error, Denied) or error.code != type(error).code
    code = f" ({error.code})" if has_code else ""
    return f"{error.message}{code}{'; ' if error.hint else ''}{error.hint}"


def _ending(code: int) -> str:
    if code < 0:
        return f"was killed by {_signal_name(-code)}"
    shown = f"ended with exit code {code}"
    return f"{shown} ({_signal_name(code - 128)})" if 128 < code <= 128 + 64 else shown


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
