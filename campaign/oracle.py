"""When the jobs of a campaign are due, found out without any code of Horae: by trying every second."""

from __future__ import annotations

import datetime
from zoneinfo import ZoneInfo

from campaign.history import SECOND, Plan


def moments(plan: Plan, created_at: int, until: int) -> list[int]:
    """Every due moment of a job up to `until`, in order."""
    if not plan.has_moments:
        return []
    if plan.at is not None:
        return [max(plan.at, created_at)]
    if plan.every is not None:
        return list(range(created_at + plan.every, until + 1, plan.every))
    zone = ZoneInfo(plan.timezone)
    first = created_at // SECOND + 1  # a moment at creation itself would be one of the past
    return [second * SECOND for second in range(first, until // SECOND + 1) if _matches(plan, second, zone)]


def _matches(plan: Plan, second: int, zone: ZoneInfo) -> bool:
    clock = datetime.datetime.fromtimestamp(second, zone)
    return clock.second % (plan.seconds or 60) == 0 and clock.minute % (plan.minutes or 1) == 0
