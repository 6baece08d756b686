"""Progress and results of work on data: their form, and how people read them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horae.core.secrets.fields import masked, secret_texts
from horae.core.work.kinds import locks_of
from horae.core.work.progress import bytes_words, progress_words, read_progress, read_result, share_done
from horae.core.work.syncs import cursor_words, first_cursor, made_cursor

WORDS = ["step", "rows", "bytes", "tables", "stages", "done", "total", "name", "changes", "cursor", "query_id"]
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(WORDS), inner),
)


def test_progress_keeps_what_fits_and_leaves_out_the_rest():
    said = {
        "step": "load\x1b[2J", "rows": 7, "bytes": -1, "tables": {"done": 1, "total": True}, "stages": [], "odd": {},
    }  # fmt: skip

    assert read_progress(said) == {"step": "load [2J", "rows": 7, "tables": {"done": 1}}


@given(ANYTHING)
def test_whatever_is_said_can_be_read_and_put_into_words(said: Any):
    progress = read_progress(said)
    read_result(said)

    assert read_progress(progress) == progress
    assert isinstance(progress_words(progress), str)
    assert 0 <= (share_done(progress) or 0) <= 1


@pytest.mark.parametrize(
    ("progress", "words", "share"),
    [
        ({}, "", None),
        ({"rows": 1234}, "1,234 rows", None),
        (
            {"step": "load", "tables": {"done": 2, "total": 5}, "rows": 1, "bytes": 5_100_000},
            "load, 2 of 5 tables, 1 rows, 5.1 MB",
            0.4,
        ),
        ({"stages": {"done": 3}}, "3 stages", None),
        ({"stages": {"done": 3, "total": 2}, "tables": {"done": 0, "total": 1}}, "0 of 1 tables, 3 of 2 stages", 1.0),
    ],
)
def test_progress_in_words(progress: dict[str, Any], words: str, share: float | None):
    assert (progress_words(progress), share_done(progress)) == (words, share)


@pytest.mark.parametrize(
    ("count", "words"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (99_400, "99.4 kB"), (123_456, "123 kB"), (5 * 10**15, "5000 TB")],
)
def test_bytes_in_words(count: int, words: str):
    assert bytes_words(count) == words


def test_a_result_has_its_parts_where_they_fit():
    said = {"rows": 3, "tables": [{"name": "a", "rows": 3, "changes": ["x added"]}, {}, 7], "query_id": 5, "odd": 1}

    assert read_result(said) == {"rows": 3, "tables": [{"name": "a", "rows": 3, "changes": ["x added"]}]}
    assert read_result("text") == {}


# ── what is written, and how far it came ──


def test_runs_that_write_one_destination_name_it_alike():
    table = {"to": "clickhouse", "database": "lake", "table": "orders"}
    files = {"to": "files", "path": "/data/a/"}
    assert locks_of("spark_sql", {"outputs": [table, {**table, "mode": "replace"}]}) == ("clickhouse lake.orders",)
    assert locks_of("spark_sql", {"outputs": [files]}) == locks_of(
        "spark_sql", {"outputs": [{**files, "path": "data/a"}]}
    )
    assert locks_of("spark_sql", {"query": "SELECT 1"}) == ()
    assert locks_of("python", {"outputs": [table]}) == ()


def test_a_cursor_and_its_words_say_the_same():
    said = {"last_synced_value": "42", "incremental_time": 7}

    assert cursor_words(made_cursor({**said, "table_name": "a"})) == said
    assert first_cursor({"options": {"last_synced_value": "0"}}) is None
    assert first_cursor({"options": {"last_synced_value": "5"}}) == {"value": "5"}
    assert first_cursor({}) is None
    assert cursor_words(None) == {}


def test_the_secrets_that_are_hidden_are_those_that_are_found():
    config = {
        "jdbc_url": "jdbc:mysql://u:hunter22@db/x?token=abc", "password": "horse", "nested": [{"api_key": "staple"}],
        "host": "db",
    }  # fmt: skip

    found = set(secret_texts(config))

    assert found == {"hunter22", "abc", "horse", "staple"}
    assert not any(text in str(masked(config)) for text in found)
