"""Facts about handlers over the wire."""

from __future__ import annotations

from horae import wire
from horae.core.work.catalogues import HandlerFact, HandlerList
from horae.wire.generated import handlers_pb2 as pb
from horae.wire.handlers import LONGEST_ERROR, read_handlers, write_handlers


def test_what_is_written_is_read() -> None:
    facts = [HandlerFact("a", "a.py", "async", "1", 5, "wrong"), HandlerFact("b", "b.py", "plain", "2")]
    assert read_handlers(write_handlers(facts)) == HandlerList(facts)


def test_what_does_not_fit_into_a_frame_is_counted() -> None:
    facts = [HandlerFact(f"jobs/{n}", "f" * 400, "plain", "1") for n in range(10_000)]
    written = write_handlers(facts)
    assert written.ByteSize() <= wire.FRAME
    assert len(written.items) + written.left_out == 10_000
    assert written.left_out > 0


def test_what_nobody_could_show_is_not_believed() -> None:
    said = pb.HandlerList(items=[pb.Handler(name="a\0b", loaded_at=2**62, error="e" * 5000)])
    (fact,) = read_handlers(said).items
    assert (fact.name, fact.loaded_at, len(fact.error)) == ("a\N{REPLACEMENT CHARACTER}b", None, LONGEST_ERROR)
