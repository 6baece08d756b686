"""Calls for explanations (see calls.py, which has them too)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from horae.client.making import get
from horae.client.steps import Call
from horae.client.wire import to_address

if TYPE_CHECKING:
    from horae.schemas.explanations import Explanation


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
