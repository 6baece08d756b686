"""Why a request came to nothing: one sentence, and the classes by which `retry.on` and `retry.never` name it.

Status503, Status5xx, Status     an answer that was not expected
NameError, ConnectionRefusedError, TLSError, ConnectionError     no connection, or one that broke
TimeoutError                     nobody answered
RedirectError, BodyError         an answer that leads nowhere, or that is too large
AddressError                     a place that is not reached from here
"""

from __future__ import annotations

import errno
import os
import ssl
from http import HTTPStatus

from horae.errors import machine_fault

WORTH_ANOTHER = frozenset({408, 425, 429})  # of 4xx: it may be otherwise the next time
SHOWN = 200  # characters of an answer that a sentence repeats


class Fault(Exception):
    """`final`: another attempt would fare alike, as far as we know. `retry_after`: seconds that the server asks for."""

    def __init__(self, message: str, *classes: str, final: bool = False, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.classes = list(classes)
        self.final = final
        self.retry_after = retry_after


def named_status(status: int) -> str:
    """Return a status with its words, where it has some."""
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)


def status_fault(status: int, expected: list[int | str], body: str, retry_after: float | None) -> Fault:
    wanted = " or ".join(map(str, expected))
    said = " ".join(body.split())
    said = said if len(said) <= SHOWN else f"{said[:SHOWN]}…"
    message = f"the answer is {named_status(status)}, and {wanted} was expected{': ' * bool(said)}{said}"
    is_final = status < 500 and status not in WORTH_ANOTHER
    kind = f"Status{status // 100}xx"
    return Fault(message, f"Status{status}", kind, "Status", final=is_final, retry_after=retry_after)


def unresolved(host: str) -> Fault:
    return Fault(f"the name {host} has no address: is it spelled right?", "NameError", "ConnectionError")


def unconnected(where: str, error: OSError) -> Fault | OSError:
    """Return the fault of a connection that was not made; the error itself, where this machine is to blame."""
    if isinstance(error, TimeoutError):
        return Fault(f"{where} does not answer: no connection came about", "TimeoutError", "ConnectionError")
    if machine_fault(error):
        return error
    if isinstance(error, ssl.SSLError):
        return _untrusted(where, error)
    if error.errno == errno.ECONNREFUSED:
        return Fault(f"{where} refuses connections: nobody listens there", "ConnectionRefusedError", "ConnectionError")
    words = os.strerror(error.errno) if error.errno else str(error) or "it was closed"
    return Fault(f"no connection to {where}: {words}", "ConnectionError")


def _untrusted(where: str, error: ssl.SSLError) -> Fault:
    if isinstance(error, ssl.SSLCertVerificationError):
        why = f"its certificate is not trusted ({error.verify_message.rstrip('.')})"
    elif reason := getattr(error, "reason", ""):  # of those that OpenSSL raises
        why = f"TLS failed ({reason.replace('_', ' ').lower()})"
    else:
        why = str(error.args[-1])
    return Fault(f"no connection to {where}: {why}", "TLSError", "ConnectionError")


def broken(where: str, when: str) -> Fault:
    return Fault(f"the connection to {where} broke {when}", "ConnectionError")


def silent(where: str, when: str, seconds: float) -> Fault:
    return Fault(f"{where} was silent for {seconds:g} s {when}", "TimeoutError")
