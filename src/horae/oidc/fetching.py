"""Requests to a provider: bounded in time and size, never redirected, and kept for a while.

What must stay true:
- A provider that is slow, large or broken costs a bounded time and memory, and is asked again after a while only.
- What was got once is used for `STALE_SECONDS` when it cannot be had anew: who is logged in elsewhere goes on.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import httpx

from horae.errors import Unavailable
from horae.ports.clock import Clock

Json = dict[str, Any]

MOST_BYTES = 1 << 20
SECONDS = 10.0
STALE_SECONDS = 24 * 3600.0


def unreachable(what: str, why: str) -> Unavailable:
    return Unavailable(
        f"{what} cannot be had: {why}",
        code="E_IDP",
        hint="try again later; who is logged in stays so, and tokens go on working",
    )


class Http:
    """The client, made when it is first needed: it reads certificates, which takes time."""

    def __init__(self) -> None:
        self._client: httpx.AsyncClient | None = None

    async def ask(
        self, url: str, what: str, form: Mapping[str, str] | None = None, auth: tuple[str, str] | None = None,
        bearer: str | None = None,
    ) -> tuple[int, Json]:  # fmt: skip
        """Return status and JSON of an answer; `form` is posted. Who is refused what `bearer` stands for is told so in
        a header: the body is not read."""
        if self._client is None:
            self._client = httpx.AsyncClient(timeout=SECONDS, follow_redirects=False)
        try:
            async with asyncio.timeout(SECONDS):
                return await self._ask(self._client, url, what, form, auth, bearer)
        except TimeoutError:
            raise unreachable(what, f"no whole answer came in {SECONDS:g} s") from None
        except httpx.HTTPError as error:
            raise unreachable(what, type(error).__name__) from error

    async def _ask(
        self, client: httpx.AsyncClient, url: str, what: str, form: Mapping[str, str] | None,
        auth: tuple[str, str] | None, bearer: str | None,
    ) -> tuple[int, Json]:  # fmt: skip
        method = "GET" if form is None else "POST"
        headers = {"accept": "application/json"} | ({"authorization": f"Bearer {bearer}"} if bearer else {})
        async with client.stream(method, url, data=form, auth=auth, headers=headers) as answer:
            if bearer and answer.status_code in (401, 403):
                return answer.status_code, {}
            body = bytearray()
            async for chunk in answer.aiter_bytes():
                body += chunk
                if len(body) > MOST_BYTES:
                    raise unreachable(what, f"it is larger than {MOST_BYTES} bytes")
            try:
                found = json.loads(bytes(body))
            except ValueError:
                raise unreachable(what, f"the answer {answer.status_code} is no JSON") from None
            if not isinstance(found, dict):
                raise unreachable(what, "the answer is no JSON object")
            return answer.status_code, found

    async def close(self) -> None:
        if self._client is not None:
            await self._client.aclose()


class Kept:
    """A document of the provider, asked for again after `fresh` seconds, and not more often than every `cooldown`."""

    def __init__(self, http: Http, clock: Clock, what: str, *, fresh: float, cooldown: float) -> None:
        self._http, self._clock, self._what = http, clock, what
        self._fresh, self._cooldown = fresh, cooldown
        self._document: Json | None = None
        self._got_at = self._tried_at = float("-inf")
        self._why: Unavailable | None = None
        self._lock = asyncio.Lock()

    async def get(self, url: str, *, anew: bool = False) -> Json:
        """With `anew`, one that is no older than the cooldown."""
        async with self._lock:
            now = self._clock.elapsed()
            age = now - self._got_at
            if (anew or age >= self._fresh) and now - self._tried_at >= self._cooldown:
                self._tried_at = now
                await self._load(url, now)
                age = now - self._got_at
            if self._document is None or age >= STALE_SECONDS:
                raise self._why or unreachable(self._what, "it was asked for a moment ago")
            return self._document

    async def _load(self, url: str, now: float) -> None:
        try:
            status, document = await self._http.ask(url, self._what)
            if status != 200:
                raise unreachable(self._what, f"the provider answered {status}")
            self._document, self._got_at, self._why = self._checked(document), now, None
        except Unavailable as error:
            self._why = error

    def _checked(self, document: Json) -> Json:
        return document


class KeptKeys(Kept):
    """The keys of a provider. A set without keys is no set: the last one stays."""

    def _checked(self, document: Json) -> Json:
        keys = document.get("keys")
        if not isinstance(keys, list) or not keys or not all(isinstance(key, dict) for key in keys):
            raise unreachable(self._what, "there are no keys in it")
        return document
