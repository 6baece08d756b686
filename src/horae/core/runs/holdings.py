"""What an agent holds, in two numbers: how both sides of a line find out that their books differ.

The database works the same numbers out of its own rows, so a beat costs no list however many runs are held.
Which of them differ is not told by this: whoever finds a difference asks about every run (Link.disown).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

Fenced = tuple[int, int]  # a run and the fence under which it is held

PRIME = 2**31 - 1
FACTOR = 48_271


class Holding(NamedTuple):
    """Attempts, as their count and a sum that depends on each run and its fence."""

    size: int
    digest: int


def holding_of(attempts: Iterable[Fenced]) -> Holding:
    """Of (run id, fence) pairs; stores/queries.py says the same in SQL."""
    count = digest = 0
    for run_id, fence in attempts:
        mixed = (run_id % PRIME * FACTOR + fence) % PRIME
        count += 1
        digest += mixed * mixed % PRIME
    return Holding(count, digest)
