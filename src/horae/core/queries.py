"""Which SQL of Spark runs code that is no SQL: programs and classes of the machines it runs on, or its own.

    calls_code("SELECT reflect('java.lang.System', 'getenv')")   →   "reflect"

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


def _words(query: str) -> list[str]:
    """Names in lower case, opening parentheses and semicolons, in order."""
    found = (quoted or name or mark for quoted, name, mark in _PIECE.findall(query))
    return [piece.strip().lower() for piece in found if piece]
