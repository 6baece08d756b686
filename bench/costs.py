"""What PostgreSQL has done for a place: commits, bytes of its log, processor time of the processes that serve it.

Unlike rates, these can be compared on a machine that is busy with other things.
"""

from __future__ import annotations

from bench.node import cpu_of
from bench.places import Place, PostgresPlace

COUNTERS = """SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn,
  (SELECT xact_commit FROM pg_stat_database WHERE datname = current_database())"""


async def spent(place: Place) -> dict[str, float]:
    """Return it so far; of SQLite nothing is known. Processes that have ended are left out."""
    if not isinstance(place, PostgresPlace):
        return {}
    [(wal, commits)] = await place.rows(COUNTERS)
    cpu = sum(map(cpu_of, await place.backends()))
    return {"postgres_cpu_us": cpu * 1e6, "wal_bytes": float(wal), "commits": float(commits)}


def by_run(before: dict[str, float], after: dict[str, float], runs: int) -> dict[str, float]:
    """Return what each of so many runs has cost between the two."""
    return {f"{name}_per_run": float(f"{(after[name] - before[name]) / runs:.4g}") for name in after}
