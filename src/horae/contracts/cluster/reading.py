"""What clients of this contract send: in the query, as a form or as JSON, with two names for some things.

Values are read the same wherever they stand, so a number may come as text. The first rule that is broken is told,
in the contract's own words where it has some. Fields that are not known are ignored, as the contract's servers do.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import parse_qsl

from horae.core import model
from horae.core.fields import Fields, Problems, kind_of
from horae.core.model import SEGMENTS, Json, Moment
from horae.core.time import moments
from horae.errors import Invalid, Malformed, NotFound
from horae.web import documents, http, params

MAX_WORKER = 100  # characters of the name of a worker
MAX_HOST = 253
_WHOLE = re.compile(r"[+-]?[0-9]{1,18}")
_DIGITS = re.compile(r"[0-9]{1,30}")
_WORKER = re.compile(r"[^\s@/\x00-\x1f\x7f][^@/\x00-\x1f\x7f]*")


def query(name: str, description: str, *, many: bool = False) -> params.Param:
    """Return a parameter as it is sent; Sent reads it."""
    return params.Param(name, description, {"type": "string"}, many=many)


class Sent:
    """Named values, wherever they came from."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = {name: value for name, value in values.items() if value is not None}

    @property
    def values(self) -> dict[str, Any]:
        return dict(self._values)

    def any(self, name: str) -> Any:
        return self._values.get(name)

    def text(self, *names: str, needed: str = "", longest: int = MAX_HOST) -> str | None:
        """One line of text under one of these names; `needed` is what to say when there is none."""
        name, value = self._find(names)
        if value is None or (isinstance(value, str) and not value.strip()):
            _require(name, needed)
            return None
        problems = Problems()
        found = Fields({name: value}, "", problems).text(name, longest)
        problems.raise_any()
        return found

    def json(self, name: str, most: int) -> Json | None:
        """Any JSON under this name, kept under it."""
        if name not in self._values:
            return None
        problems = Problems()
        found = Fields({"sent": {name: self._values[name]}}, "", problems).json("sent", most)
        problems.raise_any()
        return found

    def worker(self, *names: str) -> str:
        """Return the name of a worker."""
        name = names[0]
        return worker_name(self.text(*names, needed=f"{name} is required", longest=MAX_WORKER) or "", name)

    def whole(self, *names: str, low: int, high: int, needed: str = "") -> int | None:
        name, value = self._find(names)
        if value is None:
            _require(name, needed)
            return None
        if isinstance(value, str) and _WHOLE.fullmatch(value.strip()):
            value = int(value)
        if type(value) is not int:
            raise _wrong(name, "a whole number", value)
        if not low <= value <= high:
            raise Invalid(f"{name} must be from {low} to {high}", code="E_RANGE", path=name)
        return value

    def instant(self, *names: str, needed: str = "") -> Moment | None:
        name, value = self._find(names)
        if value is None or value == "":
            _require(name, needed)
            return None
        try:
            return moments.parse_moment(value)
        except Invalid as error:
            raise Invalid(f"{name}: {error.message}", code=error.code, path=name, hint=error.hint) from None

    def word(self, name: str, known: Sequence[str], needed: str = "") -> str | None:
        value = self.text(name, needed=needed)
        if value is not None and value.upper() not in known:
            message = f"{name} must be one of {', '.join(known)}, got {moments.quoted(value)}"
            raise Invalid(message, code="E_ENUM", path=name)
        return value and value.upper()

    def _find(self, names: Sequence[str]) -> tuple[str, Any]:
        found = next((name for name in names if name in self._values), names[0])
        return found, self._values.get(found)


def _require(name: str, needed: str) -> None:
    """Nothing was sent: fine, unless it is needed."""
    if needed:
        raise Invalid(needed, code="E_REQUIRED", path=name)


def _wrong(name: str, expected: str, value: object) -> Invalid:
    return Invalid(f"{name} must be {expected}, got {kind_of(value)}", code="E_TYPE", path=name)


def worker_name(text: str, name: str = "workerId") -> str:
    if not _WORKER.fullmatch(text) or len(text) > MAX_WORKER or not text.isprintable():
        expected = f"{name} has 1 to {MAX_WORKER} characters, without / and @, and does not begin with a space"
        raise Invalid(expected, code="E_PATTERN", path=name)
    return text


async def read_sent(request: http.Request) -> Sent:
    """Query and body together; what the body says counts."""
    return Sent({**request.args, **read_body(await request.read())})


async def read_json(request: http.Request, body: bytes | None = None) -> Sent:
    """Return a JSON object, which must be there; `body` is what was read already."""
    body = await request.read() if body is None else body
    if not body.strip():
        raise Malformed("a JSON object is expected, and the body is empty", code="E_BODY_EMPTY")
    return Sent(_object(documents.read_json(body)))


def read_body(body: bytes) -> dict[str, Any]:
    """Return an object or a form, told apart by what it looks like: clients leave the content type to their tools."""
    text = body.strip()
    if not text:
        return {}
    if text[:1] in b'{["' or b"=" not in text:
        return _object(documents.read_json(body))
    try:
        return dict(parse_qsl(text.decode("ascii"), errors="strict", max_num_fields=params.QUERY_LIMIT))
    except ValueError:
        raise Malformed("the body is neither a JSON object nor a form", code="E_SYNTAX") from None


def _object(document: Any) -> dict[str, Any]:
    if not isinstance(document, dict):
        raise Invalid(f"a JSON object is expected, got {kind_of(document)}", code="E_TYPE")
    return document


def read_segments(value: object) -> list[int]:
    """Return a list of segments, or one as text with commas."""
    parts = [part.strip() for part in value.split(",")] if isinstance(value, str) else value
    if not isinstance(parts, list):
        raise _wrong("segments", "a list of segments", value)
    if len(parts) > SEGMENTS:
        raise Invalid(f"there are {SEGMENTS} segments, got {len(parts)}", code="E_LIMIT", path="segments")
    return sorted({_segment(part) for part in parts})


def _segment(part: object) -> int:
    found = Sent({"segments": part}).whole("segments", low=0, high=SEGMENTS - 1, needed="segments must not be null")
    assert found is not None
    return found


def path_id(request: http.Request, name: str = "job_id") -> int:
    """Return the id in the path. What cannot be one is a mistake; what is none that was ever given does not exist."""
    text = request.scope["path_params"][name]
    if not _DIGITS.fullmatch(text.removeprefix("-")):
        raise Invalid(f"a job id is a whole number, got {moments.quoted(text)}", code="E_TYPE", path=name)
    if not 0 < int(text) <= model.LARGEST_ID:
        raise NotFound(f"there is no job {moments.quoted(text)}")
    return int(text)


def path_worker(request: http.Request) -> str:
    return worker_name(request.scope["path_params"]["worker"])
