"""Answers to many orders, in a form that has types: the API sends a run or a refusal, with nothing to tell them by."""

from __future__ import annotations

from msgspec import Struct, ValidationError, convert, json

from horae.client.making import load_ordered
from horae.schemas import Problem, Run


class Ordered(Struct):
    """What became of one order among many: a run, or why there is none."""

    run: Run | None = None
    error: Problem | None = None


class _Runs(Struct):
    runs: list[Run]


_decode = json.Decoder(_Runs).decode


def read_ordered(body: bytes, url: str) -> list[Ordered]:
    """Mostly all are runs: then they are read as such at once."""
    try:
        return [*map(Ordered, _decode(body).runs)]
    except ValidationError:
        return convert(load_ordered(body, url), list[Ordered])
