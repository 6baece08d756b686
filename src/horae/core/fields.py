"""Reading a document field by field: typed readers that note every problem at its path and go on.

What must stay true:
- A reader returns a value that fits, or notes a problem and returns a default: no caller has to check.
- Nothing is coerced: a boolean is not a number, and neither is text.
- Words for people are made only when something is wrong, and never repeat a long text back.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import date
from functools import lru_cache
from itertools import islice
from types import MappingProxyType
from typing import Any, cast

from horae.core.model import SECOND, Json
from horae.core.spelling import suggest
from horae.core.time import moments
from horae.errors import MAX_PROBLEMS, Denied, Invalid, Problem

MAX_DEPTH = 64
MAX_LINE = 128  # characters of a name
MAX_SECONDS = 366 * 24 * 3600.0  # of any duration in a document

# ------------------------------------------------------------------------- words for people


def kind_of(value: Any) -> str:
    """Return the type of a value as a writer of YAML knows it."""
    for types, word in _TYPE_WORDS:
        if isinstance(value, types):
            return word
    return type(value).__name__


_TYPE_WORDS: tuple[tuple[type | tuple[type, ...], str], ...] = (
    (type(None), "null"),
    (bool, "boolean"),
    ((int, float), "number"),
    (str, "a string"),
    (date, "date"),
    (list, "a list"),
    (dict, "a mapping"),
)


def shown(text: str) -> str:
    """User text inside a message: one line, bounded."""
    return repr(text if len(text) <= 60 else text[:57] + "…")


def join(path: str, name: str) -> str:
    """Return the path of a member: `env.PATH`, or `env['odd name']`."""
    if not re.fullmatch(r"[\w<-]{1,64}", name):
        return f"{path}[{shown(name)}]"
    return f"{path}.{name}" if path else name


class Problems:
    """Everything wrong with one document. What will not be shown is only counted."""

    __slots__ = ("denied", "listed")

    def __init__(self) -> None:
        self.listed: list[Problem] = []
        self.denied: list[Problem] = []

    @property
    def is_full(self) -> bool:
        return len(self.listed) >= MAX_PROBLEMS

    def add(self, path: str, code: str, message: str, hint: str = "") -> None:
        self.listed.append(Problem(path, code, message, hint))

    def count(self) -> None:
        """One more, not described: there are more than will be shown."""
        self.listed.append(self.listed[-1])

    def adopt(self, path: str, error: Invalid) -> None:
        """Take over what another reader found, under our path."""
        for problem in error.listed():
            dot = "." if path and problem.path and problem.path[0] != "[" else ""
            self.add(f"{path}{dot}{problem.path}", problem.code, problem.message, problem.hint)

    def deny(self, path: str, message: str, hint: str) -> None:
        self.denied.append(Problem(path, "E_POLICY", message, hint))

    def raise_any(self) -> None:
        """Raise what was noted, if anything was."""
        if self.denied:
            raise Denied.of(self.denied + self.listed)
        if self.listed:
            raise Invalid.of(self.listed)


# ------------------------------------------------------------------------------ reading fields

ABSENT: Any = object()
# In one line also tab, line ends and the characters that turn the direction of writing around.
_LINE_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff]")
Note = tuple[str, str, str]  # code, message, hint
NO_NOTES: Mapping[str, Note] = MappingProxyType({})
# What would let a job out of its isolation, wherever in a document it is asked for.
_FORBIDDEN: dict[str, Callable[[Any], bool]] = {
    "privileged": lambda value: value is not False,
    "cap_add": lambda value: value != [],
    "network": lambda value: value == "host",
    "pid": lambda value: value == "host",
    "user": lambda value: value in ("root", "0", 0),
}


class Fields:
    """One mapping of a document, with its readers."""

    __slots__ = ("path", "problems", "values")

    def __init__(self, values: Json, path: str, problems: Problems) -> None:
        self.values = values
        self.path = path
        self.problems = problems

    def fault(self, name: str, code: str, message: str, hint: str = "") -> None:
        if self.problems.is_full:
            self.problems.count()
            return
        self.problems.add(join(self.path, name), code, message, hint)

    def wrong_type(self, name: str, expected: str) -> None:
        words = ("", "") if self.problems.is_full else type_words(expected, self.values[name])
        self.fault(name, "E_TYPE", *words)

    def at(self, name: str) -> str:
        """Return the path of a field we know."""
        return f"{self.path}.{name}" if self.path else name

    def refuse_others(self, known: frozenset[str], notes: Mapping[str, Note] = NO_NOTES) -> None:
        """Note every field that is not known here; some names deserve a better answer than that."""
        if self.values.keys() <= known:
            return
        for name in self.values:
            if name not in known:
                self._refuse(name, known, notes)

    def _refuse(self, name: Any, known: frozenset[str], notes: Mapping[str, Note]) -> None:
        if self.problems.is_full:
            self.problems.count()
        elif not isinstance(name, str):
            self.problems.listed.append(_key_problem(name, self.path))
        elif name in _FORBIDDEN and _FORBIDDEN[name](self.values[name]):
            message = "this would take away the isolation of jobs, which is not allowed here"
            self.problems.deny(self.at(name), message, "remove the field")
        elif name in notes:
            self.fault(name, *notes[name])
        else:
            self.fault(name, "E_UNKNOWN_FIELD", f"there is no field {shown(name)} here", suggest(name, known, repr))

    def text(self, name: str, longest: int = MAX_LINE) -> str | None:
        """One line of text."""
        value = self.values.get(name, ABSENT)
        if value is ABSENT:
            return None
        if type(value) is not str:
            self.wrong_type(name, "must be text")
        elif not value or value.isspace():
            self.fault(name, "E_EMPTY", "must not be empty")
        elif len(value) > longest:
            self.fault(name, "E_LEN", f"at most {longest} characters, got {len(value)}", "shorten it")
        elif not value.isprintable() and (odd := _LINE_CONTROL.search(value)):
            self.fault(name, "E_CHAR", *control_words(odd[0]))
        else:
            return value
        return None

    def lines(self, name: str, longest: int, *, needed: str = "") -> str | None:
        """Text of several lines; with `needed`, it must be there."""
        if name not in self.values:
            if needed:
                self.fault(name, "E_REQUIRED", needed)
            return None
        value = self.values[name]
        if type(value) is not str:
            self.wrong_type(name, "must be text")
        elif not value or value.isspace():
            self.fault(name, "E_EMPTY", "must not be empty")
        elif len(value) > longest:
            self.fault(name, "E_LEN", f"at most {longest} characters, got {len(value)}")
        elif odd := CONTROL.search(value):
            self.fault(name, "E_CHAR", *control_words(odd[0]))
        else:
            return value
        return None

    def word(self, name: str, known: tuple[str, ...], default: str | None = None) -> str | None:
        """One of several words."""
        value = self.values.get(name, default)
        if type(value) is str and value in known:
            return value
        got = shown(value) if isinstance(value, str) else "nothing" if value is None else kind_of(value)
        self.fault(name, "E_ENUM" if name in self.values else "E_REQUIRED", f"one of {', '.join(known)}, got {got}")
        return default

    def require(self, name: str, message: str) -> None:
        if name not in self.values:
            self.fault(name, "E_REQUIRED", message)

    def handle(self, name: str) -> str | None:
        """One line of text that no command line takes for an option."""
        value = self.text(name)
        if value is not None and value[0] == "-":
            self.fault(name, "E_PATTERN", "must not begin with a dash", "begin with a letter or digit")
        return value

    def flag(self, name: str) -> bool | None:
        value = self.values.get(name)
        if type(value) is bool:
            return value
        if name in self.values:
            self.wrong_type(name, "must be true or false")
        return None

    def number(self, name: str, default: float | None, low: float, high: float, *, whole: bool = False) -> Any:
        value = self.values.get(name, ABSENT)
        if value is ABSENT:
            return default
        if type(value) is not int and (whole or type(value) is not float):
            self.wrong_type(name, "must be a whole number" if whole else "must be a number")
        elif not low <= value <= high:  # NaN is in no range
            self.fault(name, "E_RANGE", f"must be from {low} to {high}, got {_number(value)}")
        else:
            return value
        return default

    def seconds(self, name: str, default: float | None, low: float) -> Any:
        """Return a duration, as '10m' or in seconds."""
        value = self.values.get(name, ABSENT)
        if value is ABSENT:
            return default
        try:
            got = (_duration(value) if type(value) is str else moments.read_duration(value)) / SECOND
        except Invalid as error:
            if error.code != "E_INTERVAL_RANGE":
                self.problems.adopt(self.at(name), error)
                return default
            got = math.inf
        if low <= got <= MAX_SECONDS:
            return got
        self.fault(name, "E_RANGE", f"must be from {low:g}s to 366d, got {_number(value)}", "write 90s, 10m or 1h30m")
        return default

    def items(self, name: str, most: int, unit: str, least: int = 0) -> list[Any]:
        value = self.values.get(name, ABSENT)
        if value is ABSENT:
            return []
        if not isinstance(value, list):
            self.wrong_type(name, "must be a list")
        elif len(value) < least:
            self.fault(name, "E_EMPTY", "must have at least one item")
        elif len(value) > most:
            self.fault(name, "E_LIMIT", f"at most {most} {unit}, got {len(value)}")
        else:
            return value
        return []

    def json(self, name: str, most: int) -> Json:
        """Any JSON object of limited size."""
        value = self.values.get(name, ABSENT)
        if value is ABSENT:
            return {}
        if not isinstance(value, dict):
            self.wrong_type(name, "must be a mapping")
            return {}
        text = encoded(value)
        if text is None or _SUSPECT.search(text):
            found = list(islice(json_problems(value, self.at(name)), MAX_PROBLEMS))
            self.problems.listed += found
            if found or text is None:
                return {}
        if len(text.encode()) > most:
            self.fault(name, "E_LEN", f"at most {most // 1024} KiB as JSON", "keep large data elsewhere")
            return {}
        return cast(Json, json.loads(text))


def open_document(document: Any, expected: str, known: frozenset[str], *, is_null_unset: bool = False) -> Fields:
    """Return the fields of a whole document, of which those that are not known are noted as problems; raises Invalid
    if it has none. `is_null_unset`: what is shown as null is not set."""
    problems = Problems()
    fields = fields_of(document, "", problems, expected)
    if fields is None:
        problems.raise_any()
        raise AssertionError("a problem was noted")
    fields.refuse_others(known)
    return Fields({k: v for k, v in fields.values.items() if v is not None}, "", problems) if is_null_unset else fields


def fields_of(value: Any, path: str, problems: Problems, expected: str) -> Fields | None:
    if isinstance(value, dict):
        return Fields(value, path, problems)
    problems.add(path, "E_TYPE", *type_words(expected, value))
    return None


MAX_LABELS = 32
LABEL_PATTERN = r"[A-Za-z0-9_][A-Za-z0-9_./:=-]{0,62}"
_LABEL = re.compile(LABEL_PATTERN)


def read_labels(fields: Fields, implied: tuple[str, ...] = (), name: str = "labels") -> tuple[str, ...]:
    """Return what an agent must have, or another list of such words; `implied` is asked for in any case."""
    path = fields.at(name)
    labels = set(implied)
    for index, label in enumerate(fields.items(name, MAX_LABELS, name)):
        if type(label) is not str:
            fields.problems.add(f"{path}[{index}]", "E_TYPE", *type_words("must be text", label))
        elif not _LABEL.fullmatch(label):
            message = "1 to 63 letters, digits or any of _./:=- expected, beginning with a letter or digit"
            fields.problems.add(f"{path}[{index}]", "E_PATTERN", message)
        else:
            labels.add(label)
    return tuple(sorted(labels))


def refuse_twins(names: list[str | None], path: str, what: str, problems: Problems) -> None:
    """Note every name that stands a second time; `path` has {} for the index."""
    if len(set(names)) == len(names):
        return
    first: dict[str, int] = {}
    for index, name in enumerate(names):
        if name and first.setdefault(name, index) != index:
            message = f"{what} {shown(name)} is already that of {path.format(first[name])}"
            problems.add(path.format(index), "E_DUP_NAME", message, "give each its own")


def without_empty(spec: Json, **more: Any) -> Json:
    """Return the spec with those of `more` that are not empty."""
    return {**spec, **{name: value for name, value in more.items() if value}}


def type_words(expected: str, value: Any) -> tuple[str, str]:
    """Message and hint for a value of the wrong type."""
    got = kind_of(value)
    if "text" in expected and got in ("boolean", "number", "date"):
        hint = "YAML takes yes, no, on and off for booleans" if got == "boolean" else ""
        return f"{expected}, got {got}; quote it", hint
    if "number" in expected and got == "a string":
        return f"{expected}, got {got}; remove the quotes", ""
    return f"{expected}, got {got}", "leave the field out" if value is None else ""


def control_words(character: str) -> tuple[str, str]:
    return f"control character U+{ord(character):04X} is not allowed", "remove it"


def _number(value: Any) -> str:
    text = str(value) if not isinstance(value, int) or -(2**63) <= value < 2**63 else "a larger number"
    return text if len(text) <= 60 else "a longer one"


_duration = lru_cache(maxsize=1024)(moments.read_duration)


# ---------------------------------------------------------------------------------- plain JSON

encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":")).encode
_SUSPECT = re.compile(r"\\[bf]|\\u00|[\x7f-\x9f]|[0-9]{19}")  # worth a look by json_problems


def encoded(value: Json) -> str | None:
    """Canonical JSON text; None when there is none, and json_problems can tell why."""
    try:
        text = encode(value)
        text.encode()
    except (TypeError, ValueError, RecursionError):
        return None
    return text


def json_problems(value: Any, path: str, depth: int = 0) -> Iterator[Problem]:
    """What keeps a value from being plain JSON that every store and language can hold."""
    if depth > MAX_DEPTH:
        yield Problem(path, "E_DEPTH", f"nested deeper than {MAX_DEPTH} levels", "flatten it")
    elif isinstance(value, dict):
        for key, member in value.items():
            yield from _leaf_problem(key, path) if isinstance(key, str) else [_key_problem(key, path)]
            yield from json_problems(member, join(path, str(key)), depth + 1)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from json_problems(item, f"{path}[{index}]", depth + 1)
    else:
        yield from _leaf_problem(value, path)


def _key_problem(key: Any, path: str) -> Problem:
    return Problem(path, "E_TYPE", *type_words("a key must be text", key))


def _leaf_problem(value: Any, path: str) -> Iterator[Problem]:
    if isinstance(value, str):
        if not value.isprintable() and (odd := CONTROL.search(value)):
            yield Problem(path, "E_CHAR", *control_words(odd[0]))
    elif isinstance(value, float) and not math.isfinite(value):
        yield Problem(path, "E_RANGE", f"must be a finite number, got {value}")
    elif isinstance(value, int) and not -(2**63) <= value < 2**63:
        yield Problem(path, "E_RANGE", "a whole number must fit 64 bits", "send it as text")
    elif value is not None and not isinstance(value, int | float):
        yield Problem(path, "E_TYPE", *type_words("must be text, a number, a list or a mapping", value))
