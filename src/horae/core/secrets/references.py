"""Secrets as job documents name them: `{secret: NAME}` in the place of a text.

A spec keeps the reference, never the value; values are put in for one attempt, where it is made.

What must stay true: only what a reader took for a reference is one. The documents that users fill as they like
(`data`, `options`) are never looked into, so an object of theirs that looks like a reference stays what it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from horae.core.fields import CONTROL, Fields, control_words, fields_of, kind_of, shown
from horae.core.model import Json
from horae.errors import Invalid

MAX_VALUE = 64 * 1024  # bytes
MAX_TOTAL = 1024 * 1024  # bytes of JSON: what one attempt gets travels in one message
MAX_FILES = 50
MAX_PATH = 255  # characters of a file that holds a secret
NAME_PATTERN = "[A-Za-z][A-Za-z0-9_-]{0,62}"
_NAME = re.compile(NAME_PATTERN)
FILE_PATTERN = r"[A-Za-z0-9_][A-Za-z0-9_.-]*(?:/[A-Za-z0-9_][A-Za-z0-9_.-]*)*"
_FILE = re.compile(FILE_PATTERN)
FREE = frozenset({"data", "options"})  # fields of a spec that hold whatever their user likes
_REFERENCE = frozenset({"secret"})


def check_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        message = f"the name of a secret is up to 63 letters, digits, _ and -, a letter first; got {shown(name)}"
        raise Invalid(message, code="E_PATTERN", path="name")
    return name


def check_value(value: Any) -> str:
    """Return a value that can be kept. What is wrong is told without repeating any of it."""
    if type(value) is not str:
        raise Invalid(f"value: must be text, got {kind_of(value)}", code="E_TYPE", path="value")
    if not value:
        raise Invalid("value: must not be empty", code="E_EMPTY", path="value", hint="delete the secret instead")
    if odd := CONTROL.search(value):
        raise Invalid(f"value: {control_words(odd[0])[0]}", code="E_CHAR", path="value", hint="encode it, as base64")
    if len(value) > MAX_VALUE or len(value.encode()) > MAX_VALUE:
        raise Invalid(f"value: at most {MAX_VALUE // 1024} KiB", code="E_LEN", path="value")
    return value


# ── in documents ───────────────────────────────────────────────────────────────────────────────────


def is_reference(value: Any) -> bool:
    return isinstance(value, dict) and value.keys() == _REFERENCE and isinstance(value["secret"], str)


def read_reference(fields: Fields, name: str, expected: str = "must be text") -> Json | None:
    """`{secret: NAME}`, or a problem noted."""
    value = fields.values[name]
    if not isinstance(value, dict) or value.keys() != _REFERENCE:
        fields.fault(name, "E_TYPE", f"{expected}, got {kind_of(value)}", "to use a secret, write {secret: NAME}")
    elif type(value["secret"]) is not str or not _NAME.fullmatch(value["secret"]):
        fields.fault(name, "E_PATTERN", "the name of a secret is letters, digits, _ and -, a letter first")
    else:
        return {"secret": value["secret"]}
    return None


def text_or_reference(fields: Fields, name: str, read: Callable[[], str | None]) -> str | Json | None:
    """Return a field that is a secret itself, as `read` reads it, or names one."""
    return read_reference(fields, name) if isinstance(fields.values.get(name), dict) else read()


def read_files(fields: Fields) -> Json:
    """`files`: a path below HORAE_SECRETS_DIR → the secret that shall stand there."""
    if "files" not in fields.values:
        return {}
    inner = fields_of(fields.values["files"], fields.at("files"), fields.problems, "must be a mapping")
    if inner is None:
        return {}
    if len(inner.values) > MAX_FILES:
        fields.fault("files", "E_LIMIT", f"at most {MAX_FILES} files, got {len(inner.values)}")
        return {}
    found = {
        path: read_reference(inner, path, "must be {secret: NAME}") for path in inner.values if _is_file(inner, path)
    }
    _refuse_nested(inner, list(found))
    return dict(sorted(found.items()))


def _is_file(files: Fields, path: Any) -> bool:
    if type(path) is not str or len(path) > MAX_PATH or not _FILE.fullmatch(path):
        message = (
            "a relative path of letters, digits, _ . and - expected, each part beginning with one of the first three"
        )
        files.fault(str(path), "E_PATTERN", message)
        return False
    return True


def _refuse_nested(files: Fields, paths: list[str]) -> None:
    for path in paths:
        if any(other.startswith(f"{path}/") for other in paths):
            files.fault(path, "E_FIELD_CONFLICT", "is a file here and a directory of another one")


# ── in specs ───────────────────────────────────────────────────────────────────────────────────────


def names_in(spec: Json) -> frozenset[str]:
    """Return the secrets that a spec refers to."""
    found: set[str] = set()
    _replace(spec, lambda name: found.add(name))
    return frozenset(found)


def filled(spec: Json, values: Mapping[str, str]) -> Json:
    """Return the spec with every reference replaced by its value; the given one is left as it is."""
    return dict(_replace(spec, values.__getitem__))


def _replace(spec: Json, by: Callable[[str], Any]) -> Json:
    return {name: value if name in FREE else _walk(value, by) for name, value in spec.items()}


def _walk(value: Any, by: Callable[[str], Any]) -> Any:
    if is_reference(value):
        return by(value["secret"])
    if isinstance(value, dict):
        return {name: _walk(member, by) for name, member in value.items()}
    if isinstance(value, list):
        return [_walk(item, by) for item in value]
    return value


def shown_references(shown_spec: Json, spec: Json, *fields: str) -> Json:
    """`shown_spec` with the references of some fields as they are: a name is no secret."""
    return {**shown_spec, **{name: _restored(shown_spec[name], spec[name]) for name in fields if name in spec}}


def _restored(shown_value: Any, value: Any) -> Any:
    if is_reference(value):
        return value
    if isinstance(value, dict) and isinstance(shown_value, dict):
        return {name: _restored(shown_value[name], member) for name, member in value.items()}
    if isinstance(value, list) and isinstance(shown_value, list):
        return [_restored(one, other) for one, other in zip(shown_value, value, strict=True)]
    return shown_value


def missing_words(name: str, values: Mapping[str, str | None]) -> str:
    """Why a secret that an attempt needs is not there."""
    if name in values:
        return (
            f"the secret {name} cannot be given: the server cannot open it with its secret_key_file, or the secrets of "
            f"the job are more than {MAX_TOTAL // 1024} KiB in all"
        )
    return f"there is no secret {name}: set it with `horae secret set {name}`"
