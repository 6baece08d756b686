"""The calls about runs: asked for, watched, told something, ended."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from horae.client.making import (
    MANY_TIMEOUT,
    Ahead,
    OrderAnswers,
    dump,
    get,
    given,
    list_all,
    load_answer,
    new_key,
    one,
    parts,
    send,
)
from horae.client.steps import Call, Pause, Steps, ask
from horae.client.wire import Request

if TYPE_CHECKING:
    from horae.client.many import Ordered
    from horae.schemas import ApprovalPage, ArtifactPage, Callback, PingAddress, RerunAnswers, Run, RunDetail, RunPage


def run_now(
    job_id: int,
    *,
    data: Mapping[str, Any] | None = None,
    node: str | None = None,
    priority: int | None = None,
    run_at: str | None = None,
    key: str = "",
) -> Call[Run]:
    """Ask for a run, now or at a moment; it may be born skipped, if the job's overlap policy says so. What is asked for
    while other orders are on their way goes together, unless it has a `key` of its own."""
    body = dump(given({"data": data, "node": node, "priority": priority, "run_at": run_at}))
    headers = {"Content-Type": "application/json", "Idempotency-Key": key or new_key()}
    order = _order(job_id, body) if not key and isinstance(job_id, int) else None
    return one(Request("POST", f"/v1/jobs/{job_id}/run", body, headers), has="id")._replace(order=order)


def _order(job_id: int, body: bytes) -> bytes:
    """Return the body of a request for one run as an order among many."""
    return b'{"job":%d%b%b' % (job_id, b"" if body == b"{}" else b",", body[1:])


def run_many(orders: Iterable[Mapping[str, Any]]) -> Call[list[Ordered]]:
    """Ask for any number of runs, 10,000 at a time: each order has a `job` (id or key), and may have data, priority,
    run_at, node and an idempotency_key. Returns, in order, the run or the error of each."""

    made, coming = OrderAnswers(), Ahead(parts(orders))

    def meanwhile() -> None:
        coming.prepare()
        made.read_ahead()

    def steps() -> Steps:
        while (part := coming.take()) is not None:
            headers = {"Content-Type": "application/json", "Idempotency-Key": new_key()}
            request = Request("POST", "/v1/runs", part, headers, timeout=MANY_TIMEOUT, meanwhile=meanwhile)
            made.take((yield from ask(request)))
        return made

    return Call(steps, answers=made)


def rerun(
    runs: Iterable[int] | None = None,
    *,
    job: int | str | None = None,
    state: Sequence[str] | None = None,
    due_from: str | None = None,
    due_until: str | None = None,
    node: str | None = None,
    attempted_by: str | None = None,
    dry_run: bool = False,
    key: str = "",
) -> Call[RerunAnswers]:
    """Run runs again with the data and priority they had: those named, or up to 10,000 found by what else is given (by
    default those that failed or timed out). `dry_run` only says which."""
    due = {"due_from": due_from, "due_until": due_until}
    where = given({"job": job, "state": state and list(state), **due, "node": node, "attempted_by": attempted_by})
    body = {"where": where} if runs is None else {"runs": list(runs), **({"where": where} if where else {})}
    headers = {"Content-Type": "application/json", "Idempotency-Key": key or new_key()}
    sent = dump({**body, **({"dry_run": True} if dry_run else {})})
    return one(Request("POST", "/v1/runs/rerun", sent, headers, timeout=MANY_TIMEOUT), has="items")


def runs(
    *,
    job_id: int | None = None,
    trigger_id: int | None = None,
    state: str | None = None,
    due_from: str | None = None,
    due_until: str | None = None,
    node: str | None = None,
    attempted_by: str | None = None,
    parent: int | None = None,
    task: str | None = None,
    tasks: bool | None = None,
    limit: int | None = 100,
    cursor: str | None = None,
) -> Call[RunPage]:
    """Runs, newest first; `state` may be a comma list, moments are RFC 3339. Limit None gives all of them. Those that
    are tasks of workflows come with `tasks`, or as those of a `parent`,
    with `task` those of one name. `attempted_by` is a node to which any attempt was ever given."""
    due = {"due_from": due_from, "due_until": due_until}
    where = {"job_id": job_id, "trigger_id": trigger_id, "state": state, **due, "node": node, "parent": parent}
    where |= {"attempted_by": attempted_by, "task": task, "tasks": "true" if tasks else None}
    return list_all("/v1/runs", where, limit, cursor)


def run(run_id: int) -> Call[RunDetail]:
    """One run, with its earlier attempts."""
    return get(f"/v1/runs/{run_id}", has="id")


def wait(run_id: int, *, result: Any = None) -> Call[RunDetail]:
    """Return the run, once it has ended; its `result` as the type that is given, if it succeeded."""

    def steps() -> Steps:
        seconds = 0.05
        while True:
            answer = yield from ask(Request("GET", f"/v1/runs/{run_id}"))
            seen = load_answer(answer, "state")
            if seen.get("finished_at") is not None or is_terminal(seen["state"]):
                return seen
            yield Pause(seconds)
            seconds = min(1.0, seconds * 1.5)

    return Call(steps, result=result)


def is_terminal(state: str) -> bool:
    return state not in ("queued", "running", "blocked")


def cancel(run_id: int) -> Call[Run]:
    """Cancel a run: one that waits ends at once, one that runs when all its processes are gone."""
    return send("POST", f"/v1/runs/{run_id}/cancel")


def retry(run_id: int) -> Call[Run]:
    """Go on with a run of a workflow that failed: a new run, which takes over the tasks that succeeded."""
    return send("POST", f"/v1/runs/{run_id}/retry")


def signal(run_id: int, name: str, value: Any = None, *, key: str = "") -> Call[Run]:
    """Tell a run something under a name: one that waits for it goes on, any other finds it when it asks. A name is
    answered once."""
    headers = {"Content-Type": "application/json", "Idempotency-Key": key or new_key()}
    return one(Request("POST", f"/v1/runs/{run_id}/signals/{quote(name, safe='')}", dump(value), headers), has="id")


def ping_address(job_id: int) -> Call[PingAddress]:
    """The address at which whoever runs a watched job tells of it, without a login."""
    return get(f"/v1/jobs/{job_id}/ping", has="path")


def rotate_ping(job_id: int) -> Call[PingAddress]:
    """Give a watched job a new address; the one of before is nothing then."""
    return send("POST", f"/v1/jobs/{job_id}/ping")


def callback(run_id: int, name: str) -> Call[Callback]:
    """The address at which others can tell a run something under a name, without a login."""
    return get(f"/v1/runs/{run_id}/callbacks/{quote(name, safe='')}", has="path")


def approve(run_id: int, comment: str = "") -> Call[Run]:
    """Approve a run that waits for it."""
    return _decide(run_id, "approve", comment)


def reject(run_id: int, comment: str = "") -> Call[Run]:
    """Reject a run that waits for an approval: it fails."""
    return _decide(run_id, "reject", comment)


def _decide(run_id: int, act: str, comment: str) -> Call[Run]:
    headers = {"Content-Type": "application/json", "Idempotency-Key": new_key()}
    return one(
        Request("POST", f"/v1/runs/{run_id}/{act}", dump({"comment": comment} if comment else {}), headers), "id"
    )


def approvals() -> Call[ApprovalPage]:
    """What waits for your approval, oldest first."""
    return get("/v1/approvals", has="items")


def artifacts(run_id: int) -> Call[ArtifactPage]:
    """Files that a run kept."""
    return get(f"/v1/runs/{run_id}/artifacts", has="items")
