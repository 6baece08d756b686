"""Rows into a directory of Parquet or CSV files, in a directory of this machine or on S3.

On this machine a new directory is made beside the old one, with links to the files that stay as they are, and the two
are exchanged in one step. S3 has no such step: there the new files are written first, and then those that they
replace are deleted, so that a reader may for a moment see rows twice, but never misses one. A journal beside them says
how far that came: the next attempt finishes what one that died had begun, or undoes it.

Queries of Spark write files in another way (run_files): each of their files is new and named by its run, while a sync
takes single rows out of files that are there.

What must stay true: no file is removed before everything that takes its place is written. No two attempts give a file
the same name.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import csv

from horae.core.model import Json
from horae.core.work.syncs import files_path
from horae.executors.destinations import Refused, places
from horae.executors.destinations.rows import PIECE_ROWS, Batch, Loaded, fitted, plain

STAGE = ".horae-stage-"  # begins the name of a directory that is being made
JOURNAL = "_horae-"  # begins the name of an object that says what is being done beside it
_EXCHANGE = 2  # RENAME_EXCHANGE of renameat2
_HERE = -100  # AT_FDCWD


class LakeFiles:
    def __init__(self, place: Json, lake_root: str, attempt: str) -> None:
        self._format = place.get("format", "parquet")
        self._attempt = f"{attempt}-{secrets.token_hex(4)}"
        self._path = files_path(place)
        self._fs, self._directory = places.find(self._path, place, lake_root)
        self._is_local = places.is_local(lake_root, self._path)

    def load(self, batch: Batch, note_rows: Callable[[int], None]) -> Loaded:
        if not batch.is_whole and self._format != "parquet":
            raise Refused("an incremental sync needs files of format parquet: of CSV only a full one can be made")
        loaded = Loaded(self._path)
        with self._target() as target:
            before = self._files()
            loaded.changes = self._changes(before, batch)
            target.open(before)
            replaced = set(before) if batch.is_whole else set(self._rewrite(before, batch, target))
            loaded.rows = self._write(batch, target, note_rows)
            target.replace(replaced)
        loaded.bytes = sum(self._fs.size(path) or 0 for path in self._files() if self._attempt in path)
        return loaded

    def _files(self) -> list[str]:
        if not self._fs.exists(self._directory):
            return []
        found = self._fs.ls(self._directory, detail=False, refresh=True)
        return sorted(path for path in found if path.endswith((".parquet", ".csv")))

    @contextmanager
    def _target(self) -> Iterator[_Target]:
        target = (
            _LocalTarget(self._directory, self._attempt)
            if self._is_local
            else _FarTarget(self._fs, self._directory, self._attempt)
        )
        target.clear()
        try:
            yield target
        finally:
            target.close()

    def _changes(self, before: list[str], batch: Batch) -> list[str]:
        newest = next((path for path in reversed(before) if path.endswith(".parquet")), None)
        if newest is None or not batch.schema.names or self._format != "parquet":
            return []
        with self._fs.open(newest, "rb") as file:
            old = plain(pq.read_schema(file))
        changes = []
        for name, kind in zip(batch.schema.names, batch.schema.types, strict=True):
            if name not in old.names:
                changes.append(f"column {name} added, {kind}")
            elif (was := old.field(name).type) != kind:
                _check_widening(self._path, name, was, kind, batch)
                changes.append(f"column {name} was {was}, is {kind}")
        return changes + [
            f"column {name} is gone from the source" for name in old.names if name not in batch.schema.names
        ]

    def _write(self, batch: Batch, target: _Target, note_rows: Callable[[int], None]) -> int:
        if not batch.parts:
            return 0
        path, rows = target.path(f"{self._attempt}-new.{self._format}"), 0
        with self._fs.open(path, "wb") as file, self._writer(file, batch.schema) as writer:
            for table in batch.tables():
                writer.write_table(table)
                rows += len(table)
                note_rows(rows)
        return rows

    def _writer(self, file: Any, schema: Any) -> Any:
        return pq.ParquetWriter(file, schema) if self._format == "parquet" else csv.CSVWriter(file, schema)

    def _rewrite(self, before: list[str], batch: Batch, target: _Target) -> Iterator[str]:
        """Write those files again, without the rows that are replaced, that have any; their old names are given."""
        is_kept = _keeper(batch)
        for number, path in enumerate(before):
            with self._fs.open(path, "rb") as file:
                parquet = pq.ParquetFile(file)
                if all(pc.all(is_kept(piece)).as_py() is not False for piece in _pieces(parquet)):
                    continue
                kept = (piece.filter(is_kept(piece)) for piece in _pieces(parquet))
                self._write_again(kept, parquet.schema_arrow, target.path(f"{self._attempt}-{number:05}.parquet"))
            yield path

    def _write_again(self, pieces: Iterator[Any], schema: Any, path: str) -> None:
        with self._fs.open(path, "wb") as out, pq.ParquetWriter(out, schema) as writer:
            for piece in pieces:
                writer.write_table(fitted(piece, schema))


def destination(place: Json, order: Json) -> LakeFiles:
    return LakeFiles(place, order["lake_root"], order["attempt"])


def _pieces(parquet: Any) -> Iterator[Any]:
    return (pa.Table.from_batches([piece]) for piece in parquet.iter_batches(PIECE_ROWS))


def _keeper(batch: Batch) -> Callable[[Any], Any]:
    """Tells which rows of a table the new ones do not replace."""
    if not batch.primary_key:
        since = pa.scalar(batch.since)
        return lambda table: pc.fill_null(
            pc.less(table[batch.cursor], since.cast(table.schema.field(batch.cursor).type)), True
        )
    new = pa.chunked_array([chunk for table in batch.tables() for chunk in _keys(table, batch).chunks], pa.string())
    return lambda table: pc.invert(pc.is_in(_keys(table, batch), value_set=new.combine_chunks()))


def _keys(table: Any, batch: Batch) -> Any:
    texts = [
        pc.fill_null(table[name].cast(batch.schema.field(name).type).cast(pa.string()), "\0")
        for name in batch.primary_key
    ]
    return texts[0] if len(texts) == 1 else pc.binary_join_element_wise(*texts, "\x1f")


def _check_widening(path: str, name: str, was: Any, kind: Any, batch: Batch) -> None:
    """Files of one directory are read together: their columns must be of types that one can hold."""
    if batch.is_whole:
        return
    try:
        pa.unify_schemas([pa.schema([("c", was)]), pa.schema([("c", kind)])], promote_options="permissive")
    except (pa.ArrowTypeError, pa.ArrowInvalid):
        message = f"the column {name!r} of the files at {path} is {was}, and what is read is {kind}: do a full sync"
        raise Refused(message) from None


# ── where files are ────────────────────────────────────────────────────────────────────────────────


class _Target(Protocol):
    """Where new files are written until they take the place of others."""

    def clear(self) -> None:
        """Make good what attempts left that are over: two never write here at once."""

    def open(self, before: list[str]) -> None:
        """Before the first new file. `before` are those that are there."""

    def path(self, name: str) -> str: ...

    def replace(self, replaced: set[str]) -> None:
        """After the last new file: let go of these."""

    def close(self) -> None:
        """Whatever happened."""


class _FarTarget:
    """The place itself, with a journal: {} while new files are written, {"replaced"} once the old ones may go."""

    def __init__(self, files: Any, directory: str, attempt: str) -> None:
        self._files = files
        self._directory = directory
        self._attempt = attempt
        self._is_open = False

    def clear(self) -> None:
        for path in self._found(JOURNAL):
            self._complete(path, json.loads(self._files.cat_file(path)))

    def open(self, before: list[str]) -> None:
        self._write({})
        self._is_open = True

    def path(self, name: str) -> str:
        return f"{self._directory}/{name}"

    def replace(self, replaced: set[str]) -> None:
        journal = {"replaced": sorted(replaced)}
        self._write(journal)
        self._is_open = False
        self._complete(self._journal, journal)

    def close(self) -> None:
        if self._is_open:
            self._complete(self._journal, {})

    @property
    def _journal(self) -> str:
        return self.path(f"{JOURNAL}{self._attempt}")

    def _write(self, journal: Json) -> None:
        self._files.pipe_file(self._journal, json.dumps(journal).encode())

    def _complete(self, path: str, journal: Json) -> None:
        """Finish what a journal says, or undo it."""
        made = self._found(f"{path.rpartition(JOURNAL)[2]}-")
        there = set(self._found(""))
        for gone in journal.get("replaced", made):
            if gone in there:
                self._files.rm_file(gone)
        self._files.rm_file(path)

    def _found(self, begin: str) -> list[str]:
        try:
            paths = self._files.ls(self._directory, detail=False, refresh=True)
        except FileNotFoundError:
            return []
        return [path for path in paths if path.rpartition("/")[2].startswith(begin)]


class _LocalTarget:
    """A directory beside the one that shall be replaced."""

    def __init__(self, directory: str, attempt: str) -> None:
        self._directory = Path(directory)
        self._begin = f"{STAGE}{self._directory.name}-"
        self._stage = self._directory.with_name(f"{self._begin}{attempt}")
        self._before: list[str] = []

    def open(self, before: list[str]) -> None:
        self._before = before
        self._stage.mkdir()

    def clear(self) -> None:
        self._directory.parent.mkdir(parents=True, exist_ok=True)
        for left in self._directory.parent.iterdir():
            if re.fullmatch(f"{re.escape(self._begin)}[0-9]+-[0-9]+-[0-9a-f]+", left.name):
                shutil.rmtree(left, ignore_errors=True)

    def path(self, name: str) -> str:
        return str(self._stage / name)

    def replace(self, replaced: set[str]) -> None:
        for path in self._before:
            if path not in replaced:
                os.link(path, self._stage / Path(path).name)
        for made in self._stage.iterdir():
            with made.open("rb") as file:
                os.fsync(file.fileno())
        if self._directory.exists():
            _exchange(self._stage, self._directory)
        else:
            self._stage.rename(self._directory)

    def close(self) -> None:
        shutil.rmtree(self._stage, ignore_errors=True)


def _exchange(one: Path, other: Path) -> None:
    """Let two directories change their names, in one step."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _EXCHANGE):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(other))
