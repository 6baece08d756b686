"""Pages on which jobs are written: a new one by a form or as YAML, one that exists as YAML. What is typed is checked by
the dry run of a submit, which shows the moments that come of it."""

from __future__ import annotations

from typing import Any

import yaml

from horae.core.model import Policy
from horae.core.roles import Permission
from horae.service import Services
from horae.web import http, render
from horae.web.pages.shell import HTML, Shell

SAMPLE = """\
name: nightly report
schedule: "30 2 * * MON-FRI"
timezone: Europe/Berlin
steps:
  - run: echo hello
timeout: 10m
"""
# What Horae makes, and writers need not see. What tells a job and its triggers from others stays: so they keep their
# past.
_MADE = frozenset({"owner", "org", "version", "segment", "updated_at", "cursor", "paused_because", "followers"})
_MADE_OF_TRIGGERS = frozenset({"job_id", "description", "next_at", "last_at", "version", "hook"})


class WritingPages:
    def __init__(self, services: Services, shell: Shell) -> None:
        self._jobs = services.jobs
        self._shell = shell

    def operations(self) -> list[http.Operation]:
        op, write = http.Operation, Permission.WRITE
        return [
            op("GET", "/jobs/new", self.new, "pages", "The page to make a job", HTML, needs=write),
            op("GET", "/jobs/{job_id}/edit", self.edit, "pages", "The page to change a job", HTML, needs=write),
        ]

    async def new(self, request: http.Request) -> http.Answer:
        return self._shell.page(request, "job_new.html", sample=SAMPLE)

    async def edit(self, request: http.Request) -> http.Answer:
        job = render.job(await self._jobs.get(request.path_id("job_id")))
        return self._shell.page(request, "job_edit.html", job=job, text=written(render.plain(job)))


def written(job: Any) -> str:
    """Return a job as people write it."""
    shown = {name: value for name, value in job.items() if name not in _MADE and value not in ({}, None)}
    usual = render.plain(render.policy(Policy()))
    shown["policy"] = {name: value for name, value in job["policy"].items() if value != usual[name]}
    if not shown["policy"]:
        del shown["policy"]
    shown["triggers"] = [
        {name: value for name, value in one.items() if name not in _MADE_OF_TRIGGERS} for one in job["triggers"]
    ]
    text: str = yaml.safe_dump(shown, sort_keys=False, allow_unicode=True, width=100)
    return text
