"""Messages by HTTP: as JSON of ours, signed where the channel has a secret; as Slack takes them; as Teams does.

A signature is that of our own webhooks (core.hooks): X-Horae-Signature: t=<unix>,v1=<hex> of "<t>.<body>".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import msgspec

from horae.core.alerts.channels import Channel
from horae.core.alerts.forms import slack_form, teams_form
from horae.core.hooks import sign_plain
from horae.core.model import SECOND, Json
from horae.core.work.requests import url_fault
from horae.ports.alerts import Undelivered
from horae.ports.clock import Clock

SECONDS = 30.0  # for an answer
SHOWN = 200  # characters of an answer that are told


class Post(Protocol):
    """Sends one request, guarded against addresses that are not to be reached; Undelivered where no answer came."""

    async def __call__(self, url: str, headers: Mapping[str, str], body: bytes, seconds: float) -> tuple[int, str]: ...

    async def close(self) -> None: ...


class Webhooks:
    def __init__(self, post: Post, clock: Clock) -> None:
        self._post = post
        self._clock = clock

    async def send(self, channel: Channel, secrets: Mapping[str, str], message: Json, key: str) -> None:
        url = _resolved(channel.url, secrets)
        if why := url_fault(url)[0]:
            raise Undelivered(f"the address of the channel cannot be used: {why}")
        body = msgspec.json.encode(_form(channel.kind, {**message, "id": key}))
        headers = {"Content-Type": "application/json", "Idempotency-Key": key}
        if channel.secret is not None:
            at = self._clock.now() // SECOND
            headers["X-Horae-Signature"] = sign_plain(_resolved(channel.secret, secrets), body, at)
        status, text = await self._post(url, headers, body, SECONDS)
        if not 200 <= status < 300:
            said = " ".join(text.split())[:SHOWN]
            raise Undelivered(f"the answer is {status}{': ' * bool(said)}{said}")

    async def close(self) -> None:
        await self._post.close()


def _resolved(value: str | Json | None, secrets: Mapping[str, str]) -> str:
    return secrets[value["secret"]] if isinstance(value, dict) else value or ""


def _form(kind: str, message: Json) -> Json:
    return slack_form(message) if kind == "slack" else teams_form(message) if kind == "teams" else message
