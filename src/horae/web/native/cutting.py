"""Lists cut into their items while they arrive: lines, or a JSON array, which an object may hold.

What must stay true: no more is kept than the item that is not whole yet, which has at most MAX_BYTES; what is inside an
item is for whoever reads it to judge.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Protocol

from horae.errors import Error, Invalid, Malformed
from horae.web.documents import MAX_BYTES
from horae.web.openapi import LINES

# A string that is whole; a quotation mark without its fellow is the beginning of one that is not.
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|["\[\]{},]', re.DOTALL)
_BEGINNING = re.compile(rb'\s*(?:\{\s*"(\w+)"\s*:\s*)?\[')
_PATIENCE = 1000  # bytes among which an array begins


class Cutter(Protocol):
    def cut(self, piece: bytes) -> Iterator[bytes]:
        """Yield the items that are whole now."""

    def rest(self) -> Iterator[bytes]:
        """Yield what is left once all has arrived; raises where it broke off."""


class Lines:
    """A line is an item; empty ones are none."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._begun = b""

    def cut(self, piece: bytes) -> Iterator[bytes]:
        *whole, self._begun = (self._begun + piece).split(b"\n")
        yield from filter(bytes.strip, whole)
        if len(self._begun) > MAX_BYTES:
            raise too_large(self._name)

    def rest(self) -> Iterator[bytes]:
        if self._begun.strip():
            yield self._begun


class Array:
    """Each value of an array, which may be the only member of an object."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._text = b""  # from the beginning of the item on that is not whole
        self._at = 0  # where in it to go on
        self._depth = 0  # 0: the array has not begun; 1: between its items
        self._end = b""  # what must follow the array
        self._is_over = False
        self._is_first = True

    def cut(self, piece: bytes) -> Iterator[bytes]:
        self._text += piece
        if self._depth == 0 and not self._is_over:
            self._begin()
        if self._depth:
            yield from self._items()
        if len(self._text) > MAX_BYTES:
            raise unreadable(self._name) if self._is_over else too_large(self._name)

    def rest(self) -> Iterator[bytes]:
        if not self._is_over or self._text.strip() != self._end:
            raise unreadable(self._name)
        yield from ()

    def _begin(self) -> None:
        found = _BEGINNING.match(self._text)
        if found is None and len(self._text) < _PATIENCE:
            return
        if found is None or found[1] not in (None, self._name.encode()):
            raise unreadable(self._name)
        self._end = b"}" if found[1] is not None else b""
        self._text, self._depth = self._text[found.end() :], 1

    def _items(self) -> Iterator[bytes]:
        text, start = self._text, 0
        for token in _TOKEN.finditer(text, self._at):
            sign = token[0]
            if sign in (b"[", b"{"):
                self._depth += 1
            elif sign in (b"]", b"}"):
                self._depth -= 1
            elif sign == b'"':
                self._keep(start, token.start())
                return
            if self._depth == 0 or (self._depth == 1 and sign == b","):
                item = text[start : token.start()]
                start = token.end()
                yield from self._judged(item, sign)
            if self._depth == 0:
                self._is_over = True
                self._keep(start, start)
                return
        self._keep(start, len(text))

    def _judged(self, item: bytes, sign: bytes) -> Iterator[bytes]:
        """An array may be empty; between two commas stands something."""
        is_empty = not item.strip()
        if sign == b"}" or (is_empty and not (self._is_first and sign == b"]")):
            raise unreadable(self._name)
        self._is_first = False
        if not is_empty:
            yield item

    def _keep(self, start: int, at: int) -> None:
        self._text, self._at = self._text[start:], at - start


def too_large(name: str) -> Error:
    return Invalid(f"one of {name} has at most {MAX_BYTES} bytes", code="E_TOO_LARGE", path=name)


def unreadable(name: str) -> Error:
    hint = f'send a JSON array, {{"{name}": […]}} with nothing beside it, or a line for each ({LINES[0]})'
    return Malformed("the body is not JSON that can be read", code="E_JSON_SYNTAX", hint=hint)
