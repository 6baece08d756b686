"""Segments 0..99: which one a job belongs to, and which node owns which.

The assignment moves as few segments as possible when nodes come and go: a node keeps what it has up
to its fair share, and only what is left over is given out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

from horae.core.model import SEGMENTS

_MIX = 0x9E3779B97F4A7C15  # 2^64 / golden ratio: neighbouring ids land far apart


def segment_of(job_id: int) -> int:
    """The segment of a job that was not given one."""
    return ((job_id * _MIX) & 0xFFFF_FFFF_FFFF_FFFF) * SEGMENTS >> 64


def rebalance(owners: Mapping[int, str], nodes: Collection[str]) -> dict[int, str]:
    """The moves that share all segments evenly among `nodes`: segment → new owner.

    >>> rebalance({}, ["a"]) == {segment: "a" for segment in range(100)}
    True
    """
    if not nodes:
        return {}
    ordered = sorted(nodes)
    held: dict[str, list[int]] = {node: [] for node in ordered}
    homeless = []
    for segment in range(SEGMENTS):
        owner = owners.get(segment)
        if owner in held:
            held[owner].append(segment)
        else:
            homeless.append(segment)
    share, extra = divmod(SEGMENTS, len(ordered))
    # Those who hold most keep the odd ones, so that nothing moves only to round a number.
    by_load = sorted(ordered, key=lambda node: (-len(held[node]), node))
    quota = {node: share + (rank < extra) for rank, node in enumerate(by_load)}
    for node in ordered:
        homeless += held[node][quota[node] :]
        del held[node][quota[node] :]
    moves = {}
    for node in ordered:
        for _ in range(quota[node] - len(held[node])):
            moves[homeless.pop()] = node
    return moves


def gather(owners: Mapping[int, str], nodes: Collection[str]) -> dict[int, str]:
    """The moves that give all segments to one of `nodes`: to who has most of them already.

    >>> gather({0: "b"}, ["a", "b"]) == {segment: "b" for segment in range(1, 100)}
    True
    """
    if not nodes:
        return {}
    held = Counter(owner for owner in owners.values() if owner in nodes)
    active = min(nodes, key=lambda node: (-held[node], node))
    return {segment: active for segment in range(SEGMENTS) if owners.get(segment) != active}
