"""Jobs, triggers, runs and nodes in the forms in which the API shows them (horae.schemas)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from msgspec import UNSET, Struct, convert, json, to_builtins

from horae import schemas
from horae.core import model
from horae.core.identity import EVERYWHERE, Organisation, Session, User
from horae.core.policy.breaker import paused_because
from horae.core.policy.queues import Queue, render_queue
from horae.core.policy.resources import render_resources
from horae.core.secrets.fields import MASK
from horae.core.time import moments, schedule
from horae.core.work import kinds, policies, webhooks
from horae.core.work.catalogues import HandlerFact, NodeHandlers
from horae.core.work.progress import read_progress
from horae.core.workflows.picture import TaskTally
from horae.service.jobs.glances import Day
from horae.service.jobs.submitting import Planned
from horae.verifiers import is_verifier


@lru_cache(maxsize=4096)
def stamp(moment: model.Moment) -> str:
    """Return a moment as text. One job names the same moment several times."""
    return moments.format_moment(moment)


def when(moment: model.Moment | None) -> str | None:
    return None if moment is None else stamp(moment)


@lru_cache(maxsize=4096)
def _in_words(document: bytes) -> str:
    return schedule.in_words(json.decode(document))


def trigger(it: model.Trigger, job_name: str | None = None) -> schemas.Trigger:
    return schemas.Trigger(
        it.id,
        it.job_id,
        webhooks.shown(it.schedule),
        _in_words(json.encode(it.schedule)),
        it.data,
        it.enabled,
        when(it.next_at),
        when(it.last_at),
        it.version,
        stamp(it.created_at),
        UNSET if it.key is None else it.key,
        UNSET if it.name is None else it.name,
        UNSET if job_name is None else job_name,
        UNSET if it.hook is None else hook_path(it),
    )


def hook_path(it: model.Trigger) -> str:
    """Return the address of a webhook on this server; its token is shown to whoever has it made, and then hidden."""
    return f"/v1/hooks/{it.id}/{it.token or MASK}"


@lru_cache(maxsize=1024)
def policy(it: model.Policy) -> schemas.Policy:
    return convert(policies.render_policy(it), schemas.Policy)


def job(it: model.Job) -> schemas.Job:
    return schemas.Job(
        id=it.id,
        name=it.name,
        key=it.key,
        owner=it.owner,
        org=it.org,
        kind=it.kind,
        spec=kinds.shown_spec(it.kind, it.spec),
        policy=policy(it.policy),
        segment=it.segment,
        paused=it.paused,
        annotations=it.annotations,
        version=it.version,
        created_at=stamp(it.created_at),
        updated_at=stamp(it.updated_at),
        triggers=[trigger(each) for each in it.triggers],
        deleted_at=UNSET if it.deleted_at is None else stamp(it.deleted_at),
        paused_because=paused_because(it) or UNSET,
    )


def day(it: Day) -> schemas.Day:
    return schemas.Day(it.date.isoformat(), {state.word: number for state, number in it.runs.items()})


def preview(schedule_document: model.Json, found: Iterable[schedule.Previewed]) -> schemas.Preview:
    shown = [schemas.Previewed(stamp(it.moment), it.local, it.note) for it in found]
    return schemas.Preview(schedule.dialect_of(schedule_document), schedule.describe(schedule_document), shown)


def planned(it: Planned, triggers: list[schemas.Preview]) -> schemas.PlannedJob:
    return schemas.PlannedJob(it.draft.name, it.draft.key, it.outcome, it.job_id, triggers)


def queue(it: Queue) -> schemas.Queue:
    return schemas.Queue(
        **render_queue(it), version=it.version, created_at=when(it.created_at or None),
        updated_at=when(it.updated_at or None),
    )  # fmt: skip


def cursor(it: model.Cursor | None) -> schemas.Cursor | None:
    return None if it is None or it.value is None else schemas.Cursor(it.value, it.run_id, stamp(it.moved_at))


def progress(it: model.Json | None) -> schemas.Progress | None:
    return None if it is None else convert(read_progress(it), schemas.Progress)


def _run_values(it: model.Run, job_name: str | None) -> tuple[Any, ...]:
    """Return the fields of schemas.Run, in their order: runs are shown by the thousand."""
    return (
        it.id, it.job_id, it.trigger_id, stamp(it.due_at), it.state.word, it.reason,
        it.phase.name.lower() if it.state is model.State.RUNNING else None, it.attempt, it.fence, it.priority, it.kind,
        it.node, stamp(it.created_at), when(it.started_at), when(it.finished_at), when(it.eligible_at), it.exit_code,
        it.message, progress(it.progress), it.result, it.data, it.into_run_id, it.cancel_requested, it.lost,
        it.output is not None, None if it.started_at is None else (it.started_at - it.due_at) // 1000,
        UNSET if job_name is None else job_name, it.replaced or UNSET,
        UNSET if it.parent_id is None else it.parent_id, UNSET if it.task is None else it.task,
    )  # fmt: skip


def run(it: model.Run, job_name: str | None = None) -> schemas.Run:
    return schemas.Run(*_run_values(it, job_name))


def runs_alike(first: model.Run, ids: Sequence[int], data: Sequence[str | None]) -> list[bytes]:
    """Return runs as JSON that differ in their id and data alone. It is written once: within a text, a quotation mark
    never stands bare, so that what is cut out here cannot be part of one."""
    written = json.encode(run(first)).decode()
    head, rest = written.split(f'"id":{first.id},', 1)
    between, tail = rest.split('"data":null,', 1)
    return [
        f'{head}"id":{run_id},{between}"data":{text or "null"},{tail}'.encode()
        for run_id, text in zip(ids, data, strict=True)
    ]


def run_detail(
    it: model.Run,
    attempts: Sequence[model.Attempt],
    job_name: str | None,
    workflow: tuple[model.Json, TaskTally] | None = None,
) -> schemas.RunDetail:
    tasks = UNSET if workflow is None else [task(name, *workflow) for name in workflow[0]["tasks"]]
    awaits = UNSET if it.awaits is None or it.reason != model.Reason.SIGNAL else it.awaits
    return schemas.RunDetail(
        *_run_values(it, job_name), attempts=[attempt(each) for each in attempts], tasks=tasks, awaits=awaits
    )


def task(name: str, spec: model.Json, tally: TaskTally) -> schemas.Task:
    it = spec["tasks"][name]
    return schemas.Task(
        name,
        it.get("needs", []),
        dict(tally.counts.get(name, {})),
        kind=it.get("kind", UNSET),
        job=UNSET if "kind" in it else it.get("job", UNSET),
        for_each="for_each" in it,
    )


def attempt(it: model.Attempt) -> schemas.Attempt:
    return schemas.Attempt(
        it.attempt,
        it.fence,
        it.node,
        it.state.word,
        it.reason,
        when(it.started_at),
        stamp(it.finished_at),
        it.exit_code,
        it.message,
        it.output is not None,
    )


def node(it: model.Node, segments: int) -> schemas.Node:
    return schemas.Node(
        it.name,
        it.state,
        list(it.roles),
        list(it.kinds),
        list(it.labels),
        it.slots,
        it.busy,
        it.version,
        it.address,
        stamp(it.started_at),
        stamp(it.heartbeat_at),
        it.via,
        it.wanted,
        segments,
        it.ailment,
        render_resources(sorted(it.resources.items())),
        render_resources(sorted(it.free.items())),
        dict(sorted(it.capacity.items())),
        when(it.evicted_at),
    )


def nodes(them: Iterable[model.Node], segments: Mapping[int, tuple[str, int]]) -> list[schemas.Node]:
    owned = Counter(owner for owner, _ in segments.values())
    return [node(it, owned[it.name]) for it in them]


def handlers(told: Sequence[NodeHandlers]) -> schemas.HandlerPage:
    items = [_handler(it, each.node) for each in told for it in each.handlers.items]
    nodes = [schemas.HandlerNode(each.node, each.told, each.note) for each in told]
    return schemas.HandlerPage(sorted(items, key=lambda it: (it.name, it.node)), nodes)


def _handler(it: HandlerFact, node: str) -> schemas.Handler:
    return schemas.Handler(it.name, node, it.kind, it.version, it.file, when(it.loaded_at), it.error)


def census(it: model.Census) -> schemas.Census:
    return schemas.Census(it.jobs, it.triggers, it.live, when(it.oldest_due_at), when(it.oldest_queued_at))


def _token_fields(it: model.Token, state: str) -> dict[str, Any]:
    return {
        "id": it.id, "name": it.name, "scope": it.scope, "owner": it.owner, "state": state,
        "created_at": stamp(it.created_at), "expires_at": when(it.expires_at), "revoked_at": when(it.revoked_at),
        "parent_id": it.parent_id, "org": it.org, "role": str(it.role) if it.scope == "user" else None,
        "node": it.bounds and it.bounds.node, "kinds": it.bounds and list(it.bounds.kinds),
        "labels": it.bounds and list(it.bounds.labels), "resources": it.bounds and list(it.bounds.resources),
        "by_hash": it.scope != "user" and not is_verifier(it.hash),
    }  # fmt: skip


def token(it: model.Token, state: str) -> schemas.Token:
    return schemas.Token(**_token_fields(it, state))


def new_token(it: model.Token, state: str, text: str) -> schemas.NewToken:
    return schemas.NewToken(**_token_fields(it, state), token=text)


def session(it: Session, ends_at: model.Moment, *, is_current: bool) -> schemas.Session:
    return schemas.Session(
        it.id, it.org, stamp(it.created_at), stamp(it.seen_at), stamp(min(it.expires_at, ends_at)), it.address,
        it.agent, it.issuer, is_current,
    )  # fmt: skip


def user(it: User) -> schemas.User:
    roles = {"*" if org == EVERYWHERE else str(org): str(role) for org, role in sorted(it.roles.items())}
    state = "good" if it.disabled_at is None else "disabled"
    return schemas.User(it.id, it.name, it.kind, it.email, state, stamp(it.created_at), roles)


def organisation(it: Organisation) -> schemas.Organisation:
    return schemas.Organisation(it.id, it.name, stamp(it.created_at), it.most_waiting, it.most_jobs)


def secret(it: model.Secret) -> schemas.Secret:
    return schemas.Secret(it.name, it.version, stamp(it.created_at), stamp(it.updated_at))


def plain(it: Struct) -> schemas.Object:
    """As a program that reads the JSON would see it."""
    seen: schemas.Object = to_builtins(it)
    return seen
