"""The OpenAPI document of everything that is served, made from the operations themselves.

Schemas of answers come from the types in horae.schemas. Schemas of requests are written here: they describe
what core.specs reads, as far as JSON Schema can say it (whether a cron expression has a moment, it
cannot).
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Sequence
from functools import cached_property
from http import HTTPStatus

import msgspec

from horae import schemas
from horae.core import model
from horae.core.alerts import channels as alert_channels
from horae.core.alerts import rules as alert_rules
from horae.core.fields import LABEL_PATTERN, MAX_LABELS
from horae.core.identity import UserKind
from horae.core.policy import dependencies, limits, queues
from horae.core.roles import ROLE_PATTERN, Role
from horae.core.secrets.references import MAX_VALUE
from horae.core.time import cron, outside
from horae.core.work import kinds, policies, specs, webhooks
from horae.core.work.schemas import RESOURCES, SECRET_NAME
from horae.core.work.schemas import TEXT as _TEXT
from horae.core.work.schemas import an_object as _object
from horae.core.work.schemas import whole as _whole
from horae.schemas import explanations, forecasts, views
from horae.web import http, params

Json = model.Json

LINES = ("application/x-ndjson", "application/jsonl")  # a JSON value in each line
YAML_TYPES = ("application/yaml", "text/yaml", "application/x-yaml")
_REF = "#/components/schemas/{name}"

ABOUT = """One API for jobs, triggers and runs.

Bodies are JSON, or YAML where a job document is expected. Moments are RFC 3339 in UTC. Lists come in
pages: give the `cursor` back to get the next one. Every failure is `application/problem+json` with a
stable `code`.

Beyond loopback every request needs `Authorization: Bearer` with a user token (`horae token create`).
"""
_BEARER: Json = {
    "type": "http",
    "scheme": "bearer",
    "description": "A token made by `horae token create`. Not needed while the server listens on loopback only.",
}

_MEANINGS = {
    400: "The request cannot be read.",
    401: "A token is needed, or the one that came is not good.",
    403: "Not allowed here.",
    404: "There is no such thing.",
    409: "The present state does not allow it.",
    412: "The version is not the current one.",
    413: "The body is too large.",
    415: "The content type is not read here.",
    416: "Not one simple byte range.",
    422: "The request can be read but makes no sense.",
    429: "Too many at once, or too often.",
    503: "Not ready.",
}


class Api:
    """The operations of everything that is served, as one OpenAPI document."""

    def __init__(self, version: str, operations: Iterable[http.Operation] = (), *, needs_login: bool = False) -> None:
        self._version = version
        self._security: list[Json] = [{"token": []}] if needs_login else [{}, {"token": []}]
        self._operations = list(operations)

    def describe(self, operations: Iterable[http.Operation]) -> None:
        self._operations += operations
        self.__dict__.pop("document", None)

    @cached_property
    def document(self) -> Json:
        paths: Json = {}
        for operation in self._operations:
            paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation)
        return {
            "openapi": "3.1.0",
            "info": {"title": "Horae", "version": self._version, "description": ABOUT},
            "security": self._security,
            "paths": paths,
            "components": {"schemas": components(), "securitySchemes": {"token": _BEARER}},
        }


def _operation(operation: http.Operation) -> Json:
    found: Json = {
        "tags": [operation.tag],
        "summary": operation.summary,
        "operationId": _operation_id(operation),
        "parameters": [*_path_params(operation.path), *map(_param, operation.params)],
        "responses": _responses(operation),
    }
    if about := inspect.getdoc(operation.endpoint):
        found["description"] = about
    if operation.is_open:
        found["security"] = [{}, {"token": []}]
    else:
        found["x-permission"] = operation.needed
    if operation.body:
        found["requestBody"] = _body(operation.body)
    return found


def _operation_id(operation: http.Operation) -> str:
    words = [word.lower() for word in re.findall("[A-Za-z0-9]+", operation.path)]
    return "_".join([operation.method.lower(), *words]) if words else f"{operation.method.lower()}_root"


def components() -> Json:
    every = (*schemas.SHOWN, *forecasts.SHOWN, *explanations.SHOWN, *views.SHOWN)
    _, shown = msgspec.json.schema_components(every, ref_template=_REF)
    return {**shown, **REQUESTS}


def _ref(name: str) -> Json:
    return {"$ref": _REF.format(name=name)}


def _content(gives: str | tuple[str, ...] | None) -> Json:
    if not gives:
        return {}
    forms = (gives,) if isinstance(gives, str) else gives
    return {"content": dict(map(_form, forms))}


def _form(gives: str) -> tuple[str, Json]:
    if gives == "text/event-stream":
        return gives, {"itemSchema": _SENT}
    if gives in ("application/json", "application/xml"):  # of any shape: other systems answer bare lists too
        return gives, {"schema": {}}
    media, schema = (gives, {"type": "string"}) if "/" in gives else ("application/json", _ref(gives))
    return media, {"schema": schema}


def _responses(operation: http.Operation) -> dict[str, Json]:
    headers = {
        name: {"description": text, "schema": {"type": "string"}} for name, text in (operation.headers or {}).items()
    }
    successes: dict[int, str | tuple[str, ...] | None] = {operation.status: operation.gives, **(operation.also or {})}
    found: dict[str, Json] = {}
    for status, gives in successes.items():
        found[str(status)] = {"description": HTTPStatus(status).phrase, **_content(gives)}
    if headers:
        for answer in found.values():
            answer["headers"] = headers
    failed = {"content": {operation.shape.media: {"schema": operation.shape.schema}}}
    for status in sorted(_failures(operation)):
        found[str(status)] = {"description": _MEANINGS[status], **failed}
    found["default"] = {"description": "Any other failure.", **failed}
    return found


def _failures(operation: http.Operation) -> set[int]:
    """Return what may go wrong, as far as the parts of the operation tell."""
    found = {400, 401, 422, 429, *operation.errors}
    if not operation.is_open:
        found.add(403)
    if "{" in operation.path:
        found.add(404)
    if operation.body:
        found |= {413, 415}
    return found - set(operation.also or ())


def _path_params(path: str) -> list[Json]:
    return [
        {"name": name, "in": "path", "required": True, "schema": _ID if name.endswith("_id") else {"type": "string"}}
        for name in re.findall(r"{(\w+)}", path)
    ]


def _param(param: params.Param) -> Json:
    return {
        "name": param.name,
        "in": param.place,
        "required": False,
        "description": param.description,
        "schema": param.schema,
    }


def _body(body: http.Body) -> Json:
    shown = {"schema": _ref(body.schema), "example": body.example}
    text = b"\n".join(map(msgspec.json.encode, body.example.get("runs", [body.example]))).decode()
    lines = {media: {"schema": {"type": "string"}, "example": text} for media in LINES} if body.lines else {}
    return {"required": body.required, "content": dict.fromkeys(("application/json", *YAML_TYPES), shown) | lines}


# ── requests ───────────────────────────────────────────────────────────────────────────────────────

_ID: Json = {"type": "integer", "format": "int64", "minimum": 1, "maximum": model.LARGEST_ID}
_SENT: Json = {  # one server-sent event
    "type": "object",
    "required": ["event", "data"],
    "properties": {
        "event": {"type": "string", "description": "Of a log: log, state, end. Of events: the type of the event."},
        "id": {"type": "string", "description": "Where to go on from, for Last-Event-ID."},
        "data": {"type": "string", "contentMediaType": "application/json"},
    },
}
_WORDS: Json = {"type": "array", "maxItems": 64, "items": {"type": "string", "minLength": 1, "maxLength": 64}}
_MOMENT: Json = {"type": "string", "format": "date-time"}
_ROLE: Json = {"type": "string", "pattern": ROLE_PATTERN}
_DURATION: Json = {"type": ["string", "number"], "description": "As 90s, 10m or 1h30m, or in seconds."}
_LABELS: Json = {
    "type": "array",
    "maxItems": MAX_LABELS,
    "items": {"type": "string", "pattern": f"^{LABEL_PATTERN}$"},
}


def _or_null(schema: Json) -> Json:
    """Return what may also be null, which says as much as not to say it."""
    return {"anyOf": [schema, {"type": "null"}]}


def _choice(choices: type[model.Overlap] | type[model.Misfire], low: int) -> Json:
    """Return a word, or the word with a limit."""
    word = {"enum": [choice.name.lower() for choice in choices]}
    return {"anyOf": [word, _object({"policy": word, "limit": _whole(low, policies.MAX_WAITING)}, "policy")]}


def _any_of(*fields: str) -> list[Json]:
    return [{"required": [field]} for field in fields]


def _runs_where(states: Sequence[model.State], unless_said: str, *, with_queue: bool = False) -> Json:
    """Return which runs are meant."""
    return _object(
        {
            "job": {"anyOf": [_ID, _TEXT], "description": "Its id, or its key."},
            "state": {
                "type": "array",
                "minItems": 1,
                "items": {"enum": [state.word for state in states]},
                "description": f"{unless_said}, unless said.",
            },
            "due_from": _MOMENT,
            "due_until": _MOMENT,
            "node": {**_TEXT, "description": "That runs it, or ran it last."},
            "attempted_by": {
                **_TEXT,
                "description": "A node to which any attempt at it was ever given; a task stands for its workflow.",
            },
            "owner": {**_TEXT, "description": "Of its job."},
            "name": {**_TEXT, "description": "A part of the name of its job."},
            **({"queue": {**_TEXT, "description": "In which it waits or runs."}} if with_queue else {}),
        }
    )


_JOBS_MEANT: Json = {
    "jobs": {"type": "array", "minItems": 1, "maxItems": specs.MAX_JOBS, "items": _ID},
    "where": _object(
        {
            "q": {**_TEXT, "description": "Words, all of which the name holds, or the key."},
            "name": {**_TEXT, "description": "A part of the name."},
            "named": {**_TEXT, "description": "The name, exactly."},
            "owner": _TEXT,
            "kind": _TEXT,
            "tag": _TEXT,
            "queue": _TEXT,
            "paused": {"type": "boolean"},
            "state": {
                "type": "array",
                "minItems": 1,
                "items": {"enum": [state.word for state in model.State]},
                "description": "In which the latest run is.",
            },
        }
    ),
    "dry_run": {"type": "boolean", "description": "Only say what would be changed."},
}
_SCHEDULE: Json = {
    "cron": {"type": "string", "description": "A cron expression of 5, 6 or 7 fields, or a macro."},
    "dialect": {"enum": list(cron.DIALECTS)},
    "every": _DURATION,
    "mode": {"enum": ["rate", "delay"], "description": "Counted from each due moment, or from each finish."},
    "at": {"type": "string", "description": "One moment."},
    "period": _object(
        {
            "unit": {"enum": ["minute", "hour", "day", "week", "month", "year"]},
            "every": _or_null(_whole(1, 366 * 24 * 60)),
            "at": _or_null({"type": "string", "description": "The time of day, as 02:30."}),
            "days": _or_null({"type": "array", "items": {"type": "string"}, "minItems": 1}),
            "month_days": _or_null({"type": "array", "items": _whole(-1, 31), "minItems": 1}),
            "months": _or_null({"type": "array", "items": _whole(1, 12), "minItems": 1}),
            "overflow": _or_null({"type": "string"}),
        },
        "unit",
    ),
    "rrule": {"type": "string", "description": "A recurrence rule of RFC 5545."},
    "timezone": {"type": "string", "description": "A name such as Europe/Berlin. UTC if not given."},
    "start_at": _MOMENT,
    "end_at": _MOMENT,
    "anchor": _MOMENT,
    "jitter": _DURATION,
    "dst": _object({"gap": {"enum": ["run_after", "skip"]}, "fold": {"enum": ["first", "second", "both"]}}),
}
_SCHEDULE_KINDS = ("cron", "every", "at", "period", "rrule", "webhook", "on", "schedule")
_AS_TEXT: Json = {
    "type": ["string", "object"],
    "description": "A cron expression, a macro, a duration, a moment or a rule as text; or a schedule document.",
}
_NAMES: Json = {"type": "array", "minItems": 1, "maxItems": webhooks.MAX_NAMES, "items": {"type": "string"}}
_WEBHOOK = _object(
    {
        "format": {"enum": list(outside.FORMATS), "description": "Whose calls it takes: plain, unless said."},
        "secret": {
            "anyOf": [{"type": "string", "minLength": 1, "maxLength": webhooks.MAX_SECRET}, SECRET_NAME],
            "description": "With which calls must be signed.",
        },
        "branches": {**_NAMES, "description": "Only pushes to these; * stands for anything."},
        "events": {**_NAMES, "description": "Of GitHub or Gitea: push, unless said."},
    }
)
_ON_JOB = _object(
    {
        "job": {
            "anyOf": [{"type": "string", "minLength": 1}, {"type": "integer", "minimum": 1}],
            "description": "Whose ends: the key or the id of a job of the same owner.",
        },
        "states": {"type": "array", "minItems": 1, "items": {"enum": list(outside.STATES)}},
        "id": {"type": ["integer", "null"], "description": "Of that job, found when this was submitted; ignored."},
    },
    "job",
    "states",
)
_ON_NODE = _object(
    {
        "node": {"type": "string", "minLength": 1, "description": "The name of a node, or any."},
        "states": {"type": "array", "minItems": 1, "items": {"enum": list(outside.NODE_STATES)}},
    },
    "node",
    "states",
)
_ON: Json = {
    "anyOf": [_ON_JOB, _ON_NODE],
    "description": "It is fired by the ends of another job's runs, or by nodes, in place of a schedule.",
}
_TRIGGER: Json = {
    "on": _ON,
    "webhook": {**_WEBHOOK, "description": "It is fired by calls to an address of its own, in place of a schedule."},
    **{name: _or_null(schema) for name, schema in _SCHEDULE.items()},
    "schedule": _AS_TEXT,
    "data": {"type": ["object", "null"], "description": "Given to every run it makes."},
    "enabled": {"type": "boolean"},
    "id": {**_ID, "description": "The trigger it takes the place of, when a job is replaced."},
    "key": {**_TEXT, "pattern": r"^[^-]", "description": "By which it stays itself when its schedule is changed."},
    "name": {**_TEXT, "maxLength": 250, "description": "For people."},
}
_PER: Json = {
    "type": "string",
    "pattern": f"^(?:{policies.PER_PATTERN})$",
    "description": "What is counted together: job, owner, queue, or a path into the data of the run.",
}
_JOB: Json = {
    "name": {**_TEXT, "pattern": r"^[^-]"},
    "key": {**_TEXT, "pattern": r"^[^-]", "description": "Unique per owner: submitting it again updates the job."},
    "owner": _TEXT,
    "segment": _whole(0, 99),
    "paused": {"type": "boolean"},
    "annotations": {"type": "object"},
    "kind": {"enum": list(kinds.KINDS)},
    "spec": {"type": "object", "description": "What the kind needs, if it does not stand at the top level."},
    **kinds.SCHEMA,
    "schedule": _AS_TEXT,
    "timezone": {"type": "string"},
    "run_at": {"type": "string", "description": "One moment."},
    "run_once": {"type": "boolean", "description": "Once: now, or at the first moment of the schedule."},
    "triggers": {"type": "array", "maxItems": specs.MAX_TRIGGERS, "items": _ref("TriggerDocument")},
    "timeout": {**_DURATION, "description": "Of one attempt, as 10m or in seconds."},
    "start_deadline": {**_DURATION, "description": "A run that nobody started by then is skipped."},
    "retry": {
        "anyOf": [
            _whole(1, 100),
            _object(
                {
                    "attempts": _whole(1, 100),
                    "backoff": _DURATION,
                    "factor": {"type": "number", "minimum": 1, "maximum": 100},
                    "cap": _DURATION,
                    "jitter": {"type": "number", "minimum": 0, "maximum": 1},
                }
            ),
        ],
        "description": "How often it is tried in all.",
    },
    "overlap": {**_choice(model.Overlap, 1), "description": "What a run does while another is live."},
    "concurrency": {**_choice(model.Overlap, 1), "description": "Another name of overlap."},
    "misfire": {**_choice(model.Misfire, 0), "description": "What becomes of moments nobody could fire."},
    "policy": {**_ref("Policy"), "description": "All of these in the form in which they are shown, in their place."},
    "priority": {**_whole(0, 9), "description": "9 goes first."},
    "labels": _LABELS,
    "tags": {**_LABELS, "description": "Words for people, by which rights on jobs are granted."},
    "queue": {
        "type": "string",
        "pattern": f"^{queues.NAME_PATTERN}$",
        "description": "Where its runs wait: default, unless said.",
    },
    "share": {
        "type": "string",
        "pattern": f"^(?:{policies.SHARE_PATTERN})$",
        "maxLength": queues.MAX_SHARE,
        "description": "With whom its runs share their queue: owner, or a path into their data such as data.tenant.",
    },
    "every": {
        "enum": [model.EVERY_AGENT],
        "description": "A run of the job has a child on each live agent that has its kind and labels.",
    },
    "pause_after_failures": {
        **_whole(1, policies.MAX_FAILURES),
        "description": "The job pauses itself after so many failed runs in a row.",
    },
    "rate_limits": {
        "type": "array",
        "maxItems": policies.MAX_LIMITS,
        "items": _object(
            {
                "rate": {"type": "string", "pattern": "^[1-9][0-9]{0,14}/(s|min|h|day)$", "examples": ["100/min"]},
                "burst": _whole(1, limits.LARGEST_BURST),
                "per": _PER,
            },
            "rate",
        ),
        "description": "How many may start in a time: never more than burst + rate x window, in any window.",
    },
    "concurrency_limits": {
        "type": "array",
        "maxItems": policies.MAX_LIMITS,
        "items": _object({"limit": _whole(1, policies.MOST_AT_ONCE), "per": _PER}, "limit"),
        "description": "How many may run at once.",
    },
    "resources": RESOURCES,
    "after": {
        "type": "array",
        "maxItems": dependencies.MAX_AFTER,
        "items": {
            "anyOf": [
                {"type": "string"},
                {"type": "integer"},
                _object(
                    {
                        "job": {"type": ["string", "integer"], "description": "Its key, or its id."},
                        "on": {"enum": list(dependencies.ENDINGS), "description": "How it must have ended."},
                        "moment": {"enum": list(dependencies.MOMENTS), "description": "Which of its runs counts."},
                        "id": {"type": ["integer", "null"], "description": "As it was found; not read."},
                    },
                    "job",
                ),
            ]
        },
        "description": "Jobs of the same owner after which it comes.",
    },
    "debounce": _object(
        {
            "seconds": {**_DURATION, "description": "For which no other order may have come."},
            "at_most": {**_or_null(_DURATION), "description": "After the first of them it waits no longer."},
            "per": {
                "type": "string",
                "pattern": f"^(?:{policies.CALM_PATTERN})$",
                "description": "Which orders are of one kind: all of the job, or those with the same in their data.",
            },
        },
        "seconds",
    ),
}

_QUEUE: Json = {
    "name": {"type": "string", "description": "That of the address."},
    "state": {"enum": list(map(str, queues.QueueState)), "description": "As it is, unless said."},
    "priority_offset": {
        **_whole(-queues.FARTHEST, queues.FARTHEST),
        "description": "Added to the priority of its runs when queues are compared.",
    },
    "labels": {**_LABELS, "description": "An agent must have all of them to take from it."},
    "kinds": {"type": "array", "items": {"enum": list(kinds.KINDS)}, "description": "That it takes; empty: any."},
    "concurrency": _or_null({**_whole(1, queues.MOST), "description": "Runs of it that may run at once."}),
    "rate": _or_null(
        {"type": "string", "pattern": f"^{queues.RATE_PATTERN}$", "description": "Starts, such as 100/min."}
    ),
    "burst": {**_whole(1, queues.FASTEST), "description": "Starts at once, under a rate."},
    "weights": {
        "type": "object",
        "maxProperties": queues.MAX_WEIGHTS,
        "additionalProperties": _whole(1, queues.HEAVIEST),
        "description": "Of shares; one that is not named has 1.",
    },
    "most_waiting": _or_null({**_whole(1, queues.MOST), "description": "Runs of one owner that may wait."}),
    "org": _or_null(
        {
            **_whole(1, model.LARGEST_ORG),
            "description": "To which it belongs, for ever; null: to all.",
        }
    ),
    "version": {"description": "Ignored, as all that Horae sets."},
    "created_at": {},
    "updated_at": {},
    "figures": {},
}

_DURATION_OR_NULL = _or_null(_DURATION)
_ALERT_RULE: Json = {
    "name": {"type": "string", "description": "That of the address."},
    "when": {"enum": list(alert_rules.CONDITIONS)},
    "job": _or_null({"anyOf": [_ID, _TEXT], "description": "Its id, or its key."}),
    "owner": _or_null({**_TEXT, "description": "Whose jobs it is of."}),
    "queue": _or_null({"type": "string", "pattern": f"^{queues.NAME_PATTERN}$"}),
    "count": _or_null({**_whole(1, alert_rules.MOST_IN_A_ROW), "description": "In a row; of failure and missed."}),
    "after": {**_DURATION_OR_NULL, "description": "Of late, silent and queue_waiting: how long it may last."},
    "above": _or_null({"type": "number", "minimum": 1, "maximum": 99.9, "description": "Percent, of disk_full."}),
    "channels": {
        "type": "array",
        "minItems": 1,
        "maxItems": alert_rules.MAX_CHANNELS,
        "items": {"type": "string", "pattern": f"^{alert_rules.NAME_PATTERN}$"},
    },
    "tell": {"enum": list(alert_rules.TELL), "description": "both, unless said."},
    "wait": {**_DURATION, "description": "For which nothing more happens before it is told; 10s."},
    "every": {**_DURATION, "description": "Between two messages of the rule, at least; 5m."},
    "repeat": {**_DURATION, "description": "After which what goes on is told again, unless acknowledged; 4h."},
    "quiet": _or_null(
        _object(
            {
                "from": {"type": "string", "pattern": f"^{alert_rules.CLOCK_PATTERN}$"},
                "until": {"type": "string", "pattern": f"^{alert_rules.CLOCK_PATTERN}$"},
                "zone": {"type": "string", "description": "UTC, unless said."},
            },
            "from",
            "until",
        )
    ),
    "enabled": {"type": "boolean"},
    "version": {"description": "Ignored, as all that Horae sets."},
    "created_at": {},
    "updated_at": {},
}
_ALERT_CHANNEL: Json = {
    "name": {"type": "string", "description": "That of the address."},
    "kind": {"enum": list(alert_channels.KINDS)},
    "url": _or_null({"anyOf": [{"type": "string", "maxLength": alert_channels.MAX_URL}, SECRET_NAME]}),
    "secret": _or_null({**SECRET_NAME, "description": "With which a webhook is signed."}),
    "to": _or_null(
        {
            "type": "array",
            "minItems": 1,
            "maxItems": alert_channels.MAX_RECIPIENTS,
            "items": {"type": "string", "maxLength": alert_channels.MAX_ADDRESS},
        }
    ),
    "version": {"description": "Ignored, as all that Horae sets."},
    "created_at": {},
    "updated_at": {},
}

_RUN: Json = {
    "data": {"type": "object", "description": "Given to this run."},
    "node": {**_TEXT, "description": "The only node that may run it."},
    "priority": {**_whole(0, 9), "description": "Instead of the job's own; 9 goes first."},
    "run_at": {**_MOMENT, "description": "When it is due; now, unless that is still to come."},
}


def _list(name: str) -> Json:
    return {"type": "array", "minItems": 1, "maxItems": specs.MAX_JOBS, "items": _ref(name)}


REQUESTS: Json = {
    "JobDocument": {
        "anyOf": [_object(_JOB, "name", anyOf=_any_of(*kinds.MARKS, "spec", "kind")), _ref("Job")],
        "description": "As people write it, or as it was read.",
    },
    "JobsDocument": {
        "anyOf": [
            _ref("JobDocument"),
            _object({"jobs": _list("JobDocument")}, "jobs"),
            _list("JobDocument"),
        ]
    },
    "TriggerDocument": {"anyOf": [_object(_TRIGGER, anyOf=_any_of(*_SCHEDULE_KINDS)), _ref("Trigger")]},
    "TriggerPatch": _object(
        {"enabled": {"type": "boolean"}, "next_at": _MOMENT, "data": {"type": ["object", "null"]}}, minProperties=1
    ),
    "RunRequest": _object(_RUN),
    "HookCall": {"type": "object", "description": "The data of the run, or what GitHub or Gitea tell."},
    "SignalValue": {"description": "Any JSON."},
    "Decision": _object({"comment": {"type": "string", "maxLength": 1000}}),
    "JobsRequest": _object(_JOBS_MEANT, anyOf=_any_of("jobs", "where")),
    "TagsRequest": _object(
        {
            **_JOBS_MEANT,
            "add": {**_LABELS, "description": "Tags to add."},
            "remove": {**_LABELS, "description": "Tags to take away."},
        },
        anyOf=_any_of("jobs", "where"),
    ),
    "RerunRequest": _object(
        {
            "runs": {"type": "array", "minItems": 1, "maxItems": specs.MAX_JOBS, "items": _ID},
            "where": _runs_where([state for state in model.State if state.is_terminal], "failed and timed_out"),
            "dry_run": {"type": "boolean", "description": "Only say which runs would be run again."},
        },
        anyOf=_any_of("runs", "where"),
    ),
    "CancelRequest": _object(
        {
            "runs": {"type": "array", "minItems": 1, "maxItems": specs.MAX_JOBS, "items": _ID},
            "where": _runs_where(
                [state for state in model.State if not state.is_terminal], "all of them", with_queue=True
            ),
            "dry_run": {"type": "boolean", "description": "Only say which runs would be cancelled."},
        },
        anyOf=_any_of("runs", "where"),
    ),
    "Order": _object(
        {
            "job": {"anyOf": [_ID, _TEXT], "description": "Its id, or its key."},
            **_RUN,
            "idempotency_key": {"type": "string", "pattern": "^[!-~]{1,200}$"},
        },
        "job",
    ),
    "OrdersDocument": {"anyOf": [_object({"runs": _list("Order")}, "runs"), _list("Order")]},
    "RunAnswers": _object({"runs": {"type": "array", "items": {"anyOf": [_ref("Run"), _ref("Problem")]}}}, "runs"),
    "GrantRequest": _object(
        {
            "who": {**_TEXT, "pattern": r"^[^-]", "description": "The name of a user, or the owner of tokens."},
            "role": {"enum": [Role.OPERATOR, Role.EDITOR], "description": "What they may do on these jobs."},
            "job": {**_whole(1, model.LARGEST_ID), "description": "On one job. Give one of job, tag and queue."},
            "tag": {**_TEXT, "description": "On the jobs that have this tag."},
            "queue": {**_TEXT, "description": "On the jobs of this queue."},
        },
        "who",
        "role",
    ),
    "TokenRequest": _object(
        {
            "name": {**_TEXT, "pattern": r"^[^-]", "description": "What it is for, for people."},
            "scope": {"enum": list(model.SCOPES), "description": "user, unless said: good for this API."},
            "owner": {
                **_TEXT,
                "pattern": r"^[^-]",
                "description": "Owner of what is made with it; its name, or the owner of the token it is made with.",
            },
            "expires_in": {
                **_DURATION,
                "description": "As 30d or in seconds, at most 366d, or never; 90d, and for agents never, unless said.",
            },
            "org": {
                **_whole(1, model.LARGEST_ORG),
                "description": "Organisation of what is made and seen with it: 1, or that of the token that makes it.",
            },
            "role": {
                **_ROLE,
                "description": "What may be done with it: all that the one who makes it may, unless said.",
            },
            "node": {
                **_TEXT,
                "description": "The agent that may join with it, `*` for any. Of scope agent, and needed.",
            },
            "kinds": {**_WORDS, "description": "What that agent may take; any kind, unless said."},
            "labels": {**_WORDS, "description": "What that agent may say to have; nothing, unless said."},
            "resources": {**_WORDS, "description": "What that agent may offer, as gpu=2; nothing, unless said."},
        },
        "name",
    ),
    "DeviceTokenRequest": _object({"device_code": {**_TEXT, "description": "Of POST /v1/device."}}, "device_code"),
    "UserRequest": _object(
        {
            "name": {**_TEXT, "description": "A handle, unique in the installation."},
            "kind": {"enum": list(UserKind), "description": "person, unless said; a service cannot log in."},
            "email": {"type": "string", "description": "For people to read; nobody is known by it."},
            "org": {**_TEXT, "description": "Name or number of an organisation, `*` for all; the first, unless said."},
            "role": {**_ROLE, "description": "There; without one, the user is a member of none."},
        },
        "name",
    ),
    "LinkRequest": _object({"issuer": _TEXT, "subject": _TEXT}, "issuer", "subject"),
    "OrganisationRequest": _object({"name": _TEXT}, "name"),
    "OrganisationChanges": _object(
        {
            "name": _TEXT,
            "most_waiting": _or_null({**_whole(1, queues.MOST), "description": "Runs that may wait."}),
            "most_jobs": _or_null({**_whole(1, queues.MOST), "description": "Jobs that there may be."}),
        }
    ),
    "MemberRequest": _object({"role": _ROLE}, "role"),
    "AlertRuleDocument": _object(_ALERT_RULE, "when", "channels"),
    "AlertChannelDocument": _object(_ALERT_CHANNEL, "kind"),
    "QueueDocument": _object(_QUEUE),
    "ResourceDocument": _object(
        {
            "capacity": {**_whole(0, limits.MOST_UNITS), "description": "That there is of it."},
            "name": {},
            "used": {},
            "waiting": {},
        },
        "capacity",
    ),
    "SecretRequest": _object({"value": {"type": "string", "minLength": 1, "maxLength": MAX_VALUE}}, "value"),
    "PreviewRequest": _object({**_TRIGGER, "count": _whole(1, 1000)}, anyOf=_any_of(*_SCHEDULE_KINDS)),
}
