"""The attempts at a run as a history shows them, one by one.

What must stay true: what was shown under a number stays under it, whatever becomes of the run.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from horae.core.model import Attempt, Run, State, Try


def last_attempt(run: Run, past: Collection[int]) -> int:
    """Return the number of a run's last attempt: the one that works at it, or worked, or will. `past` are those that
    did not end it. A run that waits is about to get its next; one that ended while it waited never got it, and keeps
    it."""
    is_begun = run.state is State.RUNNING or (run.state.is_terminal and run.attempt > 0 and run.attempt not in past)
    return run.attempt if is_begun else run.attempt + 1


def tries_of(run: Run, name: str, past: Sequence[Attempt]) -> dict[int | None, Try]:
    """Every attempt at a run: those that did not end it by their number, the last under None."""
    ended = {each.attempt: each.finished_at for each in past}
    last = last_attempt(run, ended)
    found: dict[int | None, Try] = {
        each.attempt: Try(run, name, each.attempt, ended.get(each.attempt - 1, run.created_at), each) for each in past
    }
    found[None] = Try(run, name, last, ended.get(last - 1, run.created_at))
    return found
