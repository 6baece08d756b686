"""Pauses: who paused a job. And breakers: a job whose runs fail again and again pauses itself, and says why.

The row of failures begins anew with every change of the job, a resume among them: only runs made since then count. So
nothing is counted anywhere but in the history that is kept anyway, and whoever looks comes to the same result.
"""

from __future__ import annotations

from dataclasses import replace

from horae.core.model import Job, Json, Moment

FACADE = "horae"  # our own part of a job's annotations
_BECAUSE, _BY, _AT = "paused_because", "paused_by", "paused_at"


def paused_because(job: Job) -> str:
    """Return why a job has paused itself; empty if it did not."""
    ours = job.annotations.get(FACADE)
    why = ours.get(_BECAUSE) if job.paused and isinstance(ours, dict) else None
    return why if isinstance(why, str) else ""


def paused_by(job: Job) -> tuple[str, Moment | None]:
    """Return who paused a job, and when; empty where that was not noted."""
    ours = job.annotations.get(FACADE)
    found = ours if job.paused and isinstance(ours, dict) else {}
    by, at = found.get(_BY), found.get(_AT)
    return (by if isinstance(by, str) else ""), (at if isinstance(at, int) else None)


def paused_job(job: Job, by: str, at: Moment) -> Job:
    """Return a job that somebody pauses; one that is paused stays as it is."""
    if job.paused or not by:
        return replace(job, paused=True)
    return replace(job, paused=True, annotations={**job.annotations, FACADE: {_BY: by, _AT: at}})


def trip(job: Job, failures: int) -> Job:
    """Return the job, paused."""
    runs = "its last run" if failures == 1 else f"its last {failures} runs"
    return replace(job, paused=True, annotations={**job.annotations, FACADE: {_BECAUSE: f"{runs} failed"}})


def without_reason(annotations: Json) -> Json:
    """Return the annotations of a job that is not paused."""
    return (
        {name: value for name, value in annotations.items() if name != FACADE} if FACADE in annotations else annotations
    )
