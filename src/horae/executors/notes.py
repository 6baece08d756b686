"""What programs of ours tell the agent while they work: one JSON object a line, on a descriptor that they are given.

{"progress": {"step", "rows", …}}   {"facts": {…}}   {"cursor": {…}}   {"error": {"message", "final"}}
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable

from horae.core.model import Json
from horae.executors.attempts.sections import NOTES
from horae.ports.work import Work


def take_note(work: Work, note: Json) -> None:
    """Keep what a program has told of its progress and its result."""
    if isinstance(progress := note.get("progress"), dict):
        work.note_progress(progress)
    if isinstance(facts := note.get("facts"), dict):
        work.facts.update(facts)


def note_writer() -> Callable[[Json], None]:
    """Return what writes the notes of this process."""
    descriptor = int(os.environ[NOTES])
    return lambda note: _write_all(descriptor, json.dumps(note).encode() + b"\n")


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]
