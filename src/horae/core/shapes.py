"""Whether data has the shape that a handler asks for: as much of JSON Schema as annotations of Python come to.

What must stay true: data that fits is never refused; what a schema says in words that are not known here is not
checked, and left to whoever converts the data. Patterns are such words: they are somebody's own, and one can take
forever. Nothing here raises.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import date, datetime
from typing import Any
from uuid import UUID

from horae.core.fields import join
from horae.core.model import Json
from horae.core.spelling import suggest
from horae.errors import Problem

Path = tuple[Any, ...]  # steps; words are made of them only when something is wrong

LONGEST_VALUE = 60  # characters of a value that are shown
_DEEPEST = 200  # values within values

_NAMES = {"integer": "int", "number": "float", "string": "str", "boolean": "bool", "array": "list", "object": "mapping"}
_FITS: dict[str, Callable[[Any], bool]] = {
    "integer": lambda value: type(value) is int or (type(value) is float and value.is_integer()),
    "number": lambda value: type(value) in (int, float),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
    "null": lambda value: value is None,
}
_FORMATS: dict[str, Callable[[str], Any]] = {
    "date-time": lambda text: datetime.fromisoformat(text.upper()),
    "date": date.fromisoformat,
    "uuid": UUID,
}
_BOUNDS: dict[str, tuple[str, Callable[[Any, Any], bool]]] = {
    "minimum": ("at least", lambda value, bound: value >= bound),
    "maximum": ("at most", lambda value, bound: value <= bound),
    "exclusiveMinimum": ("more than", lambda value, bound: value > bound),
    "exclusiveMaximum": ("less than", lambda value, bound: value < bound),
}
_SIZES = {"minLength": 1, "minItems": 1, "minProperties": 1, "maxLength": -1, "maxItems": -1, "maxProperties": -1}


def find_problems(schema: Json, data: Any, path: str) -> Iterator[Problem]:
    """Everything in the data that does not fit the schema. `path` is where the data stands. A schema comes from a
    process with other people's code in it: one that cannot be read finds nothing more."""
    with suppress(TypeError, AttributeError, ValueError, RecursionError):
        yield from _check(schema, data, (path,), schema.get("$defs", {}))


def opened(schema: Any) -> Any:
    """Return a schema whose objects may have further fields, unless it says otherwise."""
    if isinstance(schema, list):
        return [opened(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: opened(value) for key, value in schema.items()}
    return {"additionalProperties": True, **made} if made.get("type") == "object" else made


def expectation(expected: str, value: Any) -> str:
    """Return what was expected and what was got, for people."""
    return f"expected {expected}, got {shown(value)}"


def shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= LONGEST_VALUE else text[: LONGEST_VALUE - 1] + "…"


def at(path: str, *steps: Any) -> str:
    for step in steps:
        path = f"{path}[{step}]" if isinstance(step, int) else join(path, str(step))
    return path


def value_at(data: Any, path: str) -> Any:
    """Return what stands at a path, whose first name is that of the data itself; None if nothing does."""
    for name, index in re.findall(r"\.([^.\[]+)|\[(\d+)\]", path):
        if index and isinstance(data, list) and int(index) < len(data):
            data = data[int(index)]
        elif name and isinstance(data, dict):
            data = data.get(name)
        else:
            return None
    return data


def _check(schema: Json, value: Any, path: Path, parts: Json) -> Iterator[Problem]:
    if "$ref" in schema:
        schema = resolved(schema, parts)
    if len(path) > _DEEPEST:
        return
    if choices := schema.get("anyOf") or schema.get("oneOf"):
        yield from _check_choices([resolved(each, parts) for each in choices], value, path, parts)
        return
    kind = schema.get("type")
    if kind is not None and not _is_one_of(value, kind):
        yield _problem(path, expectation(_words(schema), value))
    elif len(schema) > 1 and (fault := _fault(schema, value)):
        yield _problem(path, fault)
    elif isinstance(value, dict):
        yield from _check_object(schema, value, path, parts)
    elif isinstance(value, list):
        yield from _check_list(schema, value, path, parts)


def _is_one_of(value: Any, kinds: Any) -> bool:
    if isinstance(kinds, str):
        fits = _FITS.get(kinds)
        return fits is None or fits(value)
    return any(_is_one_of(value, kind) for kind in kinds)


def _check_choices(choices: list[Json], value: Any, path: Path, parts: Json) -> Iterator[Problem]:
    """Problems of the only choice of the value's own type, if there is one; else all choices are named."""
    found = [list(_check(each, value, path, parts)) for each in choices]
    if all(found):
        here = at(*path)
        near = [problems for problems in found if not any(each.path == here for each in problems)]
        yield from near[0] if len(near) == 1 else [_problem(path, expectation(_words({"anyOf": choices}), value))]


def _check_object(schema: Json, value: Json, path: Path, parts: Json) -> Iterator[Problem]:
    known = schema.get("properties", {})
    for name in schema.get("required", ()):
        if name not in value:
            yield _problem((*path, name), f"is missing: expected {_words(resolved(known.get(name, {}), parts))}")
    rest = schema.get("additionalProperties", True)
    for name, inner in value.items():
        if name in known:
            yield from _check(known[name], inner, (*path, name), parts)
        elif rest is False:
            yield _problem((*path, name), "is not known here", suggest(name, known, repr))
        elif isinstance(rest, dict):
            yield from _check(rest, inner, (*path, name), parts)


def _check_list(schema: Json, value: list[Any], path: Path, parts: Json) -> Iterator[Problem]:
    first = schema.get("prefixItems", [])
    for index, inner in enumerate(value):
        each = first[index] if index < len(first) else schema.get("items")
        if isinstance(each, dict):
            yield from _check(each, inner, (*path, index), parts)


def _fault(schema: Json, value: Any) -> str:
    """Return what is wrong with a value of the right type, leaving out what is inside it."""
    if "enum" in schema and value not in schema["enum"]:
        return expectation(_words(schema), value)
    if "const" in schema and value != schema["const"]:
        return expectation(json.dumps(schema["const"]), value)
    if type(value) in (int, float):
        for word, (words, holds) in _BOUNDS.items():
            if word in schema and not holds(value, schema[word]):
                return expectation(f"{words} {schema[word]}", value)
    if isinstance(value, str | list | dict):
        for word, sign in _SIZES.items():
            if word in schema and _SIZED[word[3:]] is type(value) and (len(value) - schema[word]) * sign < 0:
                return f"expected {'at least' if sign > 0 else 'at most'} {schema[word]} of them, got {len(value)}"
    if isinstance(value, str) and not _has_format(schema.get("format"), value):
        return expectation(_words(schema), value)
    return ""


_SIZED = {"Length": str, "Items": list, "Properties": dict}


def _has_format(name: Any, text: str) -> bool:
    if name not in _FORMATS:
        return True
    with suppress(ValueError):
        _FORMATS[name](text)
        return True
    return False


def resolved(schema: Any, parts: Json) -> Json:
    """Return what a schema means that may only refer to one of the `parts`."""
    for _ in range(_DEEPEST):
        reference = schema.get("$ref") if isinstance(schema, dict) else None
        if not isinstance(reference, str):
            break
        schema = parts.get(reference.rpartition("/")[2], {})
    return schema if isinstance(schema, dict) else {}


def _words(schema: Json) -> str:
    """Return what a schema asks for, for people."""
    if "enum" in schema:
        return "one of " + ", ".join(json.dumps(each, ensure_ascii=False) for each in schema["enum"])
    if choices := schema.get("anyOf") or schema.get("oneOf"):
        return " or ".join(dict.fromkeys(_words(each) for each in choices))
    if schema.get("format") in _FORMATS:
        return f"a {schema['format']}"
    kinds = schema.get("type", "")
    kinds = [kinds] if isinstance(kinds, str) else kinds
    return " or ".join(_NAMES.get(kind, kind) for kind in kinds) or schema.get("title", "a value")


def _problem(path: Path, message: str, hint: str = "") -> Problem:
    return Problem(at(*path), "E_DATA", message, hint)
