"""The calls that look behind what happens, and ahead: explanations and the forecast."""

from __future__ import annotations

from typing import TYPE_CHECKING

from horae.client.making import get
from horae.client.steps import Call
from horae.client.wire import to_address

if TYPE_CHECKING:
    from horae.schemas.explanations import Explanation
    from horae.schemas.forecasts import Forecast


def explain_run(run_id: int) -> Call[Explanation]:
    """Why a run waits, or ended as it did."""
    return get(f"/v1/explain/runs/{run_id}", has="sentences")


def explain_job(job_id: int, *, at: str | None = None) -> Call[Explanation]:
    """Why a job does or does not run; with `at`, why it did or did not at that moment: RFC 3339, or without an offset
    as clocks in the zone of each trigger show it."""
    return get(to_address(f"/v1/explain/jobs/{job_id}", {"at": at}), has="sentences")


def explain_trigger(trigger_id: int, *, at: str | None = None) -> Call[Explanation]:
    """The same of one trigger."""
    return get(to_address(f"/v1/explain/triggers/{trigger_id}", {"at": at}), has="sentences")


def forecast(
    hours: float = 24, *, start_at: str | None = None, by: str | None = None, limit: int | None = None
) -> Call[Forecast]:
    """Which runs the next hours will see, how many at once, how late, and where places run out. `by` is job, queue or
    owner."""
    asked = {"hours": f"{hours:.6f}", "from": start_at, "by": by, "limit": limit}
    return get(to_address("/v1/forecast", asked), has="buckets")
