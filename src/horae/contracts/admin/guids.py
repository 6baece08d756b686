"""Ids as GUIDs, for contracts that want them: one number and its kind, told in 36 characters and read back.

    686f7261-65KK-8HHH-8XXX-XXXXXXXXXXXX      "horae", the kind, and the id in the rest

These are GUIDs of version 8 of RFC 9562, which is the one for a maker's own layout. What must stay true: reading
gives back exactly what was written, and nothing that was not written here is read as an id.

A client may have GUIDs of its own: a job or trigger whose key is one is named by it.
"""

from __future__ import annotations

import re
from enum import Enum

from horae.core.model import Job, Trigger
from horae.core.time.moments import quoted
from horae.errors import Invalid, NotFound

LARGEST_ID = 2**63 - 1
_LOW = 62  # bits of an id behind the variant; the last one stands behind the version
_DASHED = re.compile(r"([0-9a-f]{8})-?([0-9a-f]{4})-?([0-9a-f]{4})-?([0-9a-f]{4})-?([0-9a-f]{12})", re.IGNORECASE)


def canonical(text: str) -> str | None:
    """Return a GUID in small letters with dashes; None of what is none. Dashes, braces and case may be as they like."""
    bare = text[1:-1] if (text[:1], text[-1:]) in (("{", "}"), ("(", ")")) else text
    match = _DASHED.fullmatch(bare)
    return "-".join(match.groups()).lower() if match else None


def expected(text: str) -> Invalid:
    hint = "as 686f7261-656a-8000-8000-00000000002a"
    return Invalid(f"a GUID expected, got {quoted(text)}", code="E_PATTERN", hint=hint)


class Kind(Enum):
    """What an id is of; the value stands in the GUID."""

    JOB = "6a"
    TRIGGER = "74"
    RUN = "72"


_KINDS = {kind.value: kind for kind in Kind}


def guid(kind: Kind, number: int) -> str:
    if not 0 < number <= LARGEST_ID:
        raise ValueError(f"{number} is not an id")
    tail = f"{1 << 63 | number & ((1 << _LOW) - 1):016x}"
    return f"686f7261-65{kind.value}-8{number >> _LOW:03x}-{tail[:4]}-{tail[4:]}"


def of_job(job: Job) -> str:
    return canonical(job.key or "") or guid(Kind.JOB, job.id)


def of_trigger(trigger: Trigger) -> str:
    return canonical(trigger.key or "") or guid(Kind.TRIGGER, trigger.id)


def keys_of(text: str) -> list[str]:
    """Return the keys under which a job with this GUID may be kept: as a client wrote it, which is not known
    exactly."""
    found = canonical(text)
    if found is None:
        raise expected(text)
    return list(dict.fromkeys((found, found.upper(), text, f"{{{found}}}", f"{{{found.upper()}}}")))


def number_of(kind: Kind, text: str) -> int:
    """Return the id of a GUID of this kind, with or without dashes and braces, in any case.

    Invalid when it is no GUID at all, NotFound when it is one that names nothing of this kind.
    """
    found = canonical(text)
    if found is None:
        raise expected(text)
    digits = found.replace("-", "")
    number = int(digits[13:16], 16) << _LOW | int(digits[16:], 16) & ((1 << _LOW) - 1)
    if not 0 < number <= LARGEST_ID or guid(_KINDS.get(digits[10:12], kind), number).replace("-", "") != digits:
        raise NotFound(
            f"there is no {kind.name.lower()} {text}", hint="no such GUID was given out, or declared as a ScheduleJobId"
        )
    other = _KINDS[digits[10:12]]
    if other is not kind:
        raise NotFound(f"there is no {kind.name.lower()} {text}", hint=f"it is the GUID of a {other.name.lower()}")
    return number
