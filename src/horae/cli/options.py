"""How a command says what it takes: `Annotated[type, Option(…)]` and `Annotated[type, Argument(…)]` in its signature.

click reads the command line; this module makes click's parameters of a signature. Flags, words, whole numbers and
lists of both are all there is.
"""

from __future__ import annotations

import functools
import inspect
import re
import sys
from typing import Annotated, Any, get_args

import click

COMPLETE_VARIABLE = "_HORAE_COMPLETE"  # by which a shell asks what may come next
OFFERED = frozenset(
    {"FILE", "JOB", "NODE", "QUEUE", "RUN", "SHELL", "TRIGGER"}
)  # what a shell is offered where a metavar names it


class Argument:
    """A word in its place; of a list, as many as there are. Numbers lie between `min` and `max`."""

    def __init__(self, *, metavar: str, help: str, min: int = 0, max: int | None = None) -> None:
        self.metavar, self.help, self.min, self.max = metavar, help, min, max


class Option:
    """A flag, or a value behind its name; of a list, it may be repeated. Numbers lie between `min` and `max`."""

    def __init__(
        self, *names: str, help: str, metavar: str | None = None, min: int = 0, max: int | None = None
    ) -> None:
        self.names, self.metavar, self.help, self.min, self.max = names, metavar, help, min, max


class Whole(click.IntRange):
    """A whole number, refused in our words."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        number = int(value) if re.fullmatch(r"[0-9]{1,18}", str(value)) else -1
        low, high = int(self.min or 0), None if self.max is None else int(self.max)
        if low <= number <= (sys.maxsize if high is None else high):
            return number
        is_word = isinstance(param, click.Argument)
        name = "" if param is None else (param.metavar or "").removesuffix("...") if is_word else param.opts[0]
        most = "" if high is None else f" to {high}"
        raise click.UsageError(f"{name} must be a whole number from {low}{most}; got {value!r}", ctx)


def _offer(what: list[str], ctx: click.Context, _: click.Parameter, begun: str) -> list[Any]:
    """Ask whoever answers the shell (completion.py): it is the object of the context then."""
    return [offered for each in what for offered in ctx.obj(each, ctx, begun)]


def make_parameter(one: inspect.Parameter) -> click.Parameter:
    """Return what click reads for one parameter of a command's signature."""
    kind, declared = get_args(one.annotation)
    kinds = {kind, *get_args(kind)}
    is_required = one.default is inspect.Parameter.empty
    is_list = bool({list[str], list[int]} & kinds)
    shared: dict[str, Any] = {"required": is_required, "metavar": declared.metavar, "help": declared.help}
    if not is_required:
        shared["default"] = one.default
    if {int, list[int]} & kinds:
        shared["type"] = Whole(declared.min, declared.max)
    if what := OFFERED & set(re.findall("[A-Z]+", declared.metavar or "")):
        shared["shell_complete"] = functools.partial(_offer, sorted(what))
    if isinstance(declared, Argument):
        return click.Argument([one.name], nargs=-1 if is_list else 1, **shared)
    names = [*declared.names, one.name]
    if kind is bool:
        return click.Option(names, is_flag=True, **shared)
    return click.Option(names, multiple=is_list, show_default=int in kinds, **shared)


# ── what several commands ask for ──

_JOB = "Id, key or unique name of a job."
JobArgument = Annotated[str, Argument(metavar="JOB", help=_JOB)]
JobArguments = Annotated[list[str], Argument(metavar="JOB...", help=_JOB)]
Limit = Annotated[int, Option("--limit", metavar="N", min=1, max=100_000, help="Most to show.")]
OfJob = Annotated[str | None, Option("--job", metavar="JOB", help="Only of this job: id, key or unique name.")]
DryRun = Annotated[bool, Option("--dry-run", help="Show what would be done, and do nothing.")]
