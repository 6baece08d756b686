"""Where control groups are found, by what the kernel says of mounts and of this process."""

from __future__ import annotations

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from horae.core.model import Reason
from horae.ports.work import Command, Limits, Process
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


def test_an_agent_that_moved_to_its_leaf_finds_the_group_it_moved_from(tmp_path: Path) -> None:
    hierarchy(tmp_path, "horae.service", controllers="memory")
    (tmp_path / "horae.service" / cgroups.OWN_LEAF).mkdir()
    found = find_controllers(f"cgroup2 {tmp_path} cgroup2 rw 0 0\n", f"0::/horae.service/{cgroups.OWN_LEAF}\n")
    assert found == {"memory": (tmp_path / "horae.service", True)}


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


@pytest.fixture
def unified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The files of a group of v2 that was given to us, as the kernel lays them out; plain files here."""
    top = tmp_path / "horae.service"
    top.mkdir()
    (top / "cgroup.subtree_control").write_text("cpu memory pids\n")
    found = dict.fromkeys(cgroups.CONTROLLERS.values(), (top, True))
    monkeypatch.setattr(cgroups, "find_controllers", lambda: found)
    return top


async def test_limits_on_v2_are_files_of_one_group_that_the_process_joins(unified: Path, tmp_path: Path) -> None:
    groups, keeper = Groups(tmp_path), Recorder()
    groups.open()
    limits = Limits(memory=2**30, cpus=1.5, pids=50)
    group = groups._make("1-1", limits)
    [directory] = set(group.directories.values())
    assert directory.parent.parent == unified
    assert {path.name: path.read_text() for path in directory.iterdir()} == {
        "memory.max": str(2**30), "memory.oom.group": "1", "cpu.max": "150000 100000", "pids.max": "50",
    }  # fmt: skip
    assert (directory.parent / "cgroup.subtree_control").exists()
    with pytest.raises(InterruptedError):
        await groups.spawn(keeper, Command(("true",), {}, "/"), "1-1", limits)
    assert keeper.command.groups == (f"{directory}/cgroup.procs",)
    assert keeper.command.rlimits == {}


def test_swap_is_forbidden_where_the_kernel_accounts_for_it(unified: Path, tmp_path: Path) -> None:
    groups = Groups(tmp_path)
    groups.open()
    directory = unified / groups._name / "1-1"
    directory.mkdir()
    (directory / "memory.swap.max").touch()
    groups._make("1-1", Limits(memory=2**30))
    assert (directory / "memory.swap.max").read_text() == "0"


@pytest.fixture
def divided(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Groups of v1, a directory per controller."""
    found = {name: (tmp_path / name, False) for name in cgroups.CONTROLLERS.values()}
    for top, _ in found.values():
        top.mkdir()
    monkeypatch.setattr(cgroups, "find_controllers", lambda: found)
    return tmp_path


def test_what_killed_agents_left_is_taken_away_by_the_next_one_and_what_holds_groups_is_not(divided: Path) -> None:
    killed, working, ours = (Groups(divided / name) for name in ("killed", "working", "ours"))
    killed.open()
    working.open()
    working._make("1-1", Limits(pids=50))
    ours.open()
    assert {path.name for path in (divided / "pids").iterdir()} == {working._name, ours._name}
    assert {path.name for path in (divided / "memory").iterdir()} == {ours._name}


def test_an_agent_whose_empty_directory_was_taken_away_makes_it_again(divided: Path) -> None:
    idle, other = Groups(divided / "idle"), Groups(divided / "other")
    idle.open()
    other.open()
    group = idle._make("1-1", Limits(memory=2**30, pids=50))
    assert (group.directories["pids"] / "pids.max").read_text() == "50"
    assert (group.directories["memory"] / "memory.limit_in_bytes").read_text() == str(2**30)


def test_on_v2_it_is_made_again_with_all_its_controllers(unified: Path, tmp_path: Path) -> None:
    groups = Groups(tmp_path)
    groups.open()
    parent = unified / groups._name
    (parent / "cgroup.subtree_control").unlink()
    parent.rmdir()
    written = []
    write_text = Path.write_text

    def write(path: Path, text: str) -> int:
        written.append(text)
        return write_text(path, text)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "write_text", write)
        groups._make("1-1", Limits(pids=50))
    assert written == ["+memory", "+cpu", "+pids", "50"]


@pytest.mark.parametrize(
    ("file", "text", "reason"),
    [
        ("memory.events", "low 0\nhigh 0\nmax 12\noom 0\noom_kill 0\noom_group_kill 0\n", ""),
        ("memory.events", "low 0\nhigh 0\nmax 12\noom 1\noom_kill 3\noom_group_kill 1\n", Reason.OOM),
        ("pids.events", "max 0\n", ""),
        ("pids.events", "max 7\n", Reason.PROCESSES),
    ],
)
def test_what_the_files_of_v2_say_of_a_limit_that_was_exceeded(
    tmp_path: Path, file: str, text: str, reason: str
) -> None:
    (tmp_path / file).write_text(text)
    assert cgroups.Group({"memory": tmp_path, "pids": tmp_path}).exceeded() == reason
