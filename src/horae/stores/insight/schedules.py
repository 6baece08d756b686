"""The schedules of very many triggers, out of the texts that their jobs keep them in.

A job keeps its triggers as `[{"id":1,"schedule":{…},"created_at":…, …}, …]`. Nearly all jobs have one: of these, no
more is read than is always asked for, and when one was made only where somebody asks. Whatever is not so is read as a
whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import overload

import msgspec

from horae.core.model import Moment

LINE = "\n"  # between the texts of two jobs: JSON has none within


class _Brief(msgspec.Struct, gc=False):
    """Of a stored trigger, what is asked for of all."""

    id: int
    schedule: msgspec.Raw


class _Whole(_Brief, gc=False):
    created_at: int


_read_single = msgspec.json.Decoder(tuple[_Brief]).decode_lines
_read = msgspec.json.Decoder(list[_Whole]).decode


class Made(Sequence[Moment]):
    """When triggers were made; 0 where nobody can tell."""

    def __init__(self, trigger_ids: Sequence[int], texts: str | Sequence[str]) -> None:
        self._ids, self._texts = trigger_ids, texts

    @cached_property
    def _lines(self) -> Sequence[str]:
        return _lines(self._texts) if isinstance(self._texts, str) else self._texts

    def __len__(self) -> int:
        return len(self._ids)

    @overload
    def __getitem__(self, row: int) -> Moment: ...
    @overload
    def __getitem__(self, row: slice) -> Sequence[Moment]: ...
    def __getitem__(self, row: int | slice) -> Moment | Sequence[Moment]:
        if isinstance(row, slice):
            return Made(self._ids[row], self._lines[row])
        found = _own(self._lines[row], self._ids[row])
        return 0 if found is None else found.created_at


def read_schedules(trigger_ids: Sequence[int], texts: str) -> tuple[list[str], Made]:
    """Return the schedule of each trigger, and when it was made; an empty one where that cannot be read, or where its
    job has it no longer. `texts`: the triggers of the job of each, a line each."""
    made = Made(trigger_ids, texts)
    try:
        single = [trigger for (trigger,) in _read_single(texts)]
    except msgspec.DecodeError:
        return _one_by_one(trigger_ids, texts), made
    if [trigger.id for trigger in single] != [*trigger_ids]:
        return _one_by_one(trigger_ids, texts), made
    return [str(trigger.schedule, "utf-8") for trigger in single], made


def _one_by_one(trigger_ids: Sequence[int], texts: str) -> list[str]:
    found = (_own(text, trigger_id) for text, trigger_id in zip(_lines(texts), trigger_ids, strict=True))
    return ["" if one is None else str(one.schedule, "utf-8") for one in found]


def _lines(texts: str) -> list[str]:
    return texts.split(LINE) if texts else []


def _own(text: str, trigger_id: int) -> _Whole | None:
    try:
        return next((one for one in _read(text) if one.id == trigger_id), None)
    except msgspec.DecodeError:
        return None
