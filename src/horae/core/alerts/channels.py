"""Channels: by which somebody is told.

    kind: webhook     url: https://…, or {secret: NAME};  secret: {secret: NAME} signs what is sent
    kind: slack       url: {secret: NAME}                  its address is a secret: who has it may write
    kind: teams       url: {secret: NAME}
    kind: email       to: [ops@example.org]                by the server of the setting smtp_url
    kind: command                                          of the setting alert_commands; never by the API

What must stay true: a channel holds no secret, only names of secrets.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from typing import Any

from horae.core.alerts.rules import check_name
from horae.core.fields import Fields, encode, open_document, shown, type_words
from horae.core.model import Json, Moment
from horae.core.secrets.references import read_reference
from horae.core.work.requests import url_fault

KINDS = ("webhook", "slack", "teams", "email")  # that the API takes
COMMAND = "command"
MAX_CHANNELS = 200  # of an organisation
MAX_RECIPIENTS = 50
MAX_ADDRESS = 254  # characters
MAX_URL = 2000
ADDRESS_PATTERN = r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?"
_ADDRESS = re.compile(ADDRESS_PATTERN)
_SET_BY_HORAE = frozenset({"version", "created_at", "updated_at"})
_OWN = {"webhook": {"url", "secret"}, "slack": {"url"}, "teams": {"url"}, "email": {"to"}}
_FIELDS = _SET_BY_HORAE | {"name", "kind", "url", "secret", "to"}


@dataclass(frozen=True, slots=True)
class Channel:
    name: str
    kind: str
    url: str | Json | None = None
    secret: Json | None = None  # with which it is signed
    to: tuple[str, ...] = ()
    org: int = 0
    version: int = 1
    created_at: Moment = 0
    updated_at: Moment = 0

    @property
    def secrets(self) -> list[str]:
        """Return the names of the secrets that it needs."""
        return [each["secret"] for each in (self.url, self.secret) if isinstance(each, dict)]


def parse_channel(document: Any, name: str) -> Channel:
    """Return the channel that a document describes; raises Invalid with every problem."""
    check_name(name, "a channel")
    expected = "a channel must be a mapping such as {kind: email, to: [ann@example.org]}"
    fields = open_document(document, expected, _FIELDS, is_null_unset=True)
    found = _read(fields, name)
    fields.problems.raise_any()
    return found


def _read(fields: Fields, name: str) -> Channel:
    if fields.values.get("name", name) != name:
        fields.fault("name", "E_FIELD_CONFLICT", f"the channel is {shown(name)}", "a channel keeps its name")
    if fields.values.get("kind") == COMMAND:
        hint = "whoever runs the server names it in the setting alert_commands; then it is a channel"
        fields.problems.deny("kind", "a command is never taken from here", hint)
        return Channel(name, COMMAND)
    kind = fields.word("kind", KINDS)
    for other in {"url", "secret", "to"} & fields.values.keys():
        if kind is not None and other not in _OWN[kind]:
            fields.fault(other, "E_FIELD_CONFLICT", f"a channel of kind {kind} has no {other}", "leave it out")
    if kind == "email":
        return Channel(name, kind, to=_read_recipients(fields))
    secret = read_reference(fields, "secret", "must be {secret: NAME}") if "secret" in fields.values else None
    return Channel(name, kind or "webhook", _read_url(fields, kind), secret)


def _read_url(fields: Fields, kind: str | None) -> str | Json | None:
    fields.require("url", "the address to call is needed: as text, or as {secret: NAME}")
    value = fields.values.get("url")
    if isinstance(value, dict):
        return read_reference(fields, "url")
    if value is not None and kind in ("slack", "teams"):
        hint = "`horae secret set NAME` keeps it; then write url: {secret: NAME}"
        fields.fault("url", "E_TYPE", f"the address of {kind} is a secret, and must be {{secret: NAME}}", hint)
        return None
    url = fields.text("url", MAX_URL)
    if url is not None and (fault := url_fault(url))[0]:
        fields.fault("url", "E_URL", *fault)
    return url


def _read_recipients(fields: Fields) -> tuple[str, ...]:
    fields.require("to", "who gets the mail? write to: [ops@example.org]")
    found: dict[str, None] = {}
    for index, value in enumerate(fields.items("to", MAX_RECIPIENTS, "addresses", least=1)):
        path = f"{fields.at('to')}[{index}]"
        if type(value) is not str:
            fields.problems.add(path, "E_TYPE", *type_words("must be text", value))
        elif len(value) > MAX_ADDRESS or not _ADDRESS.fullmatch(value):
            fields.problems.add(path, "E_PATTERN", "an address such as ops@example.org expected")
        else:
            found[value] = None
    return tuple(found)


def render_channel(channel: Channel) -> Json:
    """Return everything that a document may say of it."""
    shown_fields: Json = {"name": channel.name, "kind": channel.kind}
    if channel.url is not None:
        shown_fields["url"] = channel.url
    if channel.secret is not None:
        shown_fields["secret"] = channel.secret
    if channel.to:
        shown_fields["to"] = list(channel.to)
    return shown_fields


def channel_text(channel: Channel) -> str:
    return encode({name: value for name, value in render_channel(channel).items() if name != "name"})


def channel_from(text: str, name: str, **stored: Any) -> Channel:
    """Return what channel_text wrote. What a newer version wrote and this one does not know is left out."""
    document = {key: value for key, value in json.loads(text).items() if key in _FIELDS}
    return replace(parse_channel(document, name), **stored)
