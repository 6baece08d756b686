"""The rows of a query of Spark as files of a directory, local, on S3 or on HDFS.

Files are CSV in UTF-8 with a line of names first, fields in quotation marks where they must be, moments in UTC. Their
names begin with the run: run-<run>-00000.csv.

Syncs write files in another way (files): they rewrite Parquet files without the rows that are replaced, and exchange
directories. Here every file is new, its lines are made by Spark, and on HDFS Spark writes it itself: nothing of the two
is alike but that new files come before old ones go.

What must stay true:
- Nobody sees an output before it is published, and until then what was there is whole.
- Publishing twice is publishing once: names come from the run. Files that an earlier attempt published under further
  names of the run are removed.
- Replacing adds the new files first, then removes those that runs or Spark wrote there before; files of other names
  are somebody else's, and stay.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable
from typing import Any
from urllib.parse import urlsplit

import hdfs_native
import obstore
from obstore.store import LocalStore, S3Store
from pyspark.sql.connect import functions
from pyspark.sql.connect.observation import Observation

from horae.core.model import Json
from horae.executors.destinations import check_reachable

LINE = "horae line of text"  # the column that holds a row as text, always the last one
BUFFER = 8 << 20  # bytes of a file on their way at once
UPLOADS = 2  # and how many of these
_REPLACED = re.compile(r"(run-\d+-\d+\.csv|part-[^/]*|_SUCCESS)")
_SPARK_CSV = {"header": "true", "quote": '"', "escape": '"', "nullValue": "", "emptyValue": '""', "timeZone": "UTC"}


class ObjectFiles:
    """One file in a local directory or below a prefix of S3, which becomes visible as a whole."""

    wants_lines, by_spark = True, False

    def __init__(self, output: Json, run: int) -> None:
        self.name = output["place"].removeprefix("file://")
        self.rows = self.bytes = 0
        self._place = output["place"]
        self._replaces = output["mode"] == "replace"
        self._run = run
        self._store: Any = None
        self._prefix = ""
        self._file: Any = None

    def open(self, fields: list[str]) -> None:
        self._store, self._prefix = object_store(self._place)
        path = f"{self._prefix}{_file_name(self._run, 0)}"
        self._file = obstore.open_writer(self._store, path, buffer_size=BUFFER, max_concurrency=UPLOADS)
        self._put(_line(fields))

    def write(self, batch: Any) -> None:
        lines = batch.column(batch.num_columns - 1).to_pylist()
        self._put("".join(f"{line}\n" for line in lines).encode())
        self.rows += batch.num_rows

    def _put(self, data: bytes) -> None:
        self._file.write(data)
        self.bytes += len(data)

    def store(self, frame: Any) -> None:
        raise NotImplementedError

    def publish(self) -> None:
        self._file.close()
        found = obstore.list_with_delimiter(self._store, self._prefix or None)["objects"]
        names = [one["path"].rpartition("/")[2] for one in found]
        for name in _superseded(names, self._run, 1, replaces=self._replaces):
            obstore.delete(self._store, f"{self._prefix}{name}")


def object_store(place: str) -> tuple[Any, str]:
    """Return the store of an address, and the prefix of its names there."""
    parts = urlsplit(place)
    if parts.scheme == "file":
        return LocalStore(parts.path, mkdir=True), ""
    prefix = parts.path.strip("/")
    return S3Store(parts.netloc, virtual_hosted_style_request=False), f"{prefix}/" if prefix else ""


class HadoopFiles:
    """Files on HDFS: Spark writes them to a directory beside, all its executors at once; we move them into place."""

    wants_lines, by_spark = False, True

    def __init__(self, output: Json, run: int) -> None:
        self.name = output["place"]
        self.rows = self.bytes = 0
        self._replaces = output["mode"] == "replace"
        self._run = run
        parts = urlsplit(output["place"])
        self._server, self._path = f"hdfs://{parts.netloc}", parts.path.rstrip("/")
        self._stage = f"{self._path}/_horae-{run}"  # readers of Hadoop pass over names with _
        self._client: Any = None

    def open(self, fields: list[str]) -> None:
        check_reachable("HDFS", self._server)
        self._client = hdfs_native.Client(self._server)
        self._client.delete(self._stage, recursive=True)

    def write(self, batch: Any) -> None:
        raise NotImplementedError

    def store(self, frame: Any) -> None:
        counted = Observation("horae")
        observed = frame.observe(counted, functions.count(functions.lit(1)).alias("rows"))
        observed.write.mode("overwrite").options(**_SPARK_CSV).csv(f"{self._server}{self._stage}")
        self.rows = counted.get["rows"]

    def publish(self) -> None:
        parts = [one for one in self._list(self._stage) if one.path.rpartition("/")[2].startswith("part-")]
        self.bytes = sum(one.length for one in parts)
        for number, one in enumerate(sorted(parts, key=lambda part: str(part.path))):
            target = f"{self._path}/{_file_name(self._run, number)}"
            self._client.rename(one.path, target, overwrite=True)
        names = [one.path.rpartition("/")[2] for one in self._list(self._path) if not one.isdir]
        for name in _superseded(names, self._run, len(parts), replaces=self._replaces):
            self._client.delete(f"{self._path}/{name}")
        self._client.delete(self._stage, recursive=True)

    def _list(self, path: str) -> list[Any]:
        return list(self._client.list_status(path))


def _file_name(run: int, number: int) -> str:
    return f"run-{run}-{number:05}.csv"


def _superseded(names: Iterable[str], run: int, count: int, *, replaces: bool) -> list[str]:
    """Return which files must go once the `count` files of a run are in place."""
    ours = {_file_name(run, number) for number in range(count)}
    begin = f"run-{run}-"
    return [
        name
        for name in names
        if name not in ours and (name.startswith(begin) or (replaces and _REPLACED.fullmatch(name)))
    ]


def _line(fields: list[str]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(fields)
    return text.getvalue().encode()
