"""Answers to many orders, in a form that has types: the API sends a run or a refusal, with nothing to tell them by."""

from __future__ import annotations

from msgspec import Struct

from horae.schemas import Problem, Run


class Ordered(Struct):
    """What became of one order among many: a run, or why there is none."""

    run: Run | None = None
    error: Problem | None = None
