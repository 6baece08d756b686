"""Work on data: git projects that run on a cluster, Spark SQL, and syncs from a source. What each needs, and its
canonical spec. Secrets may stand in these specs as they were sent: core.hiding is about them.

What must stay true: a reader collects problems and never raises; runs that write one destination name it alike.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Any

from horae.core import repositories, syncs
from horae.core.fields import CONTROL, Fields, control_words, fields_of, kind_of, shown
from horae.core.isolation import read_isolation
from horae.core.model import Json
from horae.core.secrets import text_or_reference

KINDS = ("git_java", "git_python", "spark_sql", "sync")
SYNC = "sync"
WRITERS = frozenset({"spark_sql", SYNC})  # kinds that write destinations which two runs must not write at once

BUILD_TOOLS = ("maven", "sbt")
WRITE_MODES = ("append", "replace")
MAX_SCRIPT = 64 * 1024  # characters of a command, a query, a key
MAX_ADDRESS = 2048
MAX_OUTPUTS = 20

# --------------------------------------------------------------------------------------- readers

_DOTTED = re.compile(r"[^\W\d][\w$]*(?:\.[^\W\d][\w$]*)*")  # the name of a class or module


def read_git_java(fields: Fields) -> Json:
    spec: Json = {"source": _source(fields), "build_tool": _word(fields, "build_tool", BUILD_TOOLS)}
    main_class = fields.text("main_class", 512)
    if main_class is not None and not _DOTTED.fullmatch(main_class):
        fields.fault("main_class", "E_PATTERN", "the name of a class expected, such as org.example.Main")
    build_cmd = _script(fields, "build_cmd")
    if fields.flag("maven_settings"):
        spec["maven_settings"] = True
    return _with(spec, build_cmd=build_cmd, main_class=main_class, args=_args(fields), **read_isolation(fields))


def read_git_python(fields: Fields) -> Json:
    module = fields.text("module", 512)
    if module is not None and not _DOTTED.fullmatch(module):
        fields.fault("module", "E_PATTERN", "the name of a module expected, such as package.tool")
    if module is not None and "main_file" in fields.values:
        fields.fault("module", "E_FIELD_CONFLICT", "a Python project begins with a file or with a module", "keep one")
    if "module" not in fields.values:
        _required(fields, "main_file", "a Python project needs a main_file, or a module")
    return _with(
        {"source": _source(fields)},
        main_file=_file(fields, "main_file"),
        module=module,
        requirements=_file(fields, "requirements"),
        build_cmd=_script(fields, "build_cmd"),
        args=_args(fields),
        **read_isolation(fields),
    )


def read_spark_sql(fields: Fields) -> Json:
    path = fields.at("outputs")
    items = fields.items("outputs", MAX_OUTPUTS, "outputs")
    outputs = [_output(item, f"{path}[{index}]", fields) for index, item in enumerate(items)]
    return _with({"query": _script(fields, "query", "a query is needed")}, outputs=outputs)


def _with(spec: Json, **more: Any) -> Json:
    """What is empty goes without saying."""
    return {**spec, **{name: value for name, value in more.items() if value}}


def _required(fields: Fields, name: str, message: str) -> None:
    if name not in fields.values:
        fields.fault(name, "E_REQUIRED", message)


def _script(fields: Fields, name: str, needed: str = "") -> str | None:
    """Text of several lines; with `needed`, it must be there."""
    if name not in fields.values:
        if needed:
            fields.fault(name, "E_REQUIRED", needed)
        return None
    value = fields.values[name]
    if type(value) is not str:
        fields.wrong_type(name, "must be text")
    elif not value or value.isspace():
        fields.fault(name, "E_EMPTY", "must not be empty")
    elif len(value) > MAX_SCRIPT:
        fields.fault(name, "E_LEN", f"at most {MAX_SCRIPT} characters, got {len(value)}")
    elif odd := CONTROL.search(value):
        fields.fault(name, "E_CHAR", *control_words(odd[0]))
    else:
        return value
    return None


def _word(fields: Fields, name: str, known: tuple[str, ...], default: str | None = None) -> str | None:
    value = fields.values.get(name, default)
    if type(value) is str and value in known:
        return value
    got = shown(value) if isinstance(value, str) else "nothing" if value is None else kind_of(value)
    fields.fault(name, "E_ENUM" if name in fields.values else "E_REQUIRED", f"one of {', '.join(known)}, got {got}")
    return default


def _args(fields: Fields) -> str | None:
    """Arguments in one text, taken apart as a shell would: it must be possible."""
    args = _script(fields, "args")
    try:
        shlex.split(args or "")
    except ValueError as error:
        fields.fault("args", "E_PATTERN", f"arguments as for a shell expected: {error}", "close the quotation mark")
    return args


def _file(fields: Fields, name: str) -> str | None:
    """The path of a file inside the project."""
    path = fields.text(name, 1024)
    if path is not None and (path[0] in "/-~" or ".." in path.split("/")):
        fields.fault(name, "E_PATTERN", "a path inside the project expected, without .. and not beginning with / or -")
        return None
    return path


CREDENTIALS = frozenset({"username", "password", "private_key"})
_SOURCE_FIELDS = CREDENTIALS | {"url", "branch"}


def _source(fields: Fields) -> Json:
    _required(fields, "source", "a project needs the git repository it comes from")
    if "source" not in fields.values:
        return {}
    inner = fields_of(fields.values["source"], fields.at("source"), fields.problems, "must be a mapping with a url")
    if inner is None:
        return {}
    inner.refuse_others(_SOURCE_FIELDS)
    url, branch = repositories.read_url(inner, may_be_word=True), repositories.read_ref(inner, "branch")
    return _with({"url": url}, branch=branch, **read_credentials(inner))


def read_credentials(fields: Fields) -> Json:
    """Who asks a git server for a repository, beside its url."""
    username = fields.text("username", MAX_ADDRESS)
    password = text_or_reference(fields, "password", lambda: fields.text("password", MAX_ADDRESS))
    private_key = text_or_reference(fields, "private_key", lambda: _script(fields, "private_key"))
    return _with({}, username=username, password=password, private_key=private_key)


# Where results go: the fields of each, and which of them must be there.
OUTPUTS: Mapping[str, tuple[frozenset[str], tuple[str, ...]]] = {
    "files": (frozenset({"to", "uri", "path", "mode"}), ("path",)),
    "clickhouse": (frozenset({"to", "database", "table", "mode"}), ("database", "table")),
}


def _output(item: Any, path: str, outer: Fields) -> Json:
    fields = fields_of(item, path, outer.problems, "an output must be a mapping such as {to: files, path: /data/a}")
    to = _word(fields, "to", tuple(OUTPUTS)) if fields is not None else None
    if fields is None or to is None:
        return {}
    known, needed = OUTPUTS[to]
    fields.refuse_others(known)
    for name in needed:
        _required(fields, name, f"an output to {to} needs a {name}")
    texts = {name: fields.text(name, MAX_ADDRESS) for name in sorted(known - {"to", "mode"})}
    mode = _word(fields, "mode", WRITE_MODES, WRITE_MODES[0])
    return _with({"to": to}, **texts, mode=None if mode == WRITE_MODES[0] else mode)


# ------------------------------------------------------------------------------------- locks


def locks_of(kind: str, spec: Json) -> tuple[str, ...]:
    """The names of what a run of this spec writes; one name, one destination, whatever the kind."""
    if kind == "spark_sql":
        return tuple(sorted({_written(output) for output in spec.get("outputs", ())}))
    if kind == SYNC:
        return syncs.locks_of(spec)
    return ()


def _written(output: Json) -> str:
    if output["to"] == "clickhouse":
        return f"clickhouse {output['database']}.{output['table']}"
    return f"files {syncs.nameless(output.get('uri', '')).rstrip('/')}/{output['path'].strip('/')}"


# ------------------------------------------------------------------------------------- cursors


def first_cursor(spec: Json) -> Json | None:
    """Where a sync begins that has not come any way yet; None: at the beginning."""
    return {"value": spec["begin"]} if "begin" in spec else made_cursor(spec.get("options", {}))


_CURSOR_WORDS = {"last_synced_value": "value", "incremental_time": "incremental_time"}


def made_cursor(said: Json) -> Json | None:
    """The cursor that the words of a class of sync come to; "0" says that nothing was synced yet."""
    return {
        name: said[word] for word, name in _CURSOR_WORDS.items() if said.get(word) not in (None, "", 0, "0")
    } or None


def cursor_words(cursor: Any) -> Json:
    """A cursor in these words; what it does not say is left out."""
    said = cursor if isinstance(cursor, Mapping) else {}
    return {word: said[name] for word, name in _CURSOR_WORDS.items() if name in said}
