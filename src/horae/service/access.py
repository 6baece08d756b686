"""Who may come in: bearer tokens, made here, shown once, kept as hashes.

    horae_u_12_kQ3v…   `u` user or `a` agent, the id it is looked up by, then 256 random bits
    horae_s_7_pW0a…    a session, which a token opened: so that a browser need not keep the token itself

The hash is one SHA-256, without salt or stretching. Those protect words that people choose, which can be
guessed; nobody guesses 256 random bits, and a slow hash would only let strangers keep this process busy.

What must stay true:
- A wrong secret, an unknown id, a revoked and an expired token are refused in the same words.
- What the store says of a token is believed for `CACHE_SECONDS`: so a check costs no query per request, and
  a token revoked on one node is refused by every other after that time at the latest (by this one at once).
- Without the store nobody new is let in: the check raises Unavailable.
- Strangers cost little: after `TRIES` wrong tokens within `WINDOW` seconds, a peer's tokens are looked up only
  if they were known before. So those who share its address and work already go on working. Memory is bounded.
- A token that was made by another has its owner, may do no more, and ends with it; so does a session.
- No secret is logged.

Expiry is judged by this node's clock, revocation needs none.

A job is its owner's, and that of whoever runs the server. The user who runs it needs no token there, and is called
`local`; a token in that name can be made by that user only (`horae token create NAME --owner local`), and opens every
job of its organisation too.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import re
import secrets
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import structlog

from horae.core.fields import Fields, Problems, fields_of, shown
from horae.core.model import ANY, DEFAULT_ORG, LARGEST_ORG, SCOPES, SECOND, Bounds, Job, Moment, Node, Token
from horae.core.policy import resources
from horae.core.roles import Role, is_within
from horae.errors import Denied, Limited, NotFound, Unauthenticated
from horae.ports.clock import Clock
from horae.ports.store.moments import StoreClock
from horae.ports.store.tokens import Tokens
from horae.service.patience import within
from horae.wire.nats.proofs import Proof, code_of

CACHE_SECONDS = 5.0
LOOK_UP_SECONDS = 2.5  # after which whoever asks is told that the database does not answer
CACHED = 4096  # tokens remembered
TRIES = 20
WINDOW = 60.0  # seconds
PEERS = 4096  # whose failures are remembered

DEFAULT_SECONDS = 90 * 86_400.0  # that a user's token is good for; one of an agent, until it is revoked
SESSION_SECONDS = 12 * 3600.0
NEVER = "never"
OPERATOR = "local"  # the owner of what is made without a token
SESSION = "session"  # the scope of what is open to those who logged in, too

_TEXT = re.compile(r"horae_([uas])_([1-9][0-9]{0,17})_([A-Za-z0-9_-]{43})")
_NO_HASH = "0" * 64
BOUNDS = ("node", "kinds", "labels", "resources")  # fields of an agent's token
MAX_BOUNDS = 64  # of each
SANDBOX_LABEL = "sandbox:"  # begins the labels that agents give themselves
_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_KIND = re.compile(r"[a-z][a-z0-9_]{0,63}")
_LABEL = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./:=-]{0,62}")
_RESOURCE = re.compile(rf"{resources.NAME}=[0-9A-Za-z.]{{1,32}}")
HOW_TO_LOG_IN = (
    "give a token with --token-file or HORAE_TOKEN (over HTTP: Authorization: Bearer …); "
    "`horae token create NAME` makes one"
)

log = structlog.get_logger(__name__)


class AccessStore(Tokens, StoreClock, Protocol):
    """Who may come in, and until when."""


def is_ours(text: str) -> bool:
    """Return whether this could be a token, rather than what another system uses for one."""
    return text.startswith("horae_")


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
    good for 90 days, one of an agent until it is revoked, unless said. The last four are for an agent, which needs the
    first of them and has no organisation: it works for all."""
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
    if fields.values.get("expires_in") == NEVER:
        expires_in = None
    else:
        expires_in = fields.seconds("expires_in", None if scope == "agent" else DEFAULT_SECONDS, 1)
    bounds = _read_bounds(fields, scope)
    org = fields.number("org", None, 1, LARGEST_ORG, whole=True)
    if scope == "agent" and org is not None:
        fields.fault("org", "E_FIELD_CONFLICT", "an agent works for every organisation", "leave org out")
    role = _read_role(fields, scope)
    problems.raise_any()
    return Wanted(name, scope, owner, expires_in, bounds, org, role)


def _read_role(fields: Fields, scope: str) -> Role | None:
    role = fields.text("role")
    if role is None:
        return None
    if scope == "agent":
        fields.fault("role", "E_FIELD_CONFLICT", "an agent has no role: it does what runs ask for", "leave role out")
    if role not in set(Role):
        fields.fault("role", "E_ENUM", f"must be one of {', '.join(Role)}, got {shown(role)}")
        return None
    return Role(role)


def _read_bounds(fields: Fields, scope: str) -> Bounds | None:
    if scope != "agent":
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


@dataclass(frozen=True, slots=True)
class _Known:
    token: Token | None
    asked: float  # when the store was asked: what it said may be older than its answer, not older than this


class Access:
    def __init__(self, store: AccessStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._known: dict[int, _Known] = {}
        self._sessions: dict[int, tuple[float, tuple[int, str, Moment]]] = {}  # id → when asked; token, hash, end
        self._failures: dict[str, tuple[float, int]] = {}  # peer → since when, how many

    # ── making and ending ──

    async def issue(self, wanted: Wanted, by: Token | None = None) -> tuple[Token, str]:
        """As create, for somebody who came with a token or, where none is needed, without."""
        if by is None:
            org = DEFAULT_ORG if wanted.org is None else wanted.org
            return await self.create(
                wanted.name, wanted.scope, wanted.owner or wanted.name, wanted.expires_in, None, wanted.bounds, org,
                wanted.role or Role.ADMIN,
            )  # fmt: skip
        if wanted.owner not in (None, by.owner):
            raise Denied(
                f"a token that is made by a token has its owner: {by.owner} expected, got {wanted.owner}",
                code="E_TOKEN_OWNER",
                hint="leave the owner out, or make the token on the server's own machine: `horae token create`",
            )
        if wanted.org not in (None, by.org):
            raise Denied(
                f"a token that is made by a token has its organisation: {by.org} expected, got {wanted.org}",
                code="E_TOKEN_ORG",
                hint="leave org out, or make the token on the server's own machine: `horae token create NAME --org N`",
            )
        role = wanted.role or by.role
        if not is_within(role, by.role):
            raise Denied(
                f"a token that is made by a token may do no more than it: {by.role} or less expected, got {role}",
                code="E_TOKEN_ROLE",
                hint=f"leave the role out, or ask for {by.role}",
            )
        bounds = wanted.bounds
        return await self.create(wanted.name, wanted.scope, by.owner, wanted.expires_in, by, bounds, by.org, role)

    async def create(
        self, name: str, scope: str, owner: str, expires_in: float | None, parent: Token | None = None,
        bounds: Bounds | None = None, org: int = DEFAULT_ORG, role: Role = Role.ADMIN,
    ) -> tuple[Token, str]:  # fmt: skip
        """Return a new token and its text, which nobody can ask for again. `expires_in` is in seconds; None: never. A
        user's does not outlive the token by which it is made."""
        secret = secrets.token_urlsafe(32)
        now = await self._store.now()
        ends = [now + round(expires_in * SECOND)] if expires_in is not None else []
        if parent is not None and parent.expires_at is not None and scope == "user":
            ends.append(parent.expires_at)
        parent_id = parent.id if parent else None
        token = await self._store.add_token(
            Token(
                id=0,
                name=name,
                scope=scope,
                owner=owner,
                hash=_hash(secret),
                created_at=now,
                expires_at=min(ends, default=None),
                parent_id=parent_id,
                bounds=bounds,
                org=org,
                role=role,
            )
        )
        self._known.pop(token.id, None)  # somebody may have asked for this id before it was given
        log.info("token.created", id=token.id, name=name, scope=scope, owner=owner, org=org, role=role, by=parent_id)
        return token, f"horae_{scope[0]}_{token.id}_{secret}"

    async def open_session(self, token: Token) -> str:
        """Return the text of a session that ends with its token, and after half a day."""
        secret = secrets.token_urlsafe(32)
        now = await self._store.now()
        ends = [now + round(SESSION_SECONDS * SECOND), *([token.expires_at] if token.expires_at else [])]
        session_id = await self._store.add_session(token.id, _hash(secret), now, min(ends))
        self._sessions.pop(session_id, None)
        return f"horae_s_{session_id}_{secret}"

    async def end_session(self, text: str) -> None:
        """End a session before its time: here at once, elsewhere as with a token that is revoked. What is none, or has
        ended, is no error."""
        parts = _TEXT.fullmatch(text)
        if parts is None or parts[1] != "s":
            return
        session_id = int(parts[2])
        known = await self._store.get_session(session_id)
        if known is not None and hmac.compare_digest(_hash(parts[3]), known[1]):
            await self._store.end_session(session_id)
            self._sessions.pop(session_id, None)
            log.info("session.ended", token=known[0])

    async def list(self, by: Token | None = None) -> list[Token]:
        """Every token there ever was, newest first; who came with one sees those of its organisation."""
        return [token for token in await self._store.list_tokens() if by is None or token.org == by.org]

    async def revoke(self, token_id: int, by: Token | None = None) -> Token:
        """Return those of other organisations do not exist for who came with a token."""
        found = await self._store.get_token(token_id) if by is not None else None
        is_other = by is not None and (found is None or found.org != by.org)
        token = None if is_other else await self._store.revoke_token(token_id, await self._store.now())
        if token is None:
            raise NotFound(f"there is no token {token_id}", hint="`horae token list` lists them")
        self._remember(token_id, token, self._clock.elapsed())
        for known_id, known in self._known.items():  # whatever it made has ended with it, here at once
            if known.token is not None and known.token.parent_id is not None:
                self._known[known_id] = replace(known, asked=-math.inf)
        log.info("token.revoked", id=token.id, name=token.name, scope=token.scope, owner=token.owner)
        return token

    async def has_login(self) -> bool:
        """Return whether anybody could come in: there is a user token that is good now."""
        return any(
            token.scope == "user" and self.state_of(token) == "good" for token in await self._store.list_tokens()
        )

    def state_of(self, token: Token) -> str:
        """good, expired or revoked."""
        if token.revoked_at is not None:
            return "revoked"
        return "good" if token.expires_at is None or self._clock.now() < token.expires_at else "expired"

    # ── checking ──

    async def check(self, text: str | None, scope: str, peer: str = "") -> Token:
        """Return the token that a request came with, if it is good for this scope; for the scope `session` that is also
        the token of one.

        Unauthenticated when there is none or it is not good, Denied when it is good for another scope, Limited
        when this peer (its address) was wrong too often.
        """
        if text is None:  # nothing was tried, so nothing is counted
            raise _refused(scope)
        token = await self._prove(text, peer, with_session=scope == SESSION)
        if token is None or self.state_of(token) != "good":
            self._count_failure(peer)
            raise _refused(scope)
        if token.scope != ("user" if scope == SESSION else scope):
            raise Denied(
                f"this token is for {_USE[token.scope]}, not for {_USE[scope]}",
                code="E_TOKEN_SCOPE",
                hint=f"make one with `horae token create NAME{' --agent NODE' if scope == 'agent' else ''}`",
            )
        return token

    async def check_proof(self, proof: Proof, scope: str, peer: str) -> Token:
        """As check, where the token itself was not sent, but a proof that it is there."""
        token = await self._look_up(proof.token_id, peer)
        is_right = hmac.compare_digest(code_of(token.hash if token else _NO_HASH, proof.message), proof.code)
        if token is None or not is_right or token.scope != scope or self.state_of(token) != "good":
            self._count_failure(peer)
            raise _refused(scope)
        return token

    async def still_good(self, token_ids: Collection[int]) -> set[int]:
        """Return those of them that are good now, by one question for all: what is remembered may be old."""
        found = await self._store.load_tokens(sorted(token_ids))
        return {token.id for token in found if self.state_of(token) == "good"}

    async def _prove(self, text: str, peer: str, *, with_session: bool = False) -> Token | None:
        """Return the token whose secret this is. An unknown id takes as long as a wrong secret."""
        parts = _TEXT.fullmatch(text)
        if parts is None:
            return None
        if parts[1] == "s":
            return await self._prove_session(int(parts[2]), parts[3], peer) if with_session else None
        token = await self._look_up(int(parts[2]), peer)
        is_right = hmac.compare_digest(_hash(parts[3]), token.hash if token else _NO_HASH)
        return token if is_right and token and token.scope[0] == parts[1] else None

    async def _prove_session(self, session_id: int, secret: str, peer: str) -> Token | None:
        """Return the token of a session, which is believed for as long as a token is."""
        asked, session = self._sessions.get(session_id, (-math.inf, None))
        now = self._clock.elapsed()
        if session is None:
            self._refuse_guessers(peer)
        if now - asked >= CACHE_SECONDS:
            asked, session = now, await self._store.get_session(session_id)
            self._sessions.pop(session_id, None)  # the newest stands last
        token_id, expected, expires_at = session or (0, _NO_HASH, 0)
        if session is None or not hmac.compare_digest(_hash(secret), expected) or self._clock.now() >= expires_at:
            return None
        self._sessions[session_id] = (asked, session)
        _keep(self._sessions, CACHED)
        return await self._look_up(token_id, peer)

    async def _look_up(self, token_id: int, peer: str) -> Token | None:
        known, now = self._known.get(token_id), self._clock.elapsed()
        if known and now - known.asked < CACHE_SECONDS:
            return known.token
        if known is None or known.token is None:
            self._refuse_guessers(peer)
        token = await within(LOOK_UP_SECONDS, self._store.get_token(token_id))
        self._remember(token_id, token, now)
        return token

    def _remember(self, token_id: int, token: Token | None, asked: float) -> None:
        self._known.pop(token_id, None)  # the newest stands last
        self._known[token_id] = _Known(token, asked)
        _keep(self._known, CACHED)

    def _count_failure(self, peer: str) -> None:
        now = self._clock.elapsed()
        since, count = self._failures.pop(peer, (now, 0))
        self._failures[peer] = (since, count + 1) if now - since < WINDOW else (now, 1)
        _keep(self._failures, PEERS)

    def _refuse_guessers(self, peer: str) -> None:
        since, count = self._failures.get(peer, (0.0, 0))
        if count >= TRIES and self._clock.elapsed() - since < WINDOW:
            raise Limited(f"more than {TRIES} wrong tokens came from this address", hint="wait a minute")


def refuse_beyond(bounds: Bounds, node: Node) -> None:
    """Denied where an agent says to be what its token is not good for."""
    if bounds.node not in (ANY, node.name):
        raise _beyond(f"this token is for the agent {bounds.node}, not for {node.name}", f"--node {bounds.node}")
    if ANY not in bounds.kinds and (others := set(node.kinds) - set(bounds.kinds)):
        raise _beyond(
            f"this token is for {_listed('work of the kinds', bounds.kinds)}, not for {', '.join(sorted(others))}",
            f"--kinds {','.join(bounds.kinds)}",
        )
    own = {label for label in node.labels if not label.startswith(SANDBOX_LABEL)}  # those, it finds by itself
    if ANY not in bounds.labels and (others := own - set(bounds.labels)):
        said = _listed("the labels", bounds.labels)
        raise _beyond(f"this token is for {said}, not for {', '.join(sorted(others))}", "fewer labels")
    if beyond := _resources_beyond(bounds, node):
        said = _listed("the resources", bounds.resources)
        raise _beyond(f"this token is for {said}, not for {', '.join(beyond)}", "less of --resource")


def _resources_beyond(bounds: Bounds, node: Node) -> tuple[str, ...]:
    """Return what an agent offers and may not; how much the machine has it finds by itself."""
    if ANY in bounds.resources:
        return ()
    document = {"resources": resources.amounts_of(bounds.resources)}
    most = dict(resources.read_resources(Fields(document, "", Problems())))
    own = {name: amount for name, amount in node.resources.items() if name in most or name not in resources.OF_MACHINE}
    return resources.words_of(sorted((name, amount) for name, amount in own.items() if amount > most.get(name, 0)))


def _listed(what: str, names: Sequence[str]) -> str:
    return f"{what} {', '.join(names)}" if names else what.replace("the ", "no ")


def _beyond(message: str, less: str) -> Denied:
    hint = f"start the agent with {less}, or make another token with `horae token create`"
    return Denied(f"{message}; {hint}", code="E_TOKEN_BOUNDS", hint=hint)


_USE = {"user": "the HTTP API", "agent": "joining as an agent"}
_USE[SESSION] = _USE["user"]


def _refused(scope: str) -> Unauthenticated:
    if scope == "agent":
        return Unauthenticated(
            "an agent needs a join token that is known, not revoked and not expired",
            code="E_JOIN_TOKEN",
            hint="make one with `horae token create NAME --agent NODE --file F`, and give it with --token-file F",
        )
    return Unauthenticated(
        "this needs a token that is known, not revoked and not expired",
        hint=HOW_TO_LOG_IN,
    )


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode("ascii")).hexdigest()


def _keep(entries: dict[Any, Any], most: int) -> None:
    """Forget the oldest beyond `most`."""
    while len(entries) > most:
        del entries[next(iter(entries))]


def may_see(owner: str, asker: str) -> bool:
    return asker in (owner, OPERATOR)


def refuse_strangers(job: Job, asker: str) -> Job:
    """Return the job, to whoever may read, change or delete it; Denied to everybody else."""
    if may_see(job.owner, asker):
        return job
    raise Denied(
        f"job {job.id} belongs to another user",
        code="E_NOT_OWNER",
        hint="log in as its owner, or with a token of the operator's (`horae token create NAME --owner local`)",
    )
