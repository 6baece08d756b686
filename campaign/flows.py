"""Workflows beside the workload: a fan-out, a diamond with a branch for failures, and one that waits to be told.

Shapes and sizes are drawn; what a run of one should come to follows from its plan (campaign.tasks).
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

from campaign.history import SECOND, Plan, TaskPlan
from campaign.workload import Labour

OVERLAPS = ("allow", "allow", "allow", "queue", "forbid", "replace")
FAILING = 12.0  # per cent of attempts


def workflows(chance: random.Random, *, listed: bool) -> Iterator[tuple[Plan, Labour]]:
    """With `listed`, the first task of a fan-out returns its items; else they are written in its document."""
    for name, tasks in (("fan", _fan(chance, listed=listed)), ("diamond", _diamond(chance)), ("ask", _ask())):
        every = chance.randint(100, 400) * SECOND // 10 if chance.random() < 0.3 else None
        plan = Plan(
            f"flow-{name}", every=every, at=0 if every is None else None, overlap=chance.choice(OVERLAPS),
            attempts=chance.choice((1, 1, 2)), tasks=tasks,
        )  # fmt: skip
        yield plan, (0.0, chance.choice((0.1, 0.5, 2.0)), FAILING)


def followers(chance: random.Random) -> Iterator[tuple[Plan, Labour]]:
    """A job with moments of the clock, one that has the same and waits for it, and one that it makes."""
    before = Plan(
        "before", seconds=chance.choice((10, 15, 20)), minutes=1, overlap=chance.choice(OVERLAPS), key="before"
    )
    labour = (0.0, chance.choice((0.1, 0.5, 2.0)), 25.0)
    yield before, labour
    ons = ("success", "success", "failure", "end")
    yield replace(before, name="beside", key="", after="before", on=chance.choice(ons), overlap="allow"), labour
    yield Plan("behind", after="before", on=chance.choice(ons), overlap="allow"), labour


def _fan(chance: random.Random, *, listed: bool) -> tuple[TaskPlan, ...]:
    items, at_once = chance.choice((0, 2, 4, 7)), chance.choice((None, None, 2))
    return (
        TaskPlan("list"),
        TaskPlan("convert", (("list", "success"),), items, "list" if listed else "", at_once, chance.random() < 0.2),
        TaskPlan("check", (("convert", "success"),)),
        TaskPlan("clean", (("convert", "failure"),)),
    )


def _diamond(chance: random.Random) -> tuple[TaskPlan, ...]:
    return (
        TaskPlan("top"),
        TaskPlan("left", (("top", "success"),), may_fail=chance.random() < 0.3),
        TaskPlan("right", (("top", "success"),), items=chance.choice((None, 2))),
        TaskPlan("join", (("left", "success"), ("right", "success"))),
        TaskPlan("mend", (("right", "failure"), ("left", "end"))),
        TaskPlan("last", (("join", "end"), ("mend", "end"))),
    )


def _ask() -> tuple[TaskPlan, ...]:
    return (
        TaskPlan("first"),
        TaskPlan("ask", (("first", "success"),), waits=True),
        TaskPlan("then", (("ask", "success"),)),
    )
