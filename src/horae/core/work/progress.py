"""What work says of itself: how far it is while it runs, and, of work on data, what it has done when it has ended.

    progress  {"step"?: text, "rows"?, "bytes"?: count, "tables"?, "stages"?, "items"?: {"done"?, "total"?: count},
               "share"?: 0 to 1}
    result    {"rows"?, "bytes"?: count, "tables"?: [{"name", "rows"?, "bytes"?: count, "changes"?: [text, …]}, …],
               "stages"?: {"done"?, "total"?}, "query_id"?: text, "cursor"?: {…}, …}

A cursor is an object that belongs to whoever syncs; its "value", if it has one, is what people see and set.

What must stay true: what executors and agents say is believed only where it fits this form; the rest is left out, and
nothing here raises.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from numbers import Integral
from typing import Any

from horae.core.model import Json

LARGEST = 2**63 - 1
LONGEST_STEP = 200  # characters
MAX_PROGRESS = 2048  # bytes of progress as JSON; what fits the form is always smaller

_PARTS = ("tables", "stages", "items")  # what can be counted, the finest last
_UNITS = ("B", "kB", "MB", "GB", "TB")


def read_progress(given: Any) -> Json:
    """As much of it as has the form of progress."""
    said = given if isinstance(given, Mapping) else {}
    found: Json = {}
    step = said.get("step")
    if isinstance(step, str) and step:
        found["step"] = "".join(letter if letter.isprintable() else " " for letter in step[:LONGEST_STEP])
    found |= _counts(said, ("rows", "bytes"))
    for name in _PARTS:
        if isinstance(said.get(name), Mapping) and (share := _counts(said[name], ("done", "total"))):
            found[name] = share
    if type(said.get("share")) in (int, float) and 0 <= said["share"] <= 1:
        found["share"] = said["share"]
    return found


def make_progress(done: Any, total: Any = None, message: str = "") -> Json:
    """Return the progress that a handler tells: so many of so many, or, where a number is not whole, a share."""
    counts = {name: value for name, value in (("done", done), ("total", total)) if value is not None}
    if all(isinstance(value, Integral) for value in counts.values()):
        return read_progress({"step": message, "items": {name: int(value) for name, value in counts.items()}})
    share = float(done) / (1.0 if total is None else float(total) or inf)
    return read_progress({"step": message, "share": min(max(share, 0.0), 1.0)})


def _counts(said: Mapping[str, Any], names: tuple[str, ...]) -> Json:
    return {name: said[name] for name in names if type(said.get(name)) is int and 0 <= said[name] <= LARGEST}


def share_done(progress: Json) -> float | None:
    """Return how much of it is done, from 0 to 1, where that is known: by the finest count there is."""
    for name in reversed(_PARTS):
        done, total = (progress.get(name, {}).get(word) for word in ("done", "total"))
        if done is not None and total:
            return min(1.0, float(done / total))
    return progress.get("share")


def progress_words(progress: Json) -> str:
    """One line for people: loading, 2 of 5 tables, 1,234 rows, 5.1 MB."""
    parts = [progress["step"]] if "step" in progress else []
    for name in _PARTS:
        count = progress.get(name, {})
        what = "" if name == "items" else f" {name}"
        if "done" in count:
            parts.append(
                f"{count['done']:,} of {count['total']:,}{what}" if "total" in count else f"{count['done']:,}{what}"
            )
    if "share" in progress:
        parts.append(f"{progress['share']:.0%}")
    return ", ".join([*parts, *amount_words(progress)])


def amount_words(said: Json) -> list[str]:
    """Rows and bytes, those that are known."""
    parts = [f"{said['rows']:,} rows"] if "rows" in said else []
    return parts + ([bytes_words(said["bytes"])] if "bytes" in said else [])


def bytes_words(count: int) -> str:
    size, unit = float(count), 0
    while size >= 999.5 and unit < len(_UNITS) - 1:
        size, unit = size / 1000, unit + 1
    return f"{size:.0f} {_UNITS[unit]}" if unit == 0 or size >= 99.5 else f"{size:.1f} {_UNITS[unit]}"


def read_result(result: Any) -> Json:
    """As much of a run's result as has the form of a result of work on data."""
    said = result if isinstance(result, Mapping) else {}
    found = _counts(said, ("rows", "bytes"))
    listed = said.get("tables")
    if isinstance(listed, list):
        found["tables"] = [_table(each) for each in listed if isinstance(each, Mapping) and "name" in each]
    if isinstance(said.get("stages"), Mapping):
        found["stages"] = _counts(said["stages"], ("done", "total"))
    if isinstance(said.get("query_id"), str):
        found["query_id"] = said["query_id"]
    if isinstance(said.get("cursor"), Mapping):
        found["cursor"] = dict(said["cursor"])
    return found


def _table(said: Mapping[str, Any]) -> Json:
    changes = said.get("changes")
    texts = [str(each) for each in changes] if isinstance(changes, list) else []
    return {"name": str(said["name"]), **_counts(said, ("rows", "bytes")), "changes": texts}


def cursor_value(cursor: Any) -> Any:
    """Return what people see of a cursor; None where there is nothing that they could set."""
    return cursor.get("value") if isinstance(cursor, Mapping) else None
