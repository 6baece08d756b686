"""A whole Horae on a virtual clock, as users' tests have it."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from horae import Cancel, Context, Retry, handler
from horae.errors import Error, Invalid, NotFound
from horae.testing import World, packages, world
from horae.testing.adapters import Recorded

seen: list[datetime] = []


@handler
async def note(context: Context) -> int:
    seen.append(context.scheduled_for)
    context.log(f"call {len(seen)}")
    return len(seen)


@handler
async def slow(context: Context) -> None:
    await asyncio.sleep(90)


@handler
def plain(context: Context) -> str:
    return asyncio.run(_answer())  # a plain handler may have a loop of its own


async def _answer() -> str:
    return "answered"


@pytest.fixture
def horae() -> Iterator[World]:
    seen.clear()
    with world(start="2027-01-15T08:00:00Z") as made:
        yield made


def test_a_month_of_a_daily_job_is_thirty_runs_at_their_moments(horae: World) -> None:
    horae.submit({"name": "report", "handler": note, "schedule": "0 2 * * *"})
    horae.pass_time(days=30)
    first = datetime(2027, 1, 16, 2, tzinfo=UTC)
    runs = horae.runs("report")
    assert [run.due_at for run in runs] == [first + timedelta(days=day) for day in range(30)]
    assert {(run.state, run.started_at == run.due_at) for run in runs} == {("succeeded", True)}
    assert seen == [run.due_at for run in runs]
    assert [run.result for run in runs] == list(range(1, 31))
    assert horae.log(runs[-1]) == "call 30\n"
    assert horae.now == datetime(2027, 2, 14, 8, tzinfo=UTC)


def test_time_stands_still_until_it_is_told_to_pass(horae: World) -> None:
    horae.submit({"name": "report", "handler": note, "schedule": "0 2 * * *"})
    assert horae.runs() == []
    assert horae.now == datetime(2027, 1, 15, 8, tzinfo=UTC)


def test_jobs_of_one_moment_all_run(horae: World) -> None:
    jobs = [{"name": f"job {n}", "handler": note, "schedule": "0 9 * * *"} for n in range(40)]
    horae.submit_all({"jobs": jobs})
    horae.pass_time(hours=2)
    assert {run.due_at.hour for run in horae.runs(state="succeeded")} == {9}
    assert len(horae.runs()) == 40


@pytest.mark.parametrize(
    ("zone", "moments"),
    [
        ("Europe/Berlin", ["2027-03-27T01:30:00Z", "2027-03-28T01:00:00Z", "2027-03-29T00:30:00Z"]),
        ("UTC", ["2027-03-27T02:30:00Z", "2027-03-28T02:30:00Z", "2027-03-29T02:30:00Z"]),
    ],
)
def test_summer_time_is_the_products_own(zone: str, moments: list[str]) -> None:
    with world(start="2027-03-26T12:00:00Z") as horae:
        horae.submit({"name": "nightly", "handler": note, "schedule": "30 2 * * *", "timezone": zone})
        horae.pass_time(days=3)
        assert [f"{run.due_at:%Y-%m-%dT%H:%M:%SZ}" for run in horae.runs()] == moments


def test_a_handler_that_sleeps_takes_virtual_time_and_overlap_is_decided_by_it(horae: World) -> None:
    horae.submit({"name": "slow", "handler": slow, "schedule": "* * * * *"})
    began = time.monotonic()
    horae.pass_time(minutes=6)
    assert time.monotonic() - began < 60
    runs = horae.runs("slow")
    assert [(run.state, run.reason) for run in runs[:4]] == [("succeeded", ""), ("skipped", "overlap")] * 2
    assert runs[0].finished_at is not None
    assert runs[0].finished_at - runs[0].due_at == timedelta(seconds=90)
    assert runs[-1].state == "running"


def test_an_attempt_that_takes_too_long_times_out(horae: World) -> None:
    horae.submit({"name": "slow", "handler": slow, "timeout": "30s"})
    run = horae.run_now("slow")
    assert run.state == "running"
    horae.pass_time(seconds=29)
    assert horae.run(run).state == "running"
    horae.pass_time(seconds=1)
    assert (horae.run(run).state, horae.run(run).attempt) == ("timed_out", 1)


def test_retries_wait_for_their_backoff(horae: World) -> None:
    tries: list[datetime] = []

    @handler
    async def flaky(context: Context) -> str:
        tries.append(horae.now)
        if context.attempt < 3:
            raise ValueError("not yet")
        return "third time"

    policy = {"attempts": 3, "backoff": "10m", "factor": 2, "jitter": 0}
    horae.submit({"name": "flaky", "handler": flaky, "retry": policy})
    run = horae.run_now("flaky")
    assert (run.state, run.reason) == ("blocked", "retry")
    horae.pass_time(hours=1)
    run = horae.run(run)
    assert (run.state, run.attempt, run.result) == ("succeeded", 3, "third time")
    assert [moment - tries[0] for moment in tries] == [timedelta(), timedelta(minutes=10), timedelta(minutes=30)]
    assert "ValueError: not yet" in horae.log(run, attempt=1)


def test_what_falls_due_while_horae_is_down_is_missed(horae: World) -> None:
    horae.submit({"name": "hourly", "handler": note, "schedule": "0 * * * *"})
    horae.pass_until("2027-01-15T09:30:00Z")
    horae.outage(hours=4)
    horae.pass_time(hours=1)
    told = [(run.due_at.hour, run.state) for run in horae.runs("hourly")]
    missed = [(10, "coalesced"), (11, "coalesced"), (12, "coalesced"), (13, "succeeded")]
    assert told == [(8, "succeeded"), (9, "succeeded"), *missed, (14, "succeeded")]


def test_what_runs_when_horae_goes_down_is_tried_again(horae: World) -> None:
    horae.submit({"name": "slow", "handler": slow})
    run = horae.run_now("slow")
    horae.outage(hours=1)
    horae.pass_time(minutes=2)
    assert (horae.run(run).state, horae.run(run).attempt) == ("succeeded", 2)


def test_what_a_handler_raises_ends_its_run(horae: World) -> None:
    @handler
    async def fussy(context: Context) -> None:
        raise {"cancel": Cancel("nothing to do"), "retry": Retry(60, "later")}[context.data["how"]]

    horae.submit({"name": "fussy", "handler": fussy, "retry": {"attempts": 2}})
    assert horae.run_now("fussy", {"how": "cancel"}).state == "cancelled"
    run = horae.run_now("fussy", {"how": "retry"})
    horae.pass_time(seconds=59)
    assert horae.run(run).state == "blocked"
    horae.pass_time(seconds=1)
    assert (horae.run(run).state, horae.run(run).message) == ("failed", "later")


def test_a_plain_handler_runs_beside_the_loop(horae: World) -> None:
    horae.submit({"name": "plain", "handler": plain})
    assert horae.run_now("plain").result == "answered"


def test_a_run_can_be_cancelled_while_it_sleeps(horae: World) -> None:
    horae.submit({"name": "slow", "handler": slow})
    run = horae.run_now("slow")
    assert horae.cancel(run).state == "cancelled"


def test_a_paused_job_does_not_fire_and_a_deleted_one_is_gone(horae: World) -> None:
    horae.submit({"name": "hourly", "handler": note, "schedule": "30 * * * *"})
    horae.pause("hourly")
    horae.pass_time(hours=2)
    assert horae.runs() == []
    horae.resume("hourly")
    horae.pass_time(hours=1)
    assert len(horae.runs("hourly")) == 1
    horae.delete("hourly")
    horae.pass_time(hours=1)
    assert horae.jobs() == []
    with pytest.raises(NotFound, match="no job has the key or the name 'hourly'"):
        horae.runs("hourly")


def test_shell_steps_are_recorded_and_not_run(horae: World) -> None:
    horae.submit("name: backup\nschedule: 0 3 * * *\nlabels: [big-disk]\nsteps:\n  - run: exit 7\n  - run: sync\n")
    horae.pass_time(days=2)
    assert [recorded.commands for recorded in horae.recorded] == [["exit 7", "sync"]] * 2
    assert [run.state for run in horae.runs("backup")] == ["succeeded", "succeeded"]
    assert horae.log(horae.runs("backup")[0]) == "$ exit 7\n$ sync\n"


def test_who_records_says_how_long_work_takes_and_how_it_ends() -> None:
    async def perform(recorded: Recorded) -> int:
        await asyncio.sleep(600)
        return 3 if recorded.attempt == 1 else 0

    with world(perform=perform) as horae:
        horae.submit({"name": "import", "steps": [{"run": "make"}], "retry": {"attempts": 2, "jitter": 0}})
        run = horae.run_now("import")
        horae.pass_time(minutes=10)
        assert horae.run(run).state == "blocked"
        horae.pass_time(minutes=11)
        assert (horae.run(run).state, horae.run(run).attempt) == ("succeeded", 2)


def test_a_handler_that_does_not_exist_fails_its_run(horae: World) -> None:
    horae.submit({"name": "lost", "handler": "no_such_module:run"})
    run = horae.run_now("lost")
    assert run.state == "failed"
    assert "no_such_module" in run.message


def test_a_wrong_document_is_refused_with_its_path(horae: World) -> None:
    with pytest.raises(Invalid) as caught:
        horae.submit({"name": "report", "handler": note, "schedule": "61 * * * *"})
    assert "schedule" in str(caught.value.listed()[0].path)
    with pytest.raises(Invalid, match="is not a handler"):
        horae.submit({"name": "report", "handler": _answer})
    assert horae.jobs() == []


@pytest.mark.parametrize("span", [{"days": 0}, {"seconds": -1}, {"fortnights": 1}])
def test_time_that_cannot_pass_is_refused(horae: World, span: dict[str, float]) -> None:
    with pytest.raises(Invalid):
        horae.pass_time(**span)


async def test_a_world_in_a_coroutine_is_awaited() -> None:
    async with world() as horae:
        await horae.submit({"name": "report", "handler": note, "schedule": "0 2 * * *"})
        await horae.pass_time(days=3)
        runs = await horae.runs("report")
        assert [run.state for run in runs] == ["succeeded"] * 3
        assert (await horae.run_now("report")).state == "succeeded"


async def test_a_world_for_plain_tests_says_so_where_a_loop_runs() -> None:
    with pytest.raises(Error, match="async with world"):
        world().open()


# ── packages of handlers ──

JOB = "from horae import handler\n{head}@handler\n{kind} report(context):\n    {body}\n"
EARLY = {"head": "import sundial\n", "body": "return sundial.HOUR"}
LATE = {"head": "", "body": "import sundial"}
IN_LIST = ("requirements.txt", "sundial==1.0\n", "-m pip install -r {job}/requirements.txt")
IN_PROJECT = ("pyproject.toml", '[project]\ndependencies = ["sundial>=1"]\n', "-m pip install 'sundial>=1'")


@pytest.fixture
def job(tmp_path: Path) -> Path:
    folder = tmp_path / "jobs" / "report"
    folder.mkdir(parents=True)
    return folder


def message_of(job: Path) -> str:
    with world(jobs_directory=job.parent) as made:
        made.submit({"name": "report", "handler": "jobs/report"})
        return made.run_now("report").message


@pytest.mark.parametrize("kind", ["def", "async def"])
@pytest.mark.parametrize("when", [EARLY, LATE], ids=["early", "late"])
@pytest.mark.parametrize(("file", "text", "command"), [IN_LIST, IN_PROJECT])
def test_a_package_of_the_handler_that_the_test_lacks_is_named_with_its_file_and_the_command(
    job: Path, monkeypatch: pytest.MonkeyPatch, file: str, text: str, command: str, when: dict[str, str], kind: str
) -> None:
    monkeypatch.setattr(packages, "find_spec", lambda _: True)
    (job / "job.py").write_text(JOB.format(kind=kind, **when))
    (job / file).write_text(text)
    said = message_of(job)
    assert "No module named 'sundial'" in said
    assert f"jobs/report/{file} names `sundial`; tests use their own Python: `{sys.executable} " in said
    assert command.format(job=job) in said


def test_where_there_is_no_pip_the_command_is_of_uv(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "find_spec", lambda _: None)
    monkeypatch.chdir(job.parent.parent)
    (job / "job.py").write_text(JOB.format(kind="def", **EARLY))
    (job / "requirements.txt").write_text("sundial==1.0\n")
    expected = f"`uv pip install --python {sys.executable} -r jobs/report/requirements.txt`"
    assert expected in message_of(job)


def test_a_package_that_no_file_names_belongs_into_one(job: Path) -> None:
    (job / "job.py").write_text(JOB.format(kind="def", **EARLY))
    assert message_of(job).endswith("(add `sundial` to jobs/report/requirements.txt)")
    (job / "requirements.txt").write_text("hourglass\nsundial-tools\n")
    assert message_of(job).endswith("; if that does not bring it, add `sundial` to jobs/report/requirements.txt)")


@handler(retry_on=(TimeoutError,))
def stubborn(context: Context) -> None:
    raise TimeoutError if context.attempt == 1 else ValueError


@handler(never_retry=(ValueError,))
async def choosy(context: Context) -> None:
    raise ValueError


@pytest.mark.parametrize(("tried", "attempts"), [(stubborn, 2), (choosy, 1)])
def test_the_exceptions_that_a_handler_names_decide_about_another_attempt(
    horae: World, tried: Any, attempts: int
) -> None:
    horae.submit({"name": "tried", "handler": tried, "retry": {"attempts": 4, "backoff": 1}})
    horae.run_now("tried")
    horae.pass_time(minutes=5)
    assert [(run.state, run.attempt) for run in horae.runs("tried")] == [("failed", attempts)]
