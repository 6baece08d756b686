"""Every page, with what is worth looking at. Whoever adds a page adds it here: it is photographed, judged by axe-core
and shown hostile text. tests/facades/test_pages.py fails where one is missing."""

from __future__ import annotations

from typing import NamedTuple


class Page(NamedTuple):
    route: str
    name: str  # of its picture
    address: str  # with the names of ids


PAGES = (
    Page("/", "overview", "/"),
    Page("/jobs", "jobs", "/jobs"),
    Page("/jobs", "jobs-found", "/jobs?q=e&sort=next&state=failing&is=active"),
    Page("/jobs/{job_id}", "job", "/jobs/{job}"),
    Page("/jobs/{job_id}", "job-flow", "/jobs/{flow}"),
    Page("/jobs/{job_id}", "job-after", "/jobs/{follower}"),
    Page("/jobs/{job_id}/run", "job-run", "/jobs/{job}/run"),
    Page("/jobs/{job_id}/edit", "job-edit", "/jobs/{job}/edit"),
    Page("/jobs/{job_id}/edit", "job-edit-yaml", "/jobs/{job}/edit?as=yaml"),
    Page("/jobs/new", "job-new", "/jobs/new"),
    Page("/runs", "runs", "/runs"),
    Page("/runs", "runs-failed", "/runs?state=failed"),
    Page("/runs/{run_id}", "run", "/runs/{run}"),
    Page("/runs/{run_id}", "run-flow", "/runs/{flow_run}"),
    Page("/timeline", "timeline", "/timeline"),
    Page("/timeline", "timeline-clock", "/timeline?clock=03:00"),
    Page("/workflows", "workflows", "/workflows"),
    Page("/queues", "queues", "/queues"),
    Page("/forecast", "forecast", "/forecast"),
    Page("/forecast", "forecast-week", "/forecast?span=7d"),
    Page("/cluster", "cluster", "/cluster"),
    Page("/alerts", "alerts", "/alerts"),
    Page("/audit", "audit", "/audit"),
    Page("/settings", "settings", "/settings"),
    Page("/settings/sessions", "settings-sessions", "/settings/sessions"),
    Page("/settings/tokens", "settings-tokens", "/settings/tokens"),
    Page("/settings/users", "settings-users", "/settings/users"),
    Page("/settings/roles", "settings-roles", "/settings/roles"),
    Page("/settings/secrets", "settings-secrets", "/settings/secrets"),
    Page("/style", "style", "/style"),
    Page("/docs", "docs", "/docs"),
    Page("/docs/explain", "explanations", "/docs/explain"),
    Page("/device", "device", "/device"),
    Page("/login", "login", "/login"),
    Page("/login/invite/{invitation}", "invitation", "/login/invite/x"),
)
MISSING = "/jobs/999999999"  # what somebody sees who asks for what is not there


def addresses(**ids: int) -> dict[str, str]:
    """Return where each page is, by its name. Ids: job, flow, follower, run, flow_run."""
    return {page.name: page.address.format(**ids) for page in PAGES}
