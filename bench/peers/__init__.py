"""Other schedulers on the same PostgreSQL, in programs of their own that all speak alike:

    PROGRAM URL ACTION COUNT CLIENTS

| action | does | answers |
| --- | --- | --- |
| prepare | makes its tables | {} |
| enqueue | COUNT jobs, one call each, by so many clients at once | {"seconds": …} |
| bulk | COUNT jobs, a thousand a call | {"seconds": …} |
| drain | runs all that wait, in its largest batches | {"first": …, "last": …, "done": …}, in seconds since 1970 |
| latency | COUNT jobs, one every 20 ms, beside a worker | {"late": […]}, seconds from before the call to the start |
| herd | COUNT recurring jobs that are due at one moment | {"seconds": …} until the last has started |

`make peers` installs them below `.venv/peers`; one that is not there is left out, with a line that says so.
"""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio.subprocess import PIPE
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.figure import Void

HERE = Path(__file__).parent
HOME = HERE.parents[1] / ".venv" / "peers"
PATIENCE = 300.0  # seconds for one action


@dataclass(frozen=True, slots=True)
class Peer:
    """One of the others."""

    name: str
    program: str
    lacks: frozenset[str] = frozenset()  # actions that it has no way for

    @property
    def _interpreter(self) -> Path:
        return HOME / "bin" / "python" if self.program.endswith(".py") else Path("node")

    @property
    def missing(self) -> str | None:
        """Return what is to be done where it is not installed."""
        package = HOME / ("bin/python" if self.program.endswith(".py") else f"node_modules/{self.name}")
        return None if package.exists() else f"{self.name} is not installed: make peers"

    async def do(self, url: str, action: str, count: int = 0, clients: int = 1) -> dict[str, Any]:
        place = HOME / self.program  # where it finds its packages
        place.write_bytes((HERE / self.program).read_bytes())
        return await ask([str(self._interpreter), str(place)], url, action, count, clients)


async def ask_horae(url: str, action: str, count: int, clients: int) -> dict[str, Any]:
    return await ask([sys.executable, "-m", "bench.peers.horae_program"], url, action, count, clients)


async def ask(program: list[str], url: str, action: str, count: int, clients: int) -> dict[str, Any]:
    process = await asyncio.create_subprocess_exec(
        *program, url, action, str(count), str(clients), stdout=PIPE, stderr=PIPE
    )
    try:
        async with asyncio.timeout(PATIENCE):
            said, wrong = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        raise Void(f"{program[-1]} did not {action} in {PATIENCE:.0f} s") from None
    if process.returncode:
        raise Void(f"{program[-1]} could not {action}: {wrong.decode(errors='replace').strip()[-500:]}")
    answer: dict[str, Any] = json.loads(said.splitlines()[-1])
    return answer


PEERS = (
    # Schedules of these three are lines of cron, looked at once a minute: there is no herd of a chosen moment.
    Peer("pg-boss", "pgboss.mjs", frozenset({"herd"})),
    Peer("graphile-worker", "graphile.mjs", frozenset({"herd"})),
    Peer("pgqueuer", "pgqueuer_program.py", frozenset({"herd"})),
    Peer("apscheduler", "apscheduler_program.py", frozenset({"bulk", "drain"})),
)
