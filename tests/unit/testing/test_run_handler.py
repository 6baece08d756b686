"""A handler called with a context, without any server."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from horae import Cancel, Cancellation, Context, Retry, handler
from horae.errors import Error, Invalid
from horae.testing import run_handler, run_handler_async


@handler
async def greet(context: Context) -> dict[str, Any]:
    context.log(f"hello {context.data['who']}")
    context.progress(0.5, "half way")
    return {"greeted": (context.data["who"],), "at": context.scheduled_for, "env": context.env}


@handler
def fail(context: Context) -> None:
    raise {"retry": Retry(60, "later"), "cancel": Cancel("done already"), "error": KeyError("gone")}[
        context.data["how"]
    ]


@handler
class Greeter:
    def execute(self, job_data: str, cancellation: Cancellation) -> str:
        cancellation.raise_if_cancelled()
        return job_data


def test_a_handler_gives_result_log_and_progress() -> None:
    due_at = datetime(2027, 3, 1, tzinfo=UTC)
    handled = run_handler(greet, {"who": "Ada"}, env={"MODE": "test"}, due_at=due_at)
    assert handled.state == "succeeded"
    assert handled.result == {"greeted": ["Ada"], "at": "2027-03-01T00:00:00Z", "env": {"MODE": "test"}}
    assert handled.log.startswith("hello Ada\n")
    assert handled.progress == [{"step": "half way", "share": 0.5}]
    assert handled.error is None


@pytest.mark.parametrize(
    ("how", "state", "message", "after"),
    [
        ("retry", "failed", "later", 60.0),
        ("cancel", "cancelled", "by its handler: done already", None),
        ("error", "failed", "KeyError: 'gone'", None),
    ],
)
def test_what_a_handler_raises_is_told(how: str, state: str, message: str, after: float | None) -> None:
    handled = run_handler(fail, {"how": how})
    assert (handled.state, handled.message, handled.retry_after) == (state, message, after)
    assert isinstance(handled.error, {"retry": Retry, "cancel": Cancel, "error": KeyError}[how])
    assert ("Traceback" in handled.log) is (how == "error")


def test_a_class_is_a_handler_too_and_can_be_cancelled() -> None:
    assert run_handler(Greeter, {"who": "Ada"}).result == '{"who":"Ada"}'
    assert run_handler(Greeter, cancelled=True).state == "cancelled"


def test_a_handler_is_found_by_its_name() -> None:
    assert run_handler("horae.handlers:payload", {"payload": "text"}).log == "text\n"


def test_a_result_that_is_no_json_fails_as_it_does_in_a_run() -> None:
    @handler
    async def wrong(context: Context) -> object:
        return object()

    handled = run_handler(wrong)
    assert (handled.state, handled.result) == ("failed", None)
    assert "not JSON" in handled.message


async def test_in_a_coroutine_it_is_awaited() -> None:
    assert (await run_handler_async(greet, {"who": "Ada"})).state == "succeeded"
    with pytest.raises(Error, match="run_handler_async"):
        run_handler(greet, {"who": "Ada"})


def test_what_is_no_handler_or_no_data_is_refused() -> None:
    with pytest.raises(Invalid, match="is not a handler"):
        run_handler(lambda context: None)
    with pytest.raises(Invalid, match="data must be a mapping"):
        run_handler(greet, {"who": object()})
    with pytest.raises(Invalid, match="time zone"):
        run_handler(greet, {"who": "Ada"}, due_at=datetime(2027, 3, 1))
