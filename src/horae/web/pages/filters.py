"""What pages read from their address. A form without a script sends its empty fields too: they say nothing."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from horae.core.model import SECOND, Moment
from horae.core.time import moments
from horae.errors import Invalid
from horae.web.params import Param

MIDNIGHT = "midnight"
AGO = {"1h": 3600, "6h": 6 * 3600, "24h": 86_400, "7d": 7 * 86_400, "30d": 30 * 86_400}  # seconds


def optional(param: Param) -> Param:
    """Return a parameter that may be empty."""

    def read(text: str) -> object:
        return param.read(text) if text else param.default

    return replace(param, read=read, schema={"anyOf": [param.schema, {"const": ""}]})


def since(name: str, description: str) -> Param:
    """Return a parameter that is a moment, or how long ago; it is read as it stands (`moment_of`)."""

    def read(text: str) -> str:
        if text and text != MIDNIGHT and text not in AGO:
            moments.parse_moment(text)
        return text

    return Param(name, description, {"type": "string"}, read)


def moment_of(text: str | None, now: Moment, zone: str) -> Moment | None:
    """Return the moment that is meant: midnight is that of whoever looks."""
    if not text:
        return None
    if text in AGO:
        return now - AGO[text] * SECOND
    if text != MIDNIGHT:
        return moments.parse_moment(text)
    there = datetime.fromtimestamp(now / SECOND, ZoneInfo(zone))
    begin = there.replace(hour=0, minute=0, second=0, microsecond=0)
    return round(begin.timestamp()) * SECOND


def clock(name: str, description: str) -> Param:
    """Return a parameter that is a time of the day."""

    def read(text: str) -> str:
        if text and not re.fullmatch(r"([01][0-9]|2[0-3]):[0-5][0-9]", text):
            raise Invalid(f"a time such as 03:00 expected, got {moments.quoted(text)}", code="E_PATTERN")
        return text

    return Param(name, description, {"type": "string"}, read)


def next_at(text: str, now: Moment, zone: str) -> Moment:
    """Return when a clock of a zone shows this time next."""
    there = datetime.fromtimestamp(now / SECOND, ZoneInfo(zone))
    hour, minute = map(int, text.split(":"))
    found = there.replace(hour=hour, minute=minute, second=0, microsecond=0, fold=0)
    if found <= there:
        found += timedelta(days=1)  # by the clock, however long that day is
    return round(found.timestamp()) * SECOND


def choice(name: str, description: str, known: dict[str, timedelta], default: str) -> Param:
    """Return a parameter that is one of these words."""

    def read(text: str) -> str:
        if text and text not in known:
            raise Invalid(f"one of {', '.join(known)} expected, got {moments.quoted(text)}", code="E_ENUM")
        return text or default

    return Param(name, description, {"type": "string"}, read, default)
