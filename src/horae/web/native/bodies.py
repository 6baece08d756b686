"""Small request bodies, read field by field."""

from __future__ import annotations

import hashlib
import re
from typing import Any

import msgspec

from horae.core import model
from horae.core.definitions import Idempotency
from horae.core.fields import Fields, Problems, fields_of, kind_of
from horae.core.time import moments
from horae.core.work.commands import MAX_DATA
from horae.errors import Invalid
from horae.service.jobs.orders import RunRequest


def read_fields(document: Any, *known: str) -> Fields:
    problems = Problems()
    fields = fields_of(document, "", problems, "an object expected")
    if fields is None:
        problems.raise_any()
        raise AssertionError("a problem was noted")
    fields.refuse_others(frozenset(known))
    return fields


def read_moment(fields: Fields, name: str) -> model.Moment | None:
    if name not in fields.values:
        return None
    try:
        return moments.parse_moment(fields.values[name])
    except Invalid as error:
        fields.problems.adopt(fields.at(name), error)
        return None


# ── runs ──

MAX_ORDER = MAX_DATA + 4096  # bytes of one order as JSON: its data, and a little for the rest
_ONE = ("data", "node", "priority", "run_at")
_ORDER = ("job", *_ONE, "idempotency_key")
_VISIBLE = re.compile(r"[\x21-\x7e]{1,200}")


def read_run(document: Any, job_id: int, idempotency: Idempotency | None) -> RunRequest:
    """Return what the body of a request for one run means."""
    fields = read_fields(document, *_ONE)
    request = _run_request(fields, job_id, idempotency)
    fields.problems.raise_any()
    return request


def read_order(document: Any, scope: str, otherwise: str | None) -> RunRequest:
    """Return what one of many orders means; `otherwise` is the key of an order that has none of its own."""
    fields = read_fields(document, *_ORDER)
    fields.require("job", "an order needs a job: its id, or its key")
    key = fields.text("idempotency_key", 200) or otherwise
    if key is not None and not _VISIBLE.fullmatch(key):
        fields.fault("idempotency_key", "E_CHAR", "an idempotency key has visible ASCII characters only")
    name = read_job_name(fields) if "job" in fields.values else None
    digest = hashlib.sha256(msgspec.json.encode(fields.values, order="deterministic")).hexdigest() if key else ""
    request = _run_request(fields, name or 0, Idempotency(scope, key, digest) if key else None)
    fields.problems.raise_any()
    return request


def read_job_name(fields: Fields) -> int | str | None:
    """Return how `job` names one: by its id, or by its key."""
    name = fields.values["job"]
    if type(name) is int:
        fields.number("job", None, 1, model.LARGEST_ID, whole=True)
        return name
    if type(name) is str:
        return fields.text("job")
    message = f"a job is named by its id, a whole number, or by its key, a text; got {kind_of(name)}"
    fields.fault("job", "E_TYPE", message)
    return None


def _run_request(fields: Fields, job: int | str, idempotency: Idempotency | None) -> RunRequest:
    return RunRequest(
        job,
        data=fields.json("data", MAX_DATA) if "data" in fields.values else None,
        node=fields.text("node"),
        priority=fields.number("priority", None, 0, 9, whole=True),
        run_at=read_moment(fields, "run_at"),
        idempotency=idempotency,
    )
