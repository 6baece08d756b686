"""Horae within a program: scheduler, coordinator and agent as tasks of the program's own event loop.

    async with horae.embedded(data="./state", handlers=[report]) as app:
        await app.submit({"name": "report", "handler": report, "schedule": "0 2 * * *"})

Nothing listens. The program stays the master of its process: no signal handlers, no umask, no logging of ours. What a
server knows of its store holds here, too: SQLite is for one process, on PostgreSQL many servers and programs share the
work, and whoever dies is taken over.
"""

from __future__ import annotations

import asyncio
import logging
import re
import socket
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import structlog

from horae import config as settings_module
from horae.app.local_calls import LocalCalls, OwnHandlers, Run
from horae.app.machine import SystemClock, identity_of, make_private
from horae.app.parts import FindHere
from horae.app.server import App, assembled
from horae.app.store import patiently
from horae.config import NO_FILE, Config
from horae.core.spelling import suggest
from horae.errors import ConfigError, Invalid
from horae.handlers import Function
from horae.settings import BY_NAME

ROLES = ["coordinator", "scheduler", "agent"]
# Settings that mean something only where somebody listens, or that the program decides itself.
OF_SERVERS = frozenset(
    ("host", "port", "grpc_port", "compat_ports", "roles", "allowed_hosts", "trusted_proxies", "require_token",
     "tls_cert", "tls_key", "public_url", "log_format", "declarations")
)  # fmt: skip
_LOGGER = type(structlog.get_logger())
FIRST_LOOK, LONGEST_LOOK = 0.002, 0.1  # seconds between two looks whether a run has ended


class Embedded(LocalCalls):
    """A Horae within this program."""

    async def wait(self, run: Run | int, timeout: float | None = None) -> Run:
        """Return a run once it has ended; TimeoutError when that takes longer."""
        pause = FIRST_LOOK
        async with asyncio.timeout(timeout):
            while not (found := await self.run(run)).has_ended:
                await asyncio.sleep(pause)
                pause = min(2 * pause, LONGEST_LOOK)
            return found


@asynccontextmanager
async def embedded(
    *,
    data: str | Path = ".horae",
    database: str | None = None,
    handlers: Sequence[Any] = (),
    **settings: Any,
) -> AsyncIterator[Embedded]:
    """Run Horae for as long as the block lasts; at its end, what runs gets time to finish.

    `data` is its directory, `database` the address of PostgreSQL, or of SQLite if not in that directory. `handlers` are
    functions of this program: the inline ones run in its loop, the others in worker processes, which import them.
    `settings` are those of `horae up`; neither its environment variables nor its file are read."""
    own = OwnHandlers()
    find_here = _finder(own, handlers)
    config = _configured(data, database, settings)
    _log_as_program_does()
    async with assembled(config, SystemClock(), is_served=False, find_here=find_here) as app:
        await patiently(config, app.services.secrets.check)
        await patiently(config, app.sealing.verify)
        async with _running(app):
            yield Embedded(app.services.jobs, app.services.insight, lambda origin: _checked(own, origin))


def _finder(own: OwnHandlers, handlers: Sequence[Any]) -> FindHere:
    for origin in handlers:
        _checked(own, origin)

    def find(name: str) -> Function | None:
        found = own.get(name)
        return found.function if found is not None and found.inline else None

    return find


def _checked(own: OwnHandlers, origin: Any) -> str:
    """Return the name of a handler of this program, under which it can be found where it will run."""
    name = own.add(origin)
    found = own.get(name)
    assert found is not None
    if not found.inline and (found.name.startswith("__main__:") or "<locals>" in found.name):
        raise Invalid(
            f"{found.name} cannot be imported by a worker process",
            code="E_HANDLER",
            hint="put it into a module, or let it run here: @handler(inline=True)",
        )
    return name


def _configured(data: str | Path, database: str | None, settings: dict[str, Any]) -> Config:
    for name in settings:
        if name not in BY_NAME or name in OF_SERVERS:
            known = sorted(set(BY_NAME) - OF_SERVERS)
            raise ConfigError(f"embedded has no setting {name}", path=name, hint=suggest(name, known) or "")
    given = {"data": str(data), "roles": ROLES, "on_restart": "end", **settings}
    if database is not None:
        given["database"] = database
    config = settings_module.load(given, file=NO_FILE, environ={})
    make_private(config.data)
    return config if "node" in settings else replace(config, node=_own_name(config.data))


def _own_name(data: Path) -> str:
    """Return the name of the node that a data directory is: after a crash, the same again."""
    host = re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname()).strip("-._") or "node"
    return f"{host[:100]}-{identity_of(data / 'agent')[:8]}"


@asynccontextmanager
async def _running(app: App) -> AsyncIterator[None]:
    """The roles of an App, beside the block. Should they break, the block is cancelled, and told why."""
    await _started(app)
    stop, program = asyncio.Event(), asyncio.current_task()
    assert program is not None
    roles = asyncio.create_task(_live(app, stop))
    broke = False

    def interrupt(_: asyncio.Task[None]) -> None:
        nonlocal broke
        if not stop.is_set():
            broke = True
            program.cancel()

    roles.add_done_callback(interrupt)
    try:
        yield
    except asyncio.CancelledError:
        if not broke or program.uncancel() > 0:  # somebody else wants it to end, too
            raise
    finally:
        stop.set()
        try:
            await roles
        except ExceptionGroup as group:
            raise _first(group) from None


def _first(error: Exception) -> Exception:
    """Return what broke, without the groups of tasks around it."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error


async def _started(app: App) -> None:
    try:
        await app.start()
    except BaseException:
        await app.keeper.close()
        raise


async def _live(app: App, stop: asyncio.Event) -> None:
    try:
        async with asyncio.TaskGroup() as group:
            tasks = app.run_roles(group)
            await stop.wait()
            await app.stop(tasks)
    finally:
        if app.keeper.is_alive:  # we were not given the time to drain
            await app.keeper.close()


def _log_as_program_does() -> None:
    """Where the program has set up structlog, our lines go its way. Else they go to `logging`, whose set-up is the
    program's, and not to standard output, as structlog would have it."""
    if structlog.is_configured():
        return
    for name, module in list(sys.modules.items()):
        if name.startswith("horae.") and isinstance(getattr(module, "log", None), _LOGGER):
            module.log = structlog.wrap_logger(  # type: ignore[attr-defined]
                logging.getLogger(name),
                processors=[
                    structlog.processors.format_exc_info,
                    structlog.processors.KeyValueRenderer(key_order=["event"]),
                ],
                wrapper_class=structlog.stdlib.BoundLogger,
            )
