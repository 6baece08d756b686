"""The named queries of both databases.

A query has a name, and one home beside the part of a store that asks it: `parts/<part>.sql` or `insight/<part>.sql`
for both databases, `postgres/<part>.sql` and `sqlite/<part>.sql` for what only one of them says, or says differently. A
file looks like

    -- load_due [look] --
    -- One sentence on what it is for.
    SELECT …  $1 …          {ids}: the first argument, a list of ids, as a table of one column `value`;
                            {queued}, {running} …: the numbers of states; {true};
                            {waiting_state}, {waiting_reason}: of a row of `live` that may go to an agent;
                            {told_late}: of a row of `live` that waited in vain: it is told so;
                            {open_queues}: queues from which workers without labels may take;
                            {by_servers}: kinds of work that servers do themselves

In brackets: the lane on which the roles ask it (the database of PostgreSQL has them); all that have one are small, or
found by an index. What has none can wait.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from importlib.resources import files

from horae.core import audit
from horae.core.model import Reason, State
from horae.core.runs.holdings import FACTOR, PRIME
from horae.core.work.kinds import BY_SERVERS

_HEADER = re.compile(r"^-- (\w+)(?: \[(\w+)\])? --$", re.M)
_STATES = {state.word: str(int(state)) for state in State}

JOB_COLUMNS = (
    "id, org, owner, name, key, kind, spec, policy, segment, paused, annotations, version, "
    "created_at, updated_at, deleted_at, triggers, part_of, followed"
)

RUN_COLUMNS_LIVE = (
    "id, job_id, trigger_id, due_at, state, reason, attempt, fence, priority, kind, created_at, data, node, lost, "
    "started_at, phase, pin, eligible_at, cancel, CAST(NULL AS bigint) AS finished_at, "
    "CAST(NULL AS integer) AS exit_code, '' AS message, CAST(NULL AS text) AS result, CAST(NULL AS text) AS output, "
    "CAST(NULL AS bigint) AS into_run_id, note, parent_id, task, awaits"
)

RUN_COLUMNS_HISTORY = (
    "id, job_id, trigger_id, due_at, state, reason, attempt, fence, priority, kind, created_at, data, node, lost, "
    "started_at, 1 AS phase, CAST(NULL AS text) AS pin, CAST(NULL AS bigint) AS eligible_at, {false} AS cancel, "
    "finished_at, exit_code, message, "
    "result, output, into_run_id, CAST(NULL AS text) AS note, parent_id, task, CAST(NULL AS text) AS awaits"
)

ALERT_COLUMNS = (
    "id, org, rule, subject, name, state, streak, count, since_at, last_at, text, run_id, changed_at, told_count, "
    "told_at, remind_at, acked_at, acked_by, stands"
)

AUDIT_COLUMNS = ", ".join(audit.COLUMNS)
_AUDIT_NUMBERS = ("org", "count", "nth")
# Of a list of rows in JSON: in PostgreSQL of objects, in SQLite of arrays.
AUDIT_TYPES = ", ".join(f"{name} {'integer' if name in _AUDIT_NUMBERS else 'text'}" for name in audit.COLUMNS)
AUDIT_JSON = ", ".join(f"json_extract(a.value, '$[{place}]')" for place in range(len(audit.COLUMNS)))

AUDIT_OF_RUNS = AUDIT_COLUMNS.replace("made, count", "m.span, m.amount")
SPAN = "CASE WHEN min(id) = max(id) THEN min(id)::text ELSE min(id) || '-' || max(id) END"  # core.audit.span

HISTORY_COLUMNS = (
    "id, job_id, trigger_id, due_at, created_at, started_at, finished_at, into_run_id, fence, exit_code, state, "
    "attempt, priority, lost, kind, reason, node, message, result, output, data, parent_id, task, followed"
)


@cache
def load_queries(dialect: str) -> dict[str, str]:
    """Return the queries of a dialect by name."""
    return {name: text for name, _, text in _read(dialect)}


@cache
def load_lanes(dialect: str) -> dict[str, str]:
    """Return the lane of each query that has one."""
    return {name: lane for name, lane, _ in _read(dialect) if lane}


def _read(dialect: str) -> Iterator[tuple[str, str | None, str]]:
    """Yield (name, lane, statement)."""
    for room in ("parts", "insight", dialect):
        for file in files("horae.stores").joinpath(room).iterdir():
            if file.name.endswith(".sql"):
                _, *parts = _HEADER.split(file.read_text())
                for name, lane, body in zip(parts[0::3], parts[1::3], parts[2::3], strict=True):
                    statement = re.sub(r"^--.*\n", "", body.strip() + "\n", flags=re.M).strip().rstrip(";")
                    yield name, lane, _fill(statement, dialect)


# Of a row of `live`: as horae.core.runs.holdings works it out of a run and its fence.
_MIXED = f"((id % {PRIME} * {FACTOR} + fence) % {PRIME})"
DIGEST = f"({_MIXED} * {_MIXED} % {PRIME})"

# Who comes after others waits for them, and who asks for more than a slot, until it can have that.
WAITING_STATE = f"CASE WHEN depends IS NULL AND demand IS NULL THEN {State.QUEUED:d} ELSE {State.BLOCKED:d} END"
WAITING_REASON = (
    f"CASE WHEN depends IS NOT NULL THEN '{Reason.DEPENDENCY}' WHEN demand IS NULL THEN '' ELSE '{Reason.LIMIT}' END"
)
# Of a run that waited to be told something until $1: it is told that its time is over (core.runs.waits).
TOLD_LATE = (
    "answers = CASE WHEN reason NOT IN ('signal', 'snoozed') OR awaits IS NULL THEN answers ELSE "
    "COALESCE(substr(answers, 1, length(answers) - 1) || ',', '{') || '\"' || awaits || '\":{\"at\":' || "
    "CAST($1 AS bigint) || ',\"late\":true}}' END"
)
# Of a run that is a task, in a row `r` of `live`: the run at the top, which waits as long as any below it. Each by its
# id, never by a join, which could begin with all tasks.
ROOT = (
    "CASE WHEN r.parent_id IS NOT NULL THEN (WITH RECURSIVE up(id, height) AS (SELECT r.parent_id, 1 "
    "UNION ALL SELECT (SELECT l.parent_id FROM live l WHERE l.id = up.id), height + 1 FROM up WHERE up.id IS NOT NULL) "
    "SELECT up.id FROM up WHERE up.id IS NOT NULL ORDER BY height DESC LIMIT 1) END"
)
ROOT_RETURNED = ROOT.replace("r.parent_id", "live.parent_id")  # SQLite's RETURNING knows no other names
# From which anybody may take, whatever labels he has.
OPEN_QUEUES = "(SELECT id, priority_offset FROM queues WHERE state <> 'paused' AND labels IS NULL)"

# Of a queue: whether it is open to whoever has the labels $3. An agent of an organisation has those of its own alone.
QUEUE_IS_OPEN = (
    "state <> 'paused' AND (labels IS NULL OR labels <@ $3::text[]) "
    "AND (NOT EXISTS (SELECT 1 FROM unnest($3::text[]) AS t(label) WHERE label ~ '^org=[0-9]+$') "
    "OR 'org=' || (CAST(document AS json) ->> 'org') = ANY($3::text[]))"
)
# What becomes of a run that is claimed, wherever and when that is; its fence is at least $2.
CLAIMED = (
    f"state = {State.RUNNING:d}, attempt = attempt + 1, fence = GREATEST(fence + 1, $2), reason = '', start_by = NULL, "
    "eligible_at = CASE WHEN demand IS NULL THEN eligible_at END, note = CASE WHEN demand IS NULL THEN note END"
)


def _fill(statement: str, dialect: str) -> str:
    false = "false" if dialect == "postgres" else "0"
    ids = "(SELECT unnest($1::bigint[]) AS value)" if dialect == "postgres" else "(SELECT value FROM json_each($1))"
    statement = (
        statement.replace("{ids}", ids)
        .replace("{true}", "true" if dialect == "postgres" else "1")
        .replace("{names}", "(SELECT unnest($1::text[]))" if dialect == "postgres" else ids)
        .replace("{digest}", DIGEST)
        .replace("{open_queues}", OPEN_QUEUES)
        .replace("{by_servers}", f"({', '.join(repr(kind) for kind in sorted(BY_SERVERS))})")
        .replace("{told_late}", TOLD_LATE)
        .replace("{queue_is_open}", QUEUE_IS_OPEN)
        .replace("{claimed}", CLAIMED)
        .replace("{root}", ROOT)
        .replace("{root_returned}", ROOT_RETURNED)
        .replace("{waiting_state}", WAITING_STATE)
        .replace("{waiting_reason}", WAITING_REASON)
        .replace("{list}", "bigint[]" if dialect == "postgres" else "text")
        .replace("{job_columns}", JOB_COLUMNS)
        .replace("{alert_columns}", ALERT_COLUMNS)
        .replace("{audit_row}", f"id, at, {AUDIT_COLUMNS}")
        .replace("{audit_columns}", AUDIT_COLUMNS)
        .replace("{audit_of_runs}", AUDIT_OF_RUNS)
        .replace("{span}", SPAN)
        .replace("{audit_types}", AUDIT_TYPES)
        .replace("{audit_json}", AUDIT_JSON)
        .replace("{history_columns}", HISTORY_COLUMNS)
        .replace("{run_columns_live}", RUN_COLUMNS_LIVE)
        .replace("{run_columns_history}", RUN_COLUMNS_HISTORY.replace("{false}", false))
    )
    for word, number in _STATES.items():
        statement = statement.replace(f"{{{word}}}", number)
    return statement if dialect == "postgres" else re.sub(r"\$(\d+)", r"?\1", statement)
