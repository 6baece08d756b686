"""A submitted job of this contract as a draft of Horae's.

    frequency ONE_TIME → one moment; DAILY, WEEKLY, MONTHLY → a period from executionTime on; the past is due now
    maxRetries n → n + 1 attempts, 1, 5, 10, 10 … minutes apart
    payload → text that is written to the output, or a JSON object that names a handler or steps

Such a job is offered to schedulers outside Horae that hold its segment. What the client sent and the core has no
place for is kept in the annotations, so that it can be given back as it was.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from horae.contracts.cluster.reading import Sent
from horae.contracts.cluster.vocabulary import FACADE, FREQUENCIES, PAYLOAD_HANDLER, UNITS
from horae.core.fields import encoded
from horae.core.jobdata import MAX_DATA
from horae.core.model import SEGMENTS, Json
from horae.core.time import moments
from horae.core.work import specs
from horae.errors import Invalid

MAX_NAME = 255
CORE_NAME = 128
MAX_RETRIES = 99
DEFAULT_RETRIES = 3
BACKOFF = {"backoff": "1m", "factor": 5, "cap": "10m", "jitter": 0}
WORK = ("handler", "steps")
MAX_NOTED = 16 * 1024  # characters of a payload that names work, to be given back as they were; longer ones as JSON


def read_draft(sent: Sent) -> specs.Draft:
    """Rules are checked in the contract's order, and the first one broken is told."""
    name = sent.text("jobName", needed="Job name is required", longest=MAX_NAME) or ""
    user = sent.whole("userId", low=-(2**63), high=2**63 - 1, needed="User ID must be provided")
    frequency = sent.word("frequency", FREQUENCIES, needed="Frequency must be specified") or ""
    at = sent.instant("executionTime", needed="Execution time must be set") or 0
    payload = _payload(sent)
    retries = sent.whole("maxRetries", low=0, high=MAX_RETRIES)
    segment = sent.whole("segment", low=0, high=SEGMENTS - 1)
    start = moments.format_moment(at)
    document: Json = {
        "name": _core_name(name),
        "segment": segment or 0,
        "retry": {"attempts": (DEFAULT_RETRIES if retries is None else retries) + 1, **BACKOFF},
        "triggers": [{"at": start} if frequency == "ONE_TIME" else _every(UNITS[frequency], start)],
    }
    noted: Json = {"userId": user, "frequency": frequency, "executionTime": start}
    if document["name"] != name:
        noted["jobName"] = name
    work = _work(payload)
    if work is None:
        document |= {"handler": PAYLOAD_HANDLER, "data": {"payload": payload}}
    else:
        document |= work
        if len(payload) <= MAX_NOTED:
            noted["payload"] = payload
    try:
        draft = specs.parse_job({**document, "annotations": {FACADE: noted}})
    except Invalid as error:
        raise _in_payload(error) from None
    return replace(draft, policy=replace(draft.policy, offered=True))


def _in_payload(error: Invalid) -> Invalid:
    """Return what is wrong with the work was sent as a payload."""
    if not error.path.startswith((*WORK, "data", "env")):
        return error
    return Invalid(f"payload: {error.message}", code=error.code, path="payload", hint=error.hint)


def _every(unit: str, start: str) -> Json:
    return {"period": {"unit": unit}, "start_at": start}


def _core_name(name: str) -> str:
    """Return a name the core takes: shorter, and not to be mistaken for an option."""
    return name.strip().lstrip("-")[:CORE_NAME].strip() or "job"


def _payload(sent: Sent) -> str:
    """Text, which may be empty; an object counts as its own text."""
    value = sent.any("payload")
    text = encoded(value) if isinstance(value, dict) else value
    if value is None or text is None:
        raise Invalid("Payload is required", code="E_REQUIRED", path="payload", hint="send text, which may be empty")
    if not isinstance(text, str):
        raise Invalid("payload must be text, or an object with a handler or steps", code="E_TYPE", path="payload")
    size = len((encoded({"payload": text}) or "").encode())  # what cannot be encoded is told later
    if size > MAX_DATA:
        most = f"{MAX_DATA // 1024} KiB ({MAX_DATA} bytes)"
        message = f"payload is too large: {size} bytes as JSON, and at most {most} are taken"
        raise Invalid(message, code="E_LEN", path="payload", hint="keep large data elsewhere, and send where it lies")
    return text


def _work(payload: str) -> Json | None:
    """Return the work that a payload names; None when it is only text."""
    if not payload.lstrip().startswith("{"):
        return None
    try:
        value: Any = json.loads(payload)
    except (ValueError, RecursionError):
        return None
    named = isinstance(value, dict) and any(name in value for name in WORK)
    return {name: value[name] for name in (*WORK, "data", "env") if name in value} if named else None
