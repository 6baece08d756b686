"""Jobs, triggers, runs and nodes in the forms in which the API shows them (schemas.py)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from msgspec import UNSET, Struct, convert, json, to_builtins

from horae import schemas
from horae.core import model
from horae.core.policy.resources import render_resources
from horae.core.time import moments, schedule
from horae.core.work import kinds, policies
from horae.core.work.progress import read_progress
from horae.errors import Invalid
from horae.ports.work import HandlerFact


@lru_cache(maxsize=4096)
def stamp(moment: model.Moment) -> str:
    """Return a moment as text. One job names the same moment several times."""
    return moments.format_moment(moment)


def when(moment: model.Moment | None) -> str | None:
    return None if moment is None else stamp(moment)


@lru_cache(maxsize=4096)
def _in_words(document: bytes) -> str:
    """What cannot be read here, because a newer node wrote it or knows more time zones, is said to be that."""
    try:
        return schedule.describe(json.decode(document))
    except Invalid as error:
        return f"cannot be read, and is not fired, by this node: {error.message}"


def trigger(it: model.Trigger) -> schemas.Trigger:
    return schemas.Trigger(
        it.id,
        it.job_id,
        it.schedule,
        _in_words(json.encode(it.schedule)),
        it.data,
        it.enabled,
        when(it.next_at),
        when(it.last_at),
        it.version,
        stamp(it.created_at),
        UNSET if it.key is None else it.key,
        UNSET if it.name is None else it.name,
    )


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
    )


def cursor(it: model.Cursor | None) -> schemas.Cursor | None:
    return None if it is None or it.value is None else schemas.Cursor(it.value, it.run_id, stamp(it.moved_at))


def progress(it: model.Json | None) -> schemas.Progress | None:
    return None if it is None else convert(read_progress(it), schemas.Progress)


def _run_fields(it: model.Run) -> dict[str, Any]:
    return {
        "id": it.id,
        "job_id": it.job_id,
        "trigger_id": it.trigger_id,
        "due_at": stamp(it.due_at),
        "state": it.state.word,
        "reason": it.reason,
        "phase": it.phase.name.lower() if it.state is model.State.RUNNING else None,
        "attempt": it.attempt,
        "fence": it.fence,
        "priority": it.priority,
        "kind": it.kind,
        "node": it.node,
        "created_at": stamp(it.created_at),
        "started_at": when(it.started_at),
        "finished_at": when(it.finished_at),
        "eligible_at": when(it.eligible_at),
        "exit_code": it.exit_code,
        "message": it.message,
        "progress": progress(it.progress),
        "result": it.result,
        "data": it.data,
        "into_run_id": it.into_run_id,
        "cancel_requested": it.cancel_requested,
        "lost": it.lost,
        "output": it.output is not None,
        "late_ms": None if it.started_at is None else (it.started_at - it.due_at) // 1000,
    }


def run(it: model.Run) -> schemas.Run:
    return schemas.Run(**_run_fields(it))


def run_detail(it: model.Run, attempts: Sequence[model.Attempt]) -> schemas.RunDetail:
    return schemas.RunDetail(**_run_fields(it), attempts=[attempt(each) for each in attempts])


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
    )


def nodes(them: Iterable[model.Node], segments: Mapping[int, tuple[str, int]]) -> list[schemas.Node]:
    owned = Counter(owner for owner, _ in segments.values())
    return [node(it, owned[it.name]) for it in them]


def handlers(them: Iterable[HandlerFact], node: str) -> list[schemas.Handler]:
    return [schemas.Handler(it.name, node, it.kind, it.version, it.file, when(it.loaded_at), it.error) for it in them]


def census(it: model.Census) -> schemas.Census:
    return schemas.Census(it.jobs, it.triggers, it.live, when(it.oldest_due_at), when(it.oldest_queued_at))


def _token_fields(it: model.Token, state: str) -> dict[str, Any]:
    return {
        "id": it.id, "name": it.name, "scope": it.scope, "owner": it.owner, "state": state,
        "created_at": stamp(it.created_at), "expires_at": when(it.expires_at), "revoked_at": when(it.revoked_at),
        "parent_id": it.parent_id, "org": it.org,
        "node": it.bounds and it.bounds.node, "kinds": it.bounds and list(it.bounds.kinds),
        "labels": it.bounds and list(it.bounds.labels),
    }  # fmt: skip


def token(it: model.Token, state: str) -> schemas.Token:
    return schemas.Token(**_token_fields(it, state))


def new_token(it: model.Token, state: str, text: str) -> schemas.NewToken:
    return schemas.NewToken(**_token_fields(it, state), token=text)


def secret(it: model.Secret) -> schemas.Secret:
    return schemas.Secret(it.name, it.version, stamp(it.created_at), stamp(it.updated_at))


def plain(it: Struct) -> schemas.Object:
    """As a program that reads the JSON would see it."""
    seen: schemas.Object = to_builtins(it)
    return seen
