"""Triggers from outside: documents that say who may fire a trigger, in place of when.

    webhook  {"format": "github", "secret": {"secret": "hook-key"}, "branches": ["main"]}     a call over HTTP
    on       {"job": "extract", "states": ["failed", "timed_out"], "id": 12}                  the end of another's run
    on       {"node": "any", "states": ["gone"]}                                              what becomes of a node

They stand where a schedule stands, and have no moment of their own. How they are read is in core.work.webhooks and
core.work.events; what a call must be, and what it says, in core.hooks; who listens to whom in core.policy.listening.
"""

from __future__ import annotations

from typing import NamedTuple

from horae.core.model import Json, Moment, State
from horae.errors import Invalid

WEBHOOK = "webhook"
ON = "on"
JOB, NODE = "job", "node"  # to what a trigger may listen
ANY = "any"  # node
KINDS = (WEBHOOK, ON)
PLAIN, GITHUB, GITEA = "plain", "github", "gitea"
FORMATS = (PLAIN, GITHUB, GITEA)
PUSH = "push"
STATES = tuple(s.word for s in (State.SUCCEEDED, State.FAILED, State.TIMED_OUT, State.CANCELLED, State.SKIPPED))
JOINED = "joined"
NODE_STATES = ("gone", JOINED, "draining")  # core.runs.endings says what is noted
_PAST = {"timed_out": "timed out", "cancelled": "was cancelled", "skipped": "was skipped"}
_OF_NODES = {"gone": "is gone", JOINED: "has joined", "draining": "is draining"}
_SYSTEMS = {GITHUB: "GitHub", GITEA: "Gitea"}


class NodeEvent(NamedTuple):
    """Something that became of a node."""

    node: str
    state: str  # of NODE_STATES
    reason: str
    seen_at: Moment  # when it was last heard


def is_outside(document: Json) -> bool:
    """Return whether a trigger document is one of these."""
    return WEBHOOK in document or ON in document


def is_webhook(document: Json) -> bool:
    return WEBHOOK in document


def is_event(document: Json) -> bool:
    return ON in document


def is_job_event(document: Json) -> bool:
    """Return whether it is the end of another job's run to which it listens."""
    return ON in document and JOB in document[ON]


def is_node_event(document: Json) -> bool:
    return ON in document and NODE in document[ON]


def checked(document: Json) -> Json:
    """Return a document that was read before, if this version knows what it is."""
    return _checked_event(document) if is_event(document) else _checked_webhook(document)


def _checked_webhook(document: Json) -> Json:
    hook = document[WEBHOOK]
    if not isinstance(hook, dict) or hook.get("format") not in FORMATS:
        raise Invalid(f"a webhook has one of the formats {', '.join(FORMATS)}", code="E_ENUM", path="webhook.format")
    return document


def _checked_event(document: Json) -> Json:
    event = document[ON]
    fields: Json = event if isinstance(event, dict) else {}
    known = STATES if JOB in fields else NODE_STATES if NODE in fields else ()
    states = fields.get("states")
    if not isinstance(states, list) or not states or not all(state in known for state in states):
        words = f"names a job and some of {', '.join(STATES)}, or a node and some of {', '.join(NODE_STATES)}"
        raise Invalid(f"a trigger on an event {words}", code="E_ENUM", path="on.states")
    return document


def describe(document: Json) -> str:
    """Return it in English."""
    if is_event(document):
        event = document[ON]
        if NODE in event:
            which = "a node" if event[NODE] == ANY else f"the node {event[NODE]}"
            return f"when {which} {' or '.join(_OF_NODES[state] for state in event['states'])}"
        return f"when a run of {event['job']} {' or '.join(_PAST.get(state, state) for state in event['states'])}"
    hook = document[WEBHOOK]
    if hook["format"] == PLAIN:
        words = "when its address is called"
    else:
        where = f" to {' or '.join(hook['branches'])}" if "branches" in hook else ""
        system = _SYSTEMS[hook["format"]]
        events = " or ".join(f"{event}{where}" if event == PUSH else event for event in hook.get("events", (PUSH,)))
        words = f"when {system} tells of a {events}"
    return f"{words}, signed" if "secret" in hook else words
