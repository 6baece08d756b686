"""What handlers an agent has: those of its jobs directory, read without running any, and what became of those that
workers have loaded.

Kept in memory, one entry per handler that a job has named; nothing is written for a run.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from horae.core.model import Moment
from horae.core.work.catalogues import HandlerFact
from horae.discovery import folder_of, folders, is_named_for, modules_of
from horae.executors.handlers.messages import Load
from horae.executors.handlers.sources import tree_of, version_of

MOST_LOADS = 10_000  # names that are remembered
CHANGED = "changed since it was loaded into the agent: restart Horae to have it"
NOTHING = "no function or class in it carries @handler"

# A function or class at the left margin, with what is said at its @handler. Nothing in it can be read in two ways.
_DEFINITION = re.compile(
    r"(?m)^(?P<mark>@(?:\w++\.)*+handler\b[ \t]*+(?P<said>\((?:[^()]|\([^()]*+\))*+\))?[^\n]*+\n"
    r"(?:(?:@|[ \t]*+#)[^\n]*+\n|[ \t]*+\n)*+)?"
    r"(?P<async>async[ \t]++)?(?P<what>def|class)[ \t]++(?P<function>\w++)"
)
_NAME = re.compile(r"""\bname\s*+=\s*+(["'])(.+?)\1""")
_INLINE = re.compile(r"\binline\s*+=\s*+True\b")


class Catalogue:
    def __init__(self, jobs_directory: Path | None) -> None:
        self._jobs = jobs_directory
        self._loads: dict[str, tuple[Load, Moment]] = {}  # by the name that jobs use

    def note(self, load: Load, now: Moment) -> None:
        """Remember what a worker has loaded, or could not load."""
        if load.handler in self._loads or len(self._loads) < MOST_LOADS:
            self._loads[load.handler] = (load, now)

    async def read(self) -> list[HandlerFact]:
        """Return the handlers by name. Reads files: in a thread, because a disk may be slow."""
        return await asyncio.to_thread(self._survey, dict(self._loads))

    def _survey(self, loads: dict[str, tuple[Load, Moment]]) -> list[HandlerFact]:
        found = {fact.name: fact for fact in survey(self._jobs)}
        for name, (load, at) in loads.items():
            known = found.get(name) or next((fact for fact in found.values() if _is_of(fact, load)), None)
            if known is not None:
                found[known.name] = _merged(known, load, at)
            elif folder_of(name, self._jobs) is None and (load.error or Path(load.file).exists()):
                found[name] = HandlerFact(name, load.file, load.kind, load.version, at, load.error)
        return [found[name] for name in sorted(found)]


def survey(jobs_directory: Path | None) -> Iterator[HandlerFact]:
    """Handlers of a jobs directory, and folders without one."""
    for folder in folders("", jobs_directory):
        assert jobs_directory is not None
        files = [jobs_directory / folder / f"{module}.py" for module in modules_of(folder, jobs_directory)]
        version = folder_version(jobs_directory / folder)
        facts = [fact for file in files for fact in _read(folder, file, version)]
        if files and not facts:
            facts = [HandlerFact(f"jobs/{folder}", str(files[0]), "", version, None, NOTHING)]
        yield from facts


def folder_version(folder: Path) -> str:
    """Return the version of a job's folder: of its Python files, and of what all folders share."""
    return version_of(folder.parent, [*tree_of(folder)[1], str(folder.parent / "providers.py")])


def _is_of(fact: HandlerFact, load: Load) -> bool:
    """Return whether a handler of the jobs directory was loaded under another name of it."""
    return bool(load.function) and fact.file == load.file and fact.function == load.function


def _merged(fact: HandlerFact, load: Load, at: Moment) -> HandlerFact:
    """Add what became of it when it was loaded, if that was this version."""
    if load.kind == "inline":
        is_old = load.version != fact.version
        return replace(fact, version=load.version, loaded_at=at, error=CHANGED if is_old else fact.error)
    return replace(fact, loaded_at=at, error=load.error or fact.error) if load.version == fact.version else fact


def _read(folder: str, file: Path, version: str) -> Iterator[HandlerFact]:
    """Handlers that are written in a file; what is wrong with it, if it cannot be read. The text is read as such: in
    Python 3.11, two threads that make syntax trees get in each other's way."""
    try:
        text = file.read_text(encoding="utf-8")
        compile(text, str(file), "exec", dont_inherit=True)
    except (SyntaxError, ValueError, OSError, RecursionError, MemoryError) as error:  # the last two: nested too deeply
        line = f", line {error.lineno}" if isinstance(error, SyntaxError) else ""
        what = error.msg if isinstance(error, SyntaxError) else str(error)
        yield HandlerFact(f"jobs/{folder}", str(file), "", version, None, f"{type(error).__name__}: {what}{line}")
        return
    for match in _DEFINITION.finditer(text):
        if not match["mark"] and not (match["what"] == "class" and is_named_for(folder, match["function"])):
            continue
        said = match["said"] or ""
        name = found[2] if (found := _NAME.search(said)) else f"jobs/{folder}"
        kind = "inline" if _INLINE.search(said) else _kind(match, text)
        yield HandlerFact(name, str(file), kind, version, function=match["function"])


def _kind(match: re.Match[str], text: str) -> str:
    if match["what"] == "class":
        body = re.split(r"\n(?=\S)", text[match.end() :], maxsplit=1)[0]
        return "async" if re.search(r"(?m)^\s+async def execute\b", body) else "plain"
    return "async" if match["async"] else "plain"
