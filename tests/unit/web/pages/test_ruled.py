"""How a job runs, in words."""

from __future__ import annotations

from typing import Any

import pytest

from horae.core.work.specs import parse_job
from horae.web.pages.ruled import how_it_runs


def ruled(**policy: Any) -> dict[str, str]:
    draft = parse_job({"name": "x", "handler": "a:b", **policy})
    return dict(how_it_runs(draft.policy))


def test_what_every_job_has_is_said_also_where_nothing_was():
    assert ruled() == {
        "Queue": "default, priority 5",
        "Overlap": "one run at a time; a moment that finds one under way is skipped",
        "Missed": "the latest of missed moments runs",
        "Retries": "none",
        "Timeout": "none of its own",
    }


@pytest.mark.parametrize(
    ("policy", "what", "how"),
    [
        ({"overlap": "allow"}, "Overlap", "any number of runs at a time"),
        ({"overlap": {"policy": "queue", "limit": 3}}, "Overlap", "one run at a time; up to 3 wait for it"),
        ({"overlap": "replace"}, "Overlap", "one run at a time; a new one cancels the one before"),
        ({"misfire": "skip"}, "Missed", "missed moments are skipped"),
        ({"misfire": {"policy": "run_all", "limit": 7}}, "Missed", "all missed moments run, up to 7"),
        (
            {"retry": {"attempts": 3, "backoff": "90s", "never": ["KeyError"]}},
            "Retries",
            "up to 3 attempts, 1 min 30 s apart at first, 2 times as long each time; never after KeyError",
        ),
        ({"timeout": "10m"}, "Timeout", "10 min for each attempt"),
        ({"start_deadline": "30s"}, "Starts within", "30 s, or is skipped"),
        (
            {"rate_limits": [{"rate": "100/min", "burst": 10, "per": "owner"}]},
            "Rate", "100/min, 10 at once, for each owner",
        ),
        ({"concurrency_limits": [{"limit": 2}]}, "At once", "2"),
        ({"labels": ["gpu", "eu"]}, "Agents with", "eu, gpu"),
        ({"pause_after_failures": 4}, "Pauses itself", "after 4 failures in a row"),
        ({"debounce": {"seconds": 10}}, "Waits for calm", "10 s after the last order"),
    ],
)  # fmt: skip
def test_what_a_job_has_of_its_own_is_said_in_words(policy: dict[str, Any], what: str, how: str):
    assert ruled(**policy)[what] == how
