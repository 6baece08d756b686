"""Work on data: git projects that run on a cluster, Spark SQL, and syncs from a source. What each needs, its
canonical spec, and how its secrets are hidden.

Secrets stand in these specs, and in the sources of syncs, as they were sent, unless they are named (core.secrets).
Whoever shows one to people shows `masked` of it; whoever takes a changed one back keeps with `unmasked` what was only
seen hidden.

What must stay true: unmasked(masked(x), x) is x; a reader collects problems and never raises; runs that write one
destination name it alike.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from horae.core import repositories
from horae.core.fields import CONTROL, Fields, control_words, fields_of, join, kind_of, shown
from horae.core.isolation import read_isolation
from horae.core.model import Json
from horae.core.secrets import shown_references, text_or_reference
from horae.errors import Invalid

KINDS = ("git_java", "git_python", "spark_sql", "sync")
SYNC = "sync"
WRITERS = frozenset({"spark_sql", SYNC})  # kinds that write destinations which two runs must not write at once

BUILD_TOOLS = ("maven", "sbt")
SYNC_MODES = ("full", "incremental")
DESTINATIONS = ("hadoop", "clickhouse")
WRITE_MODES = ("append", "replace")
MAX_SCRIPT = 64 * 1024  # characters of a command, a query, a key
MAX_ADDRESS = 2048
MAX_OUTPUTS = 20
MAX_OPTIONS = 64 * 1024  # bytes of JSON
LARGEST_ID = 2**63 - 1

# --------------------------------------------------------------------------------------- secrets

MASK = "******"
_SECRET = frozenset({
    "password", "private_key", "access_token", "refresh_token", "api_key", "aws_secret_access_key", "credential",
    "client_secret", "connection_uri", "passphrase", "secret", "token",
})  # fmt: skip
# Within an address: what is kept of it, then what is hidden.
_IN_ADDRESS = re.compile(
    r"(?P<password>://[^/@\s:]*:)[^/\s]+(?=@)"
    r"|(?P<token>https?://)[^/@\s:]+(?=@)"
    r"|(?P<oracle>jdbc:oracle:thin:[^/@\s]+/)[^@\s]+(?=@)"
    r"|(?P<query>[?&;](?:\w*password|\w*token|\w*secret|\w*key|pwd)=)[^&;\s]+",
    re.IGNORECASE,
)


def masked(value: Any, key: str = "") -> Any:
    """A spec or the settings of a source, as people may see it: without secrets, also those within addresses."""
    if key in _SECRET and value not in ("", None):
        return MASK
    if isinstance(value, dict):
        return {name: masked(member, name) for name, member in value.items()}
    if isinstance(value, list):
        return [masked(item, key) for item in value]
    if isinstance(value, str):
        return _IN_ADDRESS.sub(lambda found: f"{found[found.lastgroup or 0]}{MASK}", value)
    return value


def secret_texts(value: Any, key: str = "") -> Iterator[str]:
    """The secrets that `masked` hides."""
    if isinstance(value, dict):
        for name, member in value.items():
            yield from secret_texts(member, name)
    elif isinstance(value, list):
        for item in value:
            yield from secret_texts(item, key)
    elif isinstance(value, str) and key in _SECRET:
        yield value
    elif isinstance(value, str):
        for found in _IN_ADDRESS.finditer(value):
            yield found[0].removeprefix(found[found.lastgroup or 0])


def unmasked(new: Any, old: Any, key: str = "") -> Any:
    """The changed value, where every secret that comes back hidden is the one that was there."""
    if isinstance(new, dict):
        before = old if isinstance(old, dict) else {}
        return {name: unmasked(member, before.get(name), name) for name, member in new.items()}
    if isinstance(new, list):
        items = old if isinstance(old, list) and len(old) == len(new) else [None] * len(new)
        return [unmasked(one, other, key) for one, other in zip(new, items, strict=True)]
    is_hidden = isinstance(new, str) and MASK in new
    return old if is_hidden and old is not None and masked(old, key) == new else new


def refuse_hidden(value: Any, key: str = "", path: str = "") -> None:
    """A hidden secret can stand for the one that is kept, if any; it is none itself."""
    if isinstance(value, dict):
        for name, member in value.items():
            refuse_hidden(member, name, join(path, name))
    elif isinstance(value, list):
        for item in value:
            refuse_hidden(item, key, path)
    elif isinstance(value, str) and MASK in value and (key in _SECRET or _IN_ADDRESS.search(value)):
        message = f"{MASK} stands for a secret that was here before, and there was none such"
        raise Invalid(f"{path}: {message}", code="E_FIELD_CONFLICT", hint="send the secret itself", path=path)


def shown_spec(kind: str, spec: Json) -> Json:
    """The spec of a job as people may see it."""
    return shown_references(dict(masked(spec)), spec, "source") if kind in KINDS else spec


def kept_spec(kind: str, new: Json, old: Json) -> Json:
    """The spec of a changed job, which may come from somebody who saw only `shown_spec` of it."""
    return kept(new, old) if kind in KINDS else new


def kept(new: Json, old: Json) -> Json:
    """A changed value with every secret it needs."""
    found = dict(unmasked(new, old))
    refuse_hidden(found)
    return found


# --------------------------------------------------------------------------------------- readers

_DOTTED = re.compile(r"[^\W\d][\w$]*(?:\.[^\W\d][\w$]*)*")  # the name of a class or module


def read_git_java(fields: Fields) -> Json:
    spec: Json = {"source": _source(fields), "build_tool": _word(fields, "build_tool", BUILD_TOOLS)}
    main_class = fields.text("main_class", 512)
    if main_class is not None and not _DOTTED.fullmatch(main_class):
        fields.fault("main_class", "E_PATTERN", "the name of a class expected, such as org.example.Main")
    build_cmd = _script(fields, "build_cmd")
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


def read_sync(fields: Fields) -> Json:
    """`options` are the fields of its own that each class of sync has."""
    _required(fields, "class_name", "a sync needs the class of its source, such as jdbc_job")
    spec: Json = {
        "source_id": fields.number("source_id", 0, 0, LARGEST_ID, whole=True),  # 0: its options say it all
        "class_name": fields.text("class_name"),
        "sync_mode": _word(fields, "sync_mode", SYNC_MODES, SYNC_MODES[0]),
        "dest_database_name": fields.text("dest_database_name", 256),
        "dest_table_name": fields.text("dest_table_name", 256),
        "destinations": _destinations(fields),
    }
    for name in ("dest_database_name", "dest_table_name"):
        _required(fields, name, "a sync needs the table it fills")
    return _with(spec, options=fields.json("options", MAX_OPTIONS))


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


_SOURCE_FIELDS = frozenset({"url", "branch", "username", "password", "private_key"})


def _source(fields: Fields) -> Json:
    _required(fields, "source", "a project needs the git repository it comes from")
    if "source" not in fields.values:
        return {}
    inner = fields_of(fields.values["source"], fields.at("source"), fields.problems, "must be a mapping with a url")
    if inner is None:
        return {}
    inner.refuse_others(_SOURCE_FIELDS)
    url, branch = repositories.read_url(inner, may_be_word=True), repositories.read_ref(inner, "branch")
    username = inner.text("username", MAX_ADDRESS)
    password = text_or_reference(inner, "password", lambda: inner.text("password", MAX_ADDRESS))
    private_key = text_or_reference(inner, "private_key", lambda: _script(inner, "private_key"))
    return _with({"url": url}, branch=branch, username=username, password=password, private_key=private_key)


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


def _destinations(fields: Fields) -> list[str]:
    found = fields.items("destinations", len(DESTINATIONS), "destinations", least=1)
    _required(fields, "destinations", f"a sync fills one or more of {', '.join(DESTINATIONS)}")
    for item in found:
        if item not in DESTINATIONS:
            fields.fault("destinations", "E_ENUM", f"each must be one of {', '.join(DESTINATIONS)}")
    return [name for name in DESTINATIONS if name in found]


# ------------------------------------------------------------------------------------- locks


def locks_of(kind: str, spec: Json) -> tuple[str, ...]:
    """The names of what a run of this spec writes; one name, one destination, whatever the kind."""
    if kind == "spark_sql":
        return tuple(sorted({_written(output) for output in spec.get("outputs", ())}))
    if kind == SYNC:
        table = f"{spec.get('dest_database_name')}.{spec.get('dest_table_name')}"
        return tuple(f"{to} {table}" for to in sorted(spec.get("destinations", ())))
    return ()


def _written(output: Json) -> str:
    if output["to"] == "clickhouse":
        return f"clickhouse {output['database']}.{output['table']}"
    return f"files {output.get('uri', '').rstrip('/')}/{output['path'].strip('/')}"


# ------------------------------------------------------------------------------------- cursors


def first_cursor(spec: Json) -> Json | None:
    """Where a sync begins that has not come any way yet; None: at the beginning."""
    return made_cursor(spec.get("options", {}))


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
