"""A piece of a log as text. A character that is cut in two waits for its rest, and the offset with it."""

from __future__ import annotations

import codecs

from horae.contracts.rpc.rendering import WORDS
from horae.core.model import Json
from horae.service.insight.views import LogSlice

PIECE, LARGEST = 256 * 1024, 1024 * 1024  # bytes in one answer: unless said, and at most
LEAST = 4  # bytes of the longest character


def show(piece: LogSlice, limit: int) -> Json:
    """`limit` is what was asked for: less than that is all there is, for now or for good."""
    is_over = piece.run.state.is_terminal and len(piece.data) < limit
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = decoder.decode(piece.data, final=is_over)
    return {
        "execution_id": piece.run.id,
        "attempt": piece.attempt,
        "text": text,
        "next_offset": piece.next_offset - len(decoder.getstate()[0]),
        "status": WORDS[piece.run.state],
    }
