"""Which tables there are, kept beside them: a registry of small files in the warehouse, for a Spark that keeps none.

    <warehouse>/_catalog/<database>/<table>.<version>.json   {"kind", "ddl", "location", "runs"}; {"runs"}: it is gone
    <warehouse>/run-<run>-<its mark>-<attempt>/<table>/…     the rows of a table that this attempt has made

`runs` are those that wrote it last. The highest version counts. A change is a new file of the next version, which only
one can make: of two writers that saw the same version the later is refused, and nothing of its change is seen. Older
versions are removed afterwards.

What must stay true: a change is whole or not there; nobody changes what they have not seen.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from horae.core.model import Json
from horae.executors.destinations import Refused

CATALOG = "_catalog"
ATTEMPT = "run-"  # begins the names of runs, and of the directories of what their attempts make
KNOWN_RUNS = 50  # of a table, that wrote it last
LEFT_SECONDS = 7 * 86_400.0  # for which rows stay that no table refers to: an attempt may be writing them
MOST_CHANGES = 100  # of a table, while it is looked up
_FILE = re.compile(r"(?P<database>\w+)/(?P<table>\w*)\.(?P<version>\d+)\.json")
Name = tuple[str, str]  # database, table


@dataclass(frozen=True, slots=True)
class Entry:
    """A version of a table, of a database (its table is ""), or of what was one."""

    name: Name
    version: int
    about: Json

    @property
    def is_there(self) -> bool:
        return "kind" in self.about


class Files(Protocol):
    """The small files of a warehouse, and the directories of rows beside them."""

    def list(self, directory: str) -> dict[str, float]:
        """Return what lies there, and when each was changed last, in seconds since 1970."""

    def read(self, path: str) -> bytes | None:
        """None: it is there no more."""

    def make(self, path: str, data: bytes) -> bool:
        """Return all of it or nothing. False: there is one already."""

    def remove(self, path: str) -> None:
        """Also a whole directory; one that is gone is fine."""


class Registry:
    """All entries as they were when they were read, and how they are changed since."""

    def __init__(self, files: Files, run: str) -> None:
        self._files = files
        self._run = run
        self._entries = dict(self._latest())

    def _latest(self) -> Iterator[tuple[Name, Entry]]:
        """The highest version of each name; one that was replaced while we looked is looked up again."""
        found: dict[Name, int] = {}
        paths = [f"{one}/{file}" for one in self._files.list(CATALOG) for file in self._files.list(f"{CATALOG}/{one}")]
        for match in filter(None, map(_FILE.fullmatch, paths)):
            name = (match["database"], match["table"])
            found[name] = max(found.get(name, 0), int(match["version"]))
        for name, version in found.items():
            later = (Entry(name, one, json.loads(data)) for one in range(version, version + MOST_CHANGES)
                     if (data := self._files.read(_path(name, one))) is not None)  # fmt: skip
            if (entry := next(later, None)) is not None:
                yield name, entry

    @property
    def entries(self) -> list[Entry]:
        """Of tables and databases that are there."""
        return [entry for entry in self._entries.values() if entry.is_there]

    def made_by_run(self) -> list[str]:
        """Return what an earlier attempt of this run has changed: its statement is done."""
        done = (entry for entry in self._entries.values() if self._run in entry.about["runs"])
        return [".".join(filter(None, entry.name)) for entry in done]

    def put(self, name: Name, about: Json) -> None:
        self._change(name, about)

    def note_rows(self, name: Name) -> None:
        """That the run has filled a table, whose form is as it was."""
        if (entry := self._entries.get(name)) is not None and entry.is_there:
            self._change(name, entry.about)

    def drop(self, name: Name) -> None:
        self._change(name, {})

    def _change(self, name: Name, about: Json) -> None:
        before = self._entries.get(name)
        version = before.version + 1 if before else 1
        runs = [*(before.about["runs"] if before else ()), self._run][-KNOWN_RUNS:]
        entry = Entry(name, version, {**about, "runs": runs})
        if not self._files.make(_path(name, version), json.dumps(entry.about).encode()):
            table = ".".join(filter(None, name))
            raise Refused(f"{table} was changed by another query while this one ran, and this change is not kept")
        self._entries[name] = entry
        if before:
            self._files.remove(_path(name, before.version))

    def tidy(self, attempt: str) -> None:
        """Remove what earlier attempts of the run wrote, and others long ago, that no table refers to."""
        used = [str(entry.about.get("location", "")) for entry in self.entries]
        for directory, changed_at in self._files.list("").items():
            is_over = directory.startswith(f"{self._run}-") or changed_at < time.time() - LEFT_SECONDS
            is_rows = directory.startswith(ATTEMPT) and directory != attempt
            if is_rows and is_over and not any(f"/{directory}/" in location for location in used):
                self._files.remove(directory)


def _path(name: Name, version: int) -> str:
    return f"{CATALOG}/{name[0]}/{name[1]}.{version}.json"


class Folder:
    """Of this machine."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def list(self, directory: str) -> dict[str, float]:
        try:
            return {entry.name: entry.stat().st_mtime for entry in os.scandir(self._root / directory)}
        except FileNotFoundError:
            return {}

    def read(self, path: str) -> bytes | None:
        try:
            return (self._root / path).read_bytes()
        except FileNotFoundError:
            return None

    def make(self, path: str, data: bytes) -> bool:
        target = self._root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=target.parent, prefix=".") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            try:
                os.link(file.name, target)
            except FileExistsError:
                return False
        return True

    def remove(self, path: str) -> None:
        target = self._root / path
        if target.is_dir():
            shutil.rmtree(target, ignore_errors=True)
        else:
            target.unlink(missing_ok=True)
