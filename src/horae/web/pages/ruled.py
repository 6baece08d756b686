"""How a job runs, in words: what its policy says beyond what any job has."""

from __future__ import annotations

from collections.abc import Iterator

from horae.core.model import OWNER_SHARE, ConcurrencyLimit, Misfire, Overlap, Policy, RateLimit, Retry
from horae.web.pages.words import span

_OVERLAP = {
    Overlap.FORBID: "one run at a time; a moment that finds one under way is skipped",
    Overlap.ALLOW: "any number of runs at a time",
    Overlap.REPLACE: "one run at a time; a new one cancels the one before",
}
_MISFIRE = {
    Misfire.RUN_LATEST: "the latest of missed moments runs",
    Misfire.SKIP: "missed moments are skipped",
}


def how_it_runs(policy: Policy) -> list[tuple[str, str]]:
    """Return what is ruled, and how: what every job has first, then what this one has of its own."""
    return [*_usual(policy), *_own(policy)]


def _usual(policy: Policy) -> Iterator[tuple[str, str]]:
    yield "Queue", f"{policy.queue}, priority {policy.priority}"
    yield "Overlap", _overlap(policy)
    yield "Missed", _MISFIRE.get(policy.misfire, f"all missed moments run, up to {policy.misfire_limit}")
    yield "Retries", _retries(policy.retry)
    timeout = policy.timeout_seconds
    yield "Timeout", "none of its own" if timeout is None else f"{_seconds(timeout)} for each attempt"


def _own(policy: Policy) -> Iterator[tuple[str, str]]:
    if policy.start_deadline_seconds is not None:
        yield "Starts within", f"{_seconds(policy.start_deadline_seconds)}, or is skipped"
    if policy.share != OWNER_SHARE:
        yield "Shares by", policy.share
    for rate in policy.rate_limits:
        yield "Rate", _rate(rate)
    for limit in policy.concurrency_limits:
        yield "At once", _at_once(limit)
    if policy.labels:
        yield "Agents with", ", ".join(policy.labels)
    if policy.debounce is not None:
        yield "Waits for calm", f"{_seconds(policy.debounce.seconds)} after the last order"
    if policy.pause_after_failures is not None:
        yield "Pauses itself", f"after {policy.pause_after_failures} failures in a row"
    if policy.every is not None:
        yield "Runs on", f"every {policy.every}"


def _overlap(policy: Policy) -> str:
    if policy.overlap is Overlap.QUEUE:
        return f"one run at a time; up to {policy.overlap_limit} wait for it"
    return _OVERLAP[policy.overlap]


def _retries(retry: Retry) -> str:
    if retry.attempts == 1:
        return "none"
    said = f"up to {retry.attempts} attempts, {_seconds(retry.backoff_seconds)} apart at first"
    said += f", {retry.factor:g} times as long each time" if retry.factor != 1 else ""
    said += f"; only after {', '.join(retry.on)}" if retry.on else ""
    return said + (f"; never after {', '.join(retry.never)}" if retry.never else "")


def _rate(limit: RateLimit) -> str:
    burst = f", {limit.burst} at once" if limit.burst > 1 else ""
    return f"{limit.rate}{burst}{_per(limit.per)}"


def _at_once(limit: ConcurrencyLimit) -> str:
    return f"{limit.limit}{_per(limit.per)}"


def _per(what: str) -> str:
    return "" if what == "job" else f", for each {what}"


def _seconds(seconds: float) -> str:
    return f"{seconds:g} s" if seconds < 60 else span(seconds * 1000).removesuffix(" 0 s").removesuffix(" 0 min")
