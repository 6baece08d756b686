"""Why a run ended as it did, why it was not tried again, and what its earlier attempts came to."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from horae.core.insight.why.facts import NOT_TRIED, Facts, Sentence, counted, listed, span, stamp
from horae.core.insight.why.waiting import runs_named
from horae.core.model import LOST_LIMIT, SECOND, Attempt, Json, Misfire, Moment, Node, NodeState, Overlap, Reason, State
from horae.core.runs.lifecycle import BY_ITSELF, MISFIRE_GRACE
from horae.core.time.moments import format_duration
from horae.core.watched import WATCHED
from horae.core.work.kinds import BY_SERVERS, REMEDIES


def explain_end(facts: Facts) -> list[Sentence]:
    """Why a run that is over ended as it did."""
    run = facts.the_run
    explain = _BY_STATE[run.state].get(run.reason) or _BY_STATE[run.state].get("")
    assert explain is not None, "every state has a sentence for whatever reason"
    return [explain(facts), *_wall(facts), *_no_retry(facts)]


def _wall(facts: Facts) -> list[Sentence]:
    """Which wall of its sandbox a step met, as its executor found (core.insight.walls), and the line to add."""
    result = facts.the_run.result
    cause = result.get("cause") if isinstance(result, dict) else None
    if not isinstance(cause, dict) or not isinstance(cause.get("message"), str):
        return []
    line = cause.get("line")
    return [Sentence("run.wall", cause["message"], cause, unblock=line if isinstance(line, str) else "")]


# ── succeeded, timed out ──
def _succeeded(facts: Facts) -> Sentence:
    run = facts.the_run
    said = f": {run.message}" if run.message else ""
    return Sentence("run.succeeded", f"it succeeded{_when(facts)}{said}", _base(facts))


def _timed_out(facts: Facts) -> Sentence:
    seconds = facts.job.policy.timeout_seconds
    policy = "" if seconds is None else f"timeout: {format_duration(round(seconds * SECOND))}"
    return Sentence(
        "run.timed_out",
        f"it took too long{_when(facts)}: {_said(facts)}",
        _base(facts),
        policy,
        "raise timeout in the job",
    )


def _when(facts: Facts) -> str:
    run = facts.the_run
    took = None if run.started_at is None or run.finished_at is None else run.finished_at - run.started_at
    return f" on {run.node} after {span(took)}" if took is not None and run.node else ""


def _said(facts: Facts) -> str:
    run = facts.the_run
    return run.message or (
        f"its reason is {run.reason}, and no more is recorded" if run.reason else "no more is recorded"
    )


def _base(facts: Facts) -> Json:
    run = facts.the_run
    return {
        "reason": run.reason, "attempt": run.attempt, "node": run.node, "exit_code": run.exit_code,
        "finished_at": None if run.finished_at is None else stamp(run.finished_at),
    }  # fmt: skip


# ── did not run ──
def _overlap(facts: Facts) -> Sentence:
    run, policy = facts.the_run, facts.job.policy
    holders = runs_named(run.message)
    holder = facts.others.get(holders[0]) if holders else None
    data = {
        **_base(facts),
        "holder": holders[0] if holders else None,
        "holder_state": holder.state.word if holder else None,
    }
    who = f"it was skipped: {run.message or 'another run of its job was live'}"
    until = f", which went on until {stamp(holder.finished_at)}" if holder is not None and holder.finished_at else ""
    return Sentence(
        "run.skipped.overlap", f"{who}{until}", data, _overlap_line(policy.overlap), "overlap: queue, or overlap: allow"
    )


def _overlap_line(overlap: Overlap) -> str:
    return f"overlap: {overlap.name.lower()}"


def _misfire(facts: Facts) -> Sentence:
    run = facts.the_run
    late = run.created_at - run.due_at
    found = f"it was skipped: its moment was found {span(late)} late"
    text = f"{found}, and more than {span(MISFIRE_GRACE)} is too late for it"
    if late <= MISFIRE_GRACE:
        text = f"{found}, by somebody who could not read its trigger"
    now = facts.job.policy.misfire
    changed = "" if now is Misfire.SKIP else f" (the job says {now.name.lower()} now)"
    data = {**_base(facts), "late_seconds": late / SECOND, "found_at": stamp(run.created_at)}
    return Sentence(
        "run.skipped.misfire", f"{text}{changed}", data, "misfire: skip", "misfire: run_latest, or misfire: run_all"
    )


def _coalesced(facts: Facts) -> Sentence:
    run = facts.the_run
    into = None if run.into_run_id is None else facts.others.get(run.into_run_id)
    stands = f"run {run.into_run_id}" if run.into_run_id is not None else "a later run"
    state = f", which {_past(into.state)}" if into is not None else ""
    late = run.created_at - run.due_at
    found = f"its moment was found {span(late)} late with later ones"
    text = f"it did not run by itself: {found}, and {stands} stands for it{state}"
    data = {
        **_base(facts),
        "into_run_id": run.into_run_id,
        "into_state": into.state.word if into else None,
        "late_seconds": late / SECOND,
    }
    policy = facts.job.policy
    limit = f", misfire_limit: {policy.misfire_limit}" if policy.misfire is Misfire.RUN_ALL else ""
    return Sentence("run.coalesced", text, data, f"misfire: {policy.misfire.name.lower()}{limit}", "misfire: run_all")


def _past(state: State) -> str:
    return state.word if state in (State.SUCCEEDED, State.FAILED) else f"is {state.word}".replace("_", " ")


def _start_deadline(facts: Facts) -> Sentence:
    run, seconds = facts.the_run, facts.job.policy.start_deadline_seconds
    line = "" if seconds is None else f"start_deadline: {format_duration(round(seconds * SECOND))}"
    data = {**_base(facts), "due_at": stamp(run.due_at)}
    return Sentence(
        "run.skipped.start_deadline",
        f"it was skipped: {_said(facts)}",
        data,
        line,
        "a later start_deadline, more agents, or a higher priority",
    )


def _draining(facts: Facts) -> Sentence:
    name = facts.job.policy.queue
    text = f"it was skipped: its queue {name} took nothing new at its moment"
    return Sentence(
        "run.skipped.queue_draining",
        text,
        {**_base(facts), "queue": name},
        "state: draining",
        f"horae queues resume {name}",
    )


def _owner(facts: Facts) -> Sentence:
    owner = facts.job.owner
    who = f"{owner}, the owner of its job"
    text = f"it was skipped: {who}, was disabled or might not run it at its moment"
    if facts.the_run.message:  # it was made while that was allowed
        text = f"it was skipped while it waited: {who}, was disabled or may not run it any more"
    return Sentence("run.skipped.owner", text, {**_base(facts), "owner": owner})


def _owner_failed(facts: Facts) -> Sentence:
    """Of a task, or of what a handler called: whoever waits for it is not to go on as if all were well."""
    owner = facts.job.owner
    far = "it went no further" if facts.the_run.attempt else "it did not begin"
    text = f"{far}: {owner}, the owner of its job, was disabled or might not run it any more"
    return Sentence("run.failed.owner", text, {**_base(facts), "owner": owner})


def _dependency(facts: Facts) -> Sentence:
    message = facts.the_run.message
    runs = [
        {"id": run_id, "state": facts.others[run_id].state.word, "reason": facts.others[run_id].reason}
        for run_id in runs_named(message)
        if run_id in facts.others
    ]
    after = ", ".join(f"{{job: {one.job}, on: {one.on}}}" for one in facts.job.policy.after)
    line = f"after: [{after}]" if after else "needs"
    unblock = f"horae explain run:{runs[0]['id']}" if runs else ""
    return Sentence(
        "run.skipped.dependency",
        f"it was skipped: it {message or 'comes after others'}",
        {**_base(facts), "runs": runs},
        line,
        unblock,
    )


def _signal(facts: Facts) -> Sentence:
    return Sentence("run.skipped.signal", f"it was skipped: {_said(facts)}", _base(facts), "otherwise: skip")


def _skipped(facts: Facts) -> Sentence:
    return Sentence("run.skipped.other", f"it was skipped: {_said(facts)}", _base(facts))


# ── failed ──
def _failed(code: str, words: str, policy: str = "", unblock: str = "") -> Callable[[Facts], Sentence]:
    def explain(facts: Facts) -> Sentence:
        run_id = facts.the_run.id
        text = f"{words}{_when(facts)}: {_said(facts)}"
        return Sentence(code, text, _base(facts), policy, unblock or f"horae logs {run_id}")

    return explain


def _task_failed(facts: Facts) -> Sentence:
    """Its message names the task."""
    run_id = facts.the_run.id
    text = f"it failed{_when(facts)}: {_said(facts)}"
    return Sentence(
        "run.failed.task", text, _base(facts), "", f"horae runs show {run_id}, then horae runs retry {run_id}"
    )


def _exit(facts: Facts) -> Sentence:
    run = facts.the_run
    code = "" if run.exit_code is None else f" with exit code {run.exit_code}"
    return Sentence(
        "run.failed.exit",
        f"it failed{_when(facts)}{code}: {_said(facts)}",
        _base(facts),
        unblock=f"horae logs {run.id}",
    )


def _lost(facts: Facts) -> Sentence:
    run = facts.the_run
    nodes = sorted(
        {one.node for one in facts.attempts if one.reason == Reason.LOST and one.node}
        | ({run.node} if run.node else set())
    )
    text = f"it was given up after {counted(run.lost + 1, 'lost attempt')}, on {listed(nodes)}: {_said(facts)}"
    data = {**_base(facts), "lost": run.lost + 1, "nodes": nodes}
    return Sentence(
        "run.failed.lost",
        text,
        data,
        f"at most {LOST_LIMIT} lost attempts",
        "horae nodes, and the logs of these machines",
    )


def _no_agent(facts: Facts) -> Sentence:
    run = facts.the_run
    return Sentence(
        "run.failed.no_agent",
        f"it failed: {_said(facts)}",
        {**_base(facts), "kind": run.kind},
        f"kind: {run.kind}",
        REMEDIES.get(run.kind, ""),
    )


def _missed(facts: Facts) -> Sentence:
    """Of a job that others run: its message says what was heard of it."""
    job_id, watched = facts.job.id, facts.job.spec.get(WATCHED)
    grace = "" if watched is None else f"watched: {{grace: {format_duration(round(watched['grace'] * SECOND))}}}"
    text = f"nobody told in time how it ended: {_said(facts)}"
    return Sentence(
        "run.failed.missed", text, _base(facts), grace,
        f"see where the job runs whether it did, and whether it tells horae ping-url {job_id}",
    )  # fmt: skip


# ── why it was not tried again ──
# Ends that no retry is for: nothing was tried, or what was tried is another run, or it was given up otherwise.
_NEVER_RETRIED: frozenset[str] = frozenset({
    Reason.LOST, Reason.NO_AGENT, Reason.OWNER, Reason.CHILDREN, Reason.DEPENDENCY, Reason.REJECTED, Reason.MISSED,
})  # fmt: skip
_JUDGED = "not tried again: "  # with which the verdict on an exception begins (executors.handlers.outcomes)


def _no_retry(facts: Facts) -> list[Sentence]:
    """Why a run that failed was not tried again, by the rule of core.runs.lifecycle.after_failure."""
    run, retry = facts.the_run, facts.job.policy.retry
    if run.state not in (State.FAILED, State.TIMED_OUT) or run.kind in BY_SERVERS or run.reason in _NEVER_RETRIED:
        return []
    used, allowed = run.attempt - run.lost, retry.attempts
    data: Json = {"used": used, "attempts": allowed, "lost": run.lost}
    if used >= allowed:
        return [_used_up(used, allowed, data)]
    why = run.message.partition(_JUDGED)[2].removesuffix(")")
    far = f"it was not tried again after attempt {used} of {allowed}"
    if why:
        return [Sentence("run.no_retry", f"{far}: {why}", {**data, "why": why}, _list_of(facts, why))]
    if run.message.startswith("E_DATA: "):
        text = f"{far}: its data does not fit its handler, which another attempt would not change"
        return [Sentence("run.no_retry", text, {**data, "why": "E_DATA"}, unblock="run it again with data that fits")]
    if run.cancel_requested:
        return [Sentence("run.no_retry", f"{far}: somebody wanted it cancelled", {**data, "why": "cancelled"})]
    if run.finished_at is not None and facts.job.updated_at > run.finished_at:
        text = f"{far}: the job was changed since, and what it allowed before is not kept"
        return [Sentence("run.no_retry", text, {**data, "why": "changed"}, _attempts_line(allowed))]
    text = f"{far}: what did the work found that another attempt would fare alike"
    return [Sentence("run.no_retry", text, {**data, "why": "final"}, _attempts_line(allowed))]


def _used_up(used: int, allowed: int, data: Json) -> Sentence:
    if allowed == 1:
        text = "it was not tried again: its job allows one attempt"
        return Sentence("run.no_retry", text, {**data, "why": "once"}, unblock="retry: {attempts: 3} in the job")
    text = f"it was not tried again: {used} of {allowed} attempts were used"
    return Sentence("run.no_retry", text, {**data, "why": "used"}, _attempts_line(allowed), "more attempts in retry")


def _attempts_line(allowed: int) -> str:
    return f"retry: {{attempts: {allowed}}}"


def _list_of(facts: Facts, why: str) -> str:
    """Return the line of the job that named the class; empty where its handler did."""
    retry = facts.job.policy.retry
    lists = {"retry.never": retry.never, "retry.on": retry.on}
    return next((f"{name}: [{', '.join(of)}]" for name, of in lists.items() if why.startswith(f"{name} ")), "")


# ── cancelled ──
def _cancelled(code: str, policy: str = "") -> Callable[[Facts], Sentence]:
    def explain(facts: Facts) -> Sentence:
        run = facts.the_run
        by = next((part for part in run.message.split("; ") if part.startswith(("cancelled by", "replaced by"))), None)
        by = None if by is None else by.partition(" by ")[2]
        runs = runs_named(by or "")
        who = run.message or f"cancelled ({run.reason or 'no reason'}), by whom is not recorded"
        data = {**_base(facts), "by": by, "run": runs[0] if runs else None}
        return Sentence(code, f"it was {who if by or not run.message else f'cancelled: {who}'}", data, policy)

    return explain


_by_somebody = _cancelled("run.cancelled.requested")


def _requested(facts: Facts) -> Sentence:
    """By somebody, whose name comes first in the message, or by its own work, whose words stand there alone."""
    message = facts.the_run.message
    if not message.startswith(BY_ITSELF):
        return _by_somebody(facts)
    why = message.removeprefix(BY_ITSELF)
    text = f"nobody else cancelled it: its handler put an end to it ({why or 'it did not say why'})"
    unblock = f"horae logs {facts.the_run.id}"
    return Sentence("run.cancelled.itself", text, {**_base(facts), "why": why}, unblock=unblock)


def _deleted(facts: Facts) -> Sentence:
    at = facts.job.deleted_at
    when = "" if at is None else f" at {stamp(at)}"
    return Sentence("run.cancelled.deleted", f"it was cancelled: its job was deleted{when}", _base(facts))


_Table = dict[str, Callable[[Facts], Sentence]]
_SKIPS: _Table = {
    Reason.OVERLAP: _overlap, Reason.MISFIRE: _misfire, Reason.START_DEADLINE: _start_deadline,
    Reason.QUEUE_DRAINING: _draining, Reason.OWNER: _owner, Reason.DEPENDENCY: _dependency,
    Reason.SIGNAL: _signal, "": _skipped,
}  # fmt: skip
_FAILURES: _Table = {
    Reason.EXIT: _exit,
    Reason.ERROR: _failed("run.failed.error", "it broke"),
    Reason.LOST: _lost,
    Reason.NO_AGENT: _no_agent,
    Reason.TIMEOUT: _failed(
        "run.failed.timeout", "it waited in vain", "otherwise: fail", "decide sooner, or a longer within"
    ),
    Reason.OUTPUT_LIMIT: _failed("run.failed.output_limit", "it wrote too much"),
    Reason.OOM: _failed("run.failed.oom", "it needed too much memory", "memory", "raise the memory of the job"),
    Reason.PROCESSES: _failed("run.failed.processes", "it made too many processes"),
    Reason.BAD_RESULT: _failed("run.failed.bad_result", "its result cannot be kept"),
    Reason.REJECTED: _failed("run.failed.rejected", "it was rejected", "approval"),
    Reason.OWNER: _owner_failed,
    Reason.MISSED: _missed,
    Reason.CHILDREN: _task_failed,
    Reason.DEPENDENCY: _task_failed,
    "": _failed("run.failed.other", "it failed"),
}
_CANCELS: _Table = {
    Reason.REQUESTED: _requested,
    Reason.REPLACED: _cancelled("run.cancelled.replaced", "overlap: replace"),
    Reason.DELETED: _deleted,
    "": _cancelled("run.cancelled.other"),
}
_BY_STATE: dict[State, _Table] = {
    State.SUCCEEDED: {"": _succeeded},
    State.TIMED_OUT: {"": _timed_out},
    State.SKIPPED: _SKIPS,
    State.COALESCED: {"": _coalesced},
    State.FAILED: _FAILURES,
    State.CANCELLED: _CANCELS,
}


# ── earlier attempts ──
def explain_attempts(facts: Facts) -> list[Sentence]:
    """What became of attempts that did not end the run; of very many, the last."""
    tried = [one for one in facts.attempts if one.reason not in NOT_TRIED]
    return [_attempt(facts, one) for one in tried[-MOST_ATTEMPTS:]]


MOST_ATTEMPTS = 10


def _attempt(facts: Facts, one: Attempt) -> Sentence:
    began = "" if one.started_at is None else f", begun at {stamp(one.started_at)},"
    data: Json = {
        "attempt": one.attempt, "node": one.node, "reason": one.reason, "exit_code": one.exit_code,
        "started_at": None if one.started_at is None else stamp(one.started_at), "finished_at": stamp(one.finished_at),
    }  # fmt: skip
    if one.reason != Reason.LOST:
        how, said = one.state.word.replace("_", " "), one.message or one.reason or "no more is recorded"
        text = f"attempt {one.attempt} on {one.node}{began} {how}: {said}"
        return Sentence("attempt.failed", text, data, "retry", f"horae logs {one.run_id} --attempt {one.attempt}")
    seen, heard_at = _last_heard(facts.nodes, one)
    text = f"attempt {one.attempt}{began} was lost with {one.node}: {one.message}; {seen}"
    data["last_heard_at"] = None if heard_at is None else stamp(heard_at)
    return Sentence("attempt.lost", text, data, unblock=f"horae logs {one.run_id} --attempt {one.attempt}")


def _last_heard(nodes: Sequence[Node], lost: Attempt) -> tuple[str, Moment | None]:
    """When the agent of a lost attempt was last heard of, as far as its row still says that."""
    node = next((node for node in nodes if node.name == lost.node), None)
    if node is None:
        return "nothing is known of that node any more", None
    if node.heartbeat_at <= lost.finished_at:
        return f"it was last heard of at {stamp(node.heartbeat_at)}", node.heartbeat_at
    if node.started_at > lost.finished_at:
        return f"it came back at {stamp(node.started_at)}", None
    return (
        "it has been heard since"
        if node.state is not NodeState.GONE
        else f"it was heard until {stamp(node.heartbeat_at)}",
        None,
    )
