"""What handlers say and are given while they run: progress, log, typed data and results, retries by exception class.

In real workers, with a real keeper and a real output store.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from horae.core.model import State
from horae.executors.handlers.describer import Describer
from horae.executors.processes.process import KeeperProcess
from horae.ports.work import Work
from tests.contract.test_executors import Heard
from tests.contract.test_python_executor import DEADLINE, Make, RealClock, Rig, make, unchanged_path

__all__ = ["make", "unchanged_path"]  # fixtures

EXAMPLES = Path(__file__).parents[2] / "examples"
HANDLERS = """
import asyncio, dataclasses, datetime, decimal, logging, pathlib, sys, threading, time, uuid, warnings
import msgspec
import structlog
from horae import Context, handler

log = logging.getLogger("mine")
slog = structlog.get_logger()

@dataclasses.dataclass
class Row:
    name: str
    price: int = 0

@dataclasses.dataclass
class Report:
    rows: list[Row]
    when: datetime.datetime = datetime.datetime(2026, 1, 1)

@handler
async def row_async(context, price) -> Row: return {"name": "pen", "price": price}

@handler
def row_plain(context, price) -> Row: return {"name": "pen", "price": price}

@handler(inline=True)
async def row_inline(context, price) -> Row: return {"name": "pen", "price": price}

async def go_on(context):
    while not context.env.get("go", "") or not pathlib.Path(context.env["go"]).exists():
        await asyncio.sleep(0.01)

@handler
async def far(context):
    for n in range(10_000):
        context.progress(n, 10_000, "counting")
    await asyncio.to_thread(context.progress, 10_000, 10_000, "counted")
    await go_on(context)

@handler
def far_plain(context):
    for n in range(10_001):
        context.progress(n, 10_000, "counted")
    while not pathlib.Path(context.env["go"]).exists():
        time.sleep(0.01)

@handler(inline=True)
async def far_inline(context):
    for n in range(10_001):
        context.progress(n, 10_000, "counted")
    await go_on(context)

def say(context):
    log.debug("debug %d", context.run_id)
    log.info("info %d", context.run_id)
    slog.warning("event", run=context.run_id, share="5%")
    warnings.warn(f"careful {context.run_id}")
    try:
        raise KeyError("lost")
    except KeyError:
        log.exception("caught %d", context.run_id)

@handler
async def says(context):
    say(context)
    await asyncio.sleep(0)
    await asyncio.to_thread(log.info, "thread %d", context.run_id)

@handler
def says_plain(context):
    say(context)
    thread = threading.Thread(target=log.info, args=("thread %d", context.run_id))
    thread.start()
    thread.join()

@handler
async def report(context: Context, data: Report) -> Report:
    return Report([Row(row.name.upper(), row.price + 1) for row in data.rows], data.when)

@handler
def add(a: int, b: int = 2) -> int:
    return a + b

@handler(inline=True)
async def add_inline(a: int, b: int = 2) -> int:
    return a + b

class Shape(msgspec.Struct):
    where: pathlib.Path

@handler
async def returns(context):
    return {
        "all": [Shape(pathlib.Path("/x")), {decimal.Decimal("1.5")}, datetime.date(2026, 1, 31), uuid.UUID(int=1)],
        "bad": {"rows": [{"ok": 1}, Report([Row(lambda: 1)])]},
    }[context.data["what"]]

class Ours(TimeoutError):
    pass

@handler
async def breaks(context):
    raise {"ours": Ours, "value": ValueError}[context.data["what"]]("no")

@handler(retry_on=(TimeoutError,))
def breaks_on(context):
    raise {"ours": Ours, "value": ValueError}[context.data["what"]]("no")

@handler(inline=True, never_retry=(ValueError,))
async def breaks_never(context):
    raise {"ours": Ours, "value": ValueError}[context.data["what"]]("no")
"""


@pytest.fixture
def rig(make: Make, tmp_path: Path) -> Rig:
    (tmp_path / "modules" / "telling.py").write_text(HANDLERS)
    return make()


async def until(condition: Any) -> None:
    async with asyncio.timeout(DEADLINE):
        while not condition():
            await asyncio.sleep(0.01)


# ── progress ──


@pytest.mark.parametrize("handler", ["far", "far_plain", "far_inline"])
async def test_progress_is_told_while_it_runs_and_the_last_word_arrives(rig: Rig, tmp_path: Path, handler: str) -> None:
    told: list[Any] = []
    work = rig.work({"handler": f"telling:{handler}", "env": {"go": str(tmp_path / "go")}})
    work.listener = Heard(note_progress=told.append)
    [run_id] = rig.start(work)
    last = {"step": "counted", "items": {"done": 10_000, "total": 10_000}}
    await until(lambda: last in told)
    assert run_id not in rig.results
    assert handler == "far_inline" or len(told) < 100  # many calls are few messages
    (tmp_path / "go").touch()
    assert (await rig.result(run_id)).state is State.SUCCEEDED
    assert await rig.log(run_id) == ""


# ── log ──

STAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z ")


def lines_of(text: str) -> list[str]:
    """Return the logged lines, without their times."""
    return [STAMP.sub("", line) for line in text.splitlines() if STAMP.match(line)]


def expected(run_id: int, place: str) -> list[str]:
    return [
        f"INFO mine: info {run_id}",
        f"WARNING telling: event run={run_id} share='5%'",
        f"WARNING py.warnings: {place}: UserWarning: careful {run_id}",
        f"ERROR mine: caught {run_id}",
        f"INFO mine: thread {run_id}",
    ]


@pytest.mark.parametrize("handler", ["says", "says_plain"])
async def test_what_is_logged_arrives_with_time_and_level_in_the_run_it_comes_from(rig: Rig, handler: str) -> None:
    ids = rig.start(*(rig.work(f"telling:{handler}") for _ in range(10)))
    for run_id in ids:
        assert (await rig.result(run_id)).state is State.SUCCEEDED
        text = await rig.log(run_id)
        place = re.search(r"py.warnings: (.*telling\.py:\d+)", text)
        assert place is not None
        assert lines_of(text) == expected(run_id, place[1])
        assert "KeyError: 'lost'" in text
        assert "executors/handlers" not in text


async def test_a_job_chooses_its_own_level_and_its_neighbours_keep_theirs(rig: Rig) -> None:
    levels = {"DEBUG": "DEBUG mine: debug", "": "INFO mine: info", "error": "ERROR mine: caught", "loud": "INFO mine"}
    works = {
        level: rig.work({"handler": "telling:says", "env": {"HORAE_LOG_LEVEL": level} if level else {}})
        for level in levels
    }
    rig.start(*works.values())
    for level, work in works.items():
        await rig.result(work.assignment.run_id)
        text = await rig.log(work.assignment.run_id)
        assert lines_of(text)[0].startswith(levels[level])
        assert ("one of DEBUG, INFO" in text) == (level == "loud")


# ── data and results ──


@pytest.mark.parametrize("handler", ["telling:add", "telling:add_inline"])
async def test_parameters_are_given_the_fields_of_the_data(rig: Rig, handler: str) -> None:
    done = await rig.run(handler, {"a": 1})
    assert (done.state, done.result) == (State.SUCCEEDED, "3"), done.message


async def test_data_becomes_what_the_handler_asks_for_and_its_result_json(rig: Rig) -> None:
    done = await rig.run("telling:report", {"rows": [{"name": "a"}], "when": "2026-01-31T08:00:00Z"})
    assert json.loads(done.result or "null") == {"rows": [{"name": "A", "price": 1}], "when": "2026-01-31T08:00:00Z"}


@pytest.mark.parametrize("handler", ["telling:report", "telling:add", "telling:add_inline"])
async def test_data_that_does_not_fit_ends_the_run_for_good(rig: Rig, handler: str) -> None:
    field = "rows" if handler == "telling:report" else "a"
    failed = await rig.run(handler, {field: "x"})
    kind = "list" if field == "rows" else "int"
    message = f'data.{field}: expected {kind}, got "x"'
    assert (failed.state, failed.final, failed.message) == (State.FAILED, True, f"E_DATA: {message}")
    assert await rig.log(failed.run_id) == f"{message}\n"


async def test_results_of_types_become_json(rig: Rig) -> None:
    done = await rig.run("telling:returns", {"what": "all"})
    assert json.loads(done.result or "null") == [
        {"where": "/x"}, ["1.5"], "2026-01-31", "00000000-0000-0000-0000-000000000001"
    ]  # fmt: skip


async def test_a_result_that_is_not_json_is_named_with_its_path(rig: Rig) -> None:
    failed = await rig.run("telling:returns", {"what": "bad"})
    assert failed.state is State.FAILED
    assert failed.message == (
        "the return value is not JSON: result.rows[1].rows[0].name: builtins.function has no form in JSON"
    )


@pytest.mark.parametrize("handler", ["telling:row_async", "telling:row_plain", "telling:row_inline"])
async def test_a_result_that_is_not_what_the_handler_says_fails_the_run(rig: Rig, handler: str) -> None:
    done = await rig.run(handler, {"price": 3})
    assert (done.state, done.result) == (State.SUCCEEDED, '{"name":"pen","price":3}')
    failed = await rig.run(handler, {"price": "x"})
    message = 'result.price: expected int, got "x"'
    assert (failed.state, failed.final, failed.result) == (State.FAILED, False, None)
    assert failed.message == f"E_RESULT: {message}"
    assert await rig.log(failed.run_id) == f"{message}\n"


async def test_the_example_of_typed_data_runs(make: Make) -> None:
    rig = make(jobs_directory=EXAMPLES / "jobs")
    spec = yaml.safe_load((EXAMPLES / "typed-handler.yaml").read_text())
    done = await rig.run({"handler": spec["handler"]}, spec["data"])
    assert done.state is State.SUCCEEDED, done.message
    result = json.loads(done.result or "null")
    assert (result["price"], sorted(result["names"]), result["day"]) == (810, ["paper", "pen"], "2026-01-31")
    assert lines_of(await rig.log(done.run_id))[0] == "INFO price_report.job: 3 times pen"


# ── retries ──


def with_policy(work: Work, retry: dict[str, Any]) -> Work:
    return replace(work, assignment=work.assignment._replace(policy=json.dumps({"retry": retry})))


BREAKING: list[tuple[str, str, dict[str, Any], bool, str]] = [
    ("breaks", "ours", {}, False, ""),
    ("breaks", "ours", {"on": ["OSError"]}, False, " (retry.on has OSError)"),
    ("breaks", "ours", {"on": ["telling.Ours"]}, False, " (retry.on has telling.Ours)"),
    ("breaks", "value", {"on": ["OSError"]}, True, " (not tried again: retry.on has only OSError)"),
    ("breaks", "value", {"never": ["ValueError"]}, True, " (not tried again: retry.never has ValueError)"),
    ("breaks_on", "ours", {}, False, " (retry_on of the handler has TimeoutError)"),
    ("breaks_on", "value", {}, True, " (not tried again: retry_on of the handler has only TimeoutError)"),
    ("breaks_on", "value", {"on": ["ValueError"]}, False, " (retry.on has ValueError)"),
    ("breaks_never", "value", {}, True, " (not tried again: never_retry of the handler has ValueError)"),
    ("breaks_never", "ours", {}, False, ""),
]


async def test_the_class_of_an_exception_decides_about_another_attempt(rig: Rig) -> None:
    for handler, what, retry, final, why in BREAKING:
        [run_id] = rig.start(with_policy(rig.work(f"telling:{handler}", {"what": what}), retry))
        failed = await rig.result(run_id)
        name = {"ours": "Ours", "value": "ValueError"}[what]
        told = (failed.state, failed.final, failed.message)
        assert told == (State.FAILED, final, f"{name}: no{why}"), (handler, what, retry)


# ── what handlers take, before there is a run ──


@pytest.fixture
async def describer(tmp_path: Path) -> AsyncIterator[Describer]:
    keeper = KeeperProcess(tmp_path / "keeper")
    await keeper.open()
    made = Describer(keeper, RealClock(), tmp_path / "jobs")
    yield made
    await made.close()
    await keeper.close()


def write_job(tmp_path: Path, name: str, parameters: str) -> Path:
    file = tmp_path / "jobs" / name / "job.py"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"from horae import handler\n@handler\nasync def it({parameters}): pass\n")
    return file


async def test_handlers_are_described_without_loading_them_here(describer: Describer, tmp_path: Path) -> None:
    write_job(tmp_path, "typed", "a: int")
    write_job(tmp_path, "plain", "context")
    found = await describer.load(["jobs/typed", "jobs/plain", "jobs/missing", "horae.handlers:noop"])
    assert list(found) == ["jobs/typed"]
    assert found["jobs/typed"]["properties"] == {"a": {"type": "integer"}}


async def test_what_handlers_return_is_described(describer: Describer, tmp_path: Path) -> None:
    head = "from typing import TypedDict\nfrom horae import handler\nclass Total(TypedDict):\n    price: int\n"
    write_job(tmp_path, "typed", "a: int").write_text(f"{head}@handler\ndef it(a: int) -> Total: return {{}}\n")
    write_job(tmp_path, "plain", "context")
    found = await describer.load_result("jobs/typed")
    assert found is not None
    assert found["properties"] == {"price": {"type": "integer"}}
    assert [await describer.load_result(name) for name in ("jobs/plain", "jobs/missing", "horae.handlers:echo")] == [
        None, None, None,
    ]  # fmt: skip


async def test_an_edited_handler_is_described_anew(describer: Describer, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("horae.executors.handlers.describer.FRESH_SECONDS", 0.0)
    file = write_job(tmp_path, "typed", "a: int")
    await describer.load(["jobs/typed"])
    write_job(tmp_path, "typed", "b: str")
    os.utime(file, ns=(1, 1))
    assert list((await describer.load(["jobs/typed"]))["jobs/typed"]["properties"]) == ["b"]


async def test_a_module_that_never_finishes_loading_costs_an_answer_and_no_more(
    describer: Describer, tmp_path: Path, monkeypatch: Any
) -> None:
    write_job(tmp_path, "typed", "a: int")
    write_job(tmp_path, "stuck", "a: int").write_text("while True: pass\n")
    await describer.load(["jobs/typed"])
    monkeypatch.setattr("horae.executors.handlers.describer.ANSWER_SECONDS", 0.5)
    assert await describer.load(["jobs/stuck"]) == {}
    monkeypatch.setattr("horae.executors.handlers.describer.ANSWER_SECONDS", DEADLINE)
    write_job(tmp_path, "other", "b: int")
    assert list(await describer.load(["jobs/typed", "jobs/other", "jobs/stuck"])) == ["jobs/typed", "jobs/other"]
