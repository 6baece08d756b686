"""The call of a forecast, as calls.py has the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from horae.client.making import get
from horae.client.steps import Call
from horae.client.wire import to_address

if TYPE_CHECKING:
    from horae.schemas.forecasts import Forecast


def forecast(
    hours: float = 24, *, start_at: str | None = None, by: str | None = None, limit: int | None = None
) -> Call[Forecast]:
    """Which runs the next hours will see, how many at once, how late, and where places run out. `by` is job, queue or
    owner."""
    asked = {"hours": f"{hours:.6f}", "from": start_at, "by": by, "limit": limit}
    return get(to_address("/v1/forecast", asked), has="buckets")
