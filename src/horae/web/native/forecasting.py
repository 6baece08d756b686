"""The forecast under /v1."""

from __future__ import annotations

import re

from horae.core.insight.baselines import Expected
from horae.core.insight.clashes import Clash
from horae.core.insight.forecast import Bucket, Forecast, Item, Shortage
from horae.core.roles import Permission
from horae.core.time.moments import quoted
from horae.errors import Invalid
from horae.schemas import forecasts
from horae.service import Services
from horae.service.insight.forecasting import BY, LONGEST_HOURS, MOST_ITEMS
from horae.web import http, params, render

DIGITS = 3  # behind the point: more is not known


def _read_hours(text: str) -> float:
    if not re.fullmatch(r"[0-9]{1,4}(\.[0-9]{1,20})?", text):
        raise Invalid(f"a number of hours such as 24 or 0.5 expected, got {quoted(text)}", code="E_TYPE")
    if not 0 < float(text) <= LONGEST_HOURS:
        raise Invalid(f"hours above 0, and {LONGEST_HOURS:g} at most, expected, got {text}", code="E_RANGE")
    return float(text)


def _read_by(text: str) -> str:
    if text not in BY:
        raise Invalid(f"one of {', '.join(BY)} expected, got {quoted(text)}", code="E_ENUM")
    return text


HOURS = params.Param(
    "hours", "How far to look.", {"type": "number", "exclusiveMinimum": 0, "maximum": LONGEST_HOURS, "default": 24},
    _read_hours, 24.0,
)  # fmt: skip
BY_WHAT = params.Param("by", "What is listed.", {"type": "string", "enum": list(BY), "default": BY[0]}, _read_by, BY[0])


class Forecasts:
    """The endpoint of forecasts."""

    def __init__(self, services: Services) -> None:
        self._forecasting = services.forecasting

    def operations(self) -> list[http.Operation]:
        asked = (
            HOURS, params.moment("from", "Where to begin; now, unless given."), BY_WHAT,
            params.number("limit", "How many items are listed at most.", 0, MOST_ITEMS, 20),
        )  # fmt: skip
        summary = "Foretell runs, how many at once, how late, and where places run out"
        return [
            http.Operation(
                "GET", "/v1/forecast", self.show, "forecast", summary, "Forecast", params=asked, needs=Permission.READ
            )
        ]

    async def show(self, request: http.Request) -> http.Answer:
        """Due moments are exact. All else follows from durations as they were learned from history. Totals are of all
        triggers; `items` are those with most runs. With more than 2,000 triggers, the answer may be a minute old:
        `start_at` says from when on it looks."""
        args, org = request.args, http.principal(request).bound_to
        found = await self._forecasting.lately(
            hours=args["hours"], start=args["from"], by=args["by"], org=org, limit=args["limit"]
        )
        return http.reply(200, shown_forecast(found))


def shown_forecast(it: Forecast) -> forecasts.Forecast:
    return forecasts.Forecast(
        start_at=render.stamp(it.window.start), end_at=render.stamp(it.window.end), bucket_seconds=it.bucket_seconds,
        triggers=it.triggers, moments=it.moments, runs=_round(it.runs), skipped=_round(it.skipped),
        followers=_round(it.followers), busy_seconds=_round(it.busy_seconds), slots=it.slots, peak=_round(it.peak),
        peak_high=_round(it.peak_high), peak_at=render.stamp(it.peak_at), late_seconds=_round(it.late_seconds),
        buckets=[_bucket(one) for one in it.buckets], items=[_item(one) for one in it.items],
        item_count=it.item_count, shortages=[_shortage(one) for one in it.shortages],
        clashes=[_clash(one) for one in it.clashes], notes=list(it.notes),
    )  # fmt: skip


def _bucket(it: Bucket) -> forecasts.ForecastBucket:
    return forecasts.ForecastBucket(
        render.stamp(it.at), _round(it.runs), _round(it.running), _round(it.high), _round(it.late_seconds)
    )


def _item(it: Item) -> forecasts.ForecastItem:
    return forecasts.ForecastItem(
        it.key, it.name, it.moments, _round(it.runs), _round(it.busy_seconds), _duration(it.expected),
        [_round(runs) for runs in it.buckets],
    )  # fmt: skip


def _duration(it: Expected | None) -> forecasts.ForecastDuration | None:
    return None if it is None else forecasts.ForecastDuration(_round(it.median), _round(it.at(-1)), _round(it.at(1)))


def _shortage(it: Shortage) -> forecasts.ForecastShortage:
    return forecasts.ForecastShortage(
        it.what, it.name, it.capacity, it.rate, render.stamp(it.start_at), render.stamp(it.end_at), _round(it.wanted),
        None if it.late_seconds is None else _round(it.late_seconds),
    )  # fmt: skip


def _clash(it: Clash) -> forecasts.ForecastClash:
    crowds = [
        forecasts.ForecastCrowd(one.expression, one.timezone, one.triggers, list(one.names), one.instead)
        for one in it.crowds
    ]
    return forecasts.ForecastClash(render.stamp(it.at), it.times, it.triggers, crowds)


def _round(value: float) -> float:
    return round(value, DIGITS)
