"""Runs that another one calls, and what it is told of their ends."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from horae.core.model import Moment, State
from horae.core.runs.flows import Unrun
from horae.core.runs.orders import Order
from horae.core.runs.waits import MAX_ANSWERS


class Calls(NamedTuple):
    """What an attempt calls, ready to be made: in the transaction in which its run begins to wait for it."""

    orders: Sequence[Order]
    unrun: Sequence[Unrun] = ()  # that cannot be: their ends are noted like those of others


class CallEnd(NamedTuple):
    """How a run ended that was called."""

    run_id: int
    task: str
    state: State
    message: str
    result: str | None  # JSON text


@dataclass(frozen=True, slots=True)
class Answered:
    """What became of rows of the outbox that concern callers."""

    queued: int = 0  # callers that go on
    demanding: int = 0  # of those, who demand more than a slot
    noted: bool = False  # a caller has ended for whose end somebody waits


def with_ends(answers: str | None, ends: Sequence[CallEnd], known: frozenset[str], now: Moment) -> str | None:
    """Return what a caller was told, with the ends that it was not told of. A result that does not fit is a failure,
    which says so."""
    text = answers
    for end in ends:
        if end.task not in known:
            member = _member(end, now, (len(text) if text else 2) + 1)
            text = f"{'{' if text is None else text[:-1] + ','}{member}}}"
    return text


def _member(end: CallEnd, now: Moment, used: int) -> str:
    said = {"at": now, "run": end.run_id, "state": end.state.word, "message": end.message}
    if end.state is State.SUCCEEDED and end.result is not None:
        if used + len(end.result.encode()) + 1000 <= MAX_ANSWERS:
            return f'"{end.task}":{json.dumps(said)[:-1]},"value":{end.result}}}'
        said |= {"state": State.FAILED.word, "message": "it succeeded, but its result does not fit: return less"}
    return f'"{end.task}":{json.dumps(said)}'


def is_complete(awaits: str | None, known: frozenset[str]) -> bool:
    """Return whether all calls that a caller waits for are answered."""
    return set((awaits or "").split(",")) <= known
