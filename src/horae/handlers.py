"""What authors of Python jobs import: `@handler`, `@provider`, `Context`, `Retry`, `Cancel`.

    @handler
    async def greet(context: Context) -> dict[str, str]:
        context.log(f"hello {context.data['who']}")
        return {"greeted": context.data["who"]}

A handler may also be a class with `execute(self, job_data, cancellation)`, made anew for every run; its constructor
gets what it asks for by type (horae.injection). A job names its handler in one of three ways (horae.discovery):

    "package.module:function"   any importable module; the function or class carries @handler
    "jobs/NAME"                 the handler of the folder NAME in the jobs directory (__init__.py, job.py or a file
                                that is named as its class is: MyJob/MyJobHandler.py)
    "NAME"                      the handler registered as @handler(name="NAME"), in that directory or imported

Only what carries @handler can be run, so a job cannot reach into any other importable code; in a folder of the jobs
directory, the class that is named as the folder is needs no mark.
`async def` handlers share worker processes; plain `def` handlers have a process to themselves while they
run. `@handler(inline=True)` is for trusted code: it runs in the agent's own event loop, where a blocking
call stops everything and nothing can be killed.
"""

from __future__ import annotations

import inspect
import json
import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, overload

from horae.context import Cancel, Cancellation, Channel, Context, Retry
from horae.context.lines import Lines
from horae.context.signatures import Signature, bind, signature_of
from horae.context.waiting import CallFailed, Pause
from horae.core.jobdata import text_of
from horae.core.model import Json
from horae.core.runs.retrying import Choice
from horae.errors import Invalid
from horae.injection import build, provider

NAME = re.compile(r"[^\W\d][\w.-]*")

__all__ = [
    "CallFailed",
    "Cancel",
    "Cancellation",
    "Channel",
    "Context",
    "Handler",
    "Pause",
    "Retry",
    "handler",
    "handler_of",
    "provider",
]

Function = Callable[[Context], Any]
Errors = Sequence[type[BaseException]]
F = TypeVar("F", bound=Callable[..., Any])
C = TypeVar("C", bound=type[Any])
T = TypeVar("T", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Handler:
    """A function or class that can be run, and how."""

    name: str  # as registered; "module:function" without a name of its own
    function: Function  # what runs it; the origin itself, unless that is a class or takes more than its context
    is_async: bool
    inline: bool
    origin: Any  # as its author wrote it
    signature: Signature | None = None  # what it takes besides

    @property
    def source(self) -> tuple[str, str]:
        """Where it was written: the same lines loaded twice are one handler, not a clash."""
        function = inspect.unwrap(getattr(self.origin, "execute", self.origin))
        return function.__code__.co_filename, self.origin.__qualname__


_by_origin: dict[Any, Handler] = {}
_by_name: dict[str, Handler] = {}
_choices: dict[Function | None, Choice] = {}


@overload
def handler(origin: C, /) -> C: ...
@overload
def handler(origin: F, /) -> F: ...
@overload
def handler(
    *, name: str = "", inline: bool = False, retry_on: Errors = (), never_retry: Errors = ()
) -> Callable[[T], T]: ...
def handler(
    origin: Any = None, /, *, name: str = "", inline: bool = False, retry_on: Errors = (), never_retry: Errors = ()
) -> Any:
    """Make a function, or a class with `execute`, runnable as a job. It stays what it was. After an exception of
    `retry_on` alone, or not of `never_retry`, it is tried again, as often as the job says."""
    if origin is not None:
        return _register(origin, "", False)
    choice = Choice(tuple(map(class_name, retry_on)), tuple(map(class_name, never_retry)))
    return lambda origin: _register(origin, name, inline, choice)


def class_name(cls: type[BaseException]) -> str:
    """Return the name of a class of exceptions as a traceback has it."""
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"


def choice_of(function: Function | None) -> Choice:
    """Return after which exceptions the author of a handler wants it tried again."""
    return _choices.get(function) or _choices.get(getattr(function, "__wrapped__", function), _ANY)


_ANY = Choice()


def _register(origin: Any, name: str, inline: bool, choice: Choice = _ANY) -> Any:
    signature = None if inspect.isclass(origin) else signature_of(origin)
    function = _runner(origin) if inspect.isclass(origin) else bind(origin, signature) if signature else origin
    is_async = inspect.iscoroutinefunction(function)
    if inline and not is_async:
        raise refused(
            f"{origin.__qualname__} is inline but not `async def`: it would stop the agent while it runs",
            hint="write it as `async def`, or drop inline=True",
        )
    found = Handler(name or f"{origin.__module__}:{origin.__qualname__}", function, is_async, inline, origin, signature)
    if name:
        _register_name(name, found)
    if choice:
        _choices[function] = choice
    _by_origin[origin] = found
    return origin


def _runner(cls: type[Any]) -> Function:
    """Return the function that makes a handler of a class for one run, and runs it."""
    execute = getattr(cls, "execute", None)
    if not inspect.isfunction(execute):
        raise refused(f"the class {cls.__qualname__} has no execute", hint="def execute(self, job_data, cancellation)")

    async def run_async(context: Context) -> Any:
        return await _instance(cls, context).execute(text_of(context.data), Cancellation(context))

    def run(context: Context) -> Any:
        return _instance(cls, context).execute(text_of(context.data), Cancellation(context))

    return run_async if inspect.iscoroutinefunction(execute) else run


def _instance(cls: type[Any], context: Context) -> Any:
    return build(cls, {Context: lambda: context, logging.Logger: lambda: _logger(cls, context)})


def _logger(cls: type[Any], context: Context) -> logging.Logger:
    """Return a logger of one run: its lines go to the run's output, with the trace that leads to other logs."""
    made = logging.Logger(f"{cls.__module__}.{cls.__qualname__}", logging.INFO)
    lines = logging.StreamHandler(context)
    lines.setFormatter(Lines(f" trace_id={context.trace_id}"))
    made.addHandler(lines)
    return made


def _register_name(name: str, found: Handler) -> None:
    if not NAME.fullmatch(name):
        raise refused(f"a handler's name is letters, digits and . _ -, starting with a letter; got {name!r}")
    other = _by_name.get(name)
    if other is not None and other.source != found.source:
        raise refused(f"two handlers are named {name!r}: {':'.join(other.source)}, {':'.join(found.source)}")
    _by_name[name] = found


def named(name: str) -> Handler | None:
    """Return the handler that was registered under this name in this process."""
    return _by_name.get(name)


def handler_of(origin: Any) -> Handler:
    """Return the handler that a function or class was made by `@handler`."""
    found = registered(origin)
    if found is None:
        name = getattr(origin, "__qualname__", repr(origin))
        raise refused(f"{name} is not a handler", hint="put @handler above it")
    return found


def registered(origin: Any) -> Handler | None:
    """Return the handler that this function or class was made, if it was."""
    return _by_origin.get(origin) if inspect.isfunction(origin) or inspect.isclass(origin) else None


def every() -> list[Handler]:
    """Return the handlers that are in this process."""
    return list(_by_origin.values())


def refused(message: str, hint: str = "") -> Invalid:
    """Return the error of a handler that cannot be used."""
    return Invalid(message, code="E_HANDLER", hint=hint)


# ── built in ───────────────────────────────────────────────────────────────────────────────────────


@handler(inline=True)
async def echo(context: Context) -> Json:
    """Write the run's data to its output, and return it."""
    context.log(json.dumps(context.data, ensure_ascii=False))
    return context.data


@handler(inline=True)
async def payload(context: Context) -> None:
    """Write the text `payload` of the run's data to its output: what a job that is nothing but a text comes to."""
    context.log(str(context.data.get("payload", "")))


@handler(inline=True)
async def noop(context: Context) -> None:
    """Do nothing: what a run costs without its work."""
