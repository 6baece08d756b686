"""What a build leaves behind: the fields `artifacts`, `reports` and `cache` of a shell job, globs, and test counts.

    *  any text within one name     ?  one character     **  any number of directories
    A directory that matches stands for everything below it.

What must stay true: matching takes time in proportion to glob times path, whatever both hold, because an agent that
is busy with a hostile glob could not renew its lease; counts are bounded, whatever a report says.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any

from horae.core.fields import Fields, fields_of, type_words
from horae.core.model import Json

MAX_GLOBS = 100
MAX_GLOB = 1024  # characters
MAX_CACHES = 20
MAX_FAILURES = 100  # failed tests that are named in a result
MAX_CASES = 1000  # others that are
MAX_NAMES = 64 << 10  # characters of the names of all of those
MAX_WORDS = 500  # characters of a failure's name or message
MAX_SECONDS = 1e9  # that tests may claim to have taken
_GLOBS = frozenset({"artifacts", "reports"})
FIELDS = _GLOBS | {"cache"}

_KEY_PLACE = re.compile(r"\{hash:([^{}]+)\}")


def read_build(fields: Fields) -> Json:
    """Return the canonical form of those of the fields that are there."""
    found: Json = {name: _read_paths(fields, name, "globs") for name in sorted(_GLOBS & fields.values.keys())}
    if "cache" in fields.values:
        found["cache"] = _read_caches(fields)
    return {name: value for name, value in found.items() if value}


def _read_paths(fields: Fields, name: str, unit: str, least: int = 0) -> list[str]:
    path = fields.at(name)
    found = []
    for index, value in enumerate(fields.items(name, MAX_GLOBS, unit, least=least)):
        if type(value) is not str:
            fields.problems.add(f"{path}[{index}]", "E_TYPE", *type_words("must be text", value))
        elif wrong := _fault_of(value):
            fields.problems.add(f"{path}[{index}]", "E_PATTERN", wrong, "write a path inside the workspace")
        else:
            found.append(value.removeprefix("./").rstrip("/"))
    return found


def _fault_of(path: str) -> str:
    if not 0 < len(path) <= MAX_GLOB or not path.isprintable():
        return f"1 to {MAX_GLOB} printable characters expected"
    if path.startswith("/"):
        return "a relative path expected"
    names = path.removeprefix("./").rstrip("/").split("/")
    return "" if not {"", ".", ".."} & set(names) else "a path without '.', '..' and empty names expected"


def _read_caches(fields: Fields) -> list[Json]:
    path = fields.at("cache")
    items = fields.items("cache", MAX_CACHES, "caches")
    return [_read_cache(item, f"{path}[{index}]", fields) for index, item in enumerate(items)]


def _read_cache(item: Any, path: str, outer: Fields) -> Json:
    inner = fields_of(item, path, outer.problems, "a cache must be a mapping with key and paths")
    if inner is None:
        return {}
    inner.refuse_others(frozenset({"key", "paths"}))
    for name in ("key", "paths"):
        if name not in inner.values:
            inner.fault(name, "E_REQUIRED", "a cache needs a key and paths")
    key = inner.text("key", MAX_GLOB) or ""
    if any(map(_fault_of, _KEY_PLACE.findall(key))):
        inner.fault("key", "E_PATTERN", "{hash:FILE} names a file inside the workspace, without '..'")
    return {"key": key, "paths": _read_paths(inner, "paths", "paths", least=1)}


def fill_key(key: str, digest: Callable[[str], str]) -> str:
    """Return a cache's key with its files replaced by what `digest` says of them."""
    return _KEY_PLACE.sub(lambda found: digest(found[1]), key)


# ── globs ──────────────────────────────────────────────────────────────────────────────────────────


class Globs:
    """Several globs, made ready once."""

    def __init__(self, globs: Sequence[str]) -> None:
        self._globs = [glob.split("/") for glob in globs]

    def match(self, path: str) -> bool:
        names = path.split("/")
        return any(_matches_path(names, glob) for glob in self._globs)


def _matches_path(names: Sequence[str], glob: Sequence[str]) -> bool:
    """Return whether a glob matches a path, or one of the directories it lies in."""
    at, found, star, mark = 0, 0, -1, 0
    while found < len(glob):
        if glob[found] == "**":
            star, mark, found = found, at, found + 1
        elif at < len(names) and _matches_name(names[at], glob[found]):
            at, found = at + 1, found + 1
        elif star >= 0 and mark < len(names):  # let the last ** take one more
            mark += 1
            at, found = mark, star + 1
        else:
            return False
    return True


def _matches_name(name: str, glob: str) -> bool:
    """Only the last star ever has to take more: what earlier ones could give up instead, it can take too."""
    at, found, star, mark = 0, 0, -1, 0
    while at < len(name):
        if found < len(glob) and glob[found] == "*":
            star, mark, found = found, at, found + 1
        elif found < len(glob) and glob[found] in ("?", name[at]):
            at, found = at + 1, found + 1
        elif star >= 0:
            mark += 1
            at, found = mark, star + 1
        else:
            return False
    return not glob[found:].strip("*")


# ── test counts ────────────────────────────────────────────────────────────────────────────────────


def no_tests() -> Json:
    return {"passed": 0, "failed": 0, "skipped": 0, "seconds": 0.0, "failures": [], "cases": []}


def count_test(tests: Json, outcome: str, name: str, seconds: float = 0.0, message: str = "") -> None:
    """Add one test to the counts; `outcome` is passed, failed or skipped."""
    tests[outcome] += 1
    took = round(min(seconds, MAX_SECONDS), 3) if math.isfinite(seconds) and seconds > 0 else 0.0
    tests["seconds"] = round(min(tests["seconds"] + took, MAX_SECONDS), 3)
    if outcome != "failed":
        _list_case(tests["cases"], {"name": _plain(name), "outcome": outcome, "seconds": took})
    elif len(tests["failures"]) < MAX_FAILURES:
        tests["failures"].append({"name": _plain(name), "message": _plain(message)})


def _list_case(cases: list[Json], case: Json) -> None:
    """Those that did not fail, as long as there is room: a result is read more often than its tests are."""
    if len(cases) < MAX_CASES and sum(len(one["name"]) for one in cases) + len(case["name"]) <= MAX_NAMES:
        cases.append(case)


def _plain(text: str) -> str:
    """Text that every store holds, on one line."""
    return " ".join(text[: 4 * MAX_WORDS].encode(errors="replace").decode().replace("\0", "").split())[:MAX_WORDS]


class GoTests:
    """Counts what `go test -v` says, as it passes by: results of tests and of their subtests."""

    MAX_LINE = 4096  # bytes of a line that are looked at
    _LINE = re.compile(rb"\s*--- (PASS|FAIL|SKIP): (\S+) \(([0-9.]{1,20})s\)\s*")
    _OUTCOMES = {b"PASS": "passed", b"FAIL": "failed", b"SKIP": "skipped"}  # noqa: RUF012  # never changed

    def __init__(self, tests: Json) -> None:
        self._tests = tests
        self._rest = b""  # the line that has no end yet

    def watch(self, data: bytes) -> None:
        *lines, rest = (self._rest + data).split(b"\n")
        for line in lines:
            if b"--- " in line[: self.MAX_LINE]:
                self._read(line[: self.MAX_LINE])
        self._rest = rest[: self.MAX_LINE]

    def _read(self, line: bytes) -> None:
        found = self._LINE.fullmatch(line)
        if found is None or found[3].count(b".") > 1:
            return
        is_part = line[:1].isspace()  # its time is in that of the test it is part of
        name = found[2].decode(errors="replace")
        count_test(self._tests, self._OUTCOMES[found[1]], name, 0.0 if is_part else float(found[3]))
