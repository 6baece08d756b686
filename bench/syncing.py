"""Ways to copy one table of PostgreSQL, each a process of its own, so that its memory can be told:

    python -m bench.syncing dlt|copy    (the order by standard input)

`dlt` is the library alone, at its fastest: connectorx into Arrow, and COPY of CSV or Parquet files. `copy` is COPY out
of the source, straight into COPY of the destination or into an object.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.figure import Void
from horae.core.model import Json
from horae.executors.sync import PROGRAM, QUIET

LOOK_SECONDS = 0.02  # between two looks at how much memory a process has


@dataclass(frozen=True, slots=True)
class Measured:
    seconds: float
    megabytes: float  # the most that the process and its children had at once


def run_ours(order: Json) -> Measured:
    """Return the program of a sync, as its executor starts it."""
    told, tell = os.pipe()
    try:
        return _measure(["-m", PROGRAM], order, {"HORAE_NOTES": str(tell)}, (tell,), told)
    finally:
        os.close(told)
        os.close(tell)


def run_bare(way: str, order: Json) -> Measured:
    unpacked = {"DATA_WRITER__DISABLE_COMPRESSION": "true"}  # of dlt's CSV files, which takes longer than all else
    return _measure(["-m", "bench.syncing", way], order, unpacked, (), None)


def _measure(argv: list[str], order: Json, env: dict[str, str], given: tuple[int, ...], told: int | None) -> Measured:
    with tempfile.TemporaryDirectory(prefix="horae-bench-") as workspace:
        root = str(Path(__file__).parents[1])
        env = {**os.environ, **QUIET, **env, "DLT_DATA_DIR": f"{workspace}/dlt", "PYTHONPATH": root}
        began = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, *argv], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            env=env, cwd=workspace, pass_fds=given,
        )  # fmt: skip
        if told is not None:
            threading.Thread(target=_swallow, args=(told,), daemon=True).start()
        peak = _Peak(process.pid)
        said, _ = process.communicate(json.dumps(order).encode())
        measured = Measured(time.perf_counter() - began, peak.end() / 1e6)
        if process.returncode:
            raise Void(said.decode(errors="replace")[-500:])
        return measured


def _swallow(descriptor: int) -> None:
    with suppress(OSError):
        while os.read(descriptor, 65536):
            pass


class _Peak:
    """Looks, until it is told to end, how much memory a process and its children have."""

    def __init__(self, pid: int) -> None:
        self._pid, self._most, self._is_over = pid, 0, threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._thread.start()

    def _look(self) -> None:
        while not self._is_over.wait(LOOK_SECONDS):
            self._most = max(self._most, sum(map(_resident, _tree(self._pid))))

    def end(self) -> int:
        self._is_over.set()
        self._thread.join()
        return self._most


def _tree(pid: int) -> Iterator[int]:
    yield pid
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                yield from _tree(int(child))


def _resident(pid: int) -> int:
    with suppress(OSError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0


# ── the bare ways ──────────────────────────────────────────────────────────────────────────────────


def by_dlt(spec: Json) -> None:
    import dlt
    from dlt.sources.sql_database import sql_table

    rows = sql_table(
        spec["source"]["url"].replace("://", "+psycopg2://", 1), spec["read"]["table"], chunk_size=50_000,
        backend="connectorx", backend_kwargs={"return_type": "arrow_stream"},
        reflection_level="full_with_precision",
    )  # fmt: skip
    (place,) = spec["destinations"]
    is_table = place["type"] == "postgresql"
    pipeline = dlt.pipeline("bare", destination=_dlt_destination(place), dataset_name="bare")
    pipeline.run(rows, write_disposition="replace", loader_file_format="csv" if is_table else "parquet")


def _dlt_destination(place: Json) -> Any:
    import dlt

    if place["type"] == "postgresql":
        return dlt.destinations.postgres(place["url"])
    names = {"aws_access_key_id": "access_key_id", "aws_secret_access_key": "secret_access_key"}
    keys = {name: place[ours] for name, ours in names.items()}
    return dlt.destinations.filesystem(
        place["path"], credentials={**keys, "endpoint_url": place["endpoint"], "region_name": place["region"]}
    )


def by_copy(spec: Json) -> None:
    import psycopg2

    source = psycopg2.connect(spec["source"]["url"])
    out, into = os.pipe()
    reader, writer = os.fdopen(out, "rb"), os.fdopen(into, "wb")

    def read() -> None:
        with writer, source.cursor() as cursor:
            cursor.copy_expert(f"COPY {spec['read']['table']} TO STDOUT", writer, size=1 << 20)

    reading = threading.Thread(target=read)
    reading.start()
    _copy_into(spec["destinations"][0], spec["read"]["table"], reader)
    reading.join()


def _copy_into(place: Json, like: str, reader: Any) -> None:
    if place["type"] == "files":
        from horae.executors.destinations.places import bucket

        with bucket(place).open(f"{place['path'].removeprefix('s3://')}/copy.csv", "wb") as file:
            while data := reader.read(1 << 20):
                file.write(data)
        return
    import psycopg2

    with psycopg2.connect(place["url"]) as connection, connection.cursor() as cursor:
        cursor.execute(f"DROP TABLE IF EXISTS {place['table']}")
        cursor.execute(f"CREATE TABLE {place['table']} (LIKE {like})")
        cursor.copy_expert(f"COPY {place['table']} FROM STDIN", reader, size=1 << 20)


if __name__ == "__main__":
    {"dlt": by_dlt, "copy": by_copy}[sys.argv[1]](json.load(sys.stdin)["spec"])
