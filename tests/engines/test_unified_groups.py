"""Handing out a controller of control groups v2, on the kernel's own tree: its rule that a group which does so has no
processes of its own. The controller is hugetlb, because memory, cpu and pids may be of v1 on this machine; the rule is
the same for all.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.xdist_group("unified")  # one tree
CONTROLLER = "hugetlb"
DELEGATE = (
    "import subprocess, sys, time; from pathlib import Path; from horae.sandboxes.cgroups import delegate\n"
    "top = Path(sys.argv[1]); (top / 'cgroup.procs').write_text('0')\n"
    "child = subprocess.Popen(('sleep', '600'))\n"
    "try: delegate(top, sys.argv[2]); delegate(top, sys.argv[2])\n"
    "except OSError as error: print('refused:', error.strerror)\n"
    "print(Path('/proc/self/cgroup').read_text(), Path(f'/proc/{child.pid}/cgroup').read_text())\n"
    "child.kill(); child.wait()"
)


@pytest.fixture
def group() -> Iterator[Path]:
    """A group of our own to which the controller is given."""
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    root = next((Path(words[1]) for words in mounts if words[2] == "cgroup2"), None)
    if root is None or os.getuid() != 0 or CONTROLLER not in (root / "cgroup.controllers").read_text():
        pytest.skip(f"no control groups of v2 with {CONTROLLER} here, or not root")
    control = root / "cgroup.subtree_control"
    was_given = CONTROLLER in control.read_text().split()
    control.write_text(f"+{CONTROLLER}")
    made = root / f"horae-test-{os.getpid()}"
    made.mkdir()
    yield made
    for inner in made.iterdir():
        if inner.is_dir():
            inner.rmdir()
    made.rmdir()
    if not was_given:
        control.write_text(f"-{CONTROLLER}")


def delegated(group: Path) -> str:
    """Return what a process in the group says of handing the controller on. Done again when somebody took it from the
    root meanwhile: daemons of containers rearrange it, and another test may have one."""
    argv = (sys.executable, "-c", DELEGATE, str(group), CONTROLLER)
    for _ in range(10):
        (group.parent / "cgroup.subtree_control").write_text(f"+{CONTROLLER}")
        told = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60).stdout
        if "refused: No such file" not in told:
            break
    return told


def test_an_agent_alone_in_its_group_moves_to_a_leaf_with_all_below_it(group: Path) -> None:
    told = delegated(group)
    assert "refused" not in told
    assert told.count(f"0::/{group.name}/horae-agent\n") == 2
    assert (group / "cgroup.subtree_control").read_text().split() == [CONTROLLER]


def test_a_group_with_processes_of_others_stays_as_it_is(group: Path) -> None:
    other = subprocess.Popen(("sleep", "600"))
    try:
        (group / "cgroup.procs").write_text(str(other.pid))
        told = delegated(group)
    finally:
        other.kill()
        other.wait()
    assert f"refused: process {other.pid}, which is not ours" in told
    assert told.count(f"0::/{group.name}\n") == 2
    assert (group / "cgroup.subtree_control").read_text().split() == []
