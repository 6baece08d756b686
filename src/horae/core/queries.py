"""Which SQL of Spark runs code that is no SQL: programs and classes of the machines it runs on, or its own; and which
asks servers that are none of the lake's, for Spark has the network of its machine.

    calls_code("SELECT reflect('java.lang.System', 'getenv')")   →   "reflect"
    asks_servers("SELECT * FROM text.`http://127.0.0.1:8080/`")  →   "http"

Text in quotes and comments says nothing; names may stand in backquotes. Statements that are made of text while they
run (EXECUTE IMMEDIATE, IDENTIFIER) could say anything, so they count too. One pass, whatever the text.
"""

from __future__ import annotations

import re

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
    """The word that runs code; None where there is none."""
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
    """The scheme of a place that is no file system of a lake; None where there is none. Places stand in backquotes,
    after LOCATION and PATH, and anywhere within OPTIONS."""
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
