"""A call as steps: what to send, when to pause, when to send again, what an answer means. Nobody here waits.

A call is a generator. It yields a step (a Request, a Pause, a Read of a streamed answer, an item to Give) and is sent
what the step gave, or has the Fault thrown at it that the step ended with. So the twins of the client, which perform
steps, hold no rule, and every rule is the same in both.

A call is repeated only if repeating cannot act twice: reads, and writes with an Idempotency-Key; and whatever was
never sent.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Generator
from typing import Any, Final, Generic, NamedTuple, TypeVar

from horae.client.address import Server
from horae.client.wire import Answer, Open, Request
from horae.errors import (
    Conflict,
    Denied,
    Error,
    Invalid,
    Limited,
    Malformed,
    MediaType,
    NotFound,
    Problem,
    Stale,
    TooLarge,
    Unauthenticated,
    Unavailable,
)
from horae.wire.http import Cut, Fault, Garbled, NotConnected, Silent

Json = dict[str, Any]
T = TypeVar("T")

PAUSES = (0.1, 0.3, 1.0)  # seconds before each repetition of a call
LONGEST_WAIT = 30.0  # seconds that a server may ask us to wait before a repetition
BUSY = frozenset({429, 502, 503, 504})  # statuses after which the same request may succeed
_BY_STATUS: Final[dict[int, type[Error]]] = {
    400: Malformed,
    401: Unauthenticated,
    403: Denied,
    404: NotFound,
    409: Conflict,
    412: Stale,
    413: TooLarge,
    415: MediaType,
    422: Invalid,
    429: Limited,
    502: Unavailable,
    503: Unavailable,
    504: Unavailable,
}


class Pause(NamedTuple):
    seconds: float


class Read(NamedTuple):
    """The next bytes of a streamed answer; none at its end."""

    answer: Answer


class Give(NamedTuple):
    """An item of a stream for whoever reads it."""

    item: Any


class Hear(NamedTuple):
    """What another call of this client tells us there; None if it has not by then."""

    slot: Any  # a future: of asyncio, or of threads
    seconds: float


class Later(NamedTuple):
    """What is to be done when others who have something to do have done it. Nobody waits for it."""

    act: Callable[[], None]


Step = Request | Pause | Read | Give | Hear | Later
Steps = Generator[Step, Any, Any]


class Call(NamedTuple, Generic[T]):
    """Steps that end with a T: as the JSON that was sent, or as what is to be read of it. An object without the member
    `has` is somebody else's answer."""

    steps: Callable[[], Steps]
    has: str = ""
    result: Any = None  # the type that the `result` of a run is to have, if it succeeded
    order: bytes | None = None  # JSON: the same as one of many (client.together)
    answers: Any = None  # to very many orders: making.OrderAnswers


class Stream(NamedTuple, Generic[T]):
    """Steps that give one T after the other."""

    steps: Callable[[], Steps]


def next_step(steps: Steps, outcome: Any, fault: Fault | None) -> Step:
    """Return what to do next, after what the last step gave or the fault that it ended with."""
    return steps.send(outcome) if fault is None else steps.throw(fault)


def ask(request: Request) -> Steps:
    """One exchange, repeated while that is safe; returns its Answer. One that is no success is raised."""
    for pause in (*PAUSES, None):
        try:
            answer: Answer = yield request
        except Fault as fault:
            may_repeat = request.is_repeatable or isinstance(fault, NotConnected)
            if pause is None or not may_repeat:
                raise unreachable(fault) from None
            yield Pause(_spread(pause))
            continue
        wait = _wait_asked(answer, pause) if request.is_repeatable else None
        if wait is None:
            yield from check(request, answer)
            return answer
        if answer.rest is not None:
            answer.rest.close()
        yield Pause(wait)
    raise AssertionError("the last pause is None")


def _wait_asked(answer: Answer, pause: float | None) -> float | None:
    """Return how long to wait before the same request is sent again; None when it is not."""
    if answer.status not in BUSY or pause is None:
        return None
    asked = answer.headers.get("retry-after", "")
    if not asked.isdecimal():
        return _spread(pause)
    return max(float(asked), pause) if float(asked) <= LONGEST_WAIT else None


def _spread(seconds: float) -> float:
    """Return about as much: those who were cut off together must not come back together."""
    return seconds * (0.75 + os.urandom(1)[0] / 512)


def check(request: Request, answer: Answer) -> Steps:
    """Raise what an answer refuses."""
    if answer.is_success:
        return
    if answer.rest is not None:
        answer.body = yield from _read_rest(answer, answer.rest)
    problem = _problem_of(answer)
    path = request.path.partition("?")[0]
    # A list never is "not found": then the server does not know the address.
    is_unknown_address = answer.status == 404 and (not problem or path.count("/") == 2)
    if is_unknown_address or answer.status in (405, 501):
        raise (yield from _unsupported(request.method, path, answer.server))
    raise _error_of(answer.status, problem, answer.server.url)


def _read_rest(answer: Answer, rest: Open) -> Steps:
    body = b""
    try:
        while piece := (yield Read(answer)):
            body += piece
    except Fault as fault:
        raise unreachable(fault) from None
    finally:
        rest.close()
    return body


def _unsupported(method: str, path: str, server: Server) -> Steps:
    try:
        theirs = json.loads((yield Request("GET", "/healthz")).body)["version"]
    except (Fault, ValueError, KeyError, TypeError):
        return foreign(server.url)
    return Unavailable(
        f"server {theirs} does not support {method} {path}",
        hint=f"this is horae {own_version()}: use the version of the server, or upgrade the older of the two",
    )


def own_version() -> str:
    import importlib.metadata  # reads the installation: for the rare case only

    return importlib.metadata.version("horae")


def load(body: bytes, has: str, url: str) -> Json:
    """Return the object that was sent, which has this member: else it is somebody else's answer."""
    try:
        value = json.loads(body)
    except ValueError:
        value = None
    if not isinstance(value, dict) or (has and has not in value):
        raise foreign(url)
    return value


# ── what went wrong, in words ──


def foreign(url: str) -> Unavailable:
    return Unavailable(f"{url} answers, but not as Horae does: is this its address?")


def unreachable(fault: Fault) -> Unavailable:
    """Return what a user is told of a fault, which names its server first."""
    server, why = fault.args
    if "CERTIFICATE_VERIFY_FAILED" in why:
        reason = why.rpartition("failed: ")[2].partition(" (_ssl")[0]
        return Unavailable(
            f"the certificate of {server.url} is not trusted: {reason}",
            hint="name the authority that signed it with --ca-file or HORAE_CA_FILE",
        )
    if isinstance(fault, NotConnected) and server.proxy:
        return Unavailable(f"no Horae at {server.url} by the proxy {server.proxy[0]}:{server.proxy[1]}: {why}")
    if isinstance(fault, NotConnected):
        return Unavailable(f"no Horae at {server.url}; start one with `horae up`")
    if isinstance(fault, Silent):
        return Unavailable(f"Horae at {server.url} did not answer in time; try again")
    if isinstance(fault, Garbled):
        return foreign(server.url)
    assert isinstance(fault, Cut)
    hint = "if it serves TLS, write https://" if server.tls is None else ""
    return Unavailable(f"the connection to Horae at {server.url} broke; try again", hint=hint)


def _problem_of(answer: Answer) -> Json:
    """Return the problem+json body; empty when the answer is none."""
    try:
        body = json.loads(answer.body)
    except ValueError:
        return {}
    return body if isinstance(body, dict) and "code" in body else {}


def _error_of(status: int, problem: Json, url: str) -> Error:
    if not problem:
        return _BY_STATUS.get(status, Error)(f"{url} answered with status {status}")
    return error_of(problem, status)


def error_of(problem: Json, status: int = 0) -> Error:
    """Return the error that a problem+json tells of."""
    kind = _BY_STATUS.get(status or problem.get("status", 0), Error)
    listed = [
        Problem(*(str(one.get(name, "")) for name in ("path", "code", "message", "hint")))
        for one in problem.get("errors", [])
    ]
    return kind(
        str(problem.get("detail") or problem.get("title") or ""),
        code=str(problem["code"]),
        hint=str(problem.get("hint") or ""),
        problems=listed,
    )
