"""Requests as they are sent: made from the spec and the data of a run, and made anew where an answer leads elsewhere.

What must stay true: nothing that is put into a request can end one of its lines; no secret goes to an origin that the
job does not name; a header that the job sets is never replaced by ours.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote, urljoin

import msgspec

from horae.core.model import Json
from horae.core.runs.traces import trace_id
from horae.core.time.moments import format_moment
from horae.core.work.requests import BODILESS, default_method, header_fault, split_url, url_fault
from horae.core.work.templates import Values, secrets_in
from horae.errors import Invalid
from horae.executors.http.connections import Origin
from horae.executors.http.faults import Fault
from horae.ports.work import Work

REDIRECTS = frozenset({301, 302, 303, 307, 308})
SENDS_DATA = ("POST", "PUT", "PATCH")
_CREDENTIALS = frozenset({"authorization", "cookie"})
_ABOUT_BODY = frozenset({"content-type", "content-encoding", "content-language", "content-md5", "digest"})
KEPT = "%/?:@!$&'()*+,;=~-._[]|{}"  # signs of an address that are sent as they are
_GENTLE = "GET", "HEAD", "PUT", "DELETE", "OPTIONS"


@dataclass(frozen=True, slots=True)
class Outgoing:
    method: str
    origin: Origin
    target: str  # path and query
    headers: dict[str, tuple[str, str]]  # by their names in small letters
    body: bytes
    private: frozenset[str]  # headers that are for this origin alone
    has_private_body: bool

    @property
    def url(self) -> str:
        return f"{self.origin.scheme}://{self.origin.authority}{self.target}"

    @property
    def is_repeatable(self) -> bool:
        """Return whether sending it again does what sending it once does."""
        return self.method in _GENTLE

    def encode(self) -> bytes:
        lines = [f"{self.method} {self.target} HTTP/1.1", f"Host: {self.origin.authority}"]
        lines += [f"{name}: {value}" for name, value in self.headers.values()]
        if self.body or self.method not in BODILESS:
            lines.append(f"Content-Length: {len(self.body)}")
        return "\r\n".join((*lines, "\r\n")).encode("ascii") + self.body

    def redirected(self, status: int, location: str) -> Outgoing:
        """Return what an answer asks for in its place. Fault where that may not be."""
        origin, target = _place(self.url, location)
        moved = replace(self, origin=origin, target=target)
        if status == 303 or (status in (301, 302) and self.method == "POST"):
            kept = {name: one for name, one in self.headers.items() if name not in _ABOUT_BODY}
            method = "HEAD" if self.method == "HEAD" else "GET"
            moved = replace(moved, method=method, headers=kept, body=b"", has_private_body=False)
        if origin == self.origin:
            return moved
        if self.origin.scheme == "https" and origin.scheme != "https":
            raise _astray(f"leads from https to {moved.url}, which anybody on the way could read")
        if moved.has_private_body:
            raise _astray(f"leads to {origin.authority}, and what is sent holds a secret for {self.origin.authority}")
        others = {name: one for name, one in moved.headers.items() if name not in self.private}
        return replace(moved, headers=others, private=frozenset())


def _place(url: str, location: str) -> tuple[Origin, str]:
    try:
        wanted = urljoin(url, quote(location.partition("#")[0], safe=KEPT))
    except ValueError:
        raise _astray("leads to an address that cannot be read") from None
    if why := url_fault(wanted)[0]:
        raise _astray(f"leads to an address that cannot be used: {why}")
    return origin_of(wanted)


def _astray(why: str) -> Fault:
    return Fault(f"the answer {why}", "RedirectError", final=True)


def origin_of(url: str) -> tuple[Origin, str]:
    """Return where an address leads, and what is asked for there."""
    scheme, authority, rest = split_url(url)
    host, colon, port = authority.rpartition(":") if not authority.endswith("]") else (authority, "", "")
    host = (host if colon else authority).strip("[]").lower()
    number = int(port) if colon else 443 if scheme == "https" else 80
    return Origin(scheme, host, number), rest if rest.startswith("/") else f"/{rest}"


def first_request(work: Work) -> Outgoing:
    """Return the request of an attempt. Fault where the data of the run does not fit."""
    asked: Json = work.spec["http"]
    given = work.assignment.data
    data = work.spec.get("data") or {} if given is None else msgspec.json.decode(given)
    values = Values(data, asked.get("secrets") or {})
    try:
        origin, target = origin_of(asked["url"])
        target = quote(values.fill(target, lambda text: quote(text, safe="")), safe=KEPT)
        method = default_method(asked)
        body, about = _body(asked, method, values, data)
        headers = {**_own_headers(work), **about, **_job_headers(asked, values)}
    except Invalid as error:
        raise Fault(f"the request cannot be made: {error.message} ({error.code})", "DataError", final=True) from None
    private = {name.lower() for name, text in (asked.get("headers") or {}).items() if secrets_in(text)}
    texts = str(asked.get("json")) + str(asked.get("body"))
    return Outgoing(method, origin, target, headers, body, _CREDENTIALS | private, bool(secrets_in(texts)))


def _own_headers(work: Work) -> dict[str, tuple[str, str]]:
    """Return what tells the server of the run: attempts of one run have the same key."""
    a = work.assignment
    own = {
        "Accept": "*/*",
        "Accept-Encoding": "identity",
        "User-Agent": "horae",
        "Idempotency-Key": trace_id(a.run_id, work.installation),
        "X-Horae-Run-Id": str(a.run_id),
        "X-Horae-Attempt": str(a.attempt),
        "X-Horae-Scheduled-For": format_moment(a.due_at),
        "traceparent": work.traceparent,
    }
    return {name.lower(): (name, value) for name, value in own.items()}


def _job_headers(asked: Json, values: Values) -> dict[str, tuple[str, str]]:
    found = {}
    for name, text in (asked.get("headers") or {}).items():
        value = values.fill(text)
        if why := header_fault(value):
            raise Invalid(f"the header {name} cannot be sent: {why}", code="E_CHAR")
        found[name.lower()] = (name, value)
    return found


def _body(asked: Json, method: str, values: Values, data: Any) -> tuple[bytes, dict[str, tuple[str, str]]]:
    """Return what is sent, and the header that says what it is."""
    if "body" in asked:
        return values.fill(asked["body"]).encode(), _typed("text/plain; charset=utf-8")
    if "json" in asked:
        return msgspec.json.encode(values.fill_all(asked["json"])), _typed("application/json")
    if method in SENDS_DATA and data:
        return msgspec.json.encode(data), _typed("application/json")
    return b"", {}


def _typed(kind: str) -> dict[str, tuple[str, str]]:
    return {"content-type": ("Content-Type", kind)}
