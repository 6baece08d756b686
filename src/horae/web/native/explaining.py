"""Why, under /v1: explanations of jobs, triggers and runs."""

from __future__ import annotations

from horae.core.insight.why.explain import Explanation
from horae.core.roles import Permission
from horae.core.time.moments import read_clock
from horae.schemas import explanations
from horae.service import Services
from horae.web import http, params, render


def _read_at(text: str) -> str:
    """Return the text: what it means is for each trigger to say. What is no moment at all is refused here."""
    read_clock(text)
    return text


_AT = params.Param(
    "at",
    "Why it did or did not run at this moment: RFC 3339; without an offset, as clocks in the trigger's zone show it.",
    {"type": "string", "examples": ["2027-03-28T02:30:00Z", "2027-03-28T02:30"]},
    _read_at,
)


class Explaining:
    """The endpoints of explanations."""

    def __init__(self, services: Services) -> None:
        self._explaining = services.explaining

    def operations(self) -> list[http.Operation]:
        op, tag, shown = http.Operation, "explain", "Explanation"
        job, trigger, run = (f"/v1/explain/{name}s/{{{name}_id}}" for name in ("job", "trigger", "run"))
        return [
            op(
                "GET", job, self.job, tag, "Why a job does or does not run", shown, params=(_AT,), needs=Permission.READ
            ),
            op(
                "GET",
                trigger,
                self.trigger,
                tag,
                "Why a trigger fires or does not",
                shown,
                params=(_AT,),
                needs=Permission.READ,
            ),
            op("GET", run, self.run, tag, "Why a run waits, or ended as it did", shown, needs=Permission.READ),
        ]

    async def job(self, request: http.Request) -> http.Answer:
        """Of a moment that has no record and never will have one, it says why, and which moments are nearest."""
        at = request.args["at"]
        return http.reply(200, shown(await self._explaining.job(request.path_id("job_id"), at), at))

    async def trigger(self, request: http.Request) -> http.Answer:
        at = request.args["at"]
        return http.reply(200, shown(await self._explaining.trigger(request.path_id("trigger_id"), at), at))

    async def run(self, request: http.Request) -> http.Answer:
        """What it waits for and what would let it go on; which agent could take it, and why the others cannot; or how
        it ended, what its attempts came to, and which part of it was late."""
        return http.reply(200, shown(await self._explaining.run(request.path_id("run_id"))))


def shown(it: Explanation, at: str | None = None) -> explanations.Explanation:
    sentences = [
        explanations.Sentence(one.code, one.text, one.data, one.policy or None, one.unblock or None, one.page)
        for one in it.sentences
    ]
    return explanations.Explanation(
        it.about,
        it.id,
        it.job_id,
        it.job_name,
        it.run_id,
        at,
        render.stamp(it.as_of),
        render.when(it.next_at),
        sentences,
    )
