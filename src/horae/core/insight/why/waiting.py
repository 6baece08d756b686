"""Why a run that is not over is where it is: what it waits for, and what would let it go on."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from horae.core.insight.why.agents import why_no_agent
from horae.core.insight.why.facts import SHOWN, Facts, Sentence, counted, listed, span, stamp
from horae.core.model import EVERY_AGENT, LOST_LIMIT, SECOND, Json, Phase, Reason, Run, State
from horae.core.policy import debounce
from horae.core.policy.demands import RESOURCE
from horae.core.policy.limits import LimitState, name_of
from horae.core.policy.queues import QueueState
from horae.core.runs.stages import is_kept_outside
from horae.core.time.moments import format_duration
from horae.core.watched import WATCHED
from horae.core.work.kinds import BY_SERVERS
from horae.core.work.progress import progress_words
from horae.core.work.waiting import WAIT

_RUN = re.compile(r"\brun (\d{1,19})\b")


def runs_named(text: str) -> list[int]:
    """Return the ids of runs that a recorded sentence names."""
    return [int(found) for found in _RUN.findall(text)]


def explain_live(facts: Facts) -> list[Sentence]:
    run = facts.the_run
    found = _running(facts) if run.state is State.RUNNING else _waiting(facts)
    return [*found, *_cancelling(facts)]


def _running(facts: Facts) -> list[Sentence]:
    run = facts.the_run
    since = "" if run.started_at is None else f" since {stamp(run.started_at)}"
    doing = "prepares" if run.phase is Phase.PREPARING else "runs"
    far = f": {progress_words(run.progress)}" if run.progress else ""
    data: Json = {"node": run.node, "attempt": run.attempt, "phase": run.phase.name.lower()}
    data["started_at"] = None if run.started_at is None else stamp(run.started_at)
    return [Sentence("run.running", f"attempt {run.attempt} {doing} on {run.node}{since}{far}", data)]


def _cancelling(facts: Facts) -> list[Sentence]:
    run = facts.the_run
    if not run.cancel_requested:
        return []
    note = facts.standing.cancel_note or "who asked is not recorded"
    return [Sentence("run.cancelling", f"it is to be cancelled: {note}", {"by": note, "reason": run.reason})]


def _waiting(facts: Facts) -> list[Sentence]:
    run = facts.the_run
    if run.state is State.QUEUED:
        return [*_for_agent(facts), *_deadline(facts)]
    explain = _BY_REASON.get(run.reason)
    if explain is None:
        return [Sentence("wait.other", f"it is blocked ({run.reason}): {run.message or 'no more is recorded'}")]
    return [*explain(facts), *_deadline(facts)]


def _deadline(facts: Facts) -> list[Sentence]:
    at = facts.standing.start_by
    if at is None:
        return []
    within = facts.job.policy.start_deadline_seconds
    policy = "" if within is None else f"start_deadline: {format_duration(round(within * SECOND))}"
    return [
        Sentence(
            "wait.start_deadline", f"it is skipped unless it begins before {stamp(at)}", {"until": stamp(at)}, policy
        )
    ]


# ── for an agent ──
def _for_agent(facts: Facts) -> list[Sentence]:
    """Of a run for which nothing but an agent is missing."""
    run = facts.the_run
    if run.kind in BY_SERVERS:
        return [Sentence("wait.server", f"a server begins it: {run.kind} takes no agent", {"kind": run.kind})]
    if facts.queue.state is QueueState.PAUSED:
        return [_queue_paused(facts)]
    if is_kept_outside(run):
        text = f"it is kept for workers outside Horae ({run.pin}), and none has taken it"
        return [Sentence("wait.outside", text, {"pin": run.pin})]
    sentences = why_no_agent(facts)
    if facts.the_run.reason == Reason.LOST:
        sentences.insert(0, _after_loss(facts))
    is_moving = sentences[0].code in ("wait.slots", "wait.soon", "wait.lost", "wait.resources")
    return [*sentences[:1], *(_line(facts) if is_moving else []), *sentences[1:]]


def _queue_paused(facts: Facts) -> Sentence:
    name = facts.queue.name
    text = f"its queue {name} is paused since {stamp(facts.queue.updated_at)} or before: nothing starts from it"
    return Sentence("wait.queue_paused", text, {"queue": name}, "state: paused", f"horae queues resume {name}")


def _after_loss(facts: Facts) -> Sentence:
    run = facts.the_run
    text = f"its last agent was lost, {counted(run.lost, 'time')} so far: it waits for another"
    return Sentence("wait.lost", text, {"lost": run.lost, "at_most": LOST_LIMIT})


def _line(facts: Facts) -> list[Sentence]:
    line = facts.line
    if not line.total:
        return []
    parts = [
        f"{line.higher} with a higher priority" if line.higher else "",
        f"{line.others} of queues that go first" if line.others else "",
        f"{line.same} of its own priority whose turn is sooner (fair share)" if line.same else "",
    ]
    more = "at least " if line.is_cut else ""
    text = f"{more}{counted(line.total, 'run')} of its kind go before it: {', '.join(filter(None, parts))}"
    data: Json = {
        "place": line.total + 1, "before": line.total, "higher_priority": line.higher, "other_queues": line.others,
        "same_priority": line.same, "runs": list(line.first), "at_least": line.is_cut,
    }  # fmt: skip
    policy = f"priority: {facts.the_run.priority} in the queue {facts.queue.name}"
    return [Sentence("wait.line", text, data, policy, "wait, or give the job a higher priority")]


# ── for limits ──
def _limit(facts: Facts) -> list[Sentence]:
    if facts.queue.state is QueueState.PAUSED:
        return [_queue_paused(facts)]
    full = [state for state in facts.limits if not state.limit.has_room(state.used, state.cost)]
    held = [_full(facts, state) for state in full] or _rates(facts)
    if held:
        return held
    return [*why_no_agent(facts)]


def _full(facts: Facts, state: LimitState) -> Sentence:
    key, name = state.limit.key, name_of(state.limit.key, facts.queue_names)
    runs, capacity = list(state.runs[:SHOWN]), state.limit.capacity
    data: Json = {"key": key, "used": state.used, "capacity": capacity, "wants": state.cost, "runs": runs}
    by = f": runs {listed(runs)}" if runs else ""
    if key.startswith(RESOURCE):
        what = key.removeprefix(RESOURCE)
        text = f"it asks for {state.cost} of {what}, and {state.used} of {capacity} are in use{by}"
        return Sentence(
            "wait.limit.resource", text, data, f"resources: {{{what}: {state.cost}}}", f"horae resources set {what} N"
        )
    if key.startswith("queue:"):
        text = f"{state.used} of {capacity} run in its queue {facts.queue.name}{by}"
        unblock = f"wait, or horae queues set {facts.queue.name} with a higher concurrency"
        return Sentence("wait.limit.queue", text, data, f"concurrency: {capacity}", unblock)
    text = f"{state.used} of {capacity} run with {name}{by}"
    policy = f"concurrency_limits: [{{limit: {capacity}, per: {_per(key)}}}]"
    return Sentence("wait.limit.concurrency", text, data, policy, "wait for one to end, or raise the limit in the job")


def _rates(facts: Facts) -> list[Sentence]:
    """The rate that lets it start last."""
    rates = [
        (at, state) for state in facts.limits if (at := state.next_at(facts.as_of)) is not None and at > facts.as_of
    ]
    if not rates:
        return []
    at, state = max(rates, key=lambda each: each[0])
    name = name_of(state.limit.key, facts.queue_names)
    data: Json = {"key": state.limit.key, "rate": state.rate, "burst": state.limit.burst, "until": stamp(at)}
    text = f"the rate {state.rate} of {name} lets the next one start at {stamp(at)}, in {span(at - facts.as_of)}"
    return [
        Sentence("wait.limit.rate", text, data, f"rate: {state.rate}", f"wait until {stamp(at)}, or raise the rate")
    ]


def _per(key: str) -> str:
    return key.split(":", 2)[1] if key.count(":") > 1 else key.split(":", 1)[0]


# ── for other runs ──
def _overlap(facts: Facts) -> list[Sentence]:
    word = facts.job.policy.overlap.name.lower()
    holder = facts.holder
    if holder is None:
        text, data = "it waits for the end of another run of its job, which has just ended", {}
    else:
        text = f"run {holder.id} of its job is {holder.state.word}, and this one waits for its end"
        data = {"holder": holder.id, "state": holder.state.word}
    unblock = "" if holder is None else f"horae cancel {holder.id}, or overlap: allow in the job"
    return [Sentence("wait.overlap", text, data, f"overlap: {word}", unblock)]


def _dependency(facts: Facts) -> list[Sentence]:
    message = facts.the_run.message
    runs = [_brief(facts.others[run_id]) for run_id in runs_named(message) if run_id in facts.others]
    after = ", ".join(f"{{job: {one.job}, on: {one.on}, moment: {one.moment}}}" for one in facts.job.policy.after)
    text = f"it {message}" if message else "it comes after other runs, which nobody has looked at yet"
    unblock = f"horae explain run:{runs[0]['id']}" if runs else ""
    return [Sentence("wait.dependency", text, {"runs": runs}, f"after: [{after}]", unblock)]


def _brief(run: Run) -> Json:
    return {"id": run.id, "job_id": run.job_id, "state": run.state.word, "reason": run.reason}


def _children(facts: Facts) -> list[Sentence]:
    counts = {} if facts.tasks is None else facts.tasks.counts
    live = {
        task: {state: number for state, number in states.items() if state in ("queued", "running", "blocked")}
        for task, states in counts.items()
    }
    live = {task: states for task, states in live.items() if states}
    words = [
        f"{task} ({', '.join(f'{n} {state}' if n > 1 else state for state, n in states.items())})"
        for task, states in live.items()
    ]
    if not words:
        text = facts.the_run.message or "it waits for its tasks; none of them is live now: the next is being made"
        text = text if text.startswith("it ") else f"it {text}"
    else:
        what = "its agents' runs" if facts.job.policy.every == EVERY_AGENT else "its tasks"
        text = f"it waits for {what}: {listed(words)}"
    run_id = facts.the_run.id
    return [Sentence("wait.children", text, {"tasks": live}, unblock=f"horae runs --parent {run_id}")]


def _destination(facts: Facts) -> list[Sentence]:
    run = facts.the_run
    writer = facts.standing.waits_for
    data: Json = {"run": writer}
    text = f"it {run.message}" if run.message else "another run writes what it would write"
    return [
        Sentence("wait.destination", text, data, unblock="" if writer is None else f"wait, or horae cancel {writer}")
    ]


# ── for a moment, or to be told something ──
def _until(facts: Facts) -> tuple[str, Json]:
    at = facts.the_run.eligible_at
    return ("", {"until": None}) if at is None else (f" until {stamp(at)}", {"until": stamp(at)})


def _retry(facts: Facts) -> list[Sentence]:
    run, retry = facts.the_run, facts.job.policy.retry
    until, data = _until(facts)
    tried = run.attempt - run.lost
    last = facts.attempts[-1] if facts.attempts else None
    why = f": {last.message or last.reason or last.state.word}" if last is not None else ""
    data |= {"attempt": run.attempt, "next_attempt": run.attempt + 1, "attempts": retry.attempts, "lost": run.lost}
    if last is not None and last.reason == Reason.LOST:
        return [Sentence("wait.lost", f"its last attempt was lost{why}; the next one waits{until}", data)]
    text = f"attempt {tried} of {retry.attempts} failed{why}; the next one waits{until}"
    policy = f"retry: {{attempts: {retry.attempts}, backoff: {format_duration(round(retry.backoff_seconds * SECOND))}}}"
    return [Sentence("wait.retry", text, data, policy, "wait, or horae cancel it and run it again")]


def _later(facts: Facts) -> list[Sentence]:
    until, data = _until(facts)
    return [
        Sentence(
            "wait.later",
            f"it was ordered for later, and waits{until}",
            data,
            unblock=f"horae cancel {facts.the_run.id}",
        )
    ]


def _debounce(facts: Facts) -> list[Sentence]:
    run, policy = facts.the_run, facts.job.policy.debounce
    _, data = _until(facts)
    latest = facts.standing.latest_at
    data["latest_at"] = None if latest is None else stamp(latest)
    text = debounce.why_waiting(policy, run.eligible_at, stamp)
    line = "" if policy is None else f"debounce: {format_duration(round(policy.seconds * SECOND))}"
    return [Sentence("wait.debounce", text, data, line, "wait, or cancel it")]


def _signal(facts: Facts) -> list[Sentence]:
    run, job = facts.the_run, facts.job
    until, data = _until(facts)
    if job.kind == WATCHED:
        return [_ping(facts)]
    asked = job.spec["wait"].get("approval") if job.kind == WAIT else None
    if asked is not None:
        who = asked["by"]
        said = f' ("{asked["message"]}")' if asked.get("message") else ""
        text = f"it waits for the decision of {' or '.join(who)}{said}{until}"
        policy = f"approval: {{by: [{', '.join(who)}]}}"
        return [
            Sentence(
                "wait.approval", text, {**data, "by": who}, policy, f"horae approve {run.id}, or horae reject {run.id}"
            )
        ]
    text = f"it waits to be told {run.awaits}{until}"
    return [
        Sentence("wait.signal", text, {**data, "signal": run.awaits}, unblock=f"horae signal {run.id} {run.awaits}")
    ]


def _ping(facts: Facts) -> Sentence:
    """Of a job that others run."""
    job, (_, data) = facts.job, _until(facts)
    left = "" if data["until"] is None else f", and has failed unless that comes before {data['until']}"
    text = f"others run it: it waits for a ping that tells how it ended{left}"
    grace = format_duration(round(job.spec[WATCHED]["grace"] * SECOND))
    return Sentence("wait.ping", text, data, f"watched: {{grace: {grace}}}", f"horae ping-url {job.id}")


def _snoozed(facts: Facts) -> list[Sentence]:
    until, data = _until(facts)
    return [Sentence("wait.snoozed", f"it asked to go on later, and waits{until}", data, unblock="wait, or cancel it")]


_BY_REASON: dict[str, Callable[[Facts], Sequence[Sentence]]] = {
    Reason.LIMIT: _limit, Reason.OVERLAP: _overlap, Reason.RETRY: _retry, Reason.LATER: _later,
    Reason.DEBOUNCE: _debounce, Reason.DEPENDENCY: _dependency, Reason.CHILDREN: _children, Reason.SIGNAL: _signal,
    Reason.SNOOZED: _snoozed, Reason.DESTINATION_BUSY: _destination,
}  # fmt: skip
