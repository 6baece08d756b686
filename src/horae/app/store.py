"""The store of a process: held, migrated and opened; and what is kept in it for how long."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

import structlog

from horae.app.machine import SystemClock
from horae.config import Config
from horae.errors import Unavailable
from horae.ports.store import Store
from horae.service.cluster.timers import Timers, agree
from horae.settings import DISK_SHARE, HISTORY_DAYS
from horae.stores import migrate as migrations
from horae.stores.postgres import PostgresStore
from horae.stores.sqlite import SqliteStore

log = structlog.get_logger()
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class MigrationReport:
    current: int
    latest: int
    applied: list[str] = field(default_factory=list)
    database: str = ""


async def migrate(config: Config, *, check: bool) -> MigrationReport:
    """Bring the schema up to date, or only say where it stands."""
    path = config.sqlite_path
    if path is not None:
        report = await asyncio.to_thread(migrations.migrate_sqlite, path, check=check)
    else:
        report = await patiently(config, lambda: migrations.migrate_postgres(config.database, check=check))
    return MigrationReport(report.current, report.latest, report.applied, config.database)


async def tend_history(config: Config) -> None:
    """Give history what only the owner of its table may: a server may work with another role. Whoever leads goes on
    with what could not be done now."""
    if config.sqlite_path is not None:
        return
    store = PostgresStore(config.database)
    try:
        await store.tend_history()
    except Unavailable as error:
        log.warning("history.untended", error=error.message)
    finally:
        await store.close()


def roles_sql(owner: str, server: str, reader: str) -> str:
    """Return the SQL that makes three roles of PostgreSQL: who migrates, what servers work with, who looks."""
    return migrations.roles_sql(owner, server, reader)


async def patiently(config: Config, step: Callable[[], Awaitable[T]]) -> T:
    """Repeat a step of the start while the database is away, up to `startup_timeout`."""
    deadline, pause = time.monotonic() + config.startup_timeout, 0.2
    while True:
        try:
            return await step()
        except Unavailable as error:
            if time.monotonic() + pause > deadline:
                raise
            log.warning("database.unreachable", error=error.message, retry_seconds=pause)
        await asyncio.sleep(pause)
        pause = min(pause * 2, 5.0)


async def open_store(config: Config, clock: SystemClock, holder: str = "") -> Store:
    """`holder` is what others are told of this process while it holds a database of one; the node, unless said."""
    path = config.sqlite_path
    if path is None:
        await migrate(config, check=False)
        server = PostgresStore(config.database, lease=config.lease)
        await patiently(config, server.open)
        return server
    sqlite = SqliteStore(path, clock=clock.now, holder=holder or f"node {config.node} at {config.address}")
    sqlite.hold()
    await migrate(config, check=False)
    await sqlite.open()
    return sqlite


async def open_agreed(config: Config, clock: SystemClock, holder: str = "") -> tuple[Config, Store]:
    """Return the store, and the settings with the timers that all nodes on it have. `holder` as of open_store."""
    store = await open_store(config, clock, holder)
    if config.sqlite_path is not None:
        return config, store
    try:
        agreed = await patiently(config, lambda: agree(store, config.node, timers_of(config)))
    except BaseException:
        await store.close()
        raise
    if agreed == timers_of(config):
        return config, store
    await store.close()
    config = replace(config, **agreed._asdict())
    return config, await open_store(config, clock)  # its own limits follow from the lease


def timers_of(config: Config) -> Timers:
    return Timers(*(getattr(config, name) for name in Timers._fields))


async def decide_retention(config: Config, store: Store) -> Config:
    """Return what is kept for how long, where the settings leave it open: new installations keep the latest, those that
    ran before this was so keep all (the migration has left a mark in their store)."""
    mark = await store.keep_setting("retention", "bounded")
    days, limit = (HISTORY_DAYS, _share_of_disk(config.files)) if mark == "bounded" else (0, 0)
    decided = replace(
        config,
        history_days=days if config.history_days is None else config.history_days,
        files_limit=limit if config.files_limit is None else config.files_limit,
    )
    log.info("retention", history_days=decided.history_days, files_limit=decided.files_limit)
    return decided


def _share_of_disk(files: str) -> int:
    """Of the disk that output lies on, in whole GiB or MiB; 0 where it lies in a bucket, which has no size."""
    if "://" in files:
        return 0
    Path(files).mkdir(parents=True, exist_ok=True)
    share = shutil.disk_usage(files).total // DISK_SHARE
    unit = 2**30 if share >= 2**30 else 2**20
    return share // unit * unit
