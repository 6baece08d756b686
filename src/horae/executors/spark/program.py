"""The program of a Spark query: `python -m horae.executors.spark.program`, with its order on standard input.

    one session on Spark ──► the query, once ──► batches of rows ──► every output, staged ──► all published

All masters are spoken to as Spark Connect servers: a local or standalone one gets a server of its own in this
process tree, for the time of the query.

What must stay true:
- What an earlier attempt of the run left running is interrupted before anything else is done.
- TERM interrupts the query on the cluster, then ends this program at once: what is staged stays unseen.
- Nothing is published before the query has given its last row.
- Memory is bounded by a few batches, however large the result.
"""

from __future__ import annotations

import json
import logging
import os
import select
import signal
import sys
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from typing import Any, NoReturn, Protocol

from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql.connect import functions
from pyspark.sql.connect.session import SparkSession

from horae.core.model import Json
from horae.executors.destinations import Refused, check_reachable
from horae.executors.destinations.clickhouse import QueryTable
from horae.executors.destinations.run_files import LINE, HadoopFiles, ObjectFiles
from horae.executors.notes import note_writer
from horae.executors.spark import faults
from horae.executors.spark.registry import Registry
from horae.executors.spark.tables import Tables
from horae.executors.spark.warehouse import files_of

USER = "horae"
TERMINATED = 128 + signal.SIGTERM
FAILED = 1
INTERRUPTS = 10  # how often the cluster is asked to end a query
INTERRUPT_SECONDS = 1.0  # from one to the next
ANSWER_SECONDS = 3.0  # for the cluster to answer one
SHOWN_ROWS = 20  # in the log, of a query without outputs
_CSV = {"quote": '"', "escape": '"', "nullValue": "", "emptyValue": '""', "timeZone": "UTC"}
_OWN_SERVER = {
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.connect.grpc.binding.port": "0",
    "spark.driver.maxResultSize": "0",  # results are passed on, not collected
    "spark.log.level": "ERROR",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.hive.manageFilesourcePartitions": "false",  # what is in a directory is in the table
}


class Terminated(Exception):
    """TERM came."""


def main() -> None:
    order = json.load(sys.stdin)
    logging.disable(logging.CRITICAL)  # Spark's client logs what it raises too, with whole traces
    signal.signal(signal.SIGTERM, _on_term)
    note = note_writer()
    query = Query(order, note)
    try:
        _wait_for(query.run)
    except Terminated:
        query.interrupt()
        _leave(TERMINATED)
    except BaseException as error:
        message, final = faults.explain(error)
        print(message, flush=True)  # noqa: T201  # the log of the attempt
        note({"error": {"message": message, "final": final}})
        query.ask_to_end()
        _leave(FAILED)
    query.release()
    _leave(0)


def _on_term(*_: object) -> NoReturn:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise Terminated


def _wait_for(work: Callable[[], None]) -> None:
    """Do it in another thread. The kernel may give a signal to any thread, and only this one acts on it: it waits for
    the byte that is written wherever the signal arrives, not for a lock."""
    done: Future[None] = Future()
    bell, ringing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(ringing)

    def run() -> None:
        try:
            work()
            done.set_result(None)
        except BaseException as error:
            done.set_exception(error)
        os.write(ringing, b".")

    threading.Thread(target=run, daemon=True).start()
    while not done.done():
        select.select([bell], [], [])
    done.result()


def _leave(code: int) -> NoReturn:
    """Without waiting for threads of libraries."""
    sys.stdout.flush()
    os._exit(code)


class Output(Protocol):
    name: str
    rows: int
    bytes: int
    wants_lines: bool  # rows as text, in the column LINE
    by_spark: bool  # Spark writes it itself: `store` is called, not `write`

    def open(self, fields: list[str]) -> None:
        """Make ready for rows with these fields; what earlier attempts of the run left unseen is removed."""

    def write(self, batch: Any) -> None: ...

    def store(self, frame: Any) -> None: ...

    def publish(self) -> None: ...


def open_output(output: Json, order: Json) -> Output:
    if output["to"] == "clickhouse":
        return QueryTable(output, order["run"], order["clickhouse_url"])
    kind = HadoopFiles if output["place"].startswith("hdfs://") else ObjectFiles
    return kind(output, order["run"])


class Query:
    """One query on one session."""

    def __init__(self, order: Json, note: Callable[[Json], None]) -> None:
        self._order = order
        self._note = note
        self._tag = f"horae-run-{order['run']}"
        self._session: Any = None
        self._stages: dict[int, bool] = {}  # stage → whether it is done
        self._rows = 0
        self._bytes = 0
        self._id = ""  # of its operation on the cluster
        self._is_on_cluster = False  # something of it may run there
        self._broken_off = threading.Event()  # nothing does any more
        self._tables: Tables | None = None  # of a Spark that we started: others keep theirs themselves

    def run(self) -> None:
        self._progress("connecting")
        registry = self._open_registry()
        if registry and (done := registry.made_by_run()):
            print(f"an earlier attempt of this run has changed {', '.join(done)}: nothing is left to do", flush=True)  # noqa: T201
            self._note({"facts": self._facts([])})
            return
        self._session = self._connect()
        if registry:
            self._restore(registry)
        os.environ.update(self._order["keys"])  # for our own writing: a Spark that we started has no need of them
        self._progress("query")
        outputs = [open_output(each, self._order) for each in self._order["outputs"]]
        self._session.registerProgressHandler(self._on_progress)
        self._session.addTag(self._tag)
        try:
            self._is_on_cluster = True
            frame = self._session.sql(self._order["query"])
            if outputs:
                self._write(frame, outputs)
            else:
                self._show(frame)
        finally:
            self._leave_cluster()
        if self._tables is not None:
            self._tables.keep(self._order["query"])
        for output in outputs:
            output.publish()
        self._bytes = sum(output.bytes for output in outputs) or self._bytes
        self._note({"facts": self._facts(outputs)})

    def _leave_cluster(self) -> None:
        self._is_on_cluster = False
        self._broken_off.set()

    # ── tables ──

    def _open_registry(self) -> Registry | None:
        """Only for a Spark that we start."""
        if self._order["spark_url"].startswith("sc://"):
            return None
        registry = Registry(files_of(self._order["warehouse"]), self._order["attempt"].rpartition("-")[0])
        registry.tidy(self._order["attempt"])
        return registry

    def _restore(self, registry: Registry) -> None:
        context: Any = SparkContext._active_spark_context
        sessions = getattr(getattr(context._jvm, "org.apache.spark.sql.classic.SparkSession$"), "MODULE$")
        self._tables = Tables(registry, sessions.getDefaultSession().get(), context._jvm, self._order["attempt"])
        for failure in self._tables.restore(self._order["query"]):
            print(failure, flush=True)  # noqa: T201

    # ── the session ──

    def _connect(self) -> Any:
        url = self._order["spark_url"]
        if not url.startswith("local"):
            check_reachable("Spark", url.replace("/;", "/?"))
        place = f"{self._order['warehouse']}/{self._order['attempt']}"
        address = url if url.startswith("sc://") else start_server(url, place)
        session = self._open(address, self._order["session"])
        try:
            self._clear(session)
        except PySparkException as error:
            if not faults.is_closed(error):
                raise
            # an earlier attempt came to its end here, and released it
            session = self._open(address, str(uuid.uuid4()))
            self._clear(session)
        return session

    def _open(self, address: str, session_id: str) -> Any:
        base, _, parameters = address.partition("/;")
        given = [one for one in parameters.split(";") if one and not one.startswith(("session_id=", "user_id="))]
        asked = ";".join([*given, f"user_id={USER}", f"session_id={session_id}"])
        return SparkSession.builder.remote(f"{base.rstrip('/')}/;{asked}").create()

    def _clear(self, session: Any) -> None:
        """Interrupt what an earlier attempt left."""
        if stopped := session.interruptTag(self._tag):
            print(f"interrupted on the cluster, left by an earlier attempt: {', '.join(stopped)}", flush=True)  # noqa: T201
        session.conf.set("spark.sql.session.timeZone", "UTC")

    def interrupt(self) -> None:
        """End what runs on the cluster; it is asked again until the rows break off."""
        for _ in range(INTERRUPTS):
            if not self._is_on_cluster:
                return
            self.ask_to_end()
            self._broken_off.wait(INTERRUPT_SECONDS)

    def ask_to_end(self) -> None:
        """Never raises, and does not wait for long for a cluster that does not answer."""
        if self._session is not None:
            asking = threading.Thread(target=self._send_interrupt, daemon=True)
            asking.start()
            asking.join(ANSWER_SECONDS)

    def _send_interrupt(self) -> None:
        try:
            self._session.interruptTag(self._tag)
        except Exception as error:
            print(f"the query could not be interrupted: {faults.explain(error)[0]}", flush=True)  # noqa: T201

    def release(self) -> None:
        """Let go of the session; never raises: the server forgets it by itself, later."""
        if self._session is None:
            return
        try:
            self._session.client.release_session()
        except Exception as error:
            print(f"the session could not be released: {faults.explain(error)[0]}", flush=True)  # noqa: T201

    # ── rows ──

    def _write(self, frame: Any, outputs: list[Output]) -> None:
        fields = frame.schema.fields
        if not fields:
            raise Refused("the statement gives no rows for its outputs: write a SELECT, or leave the outputs out")
        names = [field.name for field in fields]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise Refused(f"two columns of the query are called {twice[0]!r}: give each a name of its own with AS")
        for output in outputs:
            output.open(names)
        for output in outputs:
            if output.by_spark:
                output.store(frame)
        self._pass_on(frame, names, [output for output in outputs if not output.by_spark])
        self._rows = outputs[0].rows
        self._progress("publishing")

    def _pass_on(self, frame: Any, names: list[str], outputs: list[Output]) -> None:
        """Give every batch to each output: they all get the same rows, of one execution."""
        if not outputs:
            return
        if any(output.wants_lines for output in outputs):
            frame = _with_lines(frame, names)
        for batch in stream(self._session, frame):
            self._rows += batch.num_rows
            for output in outputs:
                output.write(batch)
            self._bytes = sum(output.bytes for output in outputs)

    def _show(self, frame: Any) -> None:
        """Have it done, and write its first rows to the log."""
        for batch in stream(self._session, frame):
            left = SHOWN_ROWS - self._rows
            for row in batch.slice(0, max(left, 0)).to_pylist():
                print("\t".join(str(value) for value in row.values()), flush=True)  # noqa: T201
            self._rows += batch.num_rows
            self._bytes += batch.nbytes

    # ── what is told ──

    def _on_progress(self, stages: Iterable[Any] | None, operation_id: str | None, **_: Any) -> None:
        self._id = operation_id or self._id
        for stage in stages or ():
            self._stages[stage.stage_id] = bool(stage.done)
        self._progress("query")

    def _progress(self, step: str) -> None:
        self._note({"progress": {"step": step, **self._counts()}})

    def _counts(self) -> Json:
        stages = {"done": sum(self._stages.values()), "total": len(self._stages)}
        return {"rows": self._rows, "bytes": self._bytes, "stages": stages}

    def _facts(self, outputs: list[Output]) -> Json:
        tables = [{"name": output.name, "rows": output.rows, "bytes": output.bytes} for output in outputs]
        self._stages = dict.fromkeys(self._stages, True)
        return {**self._counts(), "tables": tables, "query_id": self._id}


def stream(session: Any, frame: Any) -> Iterator[Any]:
    """The rows of a frame in batches of Arrow, as they come. (The public ways collect all, or make objects of each.)"""
    plan = frame._plan
    for one in session.client.to_table_as_iterator(plan.to_proto(session.client), plan.observations):
        if hasattr(one, "num_rows"):
            yield one


def _with_lines(frame: Any, names: list[str]) -> Any:
    """Return the frame with each row as a line of CSV, made by Spark, as one more column."""
    columns = [functions.col(f"`{name.replace('`', '``')}`") for name in names]
    return frame.select(*columns, functions.to_csv(functions.struct(*columns), _CSV).alias(LINE))


def start_server(master: str, warehouse: str) -> str:
    """Return a Connect server in front of a local or standalone master, which ends with this program; its address."""
    SparkSession._start_connect_server(master, {**_OWN_SERVER, "spark.sql.warehouse.dir": warehouse})
    context: Any = SparkContext._active_spark_context
    service = getattr(getattr(context._jvm, "org.apache.spark.sql.connect.service.SparkConnectService$"), "MODULE$")
    return f"sc://localhost:{service.localPort()}"


if __name__ == "__main__":
    main()
