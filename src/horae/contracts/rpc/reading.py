"""What the RPC calls take: parameters by name or by position, a schedule, the location of code.

schedule        cron text, a duration, Unix seconds (once), or null: once, now
code_location   module:function, jobs/name or a registered name   a Python handler
                https://host/repo.git@ref#path/to/script          a script of a git repository (run.sh if not said)
                /absolute/path                                    a file below the agent's script_roots
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from horae.contracts.rpc.rendering import FACADE
from horae.core.fields import Fields, Problems
from horae.core.model import SECOND, Json
from horae.core.time import moments
from horae.core.work import commands, specs
from horae.errors import Denied, Invalid

DEFAULT_SCRIPT = "run.sh"
MAX_RETRIES = 99
MAX_LISTED = 10_000  # rows of one page
MOST_HELD = 10_000  # executions that one worker tells of
LARGEST_ID = 2**63 - 1
_GIT = re.compile(r"(?P<place>(?:[a-z]+://[^/]*/|[^/@:\s]+@[^/@:\s]+:))(?P<path>.*)")
_COMING = re.compile(r"([0-9]{1,17})-([0-9]{1,19})")
_HALF = re.compile(r"[\ud800-\udfff]")
_ADDRESS = re.compile(r"(?:[A-Za-z0-9._-]{1,253}|\[[0-9a-fA-F:.]{2,45}\]):[0-9]{1,5}")
_WORKER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")


def bind(names: Sequence[str], required: Sequence[str], params: Any) -> Fields:
    """Return the parameters of a call. One that is null is one that was not given."""
    if isinstance(params, list):
        if len(params) > len(names):
            raise Invalid(f"at most {len(names)} parameters expected, got {len(params)}", code="E_LIMIT")
        params = dict(zip(names, params, strict=False))
    fields = Fields({name: value for name, value in params.items() if value is not None}, "", Problems())
    fields.refuse_others(frozenset(names))
    for name in required:
        if name not in fields.values:
            fields.fault(name, "E_REQUIRED", "this parameter must be given")
    return fields


def user_id(fields: Fields) -> str | int:
    value = fields.values.get("user_id")
    if type(value) is int and -LARGEST_ID <= value <= LARGEST_ID:
        return value
    if type(value) is int:
        fields.fault("user_id", "E_RANGE", "a whole number must fit 64 bits")
    return fields.text("user_id") or ""


def identity(fields: Fields, name: str) -> int | None:
    found: int | None = fields.number(name, None, 1, LARGEST_ID, whole=True)
    return found


def worker_id(fields: Fields) -> str | None:
    worker = fields.text("worker_id")
    if worker is not None and not _WORKER.fullmatch(worker):
        fields.fault(
            "worker_id", "E_PATTERN", "1 to 128 letters, digits, dots, dashes, colons and underscores expected"
        )
    return worker


def attempt(fields: Fields) -> int | None:
    found: int | None = fields.number("attempt", None, 1, 2**31 - 1, whole=True)
    return found


def output(fields: Fields, longest: int) -> str:
    """Whatever a program writes, as text."""
    value = fields.values.get("text", "")
    if not isinstance(value, str):
        fields.wrong_type("text", "must be text")
    elif len(value) > longest:
        fields.fault(
            "text", "E_LEN", f"at most {longest} characters in one call, got {len(value)}", "send it in pieces"
        )
    elif _HALF.search(value):
        fields.fault("text", "E_CHAR", "half of a character stands here that is written as two")
    else:
        return value
    return ""


def address(fields: Fields) -> str | None:
    """Return where a worker listens."""
    found = fields.text("address")
    if found is not None and not (_ADDRESS.fullmatch(found) and 1 <= int(found.rpartition(":")[2]) <= 65535):
        fields.fault("address", "E_PATTERN", "host:port expected, such as 127.0.0.1:9000")
    return found


def held(fields: Fields) -> frozenset[int] | None:
    """Return the executions that a worker knows that it has; None where it does not say."""
    if "held" not in fields.values:
        return None
    ids = fields.items("held", MOST_HELD, "executions")
    if any(type(each) is not int or not 1 <= each <= LARGEST_ID for each in ids):
        fields.fault("held", "E_TYPE", "must be a list of execution ids")
        return None
    return frozenset(ids)


# ── pages ──────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Paging:
    limit: int | None  # how many rows; None is all
    cursor: str | None  # where to go on; None at the beginning
    is_asked: bool  # whether the next cursor is wanted too


def paging(fields: Fields, page: int) -> Paging:
    """Without `limit` and `cursor` everything is asked for. A cursor of no characters is that of the first page."""
    limit = fields.number("limit", None, 1, MAX_LISTED, whole=True)
    cursor = fields.values.get("cursor")
    if cursor is None:
        return Paging(limit, None, is_asked=False)
    if not isinstance(cursor, str):
        fields.wrong_type("cursor", "must be text")
    return Paging(page if limit is None else limit, cursor or None, is_asked=True)


def read_coming(cursor: str | None) -> tuple[int, int] | None:
    """(moment, trigger) of the last of a page of what is to come."""
    found = None if cursor is None else _COMING.fullmatch(cursor)
    if cursor is not None and found is None:
        message = "the cursor is not one that a page gave; leave it out to start anew"
        raise Invalid(message, code="E_PATTERN", path="cursor")
    return (int(found[1]), min(int(found[2]), LARGEST_ID)) if found else None


# ── a job ──────────────────────────────────────────────────────────────────────────────────────────

# Where a problem of the job document lies in the call.
_PATHS = {"name": "code_location", "handler": "code_location", "script": "code_location", "run_at": "schedule",
          "checkout.url": "code_location", "checkout.ref": "code_location", "retry": "retry_times"}  # fmt: skip


def read_job(fields: Fields) -> specs.Draft:
    """Return what submit_job asks for."""
    user = user_id(fields)
    location = fields.text("code_location", commands.MAX_PATH) or ""
    document: Json = {"name": location[:128], **_work(location), **_when(fields)}
    document["annotations"] = {FACADE: {"user_id": user}}
    document |= {name: fields.values[name] for name in ("priority", "resources") if name in fields.values}
    if retries := fields.number("retry_times", 0, 0, MAX_RETRIES, whole=True):
        document["retry"] = retries + 1
    fields.problems.raise_any()
    try:
        return specs.parse_job(document)
    except (Invalid, Denied) as error:
        moved = [replace(problem, path=_PATHS.get(problem.path, problem.path)) for problem in error.listed()]
        raise type(error).of(list({problem.path: problem for problem in moved}.values())) from None


def _work(location: str) -> Json:
    if location.startswith("/"):
        return {"script": location}
    base, _, script = location.partition("#")
    git = _GIT.fullmatch(base)
    if git is None:
        return {"handler": location}
    path, _, ref = git["path"].partition("@")
    checkout = {"url": git["place"] + path} | ({"ref": ref} if ref else {})
    return {"checkout": checkout, "script": script or DEFAULT_SCRIPT}


def _when(fields: Fields) -> Json:
    value = fields.values.get("schedule")
    if value is None:
        return {"run_once": True}
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,18}", value):
        value = int(value)
    if type(value) in (int, float):  # many clients send the time of their clock as it is, with a fraction
        if not 0 <= value <= moments.HORIZON // SECOND:
            fields.fault("schedule", "E_TIME_RANGE", "Unix seconds of the years 1970 to 2200 expected")
            return {}
        return {"run_at": moments.format_moment(round(value * SECOND))}
    if not isinstance(value, str):
        fields.wrong_type("schedule", "must be text, Unix seconds or null")
        return {}
    return {"schedule": value}
