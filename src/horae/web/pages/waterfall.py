"""How the time of a run was spent, as bars under each other: what it waited for, its attempts, their steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from horae import schemas
from horae.core.time import moments

WIDTH = 1000  # units of the picture
_LEAST = 3  # units of the shortest bar


class Stretch(NamedTuple):
    title: str
    kind: str  # waiting, a state, or step
    start_at: str
    end_at: str | None
    ms: float
    x: int
    width: int


def waterfall(run: schemas.Run, attempts: Sequence[schemas.Attempt], now: str) -> list[Stretch]:
    """Return the stretches of a run, in the order of time."""
    found = list(_spans(run, attempts))
    if not found:
        return []
    first = _ms(found[0][2])
    last = max(_ms(end or now) for _, _, _, end in found)
    scale = WIDTH / max(1.0, last - first)
    shown = []
    for title, kind, start, end in found:
        ms = max(0.0, _ms(end or now) - _ms(start))
        x = min(WIDTH - _LEAST, round((_ms(start) - first) * scale))
        shown.append(Stretch(title, kind, start, end, ms, x, min(WIDTH - x, max(_LEAST, round(ms * scale)))))
    return shown


def _ms(moment: str) -> float:
    return moments.parse_moment(moment) / 1000


def _spans(run: schemas.Run, attempts: Sequence[schemas.Attempt]) -> list[tuple[str, str, str, str | None]]:
    found: list[tuple[str, str, str, str | None]] = []
    if _ms(run.created_at) - _ms(run.due_at) >= 1:
        found.append(("due, not fired yet", "waiting", run.due_at, run.created_at))
    before = run.created_at
    for attempt in attempts:
        start = attempt.started_at or attempt.finished_at
        found.append(("waits for an agent" if attempt is attempts[0] else "waits to be tried again", "waiting", before,
                      start))  # fmt: skip
        found.append((f"attempt {attempt.attempt}", attempt.state, start, attempt.finished_at))
        before = attempt.finished_at
    waits = "waits to be tried again" if attempts else "waits for an agent"
    if run.state == "blocked" or (run.started_at is None and run.reason):
        waits = f"waits: {run.reason.replace('_', ' ')}"
    if run.started_at is None:
        return [*found, (waits, "waiting" if run.finished_at is None else run.state, before, run.finished_at)]
    found.append((waits, "waiting", before, run.started_at))
    found.append((f"attempt {run.attempt}", run.state, run.started_at, run.finished_at))
    return found + _steps(run)


def _steps(run: schemas.Run) -> list[tuple[str, str, str, str | None]]:
    """Steps come one after the other; what is before the first is preparation."""
    listed = run.result.get("steps") if isinstance(run.result, dict) else None
    if not isinstance(listed, list) or run.started_at is None or run.finished_at is None:
        return []
    steps = [it for it in listed if isinstance(it, dict) and isinstance(it.get("seconds"), int | float)]
    end = moments.parse_moment(run.finished_at)
    at = end - sum(round(it["seconds"] * 1e6) for it in steps)
    at = max(at, moments.parse_moment(run.started_at))
    found: list[tuple[str, str, str, str | None]] = []
    if steps and at - moments.parse_moment(run.started_at) >= 1000:
        found.append(("preparing", "waiting", run.started_at, moments.format_moment(at)))
    for it in steps:
        until = min(end, at + round(it["seconds"] * 1e6))
        state = "succeeded" if it.get("exit_code") == 0 else run.state
        found.append((f"step {it.get('name', '')}", state, moments.format_moment(at), moments.format_moment(until)))
        at = until
    return found
