"""Rows ↔ model: what the columns of a row mean."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from horae.core.model import Attempt, Job, Json, Node, NodeState, OperatorWish, Phase, Run, State, Trigger
from horae.core.runs.orders import NEVER, Definition
from horae.core.runs.results import is_deep
from horae.core.work import policies

Row = Sequence[Any]
to_json = msgspec.json.Encoder().encode
from_json = msgspec.json.Decoder().decode
new = (
    tuple.__new__
)  # of a named tuple and a row: its own `_make` counts the columns of every row, and takes twice as long
UNREADABLE = "(a result that cannot be read)"


def decode(text: str | None) -> Any:
    return None if text is None else from_json(text)


def decode_result(text: str | None) -> Any:
    """Return what a run gave; where nobody can read it (an older version kept whatever it was given), that it is so."""
    if text is None:
        return None
    try:
        return UNREADABLE if is_deep(text.encode()) else from_json(text)
    except (msgspec.DecodeError, RecursionError):
        return UNREADABLE


def encode(value: Any) -> str:
    return to_json(value).decode()


def job_values(job: Job) -> tuple[Any, ...]:
    """Return a job as the columns of JOB_COLUMNS."""
    return (
        job.id, job.org, job.owner, job.name, job.key, job.kind, encode(job.spec), policies.policy_text(job.policy),
        job.segment, job.paused, encode(job.annotations), job.version, job.created_at, job.updated_at,
        job.deleted_at, triggers_text(job.triggers), job.part_of, job.followed or None,
    )  # fmt: skip


def triggers_text(triggers: Sequence[Trigger]) -> str:
    """Return the triggers as stored with their job: what does not change when they fire."""
    return encode([trigger_doc(t) for t in triggers])


def trigger_doc(t: Trigger) -> Json:
    doc = {"id": t.id, "schedule": t.schedule, "data": t.data, "enabled": t.enabled, "created_at": t.created_at}
    if t.key is not None:
        doc["key"] = t.key
    if t.name is not None:
        doc["name"] = t.name
    if t.hook is not None:
        doc["hook"] = t.hook
    return doc


def job_from_row(row: Row, due: dict[int, Row]) -> Job:
    """Return the job of a row of JOB_COLUMNS; `due` are the rows of its triggers."""
    (id_, org, owner, name, key, kind, spec, policy, segment, paused, annotations, version,
     created_at, updated_at, deleted_at, triggers, part_of, followed) = row  # fmt: skip
    return Job(
        id=id_, org=org, owner=owner, name=name, key=key, kind=kind, spec=from_json(spec),
        policy=policies.policy_from_text(policy), segment=segment, paused=bool(paused),
        annotations=from_json(annotations), version=version, created_at=created_at, updated_at=updated_at,
        deleted_at=deleted_at,
        triggers=tuple(trigger_from_doc(doc, id_, version, due.get(doc["id"])) for doc in from_json(triggers)),
        part_of=part_of, followed=bool(followed),
    )  # fmt: skip


def trigger_from_doc(doc: Json, job_id: int, version: int, due: Row | None) -> Trigger:
    """`due` is (trigger_id, next_at, last_at), or None when the row is gone with its job."""
    next_at, last_at = (due[1], due[2]) if due else (NEVER, None)
    return Trigger(
        id=doc["id"], job_id=job_id, schedule=doc["schedule"], data=doc["data"], enabled=doc["enabled"],
        version=version, next_at=None if next_at == NEVER else next_at, last_at=last_at,
        created_at=doc["created_at"], key=doc.get("key"), name=doc.get("name"), hook=doc.get("hook"),
    )  # fmt: skip


def trigger_of(row: Row) -> Trigger:
    """Return a trigger from (trigger_id, next_at, last_at, job_id, version, triggers of the job)."""
    trigger_id, _, _, job_id, version, triggers = row
    doc = next(doc for doc in from_json(triggers) if doc["id"] == trigger_id)
    return trigger_from_doc(doc, job_id, version, row[:3])


def run_from_row(row: Row) -> Run:
    """Return the run of a row of RUN_COLUMNS_LIVE or RUN_COLUMNS_HISTORY."""
    (id_, job_id, trigger_id, due_at, state, reason, attempt, fence, priority, kind, created_at, data, node, lost,
     started_at, phase, pin, eligible_at, cancel, finished_at, exit_code, message, result, output, into_run_id,
     note, parent_id, task, awaits) = row  # fmt: skip
    return Run(
        id=id_, job_id=job_id, trigger_id=trigger_id, due_at=due_at, state=State(state), reason=reason,
        attempt=attempt, fence=fence, priority=priority, kind=kind, created_at=created_at, data=decode(data),
        node=node, lost=lost, started_at=started_at, phase=Phase(phase), pin=pin, eligible_at=eligible_at,
        cancel_requested=bool(cancel), finished_at=finished_at, exit_code=exit_code,
        message=message or (note or "" if state == State.BLOCKED else ""),
        result=decode_result(result), output=output, into_run_id=into_run_id,
        progress=decode(note) if state == State.RUNNING else None, parent_id=parent_id, task=task,
        awaits=awaits,
    )  # fmt: skip


def attempt_from_row(row: Row) -> Attempt:
    run_id, attempt, fence, node, state, *rest = row
    return Attempt(run_id, attempt, fence, node, State(state), *rest)


def node_from_row(row: Row) -> Node:
    (name, roles, kinds, labels, version, address, state, started_at, heartbeat_at, beat, slots, busy, grpc, via,
     wanted, identity, session, holder, ailment, resources, capacity, free, evicted_at) = row  # fmt: skip
    return Node(
        name=name, roles=tuple(from_json(roles)), kinds=tuple(from_json(kinds)), labels=tuple(from_json(labels)),
        version=version, address=address, state=NodeState(state), started_at=started_at, heartbeat_at=heartbeat_at,
        beat=beat, slots=slots, busy=busy, grpc=grpc, via=via, wanted=OperatorWish(wanted), identity=identity,
        session=session, holder=holder, ailment=ailment, resources=from_json(resources), capacity=from_json(capacity),
        free=from_json(free), evicted_at=evicted_at,
    )  # fmt: skip


def node_values(node: Node) -> tuple[Any, ...]:
    return (
        node.name, encode(node.roles), encode(node.kinds), encode(node.labels), node.version, node.address,
        node.started_at, node.heartbeat_at, node.slots, node.grpc, node.via, node.identity, node.holder,
        encode(node.resources), encode(node.capacity),
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
    """Return a definition from (trigger_id, version, job_id, triggers of the job, and of it kind, policy, owner,
    organisation, annotations, spec, whether others come after it).

    What cannot be read at all has an empty schedule, which is none: its reader says so, and the others go on.
    """
    trigger_id, version, job_id, triggers, kind, policy, owner, org, annotations, spec, followed = row
    whose = owner, int(org), annotations, spec, followed in (1, "true")
    try:
        found = next(trigger for trigger in _trigger_texts(triggers) if trigger.id == trigger_id)
    except (msgspec.DecodeError, StopIteration):
        return Definition(trigger_id, version, job_id, "", 0, None, kind, policy, *whose)
    data = bytes(found.data).decode()
    return Definition(
        trigger_id, version, job_id, bytes(found.schedule).decode(), found.created_at,
        None if data == "null" else data, kind, policy, *whose,
    )  # fmt: skip
