"""Horae as a CI server (source document 1): a YAML file makes jobs, each with its history and its last log.

Added to the document: the log and the files of every execution at the addresses that its history names (executions.py),
a user's jobs and the deletion of one, which the text speaks of without a route, and logout.
"""

from __future__ import annotations

from functools import partial
from urllib.parse import parse_qsl

from horae.contracts.ci import reading, rendering
from horae.contracts.ci.executions import Executions, older
from horae.core.model import Job, JobFilter, Json
from horae.core.roles import Permission
from horae.errors import Denied, Malformed, Unauthenticated
from horae.service import Services
from horae.service.access import SESSION
from horae.service.access.credentials import is_ours
from horae.service.access.owners import may_see
from horae.web import documents, http, multipart, params
from horae.web.sessions import origin_of
from horae.web.streams import Streams

COOKIE = "session"
USER_JOBS = 100  # in one answer, unless asked otherwise
_FORM = "application/x-www-form-urlencoded"


def _token(request: http.Request) -> str | None:
    sent = http.bearer(request)
    return sent if sent is not None else http.cookie(request, COOKIE)


_USER_JOBS = (
    params.text("user_id", "Whose jobs: one's own if not given. Only the operator may ask for those of others.", 128),
    params.number("limit", "How many jobs at most.", 1, 1000, USER_JOBS),
    params.CURSOR,
)


class Ci:
    def __init__(self, services: Services, streams: Streams) -> None:
        self._services = services
        self._executions = Executions(services, streams)

    def operations(self) -> list[http.Operation]:
        op = partial(http.Operation, tag="ci", shape=rendering.SHAPE, is_lenient=True, credential=_token, scope=SESSION)
        api, json = "/api/v1/", "application/json"
        return [
            op("POST", api + "login", self.login, summary="Log in with a token", gives=json, is_open=True,
               credential=http.no_credential, headers={"Set-Cookie": "The session."}),
            op("POST", api + "logout", self.logout, summary="End the session", gives=json,
               headers={"Set-Cookie": "Takes the session away."}, needs=Permission.READ),
            op("POST", api + "submit_job", self.submit, summary="Make the jobs of a YAML file", gives=json, status=201,
               params=(params.IDEMPOTENCY,), errors=(403, 409, 413, 415), needs=Permission.WRITE),
            op("GET", api + "user_jobs", self.user_jobs, summary="List a user's jobs, newest first", gives=json,
               params=_USER_JOBS, headers={"Link": "Where older ones are."}, errors=(403,), needs=Permission.READ),
            op("GET", api + "job_status/{job_id}", self.status, summary="Tell how a job stands", gives=json,
               errors=(403,), needs=Permission.READ),
            op("DELETE", api + "job/{job_id}", self.delete, summary="Delete a job", gives=json, errors=(403,),
               needs=Permission.WRITE),
            *self._executions.operations(op),
        ]  # fmt: skip

    def areas(self) -> list[http.Area]:
        own = ("/api/v1", "/api/v1/job")  # the second is the administration's too, but what lies below is not
        return [http.Area(prefix, rendering.SHAPE, _token, SESSION) for prefix in own]

    # ── login ──

    async def login(self, request: http.Request) -> http.Answer:
        """Takes a user token, as `{"token": "…"}` or as a form, or `username` and `password` of a local user, and opens
        a session, which the cookie `session` names. Who needs no token needs none here."""
        sent = _read_login(await request.read(), request.header(b"content-type") or "")
        token = sent.get("token")
        if "username" in sent and "password" in sent:
            user = await self._services.logins.prove(sent["username"], sent["password"], http.address_of(request))
            name, session = user.name, await self._services.logins.open(user, origin_of(request))
        elif request.who is not None and (token is None or not is_ours(token)):
            return http.reply(200, {"user": request.who.name})
        else:
            known = await self._services.access.check(token, "user", http.address_of(request))
            name, session = known.owner, await self._services.access.open_session(known, origin_of(request))
        seconds = self._services.access.sessions.limits.absolute
        cookie = f"{COOKIE}={session}; Max-Age={seconds:.0f}; HttpOnly; SameSite=Strict; Path=/{_secure(request)}"
        return http.reply(200, {"user": name}, [(b"set-cookie", cookie.encode())])

    async def logout(self, request: http.Request) -> http.Answer:
        """Ends the session of the cookie, here at once and on every node within seconds. A token stays good."""
        if (text := _token(request)) is not None:
            await self._services.access.sessions.leave(text)
        gone = f"{COOKIE}=; Max-Age=0; HttpOnly; SameSite=Strict; Path=/{_secure(request)}"
        return http.reply(200, {"user": http.principal(request).name}, [(b"set-cookie", gone.encode())])

    # ── jobs ──

    async def submit(self, request: http.Request) -> http.Answer:
        """Takes a YAML file with one or more jobs under `jobs`, as it is or as the file of a form: all of them are
        made, or none. The answer says for each how its schedule was read, and when it runs next."""
        body = await request.read()
        kind = request.header(b"content-type")
        file = multipart.read_file(body, kind or "") if multipart.is_form(kind) else body
        wanted = reading.read_jobs(file)
        who = http.principal(request)
        done = await self._services.jobs.submit(
            [one.draft for one in wanted], owner=who.name, org=who.org, idempotency=request.idempotency(file)
        )
        jobs = [_submitted(job, one) for job, one in zip(done.jobs, wanted, strict=True)]
        ids = [job.id for job in done.jobs]
        return http.reply(201, {"job_id": ids[0], "job_ids": ids, "jobs": jobs})

    async def user_jobs(self, request: http.Request) -> http.Answer:
        """Return those that were not deleted, however they were made."""
        who, limit = http.principal(request), request.args["limit"]
        user = request.args["user_id"] or who.name
        if not may_see(user, who.name):
            raise Denied("the jobs of another user are not shown", code="E_NOT_OWNER", hint="leave user_id out")
        page = await self._services.jobs.list(JobFilter(org=who.org, owner=user), request.args["cursor"], limit)
        standing = await self._services.jobs.standing([job.id for job in page.items])
        rows = [rendering.user_job(job, standing[job.id], reading.schedule_of(job)) for job in page.items]
        asked = {"user_id": user} if user != who.name else {}
        return http.reply(200, rows, older(request, page.cursor, limit=limit, **asked))

    async def status(self, request: http.Request) -> http.Answer:
        job = await self._job(request)
        standing = (await self._services.jobs.standing([job.id]))[job.id]
        latest = standing.latest
        earlier = (await self._executions.earlier([latest]))[latest.id] if latest else []
        return http.reply(200, rendering.status(job, standing, earlier))

    async def delete(self, request: http.Request) -> http.Answer:
        """It runs no more and what runs of it is cancelled; its history stays readable."""
        job = await self._job(request)
        await self._services.jobs.delete(job.id)
        return http.reply(200, {"job_id": job.id, "status": rendering.DELETED})

    async def _job(self, request: http.Request) -> Job:
        return await self._executions.job_of(request, request.path_id("job_id"))


def _secure(request: http.Request) -> str:
    return "; Secure" if request.scope.get("scheme") == "https" else ""


def _submitted(job: Job, wanted: reading.Wanted) -> Json:
    return {
        "job_id": job.id,
        "name": job.name,
        "schedule": wanted.schedule,
        "reading": wanted.reading,
        "next_execution_time": rendering.when(rendering.next_moment(job)),
    }


def _read_login(body: bytes, content_type: str) -> dict[str, str]:
    """Return the fields of a login. What they are not, nobody is told."""
    if not body.strip():
        return {}
    if content_type.partition(";")[0].strip().lower() == _FORM:
        try:
            return dict(parse_qsl(body.decode("latin-1"), max_num_fields=params.QUERY_LIMIT))
        except ValueError:
            raise Malformed("a form with the field token, or username and password, expected") from None
    sent = documents.read_json(body)
    fields = sent if isinstance(sent, dict) else {}
    known = {name: fields[name] for name in ("token", "username", "password") if fields.get(name) is not None}
    if not all(isinstance(value, str) for value in known.values()):
        raise Unauthenticated
    return known
