"""What a handler's parameters ask for, and the data that they are given.

    def report(context: Context) -> …                    the context; its `data` is the data of the run as it came
    def report(context: Context, data: Report) -> …      `data`: the whole of it, as a dataclass, TypedDict, Struct, …
    def add(a: int, b: int = 2) -> …                     any other: the field of that name

A parameter gets the context if it is named `context`, is annotated so, or is the first and has no annotation. What
stands in the data and is not asked for is refused, unless a `**` or a pydantic model takes it.

What must stay true: a handler is called with what its annotations say or not at all; a function that takes nothing but
its context costs nothing; annotations are read when they are first needed, because they may name what comes below.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import datetime
from functools import cached_property
from itertools import islice
from types import SimpleNamespace, UnionType
from typing import Any, NotRequired, Required, TypedDict, Union, get_args, get_origin, get_type_hints

import msgspec

from horae.context import Context
from horae.context.forms import REFERENCE, NoForm, decode_other, form_of_path, problems_of, shared_schema
from horae.core.model import Json
from horae.core.shapes import find_problems, opened
from horae.errors import MAX_PROBLEMS, Invalid

WHOLE = "data"  # the parameter that is given all of it
_OTHERS = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def signature_of(function: Callable[..., Any]) -> Signature | None:
    """Return what a function asks for beside its context; None if that is nothing."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return None
    first = parameters[:1]
    if len(parameters) == 1 and (first[0].kind in _OTHERS or _takes_context(first[0], is_first=True)):
        return None
    if [each.kind for each in parameters] == list(_OTHERS):  # a decorator that passes on whatever it is given
        return None
    return Signature(function, parameters)


def bind(function: Callable[..., Any], signature: Signature) -> Callable[[Context], Any]:
    """Return the function as one of the context alone."""

    async def run_async(context: Context) -> Any:
        return await function(**signature.arguments(context))

    def run(context: Context) -> Any:
        return function(**signature.arguments(context))

    return run_async if inspect.iscoroutinefunction(function) else run


class Signature:
    def __init__(self, function: Callable[..., Any], parameters: list[inspect.Parameter]) -> None:
        self._function = function
        self._whose = getattr(function, "__qualname__", str(function))
        self._contexts = [each.name for n, each in enumerate(parameters) if _takes_context(each, is_first=n == 0)]
        self._others = [each for each in parameters if each.name not in self._contexts and each.kind not in _OTHERS]
        self._takes_rest = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters)
        self._is_whole = any(each.name == WHOLE for each in self._others)
        if self._is_whole and len(self._others) > 1:
            raise self._refused(f"`{WHOLE}` is all of the data; its fields belong into its type, not beside it")
        if strange := [each.name for each in parameters if each.kind is inspect.Parameter.POSITIONAL_ONLY]:
            raise self._refused(f"{strange[0]!r} can only be given by position: leave out the /")

    def arguments(self, context: Context) -> dict[str, Any]:
        """Return what the function is called with. Invalid with E_DATA, and every problem, if the data does not fit."""
        problems = list(islice(find_problems(self.schema, context.data, WHOLE), MAX_PROBLEMS + 1))
        if problems:
            raise Invalid.of(problems)
        try:
            made = msgspec.convert(context.data, self._type, dec_hook=decode_other)
        except msgspec.ValidationError as error:
            raise Invalid.of(list(problems_of(error, context.data, WHOLE, "E_DATA"))) from None
        except NoForm as error:
            raise self._refused(f"data cannot become {error}") from None
        given = {WHOLE: made} if self._is_whole else {**context.data, **made} if self._takes_rest else made
        return {**dict.fromkeys(self._contexts, context), **given}

    @cached_property
    def schema(self) -> Json:
        """The JSON Schema of the data; an empty one if anything goes."""
        if self._type is Any:
            return {}
        try:
            schema = shared_schema(self._type, _schema)
        except TypeError:  # a default that has no form in JSON: what is given is still converted
            return {"type": "object"}
        except NoForm as error:
            raise self._refused(f"data cannot become {error}") from None
        every = schema.pop("$defs")
        root = _with_moments(schema, self._type)
        rest = {"additionalProperties": True} if self._takes_rest else {}
        closed: Json = _closed({**root, **rest, "$defs": every})
        return closed

    @cached_property
    def _type(self) -> Any:
        hints = self._hints()
        if self._is_whole:
            return hints.get(WHOLE, Any)
        fields = {
            each.name: (Required if each.default is each.empty else NotRequired)[hints.get(each.name, Any)]
            for each in self._others
        }
        return TypedDict(self._whose.rpartition(".")[2], fields)  # type: ignore[operator]

    def _hints(self) -> dict[str, Any]:
        """Of the parameters that take data alone: others may name what only a type checker imports."""
        written = {each.name: each.annotation for each in self._others if each.annotation is not each.empty}
        try:
            source = inspect.unwrap(self._function)
            return get_type_hints(
                SimpleNamespace(__annotations__=written), getattr(source, "__globals__", {}), include_extras=True
            )
        except Exception as error:
            raise self._refused(f"its annotations cannot be read: {error}") from None

    def _refused(self, message: str) -> Invalid:
        return Invalid(f"the handler {self._whose}: {message}", code="E_HANDLER")


def _takes_context(parameter: inspect.Parameter, *, is_first: bool) -> bool:
    said = parameter.annotation
    if parameter.kind in _OTHERS:
        return False
    if isinstance(said, str):  # not read yet
        return parameter.name == "context" or said.strip("'\" ").rpartition(".")[2] == Context.__name__
    return parameter.name == "context" or said is Context or (is_first and said is parameter.empty)


# ── types that msgspec does not know by itself ─────────────────────────────────────────────────────


def _schema(kind: type) -> Json:
    if hasattr(kind, "model_json_schema"):
        schema: Json = opened(kind.model_json_schema(ref_template=REFERENCE.replace("name", "model")))
        return schema
    return form_of_path(kind)


def _with_moments(root: Json, kind: Any) -> Json:
    """Return a schema that says of fields that they are moments: msgspec does so only of those that need a zone."""
    try:
        hints = get_type_hints(kind, include_extras=True)
    except Exception:  # what can be converted has no need of them
        return root
    shown = {
        name: _moment_schema(schema) if _is_moment(hints.get(name)) else schema
        for name, schema in root.get("properties", {}).items()
    }
    return {**root, "properties": shown} if shown else root


def _is_moment(hint: Any) -> bool:
    bare = get_args(hint)[0] if get_origin(hint) in (Required, NotRequired) else hint
    return bare is datetime or (
        get_origin(bare) in (Union, UnionType) and set(get_args(bare)) == {datetime, type(None)}
    )


def _moment_schema(schema: Json) -> Json:
    if "anyOf" in schema:
        return {**schema, "anyOf": [_moment_schema(each) for each in schema["anyOf"]]}
    return {**schema, "format": "date-time"} if schema.get("type") == "string" else schema


def _closed(schema: Any) -> Any:
    """Return a schema in which objects have the fields that they name, and no others unless they say so."""
    if isinstance(schema, list):
        return [_closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: value if key in ("default", "enum") else _closed(value) for key, value in schema.items()}
    return {"additionalProperties": False, **made} if made.get("type") == "object" and "properties" in made else made
