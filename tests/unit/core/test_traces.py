"""Trace ids: unique across installations, and they lead back to the run."""

from __future__ import annotations

import pytest

from horae.core.runs.traces import (
    EXECUTE,
    UNNAMED,
    is_sampled,
    read_traceparent,
    run_of,
    span_id,
    step_part,
    trace_id,
    traceparent,
    with_span,
)

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


def test_every_part_of_a_run_is_a_span_of_its_own():
    parts = [(7,), (7, 1), (7, 2), (8, 1), (7, 1, EXECUTE), (7, 1, step_part(0)), (7, 1, step_part(1)), (71,), (7, 11)]
    ids = {span_id(*part) for part in parts}
    assert len(ids) == len(parts)
    assert all(len(one) == 16 and int(one, 16) for one in ids)


def test_a_task_is_part_of_the_trace_of_the_run_at_the_top():
    parent = traceparent(9, 3, HERE, root=7)
    assert parent == f"00-{trace_id(7, HERE)}-{span_id(9, 3)}-01"
    assert with_span(parent, "f" * 16) == f"00-{trace_id(7, HERE)}-{'f' * 16}-01"


def test_a_share_of_traces_is_sampled_and_a_larger_one_has_those_too():
    ids = [trace_id(number, HERE) for number in range(1, 5001)]
    tenth, third = ({one for one in ids if is_sampled(one, ratio)} for ratio in (0.1, 0.3))
    assert 400 < len(tenth) < 600
    assert tenth < third
    assert not any(is_sampled(one, 0) for one in ids)
    assert all(is_sampled(one, 1) for one in ids)


TRACE, SPAN = "a" * 32, "b" * 16


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (f"00-{TRACE}-{SPAN}-01", (TRACE, SPAN, True)),
        (f" 00-{TRACE}-{SPAN}-00 ", (TRACE, SPAN, False)),
        (f"01-{TRACE}-{SPAN}-03-more", (TRACE, SPAN, True)),
        (f"00-{TRACE}-{SPAN}-01-more", None),
        (f"ff-{TRACE}-{SPAN}-01", None),
        (f"00-{'0' * 32}-{SPAN}-01", None),
        (f"00-{TRACE}-{'0' * 16}-01", None),
        (f"00-{TRACE.upper()}-{SPAN}-01", None),
        ("", None),
        ("00-abc", None),
        ("\x00" * 55, None),
    ],
)
def test_a_header_of_a_trace_is_read_as_the_standard_has_it(text: str, told: object):
    assert read_traceparent(text) == told
