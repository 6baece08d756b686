"""Who asks, carried from whoever let the request in to the store, which writes it beside the change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from horae.core.audit import Deed, changes_of

_carried: ContextVar[Deed | None] = ContextVar("deed", default=None)


def carry(deed: Deed | None) -> None:
    """From here on, whatever this task writes is of this deed; None: of nobody's."""
    _carried.set(deed)


def carried() -> Deed | None:
    return _carried.get()


@contextmanager
def apart() -> Iterator[None]:
    """What is written within is nobody's deed: what was asked for is yet to be done."""
    deed = _carried.get()
    _carried.set(None)
    try:
        yield
    finally:
        _carried.set(deed)


def pending() -> Deed | None:
    """Return the deed that is carried, while its row is still to be written."""
    deed = _carried.get()
    return deed if deed is not None and deed.is_pending else None


def note(**what: Any) -> None:
    """Say more of the deed that is carried, if there is one, before its row is written."""
    if (deed := pending()) is not None:
        for name, value in what.items():
            setattr(deed, name, value)


def note_change(before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> None:
    """Say what the deed that is carried makes of something; None: it was not there, or is gone."""
    if pending() is not None:
        note(change=changes_of(before or {}, after or {}))
