"""Environments of handlers: real workers, real builds, from wheels that are made here; no network."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from horae.core.model import Phase, Reason, State
from horae.executors.handlers.describer import Describer
from horae.executors.handlers.environments import Environments
from tests.contract.test_executors import Heard
from tests.contract.test_projects import wheel
from tests.contract.test_python_executor import DEADLINE, Make, RealClock, Rig, make, unchanged_path  # noqa: F401

pytestmark = pytest.mark.slow

ASKS = (
    "import sys, sundial\nfrom horae import handler\n@handler\n{kind} run(context): return [sundial.HOUR, sys.prefix]\n"
)


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where packages come from, and nothing from elsewhere."""
    place = tmp_path / "wheels"
    place.mkdir()
    for name, code in (("sundial", "HOUR = 7"), ("hourglass", "HOUR = 8"), ("msgspec", "raise ImportError('theirs')")):
        (place / f"{name}-1.0-py3-none-any.whl").write_bytes(wheel(name, code))
    for name, value in (("FIND_LINKS", str(place)), ("NO_INDEX", "1")):
        monkeypatch.setenv(f"UV_{name}", value)
        monkeypatch.setenv(f"PIP_{name}", value)
    return place


@pytest.fixture
def job(tmp_path: Path, wheels: Path) -> Path:
    folder = tmp_path / "jobs" / "report"
    folder.mkdir(parents=True)
    (folder / "job.py").write_text(ASKS.format(kind="async def"))
    return folder


@pytest.fixture
def rig(make: Make, job: Path, tmp_path: Path) -> Rig:  # noqa: F811
    return make(jobs_directory=job.parent, environments=tmp_path / "environments")


def builds(rig: Rig) -> int:
    return sum("environment.py" in " ".join(command.argv) for command in rig.keeper.commands)


def in_turn(rows: list[tuple[str, ...]], ways: list[Any]) -> list[Any]:
    """Each row with one of the ways, in turn; with the others where it may be long."""
    return [
        pytest.param(*row, way, marks=() if number % len(ways) == turn else pytest.mark.long)
        for number, row in enumerate(rows)
        for turn, way in enumerate(ways)
    ]


ASKED = [
    ("requirements.txt", "sundial==1.0\n"),
    ("pyproject.toml", '[project]\nname = "report"\nversion = "1"\ndependencies = ["sundial"]\n'),
    ("job.py", '# /// script\n# requires-python = ">=3.11"\n# dependencies = [\n#   "sundial",\n# ]\n# ///\n'),
]
LACKING = [
    ("requirements.txt", "", "jobs/report/requirements.txt"),
    ("pyproject.toml", "[project]\ndependencies = []\n", "jobs/report/pyproject.toml"),
    ("job.py", "# /// script\n# dependencies = []\n# ///\n", "jobs/report/job.py (# /// script)"),
]


@pytest.mark.parametrize(("file", "text", "kind"), in_turn(ASKED, ["async def", "def"]))
async def test_a_handler_has_the_packages_that_it_asks_for(
    rig: Rig, job: Path, tmp_path: Path, kind: str, file: str, text: str
) -> None:
    (job / "job.py").write_text(ASKS.format(kind=kind))
    path = job / file
    path.write_text(text + (path.read_text() if path.exists() else ""))
    result = await rig.run("jobs/report")
    assert result.state is State.SUCCEEDED, result.message
    assert result.result is not None
    assert result.result.startswith(f'[7,"{tmp_path / "environments"}')
    assert "sundial" in await rig.log(result.run_id)


async def test_an_environment_is_made_once_for_all_who_need_it_and_kept(
    rig: Rig,
    make: Make,  # noqa: F811
    job: Path,
    tmp_path: Path,
) -> None:
    (job / "requirements.txt").write_text("sundial\n")
    runs = [rig.begin("jobs/report", {"n": n}) for n in range(5)]
    assert {(await rig.result(run_id)).state for run_id in runs} == {State.SUCCEEDED}
    assert builds(rig) == 1
    again = make(jobs_directory=job.parent, environments=tmp_path / "environments")
    assert (await again.run("jobs/report")).state is State.SUCCEEDED
    assert builds(again) == 0


async def test_owners_share_no_environment(rig: Rig, job: Path, tmp_path: Path) -> None:
    (job / "requirements.txt").write_text("sundial\n")
    works = [rig.work("jobs/report"), rig.work("jobs/report")]
    works[1].assignment = works[1].assignment._replace(owner="somebody else")
    rig.start(*works)
    results = [(await rig.result(work.assignment.run_id)).result for work in works]
    assert results[0] != results[1]
    assert len(list((tmp_path / "environments").iterdir())) == 2


async def test_what_is_made_cannot_be_written_to(rig: Rig, job: Path, tmp_path: Path) -> None:
    (job / "requirements.txt").write_text("sundial\n")
    await rig.run("jobs/report")
    (module,) = (tmp_path / "environments").glob("*/venv/lib/*/site-packages/sundial.py")
    assert not module.stat().st_mode & 0o222
    assert not module.parent.stat().st_mode & 0o222


async def test_a_change_of_the_requirements_counts_for_the_next_run(rig: Rig, job: Path) -> None:
    (job / "requirements.txt").write_text("sundial\n")
    await rig.run("jobs/report")
    (job / "requirements.txt").write_text("sundial\nhourglass\n")
    (job / "job.py").write_text("import hourglass\n" + ASKS.format(kind="async def"))
    assert (await rig.run("jobs/report")).state is State.SUCCEEDED
    (job / "requirements.txt").unlink()
    without = await rig.run("jobs/report")
    assert without.message.endswith("(add `hourglass` to jobs/report/requirements.txt)")


@pytest.mark.parametrize(("file", "text", "where", "is_late"), in_turn(LACKING, [False, True]))
async def test_a_missing_import_says_which_file_to_put_it_in(
    rig: Rig, job: Path, file: str, text: str, where: str, is_late: bool
) -> None:
    late = "from horae import handler\n@handler\ndef run(context):\n    import sundial\n"
    path = job / file
    path.write_text(text)
    (job / "job.py").write_text((text if file == "job.py" else "") + (late if is_late else ASKS.format(kind="def")))
    result = await rig.run("jobs/report")
    assert result.state is State.FAILED
    assert result.message.endswith(f"No module named 'sundial' (add `sundial` to {where})")


async def test_a_package_that_is_nowhere_fails_the_run_with_the_last_words_of_the_build(rig: Rig, job: Path) -> None:
    (job / "requirements.txt").write_text("moondial==3\n")
    result = await rig.run("jobs/report")
    assert (result.state, result.reason) == (State.FAILED, Reason.ERROR)
    assert result.message.startswith(f"the environment that {job}/requirements.txt asks for was not made: ")
    assert "moondial" in result.message
    assert "moondial" in await rig.log(result.run_id)
    (job / "requirements.txt").write_text("sundial\n")
    assert (await rig.run("jobs/report")).state is State.SUCCEEDED


@pytest.mark.parametrize(
    ("file", "text", "why"),
    [
        ("pyproject.toml", "[project", "cannot be read"),
        ("pyproject.toml", '[project]\ndependencies = "sundial"\n', "dependencies are a list of texts"),
        ("pyproject.toml", '[project]\nrequires-python = ">=4"\ndependencies = []\n', "it wants Python >=4"),
        pytest.param("requirements.txt", "\0" * (2 << 20), "larger than 1024 KiB", id="too large"),
    ],
)
async def test_requirements_that_cannot_be_read_are_named(rig: Rig, job: Path, file: str, text: str, why: str) -> None:
    (job / file).write_text(text)
    result = await rig.run("jobs/report")
    assert result.state is State.FAILED
    assert f"what {job / file} requires cannot be read" in result.message
    assert why in result.message
    assert builds(rig) == 0


async def test_a_run_that_waits_for_its_environment_is_preparing_and_can_be_cancelled(rig: Rig, job: Path) -> None:
    (job / "requirements.txt").write_text("sundial\n")
    phases: list[Phase] = []
    preparing = asyncio.Event()

    def note(phase: Phase) -> None:
        phases.append(phase)
        preparing.set()

    works = [rig.work("jobs/report"), rig.work("jobs/report")]
    works[0].listener = Heard(note)
    first, second = rig.start(*works)
    await asyncio.wait_for(preparing.wait(), 60)
    rig.executor.stop(second, Reason.REQUESTED)
    assert (await rig.result(second)).state is State.CANCELLED
    assert (await rig.result(first)).state is State.SUCCEEDED
    assert phases == [Phase.PREPARING, Phase.RUNNING]


async def test_an_agent_that_closes_leaves_no_build_behind(rig: Rig, job: Path) -> None:
    (job / "requirements.txt").write_text("sundial\n")
    run_id = rig.begin("jobs/report")
    while not builds(rig):
        await asyncio.sleep(0)
    await rig.executor.close()
    assert (await rig.result(run_id)).state is State.QUEUED


async def test_horae_runs_with_its_own_packages_whatever_the_environment_has(rig: Rig, job: Path) -> None:
    (job / "requirements.txt").write_text("sundial\nmsgspec\n")
    assert (await rig.run("jobs/report")).state is State.SUCCEEDED


async def test_handlers_that_need_nothing_go_on_in_the_agents_own_environment(rig: Rig, job: Path) -> None:
    (job / "requirements.txt").write_text("sundial\n")
    await rig.run("jobs/report")
    before = len(rig.keeper.commands)
    assert (await rig.run("where")).state is State.SUCCEEDED
    assert len(rig.keeper.commands) == before


@pytest.mark.long
async def test_without_uv_an_environment_is_made_with_pip(rig: Rig, job: Path) -> None:
    assert rig.executor._environments is not None
    rig.executor._environments._uv = ""
    (job / "requirements.txt").write_text("sundial\n")
    assert (await rig.run("jobs/report")).state is State.SUCCEEDED
    assert not os.path.exists(job / "venv")


# ── what they take, before there is a run ──

TYPED = "import sundial\nfrom horae import handler\n@handler\ndef run(hour: int = sundial.HOUR): pass\n"


@pytest.fixture
async def describer(rig: Rig, job: Path, tmp_path: Path) -> AsyncIterator[Describer]:
    (job / "job.py").write_text(TYPED)
    made = Describer(rig.keeper, RealClock(), job.parent, tmp_path / "environments")
    yield made
    await made.close()


async def test_a_handler_with_packages_says_what_it_takes(
    describer: Describer, rig: Rig, job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (job / "requirements.txt").write_text("sundial\n")
    monkeypatch.setattr("horae.executors.handlers.describer.ANSWER_SECONDS", DEADLINE)
    found = await asyncio.gather(*(describer.load(["jobs/report"]) for _ in range(3)))
    assert [each["jobs/report"]["properties"] for each in found] == [{"hour": {"type": "integer"}}] * 3
    assert builds(rig) == 1


async def test_an_environment_that_takes_long_is_there_for_the_next_who_asks(
    describer: Describer, rig: Rig, job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (job / "requirements.txt").write_text("sundial\n")
    monkeypatch.setattr("horae.executors.handlers.describer.UNKNOWN_SECONDS", 0.0)
    begun, may_end = asyncio.Event(), asyncio.Event()
    make_it = Environments.make

    async def slowly(self: Environments, *given: Any) -> Any:
        begun.set()
        await may_end.wait()
        return await make_it(self, *given)

    monkeypatch.setattr(Environments, "make", slowly)
    seconds = 1.0
    while not begun.is_set():  # a slow machine does not come so far in time
        monkeypatch.setattr("horae.executors.handlers.describer.ANSWER_SECONDS", seconds)
        assert await describer.load(["jobs/report"]) == {}
        seconds *= 2
    may_end.set()
    monkeypatch.setattr("horae.executors.handlers.describer.ANSWER_SECONDS", DEADLINE)
    assert list(await describer.load(["jobs/report"])) == ["jobs/report"]
    assert builds(rig) == 1


async def test_a_handler_whose_packages_are_nowhere_is_not_described(describer: Describer, job: Path) -> None:
    (job / "requirements.txt").write_text("nowhere-to-be-found\n")
    assert await describer.load(["jobs/report"]) == {}
