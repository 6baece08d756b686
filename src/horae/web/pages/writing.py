"""Pages on which jobs are written, by a form or as YAML. What is typed is checked by the dry run of a submit, which
shows the moments that come of it; of a job that exists, also those that go.

A form has what most jobs are changed in; the rest of a job stays as it is.
"""

from __future__ import annotations

from typing import Any

import yaml

from horae.core.model import Policy
from horae.core.roles import Permission
from horae.core.time import moments
from horae.core.work.specs import parse_job
from horae.core.workflows.picture import picture
from horae.errors import Invalid
from horae.ports import deeds
from horae.service import Services
from horae.web import http, params, render
from horae.web.pages.drawings import draw
from horae.web.pages.job_form import MOST_STEPS, form_of
from horae.web.pages.shell import HTML, Shell

# What somebody may begin with who writes a job.
SAMPLES = {
    "a command": """\
name: nightly report
schedule: "30 2 * * MON-FRI"
timezone: Europe/Berlin
steps:
  - run: echo hello
timeout: 10m
""",
    "a workflow": """\
name: nightly figures
schedule: "0 3 * * *"
tasks:
  fetch:
    steps: [{run: echo fetched}]
  check:
    needs: [fetch]
    steps: [{run: echo fine}]
  publish:
    needs: [check]
    steps: [{run: echo published}]
  tell:
    needs: [{task: check, on: failure}]
    steps: [{run: echo told}]
""",
    "a Python handler": """\
name: greet
handler: jobs/greet
data: {who: world}
schedule: "@hourly"
""",
    "an HTTP request": """\
name: ask the shop
http:
  url: https://example.org/health
schedule: every 5m
""",
}

# What Horae makes, and writers need not see. What tells a job and its triggers from others stays: so they keep their
# past.
_MADE = frozenset({"owner", "org", "version", "segment", "updated_at", "cursor", "paused_because", "followers"})
_MADE_OF_TRIGGERS = frozenset({"job_id", "description", "next_at", "last_at", "version", "hook"})


def _read_as(text: str) -> str:
    if text != "yaml":
        raise Invalid(f"yaml expected, got {moments.quoted(text)}", code="E_ENUM")
    return text


_ASKED = (params.Param("as", "How it is written: yaml, else by a form.", {"enum": ["yaml"]}, _read_as),)


class WritingPages:
    def __init__(self, services: Services, shell: Shell) -> None:
        self._jobs = services.jobs
        self._shell = shell

    def operations(self) -> list[http.Operation]:
        op, write = http.Operation, Permission.WRITE
        return [
            op("GET", "/jobs/new", self.new, "pages", "The page to make a job", HTML, needs=write),
            op("POST", "/jobs/picture", self.draw, "pages", "Draw the tasks of a job that is being written", HTML,
               body=http.Body("JobDocument", {"name": "a", "tasks": {"one": {"steps": [{"run": "true"}]}}}),
               needs=write),
            op("GET", "/jobs/{job_id}/edit", self.edit, "pages", "The page to change a job", HTML, params=_ASKED,
               needs=write),
        ]  # fmt: skip

    async def new(self, request: http.Request) -> http.Answer:
        return self._shell.page(request, "job_new.html", samples=SAMPLES)

    async def draw(self, request: http.Request) -> http.Answer:
        """A part of a page; it is empty for a job that has no tasks."""
        deeds.note(is_void=True)
        spec = parse_job(await request.document()).spec
        drawing = draw(picture(spec)) if "tasks" in spec else None
        return self._shell.page(request, "picture.html", drawing=drawing)

    async def edit(self, request: http.Request) -> http.Answer:
        job = render.job(await self._jobs.get(request.path_id("job_id")))
        text = written(render.plain(job)) if request.args["as"] else ""
        return self._shell.page(request, "job_edit.html", job=job, text=text, form=form_of(job), most_steps=MOST_STEPS)


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
