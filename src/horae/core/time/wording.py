"""Schedules in English.

What must stay true: the words are made from the compiled sets, not from the text, and say all of them: two
expressions that differ in any moment never get the same description.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from horae.core.time.cron import Cron, parse
from horae.core.time.moments import MONTH_NAMES, format_duration, format_moment
from horae.core.time.wallclock import clock_text

if TYPE_CHECKING:
    from horae.core.time.document import Plan
    from horae.core.time.periods import PeriodSpec

_WEEKDAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_FEW = 6  # times of day that are named one by one


def join(words: Iterable[str], last: str = "and") -> str:
    """a, b and c"""
    listed = list(words)
    return f" {last} ".join([", ".join(listed[:-1]), listed[-1]]) if len(listed) > 1 else "".join(listed)


def ordinal(number: int) -> str:
    suffix = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{suffix}"


def _runs(values: Sequence[int]) -> list[tuple[int, int]]:
    """Stretches of consecutive numbers."""
    runs: list[tuple[int, int]] = []
    for value in sorted(values):
        if runs and value == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], value)
        else:
            runs.append((value, value))
    return runs


def _numbers(values: Iterable[int]) -> str:
    """'1, 5–9 and 20'"""
    words = []
    for low, high in _runs(list(values)):
        words += [str(low)] if low == high else [f"{low}–{high}"] if high > low + 1 else [str(low), str(high)]
    return join(words)


def _step(values: Sequence[int], size: int) -> int:
    """n where the values are 0, n, 2n … and divide the whole evenly; 0 otherwise."""
    step = values[1] - values[0] if len(values) > 1 else 0
    even = step and size % step == 0 and list(values) == list(range(0, size, step))
    return step if even else 0


# ------------------------------------------------------------------------------------------- cron


def describe_expression(expression: str, dialect: str | None = None, *, seed: int | None = None) -> str:
    """Return a cron expression in English. Where it holds an H, the seed is needed to say at what times."""
    cron = parse(expression, dialect, seed=seed or 0)
    return describe_spread(cron) if cron.spread and seed is None else describe_cron(cron)


def describe_cron(cron: Cron) -> str:
    times, dates = _time_words(cron), _date_words(cron)
    if not dates and times.startswith("at ") and len(cron.times.hours) < 24:
        dates = "every day"
    return f"{times} {dates}".strip()


def describe_spread(cron: Cron) -> str:
    """Return an expression with H before any trigger has it."""
    fields = [f"{name} {field.text}" for name, field in cron.fields.items() if not field.star or field.text != "*"]
    return f"spread by H, a constant of each trigger: {', '.join(fields)}"


def _time_words(cron: Cron) -> str:
    seconds, minutes, hours = (sorted(cron[name].values) for name in ("second", "minute", "hour"))
    if len(cron.times) <= _FEW and len(hours) < 24:
        return "at " + join(clock_text(time * 1_000_000) for time in cron.times)
    if seconds == [0]:
        if minutes == [0] and _step(hours, 24):
            return _every(_step(hours, 24), "hour")
        return _unit_words("minute", minutes) + _within_hours(hours, plain=bool(_step(minutes, 60)))
    words = _unit_words("second", seconds)
    if len(minutes) < 60 or not _step(seconds, 60):
        words += " of every minute" if len(minutes) == 60 else f" of {_counted('minute', minutes)}"
    return words + _within_hours(hours, plain=len(minutes) == 60)


def _every(step: int, unit: str) -> str:
    return f"every {unit}" if step == 1 else f"every {step} {unit}s"


def _unit_words(unit: str, values: list[int]) -> str:
    step = _step(values, 60)
    return _every(step, unit) if step else f"at {_counted(unit, values)}"


def _counted(unit: str, values: list[int]) -> str:
    return f"{unit}{'s' if len(values) > 1 else ''} {_numbers(values)}"


def _within_hours(hours: list[int], *, plain: bool) -> str:
    if len(hours) == 24:
        return "" if plain else " of every hour"
    spans = [f"{low:02}:00 to {high:02}:59" for low, high in _runs(hours)]
    return f" from {join(spans)}" if len(spans) <= 3 else f" of {_counted('hour', hours)}"


def _date_words(cron: Cron) -> str:
    days, weekdays = _day_words(cron), _weekday_words(cron)
    if days and weekdays:
        either = not (cron["day"].star or cron["weekday"].star)
        words = [f"{days} or {weekdays}" if either else f"{days}, only {weekdays}"]
    else:
        words = [days or weekdays]
    months, years = cron["month"].values, cron["year"].values
    if len(months) < 12:
        words.append(f"in {join(MONTH_NAMES[month - 1] for month in sorted(months))}")
    if not cron["year"].star:
        words.append(f"in {_numbers(years)}")
    return " ".join(word for word in words if word)


def _day_words(cron: Cron) -> str:
    days = cron["day"]
    if days.star and len(days.values) == 31:
        return ""
    words = []
    if days.values:
        words.append(_counted("day", sorted(days.values)))
    words += ["the last day" if not back else f"the {ordinal(back)} day before the last" for back in sorted(days.last)]
    words += [f"the working day nearest to day {day}" for day in sorted(days.near)]
    words += [
        "the last working day" if not back else f"the working day nearest to the {ordinal(back)} day before the last"
        for back in sorted(days.near_last)
    ]
    return f"on {join(words)} of the month"


def _weekday_words(cron: Cron) -> str:
    weekdays = cron["weekday"]
    if weekdays.star and len(weekdays.values) == 7:
        return ""
    words = []
    if weekdays.values:
        words.append(_weekday_set(weekdays.values))
    words += [f"the {ordinal(nth)} {_WEEKDAYS[day]} of the month" for day, nth in sorted(weekdays.nth)]
    words += [f"the last {_WEEKDAYS[day]} of the month" for day in sorted(weekdays.last_weekdays)]
    return f"on {join(words)}"


def _weekday_set(values: set[int]) -> str:
    if values == {1, 2, 3, 4, 5}:
        return "weekdays"
    if values == {0, 6}:
        return "weekends"
    if len(values) == 7:
        return "any weekday from Monday to Sunday"
    return join(_WEEKDAYS[day] for day in sorted(values, key=lambda day: (day - 1) % 7))


# -------------------------------------------------------------------------------------- documents


def describe_plan(plan: Plan, cron_words: str) -> str:
    words = cron_words or _plan_words(plan)
    if plan.kind not in ("every", "at") and not plan.step:
        words += f", {plan.zone.name} time" if plan.zone.name != "UTC" else ", UTC"
    words += f", from {format_moment(plan.start)}" if plan.start is not None else ""
    words += f", counted from {format_moment(plan.anchor)}" if plan.anchor is not None else ""
    words += f", until {format_moment(plan.end)}" if plan.end is not None else ""
    words += f", spread over {format_duration(plan.jitter)}" if plan.jitter else ""
    return words + _dst_words(plan)


def _plan_words(plan: Plan) -> str:
    if plan.kind == "at":
        return f"once at {format_moment(plan.at)}" if plan.at else "once, right away"
    if plan.rule is not None:
        return f"by the rule {plan.rule.text}"
    return _plan_every(plan) if plan.kind == "every" else _plan_period(plan)


def _dst_words(plan: Plan) -> str:
    words = ", times that the clock skips are left out" if plan.gap == "skip" else ""
    if plan.fold != "first":
        words += f", repeated times run {'twice' if plan.fold == 'both' else 'the second time'}"
    return words


def _plan_every(plan: Plan) -> str:
    length = format_duration(plan.step)
    return f"{length} after each run ends" if plan.delay else f"every {length}"


def _plan_period(plan: Plan) -> str:
    if plan.period is None:
        return f"every {format_duration(plan.step)}"
    spec = plan.period
    words = _every(spec.every, spec.unit) + _period_days(spec)
    if spec.time is None:
        return words + " at the time of day of its start"
    fraction = f"{spec.time % 1_000_000:06}".rstrip("0")
    return words + f" at {clock_text(spec.time)}" + (f" and 0.{fraction} s" if fraction else "")


def _period_days(spec: PeriodSpec) -> str:
    words = ""
    if spec.days:
        words += " on " + _weekday_set({(day + 1) % 7 for day in spec.days})
    if spec.month_days:
        numbered = [day for day in spec.month_days if day > 0]
        named = ([_counted("day", numbered)] if numbered else []) + (["the last day"] if -1 in spec.month_days else [])
        words += " on " + join(named)
    if spec.months:
        words += " of " + join(MONTH_NAMES[month - 1] for month in spec.months)
    return words if spec.clamp else words + " (months without such a day are left out)"
