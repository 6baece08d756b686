"""Data is checked against the parameters of its handler before it is taken, as far as the handler can be seen here.

Where it cannot (its agents are elsewhere, or it did not answer in time), the data is taken, and the run refuses it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice

from horae.core.model import Job, Json
from horae.core.shapes import at, find_problems
from horae.core.work.specs import Draft
from horae.errors import MAX_PROBLEMS, Error, Invalid, Problem
from horae.ports.work import HandlerSchemas


class DataCheck:
    def __init__(self, schemas: HandlerSchemas | None) -> None:
        self._schemas = schemas

    async def check_drafts(self, drafts: Sequence[Draft]) -> None:
        """Refuse jobs whose data, or that of a trigger, does not fit."""
        names = {draft.spec["handler"] for draft in drafts if draft.kind == "python"}
        schemas = await self.load_schemas(names)
        if not schemas:
            return
        _refuse(
            problem
            for number, draft in enumerate(drafts)
            if draft.kind == "python" and draft.spec["handler"] in schemas
            for problem in _problems_of(draft, schemas[draft.spec["handler"]], f"jobs[{number}]" if drafts[1:] else "")
        )

    async def load_schemas(self, handlers: Collection[str]) -> Mapping[str, Json]:
        """Return what handlers say of their data, of those that can be seen here and say something."""
        return await self._schemas.load(handlers) if handlers and self._schemas is not None else {}

    async def schema_of(self, job: Job) -> Json | None:
        """Return what the data of a job's runs must be; None: anything goes, or nobody can say it here."""
        if job.kind != "python":
            return None
        handler = job.spec["handler"]
        return (await self.load_schemas((handler,))).get(handler)

    async def result_of(self, job: Job) -> Json | None:
        """Return what the result of a job's runs is; None: anything, or nobody can say it here."""
        if job.kind != "python" or self._schemas is None:
            return None
        return await self._schemas.load_result(job.spec["handler"])

    async def check_run(self, job: Job, data: Json | None) -> None:
        """Refuse data with which a job cannot run; without any, it has its own."""
        schema = await self.schema_of(job)
        if schema is not None and (error := refusal(schema, job.spec.get("data", {}) if data is None else data)):
            raise error


def refusal(schema: Json, data: Json) -> Error | None:
    """Return why a run cannot have this data, if it cannot."""
    found = list(islice(find_problems(schema, data, "data"), MAX_PROBLEMS + 1))
    return Invalid.of(found) if found else None


def _problems_of(draft: Draft, schema: Json, path: str) -> Iterator[Problem]:
    """A job without data of its own may be meant to get some by hand; but a trigger without any gives it none."""
    own = draft.spec.get("data")
    if own is not None or any(trigger.data is None for trigger in draft.triggers):
        yield from find_problems(schema, own or {}, at(path, "data"))
    for number, trigger in enumerate(draft.triggers):
        if trigger.data is not None:
            yield from find_problems(schema, trigger.data, at(path, "triggers", number, "data"))


def _refuse(problems: Iterator[Problem]) -> None:
    if found := list(islice(problems, MAX_PROBLEMS + 1)):
        raise Invalid.of(found)
