"""What a run says of data: how far it is, what it wrote where, and how far a sync has come.

What must stay true: a result is what the work gave, so anything may stand in it. Its words are of core.work.progress,
which is imported where it is used: most commands do without.
"""

from __future__ import annotations

import json
from typing import Any

from horae.cli.screen import Cell, Screen, local_time

Json = dict[str, Any]

DATA_PARTS = frozenset({"rows", "bytes", "tables", "stages", "query_id", "cursor"})  # of a result, shown by name
BAR = 24  # characters


def writes_data(kind: str) -> bool:
    """Return whether the result of this kind of work says what it wrote where."""
    from horae.core.work.kinds import WRITERS

    return kind in WRITERS


def progress_text(progress: Json) -> str:
    from horae.core.work.progress import progress_words

    return progress_words(progress)


def progress_bar(progress: Json | None) -> str:
    """Return a bar, where it is known how much there is, and the counts."""
    from horae.core.work.progress import progress_words, share_done

    if not progress:
        return ""
    words, share = progress_words(progress), share_done(progress)
    if share is None:
        return words
    full = int(share * BAR)
    return f"[{'#' * full}{'.' * (BAR - full)}] {share:.0%}  {words}"


def cursor_text(cursor: Json | None) -> str:
    if not cursor:
        return ""
    by = f"run {cursor['run_id']}" if cursor["run_id"] else "hand"
    return f"{json.dumps(cursor['value'], ensure_ascii=False)}, moved {local_time(cursor['moved_at'])} by {by}"


def _result(run: Json) -> Json:
    from horae.core.work.progress import read_result

    return read_result(run["result"]) if writes_data(run["kind"]) else {}


def data_fields(run: Json) -> list[tuple[str, str | Cell]]:
    from horae.core.work.progress import amount_words

    result = _result(run)
    stages = result.get("stages", {})
    cursor = result.get("cursor")
    return [
        ("written", ", ".join(amount_words(result))),
        ("stages", f"{stages['done']:,} of {stages['total']:,}" if {"done", "total"} <= stages.keys() else ""),
        ("query", result.get("query_id", "")),
        ("cursor", "" if cursor is None else json.dumps(cursor, ensure_ascii=False)),
    ]


def show_tables(screen: Screen, run: Json) -> None:
    """What was written into each table, and how its columns changed."""
    from horae.core.work.progress import bytes_words

    rows: list[list[str | Cell]] = [
        [
            one["name"],
            f"{one['rows']:,}" if "rows" in one else "",
            bytes_words(one["bytes"]) if "bytes" in one else "",
            "; ".join(one["changes"]),
        ]
        for one in _result(run).get("tables", ())
    ]
    if rows:
        screen.line()
        screen.table(["table", ">rows", ">size", "changes"], rows)
