"""Calls from outside that fire a trigger (core.time.outside): whether one is genuine, what it is about, what its run is
given.

    format   signed by                                       known again by         tells of
    plain    X-Horae-Signature: t=<unix>,v1=<hex>            Idempotency-Key, or    whatever its JSON object says
             of "<t>.<body>", at most five minutes old       the signature
    github   X-Hub-Signature-256: sha256=<hex> of the body   X-GitHub-Delivery      X-GitHub-Event
    gitea    X-Gitea-Signature: <hex> of the body            X-Gitea-Delivery       X-Gitea-Event

All signatures are HMAC with SHA-256.

What must stay true: signatures and tokens are compared in constant time; nothing that a stranger sends raises anything
but an Error, whatever its shape.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from horae.core.fields import Fields, Problems, encoded
from horae.core.jobdata import MAX_DATA
from horae.core.model import Json
from horae.core.time.outside import GITEA, GITHUB, PLAIN, PUSH
from horae.core.work.builds import Globs
from horae.errors import Invalid, Malformed, Unauthenticated

TOLERANCE = 300  # seconds between the clock of a plain caller and ours
MAX_BODY = 1 << 20  # bytes of a call
MAX_TOLD = 100 << 10  # bytes of data with all that a system says: more would not fit into a variable of a shell step
MAX_MESSAGE = 4096  # characters of what a commit says
MAX_KEY = 200  # characters of the name of a delivery
_PLAIN_SIGNATURE = re.compile(r"t=([0-9]{1,12}),v1=([0-9a-f]{64})")
_VISIBLE = re.compile(r"[\x21-\x7e]{1,200}")
_HEADS, _TAGS = "refs/heads/", "refs/tags/"


class Names(NamedTuple):
    """The headers of a system, lower case."""

    signature: str
    delivery: str
    event: str = ""
    prefix: str = ""  # before the signature


_NAMES = {
    PLAIN: Names("x-horae-signature", "idempotency-key"),
    GITHUB: Names("x-hub-signature-256", "x-github-delivery", "x-github-event", "sha256="),
    GITEA: Names("x-gitea-signature", "x-gitea-delivery", "x-gitea-event"),
}
HEADERS = frozenset(name for names in _NAMES.values() for name in names[:3] if name)  # that are looked at


class Call(NamedTuple):
    """What came: headers by their names in lower case, and the body as it was sent."""

    headers: Mapping[str, str]
    body: bytes


class Ignored(NamedTuple):
    """A call that is genuine, and of which no run is made."""

    why: str


# ── is it genuine? ─────────────────────────────────────────────────────────────────────────────────


def hash_of(token: str) -> str:
    """Return what is kept of the token of an address. It is random, and long: nobody guesses it from this."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def is_token(token: str, kept: str | None) -> bool:
    """Return whether a token is the one of which this hash was kept; in the same time where there is none."""
    return hmac.compare_digest(hash_of(token), kept or "0" * 64)


def sign(secret: str, text: bytes) -> str:
    return hmac.new(secret.encode(), text, hashlib.sha256).hexdigest()


def sign_plain(secret: str, body: bytes, at: int) -> str:
    """Return X-Horae-Signature; `at` in seconds since 1970."""
    return f"t={at},v1={sign(secret, b'%d.%b' % (at, body))}"


def check_signature(form: str, secret: str, call: Call, now: float) -> None:
    """Refuse a call that is not signed with the secret; `now` in seconds since 1970."""
    name = _NAMES[form].signature
    given = call.headers.get(name)
    if given is None:
        raise _refusal(f"this webhook has a secret, and the header {name} is missing")
    if form == PLAIN:
        _check_plain(secret, given, call.body, now)
    else:
        expected = _NAMES[form].prefix + sign(secret, call.body)
        if not given.isascii() or not hmac.compare_digest(given, expected):
            raise _refusal(f"the header {name} is not the signature of this body")


def _check_plain(secret: str, given: str, body: bytes, now: float) -> None:
    found = _PLAIN_SIGNATURE.fullmatch(given)
    if found is None:
        raise _refusal("x-horae-signature must be t=<seconds since 1970>,v1=<64 hexadecimal digits>")
    at = int(found[1])
    if not hmac.compare_digest(found[2], sign(secret, b"%b.%b" % (found[1].encode(), body))):
        raise _refusal("the header x-horae-signature is not the signature of this body")
    if abs(now - at) > TOLERANCE:
        raise _refusal(
            f"the signature is of another time: at most {TOLERANCE // 60} minutes may lie between the clocks"
        )


def _refusal(message: str) -> Unauthenticated:
    return Unauthenticated(
        message, code="E_SIGNATURE", hint="sign the body as it is sent, with the secret of the trigger"
    )


def delivery_key(form: str, call: Call, *, is_signed: bool) -> str | None:
    """Return by what a repeat of a call is known; None where nothing tells. `is_signed`: the signature was checked."""
    names = _NAMES[form]
    key = call.headers.get(names.delivery)
    if key is not None and not _VISIBLE.fullmatch(key):
        message = f"{names.delivery} has 1 to {MAX_KEY} visible ASCII characters"
        raise Invalid(message, code="E_CHAR", path=names.delivery)
    return key or (call.headers[names.signature] if is_signed and form == PLAIN else None)


# ── what is it about? ──────────────────────────────────────────────────────────────────────────────


def read_call(hook: Json, call: Call, said: Any, own: Json | None) -> Json | Ignored | None:
    """Return the data of the run, None where that of the job shall do, or why there is none. `said` is the body, read;
    `own` what the trigger gives to all of its runs."""
    if hook["format"] == PLAIN:
        if said is not None and not isinstance(said, dict):
            raise Invalid("the body of a call must be a JSON object: it is the data of the run", code="E_TYPE")
        return None if said is None and own is None else _data({**(own or {}), **(said or {})})
    event = call.headers.get(_NAMES[hook["format"]].event)
    if event is None:
        raise Malformed(f"the header {_NAMES[hook['format']].event} is missing", code="E_HEADER")
    if event not in (wanted := hook.get("events", (PUSH,))):
        return Ignored(f"nothing is done for {event!r:.100} here, only for {' and '.join(wanted)}")
    if not isinstance(said, dict):
        raise Invalid("the body of a call must be a JSON object", code="E_TYPE")
    if event == PUSH and (why := _unwanted(hook, said)):
        return Ignored(why)
    return _with_payload({**(own or {}), **_facts(event, said)}, said)


def _unwanted(hook: Json, said: Json) -> str:
    """Why a push makes no run."""
    ref = _text(said, "ref")
    if ref is None:
        raise Invalid("ref: a push names the branch that was pushed", code="E_REQUIRED", path="ref")
    branch = ref.removeprefix(_HEADS)
    if ref.startswith(_TAGS):
        return "a tag was pushed, and only branches count here"
    if said.get("deleted") is True or not (_text(said, "after") or "0").strip("0"):
        return f"the branch {branch!r:.100} was deleted"
    wanted = hook.get("branches")
    if wanted is not None and not any(_is_branch(branch, name) for name in wanted):
        return f"the push is to {branch!r:.100}, and only {' and '.join(wanted)} count here"
    return ""


def _is_branch(branch: str, name: str) -> bool:
    return Globs([name]).match(branch) if "*" in name else branch == name


def _facts(event: str, said: Json) -> Json:
    """What both systems tell, in one form."""
    commits = said.get("commits")
    last = commits[-1] if isinstance(commits, list) and commits else None
    ref = _text(said, "ref")
    found = {
        "event": event,
        "repository": _text(said, "repository", "full_name"),
        "clone_url": _text(said, "repository", "clone_url"),
        "branch": ref.removeprefix(_HEADS) if ref is not None and ref.startswith(_HEADS) else None,
        "commit": _text(said, "after") or _text(said, "head_commit", "id"),
        "pusher": _text(said, "pusher", "name") or _text(said, "pusher", "login") or _text(said, "pusher", "username"),
        "message": (_text(said, "head_commit", "message") or _text(last, "message") or "")[:MAX_MESSAGE],
    }  # fmt: skip
    return {name: value for name, value in found.items() if value}


def _text(said: Any, *path: str) -> str | None:
    for name in path:
        said = said.get(name) if isinstance(said, dict) else None
    return said if isinstance(said, str) and said else None


def _with_payload(facts: Json, said: Json) -> Json:
    """With the whole of what was said, if it is not too much."""
    text = encoded({**facts, "payload": said})
    fits = text is not None and len(text.encode()) <= MAX_TOLD
    return _data({**facts, "payload": said} if fits or text is None else facts)


def _data(value: Json) -> Json:
    problems = Problems()
    found = Fields({"data": value}, "", problems).json("data", MAX_DATA)
    problems.raise_any()
    return found
