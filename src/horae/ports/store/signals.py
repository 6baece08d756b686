"""Runs that wait to be told something."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from horae.core.model import Attempt, Run
from horae.core.runs.calls import Answered
from horae.core.runs.endings import Ending
from horae.core.runs.waits import Signal, Told


class Signals(Protocol):
    """What runs are told, and what they did before they waited for it."""

    async def signal(self, signals: Sequence[Signal]) -> list[Told]:
        """Tell live runs something, however many; answers what became of each, in their order.

        It is kept with the run for as long as that lives. A name is answered once: a second signal changes nothing,
        and is REPEATED where it has the key of the first. A run that is blocked(signal) and awaits the name goes on in
        the same transaction; one that begins to wait for it later (`finish`) goes on at once."""

    async def answer_calls(self, rows: Sequence[Ending]) -> Answered:
        """Tell callers how runs ended which they called (rows of the outbox with a parent that is no workflow), and
        drop the rows. A caller goes on when all that it waits for have ended; one that somebody wants cancelled ends
        when none of them is live."""

    async def load_awaiting(self, name: str, limit: int) -> list[Run]:
        """Runs that wait to be told something of this name, oldest first."""

    async def load_awaiting_of(self, run_id: int, name: str, limit: int) -> list[Run]:
        """The same of one run and its tasks."""

    async def load_edition(self, job_id: int) -> int:
        """How often the address of a watched job was made anew; 0 for most."""

    async def next_edition(self, job_id: int) -> int:
        """Make it anew: whoever has the one of before has nothing."""

    async def list_turns(self, run_id: int) -> list[Attempt]:
        """What attempts did before they waited, oldest first: of each the part that wrote some output. Parts of one
        attempt have its number."""
