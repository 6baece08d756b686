"""Handlers: decorating, registering, finding them by name, and what their context can do."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from horae.core.runs.traces import span_id
from horae.discovery import is_there, loaded, resolve
from horae.errors import Invalid
from horae.handlers import Cancel, Cancellation, Context, Retry, handler

EXAMPLES = Path(__file__).parents[2] / "examples" / "jobs"


class Line:
    """A channel that keeps what is written."""

    def __init__(self) -> None:
        self.written = b""
        self.stopped = False
        self.progress: list[Any] = []

    def write(self, data: bytes) -> None:
        self.written += data

    def note_progress(self, progress: Any) -> None:
        self.progress.append(progress)

    def is_stopped(self) -> bool:
        return self.stopped


def context(line: Line, **data: Any) -> Context:
    return Context(line, 7, 2, 3, 5, "nightly", 1_800_000_000_000_000, data, {"A": "b"})


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An importable directory, forgotten afterwards."""
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"from horae.handlers import handler\n{text}")


def refusal(text: str, jobs_directory: Path | None = None) -> Invalid:
    with pytest.raises(Invalid) as caught:
        resolve(text, jobs_directory)
    assert caught.value.code == "E_HANDLER"
    return caught.value


# ── decorating ──


def test_a_decorated_function_is_still_that_function() -> None:
    async def work(context: Context) -> int:
        return 1

    assert handler(work) is work
    assert handler(inline=True)(work) is work


def test_an_inline_handler_must_be_async() -> None:
    with pytest.raises(Invalid, match="async def"):

        @handler(inline=True)
        def slow(context: Context) -> None: ...


def test_a_name_cannot_hold_a_slash() -> None:
    with pytest.raises(Invalid, match="letters"):

        @handler(name="jobs/slow")
        def slow(context: Context) -> None: ...


def test_two_handlers_cannot_have_one_name() -> None:
    @handler(name="taken_once")
    def first(context: Context) -> None: ...

    with pytest.raises(Invalid, match="two handlers are named 'taken_once'"):

        @handler(name="taken_once")
        def second(context: Context) -> None: ...


def test_loading_the_same_lines_again_is_no_clash(place: Path) -> None:
    write(place / "twice_loaded.py", "@handler(name='twice')\ndef run(context): ...")
    resolve("twice_loaded:run")
    del sys.modules["twice_loaded"]
    assert resolve("twice").function is not resolve("twice_loaded:run").function


# ── finding ──


def test_a_function_is_found_by_module_and_name(place: Path) -> None:
    write(place / "found_here.py", "@handler\nasync def run(context): ...\n@handler\ndef plain(context): ...")
    assert resolve("found_here:run").is_async
    assert not resolve("found_here:plain").is_async
    assert not resolve("found_here:run").inline


def test_looking_among_what_is_loaded_imports_nothing(place: Path) -> None:
    write(place / "not_yet.py", "@handler(name='later')\nasync def run(context): ...")
    assert loaded("not_yet:run") is None
    assert loaded("later") is None
    assert "not_yet" not in sys.modules
    found = resolve("not_yet:run")
    assert loaded("not_yet:run") is found
    assert loaded("later") is found


def test_the_built_in_handlers_are_inline() -> None:
    assert resolve("horae.handlers:echo").inline
    assert resolve("horae.handlers:noop").inline


def test_a_missing_module_is_named() -> None:
    assert "No module named 'no_such_module'" in refusal("no_such_module:run").message


def test_a_missing_function_is_named() -> None:
    assert refusal("json:no_such_function").message == "module 'json' has no 'no_such_function'"


@pytest.mark.parametrize("text", ["os:system", "sys:path", "os:path.join", "horae.handlers:handler"])
def test_what_is_not_decorated_cannot_be_run(text: str) -> None:
    assert "is not a handler" in refusal(text).message


@pytest.mark.parametrize("text", ["", ":", "a:", ":b", "a:b:c", "a b:c", "../up", "jobs/../up", "jobs/", "1x:y"])
def test_what_is_no_name_is_refused_with_the_forms_that_are(text: str) -> None:
    assert "'module:function', 'jobs/NAME' or 'NAME'" in refusal(text, Path("jobs")).message


def test_a_module_that_fails_to_import_says_why_in_one_line(place: Path) -> None:
    write(place / "fails.py", "raise RuntimeError('first\\nsecond')")
    message = refusal("fails:run").message
    assert message == "module 'fails' cannot be imported: RuntimeError: first"


def test_a_module_that_exits_does_not_take_the_process_along(place: Path) -> None:
    write(place / "quits.py", "raise SystemExit(3)")
    assert "SystemExit: 3" in refusal("quits:run").message


# ── the jobs directory ──


def test_a_folder_with_one_handler_is_found_by_its_name(tmp_path: Path) -> None:
    write(tmp_path / "nightly" / "job.py", "@handler\ndef whatever(context): ...")
    assert resolve("jobs/nightly", tmp_path).function.__name__ == "whatever"


def test_a_folder_may_be_a_package(tmp_path: Path) -> None:
    write(tmp_path / "my-job" / "__init__.py", "from . import more\n@handler\ndef run(context): ...")
    write(tmp_path / "my-job" / "more.py", "")
    assert resolve("jobs/my-job", tmp_path).function.__name__ == "run"


def test_of_several_handlers_in_a_folder_the_one_named_like_it_is_meant(tmp_path: Path) -> None:
    text = "@handler(name='evening')\ndef run(context): ...\n@handler(name='other')\ndef more(context): ..."
    write(tmp_path / "evening" / "job.py", text)
    assert resolve("jobs/evening", tmp_path).function.__name__ == "run"


def test_several_handlers_without_the_folders_name_are_listed(tmp_path: Path) -> None:
    text = "@handler(name='one')\ndef run(context): ...\n@handler(name='two')\ndef more(context): ..."
    write(tmp_path / "morning" / "job.py", text)
    error = refusal("jobs/morning", tmp_path)
    assert "2 handlers: one, two" in error.message


def test_a_registered_name_is_found_in_any_folder(tmp_path: Path) -> None:
    write(tmp_path / "broken" / "job.py", "raise RuntimeError('unrelated')")
    write(tmp_path / "folder" / "job.py", "@handler(name='deep.inside')\ndef run(context): ...")
    assert resolve("deep.inside", tmp_path).function.__name__ == "run"


def test_a_name_found_nowhere_says_which_folders_could_not_be_loaded(tmp_path: Path) -> None:
    write(tmp_path / "broken" / "job.py", "raise RuntimeError('out of order')")
    message = refusal("nowhere", tmp_path).message
    assert "no handler is named 'nowhere'" in message
    assert "out of order" in message


def test_a_job_named_like_a_module_does_not_stand_in_for_it(tmp_path: Path) -> None:
    write(tmp_path / "email" / "job.py", "@handler\ndef run(context): ...")
    resolve("jobs/email", tmp_path)
    import email

    assert "job.py" not in str(email.__file__)
    assert hasattr(email, "message_from_string")


@pytest.mark.parametrize(
    ("text", "directory", "expected"),
    [
        ("jobs/absent", "here", "has neither absent/__init__.py, absent/job.py nor absent/absentHandler.py"),
        ("jobs/absent", None, "needs a jobs directory"),
        ("jobs/empty", "here", "no function or class in .* carries @handler"),
    ],
)
def test_a_folder_that_gives_no_handler_says_why(
    tmp_path: Path, text: str, directory: str | None, expected: str
) -> None:
    write(tmp_path / "empty" / "job.py", "")
    with pytest.raises(Invalid, match=expected):
        resolve(text, tmp_path if directory else None)


async def test_the_example_folder_runs() -> None:
    found = resolve("jobs/refresh_codebooks", EXAMPLES)
    line = Line()
    assert await found.function(context(line, codebooks=["countries"])) == {"refreshed": 1}
    assert line.progress == [{"step": "codebook countries is up to date", "items": {"done": 1, "total": 1}}]
    with pytest.raises(Retry):
        await found.function(context(line))


# ── the context ──


def test_a_context_knows_its_run() -> None:
    this = context(Line(), who="me")
    assert (this.run_id, this.attempt, this.fence, this.job_id, this.job_name) == (7, 2, 3, 5, "nightly")
    assert this.data == {"who": "me"}
    assert this.env == {"A": "b"}
    assert this.previous_result is None
    assert this.scheduled_for == datetime(2027, 1, 15, 8, 0, tzinfo=UTC)


def test_a_context_can_be_printed_to() -> None:
    line = Line()
    print("half", "way", file=context(line), flush=True)
    context(line).log("done ✓")
    assert line.written.decode() == "half way\ndone ✓\n"


def test_text_that_is_not_unicode_is_written_escaped() -> None:
    line = Line()
    context(line).log("\udcff")
    assert line.written == b"\\udcff\n"


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ((3, 10, "rows"), {"step": "rows", "items": {"done": 3, "total": 10}}),
        ((3,), {"items": {"done": 3}}),
        ((0.5, "half"), {"step": "half", "share": 0.5}),
        ((7.0,), {"share": 1.0}),
        ((-0.1,), {"share": 0.0}),
        ((1.5, 3), {"share": 0.5}),
        ((0.5, 0), {"share": 0.0}),
        ((float("nan"),), {}),
        ((-1, 2**70), {}),
    ],
)
def test_progress_is_told_apart_from_the_output(said: Any, told: Any) -> None:
    line = Line()
    context(line).progress(*said)
    assert (line.progress, line.written) == ([told], b"")


def test_a_context_tells_when_it_was_cancelled() -> None:
    line = Line()
    this = context(line)
    assert not this.cancelled
    line.stopped = True
    assert this.cancelled


@pytest.mark.parametrize(("asked", "given"), [(30, 30.0), (-5, 0.0), (float("inf"), 365 * 86400.0)])
def test_a_retry_waits_between_nothing_and_a_year(asked: float, given: float) -> None:
    assert Retry(after=asked).after == given


def test_retry_and_cancel_carry_their_words() -> None:
    assert Retry(after=1, message="busy").message == "busy"
    assert Cancel("nothing to do").reason == "nothing to do"


async def test_echo_writes_and_returns_its_data() -> None:
    line = Line()
    assert await resolve("horae.handlers:echo").function(context(line, who="você")) == {"who": "você"}
    assert line.written.decode() == '{"who": "você"}\n'


# ── classes ──

HANDLER_CLASS = """
class {name}:
    def execute(self, job_data, cancellation):
        return job_data
"""


@pytest.mark.parametrize("folder", ["MyJob", "my_job", "my-job"])
def test_the_class_named_as_its_folder_needs_no_mark(place: Path, folder: str) -> None:
    write(place / folder / "job.py", HANDLER_CLASS.format(name="Other") + HANDLER_CLASS.format(name="MyJobHandler"))
    found = resolve(f"jobs/{folder}", place)
    assert found.origin.__name__ == "MyJobHandler"
    assert found.function(context(Line(), a=1)) == '{"a":1}'


def test_the_only_class_of_a_folder_needs_no_name(place: Path) -> None:
    write(place / "only" / "job.py", HANDLER_CLASS.format(name="Whatever"))
    assert resolve("jobs/only", place).origin.__name__ == "Whatever"


def test_several_classes_of_which_none_is_named_as_the_folder_are_refused(place: Path) -> None:
    write(place / "many" / "job.py", HANDLER_CLASS.format(name="One") + HANDLER_CLASS.format(name="Two"))
    assert "has 2 handlers" in refusal("jobs/many", place).message


def test_a_class_elsewhere_needs_its_mark(place: Path) -> None:
    write(
        place / "elsewhere.py", HANDLER_CLASS.format(name="Unmarked") + "@handler" + HANDLER_CLASS.format(name="Good")
    )
    assert "is not a handler" in refusal("elsewhere:Unmarked").message
    assert resolve("elsewhere:Good").is_async is False
    assert loaded("elsewhere:Good") is not None


def test_a_class_without_execute_is_refused() -> None:
    with pytest.raises(Invalid, match="has no execute"):

        @handler
        class Idle: ...


async def test_an_async_execute_makes_an_async_handler_that_may_be_named() -> None:
    @handler(name="asked")
    class Asked:
        def __init__(self, context: Context) -> None:
            self.context = context

        async def execute(self, job_data: str | None, cancellation: Cancellation) -> tuple[str | None, bool]:
            return job_data, cancellation.is_cancelled

    found = resolve("asked")
    line = Line()
    line.stopped = True
    assert found.is_async
    assert await found.function(context(line)) == (None, True)


def test_providers_of_the_jobs_directory_are_shared_by_its_folders(place: Path) -> None:
    (place / "providers.py").write_text(
        "from horae import provider\nclass Box:\n    pass\n@provider\ndef box() -> Box:\n    return Box()\n"
    )
    for folder in ("first", "second"):
        write(
            place / folder / "job.py",
            "from ..providers import Box\nclass H:\n    def __init__(self, box: Box):\n        self.box = box\n"
            "    def execute(self, job_data, cancellation):\n        return self.box\n",
        )
    first, second = (resolve(f"jobs/{each}", place).function(context(Line())) for each in ("first", "second"))
    assert first is second


async def test_a_cancellation_ends_the_wait_and_raises_only_when_it_is_asked_to_stop() -> None:
    line = Line()
    cancellation = Cancellation(context(line))
    cancellation.raise_if_cancelled()
    line.stopped = True
    await cancellation.wait()
    with pytest.raises(Cancel):
        cancellation.raise_if_cancelled()


def test_a_context_knows_its_trace() -> None:
    made = context(Line())
    assert made.trace_id == "686f7261650000000000000000000007"
    assert made.traceparent == f"00-686f7261650000000000000000000007-{span_id(7, 3)}-01"


@pytest.mark.parametrize("folder", ["MyJob", "my_job", "my-job"])
def test_the_handler_of_a_folder_may_lie_in_a_file_named_as_its_class(tmp_path: Path, folder: str) -> None:
    write(
        tmp_path / folder / "MyJobHandler.py", "class MyJobHandler:\n    def execute(self, job_data, cancellation): ..."
    )
    write(tmp_path / folder / "LoggerExtensions.py", "raise RuntimeError('nobody asked for this')")
    assert resolve(f"jobs/{folder}", tmp_path).name.endswith(":MyJobHandler")
    assert is_there(f"jobs/{folder}", tmp_path)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("jobs/there", True), ("jobs/absent", False), ("jobs/hollow", False), ("known", True), ("unknown", False),
        ("horae.handlers:echo", True), ("no_such_package.jobs:run", False),
    ],
)  # fmt: skip
def test_whether_a_handler_is_there_is_told_without_running_it(tmp_path: Path, text: str, expected: bool) -> None:
    write(
        tmp_path / "there" / "job.py", "raise RuntimeError('it was run')\n@handler(name='known')\ndef run(context): ..."
    )
    write(tmp_path / "hollow" / "notes.py", "")
    assert is_there(text, tmp_path) is expected
    assert is_there("jobs/there", None) is False
