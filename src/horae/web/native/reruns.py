"""Runs that are run again or cancelled by the many, under /v1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import UNSET, UnsetType, convert

from horae import schemas
from horae.core import model
from horae.core.fields import Fields
from horae.core.roles import Permission
from horae.errors import Error
from horae.schemas import views
from horae.service import Services
from horae.service.jobs.orders import Asker
from horae.service.jobs.reruns import MAX_RUNS, Answered
from horae.web import http, params, render
from horae.web.native.bodies import read_fields, read_job_name, read_moment
from horae.web.native.chosen import read_chosen, read_states

RERUN_EXAMPLE = {"where": {"state": ["failed"], "due_from": "2027-03-28T00:00:00Z"}}
CANCEL_EXAMPLE = {"where": {"state": ["queued"], "owner": "ann"}, "dry_run": True}
ENDED = {state.word: state for state in model.State if state.is_terminal}
LIVE = {state.word: state for state in model.State if not state.is_terminal}
UNLESS_SAID = (model.State.FAILED, model.State.TIMED_OUT)
_WHERE = frozenset({"job", "state", "due_from", "due_until", "node", "attempted_by", "owner", "name", "queue"})


class Reruns:
    """The endpoint."""

    def __init__(self, services: Services) -> None:
        self._jobs = services.jobs
        self._insight = services.insight

    def operations(self) -> list[http.Operation]:
        return [
            http.Operation("POST", "/v1/runs/rerun", self.rerun, "runs", "Run runs again", "RerunAnswers",
                           params=(params.IDEMPOTENCY,), body=http.Body("RerunRequest", RERUN_EXAMPLE), errors=(409,),
                           needs=Permission.RUN),
            http.Operation("POST", "/v1/runs/cancel", self.cancel, "runs", "Cancel runs", "CancelAnswers",
                           body=http.Body("CancelRequest", CANCEL_EXAMPLE), errors=(409,), needs=Permission.CANCEL),
        ]  # fmt: skip

    async def rerun(self, request: http.Request) -> http.Answer:
        """Each with the data and the priority that it had; up to 10,000, named by `runs` or found by `where`: those
        that failed or timed out, unless `state` says otherwise. The job's overlap policy holds for each. `dry_run`
        answers with the runs that would be run again. With an Idempotency-Key, a repeat runs none a second time."""
        fields = read_fields(await request.document(), "runs", "where", "dry_run")
        asker = _asker(request)
        ids, is_dry = await self._read(fields, asker, ENDED, UNLESS_SAID)
        found = await self._jobs.reruns.load(ids, asker)
        if not is_dry:
            who = http.principal(request)
            scope, key = f"{who.scope} POST /v1/runs/rerun", request.idempotency_key()
            found = await self._jobs.reruns.run_again(found, asker, scope, key)
        names = await self._names(found)
        return http.reply(200, schemas.RerunAnswers([schemas.Rerun(*_shown(it, names, request.id)) for it in found]))

    async def cancel(self, request: http.Request) -> http.Answer:
        """Up to 10,000, named by `runs` or found by `where`: all that have not ended, unless `state` says otherwise.
        What waits has ended with the answer; what runs, as soon as its processes are gone. `dry_run` answers with the
        runs that would be cancelled. A repeat cancels what is left."""
        fields, asker = read_fields(await request.document(), "runs", "where", "dry_run"), _asker(request)
        ids, is_dry = await self._read(fields, asker, LIVE, tuple(LIVE.values()))
        found = await self._jobs.cancels.load(ids, asker)
        if not is_dry:
            found = await self._jobs.cancels.cancel(found, http.principal(request).name)
        names = await self._names(found)
        return http.reply(200, views.CancelAnswers([views.Cancel(*_shown(it, names, request.id)) for it in found]))

    async def _read(
        self, fields: Fields, asker: Asker, states: Mapping[str, model.State], unless_said: tuple[model.State, ...]
    ) -> tuple[list[int], bool]:
        """Return which runs are meant, and whether that is all that is asked."""
        asked = read_chosen(fields, "runs", MAX_RUNS, lambda where: _read_where(where, states, unless_said))
        fields.problems.raise_any()
        return asked.ids if asked.where is None else await self._find(asked.where, asker), asked.is_dry

    async def _names(self, found: Sequence[Answered]) -> Mapping[int, str]:
        runs = [each.answer for each in found if isinstance(each.answer, model.Run)]
        return await self._insight.job_names(run.job_id for run in runs)

    async def _find(self, where: model.Json, asker: Asker) -> list[int]:
        job_id = await self._jobs.orders.find_job(where["job"], asker) if where["job"] is not None else None
        states, org = where["state"], asker.org if asker.is_bound else None
        nodes = (where["node"],) if where["node"] is not None else ()
        queue = where["queue"]
        queue_id = (await self._jobs.queues.get(queue, org)).id if queue is not None else None
        return await self._jobs.reruns.find(
            model.RunFilter(job_id, None, states, where["due_from"], where["due_until"], org, nodes=nodes,
                            attempted_by=where["attempted_by"], tasks=where["attempted_by"] is not None,
                            owner=where["owner"], name=where["name"], queue_id=queue_id)
        )  # fmt: skip


def _asker(request: http.Request) -> Asker:
    who = http.principal(request)
    return Asker(who.name, who.org, is_bound=not who.is_local)


def _shown(
    it: Answered, names: Mapping[int, str], request_id: str
) -> tuple[int, schemas.Run | UnsetType, schemas.Problem | UnsetType]:
    """Return the fields of an answer for one run, in their order."""
    if isinstance(it.answer, Error):
        return it.run_id, UNSET, convert(http.problem_of(it.answer, request_id), schemas.Problem)
    return it.run_id, render.run(it.answer, names.get(it.answer.job_id)), UNSET


def _read_where(fields: Fields, states: Mapping[str, model.State], unless_said: tuple[model.State, ...]) -> model.Json:
    fields.refuse_others(_WHERE)
    job = read_job_name(fields) if "job" in fields.values else None
    if "queue" in fields.values and states is ENDED:
        fields.fault("queue", "E_FIELD_CONFLICT", "runs that have ended are in no queue",
                     "leave queue out, and say which by job, owner or name")  # fmt: skip
    return {
        "job": job, "state": read_states(fields, states) or unless_said, "node": fields.text("node"),
        "attempted_by": fields.text("attempted_by"), "owner": fields.text("owner"), "name": fields.text("name"),
        "queue": fields.text("queue"),
        "due_from": read_moment(fields, "due_from"), "due_until": read_moment(fields, "due_until"),
    }  # fmt: skip
