"""Tokens as somebody asks for them: what a document may say."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from horae.core.fields import Fields, Problems, fields_of, shown
from horae.core.foreign_permissions import LONGEST, read_any_role
from horae.core.model import ANY, JOIN, LARGEST_ORG, SCOPES, Bounds
from horae.core.policy import resources
from horae.core.roles import ROLE_WORDS, Role

DEFAULT_SECONDS = 90 * 86_400.0  # that a user's token is good for; one of an agent, until it is revoked
JOIN_SECONDS = 900.0  # that one to join by is good for
MOST_JOIN_SECONDS = 86_400.0
NEVER = "never"
BOUNDS = ("node", "kinds", "labels", "resources")  # fields of an agent's token
OF_AGENTS = ("agent", JOIN)
MAX_BOUNDS = 64  # of each
_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_KIND = re.compile(r"[a-z][a-z0-9_]{0,63}")
_LABEL = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./:=-]{0,62}")
_RESOURCE = re.compile(rf"{resources.NAME}=[0-9A-Za-z.]{{1,32}}")


@dataclass(frozen=True, slots=True)
class Wanted:
    """A token that somebody asks for."""

    name: str
    scope: str
    owner: str | None  # None: whoever it falls to
    expires_in: float | None  # seconds; None: never
    bounds: Bounds | None = None
    org: int | None = None  # None: that of whoever asks
    role: Role | None = None  # None: all that whoever asks may do


def parse_token(document: Any) -> Wanted:
    """{name, scope?, owner?, expires_in?, org?, role?, node?, kinds?, labels?, resources?}: a token is the user's and
    good for 90 days, one of an agent until it is revoked, one to join by for 15 minutes, unless said. The last four are
    for an agent, which needs the first of them; that of the first organisation works for all."""
    problems = Problems()
    fields = fields_of(document, "", problems, "an object expected")
    if fields is None:
        problems.raise_any()
        raise AssertionError("a problem was noted")
    fields.refuse_others(frozenset({"name", "scope", "owner", "expires_in", "org", "role", *BOUNDS}))
    if "name" not in fields.values:
        fields.fault("name", "E_REQUIRED", "a token needs a name")
    name, scope, owner = fields.handle("name") or "", fields.text("scope") or "user", fields.handle("owner")
    if scope not in SCOPES:
        fields.fault("scope", "E_ENUM", f"must be one of {', '.join(SCOPES)}, got {shown(scope)}")
    expires_in = _read_expiry(fields, scope)
    bounds = _read_bounds(fields, scope)
    org = fields.number("org", None, 1, LARGEST_ORG, whole=True)
    role = _read_role(fields, scope)
    problems.raise_any()
    return Wanted(name, scope, owner, expires_in, bounds, org, role)


def _read_expiry(fields: Fields, scope: str) -> float | None:
    usual = {"agent": None, JOIN: JOIN_SECONDS}.get(scope, DEFAULT_SECONDS)
    if scope != JOIN and fields.values.get("expires_in") == NEVER:
        return None
    seconds: float | None = fields.seconds("expires_in", usual, 1)
    if scope == JOIN and seconds is not None and seconds > MOST_JOIN_SECONDS:
        fields.fault("expires_in", "E_RANGE", "a token to join by is good for 1d at most", "leave it out: 15m")
    return seconds


def _read_role(fields: Fields, scope: str) -> Role | None:
    role = fields.text("role", LONGEST)
    if role is None:
        return None
    if scope in OF_AGENTS:
        fields.fault("role", "E_FIELD_CONFLICT", "an agent has no role: it does what runs ask for", "leave role out")
    found = read_any_role(role)
    if found is None:
        fields.fault("role", "E_ENUM", f"must be {ROLE_WORDS}, got {shown(role)}")
    return found


def _read_bounds(fields: Fields, scope: str) -> Bounds | None:
    if scope not in OF_AGENTS:
        for name in BOUNDS:
            if name in fields.values:
                fields.fault(name, "E_FIELD_CONFLICT", "only the token of an agent has it", "give scope: agent too")
        return None
    if "node" not in fields.values:
        hint = f"name it, or say {ANY!r} for any: `horae token create NAME --agent NODE`"
        fields.fault("node", "E_REQUIRED", "the token of an agent needs the name of its node", hint)
    node = fields.text("node") or ANY
    if node != ANY and not _NODE.fullmatch(node):
        fields.fault("node", "E_PATTERN", f"must be the name of a node or {ANY}, got {shown(node)}")
    kinds = _read_words(fields, "kinds", _KIND, "shell") if "kinds" in fields.values else (ANY,)
    return Bounds(node, kinds, _read_words(fields, "labels", _LABEL, "gpu"), _read_resources(fields))


def _read_words(fields: Fields, name: str, pattern: re.Pattern[str], such: str) -> tuple[str, ...]:
    words = fields.items(name, MAX_BOUNDS, name)
    if not all(type(word) is str and (word == ANY or pattern.fullmatch(word)) for word in words):
        fields.fault(name, "E_PATTERN", f"must be {name} such as {such}, or {ANY} for any")
    return tuple(words)


def _read_resources(fields: Fields) -> tuple[str, ...]:
    words = _read_words(fields, "resources", _RESOURCE, "gpu=2")
    if ANY in words or not all(type(word) is str and _RESOURCE.fullmatch(word) for word in words):
        return words
    if any(word.startswith(f"{resources.SLOTS}=") for word in words):
        fields.fault("resources", "E_PATTERN", "slots are not bounded: name what an agent offers beside them")
    found = resources.read_resources(Fields({"resources": resources.amounts_of(words)}, fields.path, fields.problems))
    return resources.words_of(found)
