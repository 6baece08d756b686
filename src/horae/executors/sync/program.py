"""The process of a sync: reads its order from standard input, copies, and tells us how it goes.

    order  {"spec", "cursor", "attempt", "lake_root", "clickhouse_url", "reach"}
    notes  {"progress": {"step", "rows", …}}, {"facts": {"tables": […], …}}, {"cursor": {…}}, {"error": {…}}

First everything is read into Parquet files of the workspace, then each destination takes them. dlt keeps no state
beyond the workspace: where to go on is in the order, and the new cursor is told after the last destination has all.

What must stay true: the cursor is told only when every row up to it stands in every destination.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import dlt
import pyarrow as pa
import pyarrow.compute as pc
from dlt.common.destination import DestinationCapabilitiesContext
from dlt.common.libs.pyarrow import columns_to_arrow

from horae.core.model import Json
from horae.core.work.services import completed
from horae.executors.destinations import Refused
from horae.executors.destinations.rows import Batch, Destination, Loaded, batch_of, repeated_in
from horae.executors.notes import note_writer
from horae.executors.reach import guard, reach_of
from horae.executors.sync.cursors import cursor_value, kept_cursor, ordered
from horae.executors.sync.failures import words_for
from horae.executors.sync.sources import NAME, Wanted, resource_of

PROGRESS_SECONDS = 1.0  # between two notes of progress


class Notes:
    """Writes what becomes known, progress not more often than anybody looks."""

    def __init__(self, write: Callable[[Json], Any]) -> None:
        self.note = write
        self._noted_at = 0.0

    def progress(self, step: str, rows: int, **more: Any) -> None:
        if time.monotonic() - self._noted_at >= PROGRESS_SECONDS:
            self._noted_at = time.monotonic()
            self.note({"progress": {"step": step, "rows": rows, **more}})


class Reading:
    """Reads all that is wanted into files, and how far its cursor came."""

    def __init__(self, spec: Json, since: Any, lake_root: str, notes: Notes) -> None:
        self._spec = spec
        self._wanted = Wanted(
            spec.get("source") or {}, spec["read"], spec.get("cursor"), since, lake_root, spec.get("options") or {}
        )
        self._notes = notes
        self.rows = 0
        self.newest: Any = None

    def run(self, directory: Path) -> Batch:
        directory.mkdir()
        parts: list[Path] = []

        def take(path: Any, _: Any) -> None:
            parts.append(directory / f"{len(parts):05}.parquet")
            os.link(path, parts[-1])

        stage = dlt.destination(
            take, batch_size=0, loader_file_format="parquet", name="stage", loader_parallelism_strategy="sequential"
        )
        pipeline = dlt.pipeline("sync", destination=stage, pipelines_dir=str(directory / "dlt"), dataset_name="sync")
        pipeline.config.restore_from_destination = False
        resource = resource_of(self._wanted).add_map(self._count)
        resource.apply_hints(table_name=NAME, write_disposition="append")
        pipeline.run(resource, schema_contract="evolve")
        columns = pipeline.default_schema.tables.get(NAME, {}).get("columns", {})
        return self._batch(parts, {name: one for name, one in columns.items() if not name.startswith("_dlt_")})

    def _batch(self, parts: list[Path], columns: Json) -> Batch:
        spec, known = self._spec, {name: one for name, one in columns.items() if "data_type" in one}
        named = columns_to_arrow(known, _capabilities(), "UTC") if known else pa.schema([])
        json_columns = frozenset(name for name, one in known.items() if one["data_type"] == "json")
        own_key = tuple(name for name, one in known.items() if one.get("primary_key"))
        batch = batch_of(
            sorted(parts, key=_written_at), named, cursor=spec.get("cursor"), since=self._wanted.since,
            primary_key=_key(spec, own_key), json_columns=json_columns,
        )  # fmt: skip
        for name in (*batch.primary_key, *([batch.cursor] if batch.cursor else [])):
            if batch.parts and name not in batch.schema.names:
                raise Refused(f"there is no column {name!r} in what is read: {', '.join(batch.schema.names)}")
        if not batch.parts or not batch.primary_key or (own_key and set(own_key) <= set(batch.primary_key)):
            return batch  # the source itself sees to it that no key comes twice
        return replace(batch, repeated=repeated_in(batch.parts, batch.schema, batch.primary_key))

    def _count(self, item: Any) -> Any:
        is_table = isinstance(item, pa.Table)
        self.rows += len(item) if is_table else 1
        cursor = self._wanted.cursor
        if cursor is not None:
            newest = _newest(item, cursor) if is_table else item.get(cursor)
            if newest is not None and (self.newest is None or ordered(newest) > ordered(self.newest)):
                self.newest = newest
        self._notes.progress("reading", self.rows)
        return item


def _key(spec: Json, own_key: tuple[str, ...]) -> tuple[str, ...]:
    """Return what tells one row from another: as the sync says, else, where rows are to be merged, as the source's
    table."""
    return tuple(spec.get("primary_key", ())) or (own_key if spec["mode"] == "incremental" else ())


def _written_at(path: Path) -> int:
    return path.stat().st_mtime_ns


def _newest(table: Any, cursor: str) -> Any:
    if cursor not in table.column_names:
        raise Refused(f"there is no column {cursor!r} for the cursor: {', '.join(table.column_names)}")
    return pc.max(table[cursor]).as_py()


def _capabilities() -> Any:
    return DestinationCapabilitiesContext.generic_capabilities("parquet")


def destination_of(place: Json, order: Json) -> Destination:
    """Each type is a module, loaded where it is used: their libraries take long to load."""
    module: Any = import_module(f"horae.executors.destinations.{_MODULES[place['type']]}")
    made: Destination = module.destination(place, order)
    return made


_MODULES = {"postgresql": "postgres", "clickhouse": "clickhouse", "files": "files"}


def sync(order: Json, workspace: Path, notes: Notes) -> None:
    spec = completed(order["spec"])
    if spec["mode"] == "incremental" and not spec.get("cursor"):
        raise Refused("an incremental sync needs a cursor: the column that tells what is new")
    since = _since(spec, order["cursor"])
    reading = Reading(spec, since, order["lake_root"], notes)
    batch = reading.run(workspace / "read")
    done: list[Json] = []
    for number, place in enumerate(spec["destinations"]):
        note_rows = partial(_note_writing, notes, number, len(spec["destinations"]))
        done.append(_fact(destination_of(place, order).load(batch, note_rows)))
        notes.note({"facts": {"tables": done}})
    facts: Json = {"rows": reading.rows, "bytes": batch.bytes, "tables": done}
    newest = since if reading.newest is None else reading.newest
    if spec["mode"] == "incremental" and newest is not None:
        facts["cursor"] = kept_cursor(spec["cursor"], newest)
        notes.note({"cursor": facts["cursor"]})
    notes.note({"facts": facts})


def _note_writing(notes: Notes, done: int, total: int, rows: int) -> None:
    notes.progress("writing", rows, tables={"done": done, "total": total})


def _since(spec: Json, kept: Json | None) -> Any:
    """Return the value from which on rows are new; None: all are. A cursor of another column says nothing of this
    one."""
    if spec["mode"] != "incremental":
        return None
    if kept and kept.get("column", spec["cursor"]) == spec["cursor"]:
        return cursor_value(kept)
    return spec.get("begin")


def _fact(loaded: Loaded) -> Json:
    return {"name": loaded.name, "rows": loaded.rows, "bytes": loaded.bytes, "changes": loaded.changes}


def main() -> int:
    order = json.load(sys.stdin)
    guard(reach_of(order["reach"]))
    notes = Notes(note_writer())
    try:
        sync(order, Path.cwd(), notes)
    except Exception as error:
        told = words_for(error, order["spec"])
        notes.note({"error": told})
        sys.stdout.write(f"{told['message']}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
