"""Code that is current: an edit counts for the next run, and never within one. Real workers, real files."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path

import pytest

from horae.core.model import State
from tests.contract.test_python_executor import Make, Rig, make, unchanged_path  # noqa: F401  # fixtures

ASYNC = "from horae import handler\n@handler\nasync def run(context): return {value!r}\n"
PLAIN = "from horae import handler\n@handler\ndef run(context): return {value!r}\n"


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    (tmp_path / "jobs" / "daily").mkdir(parents=True)
    return tmp_path / "jobs"


@pytest.fixture
def rig(make: Make, jobs: Path) -> Rig:  # noqa: F811
    return make(jobs_directory=jobs)


def write(path: Path, text: str) -> None:
    path.write_text(text)


@pytest.mark.parametrize("code", [ASYNC, PLAIN], ids=["async", "plain"])
async def test_an_edit_counts_for_the_next_run(rig: Rig, jobs: Path, code: str) -> None:
    for value in ("a", "b", "c"):
        write(jobs / "daily" / "job.py", code.format(value=value))
        assert (await rig.run("jobs/daily")).result == f'"{value}"'
        assert (await rig.run("jobs/daily")).result == f'"{value}"'


async def test_without_an_edit_the_process_stays(rig: Rig, jobs: Path) -> None:
    write(jobs / "daily" / "job.py", ASYNC.format(value=1))
    for _ in range(3):
        await rig.run("jobs/daily")
        os.utime(jobs / "daily" / "job.py")  # touched, and the same
    assert len(rig.keeper.commands) == 1


async def test_an_edit_of_equal_size_and_time_counts(rig: Rig, jobs: Path) -> None:
    path = jobs / "daily" / "job.py"
    for value in ("old", "new"):
        write(path, ASYNC.format(value=value))
        os.utime(path, ns=(10**18, 10**18))
        assert (await rig.run("jobs/daily")).result == f'"{value}"'


async def test_an_edit_counts_when_the_clock_of_the_files_goes_back(rig: Rig, jobs: Path) -> None:
    path = jobs / "daily" / "job.py"
    for value, seconds in (("old", 4 * 10**9), ("new", 10**9)):
        write(path, ASYNC.format(value=value))
        os.utime(path, (seconds, seconds))
        assert (await rig.run("jobs/daily")).result == f'"{value}"'


async def test_an_edit_of_what_a_handler_imports_counts(rig: Rig, jobs: Path, tmp_path: Path) -> None:
    write(jobs / "daily" / "job.py", "from horae import handler\nfrom .near import A\nfrom far import B\n"
          "@handler\nasync def run(context): return A + B\n")  # fmt: skip
    near, far = jobs / "daily" / "near.py", tmp_path / "modules" / "far.py"
    write(near, "A = 'n1'")
    write(far, "B = 'f1'")
    assert (await rig.run("jobs/daily")).result == '"n1f1"'
    write(near, "A = 'n2'")
    assert (await rig.run("jobs/daily")).result == '"n2f1"'
    write(far, "B = 'f2'")
    assert (await rig.run("jobs/daily")).result == '"n2f2"'


async def test_a_run_keeps_the_code_that_it_began_with(rig: Rig, jobs: Path, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    code = """
import asyncio, os
from horae import handler
@handler
async def run(context):
    print("begun")
    while context.data and not os.path.exists(context.data["gate"]):
        await asyncio.sleep(0.01)
    from . import later
    return [{value!r}, later.VALUE]
"""
    write(jobs / "daily" / "later.py", "VALUE = 'old'")
    write(jobs / "daily" / "job.py", code.format(value="old"))
    first = rig.begin("jobs/daily", {"gate": str(gate)})
    await rig.until_begun(first)
    write(jobs / "daily" / "later.py", "VALUE = 'new'")
    write(jobs / "daily" / "job.py", code.format(value="new"))
    assert (await rig.run("jobs/daily")).result == '["new","new"]'
    gate.touch()
    assert (await rig.result(first)).result == '["old","old"]'


async def test_an_old_process_ends_with_its_last_run(rig: Rig, jobs: Path, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    code = """
import asyncio, os
from horae import handler
@handler
async def run(context):
    print("begun")
    while context.data and not os.path.exists(context.data["gate"]):
        await asyncio.sleep(0.01)
    return os.getpid()
"""
    write(jobs / "daily" / "job.py", code)
    first = rig.begin("jobs/daily", {"gate": str(gate)})
    await rig.until_begun(first)
    (old,) = rig.executor._base.shared
    write(jobs / "daily" / "job.py", code + "\n# edited\n")
    await rig.run("jobs/daily")
    assert old.live
    assert old not in rig.executor._base.shared
    gate.touch()
    await rig.result(first)
    await old._over.wait()
    assert not old.live


async def test_a_mistake_is_told_with_its_line_and_the_next_edit_mends_it(rig: Rig, jobs: Path) -> None:
    path = jobs / "daily" / "job.py"
    write(path, ASYNC.format(value=1))
    await rig.run("jobs/daily")
    write(path, "from horae import handler\n@handler\nasync def run(context) return 2\n")
    broken = await rig.run("jobs/daily")
    assert broken.state is State.FAILED
    assert f"{path}, line 3: async def run(context) return 2" in broken.message
    write(path, ASYNC.format(value=3))
    assert (await rig.run("jobs/daily")).result == "3"


async def test_a_file_that_is_half_written_is_waited_for(rig: Rig, jobs: Path) -> None:
    """A save in two parts: the run that comes between the parts gets the whole."""
    path = jobs / "daily" / "job.py"
    write(path, ASYNC.format(value="old"))
    await rig.run("jobs/daily")
    whole = ASYNC.format(value="new")
    write(path, whole[:30])
    run_id = rig.begin("jobs/daily")
    while len(rig.keeper.commands) < 2:  # until a new worker is asked for: the edit was seen
        await asyncio.sleep(0)
    write(path, whole)
    result = await rig.result(run_id)
    assert (result.state, result.result) == (State.SUCCEEDED, '"new"')


async def test_a_deleted_handler_is_gone_and_can_come_back(rig: Rig, jobs: Path) -> None:
    write(jobs / "daily" / "job.py", ASYNC.format(value=1))
    await rig.run("jobs/daily")
    (jobs / "daily" / "job.py").unlink()
    gone = await rig.run("jobs/daily")
    assert gone.state is State.FAILED
    assert "the jobs directory has neither daily/__init__.py" in gone.message
    write(jobs / "daily" / "job.py", ASYNC.format(value=2))
    assert (await rig.run("jobs/daily")).result == "2"


async def test_a_file_that_is_added_counts(rig: Rig, jobs: Path) -> None:
    write(jobs / "daily" / "job.py", "from horae import handler\ntry:\n    from .extra import VALUE\n"
          "except ImportError:\n    VALUE = 'none'\n@handler\nasync def run(context): return VALUE\n")  # fmt: skip
    assert (await rig.run("jobs/daily")).result == '"none"'
    write(jobs / "daily" / "extra.py", "VALUE = 'extra'")
    assert (await rig.run("jobs/daily")).result == '"extra"'


async def test_a_directory_that_is_swapped_behind_a_link_counts(make: Make, tmp_path: Path) -> None:  # noqa: F811
    for release in ("one", "two"):
        (tmp_path / release / "daily").mkdir(parents=True)
        write(tmp_path / release / "daily" / "job.py", ASYNC.format(value=release))
        shutil.copystat(tmp_path / "one" / "daily" / "job.py", tmp_path / release / "daily" / "job.py")
    link = tmp_path / "jobs"
    link.symlink_to(tmp_path / "one")
    rig = make(jobs_directory=link)
    assert (await rig.run("jobs/daily")).result == '"one"'
    (tmp_path / "next").symlink_to(tmp_path / "two")
    (tmp_path / "next").rename(link)
    assert (await rig.run("jobs/daily")).result == '"two"'


async def test_code_that_changes_whenever_it_is_loaded_fails_and_is_named(rig: Rig, jobs: Path) -> None:
    write(jobs / "daily" / "job.py", "import pathlib, os\nfrom . import made\n"
          "pathlib.Path(made.__file__).write_text(f'PID = {os.getpid()}')\n")  # fmt: skip
    write(jobs / "daily" / "made.py", "PID = 0")
    result = await rig.run("jobs/daily")
    assert result.state is State.FAILED
    assert "changed each of the 6 times that it was loaded" in result.message
    assert str(jobs / "daily" / "made.py") in result.message


async def test_a_plain_handler_that_becomes_async_shares_a_process(rig: Rig, jobs: Path) -> None:
    write(jobs / "daily" / "job.py", PLAIN.format(value=1))
    await rig.run("jobs/daily")
    write(jobs / "daily" / "job.py", ASYNC.format(value=2))
    await rig.run("jobs/daily")
    assert [route.sort for route in rig.executor._routes.values()] == ["async"]


async def test_an_inline_handler_is_what_it_was_until_the_agent_restarts(rig: Rig, jobs: Path) -> None:
    code = "from horae import handler\n@handler(inline=True)\nasync def run(context): return {value}\n"
    write(jobs / "daily" / "job.py", code.format(value=1))
    assert (await rig.run("jobs/daily")).result == "1"
    write(jobs / "daily" / "job.py", code.format(value=2))
    assert (await rig.run("jobs/daily")).result == "1"


async def test_what_workers_loaded_and_could_not_load_is_known(rig: Rig, jobs: Path) -> None:
    write(jobs / "daily" / "job.py", ASYNC.format(value=1))
    (jobs / "broken").mkdir()
    write(jobs / "broken" / "job.py", "from horae import handler\nimport nowhere\n@handler\ndef run(context): pass\n")
    await rig.run("jobs/daily")
    await rig.run("jobs/broken")
    await rig.run("where")
    facts = {fact.name: fact for fact in await rig.executor.catalogue.read()}
    assert {name: (fact.kind, fact.loaded_at is not None) for name, fact in facts.items()} == {
        "jobs/daily": ("async", True),
        "jobs/broken": ("plain", True),
        "subjects:where": ("async", True),
    }
    assert facts["jobs/broken"].error.endswith("(add `nowhere` to jobs/broken/requirements.txt)")


@pytest.mark.parametrize(("code", "workers"), [(ASYNC, 1), (PLAIN, 2), ("", 0)], ids=["async", "plain", "none"])
async def test_the_first_run_finds_a_process_that_was_started_before(
    rig: Rig, jobs: Path, code: str, workers: int
) -> None:
    write(jobs / "daily" / "job.py", code.format(value=1))
    await rig.executor.open()
    assert rig.executor._warming is not None
    assert rig.keeper.commands == []  # not while the server starts
    await rig.executor._warm()
    assert len(rig.executor._base.shared) + len(rig.executor._base.sole) == workers
    if workers:
        await rig.run("jobs/daily")
        assert len(rig.keeper.commands) == workers
