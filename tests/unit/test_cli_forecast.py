"""`horae forecast`, against a small server that answers as told."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner

from horae.cli import app
from tests.unit.fake_api import Fake, serving

BUCKETS = [
    {"start_at": f"2027-01-15T{hour:02}:00:00Z", "runs": runs, "running": running, "running_high": high,
     "late_seconds": late}
    for hour, runs, running, high, late in ((0, 412, 20, 24, 95), (1, 3, 2.5, 4, 0), (2, 0, 0, 0, 0))
]  # fmt: skip
FOUND = {
    "start_at": "2027-01-15T00:00:00Z", "end_at": "2027-01-15T03:00:00Z", "bucket_seconds": 3600, "triggers": 40,
    "moments": 415, "runs": 413.0, "skipped": 2.0, "followers": 5.0, "busy_seconds": 4000, "slots": 16, "peak": 20,
    "peak_high": 24, "peak_at": "2027-01-15T00:00:00Z", "late_seconds": 95, "buckets": BUCKETS,
    "items": [{"key": "7", "name": "night\x1b[31m", "moments": 400, "runs": 398, "busy_seconds": 3900,
               "duration": {"seconds": 9, "low_seconds": 7, "high_seconds": 12}, "buckets": [398, 0, 0]}],
    "item_count": 12,
    "shortages": [{"what": "slots", "name": "shell", "capacity": 16, "rate": None, "start_at": "2027-01-15T00:00:00Z",
                   "end_at": "2027-01-15T00:02:00Z", "wanted": 20, "late_seconds": 95}],
    "clashes": [{"at": "2027-01-15T00:00:00Z", "times": 1, "triggers": 400, "crowds": [
        {"schedule": "0 0 * * *", "timezone": "UTC", "triggers": 400, "jobs": ["night"], "instead": "H 0 * * *"}]}],
    "notes": ["runs asked for by hand are not foreseen"],
}  # fmt: skip


@pytest.fixture
def api() -> Iterator[Fake]:
    with serving() as fake:
        fake.routes["GET", "/v1/forecast"] = FOUND
        yield fake


def invoke(api: Fake, *args: str, columns: int = 100) -> Any:
    return CliRunner().invoke(app, ["forecast", *args, "--server", api.url], env={"COLUMNS": str(columns), "TZ": "UTC"})


def test_bars_stand_against_the_slots_and_what_runs_out_is_said(api: Fake) -> None:
    found = invoke(api)
    assert found.exit_code == 0, found.output
    assert "415 of 40 triggers, of which 2" in found.output
    lines = found.output.splitlines()
    [busy] = [line for line in lines if line.startswith("00:00")]
    [calm] = [line for line in lines if line.startswith("01:00")]
    assert busy.count("█") > calm.count("█")
    assert "│" in calm
    assert "late 1m35s" in busy
    assert any(line.startswith("runs out: slots for shell") and "20 wanted, 16 there" in line for line in lines)
    assert any("400 × '0 0 * * *' (UTC); write 'H 0 * * *' to spread them: night" in line for line in lines)
    assert "\x1b" not in found.output


@pytest.mark.parametrize("columns", [40, 60, 200])
def test_bars_fit_the_terminal(api: Fake, columns: int) -> None:
    bars = [line for line in invoke(api, columns=columns).output.splitlines() if " at once" in line and "runs " in line]
    assert len(bars) == 3
    assert max(map(len, bars)) <= max(columns, 56) + 12  # and how late, where anything is


def test_a_program_gets_the_answer_itself(api: Fake) -> None:
    assert json.loads(invoke(api, "--json").output) == FOUND


@pytest.mark.parametrize(("given", "asked"), [(("--hours", "48"), "48.000000"), (("--minutes", "30"), "0.500000")])
def test_hours_or_minutes_are_asked_for(api: Fake, given: tuple[str, ...], asked: str) -> None:
    assert invoke(api, *given, "--by", "queue").exit_code == 0
    [request] = api.requests
    assert (request.query["hours"], request.query["by"]) == (asked, "queue")


def test_no_time_at_all_is_refused(api: Fake) -> None:
    found = invoke(api, "--hours", "0")
    assert found.exit_code == 2


def test_what_is_one_is_told_as_one(api: Fake) -> None:
    first = {**BUCKETS[0], "runs": 1}
    api.routes["GET", "/v1/forecast"] = {**FOUND, "triggers": 1, "skipped": 1.0, "slots": 1, "buckets": [first]}
    shown = invoke(api).output
    assert "415 of 1 trigger, of which 1 is skipped" in shown
    assert "; 1 slot\n" in shown
    assert "1 run      20 at once" in shown
