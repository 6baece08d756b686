"""A workflow as a picture: which task stands where, and where its lines go. Who draws it turns this into characters or
shapes.

Tasks stand in layers, each behind all that it needs; within a layer each has a lane. A line that crosses layers has a
lane of its own in each, so that it runs into no task.

What must stay true: no two things have one place; the same workflow gives the same picture.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from horae.core.model import Json
from horae.core.workflows.graph import SUCCESS, in_order, names_needed, needs_of

Counts = Mapping[str, int]  # state word → how many
Place = tuple[int, int]  # layer, lane

WAITING = "waiting"  # the state of a task that nothing has been decided about
_WORST_FIRST = ("running", "queued", "blocked", "failed", "timed_out", "cancelled", "skipped", "coalesced", "succeeded")


class TaskTally(NamedTuple):
    """How the tasks of a run stand."""

    document: str | None  # the workflow as it was when the run began, as JSON; None: it has not begun
    adopted: str | None  # what it took over from an earlier run, as JSON: label → run id
    counts: Mapping[str, Counts]  # by task
    runs: Mapping[str, int] = MappingProxyType({})  # by task, its newest run: of what was taken over, the earlier one


class Box(NamedTuple):
    """A task, and where it stands."""

    task: str
    layer: int
    lane: int
    about: str  # its kind, or the job that it is
    is_fan_out: bool
    counts: Counts  # of its runs; of a job, and of a task that waits, none

    @property
    def state(self) -> str:
        """How it stands as a whole: of a fan-out, what matters most."""
        return next((state for state in _WORST_FIRST if self.counts.get(state)), WAITING)

    @property
    def title(self) -> str:
        return f"{self.task} ×{sum(self.counts.values()) or 'n'}" if self.is_fan_out else self.task


class Line(NamedTuple):
    """From a task to one that needs it, through a place in every layer between them."""

    start: str
    end: str
    on: str  # success, failure, end
    places: tuple[Place, ...]


class Picture(NamedTuple):
    boxes: tuple[Box, ...]  # in an order in which they can be done
    lines: tuple[Line, ...]
    layers: int
    lanes: int


_Node = tuple[str, int]  # a task, and the layer: its own, or one that a line of it crosses


def picture(spec: Json, counts: Mapping[str, Counts] | None = None) -> Picture:
    """Return the picture of a workflow; `counts` has, by task, how many of its runs are in which state."""
    tasks = spec["tasks"]
    needs = names_needed(tasks)
    order = in_order(needs)
    layers = _layers(order, needs)
    lanes = _lanes(order, needs, layers)
    boxes = [
        Box(
            name,
            layers[name],
            lanes[name, layers[name]],
            _about(tasks[name]),
            "for_each" in tasks[name],
            _of(counts, name),
        )
        for name in order
    ]
    lines = [
        Line(need.task, name, need.on, _places(need.task, layers[need.task], name, layers[name], lanes))
        for name in order
        for need in needs_of(tasks[name])
    ]
    depth, width = max(layers.values(), default=-1) + 1, max(lanes.values(), default=-1) + 1
    return Picture(tuple(boxes), tuple(lines), depth, width)


def _of(counts: Mapping[str, Counts] | None, name: str) -> Counts:
    return counts.get(name, {}) if counts is not None else {}


def _about(task: Json) -> str:
    return str(task["kind"]) if "kind" in task else f"job {task['job']}"  # a run knows the jobs of all its tasks


def _layers(order: Sequence[str], needs: Mapping[str, Sequence[str]]) -> dict[str, int]:
    layers: dict[str, int] = {}
    for name in order:
        layers[name] = 1 + max((layers[need] for need in needs[name]), default=-1)
    return layers


def _lanes(order: Sequence[str], needs: Mapping[str, Sequence[str]], layers: Mapping[str, int]) -> dict[_Node, int]:
    """Return the lane of every task, and of every layer that one's lines cross: as near as can be to what is before."""
    until = dict(layers)  # the last layer that the lines of a task come through
    for name in order:
        for need in needs[name]:
            until[need] = max(until[need], layers[name] - 1)
    lanes: dict[_Node, int] = {}
    by_layer: dict[int, list[str]] = {}
    for name in order:
        for layer in range(layers[name], until[name] + 1):
            by_layer.setdefault(layer, []).append(name)
    for layer in sorted(by_layer):
        wanted = {name: _wanted(name, layer, needs, layers, lanes) for name in by_layer[layer]}
        taken = -1
        for name in sorted(by_layer[layer], key=wanted.__getitem__):
            taken = max(taken + 1, int(wanted[name]))
            lanes[name, layer] = taken
    return lanes


def _wanted(
    name: str, layer: int, needs: Mapping[str, Sequence[str]], layers: Mapping[str, int], lanes: Mapping[_Node, int]
) -> float:
    """Return the lane at which the lines into a place would be straight."""
    if layers[name] < layer:
        return lanes[name, layer - 1]
    before = [lanes[need, layer - 1] for need in needs[name]]
    return sum(before) / len(before) if before else 0


def _places(start: str, first: int, end: str, last: int, lanes: Mapping[_Node, int]) -> tuple[Place, ...]:
    through = [(layer, lanes[start, layer]) for layer in range(first, last)]
    return (*through, (last, lanes[end, last]))


def needs_words(spec: Json, name: str) -> str:
    """Say what a task needs, for a list that has no lines: `list, convert (failure)`."""
    needs = needs_of(spec["tasks"][name])
    return ", ".join(need.task if need.on == SUCCESS else f"{need.task} ({need.on})" for need in needs)
