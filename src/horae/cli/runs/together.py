"""The logs of several runs: one after the other, or followed at once, with the run named before each line."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING

from horae.cli.runs.following import Named, Pieces, Shown, Wanted, head_of, say_end
from horae.cli.screen import Json
from horae.cli.session import Session
from horae.cli.several import tell_error
from horae.errors import Error, NotFound, Unavailable

if TYPE_CHECKING:
    from horae.client import Client


async def show_together(
    session: Session, names: Sequence[str], wanted: Wanted, state: str, *, is_followed: bool
) -> int:
    """Show the logs of these runs, and of the newest runs of these jobs, in one of the states; one that cannot be had
    keeps no other from it. Returns the exit code of the first that failed."""
    async with session.async_client() as client:
        named = dict.fromkeys(names)
        if is_followed:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(_follow(session, client, name, wanted, state)) for name in named]
            return next(filter(None, (task.result() for task in tasks)), 0)
        answers: list[Json] = []
        codes: list[int] = []
        for name in named:
            answer, code = await _show(session, client, name, wanted, state)
            answers.append(answer)
            codes.append(code)
    if session.as_json:
        session.screen.json(answers)
    return next(filter(None, codes), 0)


async def _show(session: Session, client: Client, name: str, wanted: Wanted, state: str) -> tuple[Json, int]:
    """Return the log of a run, as --json gives it, and the exit code; for people it is printed while it comes."""
    text = ""
    try:
        run = await _find(client, name, state)
        pieces, named = Pieces(wanted.lines(is_followed=False)), Named(run)
        log = client.log(run["id"], attempt=wanted.attempt, tail=wanted.tail, grep=wanted.text)
        async with aclosing(log) as coming:
            async for piece in coming:
                text += _printed(session, named, pieces.take(piece))
        text += _printed(session, named, pieces.rest())
    except Unavailable:
        raise  # as it would be for the rest
    except Error as error:
        return tell_error(session, name, error)
    if not session.as_json:
        session.screen.log(named.rest())
    return {**head_of(run), "text": text}, 0


def _printed(session: Session, named: Named, text: str) -> str:
    """Print a piece for people; for programs, return it."""
    if session.as_json:
        return text
    session.screen.log(named.take(text))
    return ""


async def _follow(session: Session, client: Client, name: str, wanted: Wanted, state: str) -> int:
    """Follow a run until it ends; returns the exit code of the command."""
    try:
        run = await _find(client, name, state)
        shown = Shown(session, run, wanted, Named(run))
        async with aclosing(client.follow(run["id"], attempt=wanted.attempt, tail=wanted.tail)) as events:
            async for event in events:
                shown.take(event)
    except Unavailable:
        raise
    except Error as error:
        return tell_error(session, name, error)[1]
    say_end(session, run, shown.ended)
    return 0


async def _find(client: Client, name: str, state: str) -> Json:
    """Return a run by its id, or the newest of a job."""
    found: Json
    if re.fullmatch("[0-9]{1,19}", name):
        found = await client.json.run(int(name))
        return found
    job = await client.json.find_job(name)
    for found in (await client.json.runs(job_id=job["id"], state=state, limit=1))["items"]:
        return found
    raise NotFound(f"job {job['name']} has not run yet", hint="`horae run JOB` runs a job now")
