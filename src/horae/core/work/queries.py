"""Kind `spark_sql`: a query, and where its rows go.

A query may run code that is no SQL: programs and classes of the machines it runs on, or its own. It may ask servers
that are none of the lake's, for Spark has the network of its machine. Agents refuse both unless told otherwise:

    calls_code("SELECT reflect('java.lang.System', 'getenv')")   →   "reflect"
    asks_servers("SELECT * FROM text.`http://127.0.0.1:8080/`")  →   "http"

Text in quotes and comments says nothing; names may stand in backquotes. Statements that are made of text while they
run (EXECUTE IMMEDIATE, IDENTIFIER) could say anything, so they count too. One pass, whatever the text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from horae.core.fields import Fields, fields_of, without_empty
from horae.core.model import Json
from horae.core.work.syncs import nameless

FIELDS = frozenset({"query", "outputs"})
WRITE_MODES = ("append", "replace")
MAX_QUERY = 64 * 1024  # characters
MAX_ADDRESS = 2048
MAX_OUTPUTS = 20

# Where results go: the fields of each, and which of them must be there.
OUTPUTS: Mapping[str, tuple[frozenset[str], tuple[str, ...]]] = {
    "files": (frozenset({"to", "uri", "path", "mode"}), ("path",)),
    "clickhouse": (frozenset({"to", "database", "table", "mode"}), ("database", "table")),
}


def read_spark_sql(fields: Fields) -> Json:
    path = fields.at("outputs")
    items = fields.items("outputs", MAX_OUTPUTS, "outputs")
    outputs = [_output(item, f"{path}[{index}]", fields) for index, item in enumerate(items)]
    return without_empty({"query": fields.lines("query", MAX_QUERY, needed="a query is needed")}, outputs=outputs)


def _output(item: Any, path: str, outer: Fields) -> Json:
    fields = fields_of(item, path, outer.problems, "an output must be a mapping such as {to: files, path: /data/a}")
    to = fields.word("to", tuple(OUTPUTS)) if fields is not None else None
    if fields is None or to is None:
        return {}
    known, needed = OUTPUTS[to]
    fields.refuse_others(known)
    for name in needed:
        fields.require(name, f"an output to {to} needs a {name}")
    texts = {name: fields.text(name, MAX_ADDRESS) for name in sorted(known - {"to", "mode"})}
    mode = fields.word("mode", WRITE_MODES, WRITE_MODES[0])
    return without_empty({"to": to}, **texts, mode=None if mode == WRITE_MODES[0] else mode)


def locks_of(spec: Json) -> tuple[str, ...]:
    """Return the names of what a query writes, one each, alike for everybody who writes the same: outputs and
    tables."""
    tables = {f"spark {name}" for name in tables_written(spec.get("query", ""))}
    return tuple(sorted({_written(output) for output in spec.get("outputs", ())} | tables))


def _written(output: Json) -> str:
    if output["to"] == "clickhouse":
        return f"clickhouse {output['database']}.{output['table']}"
    return f"files {nameless(output.get('uri', '')).rstrip('/')}/{output['path'].strip('/')}"


# ── tables of Spark ────────────────────────────────────────────────────────────────────────────────

_TOKEN = re.compile(
    r"""'(?:[^'\\]|\\.?)*+'? | "(?:[^"\\]|\\.?)*+"? | --[^\n]*+ | /\*(?:[^*]|\*(?!/))*+(?:\*/)?
      | `((?:[^`]|``)*+)`? | (\w++) | (\.)""",
    re.VERBOSE | re.DOTALL,
)
_WRITTEN = [re.compile(pattern) for pattern in (
    r"^create (?:or replace )?(?:external )?(?:table|view) (?:if not exists )?(\S+)",
    r"^replace table (\S+)",
    r"^(?:drop|truncate|alter) (?:table|view) (?:if exists )?(\S+)",
    r"^alter (?:table|view) \S+ rename to (\S+)",
    r"^(?:create|drop|alter) (?:database|schema|namespace) (?:if (?:not )?exists )?(\S+)",
    r"\binsert (?:into|overwrite) (?:table )?(?!directory\b|local\b)(\S+)",
    r"^merge into (\S+)",
    r"^delete from (\S+)",
    r"^update (\S+)",
    r"^load data (?:local )?inpath (?:overwrite )?into table (\S+)",
)]  # fmt: skip
_ABOUT_DATABASES = re.compile(r"^(?:create|drop|alter) (?:database|schema|namespace) ")


def tables_written(query: str) -> list[str]:
    """Return the tables, views and databases that a statement makes, changes or fills, each with its database:

    tables_written("INSERT INTO abc SELECT 1")   →   ["default.abc"]
    """
    text = _plain(query)
    found = [match[1] for pattern in _WRITTEN for match in pattern.finditer(text)]
    if _ABOUT_DATABASES.match(text):
        return [name.removeprefix("spark_catalog.") for name in found]
    return [_with_database(name.removeprefix("spark_catalog.")) for name in found]


def _with_database(name: str) -> str:
    return name if "." in name else f"default.{name}"


def _plain(query: str) -> str:
    """Return the words of a statement in lower case, one blank between two; names of several parts as one word."""
    found = (quoted or word or mark for quoted, word, mark in _TOKEN.findall(query))
    words = (piece.strip().lower().replace(" ", "_") for piece in found if piece)
    return " ".join(words).replace(" . ", ".")


def names_in(query: str) -> list[str]:
    """Return all words of a statement that could be names of tables, in lower case, in order."""
    return [word for word in _words(query) if word not in "(;"]


# ── what a query does besides ──────────────────────────────────────────────────────────────────────

_PIECE = re.compile(
    r"""'(?:[^'\\]|\\.?)*+'? | "(?:[^"\\]|\\.?)*+"? | --[^\n]*+ | /\*(?:[^*]|\*(?!/))*+(?:\*/)?
      | `((?:[^`]|``)*+)`? | ([A-Za-z_][A-Za-z_0-9]*+) | ([(;])""",
    re.VERBOSE | re.DOTALL,
)
_PLACE = re.compile(
    r"""'(?:[^'\\]|\\.?)*+'? | "(?:[^"\\]|\\.?)*+"? | --[^\n]*+ | /\*(?:[^*]|\*(?!/))*+(?:\*/)?
      | `(?:[^`]|``)*+`? | \w++ | [()]""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|(.))", re.DOTALL)
_SCHEME = re.compile(r"\s*([A-Za-z][A-Za-z0-9+.-]*):")
_SERVERS = frozenset({"http", "https", "ftp", "sftp", "jdbc", "webhdfs", "swebhdfs"})
_FUNCTIONS = frozenset({"reflect", "try_reflect", "java_method", "identifier"})  # before a parenthesis
_SCRIPTS = frozenset({"transform", "map", "reduce"})  # before USING and a command
_RESOURCES = frozenset({"jar", "jars", "file", "files", "archive", "archives"})


def calls_code(query: str) -> str | None:
    """Return the word that runs code; None where there is none."""
    words, seen = _words(query), set[str]()
    for before, word, after in zip([";", *words], words, [*words[1:], ""], strict=False):
        if word in _FUNCTIONS and after == "(":
            return word
        if before == ";" and word == "add" and after in _RESOURCES:
            return f"add {after}"
        if word == "execute" and after == "immediate":
            return "execute immediate"
        if (word == "using" and after in _RESOURCES) or (word == "function" and "create" in seen):
            return "create function"
        if word == "using" and after != "(" and not seen.isdisjoint(_SCRIPTS):
            return "transform … using"
        seen.add(word)
    return None


def asks_servers(query: str) -> str | None:
    """Return the scheme of a place that is no file system of a lake; None where there is none. Places stand in
    backquotes, after LOCATION and PATH, and anywhere within OPTIONS."""
    depth, before = 0, ""
    for match in _PLACE.finditer(query):
        piece = match[0]
        if depth:
            depth += {"(": 1, ")": -1}.get(piece, 0)
        elif before == "options" and piece == "(":
            depth = 1
        is_place = piece[0] == "`" or (piece[0] in "'\"" and (depth > 0 or before in ("location", "path")))
        scheme = _SCHEME.match(_unescaped(piece)) if is_place else None
        if scheme and scheme[1].lower() in _SERVERS:
            return scheme[1].lower()
        if not piece.startswith(("--", "/*")):
            before = piece.lower()
    return None


def _unescaped(piece: str) -> str:
    return _ESCAPE.sub(lambda match: chr(int(match[1], 16)) if match[1] else match[2], piece[1:])


def _words(query: str) -> list[str]:
    """Names in lower case, opening parentheses and semicolons, in order."""
    found = (quoted or name or mark for quoted, name, mark in _PIECE.findall(query))
    return [piece.strip().lower() for piece in found if piece]
