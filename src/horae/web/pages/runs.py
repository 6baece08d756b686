"""Runs, newest first: those of a filter that stands in the address."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

from horae.core import model
from horae.core.roles import Permission
from horae.service import Services
from horae.web import http, params, render
from horae.web.pages import filters
from horae.web.pages.shell import HTML, Shell

SHOWN = 50
_STATES = params.words("state", "States.", {each.word: each for each in model.State})
ASKED = (
    replace(filters.optional(_STATES), many=True),
    filters.optional(params.identity("job", "Runs of one job.")),
    filters.optional(params.identity("parent", "Tasks of one run of a workflow.")),
    *(
        filters.optional(params.text(name, what, 200))
        for name, what in (
            ("name", "A part of the name of the job."), ("owner", "Of the job."), ("node", "That runs or ran it."),
            ("queue", "In which it waits or runs."), ("task", "Its name in the workflow, with all items."),
        )
    ),
    filters.since("since", "Due since."),
    filters.since("until", "Due before."),
    params.CURSOR,
)  # fmt: skip


class RunsPage:
    def __init__(self, services: Services, shell: Shell) -> None:
        self._jobs = services.jobs
        self._insight = services.insight
        self._shell = shell

    def operations(self) -> list[http.Operation]:
        return [
            http.Operation(
                "GET", "/runs", self.show, "pages", "The page of runs", HTML, params=ASKED, needs=Permission.READ
            )
        ]

    async def show(self, request: http.Request) -> http.Answer:
        args, now = request.args, await self._jobs.now()
        zone = self._shell.zone_of(request)
        due = [filters.moment_of(args[name], now, zone) for name in ("since", "until")]
        org = http.principal(request).bound_to
        queue_id = (await self._jobs.queues.get(args["queue"], org)).id if args["queue"] else None
        where = model.RunFilter(
            job_id=args["job"], states=args["state"], due_from=due[0], due_until=due[1],
            org=http.principal(request).bound_to, name=args["name"], owner=args["owner"],
            nodes=(args["node"],) if args["node"] else (), queue_id=queue_id,
            parent_id=args["parent"], task=args["task"], tasks=args["task"] is not None,
        )  # fmt: skip
        page = await self._jobs.list_runs(where, args["cursor"], SHOWN)
        names = await self._insight.job_names(run.job_id for run in page.items)
        shown: dict[str, Any] = {
            "runs": [render.run(run, names.get(run.job_id)) for run in page.items], "asked": args,
            "states": [state.word for state in model.State], "chosen": {state.word for state in args["state"]},
            "ended": all(state.is_terminal for state in args["state"]),
            "live": not any(state.is_terminal for state in args["state"]),
            "older": _address(args, page.cursor), "api": _query(args, due), "where": _where(args, due),
            "filtered": any(value for name, value in args.items() if name != "cursor"), "spans": list(filters.AGO),
        }  # fmt: skip
        return self._shell.page(request, "runs.html", **shown)


def _address(args: dict[str, Any], cursor: str | None) -> str | None:
    """Return where the page goes on; None at its end."""
    if cursor is None:
        return None
    kept = [(name, value) for name, value in args.items() if value and name not in ("state", "cursor")]
    return "/runs?" + urlencode([*(("state", state.word) for state in args["state"]), *kept, ("cursor", cursor)])


def _query(args: dict[str, Any], due: list[int | None]) -> str:
    """Return the same question to the API, for the script."""
    asked = {
        "state": ",".join(state.word for state in args["state"]), "job_id": args["job"], "name": args["name"],
        "owner": args["owner"], "node": args["node"], "queue": args["queue"], "due_from": render.when(due[0]),
        "due_until": render.when(due[1]), "parent": args["parent"], "task": args["task"],
        "tasks": "true" if args["task"] else None,
    }  # fmt: skip
    return urlencode({name: value for name, value in asked.items() if value} | {"limit": SHOWN})


def _where(args: dict[str, Any], due: list[int | None]) -> dict[str, Any]:
    """Return the same for what is done with all that were found."""
    found = {
        "job": args["job"], "name": args["name"], "owner": args["owner"], "node": args["node"], "queue": args["queue"],
        "due_from": render.when(due[0]), "due_until": render.when(due[1]),
        "state": [state.word for state in args["state"]],
    }  # fmt: skip
    return {name: value for name, value in found.items() if value}
