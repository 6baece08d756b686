"""Kind `spark_sql`: one statement on Spark, and its rows to files and tables.

    spec   {"query", "outputs"?: [{"to": "files", "uri"?, "path", "mode"?} | {"to": "clickhouse", "database", "table",
            "mode"?}, …]}
    result {"rows", "bytes", "tables": [{"name", "rows", "bytes"}, …], "stages": {"done", "total"}, "query_id",
            "steps": […]}

`program` does it, as a process of its own in the agent's sandbox; this is what it is ordered to do.

What must stay true:
- The order, which holds passwords, is given on standard input only.
- Every attempt of a run works under the same session and tag on the cluster, so each can end what an earlier one left.
- Local files are written below `lake_root`, and nowhere else; of buckets, only its own and those that are allowed get
  the agent's keys. A Spark that we start never has them: a query that runs code, where that is allowed, finds none.
"""

from __future__ import annotations

import json
import os
import sys
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from horae.core.model import Json, Reason
from horae.core.runs.orders import Assignment
from horae.core.secrets.fields import masked
from horae.core.work.queries import asks_servers, calls_code
from horae.errors import Invalid
from horae.executors.attempts.sections import Section
from horae.executors.notes import take_note
from horae.ports.work import Work

GRACE = 15.0  # seconds from TERM to KILL: the cluster, which may be busy, must have heard that the query shall end
QUERY = "query"  # name of the section
SESSIONS = uuid.UUID("1f0a5a0e-8a63-5b1c-9d55-0c8f6d1b7a42")  # the namespace of the ids of our sessions
PASSED_ON = ("HADOOP_CONF_DIR", "JAVA_HOME", "SPARK_CONF_DIR")  # of the agent's environment
CLOUD = "AWS_"  # begins the names of further ones, which hold keys
SCHEMES = ("hdfs", "s3", "file")


@dataclass(frozen=True, slots=True)
class SparkQueries:
    """How queries are carried out here. `environ` is the agent's own."""

    spark_url: str
    clickhouse_url: str | None
    lake_root: str
    environ: Mapping[str, str]
    warehouse: str  # of the tables of a Spark that we start: a directory, or hdfs://…
    hdfs_user: str
    buckets: tuple[str, ...] = ()  # besides that of lake_root
    allows_code: bool = False

    def sections(self, work: Work, workspace: Path) -> Iterator[Section]:
        if not self.allows_code and (word := calls_code(work.spec["query"])):
            hint = "write it in SQL, or set spark_code on the agent"
            raise Invalid(f"the query runs code that is no SQL ({word}), which is not allowed here: {hint}")
        if not self.allows_code and (scheme := asks_servers(work.spec["query"])):
            hint = "read it with a sync, or set spark_code on the agent"
            raise Invalid(f"the query names a place by {scheme}, which is not allowed here: {hint}")
        outputs = [self._resolved(output) for output in work.spec.get("outputs", ())]
        local = [Path(each["place"].removeprefix("file://")) for each in outputs if each["to"] == "files"
                 and each["place"].startswith("file://")]  # fmt: skip
        if not self.spark_url.startswith("sc://") and "://" not in self.warehouse:
            local.append(Path(self.warehouse).resolve())
        for directory in local:
            directory.mkdir(parents=True, exist_ok=True)
        env = {name: self.environ[name] for name in PASSED_ON if name in self.environ}
        env["HADOOP_USER_NAME"] = self.hdfs_user
        yield Section(
            QUERY, QUERY, "the query", (sys.executable, "-m", "horae.executors.spark.program"), workspace,
            {**env, "PYTHONUNBUFFERED": "1", "PYTHONWARNINGS": "ignore"}, Reason.ERROR, network=True,
            sees=_interpreter(), keeps=tuple(local), is_ours=True, gentle=True,
            given=json.dumps(self._order(work, outputs)).encode(), note=partial(take_note, work),
        )  # fmt: skip

    def _order(self, work: Work, outputs: list[Json]) -> Json:
        needs_keys = any(str(output.get("place", "")).startswith("s3://") for output in outputs)
        keys = {name: value for name, value in self.environ.items() if needs_keys and name.startswith(CLOUD)}
        return {
            "run": work.assignment.run_id,
            "session": str(session_id(work.assignment)),
            "attempt": attempt_of(work.assignment),
            "spark_url": self.spark_url,
            "warehouse": self.warehouse if "://" in self.warehouse else str(Path(self.warehouse).resolve()),
            "clickhouse_url": self.clickhouse_url,
            "query": work.spec["query"],
            "outputs": outputs,
            "keys": keys,
        }

    def _resolved(self, output: Json) -> Json:
        """Return an output with its place in one address."""
        if output["to"] == "clickhouse":
            if self.clickhouse_url is None:
                raise Invalid("an output goes to ClickHouse, and this agent knows of none: set clickhouse_url")
            return {"mode": "append", **output}
        return {"to": "files", "mode": output.get("mode", "append"), "place": self._place(output)}

    def _place(self, output: Json) -> str:
        path, uri = str(output["path"]), str(output.get("uri", "")).rstrip("/")
        if ".." in path.split("/"):
            raise Invalid(f"the path {path!r} of an output leads out of its place: write it without ..")
        if uri and "://" not in uri:  # as the lake contract writes it, host:port
            uri = f"hdfs://{uri}"
        place = f"{uri or self.lake_root.rstrip('/')}/{path.strip('/')}"
        scheme = place.partition("://")[0] if "://" in place else "file"
        if scheme not in SCHEMES:
            raise Invalid(f"an output goes to {masked(uri)!r}; files can be written to {', '.join(SCHEMES)}")
        if scheme == "s3":
            self._check_bucket(urlsplit(place).netloc)
        return self._inside(place.removeprefix("file://")) if scheme == "file" else place

    def _check_bucket(self, bucket: str) -> None:
        root = urlsplit(self.lake_root)
        allowed = [*([root.netloc] if root.scheme == "s3" else ()), *self.buckets]
        if bucket not in allowed:
            hint = f"the agent may use {', '.join(allowed) or 'none'}: add it to lake_buckets"
            raise Invalid(f"an output goes to the bucket {bucket!r}, which is not allowed here: {hint}")

    def _inside(self, place: str) -> str:
        found = os.path.realpath(place)
        if "://" in self.lake_root or not Path(found).is_relative_to(os.path.realpath(self.lake_root)):
            raise Invalid(f"the local path {place!r} of an output is not below lake_root, which is {self.lake_root!r}")
        return f"file://{found}"


def session_id(assignment: Assignment) -> uuid.UUID:
    """Return the same for all attempts of a run, and another for each run of each installation that shares a
    cluster."""
    return uuid.uuid5(SESSIONS, f"{assignment.run_id}/{assignment.job_id}/{assignment.due_at}")


def attempt_of(assignment: Assignment) -> str:
    """Return the name of an attempt, as no other installation has it; without its last part it is that of the run."""
    return f"run-{assignment.run_id}-{session_id(assignment).hex[:8]}-{assignment.fence}"


def _interpreter() -> tuple[Path, ...]:
    """Return where this Python and all that it imports lie, but for what every sandbox has."""
    places = {Path(sys.prefix), Path(sys.base_prefix), Path(__file__).parents[3]}
    return tuple(place for place in sorted(places) if not place.is_relative_to("/usr") or "local" in place.parts)
