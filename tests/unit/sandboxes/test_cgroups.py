"""Where control groups are found, by what the kernel says of mounts and of this process."""

from __future__ import annotations

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from horae.ports import Command, Limits, Process
from horae.sandboxes import cgroups
from horae.sandboxes.cgroups import Groups, find_controllers


def hierarchy(root: Path, *names: str, controllers: str = "") -> None:
    for name in names:
        (root / name).mkdir(parents=True)
    if controllers:
        (root / names[-1] / "cgroup.controllers").write_text(controllers)


def test_controllers_of_v1_are_found_in_our_own_group(tmp_path: Path) -> None:
    hierarchy(tmp_path, "memory/service", "cpu,cpuacct", "pids")
    mounts = (
        f"cgroup {tmp_path}/memory cgroup rw,memory 0 0\n"
        f"cgroup {tmp_path}/cpu,cpuacct cgroup rw,cpu,cpuacct 0 0\n"
        f"cgroup {tmp_path}/pids cgroup rw,pids 0 0\n"
    )
    own = "4:memory:/service\n3:cpu,cpuacct:/gone/in/a/container\n2:pids:/\n1:name=systemd:/x\n0::/\n"
    assert find_controllers(mounts, own) == {
        "memory": (tmp_path / "memory" / "service", False),
        "cpu": (tmp_path / "cpu,cpuacct", False),
        "pids": (tmp_path / "pids", False),
    }


def test_controllers_of_v2_are_those_that_were_delegated_to_us(tmp_path: Path) -> None:
    hierarchy(tmp_path, "system.slice/horae.service", controllers="memory pids io")
    top = tmp_path / "system.slice" / "horae.service"
    found = find_controllers(f"cgroup2 {tmp_path} cgroup2 rw 0 0\n", "0::/system.slice/horae.service\n")
    assert found == {"memory": (top, True), "pids": (top, True)}


def test_on_a_mixed_machine_v1_has_what_v2_has_not(tmp_path: Path) -> None:
    hierarchy(tmp_path / "unified", ".", controllers="hugetlb")
    hierarchy(tmp_path, "pids")
    mounts = f"cgroup2 {tmp_path}/unified cgroup2 rw 0 0\ncgroup {tmp_path}/pids cgroup rw,pids 0 0\n"
    assert find_controllers(mounts, "2:pids:/\n0::/\n") == {"pids": (tmp_path / "pids", False)}


class Recorder:
    """A keeper that keeps what it was told to start."""

    is_alive = True
    command: Command

    async def open(self) -> None: ...

    async def spawn(self, command: Command) -> Process:
        self.command = command
        raise InterruptedError

    def renew(self, seconds: float) -> None: ...

    async def close(self) -> None: ...


async def test_without_groups_memory_is_limited_by_address_space_and_the_log_says_what_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cgroups, "find_controllers", dict)
    groups, keeper = Groups(tmp_path), Recorder()
    groups.open()
    with capture_logs() as logged, pytest.raises(InterruptedError):
        await groups.spawn(keeper, Command(("true",), {}, "/"), "1-1", Limits(memory=2**30, pids=50))
    assert dict(keeper.command.rlimits) == {cgroups.resource.RLIMIT_AS: 2**30}
    assert keeper.command.groups == ()
    assert sorted(line["limit"] for line in logged) == ["memory", "pids"]
