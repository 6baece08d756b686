"""Ids as GUIDs, for contracts that want them: one number and its kind, told in 36 characters and read back.

    686f7261-65KK-8HHH-8XXX-XXXXXXXXXXXX      "horae", the kind, and the id in the rest

These are GUIDs of version 8 of RFC 9562, which is the one for a maker's own layout. What must stay true: reading
gives back exactly what was written, and nothing that was not written here is read as an id.
"""

from __future__ import annotations

import re
from enum import Enum

from horae.core.moments import quoted
from horae.errors import Invalid, NotFound

LARGEST_ID = 2**63 - 1
_LOW = 62  # bits of an id behind the variant; the last one stands behind the version
_DASHED = re.compile(r"([0-9a-f]{8})-?([0-9a-f]{4})-?([0-9a-f]{4})-?([0-9a-f]{4})-?([0-9a-f]{12})", re.IGNORECASE)


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


def number_of(kind: Kind, text: str) -> int:
    """The id of a GUID of this kind, with or without dashes and braces, in any case.

    Invalid when it is no GUID at all, NotFound when it is one that names nothing of this kind.
    """
    bare = text[1:-1] if (text[:1], text[-1:]) in (("{", "}"), ("(", ")")) else text
    match = _DASHED.fullmatch(bare)
    if match is None:
        raise Invalid(
            f"a GUID expected, got {quoted(text)}", code="E_PATTERN", hint="as 686f7261-656a-8000-8000-00000000002a"
        )
    digits = "".join(match.groups()).lower()
    number = int(digits[13:16], 16) << _LOW | int(digits[16:], 16) & ((1 << _LOW) - 1)
    if not 0 < number <= LARGEST_ID or guid(_KINDS.get(digits[10:12], kind), number).replace("-", "") != digits:
        raise NotFound(f"there is no {kind.name.lower()} {text}", hint="this GUID was not given out by Horae")
    found = _KINDS[digits[10:12]]
    if found is not kind:
        raise NotFound(f"there is no {kind.name.lower()} {text}", hint=f"it is the GUID of a {found.name.lower()}")
    return number
