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
import re
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import cached_property
from itertools import islice
from pathlib import PurePath
from types import SimpleNamespace, UnionType
from typing import Any, NotRequired, Required, TypedDict, Union, get_args, get_origin, get_type_hints

import msgspec

from horae.context import Context
from horae.core.model import Json
from horae.core.shapes import at, expectation, find_problems, opened, shown, value_at
from horae.errors import MAX_PROBLEMS, Invalid, Problem

WHOLE = "data"  # the parameter that is given all of it
_PLACE = re.compile(r"(?P<text>.*) - at `\$(?P<path>.*)`", re.DOTALL)
_REFERENCE = "#/$defs/{name}"
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
            made = msgspec.convert(context.data, self._type, dec_hook=_decode)
        except msgspec.ValidationError as error:
            raise Invalid.of(list(_problems(error, context.data))) from None
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
            (found,), parts = msgspec.json.schema_components(
                (self._type,), schema_hook=_schema, ref_template=_REFERENCE
            )
        except TypeError:  # a default that has no form in JSON: what is given is still converted
            return {"type": "object"}
        except NoForm as error:
            raise self._refused(f"data cannot become {error}") from None
        every = dict(_with_inner({**parts, "": found}))
        root = every.pop("")
        root = _with_moments(every.get(root.get("$ref", "").rpartition("/")[2], root), self._type)
        rest = {"additionalProperties": True} if self._takes_rest else {}
        schema: Json = _closed({**root, **rest, "$defs": every})
        return schema

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


class NoForm(Exception):
    """A type that plain values cannot be converted to."""


def _decode(kind: type, value: Any) -> Any:
    if issubclass(kind, PurePath):
        if isinstance(value, str):
            return kind(value)
        raise ValueError("expected str")
    if hasattr(kind, "model_validate"):  # pydantic
        return kind.model_validate(value)
    raise NoForm(f"{kind.__module__}.{kind.__qualname__}")


def _schema(kind: type) -> Json:
    if issubclass(kind, PurePath):
        return {"type": "string"}
    if hasattr(kind, "model_json_schema"):
        schema: Json = opened(kind.model_json_schema(ref_template=_REFERENCE.replace("name", "model")))
        return schema
    raise NoForm(f"{kind.__module__}.{kind.__qualname__}")


def _with_inner(parts: dict[str, Json]) -> Iterator[tuple[str, Json]]:
    """The parts of a schema, and those that stand within them."""
    for name, part in parts.items():
        yield name, {key: value for key, value in part.items() if key != "$defs"}
        yield from part.get("$defs", {}).items()


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


def _problems(error: msgspec.ValidationError, data: Json) -> Iterator[Problem]:
    """What a conversion found wrong."""
    match = _PLACE.fullmatch(str(error))
    text, place = (match["text"], match["path"]) if match else (str(error), "")
    cause = error.__cause__
    if cause is not None and hasattr(cause, "errors"):  # pydantic lists all of them
        for each in cause.errors():
            path = at(WHOLE + place, *each["loc"])
            text = each["msg"].removeprefix("Value error, ")
            yield Problem(path, "E_DATA", f"{text}, got {shown(value_at(data, path))}")
        return
    expected = re.fullmatch(r"Expected `(?P<kind>[^`]+)`, got `[^`]+`", text)
    value = value_at(data, WHOLE + place)
    said = expectation(expected["kind"], value) if expected else f"{text.replace('`', '')}, got {shown(value)}"
    yield Problem(WHOLE + place, "E_DATA", said)
