"""Bodies of requests for one run."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horae.core.definitions import Idempotency
from horae.core.fields import encode
from horae.errors import Error
from horae.web.documents import read_json
from horae.web.native.bodies import read_plain_run, read_run

ONCE = Idempotency("local POST /v1/jobs/7/run", "one", "digest")
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
DOCUMENTS = st.fixed_dictionaries({}, optional=dict.fromkeys(("data", "priority", "node", "run_at", "other"), VALUES))


@given(DOCUMENTS | VALUES)
def test_what_is_read_in_one_go_means_the_same_field_by_field(document):
    try:
        body = encode(document).encode()
    except (ValueError, UnicodeEncodeError):
        return  # no JSON
    quick = read_plain_run(body, 7, ONCE)

    assert quick is None or quick == read_run(read_json(body), 7, ONCE)


@pytest.mark.parametrize("body", [b"{}", b'{"data":{"n":1}}', b' {"priority": 9, "data": {"a": [1.5, null]}}'])
def test_ordinary_bodies_are_read_in_one_go(body):
    assert read_plain_run(body, 7, ONCE) == read_run(read_json(body), 7, ONCE)


@pytest.mark.parametrize(
    "body",
    [
        b"", b"[]", b"null", b'{"data":null}', b'{"data":[]}', b'{"priority":10}', b'{"priority":true}', b'{"other":1}',
        b'{"data":{"a":1,"a":2}}', b'{"data":{"a":"\\u0000"}}', b'{"data":{"a":NaN}}', b'{"data":{"a":1e999}}',
        b'{"data":{"a":\xff}}', b'{"data":' + b'{"a":' * 200 + b"1" + b"}" * 201, b"\xef\xbb\xbf{}",
        b'{"data":{"a":12345678901234567890}}', b'{"node":"one"}', b'{"run_at":"2027-01-01T00:00:00Z"}',
    ],
)  # fmt: skip
def test_whatever_is_unusual_is_left_to_the_reader_that_has_words_for_it(body):
    assert read_plain_run(body, 7, ONCE) is None


@pytest.mark.parametrize("body", [b'{"data":{"a":1,"a":2}}', b'{"data":{"a":1e999}}', b'{"priority":10}'])
def test_what_is_wrong_is_refused(body):
    with pytest.raises(Error):
        read_run(read_json(body), 7, ONCE)
