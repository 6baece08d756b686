"""Facts about handlers as messages, and back. Whoever reads them believes nothing: an agent may say anything."""

from __future__ import annotations

from collections.abc import Iterable

from horae import wire
from horae.core.runs.results import clean
from horae.core.work.catalogues import HandlerFact, HandlerList
from horae.wire.generated import handlers_pb2 as pb

LONGEST_ERROR = 1000  # characters
LONGEST_WORD = 500
LAST = 253_402_300_799_999_999  # the last moment that can be written: the year 9999 ends


def write_handlers(facts: Iterable[HandlerFact]) -> pb.HandlerList:
    """Return as many as fit into a frame; the rest is counted."""
    written, size = pb.HandlerList(), 0
    for fact in facts:
        one = _write(fact)
        size += one.ByteSize() + 8
        if size > wire.FRAME:
            written.left_out += 1
        else:
            written.items.append(one)
    return written


def _write(it: HandlerFact) -> pb.Handler:
    return pb.Handler(
        name=clean(it.name, LONGEST_WORD), file=clean(it.file, LONGEST_WORD), kind=it.kind, version=it.version,
        loaded_at=it.loaded_at, error=clean(it.error, LONGEST_ERROR),
    )  # fmt: skip


def read_handlers(told: pb.HandlerList) -> HandlerList:
    return HandlerList([_read(one) for one in told.items], told.left_out)


def _read(it: pb.Handler) -> HandlerFact:
    name, file, kind, version = (clean(word, LONGEST_WORD) for word in (it.name, it.file, it.kind, it.version))
    is_moment = it.HasField("loaded_at") and 0 <= it.loaded_at <= LAST
    return HandlerFact(name, file, kind, version, it.loaded_at if is_moment else None, clean(it.error, LONGEST_ERROR))
