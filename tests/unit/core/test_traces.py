"""Trace ids: unique across installations, and they lead back to the run."""

from __future__ import annotations

import pytest

from horae.core.runs.traces import UNNAMED, run_of, span_id, trace_id, traceparent

HERE, THERE = "0123456789abcdef", "fedcba9876543210"


@pytest.mark.parametrize("run_id", [1, 7, 2**63 - 1])
def test_a_trace_id_is_that_of_one_run_of_one_installation(run_id: int):
    text = trace_id(run_id, HERE)
    assert len(text) == 32
    assert text != trace_id(run_id, THERE)
    assert (run_of(text, HERE), run_of(text.upper(), HERE), run_of(text, THERE)) == (run_id, run_id, None)
    assert traceparent(run_id, 3, HERE) == f"00-{text}-{span_id(run_id, 3)}-01"


def test_trace_ids_of_before_there_were_parts_are_found_everywhere():
    assert trace_id(7) == f"{UNNAMED}0000000000000007"
    assert run_of(trace_id(7), HERE) == 7


@pytest.mark.parametrize("text", ["", "7", HERE, trace_id(0, HERE), HERE + "f" * 16, trace_id(1, HERE) + "0", "ß" * 32])
def test_what_is_no_trace_id_is_nobodys(text: str):
    assert run_of(text, HERE) is None
