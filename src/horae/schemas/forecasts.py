"""What the API shows of a forecast."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from horae.schemas.basics import Count, When


class ForecastBucket(Struct):
    """A part of the time that is looked at."""

    start_at: When
    runs: Annotated[float, Meta(description="Runs that begin.")]
    running: Annotated[float, Meta(description="Runs at once, at most, if all had a slot.")]
    running_high: Annotated[float, Meta(description="So many are not exceeded nine times of ten.")]
    late_seconds: Annotated[float, Meta(description="The longest that a run waits for a place.")]


class ForecastDuration(Struct):
    """How long a run takes."""

    seconds: Annotated[float, Meta(description="Half of them take less.")]
    low_seconds: Annotated[float, Meta(description="One of six takes less,")]
    high_seconds: Annotated[float, Meta(description="and one of six takes more.")]


class ForecastItem(Struct):
    """A job, a queue or an owner."""

    key: Annotated[str, Meta(description="The id of a job, or the name of a queue or an owner.")]
    name: str
    moments: Annotated[Count, Meta(description="Due moments. Exact for jobs with a schedule of their own.")]
    runs: Annotated[float, Meta(description="Runs that begin: moments without those that are skipped.")]
    busy_seconds: Annotated[float, Meta(description="Slots times seconds.")]
    duration: Annotated[ForecastDuration | None, Meta(description="Of a run of a job.")]
    buckets: Annotated[list[float], Meta(description="Runs that begin in each bucket.")]


class ForecastShortage(Struct):
    """There are fewer places than are wanted."""

    what: Annotated[str, Meta(extra_json_schema={"enum": ["slots", "queue", "limit"]})]
    name: Annotated[str, Meta(description="The kind of work, the name of the queue, or whose limit it is.")]
    capacity: Annotated[int | None, Meta(description="Runs at once; null where it is a rate.")]
    rate: Annotated[str | None, Meta(description="Starts, such as 100/min; null where runs at once are counted.")]
    start_at: Annotated[When, Meta(description="When there is no more place.")]
    end_at: Annotated[When, Meta(description="When nobody waits any more.")]
    wanted: Annotated[float, Meta(description="Runs at once, or starts in a tick, at most.")]
    late_seconds: Annotated[float | None, Meta(description="The longest wait; null: until there is any place at all.")]


class ForecastCrowd(Struct):
    """Those of a clash that have one schedule."""

    schedule: str
    timezone: str
    triggers: Count
    jobs: Annotated[list[str], Meta(description="Names of some of their jobs.")]
    instead: Annotated[str | None, Meta(description="A schedule as often as theirs that spreads them.")]


class ForecastClash(Struct):
    """Many triggers that are due in the same second."""

    at: Annotated[When, Meta(description="The first time.")]
    times: Count
    triggers: Count
    crowds: list[ForecastCrowd]


class Forecast(Struct):
    """Which runs a span of time will see."""

    start_at: When
    end_at: When
    bucket_seconds: Count
    triggers: Annotated[Count, Meta(description="Triggers with a moment before its end.")]
    moments: Annotated[Count, Meta(description="Due moments: exact, unless a schedule is changed.")]
    runs: Annotated[float, Meta(description="Runs that begin, those that others make included.")]
    skipped: Annotated[float, Meta(description="Due moments that find a run of their job under way.")]
    followers: Annotated[float, Meta(description="Runs that others make: of jobs that follow, and tasks of workflows.")]
    busy_seconds: Annotated[float, Meta(description="Slots times seconds.")]
    slots: Annotated[Count, Meta(description="Slots of the kinds of work that come.")]
    peak: Annotated[float, Meta(description="Runs at once, at most, if all had a slot.")]
    peak_high: Annotated[float, Meta(description="So many are not exceeded nine times of ten.")]
    peak_at: When
    late_seconds: Annotated[float, Meta(description="The longest that a run waits for a place.")]
    buckets: list[ForecastBucket]
    items: Annotated[list[ForecastItem], Meta(description="Those with most runs.")]
    item_count: Annotated[Count, Meta(description="How many there are in all.")]
    shortages: Annotated[list[ForecastShortage], Meta(description="The worst, by their beginning.")]
    clashes: Annotated[list[ForecastClash], Meta(description="The largest first.")]
    notes: Annotated[list[str], Meta(description="What it assumes, and what it cannot foresee.")]


SHOWN = (
    Forecast, ForecastBucket, ForecastClash, ForecastCrowd, ForecastDuration, ForecastItem, ForecastShortage,
)  # fmt: skip
