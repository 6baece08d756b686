"""The form that asks for the data of a run: a field for each that its handler takes, made from the schema of its data.

What must stay true: a form that is sent as it was shown gives the data that the job has itself. A field that is left
empty is left out, or null where it must be given and may be null. Whether data fits is not judged here: what cannot be
read as what is expected goes on as text, and whoever checks the data finds the words for it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from horae.core.model import Json
from horae.core.shapes import at, resolved
from horae.errors import Error, Invalid, Problem
from horae.web import documents

WHOLE = "data"  # the name of all of it, in problems too
_NOTHING = object()  # in place of a value that the job does not have
_NULL: Json = {"type": "null"}
_BY_FORMAT = {"date": "date", "date-time": "moment"}
_ANSWERS = ("true", "yes"), ("false", "no")


class Field(NamedTuple):
    path: str  # as problems name it
    label: str
    kind: str  # text, lines, number, date, moment, choice, json
    value: Any  # that the job has itself
    text: str  # that stands in it
    about: str = ""
    is_needed: bool = False
    may_be_null: bool = False
    choices: Sequence[tuple[str, str]] = ()  # as JSON, and as people read it
    least: float | None = None
    most: float | None = None
    step: str = "any"


def fields_of(schema: Json | None, data: Json, zone: str) -> list[Field]:
    """Return what is asked for, what must be given first: a field for each that the schema names, and one for all that
    it does not."""
    named = {} if schema is None else schema.get("properties", {})
    if not schema or not named:
        return [_rest(data, "Data", "JSON; empty: what the job has itself")]
    parts, needed = schema.get("$defs", {}), schema.get("required", ())
    found = [
        _field(name, resolved(each, parts), parts, data.get(name, _NOTHING), zone, is_needed=name in needed)
        for name, each in named.items()
    ]
    found.sort(key=lambda each: not each.is_needed)
    if schema.get("additionalProperties", True) is False:
        return found
    others = {name: value for name, value in data.items() if name not in named}
    return [*found, _rest(others, "Further data", "JSON")]


def filled(fields: Sequence[Field], sent: Mapping[str, str]) -> list[Field]:
    """Return fields with what somebody has written into them."""
    return [each._replace(text=sent.get(each.path, "")) for each in fields]


def read(fields: Sequence[Field], sent: Mapping[str, str], zone: str) -> Json | None:
    """Return the data that was written into a form; None: that of the job. Invalid where a field cannot be read."""
    data: Json = {}
    problems: list[Problem] = []
    for each in fields:
        try:
            value = _read(each, sent.get(each.path, ""), zone)
        except Error as error:
            problems += [Problem(each.path, one.code, one.message, one.hint) for one in error.listed()]
            continue
        if each.path == WHOLE and not isinstance(value, dict) and value is not _NOTHING:
            problems.append(Problem(WHOLE, "E_TYPE", 'an object expected, such as {"full": true}'))
        elif each.path == WHOLE and value is not _NOTHING:
            data.update(value)
        elif value is not _NOTHING:
            data[each.label] = value
    if problems:
        raise Invalid.of(problems)
    return None if not data and [each.path for each in fields] == [WHOLE] else data


def problems_by_field(fields: Sequence[Field], error: Error) -> dict[str, list[Problem]]:
    """Return what is wrong with each field; what belongs to none stands under the empty name."""
    found: dict[str, list[Problem]] = {}
    for one in error.listed():
        own = (
            each.path
            for each in fields
            if one.path == each.path or one.path.startswith((f"{each.path}.", f"{each.path}["))
        )
        found.setdefault(next(own, ""), []).append(one)
    return found


def _rest(data: Json, label: str, about: str) -> Field:
    return Field(WHOLE, label, "json", data or _NOTHING, _as_json(data) if data else "", about)


def _field(name: str, schema: Json, parts: Json, value: Any, zone: str, *, is_needed: bool) -> Field:
    kinds = [each for each in _choices_of(schema, parts) if each != _NULL]
    only = kinds[0] if len(kinds) == 1 else {}
    made = Field(
        at(WHOLE, name), name, "json", value, "", about=_about(schema, only), is_needed=is_needed,
        may_be_null=len(kinds) < len(_choices_of(schema, parts)),
    )  # fmt: skip
    if "enum" in only or "const" in only:
        known = [only["const"]] if "const" in only else only["enum"]
        made = made._replace(kind="choice", choices=[(_as_json(each), _shown(each)) for each in known])
    elif only.get("type") == "boolean":
        made = made._replace(kind="choice", choices=_ANSWERS)
    elif only.get("type") in ("integer", "number"):
        step = "1" if only["type"] == "integer" else "any"
        made = made._replace(kind="number", least=only.get("minimum"), most=only.get("maximum"), step=step)
    elif only.get("type") == "string":
        is_long = isinstance(value, str) and "\n" in value
        made = made._replace(kind="lines" if is_long else _BY_FORMAT.get(only.get("format", ""), "text"))
    return made._replace(text=_text_of(made.kind, value, zone))


def _choices_of(schema: Json, parts: Json) -> list[Json]:
    """Return what a value may be, each on its own."""
    if isinstance(schema.get("type"), list):
        return [{**schema, "type": kind} if kind != "null" else _NULL for kind in schema["type"]]
    several = schema.get("anyOf") or schema.get("oneOf")
    return [resolved(each, parts) for each in several] if several else [schema]


def _about(schema: Json, only: Json) -> str:
    said = [str(schema.get("description") or only.get("description") or "")]
    if schema.get("default") is not None:
        said.append(f"otherwise {_shown(schema['default'])}")
    return "; ".join(each for each in said if each)


def _text_of(kind: str, value: Any, zone: str) -> str:
    """Return a value as it stands in a field."""
    if value is _NOTHING or value is None:
        return ""
    if kind in ("json", "choice", "number") or not isinstance(value, str):
        return _as_json(value)
    return _local(value, zone) if kind == "moment" else value


def _local(text: str, zone: str) -> str:
    """Return a moment as the clock of a zone shows it; one that cannot be read, as it is."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return text
    there = found if found.tzinfo is None else found.astimezone(ZoneInfo(zone))
    return there.strftime("%Y-%m-%dT%H:%M:%S")


def _read(field: Field, text: str, zone: str) -> Any:
    text = text.replace("\r\n", "\n")
    if text == field.text and field.value is not _NOTHING:
        return field.value
    if not text.strip():
        return None if field.is_needed and field.may_be_null else _NOTHING
    if field.kind in ("json", "choice"):
        return documents.read_json(text.encode())
    if field.kind == "number":
        return _number(text.strip())
    return _moment(text, zone) if field.kind == "moment" else text


def _number(text: str) -> Any:
    try:
        found = documents.read_json(text.encode())
    except Error:
        return text
    return found if type(found) in (int, float) else text


def _moment(text: str, zone: str) -> str:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return text
    return text if found.tzinfo else found.replace(tzinfo=ZoneInfo(zone)).isoformat()


def _as_json(value: Any) -> str:
    is_small = not isinstance(value, dict | list) or len(value) == 0
    return json.dumps(value, ensure_ascii=False, indent=None if is_small else 2)


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
