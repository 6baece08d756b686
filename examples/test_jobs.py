"""Tests of the jobs in this directory: `pytest examples/test_jobs.py`."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from horae import Context, Retry, handler
from horae.testing import run_handler

HERE = Path(__file__).parent
pytestmark = pytest.mark.horae(start="2027-03-26T12:00:00Z", jobs_directory=HERE / "jobs")


@handler
async def import_prices(context: Context) -> str:
    if context.attempt == 1:
        raise Retry(after=600, message="the exchange is closed")
    return "imported"


def test_without_an_answer_the_handler_asks_to_be_tried_again():
    handled = run_handler(import_prices, attempt=1)
    assert (handled.state, handled.retry_after) == ("failed", 600)
    assert run_handler(import_prices, attempt=2).result == "imported"


def test_the_codebooks_are_refreshed_every_morning(horae):
    job = {"name": "codebooks", "handler": "jobs/refresh_codebooks", "schedule": "0 4 * * *"}
    horae.submit({**job, "data": {"codebooks": ["countries", "currencies"]}})
    horae.pass_time(days=30)
    runs = horae.runs("codebooks")
    assert [run.due_at.hour for run in runs] == [4] * 30
    assert [run.result for run in runs] == [{"refreshed": 2}] * 30
    assert "refreshing codebook countries" in horae.log(runs[0])


def test_the_night_without_half_past_two(horae):
    job = {"name": "prices", "schedule": "30 2 * * *", "timezone": "Europe/Berlin", "handler": import_prices}
    horae.submit({**job, "retry": {"attempts": 2}})
    horae.pass_time(days=2)
    first, second = horae.runs("prices", state="succeeded")
    assert first.due_at == datetime(2027, 3, 27, 1, 30, tzinfo=UTC)
    assert second.due_at == datetime(2027, 3, 28, 1, 0, tzinfo=UTC)  # 03:00 in Berlin, when clocks have gone forward
    assert (second.finished_at - second.due_at).total_seconds() == 600
