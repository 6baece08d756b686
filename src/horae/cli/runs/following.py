"""What a run writes, on the screen: as it lies there, or while it is written; all of it, or the lines that are wanted.

A text is looked for by the server, which then sends less; a pattern is only tried here, on the machine of whoever wrote
it. While a run is followed both are, because lines come in pieces.
"""

from __future__ import annotations

import codecs
import contextlib
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from horae.cli.datawork import progress_text
from horae.cli.screen import Json, clean, name_of_job
from horae.errors import Invalid

if TYPE_CHECKING:
    from horae.cli.session import Session
    from horae.client import Event, SyncClient


def remark(run: Json) -> str:
    """Why, with what exit code, in which attempt: only what is not plain success."""
    parts = [run["reason"]] if run["reason"] else []
    if run.get("progress"):
        parts.append(progress_text(run["progress"]))
    if run["exit_code"] and not run["message"]:  # the message says it better
        parts.append(f"exit code {run['exit_code']}")
    if run["attempt"] > 1:
        parts.append(f"attempt {run['attempt']}")
    if run["message"]:
        parts.append(run["message"])
    return ", ".join(parts)


# ── which lines ──


class Wanted(NamedTuple):
    """What of a log is asked for. `text` is looked for by the server, `pattern` by us."""

    attempt: int | None = None
    tail: int | None = None
    text: str | None = None
    pattern: re.Pattern[str] | None = None

    def lines(self, *, is_followed: bool) -> Lines | None:
        """Return what picks lines here, if anything does."""
        if self.pattern is not None:
            return Lines(self.pattern)
        return Lines(re.compile(re.escape(self.text))) if is_followed and self.text else None


def read_wanted(attempt: int | None, tail: int | None, grep: str | None, *, is_pattern: bool) -> Wanted:
    if grep == "" or (is_pattern and grep is None):
        raise Invalid("--grep needs a text to look for", code="E_USAGE")
    if grep is None or not is_pattern:
        return Wanted(attempt, tail, grep)
    try:
        return Wanted(attempt, tail, None, re.compile(grep))
    except re.error as error:
        raise Invalid(f"--grep is no regular expression: {error}", code="E_USAGE") from None


class Lines:
    """Picks lines out of text that comes in pieces: a line counts when it is whole."""

    def __init__(self, pattern: re.Pattern[str]) -> None:
        self._pattern = pattern
        self._begun = ""

    def take(self, text: str) -> str:
        *whole, self._begun = (self._begun + text).split("\n")
        return "".join(f"{line}\n" for line in whole if self._pattern.search(line))

    def rest(self) -> str:
        """Return the last line, which nothing ends, if it is wanted."""
        begun, self._begun = self._begun, ""
        return begun if begun and self._pattern.search(begun) else ""


class Pieces:
    """Text of a log whose bytes come in pieces, as far as it is wanted."""

    def __init__(self, lines: Lines | None) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._lines = lines

    def take(self, piece: bytes) -> str:
        text = self._decoder.decode(piece)
        return self._lines.take(text) if self._lines else text

    def rest(self) -> str:
        text = self._decoder.decode(b"", final=True)
        return self._lines.take(text) + self._lines.rest() if self._lines else text


class Named:
    """Puts the name of a run before each line of it. A line is shown when it is whole: others write too."""

    def __init__(self, run: Json) -> None:
        self._name = clean(f"{name_of_job(run)} {run['id']} | ")
        self._begun = ""

    def take(self, text: str) -> str:
        *whole, self._begun = (self._begun + text).split("\n")
        return "".join(f"{self._name}{line}\n" for line in whole)

    def rest(self) -> str:
        """Return the last line, if nothing has ended it."""
        begun, self._begun = self._begun, ""
        return f"{self._name}{begun}\n" if begun else ""


# ── on the screen ──


def head_of(run: Json) -> Json:
    """Return by what --json names a run beside what it says of its log."""
    return {"run_id": run["id"], "job_id": run["job_id"], "job_name": name_of_job(run)}


def print_log(session: Session, client: SyncClient, run: Json, wanted: Wanted) -> None:
    """Print what a run has written so far."""
    if session.as_json:
        session.screen.json({**head_of(run), "text": "".join(_log_text(client, run["id"], wanted))})
        return
    for text in _log_text(client, run["id"], wanted):
        session.screen.log(text)


def _log_text(client: SyncClient, run_id: int, wanted: Wanted) -> Iterator[str]:
    pieces = Pieces(wanted.lines(is_followed=False))
    for piece in client.log(run_id, attempt=wanted.attempt, tail=wanted.tail, grep=wanted.text):
        yield pieces.take(piece)
    yield pieces.rest()


def follow(session: Session, client: SyncClient, run: Json, wanted: Wanted) -> Json | None:
    """Print what a run writes until it ends; returns it as it ended."""
    shown = Shown(session, run, wanted)
    with contextlib.closing(client.follow(run["id"], attempt=wanted.attempt, tail=wanted.tail)) as events:
        for event in events:
            shown.take(event)
    return shown.ended


def say_end(session: Session, run: Json, ended: Json | None) -> None:
    """Say how a run that was followed has ended, if it has."""
    if ended is not None:
        why = remark(ended)
        session.screen.note(f"run {run['id']} {ended['state']}{f' ({why})' if why else ''}")


class Shown:
    """What is shown of a run that is followed: text for people, an object for each event with --json."""

    def __init__(self, session: Session, run: Json, wanted: Wanted, named: Named | None = None) -> None:
        """`named` puts the name of the run before each of its lines, where they are mixed with those of others."""
        self.ended: Json | None = None  # the run, once it has
        self._screen = session.screen
        self._of = head_of(run)
        self._lines = wanted.lines(is_followed=True)
        self._named = None if session.as_json else named
        self._is_open = False  # the last line is without its end

    def take(self, event: Event) -> None:
        if event.name == "log":
            self._write(event.data, self._lines.take(event.data["text"]) if self._lines else event.data["text"])
            return
        if event.name == "end":
            self.ended = event.data
            self._end_log()
        self._state(event.name, event.data)

    def _end_log(self) -> None:
        """What comes next is no part of the log, and begins a line."""
        if self._lines:
            self._write({}, self._lines.rest())
        if self._named:
            self._screen.log(self._named.rest())
        elif self._is_open and self._screen.is_terminal:
            self._screen.line()

    def _state(self, name: str, run: Json) -> None:
        if self._screen.as_json:
            self._screen.json({**self._of, "event": name, "run": run})
            self._screen.flush()

    def _write(self, data: Json, text: str) -> None:
        text = self._named.take(text) if self._named else text
        if not text:
            return
        self._is_open = not text.endswith("\n")
        if self._screen.as_json:
            self._screen.json({**self._of, "event": "log", **data, "text": text})
            self._screen.flush()
        else:
            self._screen.log(text)
