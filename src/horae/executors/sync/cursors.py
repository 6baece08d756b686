"""Cursors as they are kept: {"column", "type", "value"}, a value of a column as JSON."""

from __future__ import annotations

import datetime as dt
import decimal
from collections.abc import Callable
from typing import Any

from horae.core.model import Json
from horae.executors.destinations import Refused

_KINDS: dict[str, tuple[type, Callable[[Any], Any], Callable[[Any], Any]]] = {  # word → type, to JSON, from JSON
    "timestamp": (dt.datetime, dt.datetime.isoformat, dt.datetime.fromisoformat),
    "date": (dt.date, dt.date.isoformat, dt.date.fromisoformat),
    "decimal": (decimal.Decimal, str, decimal.Decimal),
    "integer": (int, int, int),
    "float": (float, float, float),
    "text": (str, str, str),
}


def kept_cursor(column: str, value: Any) -> Json:
    """Return a cursor as it is kept."""
    for word, (kind, shown, _) in _KINDS.items():
        if isinstance(value, kind) and not isinstance(value, bool):
            return {"column": column, "type": word, "value": shown(value)}
    raise Refused(f"the cursor {column!r} must be a column of numbers, moments or text, not {type(value).__name__}")


def ordered(value: Any) -> Any:
    """Return what tells which of two values is the later: moments as text of two time zones are compared as moments."""
    if not isinstance(value, str):
        return value
    try:
        moment = dt.datetime.fromisoformat(value)
    except ValueError:
        return value
    return moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)


def cursor_value(word: Json) -> Any:
    """Return the value of a kept cursor; one that people have set has no type, and stays as they wrote it."""
    return _KINDS[word["type"]][2](word["value"]) if word.get("type") in _KINDS else word.get("value")
