"""What alerts leave by: the channels of a server, and how full its disk is."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from horae.app.parts import make_reach
from horae.channels.tellers import Tellers
from horae.config import Config
from horae.executors.http.connections import Connections
from horae.executors.http.faults import Fault
from horae.executors.http.posting import post
from horae.executors.reach import reach_of
from horae.ports.alerts import Undelivered
from horae.ports.clock import Clock


class GuardedPost:
    """Requests of Horae itself, which reach what those of jobs may reach."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    async def __call__(self, url: str, headers: Mapping[str, str], body: bytes, seconds: float) -> tuple[int, str]:
        try:
            return await post(self._connections, url, headers, body, seconds)
        except Fault as fault:
            raise Undelivered(fault.message) from None
        except TimeoutError:
            raise Undelivered(f"no whole answer came in {seconds:g} s") from None
        except OSError as error:
            raise Undelivered(f"no connection: {error.strerror or error}") from None

    async def close(self) -> None:
        await self._connections.close()


def make_tellers(config: Config, clock: Clock, *, has_one_user: bool) -> Tellers:
    reach = reach_of(make_reach(config, has_one_user=has_one_user).for_requests())
    return Tellers(
        GuardedPost(Connections(reach)), clock, smtp_url=config.smtp_url, smtp_from=config.smtp_from,
        commands=dict(config.alert_commands),
    )  # fmt: skip


def used_disk(directory: Path) -> float:
    """Return how full the disk of a directory is, in percent, as users see it."""
    usage = shutil.disk_usage(directory)
    return 100.0 * usage.used / (usage.used + usage.free)
