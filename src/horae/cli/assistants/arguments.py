"""What a tool takes, checked against its schema before anything is asked: errors name the place and say what fits.

Of JSON Schema there is what our tools need: string (with maxLength, enum), integer (with minimum, maximum), boolean,
object, and arrays of one of them (with maxItems).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from horae.core.spelling import suggest
from horae.errors import Invalid, Problem

Json = dict[str, Any]

_HALF = re.compile("[\ud800-\udfff]")
_KINDS: dict[str, tuple[Any, str]] = {
    "string": (str, "text"),
    "integer": (int, "a whole number"),
    "boolean": (bool, "true or false"),
    "object": (dict, "a JSON object"),
    "array": (list, "a list"),
}


def read(takes: Mapping[str, Json], needs: Sequence[str], given: object) -> Json:
    """Return the arguments of a call, with defaults for what was left out."""
    if not isinstance(given, dict):
        raise Invalid(f"the arguments must be a JSON object, got {_name(given)}", code="E_TYPE", path="arguments")
    problems = [Problem(name, "E_REQUIRED", "is missing") for name in needs if given.get(name) is None]
    for name, value in given.items():
        if name not in takes:
            hint = suggest(name, takes) or f"known are {', '.join(takes) or 'none'}"
            problems.append(Problem(name[:100], "E_UNKNOWN_FIELD", "is no argument of this tool", hint))
        elif value is not None:
            problems += _problems(name, takes[name], value)
    if problems:
        raise Invalid.of(problems)
    return {name: given.get(name) if given.get(name) is not None else takes[name].get("default") for name in takes}


def _problems(path: str, schema: Json, value: Any) -> list[Problem]:
    kind, word = _KINDS[schema["type"]]
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        return [Problem(path, "E_TYPE", f"must be {word}, got {_name(value)}")]
    if kind is list:
        if len(value) > schema["maxItems"]:
            return [Problem(path, "E_LIMIT", f"at most {schema['maxItems']} items, got {len(value)}")]
        return [one for at, each in enumerate(value) for one in _problems(f"{path}[{at}]", schema["items"], each)]
    if "enum" in schema and value not in schema["enum"]:
        allowed = ", ".join(schema["enum"])
        return [
            Problem(path, "E_ENUM", f"must be one of {allowed}; got {value[:40]!r}", suggest(value, schema["enum"]))
        ]
    return _bounds(path, schema, value)


def _bounds(path: str, schema: Json, value: Any) -> list[Problem]:
    if isinstance(value, str):
        if len(value) > schema["maxLength"]:
            return [Problem(path, "E_LEN", f"at most {schema['maxLength']} characters, got {len(value)}")]
        if not value and schema.get("minLength"):
            return [Problem(path, "E_EMPTY", "must not be empty")]
        if _HALF.search(value):
            return [Problem(path, "E_CHAR", "holds half of a surrogate pair, which is no character")]
    if isinstance(value, int) and "minimum" in schema and not schema["minimum"] <= value <= schema["maximum"]:
        span = f"a whole number from {schema['minimum']} to {schema['maximum']}"
        return [Problem(path, "E_RANGE", f"must be {span}, got {str(value)[:40]}")]
    return []


def _name(value: object) -> str:
    known = {bool: "true or false", int: "a number", float: "a number", str: "text", list: "a list", dict: "an object"}
    return known.get(type(value), "nothing")
