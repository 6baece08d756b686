"""What went wrong with a sync, in one sentence for people: the cause, without secrets, and whether a retry can help."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from typing import Any

from horae.core.model import Json
from horae.core.runs.results import clean
from horae.core.work.services import SECRETS
from horae.core.work.syncs import SECRET_FIELDS
from horae.errors import Error, Invalid

HIDDEN = "***"
MAX_MESSAGE = 500  # characters
# Words by which foreign errors tell that the next attempt would fare alike.
_FINAL = re.compile(
    r"authentication failed|does not exist|permission denied|access denied|not allowed|invalid ?access|forbidden|"
    r"unauthorized|\b40[0134]\b|undefined|violates|duplicate key|syntax error|nosuchbucket|signaturedoesnotmatch|"
    r"unknown_table|unknown_database|authentication_failed|type_mismatch|cannot be cast|not supported|"
    r"out of range|invalid input|invalidtext|no such file",
    re.IGNORECASE,
)


def words_for(error: BaseException, spec: Json) -> Json:
    """{"message", "final"} for the note of an attempt that failed."""
    cause = _cause(error)
    text = cause.message if isinstance(cause, Error) else f"{_kind(cause)}{cause}" if str(cause) else _kind(cause)[:-2]
    if isinstance(cause, socket.gaierror):
        text = f"{text} ({' or '.join(_hosts(spec)) or 'no host is named'})"  # it does not say of which name
    sentence = _one_line(hide(text, spec))
    is_final = isinstance(cause, Invalid) or bool(_FINAL.search(sentence))
    advice = "a retry would not help" if is_final else "a retry may help"
    return {"message": f"{sentence[:MAX_MESSAGE].rstrip('.')}; {advice}", "final": is_final}


def _hosts(spec: Json) -> list[str]:
    """Return the names of the machines that a sync asks, each once."""
    places = [spec.get("source") or {}, *(spec.get("destinations") or ())]
    urls = [str(place.get(name) or "") for place in places for name in ("url", "endpoint")]
    hosts = [re.match(r"^(?:jdbc:)?[a-z0-9+]+://(?:[^/@]*@)?(\[[^\]]+\]|[^/:?@]+)", url, re.IGNORECASE) for url in urls]
    return list(dict.fromkeys(found[1] for found in hosts if found))


def _cause(error: BaseException) -> BaseException:
    """Return the innermost error that says something: the layers around it only say where it passed."""
    found = error
    for each in _chain(error):
        if isinstance(each, Error):
            return each
        if str(each).strip():
            found = each
    return found


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        inner = getattr(current, "orig", None) or getattr(current, "exception", None)
        current = inner if isinstance(inner, BaseException) else current.__cause__ or _shown_context(current)


def _shown_context(error: BaseException) -> BaseException | None:
    return None if error.__suppress_context__ else error.__context__


def _kind(error: BaseException) -> str:
    return "" if isinstance(error, RuntimeError | ValueError) else f"{type(error).__name__}: "


def _one_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return clean(re.sub(r"\s+", " ", " ".join(lines[:3])))


def hide(text: str, spec: Json) -> str:
    """Return the text without any secret of the order, nor what stands before @ in an address."""
    for secret in sorted(_secrets(spec), key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    return re.sub(r"(://[^/@\s:]*:)[^/\s@]+(?=@)", rf"\1{HIDDEN}", text)


def _secrets(value: Any, key: str = "") -> Iterator[str]:
    if isinstance(value, dict):
        for name, member in value.items():
            yield from _secrets(member, name)
    elif isinstance(value, list):
        for item in value:
            yield from _secrets(item, key)
    elif isinstance(value, str) and key in SECRET_FIELDS | SECRETS and len(value) > 2:
        yield value
