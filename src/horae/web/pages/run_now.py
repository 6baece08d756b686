"""The page on which somebody runs a job with data of their own. It works without a script; with one, the page of the
job shows its form."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping
from urllib.parse import parse_qsl

from horae.core.definitions import Idempotency
from horae.core.jobdata import MAX_DATA
from horae.core.model import Job
from horae.core.roles import Permission
from horae.errors import Error, Malformed
from horae.service import Services
from horae.web import auditing, http, render
from horae.web.native.bodies import read_run
from horae.web.pages.run_form import Field, fields_of, filled, problems_by_field, read
from horae.web.pages.shell import HTML, Shell, refused

FORM_BYTES = 4 * MAX_DATA  # in a form, a character may take as many bytes as three
MOST_FIELDS = 1000


class RunNowPage:
    def __init__(self, services: Services, shell: Shell) -> None:
        self._jobs, self._audit = services.jobs, services.audit
        self._shell = shell

    def operations(self) -> list[http.Operation]:
        op, path, run = http.Operation, "/jobs/{job_id}/run", Permission.RUN
        return [
            op("GET", path, self.show, "pages", "The page to run a job with data", HTML, needs=run),
            op("POST", path, self.run, "pages", "Run a job with data, by a form", HTML, also={303: ""},
               errors=(409, 413), needs=run),
        ]  # fmt: skip

    async def show(self, request: http.Request) -> http.Answer:
        job = await self._jobs.get(request.path_id("job_id"))
        return self._page(request, job, await self._fields(request, job))

    async def run(self, request: http.Request) -> http.Answer:
        """Takes a form whose fields are named by their place in the data, such as `data.count`. Sent twice, it acts
        once; what is wrong is said beside its field."""
        body = await request.read(FORM_BYTES)
        job = await self._jobs.get(request.path_id("job_id"))
        fields, sent = await self._fields(request, job), _read_form(body)
        try:
            data = read(fields, sent, self._shell.zone_of(request))
            document = {} if data is None else {"data": data}
            made = await self._jobs.orders.place(read_run(document, job.id, _promise(request, body)))
        except Error as error:
            if not http.wants_page(request):
                raise
            await auditing.note_page(self._audit, error, request)
            return refused(self._page(request, job, filled(fields, sent), error), error)
        return http.Reply(303, headers=[(b"location", b"/runs/%d" % made.id)])

    async def _fields(self, request: http.Request, job: Job) -> list[Field]:
        own = render.job(job).spec.get("data", {})
        return fields_of(await self._jobs.data.schema_of(job), own, self._shell.zone_of(request))

    def _page(self, request: http.Request, job: Job, fields: list[Field], error: Error | None = None) -> http.Reply:
        wrong = {} if error is None else problems_by_field(fields, error)
        return self._shell.page(
            request, "job_run.html", job=render.job(job), fields=fields, wrong=wrong, once=secrets.token_urlsafe(12)
        )


def _promise(request: http.Request, body: bytes) -> Idempotency:
    """The form has a number of its own: what is sent twice is the same order."""
    digest = hashlib.sha256(body).hexdigest()
    return Idempotency(f"{http.principal(request).scope} POST {request.scope['path']}", digest, digest)


def _read_form(body: bytes) -> Mapping[str, str]:
    try:
        return dict(
            parse_qsl(body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=MOST_FIELDS)
        )
    except ValueError:
        raise Malformed(f"a form of at most {MOST_FIELDS} fields expected") from None
