"""What a figure is: its options, its trials, and the one JSON line it prints.

Machines are noisy, so a figure never stands alone: the bare loop on the same server runs before each trial
of ours, and the medians and their quotient are what counts. A trial whose result is not exactly what was
asked for (a run lost, doubled or not succeeded) makes the figure void: it has no value.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Literal

from bench.places import Places

Options = dict[str, Any]


class Void(Exception):
    """A trial did not do what it was meant to; its numbers mean nothing."""


@dataclass(frozen=True, slots=True)
class Aim:
    """What a figure has to reach: a bound of its value, or of its quotient to the bare loop."""

    bound: Literal["at least", "at most"]
    number: float
    of: Literal["value", "quotient"] = "value"

    def is_met(self, value: float, quotient: float | None) -> bool:
        measured = value if self.of == "value" else quotient
        if measured is None:
            return False
        return measured >= self.number if self.bound == "at least" else measured <= self.number

    def __str__(self) -> str:
        return f"{self.of} {self.bound} {self.number:g}"


@dataclass(slots=True)
class Line:
    """One figure as printed."""

    figure: str
    store: str
    unit: str
    value: float | None = None
    bare: float | None = None
    aim: Aim | None = None
    detail: dict[str, Any] = field(default_factory=dict)
    void: str | None = None

    @property
    def quotient(self) -> float | None:
        return self.value / self.bare if self.value is not None and self.bare else None

    def text(self) -> str:
        ok = None
        if self.void is not None:
            ok = False
        elif self.aim is not None and self.value is not None:
            ok = self.aim.is_met(self.value, self.quotient)
        document = {
            "figure": self.figure,
            "store": self.store,
            "value": "void" if self.void is not None else _short(self.value),
            "unit": self.unit,
            "bare": _short(self.bare),
            "quotient": _short(self.quotient),
            "aim": None if self.aim is None else str(self.aim),
            "ok": ok,
            "detail": {**self.detail, **({"void": self.void} if self.void is not None else {})},
        }
        return json.dumps(document, default=str)


def _short(number: float | None) -> float | None:
    return None if number is None else float(f"{number:.4g}")


@dataclass(frozen=True, slots=True)
class Bench:
    """What a figure works with."""

    places: Places
    store: str
    options: Options

    def __getitem__(self, name: str) -> Any:
        return self.options[name]


Run = Callable[[Bench], AsyncIterator[Line]]


@dataclass(frozen=True, slots=True)
class Figure:
    name: str
    about: str
    run: Run
    options: Options
    quick: Options
    stores: tuple[str, ...]


FIGURES: dict[str, Figure] = {}


def figure(
    name: str, about: str, *, quick: Options, stores: tuple[str, ...] = ("sqlite", "postgres"), **options: Any
) -> Callable[[Run], Run]:
    """Register a figure; `options` are its defaults, `quick` replaces some of them for a fast look."""

    def register(run: Run) -> Run:
        FIGURES[name] = Figure(name, about, run, {"trials": 3, **options}, {"trials": 1, **quick}, stores)
        return run

    return register


@dataclass(frozen=True, slots=True)
class Trials:
    """Medians of interleaved trials, and the details of the median one of ours."""

    value: float
    bare: float | None
    detail: dict[str, Any]


async def interleave(
    trials: int,
    ours: Callable[[], Awaitable[tuple[float, dict[str, Any]]]],
    bare: Callable[[], Awaitable[float]] | None,
) -> Trials:
    """Bare, ours, bare, ours, …"""
    mine: list[tuple[float, dict[str, Any]]] = []
    theirs: list[float] = []
    for _ in range(trials):
        if bare is not None:
            theirs.append(await bare())
        mine.append(await ours())
    mine.sort(key=lambda trial: trial[0])
    detail = dict(mine[len(mine) // 2][1])
    detail["trials"] = [_short(value) for value, _ in mine]
    if theirs:
        detail["bare_trials"] = [_short(value) for value in theirs]
    return Trials(median(value for value, _ in mine), median(theirs) if theirs else None, detail)


async def measure(
    line: Line,
    trials: int,
    ours: Callable[[], Awaitable[tuple[float, dict[str, Any]]]],
    bare: Callable[[], Awaitable[float]] | None = None,
) -> Line:
    """Fill a line from interleaved trials; a void trial voids the line."""
    try:
        result = await interleave(trials, ours, bare)
    except Void as why:
        line.void = str(why)
        return line
    line.value, line.bare = result.value, result.bare
    line.detail = {**line.detail, **result.detail}
    return line


def percentile(sorted_values: list[float], share: float) -> float:
    return sorted_values[min(len(sorted_values) - 1, int(len(sorted_values) * share))]
