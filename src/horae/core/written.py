"""A job as people would write it: the document that the API shows, made short again.

Fields stand in the order in which people write them, what has its default is left out, and so is what Horae makes. Each
short form is read again and compared: the longer form is taken where the shorter one would not say the same, so that
what is written always means the job it came from.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from horae.core.model import SECOND, Json
from horae.core.policy.dependencies import SAME, SUCCESS
from horae.core.policy.resources import MEMORY
from horae.core.runs.segments import segment_of
from horae.core.sizes import show_size
from horae.core.time.moments import format_duration
from horae.core.work import kinds
from horae.core.work.isolation import labels_of
from horae.core.work.policies import DEFAULT_SHOWN, changed_only
from horae.core.work.specs import Draft, parse_job
from horae.errors import Error

_LAST = ("steps", "tasks", "returns")  # of the fields of work: the longest, and what the rest is about
_ALIKE = (
    "priority",
    "queue",
    "share",
    "pause_after_failures",
    "rate_limits",
    "concurrency_limits",
    "every",
    "tags",
)  # in both forms
_KINDS = ("cron", "every", "at", "rrule")  # of schedules that are one text


def written(job: Json) -> Json:
    """Return the document of a job, from what the API shows of it."""
    wanted = _read(_long(job, job["triggers"]))
    return next((document for document in _attempts(job) if _read(document) == wanted), _long(job, job["triggers"]))


def _attempts(job: Json) -> Iterator[Json]:
    for policy in (_flat_policy(job), _policy(job["policy"])):
        for when in _whens(job["triggers"]):
            yield _head(job) | when | policy | _work(job) | _tail(job)


def _read(document: Json) -> Draft | None:
    try:
        draft = parse_job(document)
    except Error:  # what a newer server shows may be more than this one can read
        return None
    return replace(draft, triggers=tuple(replace(trigger, id=None, made=None) for trigger in draft.triggers))


def _long(job: Json, triggers: list[Json]) -> Json:
    """All of it, as the API has it."""
    work = {"kind": job["kind"], "spec": job["spec"], "policy": job["policy"]}
    return _head(job) | {"triggers": [_trigger(each) for each in triggers]} | work | _tail(job)


def _head(job: Json) -> Json:
    return {"name": job["name"]} | ({"key": job["key"]} if job["key"] is not None else {})


def _tail(job: Json) -> Json:
    tail: Json = {}
    if job["segment"] != segment_of(job["id"]):
        tail["segment"] = job["segment"]
    if job["paused"]:
        tail["paused"] = True
    return tail | ({"annotations": job["annotations"]} if job["annotations"] else {})


# ── what ──


def _work(job: Json) -> Json:
    """Return the fields of the work at the top, and the kind where they do not tell it."""
    spec = {name: job["spec"][name] for name in sorted(job["spec"], key=_place)}
    if job["kind"] == kinds.WORKFLOW:
        spec["tasks"] = {name: _task(task) for name, task in spec["tasks"].items()}
    if "steps" in spec:
        spec["steps"] = [_step(step, number) for number, step in enumerate(spec["steps"], 1)]
    is_told = any(mark in spec for mark in kinds.KINDS[job["kind"]].marks) if job["kind"] in kinds.KINDS else False
    return spec if is_told else {"kind": job["kind"], **spec}


def _task(task: Json) -> Json:
    own = {name: value for name, value in task.items() if name not in ("kind", "spec", "policy")}
    if "job" in task:
        return own
    job = {"policy": {}, **task}
    flat = own | _flat_policy(job) | _work(job)
    return flat if own.keys().isdisjoint(task["spec"]) else task  # data of its own, and data of its spec


def _place(field: str) -> tuple[bool, int]:
    order = list(kinds.SCHEMA)
    return field in _LAST, order.index(field) if field in order else len(order)


def _step(step: Json, number: int) -> Json:
    return {"run": step["run"]} if step.get("name") == f"step {number}" else step


# ── when ──


def _whens(triggers: list[Json]) -> Iterator[Json]:
    """Ways to say when, the shortest first."""
    if not triggers:
        yield {}
    elif len(triggers) == 1:
        yield _short(triggers[0]["schedule"])
        yield {"schedule": triggers[0]["schedule"]}
    yield {"triggers": [_trigger(each) for each in triggers]}


def _short(schedule: Json) -> Json:
    kind = next((kind for kind in _KINDS if kind in schedule), "")
    zone = {"timezone": schedule["timezone"]} if "timezone" in schedule else {}
    return {"run_at" if kind == "at" else "schedule": schedule.get(kind)} | zone


def _trigger(trigger: Json) -> Json:
    named = {name: trigger[name] for name in ("key", "name") if trigger.get(name) is not None}
    rest: Json = {"data": trigger["data"]} if trigger["data"] is not None else {}
    if not trigger["enabled"]:
        rest["enabled"] = False
    schedule: Json = trigger["schedule"]
    return named | schedule | rest


# ── how ──


def _policy(policy: Json) -> Json:
    """What differs from the defaults, as the API says it."""
    changed = changed_only(policy, DEFAULT_SHOWN)
    return {"policy": changed} if changed else {}


def _flat_policy(job: Json) -> Json:
    """The same as people write it, as far as that can be said."""
    policy = changed_only(job["policy"], DEFAULT_SHOWN)
    flat: Json = {}
    if "timeout_seconds" in policy:
        flat["timeout"] = _duration(policy["timeout_seconds"])
    if "retry" in policy:
        flat["retry"] = _retry(policy["retry"])
    for name in ("overlap", "misfire"):
        word, limit = policy.get(name), policy.get(f"{name}_limit")
        if word is not None or limit is not None:
            said = word or DEFAULT_SHOWN[name]
            flat[name] = said if limit is None else {"policy": said, "limit": limit}
    if "start_deadline_seconds" in policy:
        flat["start_deadline"] = _duration(policy["start_deadline_seconds"])
    flat |= {name: policy[name] for name in _ALIKE if name in policy}
    if "resources" in policy:
        flat["resources"] = _resources(policy["resources"])
    if "after" in policy:
        flat["after"] = [_after(one) for one in policy["after"]]
    labels = [label for label in policy.get("labels", ()) if label not in labels_of(job["spec"])]
    return flat | ({"labels": labels} if labels else {})


def _after(one: Json) -> Any:
    said = {name: one[name] for name, usual in (("on", SUCCESS), ("moment", SAME)) if one[name] != usual}
    return {"job": one["job"], **said} if said else one["job"]


def _resources(resources: Json) -> Json:
    return {name: show_size(amount) if name == MEMORY else amount for name, amount in resources.items()}


def _retry(retry: Json) -> Any:
    if retry.keys() == {"attempts"}:
        return retry["attempts"]
    names = {"backoff_seconds": "backoff", "cap_seconds": "cap"}
    return {names.get(name, name): _duration(value) if name in names else value for name, value in retry.items()}


def _duration(seconds: float) -> str:
    return format_duration(round(seconds * SECOND))
