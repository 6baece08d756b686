"""What both databases share: rows ↔ model, the named queries, and the plain operations.

A query has a name and one home: `queries.sql` for both databases, `queries.postgres.sql` and
`queries.sqlite.sql` for what only one of them says, or says differently. A file looks like

    -- get_job --
    -- One sentence on what it is for.
    SELECT …  $1 …          {ids}: the first argument, a list of ids, as a table of one column `value`

The hot operations (submit, fire, claim, finish, sweep) are written per database, because there the
way to move a thousand rows in one statement differs; everything else lives here once.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib.resources import files
from typing import Any, Protocol

import msgspec

from horae.core import specs
from horae.core.holdings import FACTOR, PRIME
from horae.core.model import (
    Attempt,
    Bounds,
    Census,
    Job,
    Json,
    Lease,
    Moment,
    Node,
    Page,
    Phase,
    Run,
    State,
    Token,
    Trigger,
)
from horae.core.results import is_deep
from horae.errors import Conflict, Invalid, Unavailable
from horae.ports import (
    NEVER,
    Cancelled,
    Definition,
    Held,
    HistoryPart,
    Idempotency,
    LastRun,
    Order,
    Outdated,
    Queued,
    Receipt,
    Remains,
    Result,
    Submission,
    Waiting,
    Want,
)

Row = Sequence[Any]

READ_TIME = 10.0  # seconds that what a user asks may take
BATCH = 1000  # rows that one statement of upkeep changes at most: many are changed in many, and others come in between
# What the roles ask and write, by the lane that serves it; the rest can wait, and is upkeep. All of these are small or
# found by an index.
URGENT = {
    name: lane
    for lane, names in {
        "beat": ("now", "list_nodes", "get_node", "want_node", "route_node", "get_lease", "load_segments",
                 "assign_segments", "load_taken_segments", "drop_segments"),
        "fire": ("load_due", "load_definitions", "load_last_runs"),
        "claim": ("load_queued", "load_backlog", "load_previous", "load_cursors", "load_sources", "load_jobs", "due_of",
                  "load_loans", "get_run", "get_sealed", "list_sealed", "list_secrets", "put_secret", "delete_secret"),
        "finish": ("load_held", "load_running", "load_running_in_session", "load_running_of", "look_over", "set_phases",
                   "note_progress"),
    }.items()
    for name in names
}  # fmt: skip

to_json = msgspec.json.Encoder().encode
from_json = msgspec.json.Decoder().decode
UNREADABLE = "(a result that cannot be read)"

JOB_COLUMNS = (
    "id, org, owner, name, key, kind, spec, policy, segment, paused, annotations, version, "
    "created_at, updated_at, deleted_at, triggers"
)
RUN_COLUMNS_LIVE = (
    "id, job_id, trigger_id, due_at, state, reason, attempt, fence, priority, kind, created_at, data, node, lost, "
    "started_at, phase, pin, eligible_at, cancel, CAST(NULL AS bigint) AS finished_at, "
    "CAST(NULL AS integer) AS exit_code, '' AS message, CAST(NULL AS text) AS result, CAST(NULL AS text) AS output, "
    "CAST(NULL AS bigint) AS into_run_id, note"
)
RUN_COLUMNS_HISTORY = (
    "id, job_id, trigger_id, due_at, state, reason, attempt, fence, priority, kind, created_at, data, node, lost, "
    "started_at, 1 AS phase, CAST(NULL AS text) AS pin, CAST(NULL AS bigint) AS eligible_at, {false} AS cancel, "
    "finished_at, exit_code, message, "
    "result, output, into_run_id, CAST(NULL AS text) AS note"
)
HISTORY_COLUMNS = (
    "id, job_id, trigger_id, due_at, created_at, started_at, finished_at, into_run_id, fence, exit_code, state, "
    "attempt, priority, lost, kind, reason, node, message, result, output, data"
)


@cache
def load_queries(dialect: str) -> dict[str, str]:
    """The named queries of a dialect: the shared ones, overridden by its own."""
    here = files("horae.stores")
    queries: dict[str, str] = {}
    for name in ("queries.sql", f"queries.{dialect}.sql"):
        text = here.joinpath(name).read_text()
        parts = re.split(r"^-- (\w+) --$", text, flags=re.M)
        for title, body in zip(parts[1::2], parts[2::2], strict=True):
            statement = re.sub(r"^--.*\n", "", body.strip() + "\n", flags=re.M).strip().rstrip(";")
            queries[title] = _fill(statement, dialect)
    return queries


# Of a row of `live`: as horae.core.holdings works it out of a run and its fence.
_MIXED = f"((id % {PRIME} * {FACTOR} + fence) % {PRIME})"
DIGEST = f"({_MIXED} * {_MIXED} % {PRIME})"


def _fill(statement: str, dialect: str) -> str:
    false = "false" if dialect == "postgres" else "0"
    ids = "(SELECT unnest($1::bigint[]) AS value)" if dialect == "postgres" else "(SELECT value FROM json_each($1))"
    statement = (
        statement.replace("{ids}", ids)
        .replace("{names}", "(SELECT unnest($1::text[]))" if dialect == "postgres" else ids)
        .replace("{digest}", DIGEST)
        .replace("{list}", "bigint[]" if dialect == "postgres" else "text")
        .replace("{job_columns}", JOB_COLUMNS)
        .replace("{history_columns}", HISTORY_COLUMNS)
        .replace("{run_columns_live}", RUN_COLUMNS_LIVE)
        .replace("{run_columns_history}", RUN_COLUMNS_HISTORY.replace("{false}", false))
    )
    return statement if dialect == "postgres" else re.sub(r"\$(\d+)", r"?\1", statement)


# ── rows → model ───────────────────────────────────────────────────────────────────────────────────


def decode(text: str | None) -> Any:
    return None if text is None else from_json(text)


def decode_result(text: str | None) -> Any:
    """What a run gave; where nobody can read it (an older version kept whatever it was given), that it is so."""
    if text is None:
        return None
    try:
        return UNREADABLE if is_deep(text.encode()) else from_json(text)
    except (msgspec.DecodeError, RecursionError):
        return UNREADABLE


def encode(value: Any) -> str:
    return to_json(value).decode()


def job_values(job: Job) -> tuple[Any, ...]:
    """A job as the columns of JOB_COLUMNS."""
    return (
        job.id, job.org, job.owner, job.name, job.key, job.kind, encode(job.spec), specs.policy_text(job.policy),
        job.segment, job.paused, encode(job.annotations), job.version, job.created_at, job.updated_at,
        job.deleted_at, triggers_text(job.triggers),
    )  # fmt: skip


def triggers_text(triggers: Sequence[Trigger]) -> str:
    """The triggers as stored with their job: what does not change when they fire."""
    return encode(
        [
            {
                "id": t.id,
                "schedule": t.schedule,
                "data": t.data,
                "enabled": t.enabled,
                "created_at": t.created_at,
            }
            for t in triggers
        ]
    )


def job_from_row(row: Row, due: dict[int, Row]) -> Job:
    triggers = tuple(trigger_from_doc(doc, row[0], row[11], due.get(doc["id"])) for doc in from_json(row[15]))
    return Job(
        id=row[0], org=row[1], owner=row[2], name=row[3], key=row[4], kind=row[5], spec=from_json(row[6]),
        policy=specs.policy_from_text(row[7]), segment=row[8], paused=bool(row[9]), annotations=from_json(row[10]),
        version=row[11], created_at=row[12], updated_at=row[13], deleted_at=row[14], triggers=triggers,
    )  # fmt: skip


def trigger_from_doc(doc: Json, job_id: int, version: int, due: Row | None) -> Trigger:
    """`due` is (trigger_id, next_at, last_at), or None when the row is gone with its job."""
    next_at, last_at = (due[1], due[2]) if due else (NEVER, None)
    return Trigger(
        id=doc["id"], job_id=job_id, schedule=doc["schedule"], data=doc["data"], enabled=doc["enabled"],
        version=version, next_at=None if next_at == NEVER else next_at, last_at=last_at,
        created_at=doc["created_at"],
    )  # fmt: skip


def run_from_row(row: Row) -> Run:
    return Run(
        id=row[0], job_id=row[1], trigger_id=row[2], due_at=row[3], state=State(row[4]), reason=row[5],
        attempt=row[6], fence=row[7], priority=row[8], kind=row[9], created_at=row[10], data=decode(row[11]),
        node=row[12], lost=row[13], started_at=row[14], phase=Phase(row[15]), pin=row[16], eligible_at=row[17],
        cancel_requested=bool(row[18]), finished_at=row[19], exit_code=row[20],
        message=row[21] or (row[25] or "" if row[4] == State.BLOCKED else ""),
        result=decode_result(row[22]), output=row[23], into_run_id=row[24],
        progress=decode(row[25]) if row[4] == State.RUNNING else None,
    )  # fmt: skip


def node_from_row(row: Row) -> Node:
    return Node(
        name=row[0], roles=tuple(from_json(row[1])), kinds=tuple(from_json(row[2])), labels=tuple(from_json(row[3])),
        version=row[4], address=row[5], state=row[6], started_at=row[7], heartbeat_at=row[8], beat=row[9],
        slots=row[10], busy=row[11], grpc=row[12], via=row[13], wanted=row[14], identity=row[15],
        session=row[16], holder=row[17], ailment=row[18],
    )  # fmt: skip


def node_values(node: Node) -> tuple[Any, ...]:
    return (
        node.name, encode(node.roles), encode(node.kinds), encode(node.labels), node.version, node.address,
        node.started_at, node.heartbeat_at, node.slots, node.grpc, node.via, node.identity, node.holder,
    )  # fmt: skip


class TriggerText(msgspec.Struct):
    """A stored trigger, its schedule and data left as text: equal texts are parsed once elsewhere."""

    id: int
    schedule: msgspec.Raw
    data: msgspec.Raw
    enabled: bool
    created_at: int


_trigger_texts = msgspec.json.Decoder(list[TriggerText]).decode


def trigger_ids(text: str) -> list[int]:
    """Of the triggers as stored with their job."""
    return [trigger.id for trigger in _trigger_texts(text)]


def definition_from_row(row: Row) -> Definition:
    """A definition from (trigger_id, version, job_id, triggers of the job, kind, policy).

    What cannot be read at all has an empty schedule, which is none: its reader says so, and the others go on.
    """
    try:
        found = next(trigger for trigger in _trigger_texts(row[3]) if trigger.id == row[0])
    except (msgspec.DecodeError, StopIteration):
        return Definition(row[0], row[1], row[2], "", 0, None, row[4], row[5])
    data = bytes(found.data).decode()
    return Definition(
        trigger_id=row[0], version=row[1], job_id=row[2], schedule=bytes(found.schedule).decode(),
        created_at=found.created_at, data=None if data == "null" else data, kind=row[4], policy=row[5],
    )  # fmt: skip


# ── idempotency and keys ───────────────────────────────────────────────────────────────────────────

Known = dict[tuple[str, str], tuple[str, list[int]]]  # (scope, key) → (digest, ids)
Taken = set[tuple[int, str, str | None]]  # (org, owner, key) of live jobs


def replay(key: Idempotency | None, known: Known) -> Receipt | None:
    """The receipt of an earlier request under this key, or None when it is the first."""
    earlier = known.get((key.scope, key.key)) if key else None
    if earlier is None or key is None:
        return None
    return Receipt(earlier[1], replayed=True) if earlier[0] == key.digest else Receipt([], mismatch=True)


def judge(submission: Submission, known: Known, taken: Taken) -> Receipt | None:
    """A receipt without any doing, or None when the submission is to be carried out."""
    earlier = replay(submission.idempotency, known)
    if earlier is not None:
        return earlier
    keys = [(job.org, job.owner, job.key) for job in submission.jobs if job.key is not None]
    clash = next((key for key in keys if key in taken or keys.count(key) > 1), None)
    return Receipt([], key_taken=clash[2]) if clash else None


def key_taken(job: Job) -> Conflict:
    """Another job got the key while this one was being saved."""
    return Conflict(f"another job of {job.owner} has the key '{job.key}' already", code="E_KEY_TAKEN")


def has_fired(job: Job, fired: Mapping[int, Moment | None]) -> bool:
    """Whether a trigger has fired since the job was read; `fired` are the last moments, by trigger, as they are now."""
    return any(t.last_at != fired[t.id] for t in job.triggers if t.id in fired)


def remember(submission: Submission, known: Known, taken: Taken) -> None:
    """Let later submissions of the same call see what this one does."""
    if key := submission.idempotency:
        known[key.scope, key.key] = (key.digest, [job.id for job in submission.jobs])
    taken.update((job.org, job.owner, job.key) for job in submission.jobs if job.key is not None)


def first_of_each(orders: Sequence[Order]) -> list[Order]:
    """The orders to carry out: of those that share an idempotency key, the first."""
    seen: set[tuple[str, str]] = set()
    fresh = []
    for order in orders:
        key = order.idempotency and (order.idempotency.scope, order.idempotency.key)
        if key is None or key not in seen:
            fresh.append(order)
        if key:
            seen.add(key)
    return fresh


def order_receipts(
    orders: Sequence[Order], fresh: Sequence[Order], made: Sequence[Receipt], known: Known
) -> list[Receipt]:
    """One receipt per order: what was made for it, or what its idempotency key stands for."""
    by_order = {id(order): receipt for order, receipt in zip(fresh, made, strict=True)}
    for order, receipt in zip(fresh, made, strict=True):
        if key := order.idempotency:
            known[key.scope, key.key] = (key.digest, receipt.ids)
    return [by_order.get(id(o)) or replay(o.idempotency, known) or Receipt([]) for o in orders]


# ── many at once ───────────────────────────────────────────────────────────────────────────────────


Part = tuple[Cancelled, bool]  # some runs ended, and whether they were the last


async def ended_in_parts(step: Callable[[], Awaitable[Part | None]]) -> Cancelled | None:
    """Repeat a step until it is done; None as soon as it cannot be."""
    ended: set[int] = set()
    while (part := await step()) is not None:
        cancelled, is_last = part
        ended |= cancelled.ended
        if is_last:
            return replace(cancelled, ended=ended)
    return None


# ── cursors ────────────────────────────────────────────────────────────────────────────────────────


def read_cursor(cursor: str | None, start: int) -> int:
    """A cursor is the last id given, in letters that nobody is tempted to count with."""
    if cursor is None:
        return start
    if not re.fullmatch(r"c[0-9a-z]{1,13}", cursor):
        raise Invalid(
            "the cursor is not one that a list gave; leave it out to start anew",
            code="E_PATTERN",
            path="cursor",
        )
    return min(int(cursor[1:], 36), NEVER)


def write_cursor(number: int) -> str:
    digits = ""
    while number:
        number, digit = divmod(number, 36)
        digits = "0123456789abcdefghijklmnopqrstuvwxyz"[digit] + digits
    return "c" + (digits or "0")


def page(items: list[Any], limit: int) -> Page:
    """A page of `limit` out of limit + 1 items read: one more than shown tells that there are more."""
    more = len(items) > limit
    shown = items[:limit]
    return Page(shown, write_cursor(shown[-1].id) if more else None)


class Where:
    """Conditions of a list query, with their arguments numbered as they come."""

    def __init__(self) -> None:
        self.args: list[Any] = []
        self.conditions: list[str] = []

    def add(self, condition: str, *args: Any) -> None:
        for arg in args:
            self.args.append(arg)
            condition = condition.replace("?", f"${len(self.args)}", 1)
        self.conditions.append(condition)

    def put(self, arg: Any) -> str:
        """An argument alone; how to name it."""
        self.args.append(arg)
        return f"${len(self.args)}"

    def text(self) -> str:
        return " AND ".join(self.conditions) or "1 = 1"


def too_slow() -> Unavailable:
    """A user's read was given up, so that it does not keep others waiting."""
    return Unavailable(
        f"reading this takes longer than {READ_TIME:g} s, so it was given up",
        code="E_READ_TIME",
        hint="narrow the filter: name a job, a time span or fewer states",
    )


class Reader(Protocol):
    """What the shared operations need of a database."""

    async def read(self, statement: str, *args: Any) -> Sequence[Row]:
        """Run one reading statement."""

    async def write(self, statement: str, *args: Any) -> Sequence[Row]:
        """Run one writing statement in a transaction of its own."""


class SqlStore:
    """The operations that read the same in both databases."""

    dialect: str

    def __init__(self) -> None:
        self.queries = load_queries(self.dialect)

    async def read(self, statement: str, *args: Any) -> Sequence[Row]:
        raise NotImplementedError  # each database has its own way to reach a reader

    async def write(self, statement: str, *args: Any) -> Sequence[Row]:
        raise NotImplementedError  # and its own writer

    async def _get(self, name: str, *args: Any) -> Sequence[Row]:
        return await self.read(self.queries[name], *args)

    async def _put(self, name: str, *args: Any) -> Sequence[Row]:
        return await self.write(self.queries[name], *args)

    def _statement(self, text: str) -> str:
        return text if self.dialect == "postgres" else re.sub(r"\$(\d+)", r"?\1", text)

    # ── definitions ──
    async def get_job(self, job_id: int) -> Job | None:
        return await self._job(await self._get("get_job", job_id))

    async def find_key(self, org: int, owner: str, key: str) -> Job | None:
        return await self._job(await self._get("find_key", org, owner, key))

    async def _job(self, rows: Sequence[Row]) -> Job | None:
        return (await self._with_triggers(rows))[0] if rows else None

    async def _with_triggers(self, rows: Sequence[Row]) -> list[Job]:
        ids = [doc["id"] for row in rows for doc in from_json(row[15])]
        due = {row[0]: row for row in await self._due_of(ids)} if ids else {}
        return [job_from_row(row, due) for row in rows]

    async def _due_of(self, trigger_ids: Sequence[int]) -> Sequence[Row]:
        return await self._get("due_of", self._list(trigger_ids))

    def _list(self, values: Sequence[Any]) -> Any:
        """A list as one argument: an array in PostgreSQL, JSON text in SQLite."""
        return list(values) if self.dialect == "postgres" else encode(list(values))

    async def get_trigger(self, trigger_id: int) -> Trigger | None:
        rows = await self._get("get_trigger", trigger_id)
        return trigger_of(rows[0]) if rows else None

    # ── firing ──
    async def load_last_runs(self, trigger_ids: Sequence[int]) -> list[LastRun]:
        rows = await self._get("load_last_runs", self._list(trigger_ids))
        return [LastRun(row[0], bool(row[1]), row[2]) for row in rows]

    # ── runs ──
    async def load_held(self, run_ids: Sequence[int]) -> list[Held]:
        rows = await self._get("load_held", self._list(run_ids))
        return [Held(row[0], row[1], row[2], row[3], bool(row[4]), row[5], row[6]) for row in rows]

    async def load_queued(self, limit: int) -> list[Queued]:
        return [Queued(*row) for row in await self._get("load_queued", limit)]

    async def load_previous(self, job_ids: Sequence[int]) -> dict[int, str]:
        rows = await self._get("load_previous", self._list(job_ids))
        return {row[0]: row[1] for row in rows if row[1] is not None}

    async def get_run(self, run_id: int) -> Run | None:
        rows = await self._get("get_run", run_id)
        return run_from_row(rows[0]) if rows else None

    async def list_attempts(self, run_id: int) -> list[Attempt]:
        rows = await self._get("list_attempts", run_id)
        return [
            Attempt(row[0], row[1], row[2], row[3], State(row[4]), row[5], row[6], row[7], row[8], row[9], row[10])
            for row in rows
        ]

    async def load_outdated(self, before: Moment, after: int, limit: int) -> Outdated:
        seen = await self._get("outdated", before, after, limit)
        rows = [row for row in seen if row[4]]
        ids = [row[0] for row in rows]
        earlier = await self._get("outdated_attempts", self._list(ids)) if ids else ()
        outputs = [(row[0], row[1], row[2]) for row in (*rows, *earlier) if row[3]]
        return Outdated(ids, outputs, seen[-1][0] if len(seen) == limit else None)

    async def tend_history(self) -> bool:
        return False

    async def load_outdated_parts(self, before: Moment) -> list[HistoryPart]:
        return []

    async def drop_part(self, part: HistoryPart) -> None:
        raise NotImplementedError  # there are none

    async def without_runs(self, first_ids: Sequence[int], width: int) -> list[int]:
        return [row[0] for row in await self._get("without_runs", self._list(first_ids), width)]

    async def purge_remains(self, before: Moment, limit: int) -> Remains:
        jobs = [row[0] for row in await self._put("drop_tombstones", before, limit)]
        if jobs:
            await self._put("drop_cursors_of", self._list(jobs))
        return Remains(len(jobs), await self._purge_parked(before, limit), len(await self._put("drop_nodes", before)))

    async def _purge_parked(self, before: Moment, limit: int) -> int:
        """Triggers that are enabled and have no moment left; the others wait for somebody to enable them."""
        after, dropped = 0, 0
        while rows := await self._get("parked", before, after, limit):
            over = [row[0] for row in rows if any(t.id == row[0] and t.enabled for t in _trigger_texts(row[1]))]
            await self._put("drop_parked", self._list(over))
            after, dropped = rows[-1][0], dropped + len(over)
        return dropped

    async def watch_ended(self, is_wanted: bool) -> None:
        if bool((await self._get("is_watching_ended"))[0][0]) != is_wanted:
            await self._put("watch_ended" if is_wanted else "unwatch_ended")

    async def load_untold(self, limit: int) -> list[Run]:
        return [run_from_row(row) for row in await self._get("load_untold", limit)]

    async def forget_untold(self, run_ids: Sequence[int]) -> None:
        await self._put("forget_untold", self._list(run_ids))

    async def purge_keys(self, before: Moment, limit: int) -> int:
        return len(await self._put("purge_keys", before, limit))

    async def census(self) -> Census:
        counts = {row[0]: row[1] for row in await self._get("count_live")}
        jobs, triggers, oldest_due, oldest_queued = (await self._get("census"))[0]
        live = {State(state).word: count for state, count in counts.items()}
        return Census(jobs, triggers, live, oldest_due, oldest_queued)

    # ── nodes and leases ──
    async def keep_setting(self, name: str, value: str) -> str:
        return str((await self._put("keep_setting", name, value))[0][0])

    async def get_setting(self, name: str) -> str | None:
        rows = await self._get("get_setting", name)
        return str(rows[0][0]) if rows else None

    async def get_lease(self, name: str) -> Lease | None:
        rows = await self._get("get_lease", name)
        return Lease(*rows[0]) if rows else None

    async def take_lease(self, name: str, owner: str, seen: Lease | None) -> Lease | None:
        if seen is None:
            rows = await self._put("make_lease", name, owner)
        else:
            rows = await self._put("take_lease", name, owner, seen.owner, seen.term, seen.beat)
        return Lease(*rows[0]) if rows else None

    async def renew_lease(self, lease: Lease) -> Lease | None:
        rows = await self._put("renew_lease", lease.name, lease.owner, lease.term)
        return Lease(*rows[0]) if rows else None

    async def resign_lease(self, lease: Lease) -> None:
        await self._put("resign_lease", lease.name, lease.owner, lease.term)

    async def load_segments(self) -> dict[int, tuple[str, int]]:
        return {row[0]: (row[1], row[2]) for row in await self._get("load_segments")}

    # ── tokens ──
    async def add_token(self, token: Token) -> Token:
        given = (token.name, token.scope, token.owner, token.hash, token.created_at, token.expires_at, token.parent_id)
        bounds = None if token.bounds is None else to_json(token.bounds).decode()
        return _token_from(*(await self._put("add_token", *given, bounds))[0])

    async def get_token(self, token_id: int) -> Token | None:
        return _token_of(await self._get("get_token", token_id))

    async def load_tokens(self, token_ids: Sequence[int]) -> list[Token]:
        return [_token_from(*row) for row in await self._get("load_tokens", self._list(token_ids))]

    async def list_tokens(self) -> list[Token]:
        return [_token_from(*row) for row in await self._get("list_tokens")]

    async def revoke_token(self, token_id: int, at: Moment) -> Token | None:
        return _token_of(await self._put("revoke_token", token_id, at))

    async def add_session(self, token_id: int, hash: str, at: Moment, expires_at: Moment) -> int:
        await self._put("drop_sessions", at)
        return int((await self._put("add_session", token_id, hash, at, expires_at))[0][0])

    async def get_session(self, session_id: int) -> tuple[int, str, Moment] | None:
        rows = await self._get("get_session", session_id)
        return (rows[0][0], rows[0][1], rows[0][2]) if rows else None


def _token_of(rows: Sequence[Row]) -> Token | None:
    return _token_from(*rows[0]) if rows else None


def _token_from(*row: Any) -> Token:
    *known, bounds = row
    token = Token(*known)
    return token if bounds is None else replace(token, bounds=msgspec.json.decode(bounds, type=Bounds))


def trigger_of(row: Row) -> Trigger:
    """A trigger from (trigger_id, next_at, last_at, job_id, version, triggers of the job)."""
    doc = next(doc for doc in from_json(row[5]) if doc["id"] == row[0])
    return trigger_from_doc(doc, row[3], row[4], row[:3])


def place_in_time(result: Result, claimed_at: Moment | None, now: Moment) -> tuple[Moment | None, Moment]:
    """When an attempt began and ended. The clock of whoever reports may be wrong, and may have jumped meanwhile: it did
    not begin before it was claimed, nor end later than now; it keeps its length, if that makes sense."""
    finished_at = now if result.finished_at is None else result.finished_at
    ahead = max(0, finished_at - now)
    started_at = None if result.started_at is None else result.started_at - ahead
    finished_at -= ahead
    earliest = finished_at if started_at is None else started_at
    behind = 0 if claimed_at is None else max(0, claimed_at - earliest)
    ended_at = now if finished_at < earliest else min(finished_at + behind, now)
    return None if started_at is None else min(started_at + behind, now), ended_at


def settle(waiting: Sequence[Waiting], unwanted: set[int]) -> tuple[list[Result], list[Waiting]]:
    """A run that somebody wants cancelled gets no other attempt, even if that was asked for a moment ago: a lost
    one is cancelled, a failed one stays what it is."""
    ends = [w for w in waiting if w.result.run_id in unwanted]
    results = [replace(w.result, state=State.CANCELLED) if w.lost else w.result for w in ends]
    return results, [w for w in waiting if w.result.run_id not in unwanted]


# ── claims ─────────────────────────────────────────────────────────────────────────────────────────


def room_by_kind(wants: Sequence[Want]) -> dict[str, int]:
    """Kind → how many runs of it all of them together want."""
    room: dict[str, int] = {}
    for want in wants:
        room[want.kind] = room.get(want.kind, 0) + want.room
    return room


def deal(wants: Sequence[Want], found: Sequence[Row]) -> list[list[Row]]:
    """What each want gets of the runs that were found for them, each (-priority, pin, id, fence, attempt, job, trigger,
    due moment, kind, …): of each kind the best, pinned ones to their node, and every node gets one before any gets
    two."""
    left, rest = room_by_kind(wants), []
    given: list[list[Row]] = [[] for _ in wants]
    mine = {(want.node, want.kind): number for number, want in enumerate(wants)}
    once = {row[2]: row for row in found}
    for row in sorted(once.values(), key=lambda row: (row[0], row[7], row[2])):
        if left[row[8]]:
            left[row[8]] -= 1
            given[mine[row[1], row[8]]].append(row) if row[1] is not None else rest.append(row)
    slots = {kind: _slots(wants, given, kind) for kind in left}
    for row in rest:
        given[next(slots[row[8]])].append(row)
    return given


def _slots(wants: Sequence[Want], given: Sequence[Sequence[Row]], kind: str) -> Iterator[int]:
    """The numbers of wants that have room, as often as they have, in turn."""
    taken = {number: len(given[number]) for number, want in enumerate(wants) if want.kind == kind}
    return iter([
        number for nth in range(max(wants[number].room for number in taken))
        for number in taken if taken[number] <= nth < wants[number].room
    ])  # fmt: skip
