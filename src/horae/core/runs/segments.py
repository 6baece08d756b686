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
    """Return the segment of a job that was not given one."""
    return ((job_id * _MIX) & 0xFFFF_FFFF_FFFF_FFFF) * SEGMENTS >> 64


def rebalance(
    owners: Mapping[int, str], nodes: Collection[str], segments: Collection[int] = range(SEGMENTS)
) -> dict[int, str]:
    """Return the moves that share these segments evenly among `nodes`: segment → new owner.

    >>> rebalance({}, ["a"]) == {segment: "a" for segment in range(100)}
    True
    """
    if not nodes:
        return {}
    ordered = sorted(nodes)
    held: dict[str, list[int]] = {node: [] for node in ordered}
    homeless = []
    for segment in segments:
        owner = owners.get(segment)
        if owner in held:
            held[owner].append(segment)
        else:
            homeless.append(segment)
    share, extra = divmod(len(segments), len(ordered))
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


def share(owners: Mapping[int, str], nodes: Collection[str], told: Mapping[str, Collection[int]]) -> dict[int, str]:
    """As `rebalance`, but nodes that were told their segments have those, and the others share the rest; where all
    were told, all of them do. So every segment has an owner whatever anybody was told.

    >>> moves = share({}, ["a", "b"], {"a": [7]})
    >>> moves[7], set(moves.values()), [moves[segment] for segment in (6, 8)]
    ('a', {'a', 'b'}, ['b', 'b'])
    """
    fixed = {segment: node for node in nodes for segment in told.get(node, ())}
    rest = [segment for segment in range(SEGMENTS) if segment not in fixed]
    moves = {segment: node for segment, node in fixed.items() if owners.get(segment) != node}
    return moves | rebalance(owners, [node for node in nodes if node not in told] or nodes, rest)


def gather(
    owners: Mapping[int, str], nodes: Collection[str], told: Mapping[str, Collection[int]] | None = None
) -> dict[int, str]:
    """Return the moves that give all segments to one of `nodes`, whatever it was told: to who has most of them already.

    >>> gather({0: "b"}, ["a", "b"]) == {segment: "b" for segment in range(1, 100)}
    True
    """
    if not nodes:
        return {}
    held = Counter(owner for owner in owners.values() if owner in nodes)
    active = min(nodes, key=lambda node: (-held[node], node))
    return {segment: active for segment in range(SEGMENTS) if owners.get(segment) != active}
