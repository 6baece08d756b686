"""Processes that listen: a server with some or all roles.

TLS, listen ─► the parts (server.py) ─► login ─► roles ─► HTTP ─► gRPC

gRPC comes last and is loaded only then, because nobody at a terminal should wait for it.
"""

from __future__ import annotations

import asyncio
import logging
import re
import signal
import socket
import ssl
import sys
from collections.abc import AsyncIterator, Callable, Iterator, MutableMapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, TextIO, cast

import structlog
import uvicorn

from horae.app.declarations import read_declarations
from horae.app.machine import SystemClock, keep_private
from horae.app.server import assembled
from horae.app.store import open_store, patiently
from horae.config import Config
from horae.contracts import CONTRACTS
from horae.errors import ConfigError, Unavailable
from horae.ports.store import Store
from horae.ports.store.inbox import InboxGrants
from horae.ports.work import Sandboxes
from horae.service.access import Access
from horae.service.access.users import Users
from horae.service.audit import Audit
from horae.service.jobs.declarations import Declarations
from horae.service.metrics import Metrics
from horae.stores.postgres import PostgresStore
from horae.tls import server_context
from horae.web.app import Gate, create_app
from horae.web.connections import HEAD_SECONDS, Crowd, Protocol
from horae.web.observing import AccessLog, Observer, RequestSpans
from horae.web.probe import Probe
from horae.web.proxies import NOBODY, Proxies

log = structlog.get_logger()


async def serve(config: Config, on_ready: Callable[[Config, Sandboxes], None] | None = None) -> None:
    """Run until SIGTERM or SIGINT. `on_ready` is given the settings with what was left open until now, and the walls of
    work."""
    set_up_logging(config.log_format)
    secure = _secure(config)
    declared = read_declarations(config.declarations)
    clock = SystemClock()
    async with AsyncExitStack() as stack:
        ports = {config.port: "--port", **dict.fromkeys(config.further_ports, "--compat-ports")}
        listeners = [stack.enter_context(listen(config.host, port, flag)) for port, flag in ports.items()]
        place = stack.enter_context(listen(config.host, config.grpc_port, "--grpc-port"))  # kept free for gRPC
        stop, umask = on_signals(), keep_private(config.data)  # nothing is written before all ports are ours
        access = _open_access_log(config, stack)
        app = await stack.enter_async_context(assembled(config, clock, umask=umask))
        config, store = app.config, app.store
        await patiently(config, lambda: _require_login(config, app.services.access))
        await patiently(config, app.services.secrets.check)
        await patiently(config, app.sealing.verify)
        await patiently(config, lambda: Declarations(store, app.services.jobs).apply(declared))
        await app.start()
        proxies = Proxies(config.trusted_proxies)
        gate = create_app(
            app.services, CONTRACTS, version=version("horae"), allowed_hosts=config.allowed_hosts,
            loopback_only=config.is_loopback, free_pass=config.free_pass, proxies=proxies,
        )  # fmt: skip
        if access is not None or app.spans is not None:
            gate.observer = Observer(access, None if app.spans is None else RequestSpans(app.spans))
        server = make_http_server(gate, secure, proxies)
        async with asyncio.TaskGroup() as group:
            tasks = app.run_roles(group)
            http = group.create_task(server.serve(sockets=listeners))
            await server.up.wait()
            log.info("node.up", node=config.node, address=config.address, roles=",".join(config.roles))
            if on_ready is not None:
                on_ready(config, app.sandboxes)
            place.close()
            rpc = await app.serve_rpc() if config.serves_rpc else None
            await stop.wait()
            log.info("node.stopping", node=config.node)
            if rpc is not None:
                await rpc.stop()
            untold = await app.stop(tasks, keep=stop.may_come_back)
            gate.streams.close()
            server.should_exit = True
            await http
    log.info("node.stopped", node=config.node)
    if untold is not None:
        raise Unavailable(
            f"stopped, but nobody could be told: {untold.message}",
            hint="nothing to do: others take over what this node held when its lease is over",
        )


def _open_access_log(config: Config, stack: AsyncExitStack) -> AccessLog | None:
    """Return where requests are written down, if anywhere."""
    if config.access_log == "off":
        return None
    try:
        access = AccessLog(None if config.access_log == "stderr" else Path(config.access_log))
    except OSError as error:
        message = f"the access log {config.access_log} cannot be written: {error.strerror}"
        hint = "name a file in a directory that is there and yours, or stderr, or off"
        raise ConfigError(message, path="access_log", hint=hint) from error
    stack.callback(access.close)
    return access


def _secure(config: Config) -> ssl.SSLContext | None:
    """Return what TLS needs, if it is configured."""
    if config.tls_cert is None or config.tls_key is None:
        return None
    context, warnings = server_context(config.tls_cert, config.tls_key, datetime.now(UTC), config.tls_client_ca)
    for warning in warnings:
        log.warning("tls.warning", text=warning)
    return context


async def _require_login(config: Config, access: Access) -> None:
    """Where everybody needs a token, nothing listens until somebody could log in: else it would serve nobody."""
    if not config.free_pass and not config.oidc_issuer and not await access.has_login():
        what = f"listening on {config.host}" if not config.is_loopback else "require_token"
        raise ConfigError(
            f"{what} needs a login, and there is neither a user nor a user token that is good",
            code="E_LOGIN_REQUIRED",
            path="require_token" if config.is_loopback else "host",
            hint="make the first one with `horae admin create NAME` or `horae token create NAME`, and the same "
            "--data or --database",
        )


@asynccontextmanager
async def local_access(config: Config) -> AsyncIterator[tuple[Access, Audit]]:
    """The tokens of a database without a server, and its audit log: the first one is made before anything listens."""
    async with _opened(config, "a `horae token` command") as (store, clock):
        yield Access(store, clock), Audit(store, clock, Metrics())


@asynccontextmanager
async def local_users(config: Config) -> AsyncIterator[tuple[Users, Audit]]:
    """The users of a database without a server, as with tokens."""
    async with _opened(config, "a `horae admin` command") as (store, clock):
        yield Users(store, Access(store, clock)), Audit(store, clock, Metrics())


@asynccontextmanager
async def _opened(config: Config, holder: str) -> AsyncIterator[tuple[Store, SystemClock]]:
    set_up_logging(config.log_format)
    clock = SystemClock()
    store = await open_store(config, clock, holder=holder)
    try:
        yield store, clock
    finally:
        await store.close()


@asynccontextmanager
async def local_inbox(config: Config) -> AsyncIterator[InboxGrants]:
    """The inbox of the database of the settings, for operators."""
    if config.sqlite_path is not None:
        raise ConfigError(
            "only a PostgreSQL database has an inbox: one of SQLite belongs to one process",
            path="database",
            hint="give it with --database postgresql://…",
        )
    set_up_logging(config.log_format)
    store = await open_store(config, SystemClock())
    assert isinstance(store, PostgresStore)
    try:
        yield store
    finally:
        await store.close()


def listen(host: str, port: int, flag: str = "--port") -> socket.socket:
    """Take the address before anything else is touched."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        hint = f"stop what listens there, or change {flag} or --host"
        raise ConfigError(f"cannot listen on {host}:{port}: {error.strerror}", code="E_LISTEN", hint=hint) from error
    listener.set_inheritable(False)
    return listener


class HttpServer(uvicorn.Server):
    """uvicorn without its own signal handlers: the order of stopping is ours. And with little patience for handshakes,
    which no protocol sees."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        kind: Any = self.config.http_protocol_class
        make = partial(kind, self.config, self.server_state, {})
        loop, secure = asyncio.get_running_loop(), self.config.ssl
        patience = HEAD_SECONDS if secure else None
        self.servers = [
            await loop.create_server(
                make, sock=one, ssl=secure, backlog=self.config.backlog, ssl_handshake_timeout=patience
            )
            for one in sockets or ()
        ]
        self.started = True
        self.up.set()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def make_http_server(gate: Gate | Probe, secure: ssl.SSLContext | None, proxies: Proxies = NOBODY) -> HttpServer:
    protocol: Any = partial(Protocol, crowd=Crowd(proxies=proxies))
    settings = uvicorn.Config(
        gate, lifespan="off", log_config=None, access_log=False, server_header=False, date_header=False,
        timeout_graceful_shutdown=5, http=protocol, ws="none", backlog=1024, proxy_headers=False,
        ssl_context_factory=(lambda *_: secure) if secure else None,
    )  # fmt: skip
    return HttpServer(settings)


class _Stop(asyncio.Event):
    """That we are told to stop. SIGTERM is what a service manager sends, which may start us again; SIGINT comes from
    somebody at a terminal, who wants an end."""

    may_come_back = False

    def note(self, number: signal.Signals) -> None:
        self.may_come_back = self.may_come_back or (number == signal.SIGTERM and not self.is_set())
        self.set()


def on_signals() -> _Stop:
    stop = _Stop()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.note, number)
    for number in (signal.SIGUSR1, signal.SIGUSR2):  # which would end us, and mean nothing here
        loop.add_signal_handler(number, partial(log.info, "signal.ignored", signal=number.name))
    return stop


_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")
_IN_TRACE = re.compile(_CONTROL.pattern.replace("\x00-\x1f", "\x00-\x09\x0b-\x1f"))  # which has lines of its own


def _without_controls(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Words of others in our log neither end a line nor reach a terminal with their control characters."""
    for name, value in event.items():
        if isinstance(value, str):
            event[name] = (_IN_TRACE if name == "exception" else _CONTROL).sub(_escape, value)
    return event


def _escape(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()


class _Log:
    """Standard error. What a full disk does not take is lost, and nothing else: the work goes on."""

    def write(self, text: str) -> None:
        with suppress(OSError):
            sys.stderr.write(text)

    def flush(self) -> None:
        with suppress(OSError):
            sys.stderr.flush()


def set_up_logging(form: str) -> None:
    """Events and fields to standard error, as text for people or JSON for machines."""
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer()
        if form == "json"
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            _without_controls,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(cast(TextIO, _Log())),
        cache_logger_on_first_use=True,
    )
