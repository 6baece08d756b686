"""Which tables there are: changed by one at a time, whole or not at all."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from horae.executors.destinations import Refused
from horae.executors.spark.registry import CATALOG, LEFT_SECONDS, Folder, Registry

ABC = ("default", "abc")


def registry(directory: Path, run: int = 1) -> Registry:
    return Registry(Folder(directory), f"run-{run}-a")


def about(location: str = "") -> dict[str, str]:
    return {"kind": "managed", "ddl": "CREATE TABLE …", "location": location}


def names(found: Registry) -> list[tuple[str, str]]:
    return sorted(entry.name for entry in found.entries)


def test_what_is_put_is_there_for_the_next_and_what_is_dropped_is_not(tmp_path: Path) -> None:
    first = registry(tmp_path)
    first.put(("lake", ""), {"kind": "database", "ddl": ""})
    first.put(ABC, about())
    assert names(registry(tmp_path)) == [ABC, ("lake", "")]
    registry(tmp_path, 2).drop(ABC)
    assert names(registry(tmp_path)) == [("lake", "")]
    registry(tmp_path, 3).put(ABC, about("again"))
    [entry] = [one for one in registry(tmp_path).entries if one.name == ABC]
    assert (entry.version, entry.about["location"]) == (3, "again")
    assert sorted(os.listdir(tmp_path / CATALOG / "default")) == ["abc.3.json"]


def test_of_two_that_saw_the_same_the_later_is_refused(tmp_path: Path) -> None:
    one, other = registry(tmp_path, 1), registry(tmp_path, 2)
    one.put(ABC, about("first"))
    with pytest.raises(Refused, match=r"default\.abc was changed by another query while this one ran"):
        other.put(ABC, about("second"))
    assert [entry.about["location"] for entry in registry(tmp_path).entries] == ["first"]
    late = registry(tmp_path, 3)
    one.drop(ABC)
    with pytest.raises(Refused):
        late.put(ABC, about("third"))
    assert registry(tmp_path).entries == []


def test_an_attempt_knows_what_an_earlier_one_of_its_run_has_done(tmp_path: Path) -> None:
    registry(tmp_path, 7).put(ABC, about())
    assert (registry(tmp_path, 7).made_by_run(), registry(tmp_path, 8).made_by_run()) == (["default.abc"], [])
    registry(tmp_path, 8).note_rows(ABC)
    registry(tmp_path, 9).drop(ABC)
    registry(tmp_path, 10).note_rows(ABC)
    assert [bool(registry(tmp_path, run).made_by_run()) for run in (7, 8, 9, 10)] == [True, True, True, False]


def test_rows_that_no_table_refers_to_are_removed_when_their_attempt_is_over(tmp_path: Path) -> None:
    for name in ("run-7-a-1", "run-7-a-2", "run-7-a-3", "run-8-a-1", "run-9-a-1", "mine"):
        (tmp_path / name / "abc").mkdir(parents=True)
    os.utime(tmp_path / "run-9-a-1", (0, time.time() - LEFT_SECONDS - 60))
    found = registry(tmp_path, 7)
    found.put(ABC, about(f"file:{tmp_path}/run-7-a-2/abc"))
    found.tidy("run-7-a-3")
    assert sorted(os.listdir(tmp_path)) == [CATALOG, "mine", "run-7-a-2", "run-7-a-3", "run-8-a-1"]
