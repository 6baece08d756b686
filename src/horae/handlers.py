"""What authors of Python jobs import: `@handler`, `@provider`, `Context`, `Retry`, `Cancel`; how a name finds its code.

    @handler
    async def greet(context: Context) -> dict[str, str]:
        context.log(f"hello {context.data['who']}")
        return {"greeted": context.data["who"]}

A handler may also be a class with `execute(self, job_data, cancellation)`, made anew for every run; its constructor
gets what it asks for by type (horae.injection). A job names its handler in one of three ways:

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

import asyncio
import importlib
import inspect
import json
import logging
import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol, TypeVar, overload
from zlib import crc32

from horae.core.jobdata import text_of
from horae.core.model import Json, Moment
from horae.core.runs.traces import trace_id, traceparent
from horae.errors import Invalid
from horae.injection import build, provider

_MODULE = re.compile(r"(?P<module>[^\W\d]\w*(?:\.[^\W\d]\w*)*):(?P<function>[^\W\d]\w*(?:\.[^\W\d]\w*)*)")
_FOLDER = re.compile(r"jobs/(?P<folder>\w[\w-]*)")
_NAME = re.compile(r"[^\W\d][\w.-]*")
_YEAR = 365 * 86_400.0  # the longest wait a handler can ask for
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_PROVIDERS = "providers"  # the module of the jobs directory that all its folders share
_LOOK = 0.05  # seconds between two looks of somebody who waits to be cancelled

__all__ = [
    "Cancel",
    "Cancellation",
    "Context",
    "Handler",
    "Retry",
    "handler",
    "handler_of",
    "loaded",
    "provider",
    "resolve",
]

Function = Callable[["Context"], Any]
F = TypeVar("F", bound=Function)
C = TypeVar("C", bound=type[Any])
T = TypeVar("T", bound=Callable[..., Any])


class Retry(Exception):
    """Raise it to fail this attempt and be tried again `after` seconds, as far as the job's retries go."""

    def __init__(self, after: float, message: str = "the handler asked to be tried again") -> None:
        super().__init__(message)
        self.after = min(max(0.0, float(after)), _YEAR)
        self.message = message


class Cancel(Exception):
    """Raise it to end the run as cancelled: there is nothing to do and a retry cannot help."""

    def __init__(self, reason: str = "the handler cancelled its run") -> None:
        super().__init__(reason)
        self.reason = reason


class Channel(Protocol):
    """The way from a handler back to whoever runs it."""

    def write(self, data: bytes) -> None: ...

    def is_stopped(self) -> bool: ...


class Context:
    """What a handler knows about its run, and how it answers.

    It can be printed to: `print("half way", file=context)`. Facts of the run are attributes and never
    environment variables, because many runs share a process; `env` is the `env` of the job's spec.
    """

    __slots__ = (
        "_channel",
        "_installation",
        "attempt",
        "data",
        "due_at",
        "env",
        "fence",
        "job_id",
        "job_name",
        "previous_result",
        "run_id",
    )

    def __init__(
        self,
        channel: Channel,
        run_id: int,
        attempt: int,
        fence: int,
        job_id: int,
        job_name: str,
        due_at: Moment,
        data: Json,
        env: dict[str, str],
        previous_result: Any = None,
        installation: str = "",
    ) -> None:
        self._channel = channel
        self._installation = installation
        self.run_id = run_id
        self.attempt = attempt
        self.fence = fence
        self.job_id = job_id
        self.job_name = job_name
        self.due_at = due_at
        self.data = data
        self.env = env
        self.previous_result = previous_result  # of the job's last success, if its spec asks for it

    @property
    def scheduled_for(self) -> datetime:
        """The moment this run was due, in UTC."""
        return _EPOCH + timedelta(microseconds=self.due_at)

    @property
    def trace_id(self) -> str:
        """The W3C trace id of the run, the same in all its attempts."""
        return trace_id(self.run_id, self._installation)

    @property
    def traceparent(self) -> str:
        """The trace as it is handed on to other services; this attempt is the span."""
        return traceparent(self.run_id, self.fence, self._installation)

    @property
    def cancelled(self) -> bool:
        """Whether the run was asked to stop. A long `def` handler looks here now and then and returns;
        `async def` handlers are cancelled at their next await without looking."""
        return self._channel.is_stopped()

    def log(self, text: object) -> None:
        """Write one line to the run's output."""
        self.write(f"{text}\n")

    def write(self, text: str) -> int:
        """Write text to the run's output, as a file would."""
        self._channel.write(text.encode("utf-8", "backslashreplace"))
        return len(text)

    def flush(self) -> None:
        """Nothing waits here; print(…, flush=True) asks."""

    def progress(self, fraction: float, message: str = "") -> None:
        """Say how far it is, 0 to 1; followers of the output read it as a line."""
        share = min(max(fraction, 0.0), 1.0)
        self.log(f"progress {share:.0%} {message}".rstrip())


class Cancellation:
    """Whether the run of a class handler was asked to stop."""

    __slots__ = ("_context",)

    def __init__(self, context: Context) -> None:
        self._context = context

    @property
    def is_cancelled(self) -> bool:
        return self._context.cancelled

    async def wait(self) -> None:
        """Return when the run is asked to stop. Whoever awaits this in the handler's own task is cancelled instead."""
        while not self.is_cancelled:  # noqa: ASYNC110  # a plain handler's channel can only be looked at
            await asyncio.sleep(_LOOK)

    def raise_if_cancelled(self) -> None:
        if self.is_cancelled:
            raise Cancel("the run was asked to stop")


@dataclass(frozen=True, slots=True)
class Handler:
    """A function or class that can be run, and how."""

    name: str  # as registered; "module:function" without a name of its own
    function: Function  # what runs it; the origin itself, unless that is a class
    is_async: bool
    inline: bool
    origin: Any  # as its author wrote it

    @property
    def source(self) -> tuple[str, str]:
        """Where it was written: the same lines loaded twice are one handler, not a clash."""
        function = inspect.unwrap(getattr(self.origin, "execute", self.origin))
        return function.__code__.co_filename, self.origin.__qualname__


_by_origin: dict[Any, Handler] = {}
_by_name: dict[str, Handler] = {}


@overload
def handler(origin: C, /) -> C: ...
@overload
def handler(origin: F, /) -> F: ...
@overload
def handler(*, name: str = "", inline: bool = False) -> Callable[[T], T]: ...
def handler(origin: Any = None, /, *, name: str = "", inline: bool = False) -> Any:
    """Make a function, or a class with `execute`, runnable as a job. It stays what it was."""
    if origin is not None:
        return _register(origin, "", False)
    return lambda origin: _register(origin, name, inline)


def _register(origin: Any, name: str, inline: bool) -> Any:
    function = _runner(origin) if inspect.isclass(origin) else origin
    is_async = inspect.iscoroutinefunction(function)
    if inline and not is_async:
        raise _refused(
            f"{origin.__qualname__} is inline but not `async def`: it would stop the agent while it runs",
            hint="write it as `async def`, or drop inline=True",
        )
    found = Handler(name or f"{origin.__module__}:{origin.__qualname__}", function, is_async, inline, origin)
    if name:
        _register_name(name, found)
    _by_origin[origin] = found
    return origin


def _runner(cls: type[Any]) -> Function:
    """Return the function that makes a handler of a class for one run, and runs it."""
    execute = getattr(cls, "execute", None)
    if not inspect.isfunction(execute):
        raise _refused(f"the class {cls.__qualname__} has no execute", hint="def execute(self, job_data, cancellation)")

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
    lines.setFormatter(logging.Formatter(f"%(asctime)s %(levelname)s %(message)s trace_id={context.trace_id}"))
    made.addHandler(lines)
    return made


def _register_name(name: str, found: Handler) -> None:
    if not _NAME.fullmatch(name):
        raise _refused(f"a handler's name is letters, digits and . _ -, starting with a letter; got {name!r}")
    other = _by_name.get(name)
    if other is not None and other.source != found.source:
        raise _refused(f"two handlers are named {name!r}: {':'.join(other.source)}, {':'.join(found.source)}")
    _by_name[name] = found


def loaded(text: str) -> Handler | None:
    """Return the handler of this name if its code is in this process already; imports nothing."""
    match = _MODULE.fullmatch(text)
    if match is None:
        return _by_name.get(text)
    module = sys.modules.get(match["module"])
    return None if module is None else _registered(_attribute(module, match["function"]))


def resolve(text: str, jobs_directory: Path | None = None) -> Handler:
    """Return the handler of this name, importing what is needed. Runs the author's module: call it in a worker."""
    if match := _MODULE.fullmatch(text):
        return _from_module(match["module"], match["function"])
    if match := _FOLDER.fullmatch(text):
        return _from_folder(match["folder"], jobs_directory)
    if _NAME.fullmatch(text):
        return _from_name(text, jobs_directory)
    raise _refused(
        f"a handler is named 'module:function', 'jobs/NAME' or 'NAME'; got {text!r}",
        hint="for example reports.daily:send",
    )


def _from_module(module_name: str, function_name: str) -> Handler:
    module = _load(module_name)
    function = _attribute(module, function_name)
    if function is None:
        raise _refused(
            f"module {module_name!r} has no {function_name!r}",
            hint=f"it is loaded from {getattr(module, '__file__', None) or 'no file'}",
        )
    found = _registered(function)
    if found is None:
        raise _refused(f"{module_name}:{function_name} is not a handler", hint="put @handler above it")
    return found


def _from_folder(folder: str, jobs_directory: Path | None) -> Handler:
    if jobs_directory is None:
        raise _refused(f"'jobs/{folder}' needs a jobs directory, and this agent has none")
    package = _load_folder(folder, jobs_directory)
    found = [each for each in _by_origin.values() if _lies_in(each.origin, package)]
    if not found:
        found = [_by_origin[_register(cls, "", False)] for cls in _unmarked(folder, package)]
    named = [each for each in found if each.name == folder or _is_class_of(folder, each.origin)] or found
    if len(named) == 1:
        return named[0]
    if not found:
        raise _refused(
            f"no function or class in jobs/{folder} carries @handler",
            hint=f"nor is there a class with execute(self, job_data, cancellation); it is {jobs_directory / folder}",
        )
    raise _refused(
        f"jobs/{folder} has {len(found)} handlers: {', '.join(sorted(h.name for h in found))}",
        hint=f"name one of them {folder!r}, or use its own name",
    )


def _unmarked(folder: str, package: str) -> list[type[Any]]:
    """Classes of a folder that can be handlers without saying so: the one named as the folder is, else all."""
    modules = [module for name, module in list(sys.modules.items()) if _is_within(name, package)]
    found = [
        each
        for module in modules
        for each in vars(module).values()
        if inspect.isclass(each) and _lies_in(each, package) and inspect.isfunction(getattr(each, "execute", None))
    ]
    usable = list(dict.fromkeys(each for each in found if not inspect.isabstract(each)))
    return [each for each in usable if _is_class_of(folder, each)] or usable


def _is_class_of(folder: str, origin: Any) -> bool:
    return inspect.isclass(origin) and _is_named_for(folder, origin.__name__)


def _is_named_for(folder: str, name: str) -> bool:
    """MyJobHandler is the class, and the file, of the folders MyJob, my_job and my-job."""
    return name.replace("_", "").lower() == folder.replace("_", "").replace("-", "").lower() + "handler"


def _from_name(name: str, jobs_directory: Path | None) -> Handler:
    """Look among what is loaded, then in the folder of that name, then in every other folder."""
    broken = []
    for folder in [None, *_folders(name, jobs_directory)]:
        try:
            if folder is not None and jobs_directory is not None:
                _load_folder(folder, jobs_directory)
        except Invalid as error:
            broken.append(error.message)
        if name in _by_name:
            return _by_name[name]
    where = "and this agent has no jobs directory" if jobs_directory is None else "also not in the jobs directory"
    why = f" ({'; '.join(broken)})" if broken else ""
    raise _refused(f"no handler is named {name!r}, {where}{why}", hint=f'write @handler(name="{name}")')


def _folders(first: str, jobs_directory: Path | None) -> list[str]:
    if jobs_directory is None or not jobs_directory.is_dir():
        return []
    names = [each.name for each in jobs_directory.iterdir() if each.is_dir()]
    fit = [name for name in names if _FOLDER.fullmatch(f"jobs/{name}") and not name.startswith("__")]
    return sorted(fit, key=lambda name: (name != first, name))


def _load_folder(folder: str, jobs_directory: Path) -> str:
    """Import a job's folder under a package of our own, so that jobs/email cannot shadow `email`."""
    modules = _modules_of(folder, jobs_directory)
    if not modules:
        where = f"{folder}/__init__.py, {folder}/job.py nor {folder}/{folder}Handler.py"
        raise _refused(f"the jobs directory has neither {where}", hint=f"it is {jobs_directory}")
    root = f"horae_jobs_{crc32(str(jobs_directory.resolve()).encode()):08x}"
    if root not in sys.modules:
        package = sys.modules[root] = ModuleType(root)
        package.__path__ = [str(jobs_directory.resolve())]
    if (jobs_directory / f"{_PROVIDERS}.py").is_file():
        _load(f"{root}.{_PROVIDERS}")
    _load(f"{root}.{folder}")
    for module in modules:
        if module != "__init__":
            _load(f"{root}.{folder}.{module}")
    return f"{root}.{folder}"


def _modules_of(folder: str, jobs_directory: Path) -> list[str]:
    """Return the files of a job's folder in which its handler may be: the folder itself, job.py, MyJobHandler.py."""
    found = [each.stem for each in sorted((jobs_directory / folder).glob("*.py")) if each.is_file()]
    return [each for each in found if each in ("__init__", "job") or _is_named_for(folder, each)]


def is_there(text: str, jobs_directory: Path | None) -> bool:
    """Return whether the code of a handler is here, as far as that can be told without running any."""
    if text in _by_name:
        return True
    if match := _MODULE.fullmatch(text):
        places = [str(jobs_directory or "."), os.getcwd(), *sys.path]
        return PathFinder.find_spec(match["module"].partition(".")[0], places) is not None
    if jobs_directory is None:
        return False
    if match := _FOLDER.fullmatch(text):
        return bool(_modules_of(match["folder"], jobs_directory))
    word = re.compile(rf"\b{re.escape(text)}\b")
    return any(word.search(each.read_text(errors="replace")) for each in sorted(jobs_directory.glob("*/*.py")))


def _load(module_name: str) -> ModuleType:
    importlib.invalidate_caches()  # the file may be younger than the last look into its directory
    try:
        return importlib.import_module(module_name)
    except Invalid:
        raise
    except (Exception, SystemExit) as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise _refused(f"module {module_name!r} cannot be imported: {reason}") from error


def _attribute(module: ModuleType, path: str) -> Any:
    found: Any = module
    for part in path.split("."):
        found = getattr(found, part, None)
    return found


def handler_of(origin: Any) -> Handler:
    """Return the handler that a function or class was made by `@handler`."""
    found = _registered(origin)
    if found is None:
        name = getattr(origin, "__qualname__", repr(origin))
        raise _refused(f"{name} is not a handler", hint="put @handler above it")
    return found


def _registered(origin: Any) -> Handler | None:
    return _by_origin.get(origin) if inspect.isfunction(origin) or inspect.isclass(origin) else None


def _lies_in(origin: Any, package: str) -> bool:
    return _is_within(origin.__module__, package)


def _is_within(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def _refused(message: str, hint: str = "") -> Invalid:
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
