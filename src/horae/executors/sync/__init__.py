"""Kind `sync`: rows are read from a source and written to tables or files, whole or only what is new.

    spec   core.work.syncs
    result {"tables": [{"name", "rows", "bytes", "changes"}, …], "rows", "bytes", "cursor"?}   (core.work.progress)

The work is one process of ours (executors.sync.program) on the library dlt, in the agent's own sandbox. Its order,
secrets included, comes by its standard input; what it tells comes back as notes. How far it came is the cursor: it is
kept with the finish of the run, by the service, and given back to the next.

What must stay true:
- The process connects to nothing that users must not reach, whoever names it (executors.reach).
- This package loads neither dlt nor any database driver; only the process does.
- Nothing of an attempt outlives its workspace, but what stands in the destination.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from horae.core.model import Json
from horae.errors import Invalid
from horae.executors.attempts.sections import Section
from horae.executors.notes import take_note
from horae.ports.work import Work

PROGRAM = "horae.executors.sync.program"
# dlt reports its use over the network, and delays signals that ask it to end, unless told not to.
QUIET = {
    "RUNTIME__DLTHUB_TELEMETRY": "false",
    "RUNTIME__LOG_LEVEL": "CRITICAL",
    "RUNTIME__INTERCEPT_SIGNALS": "false",
    "PYTHONUNBUFFERED": "1",
    "PYTHONWARNINGS": "ignore",
}


@dataclass(frozen=True, slots=True)
class Syncs:
    """How syncs are carried out here. `reach` says where they connect to; `lake_root` is where files go that
    are named by a path, a directory or an address; `clickhouse_url` is the server of destinations that name none."""

    reach: Json  # executors.reach, without places
    lake_root: str = ""
    clickhouse_url: str = ""
    environ: Mapping[str, str] = field(default_factory=dict)  # of the agent, which may hold what opens the lake
    hdfs_user: str = ""

    def sections(self, work: Work, workspace: Path) -> Iterator[Section]:
        order = {
            "spec": {**work.spec, "source": _source_of(work.spec)},
            "cursor": json.loads(work.cursor) if work.cursor else None,
            "attempt": f"{work.assignment.run_id}-{work.assignment.fence}",
            "lake_root": self.lake_root,
            "clickhouse_url": self.clickhouse_url,
            "reach": {**self.reach, "places": self._places()},
        }
        env = {
            **QUIET,
            **self._lake_keys(),
            **({"HADOOP_USER_NAME": self.hdfs_user} if self.hdfs_user else {}),
            "DLT_DATA_DIR": str(workspace / "dlt"),
            "HOME": str(workspace),
            "PYTHONPATH": _import_path(),
        }
        yield Section(
            "sync", "sync", "the sync", (sys.executable, "-m", PROGRAM), workspace, env,
            network=True, sees=_code(), keeps=self._keeps(), is_ours=True,
            given=json.dumps(order).encode(), note=partial(take_note, work),
        )  # fmt: skip

    def _lake_keys(self) -> dict[str, str]:
        """They open the lake only: other buckets need credentials of their own (executors.destinations.places)."""
        names = [name for name in self.environ if name.startswith("AWS_")] if self.lake_root.startswith("s3://") else []
        return {name: self.environ[name] for name in names}

    def _places(self) -> list[tuple[str, int]]:
        """Return what the operator of this agent named, wherever it is."""
        hadoop = self.lake_root if self.lake_root.startswith("hdfs://") else ""
        named = [self.clickhouse_url, self._lake_keys().get("AWS_ENDPOINT_URL", ""), hadoop]
        parts = [urlsplit(url) for url in named if url]
        return [(one.hostname or "", one.port or (443 if one.scheme == "https" else 80)) for one in parts]

    def _keeps(self) -> tuple[Path, ...]:
        """Return the lake, where it is a directory of this machine."""
        if not self.lake_root or "://" in self.lake_root:
            return ()
        root = Path(self.lake_root)
        try:
            root.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise Invalid(f"the lake_root {self.lake_root} cannot be made: {error.strerror}") from None
        return (root.resolve(),)


def _source_of(spec: Json) -> Json:
    """Return the source written in the spec, or the kept one that it names."""
    source: Json = spec.get("source") or {}
    return dict(source.get("config", source))


def _import_path() -> str:
    return str(Path(__file__).parents[3])


def _code() -> tuple[Path, ...]:
    """Return what a process needs to see to run this package: its interpreter and its libraries."""
    places = {sys.prefix, sys.base_prefix, _import_path()}
    return tuple(Path(place) for place in sorted(places) if not place.startswith("/usr"))
