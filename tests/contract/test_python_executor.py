"""The python executor with a real keeper, real workers and a real output store."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from itertools import count, product
from pathlib import Path
from typing import Any

import pytest

from horae.core.model import Moment, Reason, State
from horae.core.runs.orders import Assignment, Result
from horae.core.runs.traces import span_id
from horae.executors.handlers import processes
from horae.executors.handlers.python import PORTION, PythonExecutor
from horae.executors.processes.keeper import list_children, look_at
from horae.executors.processes.process import KeeperProcess
from horae.files import ObjectFiles, open_files
from horae.ports.work import Command, Work

DEADLINE = 180.0
HANDLERS = """
import asyncio, logging, os, signal, sys, threading, time
from horae.handlers import Cancel, Context, Retry, handler

print("imported")

@handler
async def where(context):
    return os.getpid()

@handler
def where_plain(context):
    return os.getpid()

@handler(inline=True)
async def where_inline(context):
    return os.getpid()

@handler
async def facts(context):
    return [context.run_id, context.attempt, context.fence, context.job_id, context.job_name,
            context.due_at, context.data, context.env, dict(os.environ)]

@handler
def speaks(context):
    print("print")
    sys.stderr.write("stderr\\n")
    os.write(1, b"descriptor\\n")
    os.system("echo child")
    context.log("log")
    sys.stdout.write("unfinished line")

@handler
async def previously(context):
    return context.previous_result

@handler
def previously_plain(context):
    return context.previous_result

@handler(inline=True)
async def previously_inline(context):
    return context.previous_result

@handler
def says(context):
    print(context.run_id)

@handler
async def chatters(context):
    for number in range(20):
        print(context.run_id, number)
        await asyncio.sleep(0)
    sys.stdout.buffer.write(b"%d bytes\\n" % context.run_id)
    await asyncio.to_thread(print, context.run_id, "thread")
    logging.warning("%d logged", context.run_id)
    context.log(f"{context.run_id} end")

@handler
async def breaks(context):
    raise ValueError("no\\nsuch thing")

@handler
def breaks_plain(context):
    raise ValueError("no\\nsuch thing")

@handler(inline=True)
async def breaks_inline(context):
    raise ValueError("no\\nsuch thing")

class Mute(Exception):
    def __str__(self):
        raise RuntimeError("mute")

@handler
async def breaks_mutely(context):
    raise Mute

@handler
async def exits(context):
    sys.exit(3)

@handler
def exits_plain(context):
    sys.exit(3)

@handler
async def later(context):
    raise Retry(after=12, message="not yet")

@handler
def later_plain(context):
    raise Retry(after=12, message="not yet")

@handler
async def enough(context):
    raise Cancel("nothing to do")

@handler
async def returns(context):
    return {"object": object(), "large": "x" * 2**20, "surrogate": "\\udcff"}[context.data["what"]]

@handler
async def sleeps(context):
    print("begun")
    try:
        await asyncio.sleep(3600)
    finally:
        print("tidied up", context.cancelled)

@handler(inline=True)
async def sleeps_inline(context):
    context.log("begun")
    try:
        await asyncio.sleep(3600)
    finally:
        context.log(f"tidied up {context.cancelled}")

@handler(inline=True)
async def cancelling_inline(context):
    return asyncio.current_task().cancelling()

@handler
async def will_not(context):
    print("begun")
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            print("never")

@handler
def polite(context):
    print("begun")
    while not context.cancelled:
        time.sleep(0.01)
    print("saw it")

@handler
def stubborn(context):
    os.system("sleep 3600 &")
    print("begun")
    time.sleep(3600)

@handler
async def blocks(context):
    print("begun")
    await asyncio.sleep(0.1)
    time.sleep(3600)

@handler
async def dies(context):
    os._exit(7)

@handler
def crashes(context):
    print("last words")
    signal.signal(signal.SIGSEGV, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGSEGV)

@handler
async def floods(context):
    for number in range(200):
        print("x" * 9_999)

@handler
async def noop(context):
    pass

@handler
class Told:
    def __init__(self, context: Context, logger: logging.Logger):
        self.context, self.logger = context, logger

    async def execute(self, job_data, cancellation):
        self.logger.info("told")
        return [job_data, cancellation.is_cancelled, self.context.trace_id, self.context.traceparent]

@handler
class Plain:
    def execute(self, job_data, cancellation):
        return job_data

@handler
class PoliteClass:
    def execute(self, job_data, cancellation):
        print("begun")
        while True:
            time.sleep(0.01)
            cancellation.raise_if_cancelled()

@handler
class Waits:
    async def execute(self, job_data, cancellation):
        print("begun")
        await cancellation.wait()

@handler
class Needy:
    def __init__(self, pool: threading.Thread):
        pass

    def execute(self, job_data, cancellation):
        pass

@handler
class BreaksClass:
    def execute(self, job_data, cancellation):
        raise RuntimeError("no such codebook")
"""


class RealClock:
    def now(self) -> Moment:
        return time.time_ns() // 1000

    def elapsed(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class Counting:
    """A keeper that remembers what it was asked to start."""

    def __init__(self, real: KeeperProcess) -> None:
        self._real = real
        self.commands: list[Command] = []

    async def spawn(self, command: Command) -> Any:
        self.commands.append(command)
        return await self._real.spawn(command)


class Rig:
    """Starts works and collects what becomes of them."""

    def __init__(self, executor: PythonExecutor, files: ObjectFiles, keeper: Counting) -> None:
        self.executor = executor
        self.files = files
        self.keeper = keeper
        self.results: dict[int, list[Result]] = {}
        self._changed = asyncio.Event()
        self._ids = count(1)

    def work(self, spec: str | dict[str, Any], data: Any = None, timeout: float | None = None) -> Work:
        """Of a whole spec, of a handler, or of one in HANDLERS."""
        run_id = next(self._ids)
        document = (
            spec if isinstance(spec, dict) else {"handler": spec if ":" in spec or "/" in spec else f"subjects:{spec}"}
        )
        text = None if data is None else json.dumps(data)
        given = Assignment(run_id, 3, 2, 5, None, 1234, "python", "job", json.dumps(document), "{}", text)
        output = self.files.open(run_id, 2, 3, 10_000_000)
        return Work(given, document, output, timeout, RealClock().now())

    def start(self, *works: Work) -> list[int]:
        self.executor.start(works, self._done)
        return [each.assignment.run_id for each in works]

    def begin(self, spec: str | dict[str, Any], data: Any = None, timeout: float | None = None) -> int:
        return self.start(self.work(spec, data, timeout))[0]

    async def run(self, spec: str | dict[str, Any], data: Any = None) -> Result:
        return await self.result(self.begin(spec, data))

    async def result(self, run_id: int) -> Result:
        await self.wait(lambda: run_id in self.results)
        return self.results[run_id][0]

    async def wait(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(DEADLINE):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    async def log(self, run_id: int) -> str:
        return (await self.files.read(self.files.ref(run_id, 2, 3), 0, 100_000_000)).decode()

    async def until_begun(self, *run_ids: int) -> None:
        async with asyncio.timeout(DEADLINE):
            for run_id in run_ids:
                while "begun" not in await self.log(run_id):
                    await self.files.changed(self.files.ref(run_id, 2, 3))

    def _done(self, result: Result) -> None:
        self.results.setdefault(result.run_id, []).append(result)
        self._changed.set()


Make = Callable[..., Rig]


@pytest.fixture
async def make(tmp_path: Path) -> AsyncIterator[Make]:
    """Makes rigs; at the end every work must have been done exactly once."""
    modules = tmp_path / "modules"
    modules.mkdir()
    (modules / "subjects.py").write_text(HANDLERS)
    keeper = KeeperProcess(tmp_path / "keeper")
    await keeper.open()
    rigs: list[Rig] = []
    async with AsyncExitStack() as stack:
        stack.push_async_callback(keeper.close)

        def build(keeper: KeeperProcess = keeper, **options: Any) -> Rig:
            counting = Counting(keeper)
            settings: dict[str, Any] = {"processes": 1, "search_path": [str(modules)], **options}
            executor = PythonExecutor(counting, RealClock(), **settings)  # type: ignore[arg-type]
            stack.push_async_callback(executor.close)
            rigs.append(Rig(executor, open_files(tmp_path / f"output{len(rigs)}"), counting))
            return rigs[-1]

        yield build
    assert all(len(results) == 1 for rig in rigs for results in rig.results.values())


@pytest.fixture
def rig(make: Make) -> Rig:
    return make()


@pytest.fixture(autouse=True)
def unchanged_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loading an inline handler extends the path of this process: undo it, and forget the module."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "subjects", raising=False)


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


# ── three ways ──


async def test_a_built_in_runs_inside_the_agent_without_a_worker(rig: Rig) -> None:
    result = await rig.run("horae.handlers:echo", {"who": "me"})
    assert result.state is State.SUCCEEDED
    assert json.loads(result.result or "") == {"who": "me"}
    assert result.output == rig.files.ref(result.run_id, 2, 3)
    assert await rig.log(result.run_id) == '{"who": "me"}\n'
    assert not rig.keeper.commands


async def test_async_handlers_share_one_warm_process(rig: Rig) -> None:
    pids = {(await rig.run("where")).result for _ in range(3)}
    ids = rig.start(*(rig.work("where") for _ in range(50)))
    pids |= {(await rig.result(run_id)).result for run_id in ids}
    assert len(pids) == 1
    assert pids != {str(os.getpid())}
    assert len(rig.keeper.commands) == 1


async def test_plain_handlers_have_a_process_each_up_to_the_bound(make: Make) -> None:
    rig = make(processes=2)
    first, second = rig.begin("polite"), rig.begin("polite")
    await rig.until_begun(first, second)
    third = rig.begin("where_plain")
    rig.executor.stop(first, Reason.REQUESTED)
    assert (await rig.result(third)).state is State.SUCCEEDED
    assert second not in rig.results
    assert len(rig.keeper.commands) == 3  # the shared one that said what sort they are, and two


async def test_a_plain_handler_leaves_its_process_warm(rig: Rig) -> None:
    pids = {(await rig.run("where_plain")).result for _ in range(3)}
    assert len(pids) == 1
    assert pids != {(await rig.run("where")).result}


async def test_a_handler_that_says_inline_runs_inside_the_agent(rig: Rig) -> None:
    results = [await rig.run("where_inline") for _ in range(2)]
    assert [each.result for each in results] == [str(os.getpid())] * 2
    assert len(rig.keeper.commands) == 1


async def test_others_have_their_turn_while_many_inline_runs_are_carried(rig: Rig) -> None:
    """The next claim goes out meanwhile, and the results of the last one."""
    runs = 5 * PORTION
    rig.start(*(rig.work("horae.handlers:noop") for _ in range(runs)))

    seen = set()
    while len(rig.results) < runs:
        await asyncio.sleep(0)
        seen.add(len(rig.results))

    assert len(seen - {0, runs}) >= 3


async def test_more_shared_workers_start_under_load(make: Make) -> None:
    rig = make(processes=2)
    ids = rig.start(*(rig.work("sleeps") for _ in range(150)))
    await rig.until_begun(*ids)
    assert len(rig.keeper.commands) == 2


async def test_handlers_come_from_the_jobs_directory(make: Make, tmp_path: Path) -> None:
    folder = tmp_path / "jobs" / "nightly"
    folder.mkdir(parents=True)
    (folder / "words.py").write_text("WORD = 'hello'")
    (folder / "job.py").write_text(
        "from horae.handlers import handler\nfrom .words import WORD\n"
        "@handler(name='greeting')\nasync def run(context):\n    return WORD\n"
    )
    rig = make(jobs_directory=tmp_path / "jobs")
    assert (await rig.run("jobs/nightly")).result == '"hello"'
    assert (await rig.run({"handler": "greeting"})).result == '"hello"'


# ── what a handler gets ──


async def test_a_handler_gets_the_facts_of_its_run_and_a_clean_environment(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_OF_THE_AGENT", "1")
    rig = make()
    result = await rig.run({"handler": "subjects:facts", "env": {"LEVEL": "5"}}, {"n": [1, "ü"]})
    *facts, environment = json.loads(result.result or "")
    assert facts == [result.run_id, 2, 3, 5, "job", 1234, {"n": [1, "ü"]}, {"LEVEL": "5"}]
    assert environment["TZ"] == "UTC"
    assert set(environment) <= {"PATH", "HOME", "LANG", "TZ", "PYTHONPATH", "LC_CTYPE"}


async def test_the_data_of_the_job_stands_where_the_run_has_none(rig: Rig) -> None:
    document = {"handler": "horae.handlers:echo", "data": {"from": "job"}}
    own, given = rig.start(rig.work(document), rig.work(document, {"from": "run"}))
    assert (await rig.result(own)).result == '{"from":"job"}'
    assert (await rig.result(given)).result == '{"from":"run"}'


async def test_a_handler_gets_what_the_last_success_returned(rig: Rig) -> None:
    for handler in ("previously", "previously_plain", "previously_inline"):
        first, later = rig.work(handler), rig.work(handler)
        later.previous = '{"rows":7}'
        ids = rig.start(first, later)
        assert [(await rig.result(run_id)).result for run_id in ids] == [None, '{"rows":7}'], handler


async def test_moments_lie_in_order(rig: Rig) -> None:
    before = RealClock().now()
    for handler in ("where", "where_plain", "horae.handlers:noop"):
        result = await rig.run(handler)
        assert result.started_at is not None
        assert result.finished_at is not None
        assert before <= result.started_at <= result.finished_at <= RealClock().now()


# ── output ──


async def test_a_run_that_writes_nothing_has_no_output(rig: Rig) -> None:
    await rig.run("where")  # the first run of a module gets what its import prints
    assert (await rig.run("where")).output is None


async def test_everything_a_plain_handler_writes_is_its_output_in_order(rig: Rig) -> None:
    await rig.run("where_plain")
    result = await rig.run("speaks")
    assert await rig.log(result.run_id) == "print\nstderr\ndescriptor\nchild\nlog\nunfinished line"
    assert (await rig.run("where_plain")).output is None


async def test_output_of_plain_handlers_in_a_row_does_not_mix(rig: Rig) -> None:
    await rig.run("where_plain")
    ids = rig.start(*(rig.work("says") for _ in range(300)))
    for run_id in ids:
        await rig.result(run_id)
        assert await rig.log(run_id) == f"{run_id}\n"


async def test_the_end_of_a_plain_handler_takes_along_what_lies_in_the_pipe(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asyncio.get_running_loop(), "add_reader", lambda *_: None)  # nobody looks meanwhile
    result = await rig.run("says")
    assert (await rig.log(result.run_id)).endswith(f"{result.run_id}\n")


async def test_output_of_concurrent_runs_does_not_mix(rig: Rig) -> None:
    await rig.run("where")
    ids = rig.start(*(rig.work("chatters") for _ in range(40)))
    for run_id in ids:
        result = await rig.result(run_id)
        assert result.state is State.SUCCEEDED, result
        expected = [f"{run_id} {number}" for number in range(20)]
        expected += [f"{run_id} bytes", f"{run_id} thread", f"WARNING root: {run_id} logged", f"{run_id} end"]
        told = (await rig.log(run_id)).splitlines()
        assert [line.partition("Z ")[2] or line for line in told] == expected


async def test_a_flood_of_output_arrives_whole(rig: Rig) -> None:
    await rig.run("where")
    result = await rig.run("floods")
    assert await rig.log(result.run_id) == ("x" * 9_999 + "\n") * 200


async def test_output_can_be_read_while_the_handler_runs(rig: Rig) -> None:
    run_id = rig.begin("stubborn")
    await rig.until_begun(run_id)
    assert run_id not in rig.results


# ── how runs end ──


async def test_an_exception_is_one_line_and_its_traceback_is_output(rig: Rig) -> None:
    for handler in ("breaks", "breaks_plain", "breaks_inline"):
        result = await rig.run(handler)
        assert (result.state, result.reason) == (State.FAILED, Reason.ERROR), handler
        assert result.message == "ValueError: no such thing", handler
        text = await rig.log(result.run_id)
        assert "Traceback (most recent call last):" in text, handler
        assert 'raise ValueError("no' in text, handler
        assert "horae/executors" not in text, handler


async def test_an_exception_that_cannot_be_printed_still_ends_the_run(rig: Rig) -> None:
    assert (await rig.run("breaks_mutely")).message == "Mute: (a message that cannot be printed)"


@pytest.mark.parametrize("handler", ["exits", "exits_plain"])
async def test_sys_exit_ends_the_run_and_not_the_worker(rig: Rig, handler: str) -> None:
    result = await rig.run(handler)
    assert (result.state, result.message) == (State.FAILED, "SystemExit: 3")
    started = len(rig.keeper.commands)
    await rig.run(handler)
    assert len(rig.keeper.commands) == started


@pytest.mark.parametrize("handler", ["later", "later_plain"])
async def test_a_handler_can_ask_to_be_tried_again(rig: Rig, handler: str) -> None:
    result = await rig.run(handler)
    assert (result.state, result.retry_after, result.message) == (State.FAILED, 12.0, "not yet")
    assert not result.final


async def test_a_handler_can_cancel_its_run(rig: Rig) -> None:
    result = await rig.run("enough")
    assert (result.state, result.message, result.final) == (State.CANCELLED, "by its handler: nothing to do", True)


UNKEPT = {
    "object": "the return value is not JSON: result: builtins.object has no form in JSON",
    "surrogate": "the return value is not JSON: result: 'utf-8' codec can't encode",
    "large": "the return value is 1,048,578 bytes of JSON, more than the 1,048,576",
}


async def test_a_result_that_cannot_be_kept_is_a_failure_that_says_so(rig: Rig) -> None:
    for what, message in UNKEPT.items():
        result = await rig.run("returns", {"what": what})
        assert (result.state, result.result) == (State.FAILED, None), what
        assert result.message.startswith(message), what


UNLOADED = {
    "no_such_module:run": "module 'no_such_module' cannot be imported: ModuleNotFoundError",
    "subjects:no_such_function": "module 'subjects' has no 'no_such_function'",
    "os:system": "os:system is not a handler (put @handler above it)",
    "jobs/none": "'jobs/none' needs a jobs directory",
    "::": "a handler is named 'module:function'",
}


async def test_a_handler_that_cannot_be_loaded_is_a_failed_attempt(rig: Rig) -> None:
    for handler, message in UNLOADED.items():
        result = await rig.run(handler)
        assert (result.state, result.reason) == (State.FAILED, Reason.ERROR), handler
        assert result.message.startswith(message), handler
        assert (await rig.run("where")).state is State.SUCCEEDED, handler


async def test_a_mended_module_is_loaded_without_a_restart(rig: Rig, tmp_path: Path) -> None:
    path = tmp_path / "modules" / "mended.py"
    path.write_text("raise RuntimeError('not finished')")
    result = await rig.run("mended:run")
    assert result.message == "module 'mended' cannot be imported: RuntimeError: not finished"
    assert "not finished" in await rig.log(result.run_id)
    path.write_text("from horae.handlers import handler\n@handler\nasync def run(context): return 'works'\n")
    assert (await rig.run("mended:run")).result == '"works"'


async def test_data_that_is_no_mapping_is_a_failed_attempt(rig: Rig) -> None:
    for handler in ("facts", "horae.handlers:echo"):
        assert "Expected `object`" in (await rig.run(handler, [1])).message


# ── death ──


async def test_a_killed_worker_is_a_failed_attempt_for_all_in_it(rig: Rig) -> None:
    bystander = rig.begin("sleeps")
    await rig.until_begun(bystander)
    culprit = rig.begin("dies")
    for run_id in (culprit, bystander):
        result = await rig.result(run_id)
        assert (result.state, result.reason) == (State.FAILED, Reason.ERROR)
        assert result.message == "the worker process died (exit code 7)"
    assert (await rig.run("where")).state is State.SUCCEEDED


async def test_a_crash_of_a_plain_handler_names_the_signal_and_keeps_its_output(rig: Rig) -> None:
    waiting = rig.start(rig.work("crashes"), rig.work("where_plain"))
    result = await rig.result(waiting[0])
    assert (result.state, result.message) == (State.FAILED, "the worker process died (signal 11)")
    assert "last words\n" in await rig.log(waiting[0])
    assert (await rig.result(waiting[1])).state is State.SUCCEEDED


async def test_a_worker_that_cannot_start_fails_its_runs(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/no/such/python")
    result = await make().run("where")
    assert result.state is State.FAILED
    assert result.message.startswith("the worker process failed: ")


async def test_without_a_keeper_runs_are_lost_and_nothing_hangs(make: Make, tmp_path: Path) -> None:
    rig = make(keeper=KeeperProcess(tmp_path / "never opened"))
    for _ in range(2):
        result = await rig.run("where")
        assert (result.state, result.reason) == (State.FAILED, Reason.LOST)
        assert result.message.startswith("the worker process failed: the keeper is not running")


@pytest.mark.parametrize("handler", ["sleeps", "polite"])
@pytest.mark.parametrize("how", ["the lease runs out", "the keeper is killed"])
async def test_what_ends_with_the_agents_keeper_is_lost_and_not_failed(
    make: Make, tmp_path: Path, handler: str, how: str
) -> None:
    keeper = KeeperProcess(tmp_path / "doomed")
    await keeper.open()
    rig = make(keeper=keeper)
    run_id = rig.begin(handler)
    await rig.until_begun(run_id)

    if how == "the lease runs out":
        keeper.renew(0.0)
    else:
        os.kill(keeper.pid, signal.SIGKILL)
    result = await rig.result(run_id)

    assert (result.state, result.reason) == (State.FAILED, Reason.LOST)
    assert not result.final
    await keeper.close()


# ── stopping ──

LATE = "the handler was still running: if it needs more, write in the job, for example, `timeout: 5s`"
ASKED = [
    (Reason.TIMEOUT, State.TIMED_OUT, f"the attempt ran longer than 2.5 s; {LATE}"),
    (Reason.REQUESTED, State.CANCELLED, ""),
    (Reason.REPLACED, State.CANCELLED, ""),
]


@pytest.mark.parametrize(("reason", "state", "message"), ASKED)
@pytest.mark.parametrize("handler", ["sleeps", "sleeps_inline"])
async def test_an_async_handler_is_cancelled_and_may_tidy_up(
    rig: Rig, handler: str, reason: str, state: State, message: str
) -> None:
    bystander, run_id = rig.begin(handler), rig.begin(handler, timeout=2.5)
    await rig.until_begun(bystander, run_id)
    rig.executor.stop(run_id, reason)
    rig.executor.stop(run_id, Reason.REQUESTED)  # the first word counts
    result = await rig.result(run_id)
    assert (result.state, result.reason, result.message) == (state, reason, message)
    told = f"── {LATE} ──\n" if reason == Reason.TIMEOUT else ""
    assert (await rig.log(run_id)).endswith(f"begun\ntidied up True\n{told}")
    assert bystander not in rig.results


async def test_a_stopped_inline_run_leaves_no_trace_in_the_next(rig: Rig) -> None:
    await rig.run("cancelling_inline")
    run_id = rig.begin("sleeps_inline")
    await rig.until_begun(run_id)
    rig.executor.stop(run_id, Reason.REQUESTED)
    assert (await rig.run("cancelling_inline")).result == "0"
    assert (await rig.result(run_id)).state is State.CANCELLED


async def test_a_plain_handler_that_looks_can_end_by_itself(rig: Rig) -> None:
    run_id = rig.begin("polite")
    await rig.until_begun(run_id)
    rig.executor.stop(run_id, Reason.REQUESTED)
    assert (await rig.result(run_id)).state is State.CANCELLED
    assert (await rig.log(run_id)).endswith("saw it\n")
    assert (await rig.run("where_plain")).state is State.SUCCEEDED
    assert len(rig.keeper.commands) == 2


async def test_a_plain_handler_that_does_not_look_is_killed_with_its_children(make: Make) -> None:
    rig = make(grace=0.1)
    pid = int((await rig.run("where_plain")).result or "0")
    run_id = rig.begin("stubborn", timeout=1)
    await rig.until_begun(run_id)
    members = list_children([look_at(pid)[0]])  # the worker, and what it has orphaned
    rig.executor.stop(run_id, Reason.TIMEOUT)
    result = await rig.result(run_id)
    assert (result.state, result.reason) == (State.TIMED_OUT, Reason.TIMEOUT)
    assert pid in members
    assert len(members) == 2
    assert all(map(is_gone, members))
    assert (await rig.run("where_plain")).state is State.SUCCEEDED


@pytest.mark.parametrize("handler", ["blocks", "will_not"])
async def test_a_shared_worker_that_does_not_stop_is_killed_and_the_others_are_told(make: Make, handler: str) -> None:
    rig = make(grace=0.3)
    bystander, run_id = rig.start(rig.work("sleeps"), rig.work(handler))
    await rig.until_begun(bystander, run_id)
    rig.executor.stop(run_id, Reason.TIMEOUT)
    assert (await rig.result(run_id)).state is State.TIMED_OUT
    other = await rig.result(bystander)
    assert (other.state, other.reason) == (State.FAILED, Reason.ERROR)
    assert other.message == f"the worker process was killed because run {run_id}, which shared it, did not stop"
    assert (await rig.run("where")).state is State.SUCCEEDED


async def test_a_run_stopped_before_it_began_ends_without_running(rig: Rig) -> None:
    for handler in ("where", "horae.handlers:echo"):
        run_id = rig.begin(handler)
        rig.executor.stop(run_id, Reason.REQUESTED)
        result = await rig.result(run_id)
        assert (result.state, result.result) == (State.CANCELLED, None)
    await rig.run("where")
    assert len(rig.keeper.commands) == 1  # nobody had to be killed


async def test_a_plain_handler_stopped_while_it_waits_for_a_process_ends_at_once(rig: Rig) -> None:
    await rig.run("where_plain")
    first, second = rig.begin("polite"), rig.begin("where_plain")
    rig.executor.stop(second, Reason.REQUESTED)
    assert (await rig.result(second)).state is State.CANCELLED
    assert first not in rig.results


async def test_stopping_what_is_not_there_does_nothing(rig: Rig) -> None:
    rig.executor.stop(99, Reason.REQUESTED)
    run = await rig.run("where")
    rig.executor.stop(run.run_id, Reason.REQUESTED)
    assert (await rig.run("where")).state is State.SUCCEEDED


async def test_closing_ends_everything(rig: Rig) -> None:
    pids = [int((await rig.run(each)).result or "0") for each in ("where", "where_plain")]
    running = [rig.begin(each) for each in ("sleeps", "sleeps_inline", "stubborn")]
    await rig.until_begun(*running)
    waiting = rig.begin("where_plain")
    await rig.executor.close()
    assert {rig.results[run_id][0].state for run_id in running} == {State.FAILED}
    assert {rig.results[run_id][0].message for run_id in running} == {"the agent was stopped"}
    assert rig.results[waiting][0].state is State.QUEUED
    assert all(is_gone(pid) for pid in pids)
    assert (await rig.run("where")).state is State.QUEUED


# ── many ──


@pytest.mark.parametrize("handler", ["horae.handlers:noop", "noop"])
async def test_ten_thousand_runs_are_all_done_once(rig: Rig, handler: str) -> None:
    await rig.run(handler)
    works = [rig.work(handler) for _ in range(10_000)]
    begun = time.perf_counter()
    for at in range(0, len(works), 500):
        rig.start(*works[at : at + 500])
    await rig.wait(lambda: len(rig.results) == 10_001)
    seconds = time.perf_counter() - begun
    print(f"{handler}: {seconds / 10_000 * 1e6:.1f} µs per run")
    assert {results[0].state for results in rig.results.values()} == {State.SUCCEEDED}
    assert {len(results) for results in rig.results.values()} == {1}


async def test_a_batch_is_one_frame(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    await rig.run("noop")
    sent: list[int] = []
    frame = processes.frame

    def counted(value: Any) -> bytes:
        sent.append(len(value.calls))
        return frame(value)

    monkeypatch.setattr(processes, "frame", counted)
    ids = rig.start(*(rig.work("noop") for _ in range(500)))
    await rig.result(ids[-1])
    assert sent == [500]


# ── classes ──


async def test_a_class_handler_gets_its_data_as_text(rig: Rig) -> None:
    given = [(None, None), ({"MaxBatchSize": 1000}, '{"MaxBatchSize":1000}'), ({"job_data": '["CB_A"]'}, '["CB_A"]')]
    for handler, (data, text) in product(("Told", "Plain"), given):
        result = await rig.run(handler, data)
        assert result.state is State.SUCCEEDED, result.message
        got = json.loads(result.result or "null")
        assert (got[0] if handler == "Told" else got) == text


async def test_a_class_handler_is_given_its_run_and_a_logger_that_writes_its_trace(rig: Rig) -> None:
    result = await rig.run("Told")
    trace = f"686f726165000000{result.run_id:016x}"
    assert json.loads(result.result or "")[1:] == [
        False,
        trace,
        f"00-{trace}-{span_id(result.run_id, result.fence)}-01",
    ]
    assert f"INFO subjects.Told: told trace_id={trace}\n" in await rig.log(result.run_id)


async def test_what_a_class_handler_asks_for_in_vain_is_named(rig: Rig) -> None:
    result = await rig.run("Needy")
    assert result.state is State.FAILED
    assert "Needy needs 'pool' of the type threading.Thread" in result.message
    assert "Traceback" not in await rig.log(result.run_id)


async def test_a_class_handler_that_raises_fails_with_its_message(rig: Rig) -> None:
    result = await rig.run("BreaksClass")
    assert (result.state, result.message) == (State.FAILED, "RuntimeError: no such codebook")
    assert "injection.py" not in await rig.log(result.run_id)


@pytest.mark.parametrize("handler", ["PoliteClass", "Waits"])
async def test_a_class_handler_sees_that_it_shall_stop(rig: Rig, handler: str) -> None:
    run_id = rig.begin(handler)
    await rig.until_begun(run_id)
    rig.executor.stop(run_id, Reason.REQUESTED)
    assert (await rig.result(run_id)).state is State.CANCELLED


async def test_the_example_of_a_class_handler_runs(make: Make) -> None:
    rig = make(jobs_directory=Path(__file__).parents[2] / "examples" / "jobs")
    all_of_them = await rig.run("jobs/DownloadRdmCodebooks")
    some = await rig.run("jobs/DownloadRdmCodebooks", {"job_data": '["currencies"]'})
    assert all_of_them.state is State.SUCCEEDED, all_of_them.message
    assert json.loads(all_of_them.result or "") == {"countries": 9, "currencies": 10}
    assert json.loads(some.result or "") == {"currencies": 10}
