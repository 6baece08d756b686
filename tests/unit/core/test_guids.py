"""Ids as others write them: GUIDs, trace ids, and data as text. What is written is read back, and nothing else is."""

from __future__ import annotations

import json
import uuid

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from horae.contracts.admin.guids import LARGEST_ID, Kind, guid, number_of
from horae.core.jobdata import text_of
from horae.core.runs.traces import run_of, span_id, trace_id, traceparent
from horae.core.work.specs import parse_data
from horae.errors import Invalid, NotFound

IDS = st.integers(1, LARGEST_ID)
KINDS = st.sampled_from(Kind)


@given(KINDS, IDS)
@example(Kind.JOB, LARGEST_ID)
@example(Kind.RUN, 2**62)
def test_a_guid_is_read_back_and_is_one_of_the_standard(kind: Kind, number: int) -> None:
    text = guid(kind, number)
    assert number_of(kind, text) == number
    standard = uuid.UUID(text)
    assert str(standard) == text
    assert (standard.version, standard.variant) == (8, uuid.RFC_4122)


@given(KINDS, IDS)
def test_every_form_in_which_clients_write_guids_is_read(kind: Kind, number: int) -> None:
    text = guid(kind, number)
    for form in (text.upper(), text.replace("-", ""), f"{{{text}}}", f"({text})"):
        assert number_of(kind, form) == number


@given(st.tuples(KINDS, IDS), st.tuples(KINDS, IDS))
def test_different_things_have_different_guids(one: tuple[Kind, int], other: tuple[Kind, int]) -> None:
    assert (guid(*one) == guid(*other)) == (one == other)


@given(IDS)
def test_the_guid_of_another_kind_names_nothing(number: int) -> None:
    with pytest.raises(NotFound, match="there is no job") as refused:
        number_of(Kind.JOB, guid(Kind.TRIGGER, number))
    assert "of a trigger" in refused.value.hint


@given(st.uuids(), KINDS)
@example(uuid.UUID(int=0), Kind.JOB)
@example(uuid.UUID("686f7261-656a-8000-8000-000000000000"), Kind.JOB)  # id 0
@example(uuid.UUID("686f7261-656a-8002-8000-000000000001"), Kind.JOB)  # beyond 63 bits
@example(uuid.UUID("686f7261-6500-8000-8000-000000000001"), Kind.JOB)  # no kind of ours
@example(uuid.UUID("686f7261-656a-4000-8000-000000000001"), Kind.JOB)  # another version
@example(uuid.UUID("686f7261-656a-8000-c000-000000000001"), Kind.JOB)  # another variant
def test_a_foreign_guid_names_nothing(foreign: uuid.UUID, kind: Kind) -> None:
    with pytest.raises(NotFound):
        number_of(kind, str(foreign))


@pytest.mark.parametrize(
    "text", ["", "x", "1", "686f7261-656a-8000-8000-00000000000", "{" * 500, "é" * 36, "../../etc"]
)
def test_what_is_no_guid_is_refused(text: str) -> None:
    with pytest.raises(Invalid, match="a GUID expected"):
        number_of(Kind.JOB, text)


@pytest.mark.parametrize("number", [0, -1, LARGEST_ID + 1])
def test_what_is_no_id_has_no_guid(number: int) -> None:
    with pytest.raises(ValueError, match="is not an id"):
        guid(Kind.JOB, number)


# ── traces ──


@given(IDS)
def test_a_trace_id_leads_back_to_its_run(run_id: int) -> None:
    trace = trace_id(run_id)
    assert (len(trace), int(trace, 16) > 0) == (32, True)
    assert run_of(trace) == run_of(trace.upper()) == run_id
    assert traceparent(run_id, 3) == f"00-{trace}-{span_id(run_id, 3)}-01"


@pytest.mark.parametrize("text", ["", "0" * 32, "f" * 32, "686f726165000000" + "0" * 16, "686f726165000000" + "f" * 16])
def test_a_foreign_trace_id_leads_nowhere(text: str) -> None:
    assert run_of(text) is None


# ── data as text ──

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", max_size=3), inner, max_size=3),
)


@given(JSON)
def test_text_that_is_json_says_the_same_when_it_comes_back(value: object) -> None:
    text = json.dumps(value)
    back = text_of(parse_data(text, "JobData"))
    assert back is not None
    assert json.loads(back) == value


@given(st.text(st.characters(min_codepoint=32, max_codepoint=126)))
@example("")
@example("{}")
@example('{"job_data": "x"}')
@example('{"a": NaN}')
@example('{"a": 1e999}')
@example("[" * 5000)
@example('{"a": 18446744073709551616}')
def test_text_that_is_no_object_comes_back_as_it_was(text: str) -> None:
    back = text_of(parse_data(text, "JobData"))
    assert back is not None
    assert back == text or json.loads(back) == json.loads(text)


def test_an_object_is_kept_as_its_fields() -> None:
    assert parse_data('{"MaxBatchSize": 1000}', "JobData") == {"MaxBatchSize": 1000}
    assert parse_data('["CB_A"]', "JobData") == {"job_data": '["CB_A"]'}


@pytest.mark.parametrize("text", ["\0", "a" * (256 * 1024), "\ud800"])
def test_text_that_no_store_can_keep_is_refused(text: str) -> None:
    with pytest.raises(Invalid, match="JobData"):
        parse_data(text, "JobData")


def test_no_data_is_no_text() -> None:
    assert text_of({}) is None
