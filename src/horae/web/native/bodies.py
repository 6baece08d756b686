"""Small request bodies, read field by field."""

from __future__ import annotations

from typing import Any

from horae.core import model
from horae.core.fields import Fields, Problems, fields_of
from horae.core.time import moments
from horae.errors import Invalid


def read_fields(document: Any, *known: str) -> Fields:
    problems = Problems()
    fields = fields_of(document, "", problems, "an object expected")
    if fields is None:
        problems.raise_any()
        raise AssertionError("a problem was noted")
    fields.refuse_others(frozenset(known))
    return fields


def read_moment(fields: Fields, name: str) -> model.Moment | None:
    if name not in fields.values:
        return None
    try:
        return moments.parse_moment(fields.values[name])
    except Invalid as error:
        fields.problems.adopt(name, error)
        return None
