"""A big past, made by the database itself: jobs with a trigger each, runs that have ended, and some that are live.

Two jobs stand out, because lists of them were slow once: FAILING has only failures, SKIPPING was only ever skipped.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from bench.load import drafts, register
from bench.places import Place
from horae.core.model import SECOND

FAILING, SKIPPING = 1, 2
DAY = 86_400 * SECOND
DAYS = 90 * DAY
SLICE = 1_000_000  # rows in one statement
LIVE = 10_000
LOST = 20_000  # attempts that were lost with their agent

JOBS = """
INSERT INTO jobs (id, created_at, updated_at, deleted_at, org, version, segment, paused, owner, name, key, kind, spec,
  policy, triggers, annotations)
SELECT i, j.created_at, j.updated_at, NULL, j.org, 1, i % 100, {false}, 'owner ' || (i % 100), 'Job of team ' || i,
  NULL, CASE i % 1000 WHEN 3 THEN 'shell' ELSE j.kind END, j.spec, j.policy,
  replace(j.triggers, '"id":1', '"id":' || i), j.annotations
FROM {series}, (SELECT * FROM jobs WHERE id = 1) AS j"""
DUE = """
INSERT INTO due (trigger_id, job_id, next_at, last_at, version, segment)
SELECT i, i, {now} + (i * 7919) % {jobs} * 1000000, {now} - i, 1, i % 100 FROM {series}"""
HISTORY = """
INSERT INTO history (id, job_id, trigger_id, due_at, created_at, started_at, finished_at, into_run_id, fence, exit_code,
  state, attempt, priority, lost, kind, reason, node, message, result, output, data)
SELECT i, job, job, at, at + 900, at + 2000, at + 9000, NULL, 1, 0,
  CASE WHEN job = 1 THEN 11 WHEN job = 2 THEN 14 WHEN i % 100 < 90 THEN 10 WHEN i % 100 < 94 THEN 11
    WHEN i % 100 < 96 THEN 12 WHEN i % 100 < 97 THEN 13 WHEN i % 100 < 99 THEN 14 ELSE 15 END,
  1, 0, 0, 'python', '', 'node ' || (i % 50), '', NULL, NULL, NULL
FROM (SELECT i, {now} - ({runs} - i) * {step} AS at,
        CASE WHEN i % 33 = 0 THEN 1 WHEN i % 50 = 1 THEN 2 ELSE (i * 7919) % {jobs} + 1 END AS job
      FROM {series}) AS r"""
LIVE_RUNS = """
INSERT INTO live (id, job_id, trigger_id, due_at, created_at, gate, state, priority, overlap, kind, node, attempt,
  fence)
SELECT {runs} + i, (i * 7919) % {jobs} + 1, i, {now} - i, {now} - i, NULL, CASE WHEN i % 10 = 0 THEN 1 ELSE 0 END, 0, 1,
  'python', CASE WHEN i % 10 = 0 THEN 'node ' || (i % 50) END, 1, 1 FROM {series}"""
ATTEMPTS = """
INSERT INTO attempts (run_id, started_at, finished_at, fence, exit_code, attempt, state, reason, node, message, output)
SELECT i * 10, {now} - i, {now} - i, 1, NULL, 1, 11, CASE WHEN i % 2 = 0 THEN 'lost' ELSE 'exit' END, 'node 1', '', NULL
FROM {series}"""


async def fill(place: Place, jobs: int, runs: int) -> float:
    """Seconds that it took."""
    began = time.monotonic()
    await register(place, drafts(1, schedule={"every": "300d"}))
    await _insert(place, JOBS, 2, jobs, jobs, runs)
    await place.rows("DELETE FROM due")
    await _insert(place, DUE, 1, jobs, jobs, runs)
    async with _bare(place, "history"):
        await _insert(place, HISTORY, 1, runs, jobs, runs)
    await _insert(place, LIVE_RUNS, 1, LIVE, jobs, runs)
    await _insert(place, ATTEMPTS, 1, min(LOST, runs // 10), jobs, runs)
    ids = {"job": jobs, "trigger": jobs, "run": runs + LIVE}
    for name, value in ids.items():
        is_sqlite = place.store == "sqlite"
        await place.rows(
            f"UPDATE ids SET value = {value} WHERE name = '{name}'"
            if is_sqlite
            else f"SELECT setval('{name}_id', {value})"
        )
    await place.settle()
    return time.monotonic() - began


@asynccontextmanager
async def _bare(place: Place, table: str) -> AsyncIterator[None]:
    """A table without indexes while it is filled: SQLite makes them several times faster of all rows at once."""
    if place.store != "sqlite":
        yield
        return
    query = "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL AND tbl_name = "
    indexes = await place.rows(f"{query}'{table}'")
    for name, _ in indexes:
        await place.rows(f"DROP INDEX {name}")
    yield
    for _, statement in indexes:
        await place.rows(statement)


async def rest(place: Place) -> None:
    """Make nothing due for a day: a server without a scheduler is only ready where nothing waits for one."""
    await place.rows(f"UPDATE due SET next_at = next_at + {DAY}")


async def _insert(place: Place, statement: str, first: int, last: int, jobs: int, runs: int) -> None:
    is_sqlite = place.store == "sqlite"
    now = time.time_ns() // 1000
    for start in range(first, last + 1, SLICE):
        end = min(start + SLICE - 1, last)
        series = f"generate_series({start}, {end}) AS n(i)"
        if is_sqlite:
            series = f"(WITH RECURSIVE n(i) AS (SELECT {start} UNION ALL SELECT i + 1 FROM n WHERE i < {end}) SELECT i FROM n)"  # noqa: E501
        else:
            series = f"(SELECT i::bigint FROM {series}) AS n"
        values = {"series": series, "now": now, "jobs": jobs, "runs": runs, "step": DAYS // max(runs, 1)}
        await place.rows(statement.format(**values, false="0" if is_sqlite else "false"))
