"""Rules, channels, alerts and what was told."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from horae.schemas.basics import Count, Id, When


class AlertRule(Struct):
    """Of what somebody is to be told."""

    name: str
    when: str
    job: int | str | None
    owner: str | None
    queue: str | None
    count: int | None
    after: Annotated[float | None, Meta(description="Seconds.")]
    above: Annotated[float | None, Meta(description="Percent.")]
    channels: list[str]
    tell: str
    wait: Annotated[float, Meta(description="Seconds.")]
    every: Annotated[float, Meta(description="Seconds.")]
    repeat: Annotated[float, Meta(description="Seconds.")]
    quiet: dict[str, str] | None
    enabled: bool
    version: Count
    created_at: When
    updated_at: When


class AlertRulePage(Struct):
    items: list[AlertRule]
    cursor: None = None


class AlertChannel(Struct):
    """By which somebody is told. It names secrets, and holds none."""

    name: str
    kind: Annotated[str, Meta(extra_json_schema={"enum": ["webhook", "slack", "teams", "email", "command"]})]
    url: str | dict[str, str] | None
    secret: dict[str, str] | None
    to: list[str] | None
    version: Annotated[Count, Meta(description="0 of a command of the settings.")]
    created_at: When | None
    updated_at: When | None


class AlertChannelPage(Struct):
    items: list[AlertChannel]
    cursor: None = None


class Alert(Struct):
    """Something that goes on, of which a rule is."""

    id: Id
    rule: str
    subject: Annotated[str, Meta(description="job:12, node:NAME, queue:NAME; empty: all that the rule is of.")]
    name: Annotated[str, Meta(description="The same for people.")]
    count: Annotated[Count, Meta(description="How often it was seen since it opened.")]
    since_at: When
    last_at: When
    text: Annotated[str, Meta(description="What was seen last.")]
    run_id: Id | None
    told_at: Annotated[When | None, Meta(description="When somebody was last told of it.")]
    acked_at: Annotated[When | None, Meta(description="Since when somebody knows of it: it is told no more.")]
    acked_by: str | None


class AlertPage(Struct):
    items: list[Alert]
    cursor: str | None = None


class AlertDelivery(Struct):
    """A message on its way to a channel."""

    id: Id
    rule: str
    channel: str
    title: str
    state: Annotated[str, Meta(extra_json_schema={"enum": ["waiting", "sent", "failed"]})]
    tries: Count
    made_at: When
    next_at: Annotated[When | None, Meta(description="When it is tried again, while it waits.")]
    sent_at: When | None
    error: str


class AlertDeliveryPage(Struct):
    items: list[AlertDelivery]
    cursor: None = None


class AlertTest(Struct):
    """What came of a message by which a channel was tried."""

    channel: str
    is_sent: bool
    detail: str
    seconds: float
