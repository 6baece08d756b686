"""Bodies that say which jobs or runs are meant: named one by one, or found by a filter."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Generic, NamedTuple, TypeVar

from horae.core import model
from horae.core.fields import Fields, fields_of, kind_of, type_words

Where = TypeVar("Where")


class Chosen(NamedTuple, Generic[Where]):
    """Which are meant, and whether that is all that is asked."""

    ids: list[int]
    where: Where | None  # None: those with the ids
    is_dry: bool


def read_chosen(fields: Fields, name: str, most: int, read_where: Callable[[Fields], Where]) -> Chosen[Where]:
    """Return what `name` (jobs, runs), `where` and `dry_run` say. What is wrong is told to the fields' problems."""
    if "where" in fields.values and name in fields.values:
        fields.fault("where", "E_FIELD_CONFLICT", f"{name} are named one by one already", "keep one of them")
    elif "where" not in fields.values:
        fields.require(name, f"which {name}? give their ids as {name}, or where")
    ids = fields.items(name, most, name, least=1)
    for number, one in enumerate(ids):
        if type(one) is not int or not 1 <= one <= model.LARGEST_ID:
            words = type_words(f"must be a whole number, the id of a {name.removesuffix('s')}", one)
            fields.problems.add(f"{name}[{number}]", "E_TYPE", *words)
    known = list(dict.fromkeys(one for one in ids if type(one) is int))
    return Chosen(known, _filter(fields, read_where), bool(fields.flag("dry_run")))


def _filter(fields: Fields, read_where: Callable[[Fields], Where]) -> Where | None:
    if "where" not in fields.values:
        return None
    inner = fields_of(fields.values["where"], "where", fields.problems, "must be an object")
    return None if inner is None else read_where(inner)


def read_states(fields: Fields, known: Mapping[str, model.State]) -> tuple[model.State, ...]:
    """Return the states that `state` names; none where it is not given, or makes no sense."""
    words = fields.items("state", len(known), "states", least=1) if "state" in fields.values else []
    for word in words:
        if type(word) is not str or word not in known:
            got = repr(word[:60]) if isinstance(word, str) else kind_of(word)
            fields.fault("state", "E_ENUM", f"one of {', '.join(known)}, got {got}")
            return ()
    return tuple(known[word] for word in words)
