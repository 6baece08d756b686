"""What is to come: expected load against slots, for a day or a week, and where places run out."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, NamedTuple
from urllib.parse import urlencode

from horae.core.insight.forecast import Bucket, Forecast, Shortage
from horae.core.model import SECOND, Moment
from horae.core.roles import Permission
from horae.service import Services
from horae.service.insight.forecasting import BY
from horae.web import http, render
from horae.web.native.forecasting import shown_forecast
from horae.web.pages import filters
from horae.web.pages.charts import bars
from horae.web.pages.shell import HTML, Shell
from horae.web.pages.words import count, day, span

SPANS = {"6h": timedelta(hours=6), "24h": timedelta(days=1), "7d": timedelta(days=7)}
SHOWN = 20  # jobs, queues or owners
WIDTH, HEIGHT, TICKS = 1000, 200, 6
_ASKED = (
    filters.choice("span", "How far to look.", SPANS, "24h"),
    filters.choice("by", "What is listed.", dict.fromkeys(BY, timedelta()), BY[0]),
)


class Load(NamedTuple):
    """Runs at once, as lines over time."""

    line: str
    high: str  # the area up to what is not exceeded nine times of ten
    slots_y: float
    short: list[tuple[float, float]]  # where places run out: from and how wide
    top: int


class ForecastPage:
    def __init__(self, services: Services, shell: Shell) -> None:
        self._forecasting = services.forecasting
        self._shell = shell

    def operations(self) -> list[http.Operation]:
        return [
            http.Operation(
                "GET",
                "/forecast",
                self.show,
                "pages",
                "The page of the forecast",
                HTML,
                params=_ASKED,
                needs=Permission.READ,
            )
        ]

    async def show(self, request: http.Request) -> http.Answer:
        args, zone = request.args, self._shell.zone_of(request)
        hours, org = SPANS[args["span"]] / timedelta(hours=1), http.principal(request).bound_to
        found = await self._forecasting.look(hours=hours, by=args["by"], org=org, limit=SHOWN)
        if found is None:
            return self._shell.page(request, "soon.html")
        length = found.window.end - found.window.start
        starts = [day(render.stamp(one.at), zone) for one in found.buckets]
        return self._shell.page(
            request, "forecast.html", found=shown_forecast(found), load=_load(found), asked=args, spans=list(SPANS),
            by=BY, address=lambda **changed: "/forecast?" + urlencode({**args, **changed}),
            ticks=[render.stamp(found.window.start + length * tick // TICKS) for tick in range(TICKS)],
            begin=bars([(at, round(one.runs), 0) for at, one in zip(starts, found.buckets, strict=True)], count),
            late=bars([(at, one.late_seconds * 1000, 0) for at, one in zip(starts, found.buckets, strict=True)], span),
            behind=[_row(at, one) for at, one in zip(starts, found.buckets, strict=True)],
        )  # fmt: skip


def _row(at: str, one: Bucket) -> tuple[Any, ...]:
    return at, f"{one.runs:.0f}", f"{one.running:.1f}", f"{one.high:.1f}", span(one.late_seconds * 1000)


def _load(found: Forecast) -> Load:
    top = max(1.0, found.slots, *(one.high for one in found.buckets))
    step = WIDTH / max(1, len(found.buckets))

    def y_of(value: float) -> float:
        return round(HEIGHT - 2 - value * (HEIGHT - 6) / top, 1)

    def stairs(values: list[float]) -> str:
        return "".join(f"V{y_of(value)}H{round((n + 1) * step, 1)}" for n, value in enumerate(values))

    highs = stairs([one.high for one in found.buckets])
    return Load(
        f"M0 {y_of(0)}{stairs([one.running for one in found.buckets])}",
        f"M0 {y_of(0)}{highs}V{y_of(0)}z",
        y_of(found.slots),
        [_short(one, found) for one in found.shortages],
        round(top),
    )


def _short(one: Shortage, found: Forecast) -> tuple[float, float]:
    begin = _x(one.start_at, found)
    return begin, max(2.0, round(_x(min(one.end_at, found.window.end), found) - begin, 1))


def _x(moment: Moment, found: Forecast) -> float:
    seconds = (found.window.end - found.window.start) / SECOND
    return round(max(0, moment - found.window.start) / SECOND * WIDTH / seconds, 1)
