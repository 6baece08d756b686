"""What a handler returns, held against its annotation; and results of other runs, made into what somebody asks for.

    def report(context: Context) -> Total                a dataclass, TypedDict, Struct or pydantic model, alone or in
                                                         a list, a dictionary or a union: what does not fit fails
    def report(context: Context) -> dict, Any, int, …    anything goes, as without an annotation

What must stay true: an annotation that cannot be read, or that says nothing of fields, changes nothing; it is read when
a handler first returns, because it may name what comes below.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from functools import cached_property
from itertools import islice
from types import SimpleNamespace
from typing import Any, TypeVar, get_args, get_type_hints, is_typeddict

import msgspec

from horae.context.forms import NoForm, decode_other, form_of_path, problems_of, shared_schema
from horae.core.model import Json
from horae.core.shapes import find_problems, opened
from horae.errors import MAX_PROBLEMS, Invalid, Problem

T = TypeVar("T")

CODE = "E_RESULT"
_WHOLE = "result"
_PLAIN = (None, "None", dict, "dict", list, "list", Any, "Any", str, "str", int, "int", bool, "bool")


class ResultType:
    """What one function says that it returns."""

    def __init__(self, function: Callable[..., Any], said: Any) -> None:
        self._function = function
        self._said = said

    @cached_property
    def schema(self) -> Json | None:
        """The JSON Schema of what is returned; None if anything goes."""
        source = inspect.unwrap(self._function)
        try:
            hints = get_type_hints(
                SimpleNamespace(__annotations__={"return": self._said}), getattr(source, "__globals__", {}),
                include_extras=True,
            )  # fmt: skip
            return opened(shared_schema(hints["return"], _schema)) if _has_fields(hints["return"]) else None
        except Exception:  # what nobody can read, or has no form, holds nobody up
            return None

    def problems(self, text: bytes) -> list[Problem]:
        """Return what does not fit in a result, as the JSON that it comes to."""
        if self.schema is None:
            return []
        found = islice(find_problems(self.schema, msgspec.json.decode(text), _WHOLE), MAX_PROBLEMS)
        return [Problem(each.path, CODE, each.message, each.hint) for each in found]


def result_type_of(function: Callable[..., Any]) -> ResultType | None:
    """Return what a function says of what it returns; None if that is nothing."""
    said = getattr(inspect.unwrap(function), "__annotations__", {}).get("return")
    return None if any(said is plain or said == plain for plain in _PLAIN) else ResultType(function, said)


def convert_result(value: Any, wanted: type[T]) -> T:
    """Return the result of a run as a type. Invalid with E_RESULT if it does not fit."""
    try:
        return msgspec.convert(value, wanted, dec_hook=decode_other)
    except msgspec.ValidationError as error:
        raise Invalid.of(list(problems_of(error, value, _WHOLE, CODE))) from None
    except NoForm as error:
        raise Invalid(f"a result cannot become {error}", code=CODE, path=_WHOLE) from None


def _has_fields(hint: Any) -> bool:
    """Return whether a type, or one within it, is a class with fields."""
    if isinstance(hint, type) and not get_args(hint):
        is_struct = issubclass(hint, msgspec.Struct) or hasattr(hint, "model_json_schema")
        return is_struct or dataclasses.is_dataclass(hint) or is_typeddict(hint)
    return any(map(_has_fields, (*get_args(hint), getattr(hint, "__origin__", None)) if get_args(hint) else ()))


def _schema(kind: type) -> Json:
    if hasattr(kind, "model_json_schema"):  # pydantic: as it is written, and under the names of its fields
        made: Json = kind.model_json_schema(mode="serialization", by_alias=False, ref_template="#/$defs/{model}")
        return made
    return form_of_path(kind)
