"""Which requests the audit log tells of, and what it says of them: whatever needs more than to read, but for the
reports of workers and agents, which are ordinary transitions of runs; whoever is shown an address that is a credential;
who comes and goes; and whoever was refused."""

from __future__ import annotations

from dataclasses import replace

from horae.core.audit import Deed, Outcome
from horae.core.model import DEFAULT_ORG
from horae.core.roles import Permission
from horae.errors import Denied, Error, Limited, TooOften, Unauthenticated
from horae.ports import deeds
from horae.service.audit import Audit
from horae.web import http

UNTOLD = (Permission.READ, Permission.LOGS, Permission.WORK)
PINGS = "/v1/pings/"  # what others tell of a job that they run: ordinary transitions, too
LOGIN = "/login/callback"  # the one GET that does something
# What everybody may who may read: to let a program in as oneself, to go on in another organisation, and to go.
OWN = ("/device", "/logout", "/organisation", "/v1/me/token", "/v1/sessions/{session_id}")
# What a parameter of a path is the id or the name of; the last one counts. What is none of these may be a secret.
_KINDS = {
    "job_id": "job", "run_id": "run", "trigger_id": "trigger", "token_id": "token", "alert_id": "alert", "id": "",
    "name": "", "segment": "segment", "node": "node",
}  # fmt: skip


def is_told(operation: http.Operation) -> bool:
    """Return whether the audit log tells of an operation that was done."""
    if operation.path == LOGIN or operation.shows_secret:
        return True
    if operation.method == "GET" or operation.scope == "agent" or operation.path.startswith(PINGS):
        return False
    return operation.is_open or operation.path in OWN or operation.needed not in UNTOLD


def is_refusal(error: Error, request: http.Request) -> bool:
    """Return whether somebody may not; strangers also by their guesses. Who asks too often is counted elsewhere."""
    is_guess = isinstance(error, Limited) and not isinstance(error, TooOften) and request.who is None
    return isinstance(error, Unauthenticated | Denied) or is_guess


async def note_page(audit: Audit, error: Error, request: http.Request) -> None:
    """A request ends in a page that says what is wrong: nothing was done, and who may not is told of as ever."""
    if (deed := deeds.pending()) is not None:
        if is_refusal(error, request):
            await audit.refuse(replace(deed), error.code)
        deed.is_void = True


def deed_of(request: http.Request, operation: http.Operation | None) -> Deed:
    """Return who asks for what; None: nothing that there is."""
    who, client = request.who, request.scope.get("client")
    deed = Deed(
        "" if who is None else who.name, DEFAULT_ORG if who is None else who.org, "" if who is None else who.via,
        client[0] if client else "", request_id=request.id,
    )  # fmt: skip
    if operation is not None:
        deed.action = "" if operation.is_open else str(operation.needed)
        deed.operation = f"{operation.method} {operation.path}"
        deed.kind, deed.subject = _subject(request, operation)
        deed.outcome = Outcome.READ if operation.shows_secret else Outcome.DONE
    return deed


def _subject(request: http.Request, operation: http.Operation) -> tuple[str, str]:
    """Return what the path names."""
    given = request.scope.get("path_params") or {}
    if "run_id" in given:  # a name behind it is of something within the run
        return "run", str(given["run_id"])
    for name in reversed([name for name in given if name in _KINDS]):
        is_node = operation.path.startswith("/v1/nodes/")
        return _KINDS[name] or ("node" if is_node else operation.tag.removesuffix("s")), str(given[name])
    return operation.tag.removesuffix("s"), ""
