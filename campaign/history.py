"""What a campaign leaves behind: plain values, and the directory they are kept in.

    DIR/meta.json       seed, sizes, what was demanded
    DIR/ops.jsonl       every request of the workload: invoked, answered, outcome ok | fail | info
    DIR/faults.jsonl    every fault that really happened, and what was counted while it did
    DIR/witness/        one file per process start of a job
    DIR/events.jsonl    every event that a consumer was told, in the order in which it was
    DIR/stored.json     the id of every event that there was at the end
    DIR/final.json      the last read, through the public API, after everything was healed and quiet
    DIR/s3.log          what the object store said of itself

The checker reads these and nothing else, so a directory can be judged again later.
Moments are whole microseconds since 1970, as in Horae; `boot` is CLOCK_BOOTTIME in seconds.
"""

from __future__ import annotations

import datetime
import json
import re
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

SECOND = 1_000_000

OK, FAIL, INFO = "ok", "fail", "info"  # happened; did not happen; nobody knows
SUBMIT, RUN, PAUSE = "submit", "run", "pause"
RESUME, UPDATE, DELETE = "resume", "update", "delete"
SIGNAL, ORDER = "signal", "order"  # an order: a run that waits for others like it, which are one run together
CANCEL = "cancel"  # of a run
AGAIN = "retry-"  # begins the key of a request that goes on from where a run failed; its id follows
CHANGES = (PAUSE, RESUME, UPDATE, DELETE)  # of a job that exists

KILLS = (
    "kill node", "kill leader", "kill agent", "kill keeper", "kill nats", "wipe nats", "kill s3", "kill primary",
)  # fmt: skip
LOST = "lost agent"  # the cluster gave up a process that had not said goodbye
PAUSES = ("pause below lease", "pause beyond lease", "pause beyond a minute", LOST)
CLOCKS = ("clock forward", "clock back")
FULL = ("full disk of a node", "full disk of an agent", "full disk of output", "full bucket")
CRASH = "crash"  # a process ended although nobody had touched it

_ACKNOWLEDGED = re.compile(
    r"/runs/\d+/(\d+)/\d+-(\d+)/\d+ failed but the entry exists, treating the write as successful"
)


def moment(text: str) -> int:
    """RFC 3339 to microseconds."""
    return round(datetime.datetime.fromisoformat(text).timestamp() * SECOND)


def shown(at: int) -> str:
    return datetime.datetime.fromtimestamp(at / SECOND, datetime.UTC).strftime("%H:%M:%S.%f")[:-3]


@dataclass(frozen=True, slots=True)
class TaskPlan:
    """A task of a workflow."""

    name: str
    needs: tuple[tuple[str, str], ...] = ()  # task, and on what of it: success, failure, end
    items: int | None = None  # of a fan-out
    lists: str = ""  # the task that returns its items; empty: they are written there
    at_once: int | None = None  # of its items
    may_fail: bool = False
    waits: bool = False  # for a signal; else it is work


@dataclass(frozen=True, slots=True)
class Plan:
    """A job as the workload made it: what the oracle and the checker must know of it."""

    name: str
    every: int | None = None  # µs between moments
    seconds: int | None = None  # cron: each so many seconds …
    minutes: int | None = None  # … of each so many minutes of the clock …
    timezone: str = "UTC"  # … of this zone
    at: int | None = None  # once, at this moment; 0 is at once
    overlap: str = "forbid"
    misfire: str = "run_latest"
    misfire_limit: int = 100
    attempts: int = 1
    timeout: float | None = None
    start_deadline: float | None = None
    talks: bool = False
    stubborn: bool = False
    queue: str = ""  # empty: the default one
    tenant: str = ""  # what its data says; with whom it shares a queue
    at_once: int | None = None  # runs of one …
    at_once_per: str = "job"
    rate: int | None = None  # starts a minute, of one …
    rate_per: str = "job"
    burst: int = 1
    waits: bool = False  # its runs wait for a signal
    tasks: tuple[TaskPlan, ...] = ()  # it is a workflow; each behind what it needs
    key: str = ""  # by which others name it
    after: str = ""  # the key of the job after which it comes,
    on: str = "success"  # and after what of it: success, failure, end
    debounce: float | None = None  # seconds for which an order waits for the next,
    debounce_most: float = 0.0  # and for which all of them wait

    @property
    def is_special(self) -> bool:
        """Return whether it is not asked for as others are: it comes after another, or orders of it are one run."""
        return bool(self.after) or self.debounce is not None

    @property
    def has_moments(self) -> bool:
        """Return whether it has a schedule; else its runs are made by the ends of others."""
        return not (self.every is self.at is self.seconds is None)


@dataclass(frozen=True, slots=True)
class QueuePlan:
    """A queue as the workload made it."""

    name: str
    weights: dict[str, int]  # of tenants: all that there are
    concurrency: int | None = None


@dataclass(frozen=True, slots=True)
class Operation:
    """One HTTP request and what came of it. A repeat with the same key is an operation of its own."""

    kind: str
    key: str  # idempotency key; for changes of a job, which have none, whatever tells two of them apart
    outcome: str
    invoked_at: int
    answered_at: int
    job_id: int | None = None
    run_id: int | None = None
    created_at: int | None = None  # of the job; of an update: when its new schedule began
    next_at: int | None = None  # of the job's trigger, when it was just made
    replayed: bool = False
    status: int = 0
    plan: Plan | None = None  # of a submit or an update


@dataclass(slots=True)
class Witness:
    """One process start, as it wrote about itself."""

    run: int
    attempt: int
    fence: int
    job: int
    due_at: int
    pid: int
    started: float  # boot
    started_at: int  # wall
    last: float  # boot, of the last line
    last_at: int  # wall, of the last line
    code: int | None = None  # None: it never came to its end
    lines: int = 0


@dataclass(slots=True)
class Hold:
    """A time in which a run held what it demands: a slot, and its units of limits."""

    run: int
    since: int
    until: int | None = None  # None: it never let go


@dataclass(frozen=True, slots=True)
class Attempt:
    attempt: int
    fence: int
    state: str
    reason: str
    exit_code: int | None = None


@dataclass(frozen=True, slots=True)
class Run:
    """A run record as the API shows it."""

    id: int
    job_id: int
    by_hand: bool
    due_at: int
    state: str
    reason: str
    attempt: int
    fence: int
    lost: int
    created_at: int
    finished_at: int | None
    exit_code: int | None
    into_run_id: int | None
    key: str | None  # of a run by hand: the key of its request
    node: str | None = None
    earlier: tuple[Attempt, ...] = ()  # attempts that did not end it
    log: str | None = None  # of the talkative
    parent_id: int | None = None  # the run of which it is a task,
    task: str | None = None  # and its name there
    resumes: int | None = None  # the workflow run of which it takes over what succeeded
    result: Any = None


@dataclass(frozen=True, slots=True)
class Fault:
    kind: str
    target: str
    at: int
    seconds: float = 0.0  # how long it lasted
    evidence: str = ""  # what was measured or counted while it lasted
    happened: bool = True  # whether that shows that it did what its name says


@dataclass(frozen=True, slots=True)
class Told:
    """An event as a consumer heard it."""

    id: str
    kind: str
    run: int | None = None
    fence: int | None = None
    state: str | None = None
    place: str = ""  # from which it would go on


@dataclass(frozen=True, slots=True)
class Final:
    runs: tuple[Run, ...]
    jobs: tuple[str, ...]  # names of all jobs, once for each job
    alive: tuple[int, ...] = ()  # processes of witnesses that still live
    incomplete: str = ""  # why this read says less than it should


@dataclass(slots=True)
class History:
    operations: list[Operation]
    witnesses: list[Witness]
    final: Final
    faults: list[Fault]
    counts: dict[str, int] = field(default_factory=dict)  # of what cannot be seen in single faults
    demands: dict[str, int] = field(default_factory=dict)  # least counts without which the campaign proves nothing
    late_after: float | None = None  # seconds after its moment by which a record must exist; None: not judged
    stray: float = 0.0  # seconds after which a request that was given up can have its effect no more
    unkept: frozenset[tuple[int, int]] = frozenset()  # (run, fence) of whose log the object store acknowledged a piece
    # that it could not keep
    queues: tuple[QueuePlan, ...] = ()
    holds: list[Hold] = field(default_factory=list)  # as the store saw them; else the witnesses tell
    noted_late: float = 0.0  # seconds by which the beginning of a hold may be noted too late
    healed_at: int | None = None  # from when on there were no faults; None: not known
    read_at: int = 0  # when the last read was made
    told: list[Told] = field(default_factory=list)  # what a consumer of events heard, in its order
    stored: list[str] = field(default_factory=list)  # ids of all events there were at the end, in their order


# ── keeping ────────────────────────────────────────────────────────────────────────────────────────


class Journal:
    """A file of JSON lines, one write each."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", buffering=1)

    def add(self, value: Any) -> None:
        self._file.write(json.dumps(asdict(value)) + "\n")

    def close(self) -> None:
        self._file.close()


def now() -> int:
    return time.time_ns() // 1000


def save(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=1))


def load(directory: Path) -> History:
    meta = json.loads((directory / "meta.json").read_text())
    final = directory / "final.json"
    return History(
        operations=[read_operation(line) for line in _lines(directory / "ops.jsonl")],
        witnesses=[one for path in sorted((directory / "witness").iterdir()) if (one := read_witness(path))],
        final=_final(json.loads(final.read_text())) if final.exists() else Final((), (), incomplete="there is none"),
        faults=[Fault(**line) for line in _lines(directory / "faults.jsonl")],
        counts=meta["counts"],
        demands=meta["demands"],
        late_after=meta.get("late_after"),
        stray=meta.get("stray", 0.0),
        unkept=read_unkept(directory / "s3.log"),
        queues=tuple(QueuePlan(**queue) for queue in meta.get("queues", ())),
        noted_late=meta.get("noted_late", 0.0),
        healed_at=meta.get("healed_at"),
        read_at=meta.get("read_at", 0),
        told=[Told(**line) for line in _lines(directory / "events.jsonl")]
        if (directory / "events.jsonl").exists()
        else [],
        stored=json.loads(stored.read_text()) if (stored := directory / "stored.json").exists() else [],
    )


def read_unkept(path: Path) -> frozenset[tuple[int, int]]:
    """With a full disk, SeaweedFS can fail to write a name to its index, find it in memory, and acknowledge the object.
    It says so in its log; after its next start the object is gone."""
    text = path.read_text(errors="replace") if path.exists() else ""
    return frozenset((int(run), int(fence)) for run, fence in _ACKNOWLEDGED.findall(text))


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    for line in path.read_text().splitlines():
        yield json.loads(line)


def read_operation(line: dict[str, Any]) -> Operation:
    plan = line.pop("plan")
    return Operation(**line, plan=_plan(plan) if plan else None)


def _plan(value: dict[str, Any]) -> Plan:
    tasks = [
        TaskPlan(**{**task, "needs": tuple((need, on) for need, on in task["needs"])})
        for task in value.pop("tasks", ())
    ]
    return Plan(**value, tasks=tuple(tasks))


def resumed_by(operations: Iterable[Operation]) -> dict[int, int]:
    """Return which runs go on from where another failed, and which one that is."""
    answered = (one for one in operations if one.kind == RUN and one.run_id is not None)
    return {one.run_id or 0: int(one.key.removeprefix(AGAIN)) for one in answered if one.key.startswith(AGAIN)}


def _final(value: dict[str, Any]) -> Final:
    runs = [_run(run) for run in value["runs"]]
    return Final(tuple(runs), tuple(value["jobs"]), tuple(value["alive"]), value["incomplete"])


def _run(value: dict[str, Any]) -> Run:
    earlier = tuple(Attempt(**attempt) for attempt in value.pop("earlier"))
    return Run(**value, earlier=earlier)


def read_witness(path: Path) -> Witness | None:
    """None for a process that was killed before its first line: it did nothing yet."""
    lines = list(_lines(path))
    if not lines:
        return None
    first, last = lines[0], lines[-1]
    return Witness(
        run=first["run"], attempt=first["attempt"], fence=first["fence"], job=first["job"], pid=first["pid"],
        due_at=moment(first["scheduled_for"]), started=first["boot"], started_at=round(first["wall"] * SECOND),
        last=last["boot"], last_at=round(last["wall"] * SECOND), code=last.get("code"), lines=last.get("lines", 0),
    )  # fmt: skip
