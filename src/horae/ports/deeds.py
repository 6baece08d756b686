"""Who asks, carried from whoever let the request in to the store, which writes it beside the change."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

from horae.core.audit import Deed

_carried: ContextVar[Deed | None] = ContextVar("deed", default=None)


def carry(deed: Deed | None) -> None:
    """From here on, whatever this task writes is of this deed; None: of nobody's."""
    _carried.set(deed)


def carried() -> Deed | None:
    return _carried.get()


def pending() -> Deed | None:
    """Return the deed that is carried, while its row is still to be written."""
    deed = _carried.get()
    return deed if deed is not None and deed.is_pending else None


def note(**what: Any) -> None:
    """Say more of the deed that is carried, if there is one, before its row is written."""
    if (deed := pending()) is not None:
        for name, value in what.items():
            setattr(deed, name, value)
