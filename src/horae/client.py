"""The native HTTP API as Python calls: for the command line and for programs.

    async with Client("http://127.0.0.1:8080") as client:
        made = await client.submit({"name": "hello", "steps": [{"run": "echo hello"}]})
        run = await client.run_now(made["jobs"][0]["id"])
        run = await client.wait(run["id"])

Answers are the JSON of the API, as dictionaries. What the server refuses is raised as the same error of
horae.errors that the server raised, so both ends speak of a fault in the same words. A call is repeated
after a broken connection only if repeating cannot act twice: reads, and writes with an Idempotency-Key.
"""

from __future__ import annotations

import asyncio
import json
import re
import secrets
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import quote, urlsplit

import httpx

from horae.errors import (
    Conflict,
    Denied,
    Error,
    Invalid,
    Limited,
    Malformed,
    MediaType,
    NotFound,
    Problem,
    Stale,
    TooLarge,
    Unauthenticated,
    Unavailable,
)
from horae.values import is_loopback

Json = dict[str, Any]

DEFAULT_URL = "http://127.0.0.1:8080"
PAGE = 1000  # most items the server gives at once
PAUSES = (0.1, 0.3)  # seconds before each repetition of a call
PATIENCE = 10  # broken streams in a row before following gives up
ROTATION = 3600.0  # seconds for all secrets to be sealed anew
SILENCE = 60.0  # seconds without even a heartbeat after which a stream counts as broken

_BY_STATUS: Final[dict[int, type[Error]]] = {
    400: Malformed,
    401: Unauthenticated,
    403: Denied,
    404: NotFound,
    409: Conflict,
    412: Stale,
    413: TooLarge,
    415: MediaType,
    422: Invalid,
    429: Limited,
    502: Unavailable,
    503: Unavailable,
    504: Unavailable,
}


@dataclass(frozen=True, slots=True)
class Event:
    """One message of a followed run: `log` {offset, text}, `state` {run} or, at last, `end` {run}."""

    name: str
    data: Json
    id: str | None  # the byte offset to go on from


def server_url(text: str, *, insecure: bool = False) -> str:
    """`scheme://host:port` of whatever way a server was written, or Invalid(E_URL)."""
    given = text.strip()
    try:
        url = urlsplit(given if "://" in given else f"http://{given}")
        host, port = url.hostname or "", url.port
    except ValueError:
        raise _bad_url(text, "an IPv6 address stands in brackets, as in http://[::1]:8080") from None
    if url.scheme not in ("http", "https") or not re.fullmatch(r"[A-Za-z0-9._:%-]+", host) or port == 0:
        raise _bad_url(text)
    if url.path.strip("/") or url.query or url.fragment or url.username is not None:
        raise _bad_url(text, "leave out user, path and query")
    if url.scheme == "http" and not insecure and not is_loopback(host):
        raise Invalid(
            f"{text} is not encrypted: everything sent there can be read on the way",
            code="E_URL",
            hint="use https://, or --insecure if the network is your own",
        )
    return f"{url.scheme}://{f'[{host}]' if ':' in host else host}{f':{port}' if port else ''}"


def _bad_url(text: str, hint: str = "") -> Invalid:
    return Invalid(f"expected a server such as http://127.0.0.1:8080, got {text!r}", code="E_URL", hint=hint)


def _trusted(url: str, ca_file: str | None) -> ssl.SSLContext | bool:
    """Return what a server's certificate is checked against."""
    if url.startswith("http://"):  # reading certificates takes longer than a request: not where none are used
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if ca_file is None:
        return True
    try:
        return ssl.create_default_context(cafile=ca_file)
    except OSError as error:  # what OpenSSL says is one too
        why = "it holds no certificate" if isinstance(error, ssl.SSLError) else error.strerror
        raise Error(f"the CA file {ca_file} cannot be used: {why}", code="E_FILE") from None


class Client:
    """A connection to one Horae server. Use it as a context manager, or close it."""

    def __init__(
        self, url: str = DEFAULT_URL, token: str | None = None, *, insecure: bool = False, ca_file: str | None = None
    ) -> None:
        """`ca_file` holds the certificates to trust (PEM) in place of the usual authorities."""
        self.url = server_url(url, insecure=insecure)
        if token and not re.fullmatch(r"[\x21-\x7e]{1,1000}", token):
            raise Unauthenticated("the token holds what no token does: is it one line, without spaces?")
        self._http = httpx.AsyncClient(
            base_url=self.url,
            headers={"Authorization": f"Bearer {token}"} if token else {},
            timeout=httpx.Timeout(30, connect=5),
            verify=_trusted(self.url, ca_file),
            # A proxy cannot reach this machine's loopback.
            trust_env=not is_loopback(urlsplit(self.url).hostname or ""),
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._http.aclose()

    # ── jobs ──

    async def submit(
        self, document: bytes | str | Mapping[str, Any], content_type: str = "", *, key: str = "", directory: str = ""
    ) -> Json:
        """Create jobs from a document (YAML unless said otherwise) → {"jobs": […], "replayed": bool}. A server of one's
        own runs their steps in the `directory`, if it is on this machine."""
        is_text = isinstance(document, bytes | str)
        body = document if isinstance(document, bytes | str) else json.dumps(document)
        headers = {"Content-Type": content_type or ("application/yaml" if is_text else "application/json")}
        if directory and is_loopback(urlsplit(self.url).hostname or ""):
            headers["Horae-Directory"] = quote(directory)
        return await self._json(
            "POST", "/v1/jobs", has="jobs", content=body, headers=headers, key=key or secrets.token_hex(16)
        )

    async def jobs(
        self,
        *,
        name: str | None = None,
        named: str | None = None,
        key: str | None = None,
        kind: str | None = None,
        owner: str | None = None,
        paused: bool | None = None,
        limit: int | None = 100,
        cursor: str | None = None,
    ) -> Json:
        """Jobs, newest first → {"items": […], "cursor": …}; limit None gives all of them."""
        where = {"name": name, "named": named, "key": key, "kind": kind, "owner": owner, "paused": paused}
        return await self._list("/v1/jobs", where, limit, cursor)

    async def job(self, job_id: int) -> Json:
        return await self._json("GET", f"/v1/jobs/{job_id}", has="id")

    async def find_job(self, text: str) -> Json:
        """Return the job with this id, this key, or this name if no other has it."""
        if re.fullmatch(r"[0-9]{1,19}", text):
            try:
                return await self.job(int(text))
            except NotFound:
                pass  # a key or a name may be a number too
        found: list[Json] = (await self.jobs(key=text, limit=None))["items"]
        if not found:
            found = (await self.jobs(named=text, limit=None))["items"]
        if not found:
            raise NotFound(f"no job has the id, key or name {text!r}", hint="`horae jobs` lists them")
        if len(found) > 1:
            ids = ", ".join(str(job["id"]) for job in found)
            raise Conflict(f"{len(found)} jobs are called {text!r}: say which by its id ({ids})",
                                  code="E_DUP_NAME")  # fmt: skip
        return found[0]

    async def replace_job(self, job_id: int, document: Mapping[str, Any], *, version: int | None = None) -> Json:
        """Replace a job; with `version`, only if it still is that one."""
        headers = {"If-Match": f'"{version}"'} if version is not None else {}
        return await self._json("PUT", f"/v1/jobs/{job_id}", json=document, headers=headers)

    async def delete_job(self, job_id: int) -> None:
        await self._send("DELETE", f"/v1/jobs/{job_id}")

    async def reset_cursor(self, job_id: int) -> None:
        await self._send("DELETE", f"/v1/jobs/{job_id}/cursor")

    async def pause(self, job_id: int) -> Json:
        return await self._json("POST", f"/v1/jobs/{job_id}/pause")

    async def resume(self, job_id: int) -> Json:
        return await self._json("POST", f"/v1/jobs/{job_id}/resume")

    async def run_now(
        self, job_id: int, *, data: Mapping[str, Any] | None = None, node: str | None = None, key: str = ""
    ) -> Json:
        """Ask for a run; it may be born skipped, if the job's overlap policy says so."""
        body = {name: value for name, value in (("data", data), ("node", node)) if value is not None}
        return await self._json("POST", f"/v1/jobs/{job_id}/run", has="id", json=body, key=key or secrets.token_hex(16))

    # ── triggers ──

    async def triggers(self, *, job_id: int | None = None, limit: int | None = 100, cursor: str | None = None) -> Json:
        return await self._list("/v1/triggers", {"job_id": job_id}, limit, cursor)

    async def trigger(self, trigger_id: int) -> Json:
        return await self._json("GET", f"/v1/triggers/{trigger_id}", has="id")

    async def add_trigger(self, job_id: int, document: Mapping[str, Any]) -> Json:
        return await self._json("POST", f"/v1/jobs/{job_id}/triggers", json=document)

    async def replace_trigger(self, trigger_id: int, document: Mapping[str, Any]) -> Json:
        return await self._json("PUT", f"/v1/triggers/{trigger_id}", json=document)

    async def change_trigger(self, trigger_id: int, **changes: Any) -> Json:
        """Change some of: enabled, next_at (moves the next moment once), data."""
        return await self._json("PATCH", f"/v1/triggers/{trigger_id}", json=changes)

    async def delete_trigger(self, trigger_id: int) -> None:
        await self._send("DELETE", f"/v1/triggers/{trigger_id}")

    async def preview(
        self, schedule: str | Mapping[str, Any], *, count: int = 10, start_at: str | None = None, **more: Any
    ) -> Json:
        """Return the next moments of a schedule → {"dialect", "description", "moments": [{at, local, note}]}."""
        document = {"schedule": schedule} if isinstance(schedule, str) else dict(schedule)
        start = {"start_at": start_at} if start_at else {}
        return await self._json("POST", "/v1/preview", json={**document, **more, **start, "count": count})

    # ── runs ──

    async def runs(
        self,
        *,
        job_id: int | None = None,
        trigger_id: int | None = None,
        state: str | None = None,
        due_from: str | None = None,
        due_until: str | None = None,
        limit: int | None = 100,
        cursor: str | None = None,
    ) -> Json:
        """Runs, newest first; `state` may be a comma list, moments are RFC 3339."""
        where = {"job_id": job_id, "trigger_id": trigger_id, "state": state}
        return await self._list("/v1/runs", {**where, "due_from": due_from, "due_until": due_until}, limit, cursor)

    async def run(self, run_id: int) -> Json:
        """One run, with its earlier attempts."""
        return await self._json("GET", f"/v1/runs/{run_id}", has="id")

    async def wait(self, run_id: int) -> Json:
        """Return the run, once it has ended."""
        pause = 0.05
        while True:
            run = await self.run(run_id)
            if run["finished_at"] is not None or is_terminal(run["state"]):
                return run
            await asyncio.sleep(pause)
            pause = min(1.0, pause * 1.5)

    async def cancel(self, run_id: int) -> Json:
        return await self._json("POST", f"/v1/runs/{run_id}/cancel")

    async def log(self, run_id: int, *, attempt: int | None = None) -> bytes:
        """Everything an attempt (the last, unless named) has written so far."""
        pieces: list[bytes] = []
        offset = 0
        while True:
            where = {"attempt": attempt, "offset": offset}
            answer = await self._send("GET", f"/v1/runs/{run_id}/log", params=where)
            pieces.append(answer.content)
            following = int(answer.headers.get("Horae-Log-Offset", offset))
            if not answer.content or following <= offset:
                return b"".join(pieces)
            offset = following

    async def artifacts(self, run_id: int) -> Json:
        """Files that a run kept → {"items": [{path, size}]}."""
        return await self._json("GET", f"/v1/runs/{run_id}/artifacts", has="items")

    async def artifact(self, run_id: int, path: str) -> AsyncGenerator[bytes, None]:
        """The bytes of an artifact. Unavailable when the connection breaks before its end."""
        address = f"/v1/runs/{run_id}/artifacts/{quote(path)}"
        try:
            async with self._http.stream("GET", address) as answer:
                if not answer.is_success:
                    await answer.aread()
                await self._check(answer, "GET", address)
                async for piece in answer.aiter_bytes():
                    yield piece
        except httpx.TransportError as error:
            raise self._unreachable(error) from None

    async def follow(self, run_id: int, *, offset: int = 0) -> AsyncGenerator[Event, None]:
        """What a run writes, as it is written, until it ends; a broken stream goes on where it broke."""
        last = str(offset) if offset else None
        broken = 0
        while True:
            try:
                async for event in self._events(f"/v1/runs/{run_id}/log/follow", last):
                    broken = 0
                    last = event.id or last
                    yield event
                    if event.name == "end":
                        return
            except Unavailable:
                if broken >= PATIENCE:
                    raise
            broken += 1
            if broken > PATIENCE:
                raise Unavailable(f"the log of run {run_id} keeps ending before the run has ended")
            await asyncio.sleep(min(2.0, 0.05 * 2**broken))

    # ── the cluster ──

    async def nodes(self) -> Json:
        return await self._json("GET", "/v1/nodes", has="items")

    async def want_node(self, name: str, verb: str) -> Json:
        """`verb` is cordon, uncordon or drain."""
        return await self._json("POST", f"/v1/nodes/{quote(name, safe='')}/{verb}")

    async def handlers(self) -> Json:
        return await self._json("GET", "/v1/handlers", has="items")

    async def segments(self) -> Json:
        return await self._json("GET", "/v1/segments", has="items")

    async def overview(self) -> Json:
        return await self._json("GET", "/v1/overview")

    async def health(self) -> Json:
        return await self._json("GET", "/healthz")

    # ── secrets ──

    async def set_secret(self, name: str, value: str) -> bool:
        """Keep a secret for jobs to use; answers whether it is new. Nobody can read it back."""
        return (
            await self._send("PUT", f"/v1/secrets/{quote(name, safe='')}", json={"value": value})
        ).status_code == 201

    async def secrets(self) -> Json:
        return await self._json("GET", "/v1/secrets", has="items")

    async def delete_secret(self, name: str) -> None:
        await self._send("DELETE", f"/v1/secrets/{quote(name, safe='')}")

    async def rotate_secrets(self) -> Json:
        """Seal everything with a new key; returns when it is done."""
        return await self._json("POST", "/v1/secrets/rotate", timeout=httpx.Timeout(ROTATION, connect=5))

    # ── tokens ──

    async def create_token(
        self,
        name: str,
        *,
        scope: str = "user",
        owner: str | None = None,
        expires_in: str | float | None = None,
        node: str | None = None,
        kinds: Sequence[str] | None = None,
        labels: Sequence[str] | None = None,
        org: int | None = None,
    ) -> Json:
        """Make a token; the answer's `token` is shown this once. `expires_in` is as 30d, or in seconds. `org` is the
        organisation that it is good for. One of scope agent is good for the agent `node` (`*` for any), which may take
        `kinds` and have `labels`."""
        bounds = {"node": node, "kinds": kinds and list(kinds), "labels": labels and list(labels)}
        wanted = {"name": name, "scope": scope, "owner": owner, "expires_in": expires_in, "org": org, **bounds}
        given = {field: value for field, value in wanted.items() if value is not None}
        return await self._json("POST", "/v1/tokens", json=given)

    async def tokens(self) -> Json:
        return await self._json("GET", "/v1/tokens", has="items")

    async def revoke_token(self, token_id: int) -> None:
        await self._send("DELETE", f"/v1/tokens/{token_id}")

    # ── the wire ──

    async def _list(self, path: str, where: Mapping[str, Any], limit: int | None, cursor: str | None) -> Json:
        """Page through a list until `limit` items are there, or all of them."""
        items: list[Json] = []
        while True:
            wanted = PAGE if limit is None else min(PAGE, limit - len(items))
            page = await self._json("GET", path, has="items", params={**where, "limit": wanted, "cursor": cursor})
            items += page["items"]
            cursor = page.get("cursor")
            if cursor is None or (limit is not None and len(items) >= limit):
                return {"items": items, "cursor": cursor}

    async def _json(self, method: str, path: str, *, has: str = "", **request: Any) -> Json:
        """Return the answer, an object that has this member: else it is somebody else's."""
        answer = await self._send(method, path, **request)
        try:
            body = answer.json()
        except ValueError:
            body = None
        if not isinstance(body, dict) or (has and has not in body):
            raise self._foreign()
        return body

    def _foreign(self) -> Unavailable:
        return Unavailable(f"{self.url} answers, but not as Horae does: is this its address?")

    async def _send(
        self,
        method: str,
        path: str,
        *,
        key: str = "",
        params: Mapping[str, Any] | None = None,
        **request: Any,
    ) -> httpx.Response:
        """One call, repeated while that is safe; an answer that is no success is raised."""
        if key:
            request["headers"] = {**request.get("headers", {}), "Idempotency-Key": key}
        given = {name: _parameter(value) for name, value in (params or {}).items() if value is not None}
        for pause in (*PAUSES, None):
            try:
                answer = await self._http.request(method, path, params=given, **request)
            except httpx.TransportError as error:
                may_repeat = method == "GET" or key or isinstance(error, httpx.ConnectError)
                if pause is None or not may_repeat:
                    raise self._unreachable(error) from None
                await asyncio.sleep(pause)
            else:
                await self._check(answer, method, path)
                return answer
        raise AssertionError("the last pause is None")

    async def _events(self, path: str, last: str | None) -> AsyncIterator[Event]:
        """The events of one connection, from after `last`."""
        headers = {"Accept": "text/event-stream", **({"Last-Event-ID": last} if last else {})}
        timeout = httpx.Timeout(SILENCE, connect=5)
        try:
            async with self._http.stream("GET", path, headers=headers, timeout=timeout) as answer:
                if not answer.is_success:
                    await answer.aread()
                await self._check(answer, "GET", path)
                async for event in read_events(answer.aiter_bytes()):
                    yield event
        except httpx.TransportError as error:
            raise self._unreachable(error) from None

    def _unreachable(self, error: httpx.TransportError) -> Unavailable:
        if "CERTIFICATE_VERIFY_FAILED" in str(error):
            why = str(error).rpartition("failed: ")[2].partition(" (_ssl")[0]
            return Unavailable(
                f"the certificate of {self.url} is not trusted: {why}",
                hint="name the authority that signed it with --ca-file or HORAE_CA_FILE",
            )
        if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
            return Unavailable(f"no Horae at {self.url}; start one with `horae up`")
        if isinstance(error, httpx.TimeoutException):
            return Unavailable(f"Horae at {self.url} did not answer in time; try again")
        hint = "if it serves TLS, write https://" if self.url.startswith("http://") else ""
        return Unavailable(f"the connection to Horae at {self.url} broke; try again", hint=hint)

    async def _check(self, answer: httpx.Response, method: str, path: str) -> None:
        if answer.is_success:
            return
        problem = _problem_of(answer)
        # A list never is "not found": then the server does not know the address.
        is_unknown_address = answer.status_code == 404 and (not problem or path.count("/") == 2)
        if is_unknown_address or answer.status_code in (405, 501):
            raise await self._unsupported(method, path)
        raise _error_of(answer.status_code, problem, self.url)

    async def _unsupported(self, method: str, path: str) -> Unavailable:
        try:
            theirs = (await self._http.get("/healthz")).json()["version"]
        except (httpx.TransportError, ValueError, KeyError, TypeError):
            return self._foreign()
        return Unavailable(
            f"server {theirs} does not support {method} {path}",
            hint=f"this is horae {own_version()}: use the version of the server, or upgrade the older of the two",
        )


def own_version() -> str:
    import importlib.metadata  # reads the installation: for the rare case only

    return importlib.metadata.version("horae")


def is_terminal(state: str) -> bool:
    return state not in ("queued", "running", "blocked")


def _parameter(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _problem_of(answer: httpx.Response) -> Json:
    """Return the problem+json body; empty when the answer is none."""
    try:
        body = answer.json()
    except ValueError:
        return {}
    return body if isinstance(body, dict) and "code" in body else {}


def _error_of(status: int, problem: Json, url: str) -> Error:
    kind = _BY_STATUS.get(status, Error)
    if not problem:
        return kind(f"{url} answered with status {status}")
    listed = [
        Problem(
            str(one.get("path", "")),
            str(one.get("code", "")),
            str(one.get("message", "")),
            str(one.get("hint", "")),
        )
        for one in problem.get("errors", [])
    ]
    return kind(
        str(problem.get("detail") or problem.get("title") or ""),
        code=str(problem["code"]),
        hint=str(problem.get("hint") or ""),
        problems=listed,
    )


async def read_events(pieces: AsyncIterator[bytes]) -> AsyncIterator[Event]:
    """Server-sent events out of bytes. Lines end at newlines only: text may hold any other separator."""
    rest = b""
    fields: dict[str, str] = {}
    async for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            name, _, value = line.rstrip(b"\r").decode(errors="replace").partition(":")
            if name:  # a line that begins with a colon is a comment
                value = value.removeprefix(" ")
                fields[name] = f"{fields[name]}\n{value}" if name == "data" and name in fields else value
            elif line in (b"", b"\r"):
                if "data" in fields:
                    yield Event(fields.get("event", "message"), json.loads(fields["data"]), fields.get("id"))
                fields = {}
