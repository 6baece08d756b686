"""A run of tests that is killed leaves no container behind."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.test_leash import TELL, kill_run

CONTAINER = f"""{TELL}
from tests.engines.dockerd import IMAGE, Daemon

def test_that_is_killed():
    Daemon().docker("run", "-d", "--network=none", IMAGE, "sleep", "600")
    tell_and_wait()
"""


@pytest.mark.slow
def test_a_killed_run_leaves_no_daemon_and_no_container(tmp_path: Path, need: Callable[..., None]) -> None:
    need("dockerd", "docker", "busybox")
    directory = kill_run(tmp_path, CONTAINER, {"dockerd", "containerd", "sleep"}, signal.SIGKILL)

    groups = Path("/sys/fs/cgroup")
    assert not [*groups.glob(f"{directory.name}*"), *groups.glob(f"*/{directory.name}*")]
    assert str(directory) not in Path("/proc/self/mountinfo").read_text()
