"""Types that somebody wrote, as JSON Schemas and as what values become: those of msgspec, paths, models of pydantic."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import PurePath
from typing import Any

import msgspec

from horae.core.model import Json
from horae.core.shapes import at, expectation, shown, value_at
from horae.errors import Problem

_PLACE = re.compile(r"(?P<text>.*) - at `\$(?P<path>.*)`", re.DOTALL)
REFERENCE = "#/$defs/{name}"


class NoForm(Exception):
    """A type that plain values cannot be converted to."""


def decode_other(kind: type, value: Any) -> Any:
    if issubclass(kind, PurePath):
        if isinstance(value, str):
            return kind(value)
        raise ValueError("expected str")
    if hasattr(kind, "model_validate"):  # pydantic
        return kind.model_validate(value)
    raise NoForm(f"{kind.__module__}.{kind.__qualname__}")


def shared_schema(kind: Any, hook: Callable[[type], Json]) -> Json:
    """Return the JSON Schema of a type, with what it refers to in its `$defs`. `hook` has those that msgspec does not
    know."""
    (found,), parts = msgspec.json.schema_components((kind,), schema_hook=hook, ref_template=REFERENCE)
    every = dict(_with_inner({**parts, "": found}))
    root = every.pop("")
    return {**every.get(root.get("$ref", "").rpartition("/")[2], root), "$defs": every}


def form_of_path(kind: type) -> Json:
    if issubclass(kind, PurePath):
        return {"type": "string"}
    raise NoForm(f"{kind.__module__}.{kind.__qualname__}")


def _with_inner(parts: dict[str, Json]) -> Iterator[tuple[str, Json]]:
    """The parts of a schema, and those that stand within them."""
    for name, part in parts.items():
        yield name, {key: value for key, value in part.items() if key != "$defs"}
        yield from part.get("$defs", {}).items()


def problems_of(error: msgspec.ValidationError, data: Any, whole: str, code: str) -> Iterator[Problem]:
    """What a conversion found wrong with data that is called `whole`."""
    match = _PLACE.fullmatch(str(error))
    text, place = (match["text"], match["path"]) if match else (str(error), "")
    cause = error.__cause__
    if cause is not None and hasattr(cause, "errors"):  # pydantic lists all of them
        for each in cause.errors():
            path = at(whole + place, *each["loc"])
            text = each["msg"].removeprefix("Value error, ")
            yield Problem(path, code, f"{text}, got {shown(value_at(data, path))}")
        return
    expected = re.fullmatch(r"Expected `(?P<kind>[^`]+)`, got `[^`]+`", text)
    value = value_at(data, whole + place)
    said = expectation(expected["kind"], value) if expected else f"{text.replace('`', '')}, got {shown(value)}"
    yield Problem(whole + place, code, said)
