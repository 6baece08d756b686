"""How rows of the audit log go with the changes that they tell of, on both databases.

A deed is known to a store in two ways: the one that is carried by whoever calls (ports.deeds), and those of orders and
submissions, of which many are written together. The row of a deed is part of the transaction that does something for
it; it counts as written when that has committed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from horae.core.audit import COLUMNS, Deed
from horae.core.definitions import Receipt, Submission
from horae.core.runs.orders import Order
from horae.stores.rows import encode


def audit_text(deeds: Sequence[Deed], dialect: str) -> str:
    """Return rows as the statement reads them."""
    rows = [deed.row() for deed in deeds]
    return encode([dict(zip(COLUMNS, row, strict=True)) for row in rows] if dialect == "postgres" else rows)


def has_effect(result: object) -> bool:
    """Return whether a write has done something, by what it answers: rows, receipts, or yes. One that says nothing may
    have done nothing, and no row of the audit log goes with it."""
    if isinstance(result, Receipt):
        return bool(result.ids) and not result.replayed
    return any(map(has_effect, result)) if isinstance(result, list) else bool(result)


def confirm(asked: Iterable[Order | Submission]) -> None:
    """What was sent has been committed."""
    for one in asked:
        if one.deed is not None:
            one.deed.confirm()


def deeds_done(asked: Sequence[Order | Submission], receipts: Sequence[Receipt]) -> list[Deed]:
    """Return the deeds for which something was made now, each knowing what."""
    made: dict[int, tuple[Deed, list[int]]] = {}
    for one, receipt in zip(asked, receipts, strict=True):
        if one.deed is not None and one.deed.is_pending and has_effect(receipt):
            made.setdefault(id(one.deed), (one.deed, []))[1].extend(receipt.ids)
    for deed, ids in made.values():
        deed.note_made(ids)
        if len(ids) == 1 and deed.kind == "job" and not deed.subject:
            deed.subject = str(ids[0])  # a job that is made is what it is about
    return [deed for deed, _ in made.values()]


def orders_text(orders: Sequence[Order]) -> str | None:
    """Return the deeds of orders, each with the first and the last of its orders, for the statement that makes the
    runs."""
    places: dict[int, list[Any]] = {}
    for number, order in enumerate(orders, 1):
        if order.deed is not None and order.deed.is_pending:
            order.deed.is_sent = False
            places.setdefault(id(order.deed), [order.deed, number, number])[2] = number
    rows = [
        {**dict(zip(COLUMNS, deed.row(), strict=True)), "first": first, "last": last}
        for deed, first, last in places.values()
    ]
    return encode(rows) if rows else None
