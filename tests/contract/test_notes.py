"""What a program of ours tells over its notes becomes part of its result."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path

import pytest

from horae.core.model import Reason, State
from horae.executors.attempts.executor import SectionExecutor
from horae.executors.attempts.sections import Section as Part
from horae.executors.notes import take_note
from horae.executors.processes.process import KeeperProcess
from horae.ports.work import Work
from horae.testing import FakeClock

from .test_executors import GRACE, Rig, plain

PROGRAM = """
import json, os, sys
order = json.load(sys.stdin)
with os.fdopen(int(os.environ["HORAE_NOTES"]), "w") as notes:
    for told in order["notes"]:
        notes.write(told if isinstance(told, str) else json.dumps(told))
        notes.write("\\n")
sys.exit(order["code"])
"""


def plan(work: Work, workspace: Path) -> Iterator[Part]:
    argv = (sys.executable, "-I", "-S", "-c", PROGRAM)
    given = json.dumps(work.spec).encode()
    yield Part(
        "it",
        "it",
        "the query",
        argv,
        workspace,
        {},
        Reason.ERROR,
        is_ours=True,
        given=given,
        note=partial(take_note, work),
    )


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    keeper, clock = KeeperProcess(tmp_path / "keeper"), FakeClock()
    await keeper.open()
    executor = SectionExecutor("it", plan, plain(keeper, tmp_path), tmp_path / "workspaces", 4, clock, grace=GRACE)
    await executor.open()
    yield Rig(executor, clock)
    await executor.close()
    await keeper.close()


async def test_facts_become_part_of_the_result(rig: Rig) -> None:
    result, _ = await rig.run({"notes": [{"facts": {"rows": 3}}, "no json", [1], {"facts": 7}], "code": 0})
    assert result.state is State.SUCCEEDED
    assert json.loads(result.result or "")["rows"] == 3


@pytest.mark.parametrize("final", [True, False])
async def test_the_failure_that_a_program_tells_is_that_of_the_run(rig: Rig, final: bool) -> None:
    result, _ = await rig.run({"notes": [{"error": {"message": "no such table", "final": final}}], "code": 1})
    assert (result.state, result.reason, result.message) == (State.FAILED, Reason.ERROR, "no such table")
    assert (result.exit_code, result.final) == (1, final)


async def test_a_failure_that_is_told_badly_is_passed_over(rig: Rig) -> None:
    result, _ = await rig.run({"notes": [{"error": "text"}, {"error": {"message": 7}}], "code": 2})
    assert (result.message, result.final) == ("the query ended with exit code 2", False)


async def test_a_program_that_ends_well_has_not_failed_whatever_it_told(rig: Rig) -> None:
    result, _ = await rig.run({"notes": [{"error": {"message": "a warning"}}], "code": 0})
    assert (result.state, result.message, result.final) == (State.SUCCEEDED, "", False)
