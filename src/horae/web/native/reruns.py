"""Runs that are run again, under /v1."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import convert

from horae import schemas
from horae.core import model
from horae.core.fields import Fields, fields_of, kind_of, type_words
from horae.core.roles import Permission
from horae.errors import Error
from horae.service import Services
from horae.service.jobs.orders import Asker
from horae.service.jobs.reruns import MAX_RUNS, Again
from horae.web import http, params, render
from horae.web.native.bodies import read_fields, read_job_name, read_moment

RERUN_EXAMPLE = {"where": {"state": ["failed"], "due_from": "2027-03-28T00:00:00Z"}}
ENDED = {state.word: state for state in model.State if state.is_terminal}
UNLESS_SAID = (model.State.FAILED, model.State.TIMED_OUT)
_WHERE = frozenset({"job", "state", "due_from", "due_until", "node"})


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
        ]  # fmt: skip

    async def rerun(self, request: http.Request) -> http.Answer:
        """Each with the data and the priority that it had; up to 10,000, named by `runs` or found by `where`: those
        that failed or timed out, unless `state` says otherwise. The job's overlap policy holds for each. `dry_run`
        answers with the runs that would be run again. With an Idempotency-Key, a repeat runs none a second time."""
        fields = read_fields(await request.document(), "runs", "where", "dry_run")
        ids, where = _read_ids(fields), _read_where(fields)
        is_dry = fields.flag("dry_run")
        fields.problems.raise_any()
        who = http.principal(request)
        asker = Asker(who.owner, who.org, is_bound=request.token is not None)
        if where is not None:
            ids = await self._find(where, asker)
        found = await self._jobs.reruns.load(ids, asker)
        if not is_dry:
            scope, key = f"{who.owner} POST /v1/runs/rerun", request.idempotency_key()
            found = await self._jobs.reruns.run_again(found, asker, scope, key)
        names = await self._insight.job_names(
            each.answer.job_id for each in found if isinstance(each.answer, model.Run)
        )
        return http.reply(200, schemas.RerunAnswers([_shown(each, names, request.id) for each in found]))

    async def _find(self, where: model.Json, asker: Asker) -> list[int]:
        job_id = await self._jobs.orders.find_job(where["job"], asker) if where["job"] is not None else None
        states, org = where["state"], asker.org if asker.is_bound else None
        nodes = (where["node"],) if where["node"] is not None else ()
        return await self._jobs.reruns.find(
            model.RunFilter(job_id, None, states, where["due_from"], where["due_until"], org, nodes=nodes)
        )


def _shown(again: Again, names: Mapping[int, str], request_id: str) -> schemas.Rerun:
    if isinstance(again.answer, Error):
        return schemas.Rerun(again.run_id, error=convert(http.problem_of(again.answer, request_id), schemas.Problem))
    return schemas.Rerun(again.run_id, run=render.run(again.answer, names.get(again.answer.job_id)))


def _read_ids(fields: Fields) -> list[int]:
    if "where" in fields.values and "runs" in fields.values:
        fields.fault("where", "E_FIELD_CONFLICT", "runs are named one by one already", "keep one of them")
    elif "where" not in fields.values:
        fields.require("runs", "which runs? give their ids as runs, or where")
    ids = fields.items("runs", MAX_RUNS, "runs", least=1)
    for number, run_id in enumerate(ids):
        if type(run_id) is not int or not 1 <= run_id <= model.LARGEST_ID:
            fields.problems.add(
                f"runs[{number}]", "E_TYPE", *type_words("must be a whole number, the id of a run", run_id)
            )
    return list(dict.fromkeys(run_id for run_id in ids if type(run_id) is int))


def _read_where(fields: Fields) -> model.Json | None:
    if "where" not in fields.values:
        return None
    inner = fields_of(fields.values["where"], "where", fields.problems, "must be an object")
    if inner is None:
        return None
    inner.refuse_others(_WHERE)
    job = read_job_name(inner) if "job" in inner.values else None
    return {
        "job": job, "state": _read_states(inner), "node": inner.text("node"),
        "due_from": read_moment(inner, "due_from"), "due_until": read_moment(inner, "due_until"),
    }  # fmt: skip


def _read_states(fields: Fields) -> tuple[model.State, ...]:
    if "state" not in fields.values:
        return UNLESS_SAID
    words = fields.items("state", len(ENDED), "states", least=1)
    for word in words:
        if type(word) is not str or word not in ENDED:
            got = repr(word[:60]) if isinstance(word, str) else kind_of(word)
            fields.fault("state", "E_ENUM", f"one of {', '.join(ENDED)}, got {got}")
            return UNLESS_SAID
    return tuple(ENDED[word] for word in words) or UNLESS_SAID
