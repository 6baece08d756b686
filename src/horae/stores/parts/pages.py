"""Pages of lists: cursors, and conditions with their arguments."""

from __future__ import annotations

import re
from typing import Any

from horae.core.model import Page
from horae.core.runs.orders import NEVER
from horae.errors import Invalid


def read_cursor(cursor: str | None, start: int) -> int:
    """A cursor is the last id given, in letters that nobody is tempted to count with."""
    if cursor is None:
        return start
    if not re.fullmatch(r"c[0-9a-z]{1,13}", cursor):
        raise Invalid(
            "the cursor is not one that a list gave; leave it out to start anew",
            code="E_PATTERN",
            path="cursor",
        )
    return min(int(cursor[1:], 36), NEVER)


def write_cursor(number: int) -> str:
    digits = ""
    while number:
        number, digit = divmod(number, 36)
        digits = "0123456789abcdefghijklmnopqrstuvwxyz"[digit] + digits
    return "c" + (digits or "0")


def page(items: list[Any], limit: int) -> Page:
    """Return a page of `limit` out of limit + 1 items read: one more than shown tells that there are more."""
    more = len(items) > limit
    shown = items[:limit]
    return Page(shown, write_cursor(shown[-1].id) if more else None)


def like(column: str, part: str, dialect: str) -> tuple[str, str]:
    """Return a condition, and its argument: the column holds this text, whatever the case.

    Where a text is of ASCII alone, so are the letters that it is found in: PostgreSQL makes those small in half the
    time. Where it has no letters, none need be made small."""
    pattern = re.sub(r"([\\%_])", r"\\\1", part.lower())
    if part.isascii() and part.lower() == part.upper():
        return f"{column} LIKE ? ESCAPE '\\'", f"%{pattern}%"
    plain = ' COLLATE "C"' if dialect == "postgres" and part.isascii() else ""
    return f"lower({column}{plain}) LIKE ? ESCAPE '\\'", f"%{pattern}%"


class Where:
    """Conditions of a list query, with their arguments numbered as they come."""

    def __init__(self) -> None:
        self.args: list[Any] = []
        self.conditions: list[str] = []

    def add(self, condition: str, *args: Any) -> None:
        for arg in args:
            self.args.append(arg)
            condition = condition.replace("?", f"${len(self.args)}", 1)
        self.conditions.append(condition)

    def put(self, arg: Any) -> str:
        """Return an argument alone; how to name it."""
        self.args.append(arg)
        return f"${len(self.args)}"

    def text(self) -> str:
        return " AND ".join(self.conditions) or "1 = 1"
