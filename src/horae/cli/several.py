"""One command, several things: each is answered for itself, and one that cannot be had keeps no other from it.

One name is answered as ever: its answer, or its error. Of several, --json is a list with an answer for each, in their
order; an answer that is an error has `of` and `error`, and every error is on standard error too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from horae.cli.planning import LIVE
from horae.cli.screen import Json, problem_of, show_error
from horae.cli.session import Session, exit_code_of
from horae.errors import Error, Unavailable

if TYPE_CHECKING:
    from horae.client import SyncClient

Name = TypeVar("Name", str, int)


def for_each(
    session: Session,
    names: Sequence[Name],
    act: Callable[[Name], Json],
    say: Callable[[Json], None],
    *,
    is_long: bool = False,
) -> int:
    """Act on each of these, and say what became of it; returns the exit code of the first that failed. A blank line
    stands between answers that are `is_long`."""
    if len(names) == 1:
        answer = act(names[0])
        session.screen.json(answer) if session.as_json else say(answer)
        return 0
    answers: list[Json] = []
    codes: list[int] = []
    try:
        for name in dict.fromkeys(names):
            answer, code = _answer(session, name, act)
            if not (session.as_json or code):
                _separate(session, is_long and bool(answers))
                say(answer)
            answers.append(answer)
            codes.append(code)
    finally:  # what was done before a server was lost is done, and must be told
        if session.as_json:
            session.screen.json(answers)
    return next(filter(None, codes), 0)


def _separate(session: Session, is_needed: bool) -> None:
    if is_needed:
        session.screen.line()


def _answer(session: Session, name: Name, act: Callable[[Name], Json]) -> tuple[Json, int]:
    """Return what came of one, and its exit code."""
    try:
        return act(name), 0
    except Unavailable:
        raise  # as it would be for the rest
    except Error as error:
        return tell_error(session, name, error)


def tell_error(session: Session, name: str | int, error: Error) -> tuple[Json, int]:
    """Say what is wrong with one of several; returns what stands in the place of its answer, and the exit code."""
    if str(name) not in error.message:
        error.message = f"{name}: {error.message}"
    code = exit_code_of(error)
    show_error(error, code, as_json=session.as_json)
    return {"of": name, "error": problem_of(error, code)}, code


def live_runs(client: SyncClient, job_id: int) -> list[Json]:
    """Return the runs of a job that wait or run, the oldest first."""
    found: list[Json] = client.json.runs(job_id=job_id, state=",".join(LIVE), limit=None)["items"]
    return found[::-1]
