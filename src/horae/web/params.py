"""Query parameters: how each is described, read and refused.

A parameter is a row: the operation reads requests by it, and openapi.py describes it. Parameters are strict: unknown,
repeated or unreadable ones are refused, all named at once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl

from horae.core import model
from horae.core.spelling import suggest
from horae.core.time import moments
from horae.errors import Invalid, Malformed, Problem

QUERY_LIMIT = 64  # parameters in one address


@dataclass(frozen=True, slots=True)
class Param:
    """A query parameter (or, with `place`, a header that is only described here)."""

    name: str
    description: str
    schema: model.Json
    read: Callable[[str], Any] = str
    default: Any = None
    place: str = "query"
    many: bool = False  # may be repeated: the values are read as one comma list


def number(name: str, description: str, low: int, high: int, default: int | None = None) -> Param:
    def read(text: str) -> int:
        if not re.fullmatch(r"-?[0-9]{1,30}", text):
            raise Invalid(f"a whole number expected, got {moments.quoted(text)}", code="E_TYPE")
        if not low <= int(text) <= high:
            raise Invalid(f"a number from {low} to {high} expected, got {int(text)}", code="E_RANGE")
        return int(text)

    schema: model.Json = {"type": "integer", "minimum": low, "maximum": high}
    return Param(name, description, schema if default is None else {**schema, "default": default}, read, default)


def identity(name: str, description: str) -> Param:
    return number(name, description, 1, model.LARGEST_ID)


def boolean(name: str, description: str) -> Param:
    def read(text: str) -> bool:
        if text not in ("true", "false"):
            raise Invalid(f"true or false expected, got {moments.quoted(text)}", code="E_TYPE")
        return text == "true"

    return Param(name, description, {"type": "boolean"}, read)


def text(name: str, description: str, longest: int) -> Param:
    def read(value: str) -> str:
        if not value:
            raise Invalid("text expected, got nothing", code="E_EMPTY")
        if len(value) > longest:
            raise Invalid(f"at most {longest} characters expected, got {len(value)}", code="E_LEN")
        if not value.isprintable():
            raise Invalid("control characters are not allowed", code="E_CHAR")
        return value

    schema = {"type": "string", "minLength": 1, "maxLength": longest}
    return Param(name, description, schema, read)


def moment(name: str, description: str) -> Param:
    return Param(name, description, {"type": "string", "format": "date-time"}, moments.parse_moment)


def words(name: str, description: str, known: Mapping[str, Any]) -> Param:
    """Return a comma list of known words, read as their values."""

    def read(value: str) -> tuple[Any, ...]:
        wrong = [word for word in value.split(",") if word not in known]
        if wrong:
            hint = f"known are {', '.join(known)}"
            raise Invalid(f"{moments.quoted(wrong[0])} is not known here", code="E_ENUM", hint=hint)
        return tuple(known[word] for word in value.split(","))

    one = "|".join(known)
    return Param(name, description, {"type": "string", "pattern": f"^({one})(,({one}))*$"}, read, ())


def identities(name: str, description: str, most: int) -> Param:
    """Return a comma list of ids."""
    one = identity(name, "")

    def read(value: str) -> tuple[int, ...]:
        found = value.split(",", most)
        if len(found) > most:
            raise Invalid(f"at most {most} expected", code="E_LEN")
        return tuple(one.read(text) for text in found)

    schema: model.Json = {"type": "string", "pattern": "^[0-9]{1,19}(,[0-9]{1,19})*$"}
    return Param(name, f"{description} At most {most}, with commas.", schema, read, ())


CURSOR = Param(
    "cursor",
    "Where the last page ended: the `cursor` it gave.",
    {"type": "string", "pattern": "^[A-Za-z0-9_.:=-]{1,200}$"},
    lambda value: _cursor(value),
)
LIMIT = number("limit", "How many items a page has at most.", 1, 1000, 100)
IDEMPOTENCY = Param(
    "Idempotency-Key",
    "Chosen by the client. Repeating the request with the same key never acts twice.",
    {"type": "string", "pattern": "^[!-~]{1,200}$"},
    place="header",
)
IF_MATCH = Param(
    "If-Match", "The ETag that was read; refused if it is no longer the current one.", {"type": "string"},
    place="header",
)  # fmt: skip


def _cursor(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_.:=-]{1,200}", value):
        raise Invalid("this is not a cursor", code="E_PATTERN", hint="give back the cursor of the last page")
    return value


def read_query(params: Iterable[Param], query: bytes, *, is_lenient: bool) -> dict[str, Any]:
    """Return the parameters by name, defaults filled in. All that is wrong is named at once. A lenient reader ignores
    what it does not know, and takes the last of what is repeated."""
    known = {param.name: param for param in params if param.place == "query"}
    values = {name: param.default for name, param in known.items()}
    if not query:
        return values
    wrong: list[Problem] = []
    seen: set[str] = set()
    for name, value in _given(query, known, is_lenient):
        try:
            values[name] = _read_param(known, seen, name, value)
        except Invalid as error:
            wrong.append(Problem(name[:60], error.code, error.message, error.hint))
    if wrong:
        raise Invalid.of(wrong)
    return values


def _given(query: bytes, known: Mapping[str, Param], is_lenient: bool) -> list[tuple[str, str]]:
    given = _split_query(query)
    joined: dict[str, list[str]] = {}
    for name, value in given:
        if name in known and known[name].many:
            joined.setdefault(name, []).append(value)
    once = [(name, value) for name, value in given if name not in joined]
    if is_lenient:
        once = list({name: value for name, value in once if name in known}.items())
    return [*once, *((name, ",".join(values)) for name, values in joined.items())]


def _split_query(query: bytes) -> list[tuple[str, str]]:
    try:
        return parse_qsl(query.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=QUERY_LIMIT)
    except UnicodeDecodeError:
        raise Malformed("the query of the address is not UTF-8", code="E_ENCODING") from None
    except ValueError:
        raise Invalid(f"at most {QUERY_LIMIT} query parameters expected", code="E_LIMIT") from None


def _read_param(known: Mapping[str, Param], seen: set[str], name: str, value: str) -> Any:
    if name not in known:
        hint = suggest(name[:60], known) or f"known here: {', '.join(known) or 'none'}"
        raise Invalid("there is no such query parameter here", code="E_UNKNOWN_PARAM", hint=hint)
    if name in seen:
        raise Invalid("this query parameter stands twice", code="E_FIELD_CONFLICT", hint="give it once")
    seen.add(name)
    return known[name].read(value)
