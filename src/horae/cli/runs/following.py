"""What a run writes, on the screen: as it lies there, or while it is written; all of it, or the lines that are wanted.

A text is looked for by the server, which then sends less; a pattern is only tried here, on the machine of whoever wrote
it. While a run is followed both are, because lines come in pieces.
"""

from __future__ import annotations

import codecs
import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from horae.cli.datawork import progress_text
from horae.cli.screen import Json, name_of_job
from horae.errors import Invalid

if TYPE_CHECKING:
    from horae.cli.session import Session
    from horae.client import SyncClient


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


@dataclass(frozen=True, slots=True)
class Wanted:
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


# ── on the screen ──


def print_log(session: Session, client: SyncClient, run: Json, wanted: Wanted) -> None:
    """Print what a run has written so far."""
    if session.as_json:
        text = "".join(_log_text(client, run["id"], wanted))
        session.screen.json({"run_id": run["id"], "job_id": run["job_id"], "job_name": name_of_job(run), "text": text})
        return
    for text in _log_text(client, run["id"], wanted):
        session.screen.log(text)


def _log_text(client: SyncClient, run_id: int, wanted: Wanted) -> Iterator[str]:
    decoder, lines = codecs.getincrementaldecoder("utf-8")("replace"), wanted.lines(is_followed=False)
    for piece in client.log(run_id, attempt=wanted.attempt, tail=wanted.tail, grep=wanted.text):
        text = decoder.decode(piece)
        yield lines.take(text) if lines else text
    rest = decoder.decode(b"", final=True)
    yield lines.take(rest) + lines.rest() if lines else rest


def follow(session: Session, client: SyncClient, run: Json, wanted: Wanted) -> Json | None:
    """Print what a run writes until it ends; returns it as it ended."""
    shown, ended = _Shown(session, run, wanted.lines(is_followed=True)), None
    with contextlib.closing(client.follow(run["id"], attempt=wanted.attempt, tail=wanted.tail)) as events:
        for event in events:
            if event.name == "log":
                shown.log(event.data)
                continue
            if event.name == "end":
                ended = event.data
                shown.end_log()
            shown.state(event.name, event.data)
    return ended


class _Shown:
    """What is shown of one run: text for people, an object for each event with --json."""

    def __init__(self, session: Session, run: Json, lines: Lines | None) -> None:
        self._screen = session.screen
        self._of = {"run_id": run["id"], "job_id": run["job_id"], "job_name": name_of_job(run)}
        self._lines = lines
        self._is_open = False  # the last line is without its end

    def log(self, data: Json) -> None:
        self._write(data, self._lines.take(data["text"]) if self._lines else data["text"])

    def end_log(self) -> None:
        """What comes next is no part of the log, and begins a line."""
        if self._lines:
            self._write({}, self._lines.rest())
        if self._is_open and self._screen.is_terminal:
            self._screen.line()

    def state(self, name: str, run: Json) -> None:
        if self._screen.as_json:
            self._screen.json({**self._of, "event": name, "run": run})
            self._screen.flush()

    def _write(self, data: Json, text: str) -> None:
        if not text:
            return
        self._is_open = not text.endswith("\n")
        if self._screen.as_json:
            self._screen.json({**self._of, "event": "log", **data, "text": text})
            self._screen.flush()
        else:
            self._screen.log(text)
