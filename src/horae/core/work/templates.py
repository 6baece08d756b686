"""Texts with places that are filled for each attempt.

    ${data.user.name}   a part of the run's data: names of members, numbers of items; ${data} is all of it
    ${secret.TOKEN}     the secret of this name
    $${                 the two characters ${ themselves

A text that is one place and nothing else becomes what stands there, whatever its type; within a text it is spelled out.

What must stay true: what was put in is never looked through for places.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from horae.core.fields import shown
from horae.core.secrets.references import NAME_PATTERN
from horae.errors import Invalid

_MARK = re.compile(r"(\$\$\{)|\$\{([^{}]*)(\}?)")
_KNOWN = re.compile(rf"data((?:\.[A-Za-z0-9_-]{{1,64}}){{0,16}})|secret\.({NAME_PATTERN})")
EXPECTED = "${data.PATH} or ${secret.NAME} expected"
HINT = "write $${ for the characters ${ themselves"


class Place(NamedTuple):
    secret: str  # its name; empty: the place is one of the data
    path: tuple[str, ...] = ()


def fault_of(text: str) -> str:
    """Return what is wrong with the places of a text; empty when nothing is."""
    for found in _MARK.finditer(text) if "${" in text else ():
        if not found[1] and not (found[3] and _KNOWN.fullmatch(found[2])):
            return f"{EXPECTED}, got {shown(found[0])}"
    return ""


def secrets_in(text: str) -> list[str]:
    return [part.secret for part in _parts(text) if isinstance(part, Place) and part.secret] if "${" in text else []


@lru_cache(maxsize=4096)
def _parts(text: str) -> tuple[str | Place, ...]:
    """Return a text without faults, taken apart."""
    return tuple(_taken_apart(text))


def _taken_apart(text: str) -> Iterator[str | Place]:
    at = 0
    for found in _MARK.finditer(text):
        if at < found.start():
            yield text[at : found.start()]
        at = found.end()
        known = _KNOWN.fullmatch(found[2]) if found[3] else None
        if known is None:
            yield "${" if found[1] else found[0]
        else:
            yield Place(known[2]) if known[2] else Place("", tuple((known[1] or "").split(".")[1:]))
    if at < len(text):
        yield text[at:]


class Values:
    """What is put in. `escape` is applied to what comes from the data, wherever it is spelled out."""

    def __init__(self, data: Any, secrets: Mapping[str, str]) -> None:
        self._data = data
        self._secrets = secrets

    def fill(self, text: str, escape: Callable[[str], str] = str) -> str:
        """Return a text with its places spelled out. Invalid where the data has no such place."""
        if "${" not in text:
            return text
        return "".join(part if isinstance(part, str) else self._spelled(part, escape) for part in _parts(text))

    def fill_all(self, value: Any) -> Any:
        """Return a document with the places of all its texts filled."""
        if isinstance(value, str):
            parts = _parts(value) if "${" in value else ()
            return self._value(parts[0]) if len(parts) == 1 and isinstance(parts[0], Place) else self.fill(value)
        if isinstance(value, dict):
            return {name: self.fill_all(member) for name, member in value.items()}
        return [self.fill_all(item) for item in value] if isinstance(value, list) else value

    def _spelled(self, place: Place, escape: Callable[[str], str]) -> str:
        value = self._value(place)
        if place.secret:
            return str(value)
        return escape(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":")))

    def _value(self, place: Place) -> Any:
        if place.secret:
            return self._secrets[place.secret]
        value = self._data
        for number, step in enumerate(place.path):
            if isinstance(value, dict) and step in value:
                value = value[step]
            elif isinstance(value, list) and step.isdecimal() and int(step) < len(value):
                value = value[int(step)]
            else:
                raise Invalid(
                    f"the data of the run has no {'.'.join(('data', *place.path[: number + 1]))}", code="E_DATA"
                )
        return value
