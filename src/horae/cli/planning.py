"""`--dry-run`: a command looks at what it would change, says so, and does nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from horae.cli.screen import Json
from horae.cli.session import Session
from horae.errors import Conflict, NotFound

LIVE = ("queued", "blocked", "running")


def say_would(session: Session, words: str, shown: Json) -> None:
    """Say what would be done; `words` are safe to print, `shown` is what --json has of it."""
    if session.as_json:
        session.screen.json({**shown, "dry_run": True})
    else:
        session.screen.line(f"would {words}")


def refuse_ended(run: Json) -> None:
    if run["state"] not in LIVE:
        raise Conflict(f"run {run['id']} has ended: {run['state']}", code="E_TERMINAL")


def one_of(items: Sequence[Json], field: str, value: Any, what: str) -> Json:
    """Return the thing of a list that is meant."""
    for item in items:
        if item[field] == value:
            return item
    raise NotFound(f"there is no {what} {value}")
