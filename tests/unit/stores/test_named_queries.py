"""The queries that lie beside the parts of a store."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

import horae.stores
from horae.stores.postgres.database import PostgresDatabase
from horae.stores.queries import load_lanes, load_queries

STORES = Path(horae.stores.__file__).parent
DIALECTS = ("postgres", "sqlite")


def headers(room: str) -> list[str]:
    return [
        name
        for file in (STORES / room).glob("*.sql")
        for name in re.findall(r"^-- (\w+).* --$", file.read_text(), re.M)
    ]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_query_is_written_once_for_each_database(dialect: str) -> None:
    names = Counter(headers("parts") + headers("insight") + headers(dialect))
    assert [name for name, count in names.items() if count > 1] == []
    assert set(names) == set(load_queries(dialect))


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_query_is_asked_by_somebody(dialect: str) -> None:
    code = "".join(path.read_text() for path in STORES.rglob("*.py"))
    made_up = ("sealable_", "reseal_")  # with the name of a place
    assert [name for name in load_queries(dialect) if f'"{name}"' not in code and not name.startswith(made_up)] == []


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_query_has_a_lane_that_there_is(dialect: str) -> None:
    assert set(load_lanes(dialect).values()) == set(PostgresDatabase("postgresql://nowhere")._lanes)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_states_of_runs_are_named(dialect: str) -> None:
    texts = [file.read_text() for room in ("parts", "insight", dialect) for file in (STORES / room).glob("*.sql")]
    assert re.findall(r"\bstate (?:=|<>|<|>) \d+|\bstate IN \(\d", "".join(texts)) == []
    paths = re.compile(r"'\{[a-z_,]*\}?'|\":\{")  # into JSON, as PostgreSQL writes them, and where an object begins
    filled = [paths.sub("", text) for text in load_queries(dialect).values()]
    later = re.compile(r"\{(?:rows|where|most)\}")  # what whoever asks fills in
    assert all("{" not in later.sub("", text) for text in filled)
