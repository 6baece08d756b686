"""PostgreSQL that fails over by itself: two servers under Patroni, agreed in etcd, with synchronous replication.

From Debian's packages `patroni`, `etcd-server` and `postgresql-15`; the servers run as the user `postgres`.
What must stay true: only processes that were started here are ever signalled, and none outlives `close`.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg
import httpx

from campaign.links import Link
from campaign.services import free_ports

USER = "postgres"
PROGRAMS = Path("/usr/lib/postgresql/15/bin")
START = 90.0  # seconds to come up
STALE = 25.0  # seconds without a standby after which Patroni is restarted
UNREACHED = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, TimeoutError)
TIMELINE = "SELECT ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::int"
TTL, LOOP = 20, 2  # seconds: Patroni takes no shorter life of a primary's key


def missing() -> str:
    """Why it cannot be had here; empty when it can."""
    if os.geteuid() != 0:
        return "it needs root, to run PostgreSQL as another user"
    gone = [name for name in ("patroni", "etcd", "setpriv") if shutil.which(name) is None]
    if not (PROGRAMS / "postgres").exists():
        gone.append("postgresql-15")
    return f"there is no {gone[0]}: apt-get install patroni python3-etcd etcd-server postgresql-15" if gone else ""


@dataclass(slots=True)
class Server:
    name: str
    port: int
    rest: int
    data: Path
    process: subprocess.Popen[bytes] | None = None  # of its Patroni

    def pids(self) -> list[int]:
        """Patroni, the postmaster and everything below them."""
        assert self.process is not None
        roots = [self.process.pid]
        with suppress(OSError, ValueError, IndexError):  # it is not running
            roots.append(self.postmaster)
        return list(dict.fromkeys(pid for root in roots for pid in _tree(root)))

    @property
    def postmaster(self) -> int:
        return int((self.data / "postmaster.pid").read_text().split()[0])

    def signal(self, number: signal.Signals) -> None:
        for pid in self.pids():
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue


class Patroni:
    def __init__(self) -> None:
        self._root = Path(tempfile.mkdtemp(prefix="horae-campaign-"))
        self._root.chmod(0o755)
        self._http = httpx.AsyncClient(timeout=2.0)
        self._etcd: subprocess.Popen[bytes] | None = None
        self._etcd_ports = free_ports(2)
        ports = free_ports(4)
        self.servers = [
            Server(f"pg-{n + 1}", ports[2 * n], ports[2 * n + 1], self._root / f"pg-{n + 1}") for n in range(2)
        ]
        self.url = self.address([server.port for server in self.servers])

    def link(self, name: str) -> tuple[str, list[Link]]:
        """Return an address of its own for a node, and the links behind it, one to each server."""
        ports = free_ports(len(self.servers))
        pairs = zip(ports, self.servers, strict=True)
        links = [Link(("127.0.0.1", port), ("127.0.0.1", server.port)) for port, server in pairs]
        return self.address(ports), links

    @staticmethod
    def address(ports: Iterable[int]) -> str:
        """Return the way to whichever of the servers takes writes."""
        hosts = ",".join(f"127.0.0.1:{port}" for port in ports)
        return f"postgresql://{USER}@{hosts}/postgres?target_session_attrs=read-write"

    # ── life ──
    async def start(self) -> None:
        shutil.chown(self._root, USER, USER)
        client, peer = (f"http://127.0.0.1:{port}" for port in self._etcd_ports)
        argv = ["etcd", "--name", "campaign", "--data-dir", str(self._root / "etcd"), "--unsafe-no-fsync"]
        argv += ["--listen-client-urls", client, "--advertise-client-urls", client]
        argv += ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer]
        argv += ["--initial-cluster", f"campaign={peer}"]
        self._etcd = self._spawn("etcd", argv)
        for server in self.servers:
            self._begin(server)
            await self._await(lambda: self.roles(), len(self.servers[: self.servers.index(server) + 1]))
        await self._await(lambda: self._replicas(), 1)

    def _spawn(self, name: str, argv: list[str]) -> subprocess.Popen[bytes]:
        who = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--init-groups"]
        environment = {"PATH": f"{PROGRAMS}:/usr/bin:/bin", "HOME": str(self._root), "LC_ALL": "C.UTF-8"}
        with (self._root / f"{name}.log").open("ab") as log:
            return subprocess.Popen(
                [*who, *argv], stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, cwd=self._root
            )

    def _begin(self, server: Server) -> None:
        path = self._root / f"{server.name}.yml"
        path.write_text(json.dumps(self._settings(server)))  # JSON is YAML, too
        server.process = self._spawn(server.name, ["patroni", str(path)])

    def _settings(self, server: Server) -> dict[str, Any]:
        parameters = {
            "max_connections": 150, "wal_log_hints": "on", "jit": "off", "unix_socket_directories": str(self._root),
            "shared_buffers": "32MB",
        }  # fmt: skip
        dcs = {
            "ttl": TTL, "loop_wait": LOOP, "retry_timeout": 5, "maximum_lag_on_failover": 1_000_000,
            "synchronous_mode": True, "master_start_timeout": 0,
            "postgresql": {"use_pg_rewind": True, "use_slots": True, "parameters": parameters},
        }  # fmt: skip
        hba = ["local all all trust", "host all all 127.0.0.1/32 trust", "host replication all 127.0.0.1/32 trust"]
        return {
            "scope": "campaign", "name": server.name,
            "restapi": {"listen": f"127.0.0.1:{server.rest}", "connect_address": f"127.0.0.1:{server.rest}"},
            "etcd3": {"host": f"127.0.0.1:{self._etcd_ports[0]}"},
            "bootstrap": {"dcs": dcs, "initdb": [{"encoding": "UTF8"}, {"locale": "C.UTF-8"}]},
            "postgresql": {
                "listen": f"127.0.0.1:{server.port}", "connect_address": f"127.0.0.1:{server.port}",
                "data_dir": str(server.data), "bin_dir": str(PROGRAMS), "pg_hba": hba,
                "authentication": {
                    "superuser": {"username": USER, "password": "campaign"},
                    "replication": {"username": "replicator", "password": "campaign"},
                    "rewind": {"username": USER, "password": "campaign"},
                },
            },
        }  # fmt: skip

    async def _await(self, look: Any, least: int) -> None:
        deadline = time.monotonic() + START
        while len(await look()) < least:
            if time.monotonic() > deadline:
                raise RuntimeError(f"PostgreSQL under Patroni does not come up: see {self._root}")
            await asyncio.sleep(0.2)

    # ── looking ──
    async def roles(self) -> dict[str, tuple[str, int]]:
        """Server → role and timeline, as the first Patroni that answers says; only of those that run."""
        for server in self.servers:
            try:
                found = (await self._http.get(f"http://127.0.0.1:{server.rest}/cluster")).json()["members"]
            except (httpx.HTTPError, ValueError, KeyError):
                continue
            alive = [one for one in found if one["state"] in ("running", "streaming") and "timeline" in one]
            return {one["name"]: (one["role"], one["timeline"]) for one in alive}
        return {}

    async def _replicas(self) -> list[str]:
        return [name for name, (role, _) in (await self.roles()).items() if role == "sync_standby"]

    async def primary(self) -> Server | None:
        """Return the one that takes writes, when there is a standby that could take over."""
        roles = await self.roles()
        if not any(role == "sync_standby" for role, _ in roles.values()):
            return None
        return next((server for server in self.servers if roles.get(server.name, ("", 0))[0] == "leader"), None)

    async def timeline(self) -> int:
        """It grows with each promotion. 0: nobody answers."""
        try:
            return int((await self._query(TIMELINE))[0][0])
        except UNREACHED:
            return 0

    async def leader(self) -> tuple[str, int] | None:
        rows = await self._query("SELECT owner, term FROM leases WHERE name = 'leader'")
        return (rows[0][0], rows[0][1]) if rows else None

    async def cut(self) -> int:
        """End every connection of clients; answers how many there were."""
        ends = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
        return int((await self._query(f"{ends} AND application_name LIKE 'horae%'"))[0][0])

    async def _query(self, statement: str) -> list[Any]:
        for server in self.servers:
            try:
                connection = await asyncpg.connect(f"{self.address([server.port])}", timeout=2)
                break
            except UNREACHED:
                continue
        else:
            raise ConnectionError("no server takes writes")
        try:
            return list(await connection.fetch(statement, timeout=2))
        finally:
            connection.terminate()

    # ── harm ──
    def kill(self, server: Server) -> None:
        """The machine of a server dies: PostgreSQL and its Patroni, without a word."""
        server.signal(signal.SIGKILL)
        assert server.process is not None
        server.process.wait()

    def begin(self, server: Server) -> None:
        """Let it run and be known again, whatever was done to it."""
        if server.process is None or server.process.poll() is not None:
            self._begin(server)
        else:
            server.signal(signal.SIGCONT)

    async def heal(self) -> None:
        for server in self.servers:
            self.begin(server)
        try:
            async with asyncio.timeout(START):
                await self.ready()
        except TimeoutError:
            raise RuntimeError(f"PostgreSQL under Patroni has no standby: see {self._root}") from None

    async def ready(self) -> tuple[Server, int]:
        """Return the primary and its timeline, once there is a standby that could take over."""
        stale_at = time.monotonic() + STALE
        while (server := await self.primary()) is None or not (timeline := await self.timeline()):
            if time.monotonic() > stale_at:
                self._restart_patroni()
                stale_at = time.monotonic() + STALE
            await asyncio.sleep(0.3)
        return server, timeline

    def _restart_patroni(self) -> None:
        """One that stood still can keep an old view of etcd, and name no standby ever again ("updated by someone
        else"): its operator restarts it, and PostgreSQL goes on meanwhile."""
        for server in self.servers:
            assert server.process is not None
            server.process.kill()
            server.process.wait()
            self._begin(server)

    async def close(self) -> None:
        await self._http.aclose()
        for server in self.servers:
            if server.process is not None:
                server.signal(signal.SIGKILL)
                await asyncio.to_thread(server.process.wait)
        if self._etcd is not None:
            self._etcd.kill()
            await asyncio.to_thread(self._etcd.wait)
        shutil.rmtree(self._root, ignore_errors=True)


def _tree(pid: int) -> list[int]:
    """Return a process and everything below it."""
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        below = [int(text) for task in tasks for text in (task / "children").read_text().split()]
    except OSError:
        return []
    return [pid, *(one for child in below for one in _tree(child))]
