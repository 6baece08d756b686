"""What the machine of an agent has, as the control groups of its process allow."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from horae.app.machine import machine_resources

CPUS = len(os.sched_getaffinity(0)) * 1000
MEMORY = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2**20 * 2**20


def system(root: Path, own: str, files: dict[str, str]) -> Path:
    for name, text in {"proc/self/cgroup": own, **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return root


def test_without_control_groups_the_whole_machine_is_offered(tmp_path: Path) -> None:
    assert machine_resources(tmp_path) == {"cpus": CPUS, "memory": MEMORY}


@pytest.mark.parametrize(
    ("own", "files"),
    [
        ("0::/a/b", {"a/cpu.max": "50000 100000", "a/b/cpu.max": "max 100000", "a/b/memory.max": "67108865"}),
        ("0::/a/b", {"a/b/cpu.max": "50000 100000", "a/memory.max": "67108864", "a/b/memory.max": "max"}),
        ("0::/", {"cpu.max": "50000 100000", "memory.max": "67108864"}),
        (
            "4:memory:/a\n3:cpu,cpuacct:/a\n1:name=systemd:/a",
            {
                "memory/a/memory.limit_in_bytes": "67108864", "cpu,cpuacct/a/cpu.cfs_quota_us": "50000",
                "cpu,cpuacct/a/cpu.cfs_period_us": "100000",
            },
        ),
    ],
)  # fmt: skip
def test_a_control_group_or_one_above_it_may_allow_less(tmp_path: Path, own: str, files: dict[str, str]) -> None:
    root = system(tmp_path, own, {f"sys/fs/cgroup/{name}": text for name, text in files.items()})
    assert machine_resources(root) == {"cpus": 500, "memory": 64 * 2**20}


def test_a_control_group_without_limits_takes_nothing_away(tmp_path: Path) -> None:
    files = {"memory/a/memory.limit_in_bytes": "9223372036854771712", "cpu/a/cpu.cfs_quota_us": "-1"}
    root = system(tmp_path, "4:memory:/a\n3:cpu:/a", {f"sys/fs/cgroup/{name}": text for name, text in files.items()})
    assert machine_resources(root) == {"cpus": CPUS, "memory": MEMORY}
