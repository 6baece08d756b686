"""What is kept where the settings leave it open: the latest on new installations, all on those that ran before."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from horae.app.machine import SystemClock
from horae.app.store import decide_retention, open_store
from horae.config import load
from horae.stores import migrate


async def kept(path: Path, **flags: str) -> tuple[int | None, int | None]:
    config = load({"data": str(path), **flags}, environ={})
    store = await open_store(config, SystemClock())
    try:
        settled = await decide_retention(config, store)
    finally:
        await store.close()
    return settled.history_days, settled.files_limit


def tenth(path: Path) -> int:
    share = shutil.disk_usage(path).total // 10
    return share - share % (2**30 if share >= 2**30 else 2**20)


async def test_a_new_installation_keeps_ninety_days_and_a_tenth_of_the_disk(tmp_path: Path) -> None:
    assert await kept(tmp_path) == (90, tenth(tmp_path))
    assert await kept(tmp_path) == (90, tenth(tmp_path)), "the second start is the same"


async def test_what_the_settings_say_holds(tmp_path: Path) -> None:
    assert await kept(tmp_path, history_days="0", files_limit="0") == (0, 0)
    assert await kept(tmp_path, history_days="7") == (7, tenth(tmp_path))


async def test_a_bucket_has_no_size(tmp_path: Path) -> None:
    assert await kept(tmp_path, files="s3://outputs/all") == (90, 0)


NODE = (
    "INSERT INTO nodes (name, roles, kinds, labels, version, address, state, started_at, heartbeat_at, beat, slots,"
    " busy) VALUES ('n', '[]', '[]', '[]', '', '', 'gone', 0, 0, 0, 1, 0)"
)


@pytest.mark.parametrize("row", [NODE, "INSERT INTO settings VALUES ('cluster_secret', 'x')"])
async def test_an_installation_that_ran_before_keeps_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, row: str
) -> None:
    every = migrate.migrations("sqlite")
    before = every[: next(number for number, one in enumerate(every) if one.name == "retention")]
    with monkeypatch.context() as older:
        older.setattr(migrate, "migrations", lambda _: before)
        migrate.migrate_sqlite(tmp_path / "horae.db")
    with closing(sqlite3.connect(tmp_path / "horae.db")) as connection, connection:
        connection.execute(row)
    assert await kept(tmp_path) == (0, 0)
    assert await kept(tmp_path, history_days="30") == (30, 0)
