"""How much a template becomes, found before it is rendered: a few references to one large result could else fill the
memory of a server.

A weight is never more than the bytes that a value has as JSON, and costs no more to find than it says.
"""

from __future__ import annotations

from typing import Any

from horae.core.workflows.expressions import Scope, paths_in, value_at


def weight_of(value: Any, most: int) -> int:
    """Return the weight of a value; of one that has more than `most`, something more than that."""
    weight = 0
    left = [value]
    while left and weight <= most:
        one = left.pop()
        if isinstance(one, str):
            weight += len(one) + 2
        elif isinstance(one, dict):
            weight += 2 + sum(map(len, one)) + 4 * len(one)
            left += one.values()
        elif isinstance(one, list):
            weight += 2 + len(one)
            left += one
        else:
            weight += 1
    return weight


def rendered_weight(template: Any, scope: Scope, most: int) -> int:
    """Return the weight of what a template becomes, as weight_of does. Invalid where something is not there."""
    weight = 0
    known: dict[int, int] = {}  # a value that the scope holds, by its identity → its weight
    for path in paths_in(template):
        value = value_at(path, scope)
        if id(value) not in known:
            known[id(value)] = weight_of(value, most)
        weight += known[id(value)]
        if weight > most:
            break
    return weight
