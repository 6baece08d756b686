"""Queues: what their documents may say, and where a run waits."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horae.core.model import Policy
from horae.core.policy.queues import (
    HEAVIEST,
    MAX_SHARE,
    Place,
    Queue,
    QueueState,
    check_name,
    fields_from_text,
    parse_queue,
    place,
    queue_text,
    render_queue,
    user_of,
)
from horae.core.work.kinds import KINDS
from horae.errors import Invalid

REPORTS = Queue(3, "reports", weights={"ann": 2})


def problems_of(document: object, name: str = "reports") -> list[tuple[str, str]]:
    with pytest.raises(Invalid) as caught:
        parse_queue(document, name, KINDS)
    return [(problem.path, problem.code) for problem in caught.value.listed()]


# ── documents ──


def test_an_empty_document_is_a_queue_with_every_default():
    assert parse_queue({}, "reports", KINDS) == Queue(0, "reports")


def test_every_field_is_read():
    document = {
        "state": "paused", "priority_offset": -3, "labels": ["gpu", "eu"], "kinds": ["shell", "python"],
        "concurrency": 5, "rate": "100/min", "burst": 10, "weights": {"bob": 4, "ann": 2, "eve": 1},
        "most_waiting": 1000,
    }  # fmt: skip
    assert parse_queue(document, "reports", KINDS) == Queue(
        0, "reports", QueueState.PAUSED, -3, ("eu", "gpu"), ("python", "shell"), 5, "100/min", 10,
        {"ann": 2, "bob": 4}, 1000,
    )  # fmt: skip


def test_what_is_shown_can_be_sent_back():
    queue = Queue(0, "reports", concurrency=5, weights={"ann": 2})
    shown = {**render_queue(queue), "version": 4, "created_at": "2027-01-01T00:00:00Z", "figures": {"waiting": 1}}
    assert parse_queue(shown, "reports", KINDS) == queue


def test_a_document_without_a_state_leaves_it_as_it_is():
    assert parse_queue({}, "reports", KINDS, QueueState.PAUSED).state is QueueState.PAUSED
    assert parse_queue({"state": "open"}, "reports", KINDS, QueueState.PAUSED).state is QueueState.OPEN


@pytest.mark.parametrize(
    ("document", "path", "code"),
    [
        ([], "", "E_TYPE"),
        ({"concurency": 5}, "concurency", "E_UNKNOWN_FIELD"),
        ({"name": "other"}, "name", "E_FIELD_CONFLICT"),
        ({"state": "closed"}, "state", "E_ENUM"),
        ({"state": 1}, "state", "E_ENUM"),
        ({"priority_offset": 10}, "priority_offset", "E_RANGE"),
        ({"priority_offset": -10}, "priority_offset", "E_RANGE"),
        ({"priority_offset": True}, "priority_offset", "E_TYPE"),
        ({"labels": "gpu"}, "labels", "E_TYPE"),
        ({"labels": ["-gpu"]}, "labels[0]", "E_PATTERN"),
        ({"kinds": ["pyton"]}, "kinds[0]", "E_ENUM"),
        ({"kinds": [1]}, "kinds[0]", "E_TYPE"),
        ({"concurrency": 0}, "concurrency", "E_RANGE"),
        ({"concurrency": "5"}, "concurrency", "E_TYPE"),
        ({"rate": "100"}, "rate", "E_PATTERN"),
        ({"rate": "0/min"}, "rate", "E_PATTERN"),
        ({"rate": 100}, "rate", "E_TYPE"),
        ({"burst": 5}, "burst", "E_FIELD_CONFLICT"),
        ({"rate": "1/s", "burst": 0}, "burst", "E_RANGE"),
        ({"weights": ["ann"]}, "weights", "E_TYPE"),
        ({"weights": {"ann": 0}}, "weights.ann", "E_RANGE"),
        ({"weights": {"ann": HEAVIEST + 1}}, "weights.ann", "E_RANGE"),
        ({"weights": {"ann": 1.5}}, "weights.ann", "E_TYPE"),
        ({"weights": {7: 2}}, "weights", "E_TYPE"),
        ({"weights": {"a\nb": 2}}, "weights['a\\nb']", "E_PATTERN"),
        ({"weights": {"a" * 201: 2}}, f"weights['{'a' * 57}…']", "E_PATTERN"),
        ({"weights": {str(n): 2 for n in range(1001)}}, "weights", "E_LIMIT"),
        ({"most_waiting": 0}, "most_waiting", "E_RANGE"),
    ],
)
def test_bad_input_is_told_at_its_path(document: object, path: str, code: str):
    assert problems_of(document) == [(path, code)]


def test_everything_wrong_is_told_at_once():
    assert len(problems_of({"state": "closed", "burst": "many", "rate": "soon"})) == 3


def test_a_misspelt_kind_has_a_hint():
    with pytest.raises(Invalid) as caught:
        parse_queue({"kinds": ["pyton"]}, "reports", KINDS)
    assert caught.value.hint == "did you mean 'python'?"


@pytest.mark.parametrize("name", ["", "a b", "a/b", "ä", "x" * 64, "a\n"])
def test_a_name_that_cannot_be_one_is_refused(name: str):
    with pytest.raises(Invalid) as caught:
        check_name(name)
    assert (caught.value.path, caught.value.code) == ("name", "E_PATTERN")


@pytest.mark.parametrize("name", ["a", "x" * 63, "Reports_2.eu-west"])
def test_a_name_has_letters_digits_and_a_few_signs(name: str):
    assert check_name(name) == name


# ── text ──


def test_what_has_its_default_is_left_out_of_the_text():
    assert queue_text(Queue(0, "default")) == "{}"
    assert queue_text(Queue(7, "x", QueueState.PAUSED, 3, ("gpu",))) == "{}"  # these have columns


def test_the_text_says_the_rest():
    queue = Queue(7, "x", kinds=("python",), concurrency=5, rate="1/s", burst=2, weights={"ann": 2}, most_waiting=9)
    text = queue_text(queue)
    assert text == encoded(kinds=["python"], concurrency=5, rate="1/s", burst=2, weights={"ann": 2}, most_waiting=9)
    assert Queue(7, "x", **fields_from_text(text)) == queue


def encoded(**fields: object) -> str:
    return json.dumps(fields, sort_keys=True, separators=(",", ":"))


def test_what_a_newer_version_wrote_is_left_out():
    assert fields_from_text('{"burst":2,"colour":"red"}') == {"burst": 2}


# ── where a run waits ──


def test_a_run_shares_its_queue_with_those_of_its_owner():
    assert place(Policy(), "ann", None, REPORTS) == Place(3, "ann", 2)
    assert place(Policy(), "bob", '{"tenant":"ann"}', REPORTS) == Place(3, "bob", 1)


@pytest.mark.parametrize("annotations", [{"rpc": {"user_id": "ann"}}, {"cluster": {"userId": "ann"}}])
def test_of_a_job_of_a_contract_the_owner_is_its_user(annotations: dict[str, object]):
    assert place(Policy(), "local", None, REPORTS, annotations) == Place(3, "ann", 2)


def test_a_user_may_be_a_number():
    assert user_of("local", {"cluster": {"userId": 17}}) == "17"


@pytest.mark.parametrize("annotations", [{}, {"rpc": None}, {"rpc": "x"}, {"rpc": {}}, {"rpc": {"user_id": ""}}])
def test_without_a_user_it_is_the_owner(annotations: dict[str, object]):
    assert user_of("local", annotations) == "local"


BY_TENANT = Policy(share="data.tenant")


@pytest.mark.parametrize("data", ['{"tenant":"ann"}', {"tenant": "ann"}])
def test_a_share_may_be_a_path_into_the_data(data: object):
    assert place(BY_TENANT, "bob", data, REPORTS) == Place(3, "ann", 2)  # type: ignore[arg-type]


def test_a_path_goes_into_mappings():
    policy = replace(BY_TENANT, share="data.customer.id")
    assert place(policy, "bob", '{"customer":{"id":7}}', REPORTS).share == "7"


@pytest.mark.parametrize("data", [None, "{}", '{"tenant":null}', '{"tenant":""}', "[]", '"x"', {"other": 1}])
def test_where_the_data_has_nothing_there_it_is_the_owner(data: object):
    assert place(BY_TENANT, "ann", data, REPORTS) == Place(3, "ann", 2)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("value", "key"), [(True, "true"), (1.5, "1.5"), ({"b": 1, "a": [2]}, '{"a":[2],"b":1}'), ([1, "x"], '[1,"x"]')]
)
def test_what_is_no_text_is_its_canonical_json(value: object, key: str):
    assert place(BY_TENANT, "ann", {"tenant": value}, REPORTS).share == key


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner)))
def test_a_key_is_short_and_can_be_held_by_every_store(value: object):
    key = place(BY_TENANT, "ann", {"tenant": value}, REPORTS).share
    assert 0 < len(key) <= MAX_SHARE
    assert key.isprintable()
    assert key.encode()
