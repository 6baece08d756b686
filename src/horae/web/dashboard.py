"""The pages (overview, one run, documentation) and what machines ask of a process (health, metrics).

Pages are rendered here once and kept fresh by a small script that reads the native API. Templates escape
everything; no page loads anything from elsewhere, and the policy header forbids it to.
"""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any, NamedTuple

import jinja2
from markupsafe import Markup, escape

from horae import schemas
from horae.core import model
from horae.core.insight.why.codes import CODES as EXPLAINED
from horae.core.insight.why.codes import PAGE
from horae.core.time import moments
from horae.core.work.progress import progress_words, share_done
from horae.core.workflows.picture import picture
from horae.core.workflows.progress import split_label
from horae.errors import CODES, Error, NotFound
from horae.service import Services
from horae.service.jobs.signals import approval_of
from horae.web import http, openapi, render
from horae.web.drawings import draw
from horae.web.native.cluster import Cluster
from horae.web.native.signals import decider

_HERE = Path(__file__).parent
_HTML = b"text/html; charset=utf-8"
_TYPES = {
    ".css": b"text/css; charset=utf-8",
    ".js": b"text/javascript; charset=utf-8",
    ".svg": b"image/svg+xml",
}
_ALIVE = http.encode(schemas.Health("ok"))
LATEST = 20  # runs on the page of a job
METRICS_TYPE = b"text/plain; version=0.0.4; charset=utf-8"


class Question(NamedTuple):
    """A decision for which a run waits."""

    run_id: int
    task: str | None  # of the run that is looked at; None: it waits itself
    message: str
    by: list[str]  # who may decide,
    may: bool  # and whether whoever looks is one of them
    until: str | None
    otherwise: str  # what happens then


class Dashboard:
    """Everything outside /v1."""

    def __init__(self, services: Services, cluster: Cluster, api: openapi.Api, version: str) -> None:
        self._jobs = services.jobs
        self._insight = services.insight
        self._explaining = services.explaining
        self._cluster = cluster
        self._api = api
        self._health = http.encode(schemas.Health("ok", version, services.insight.node))
        self._pages = _environment(version)
        self._assets = {path.name: _asset(path) for path in (_HERE / "static").iterdir()}

    def operations(self) -> list[http.Operation]:
        op, page = http.Operation, "text/html"
        return [
            op("GET", "/", self.overview, "pages", "The overview page", page),
            op("GET", "/jobs/{job_id}", self.job, "pages", "The page of one job", page),
            op("GET", "/runs/{run_id}", self.run, "pages", "The page of one run", page),
            op("GET", "/docs", self.docs, "pages", "This documentation", page),
            op("GET", PAGE, self.explain, "pages", "What explanations mean", page),
            op("GET", "/openapi.json", self.openapi, "pages", "The OpenAPI document", "application/json"),
            op("GET", "/static/{name}", self.asset, "pages", "A file that the pages use", "*/*", also={304: ""},
               is_open=True, credential=http.no_credential),
            op("GET", "/healthz", self.healthz, "process", "Whether the process is alive", "Health", is_open=True),
            op("GET", "/readyz", self.readyz, "process", "Whether it can do its work", "Readiness",
               also={503: "Readiness"}, is_open=True),
            op("GET", "/metrics", self.metrics, "process", "Measurements for Prometheus", "text/plain"),
        ]  # fmt: skip

    # ── pages ──

    async def overview(self, request: http.Request) -> http.Answer:
        return self._page(
            request, "overview.html", seen=await self._cluster.read_overview(), warnings=self._insight.warnings
        )

    async def run(self, request: http.Request) -> http.Answer:
        run = await self._jobs.limits.explain(await self._jobs.get_run(request.path_id("run_id")))
        job, workflow = await self._jobs.get(run.job_id), await self._jobs.tasks.of_run(run)
        questions = await self._questions(request, run) if run.state is model.State.BLOCKED else []
        asking = {split_label(question.task)[0] for question in questions if question.task}
        drawing = None if workflow is None else draw(picture(workflow[0], workflow[1].counts), asking, is_run=True)
        why = (await self._explaining.of_run(run)).sentences
        shown = {"run": render.run(run), "job": render.job(job), "drawing": drawing, "questions": questions, "why": why}
        return self._page(request, "run.html", **shown)

    async def _questions(self, request: http.Request, run: model.Run) -> list[Question]:
        """What a run, or a task of it, waits for somebody to decide."""
        who = decider(request)
        return [
            Question(
                it.id, None if it.id == run.id else it.task, asked.get("message", ""), asked["by"],
                may=who.may(asked), until=render.when(it.eligible_at),
                otherwise=job.spec["wait"].get("otherwise", "fail"),
            )
            for it, job in await self._jobs.signals.approvals_of(run)
            if (asked := approval_of(job)) is not None
        ]  # fmt: skip

    async def job(self, request: http.Request) -> http.Answer:
        job = await self._jobs.get(request.path_id("job_id"))
        drawing = draw(picture(job.spec), is_run=False) if "tasks" in job.spec else None
        latest = (await self._jobs.list_runs(model.RunFilter(job_id=job.id), limit=LATEST)).items
        at = moments.format_moment(self._insight.now())
        why = (await self._explaining.of_job(job)).sentences
        shown = [render.run(run) for run in latest]
        return self._page(request, "job.html", job=render.job(job), runs=shown, at=at, drawing=drawing, why=why)

    async def docs(self, request: http.Request) -> http.Answer:
        document = self._api.document
        return self._page(request, "docs.html", document=document, groups=_grouped(document), codes=CODES)

    async def explain(self, request: http.Request) -> http.Answer:
        return self._page(request, "explain.html", codes=EXPLAINED.values())

    async def openapi(self, request: http.Request) -> http.Answer:
        return http.reply(200, self._api.document)

    async def asset(self, request: http.Request) -> http.Answer:
        found = self._assets.get(request.scope["path_params"]["name"])
        if found is None:
            raise NotFound("there is no such file")
        body, kind, tag = found
        headers = [(b"etag", tag)]
        if request.header(b"if-none-match") == tag.decode():
            return http.Reply(304, headers=headers, about=http.ASSET)
        return http.Reply(200, body, kind, headers, http.ASSET)

    def login(self, error: Error | None, following: str, *, was_tried: bool = True) -> http.Reply:
        """Return the form; who has tried to log in is told why that was refused."""
        answer = self._page(None, "login.html", error=error if was_tried else None, following=following)
        if error is None:
            return answer
        return http.Reply(error.status, answer.body, _HTML, http.extra_headers(error), http.PAGE)

    def _page(self, request: http.Request | None, template: str, **values: Any) -> http.Reply:
        """`request` says who looks."""
        who, has_session = (None, False) if request is None else (request.who, request.has_session)
        shown = {**values, "who": who, "has_session": has_session}
        body = self._pages.get_template(template).render(shown).encode("utf-8", "replace")
        return http.Reply(200, body, _HTML, about=http.PAGE)

    # ── the process ──

    async def healthz(self, request: http.Request) -> http.Answer:
        """Answers without looking at anything else. Strangers learn `status` only."""
        return http.Reply(200, self._health if request.who else _ALIVE)

    async def readyz(self, request: http.Request) -> http.Answer:
        """503 names the check that failed. Strangers learn `ready` only, and not of the last two seconds."""
        if request.who is None:
            is_ready = await self._insight.is_ready()
            return http.reply(200 if is_ready else 503, schemas.Readiness(is_ready, {}))
        found = await self._insight.readiness()
        return http.reply(200 if found.ready else 503, schemas.Readiness(found.ready, found.checks))

    async def metrics(self, request: http.Request) -> http.Answer:
        return http.Reply(200, await self._insight.metrics(), METRICS_TYPE)


def _asset(path: Path) -> tuple[bytes, bytes, bytes]:
    body = path.read_bytes()
    return body, _TYPES[path.suffix], b'"%b"' % hashlib.sha256(body).hexdigest()[:16].encode()


# ── what templates can say ─────────────────────────────────────────────────────────────────────────


def _environment(version: str) -> jinja2.Environment:
    pages = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    pages.globals["version"] = version
    pages.filters.update(
        span=span,
        took=took,
        away=away,
        clock=clock,
        ticks=ticks,
        kind=_schema_words,
        progress=_progress,
        share=_share,
    )
    return pages


def _progress(it: schemas.Progress | None) -> str:
    return "" if it is None else progress_words(render.plain(it))


def _share(it: schemas.Progress | None) -> float | None:
    return None if it is None else share_done(render.plain(it))


def span(ms: float | None) -> str:
    """Milliseconds as people say them: 340 ms, 2.1 s, 3 min 20 s, 5 h 12 min."""
    if ms is None:
        return "–"
    if abs(ms) < 1000:
        return f"{ms:.0f} ms"
    seconds = ms / 1000
    if abs(seconds) < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"


def took(run: schemas.Run, now: str) -> str:
    """Return how long a run has taken, so far or in all."""
    if run.started_at is None:
        return "–"
    end = moments.parse_moment(run.finished_at or now)
    return span(max(0, end - moments.parse_moment(run.started_at)) / 1000)


def away(moment: str | None, now: str) -> str:
    """Return how far a moment is, in its largest unit: in 5 s, 3 min ago."""
    if moment is None:
        return "–"
    seconds = (moments.parse_moment(moment) - moments.parse_moment(now)) / 1_000_000
    far = abs(seconds)
    if far < 1:
        return "now"
    unit, word = next((unit, word) for unit, word in _UNITS if far >= unit)
    return f"in {far // unit:.0f} {word}" if seconds > 0 else f"{far // unit:.0f} {word} ago"


_UNITS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def clock(moment: str | None) -> str:
    """Return a moment to read: 2027-03-28 02:30:00.123 UTC."""
    if moment is None:
        return "–"
    return re.sub(r"(\.\d{3})\d*", r"\1", moment).replace("T", " ").replace("Z", " UTC")


def ticks(text: str) -> Markup:
    """Escaped text, with `this` set as code."""
    return Markup(re.sub("`([^`]+)`", r"<code>\1</code>", str(escape(text))))  # noqa: S704  escaped just before


# ── documentation ──────────────────────────────────────────────────────────────────────────────────


def _grouped(document: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Operations by tag, each with its method, path and an example call."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            shown = {**operation, "method": method.upper(), "path": path, "curl": _curl(method, path, operation)}
            groups.setdefault(operation["tags"][0], []).append(shown)
    return groups


def _curl(method: str, path: str, operation: dict[str, Any]) -> str:
    address = re.sub(r"{\w+_id}", "1", path).replace("{name}", "page.css")
    parts = ["curl -sS"] if method == "get" else [f"curl -sS -X {method.upper()}"]
    parts.append(f'"$HORAE{address}"')
    if "requestBody" in operation:
        example = operation["requestBody"]["content"]["application/json"]["example"]
        parts += ["-H 'Content-Type: application/json'", f"-d '{json.dumps(example)}'"]
    return " ".join(parts)


def _schema_words(schema: dict[str, Any]) -> str:
    """Return the type of a schema in a word or two."""
    if "$ref" in schema:
        return str(schema["$ref"]).rsplit("/", 1)[-1]
    if "enum" in schema:
        return " | ".join("null" if word is None else str(word) for word in schema["enum"])
    if "anyOf" in schema:
        return " or ".join(_schema_words(each) for each in schema["anyOf"])
    kind = schema.get("type", "any")
    if kind == "array":
        return f"list of {_schema_words(schema.get('items', {}))}"
    words = " or ".join(kind) if isinstance(kind, list) else str(kind)
    limits = _limits(schema)
    return f"{words} {limits}" if limits else words


def _limits(schema: dict[str, Any]) -> str:
    if "minimum" in schema and "maximum" in schema:
        most = "2⁶³−1" if schema["maximum"] == model.LARGEST_ID else schema["maximum"]
        return f"{schema['minimum']}…{most}"
    if "maxLength" in schema:
        return f"≤ {schema['maxLength']} characters"
    return f"({schema['format']})" if "format" in schema else ""
