"""The page of one run."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any, NamedTuple

from horae.core import model
from horae.core.roles import Permission
from horae.core.workflows.picture import TaskTally, picture
from horae.core.workflows.progress import split_label
from horae.service import Services
from horae.service.insight.views import artifacts_of
from horae.service.jobs.signals import approval_of
from horae.web import http, params, render
from horae.web.native.signals import decider
from horae.web.pages.drawings import Drawing, TaskRuns, draw
from horae.web.pages.shell import HTML, Shell
from horae.web.pages.waterfall import waterfall

MOST_TEXT = 20_000  # characters of data and result that are shown
_ASKED = (params.number("attempt", "Whose log is shown; the latest if not given.", 1, 2**31 - 1),)


def _text(value: Any) -> str:
    """Return data as people read it; none is empty."""
    if value is None:
        return ""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    return text if len(text) <= MOST_TEXT else f"{text[:MOST_TEXT]}…"


def _drawn(run_id: int, spec: model.Json, tally: TaskTally, asking: Collection[str]) -> Drawing:
    return draw(picture(spec, tally.counts), asking, TaskRuns(run_id, tally.runs))


class Tests(NamedTuple):
    """The tests of a build."""

    counts: list[tuple[str, int]]  # passed, failed, skipped
    seconds: float | None
    failures: list[tuple[str, str]]  # name, and what it said


def tests_of(result: object) -> Tests | None:
    """As a result tells of them. A result is what the work gave: of most kinds it may be anything."""
    told = result.get("tests") if isinstance(result, dict) else None
    if not isinstance(told, dict):
        return None
    counts = [(word, told.get(word, 0)) for word in ("passed", "failed", "skipped")]
    if not all(type(number) is int for _, number in counts):
        return None
    listed, seconds = told.get("failures"), told.get("seconds")
    failures = [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
    return Tests(
        counts,
        seconds if isinstance(seconds, int | float) else None,
        [(str(one.get("name", "")), str(one.get("message", ""))) for one in failures],
    )


class Question(NamedTuple):
    """A decision for which a run waits."""

    run_id: int
    task: str | None  # of the run that is looked at; None: it waits itself
    message: str
    by: list[str]  # who may decide,
    may: bool  # and whether whoever looks is one of them
    until: str | None
    otherwise: str  # what happens then


class RunPage:
    def __init__(self, services: Services, shell: Shell) -> None:
        self._jobs = services.jobs
        self._explaining = services.explaining
        self._events = services.events
        self._shell = shell

    def operations(self) -> list[http.Operation]:
        return [
            http.Operation(
                "GET",
                "/runs/{run_id}",
                self.show,
                "pages",
                "The page of one run",
                HTML,
                params=_ASKED,
                needs=Permission.READ,
            )
        ]

    async def show(self, request: http.Request) -> http.Answer:
        run = await self._jobs.limits.explain(await self._jobs.get_run(request.path_id("run_id")))
        job, workflow = await self._jobs.get(run.job_id), await self._jobs.tasks.of_run(run)
        questions = await self._questions(request, run) if run.state is model.State.BLOCKED else []
        asking = {split_label(question.task)[0] for question in questions if question.task}
        drawing = None if workflow is None else _drawn(run.id, *workflow, asking)
        why = (await self._explaining.of_run(run)).sentences
        seen, tried = render.run(run), [render.attempt(it) for it in await self._jobs.list_attempts(run.id)]
        last = max([run.attempt, *(it.attempt for it in tried)])
        shown = {
            "run": seen, "job": render.job(job), "drawing": drawing, "questions": questions, "why": why,
            "attempts": tried, "stretches": waterfall(seen, tried, self._shell.now()),
            "artifacts": artifacts_of(run), "tests": tests_of(run.result),
            "trace": await self._events.documents.trace_of(run),
            "shown_attempt": min(request.args["attempt"] or last, last),
            "data": _text(run.data), "result": _text(run.result),
        }  # fmt: skip
        return await self._shell.page_of(job, request, "run.html", **shown)

    async def _questions(self, request: http.Request, run: model.Run) -> list[Question]:
        """What a run, or a task of it, waits for somebody to decide."""
        who = decider(request)
        return [
            Question(
                it.id, None if it.id == run.id else it.task, asked.get("message", ""), asked["by"],
                may=who.may(asked) and await self._shell.may_on(request, Permission.RUN, job),
                until=render.when(it.eligible_at),
                otherwise=job.spec["wait"].get("otherwise", "fail"),
            )
            for it, job in await self._jobs.signals.approvals_of(run)
            if (asked := approval_of(job)) is not None
        ]  # fmt: skip
