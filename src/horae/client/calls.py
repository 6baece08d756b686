"""Every call of the native API, as a value: what to send, and what comes back.

`Client` and `SyncClient` have each of these as a method. A function returns a Call (or a Stream), and does nothing:
whoever performs it waits for the answer, and reads it as the type of horae.schemas that stands in its annotation.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from horae.client.accounts import add_member as add_member
from horae.client.accounts import begin_device as begin_device
from horae.client.accounts import create_org as create_org
from horae.client.accounts import create_user as create_user
from horae.client.accounts import delete_org as delete_org
from horae.client.accounts import disable_user as disable_user
from horae.client.accounts import enable_user as enable_user
from horae.client.accounts import end_session as end_session
from horae.client.accounts import fetch_device_token as fetch_device_token
from horae.client.accounts import invite_user as invite_user
from horae.client.accounts import limit_org as limit_org
from horae.client.accounts import link_user as link_user
from horae.client.accounts import me as me
from horae.client.accounts import members as members
from horae.client.accounts import orgs as orgs
from horae.client.accounts import remove_member as remove_member
from horae.client.accounts import rename_org as rename_org
from horae.client.accounts import revoke_own_token as revoke_own_token
from horae.client.accounts import sessions as sessions
from horae.client.accounts import users as users
from horae.client.alerting import acknowledge_alert as acknowledge_alert
from horae.client.alerting import alert_channels as alert_channels
from horae.client.alerting import alert_deliveries as alert_deliveries
from horae.client.alerting import alert_rules as alert_rules
from horae.client.alerting import alerts as alerts
from horae.client.alerting import delete_alert_channel as delete_alert_channel
from horae.client.alerting import delete_alert_rule as delete_alert_rule
from horae.client.alerting import set_alert_channel as set_alert_channel
from horae.client.alerting import set_alert_rule as set_alert_rule
from horae.client.alerting import try_alert_channel as try_alert_channel
from horae.client.auditing import audit as audit
from horae.client.auditing import audit_sealed as audit_sealed
from horae.client.auditing import verify_audit as verify_audit
from horae.client.explaining import explain_job as explain_job
from horae.client.explaining import explain_run as explain_run
from horae.client.explaining import explain_trigger as explain_trigger
from horae.client.forecasting import forecast as forecast
from horae.client.happenings import event_page as event_page
from horae.client.making import (
    Ahead,
    OrderAnswers,
    body_of,
    dump,
    get,
    given,
    list_all,
    load_answer,
    load_many,
    new_key,
    one,
    parts,
    request_of,
    send,
)
from horae.client.steps import Call, Json, Pause, Steps, ask
from horae.client.wire import TIMEOUT, Request, to_address
from horae.errors import Conflict, NotFound

if TYPE_CHECKING:
    from horae.client.many import Ordered
    from horae.schemas import (
        ApprovalPage,
        ArtifactPage,
        Callback,
        Grant,
        GrantPage,
        HandlerPage,
        Health,
        Job,
        JobChanges,
        JobPage,
        KeyRotation,
        LimitPage,
        NewToken,
        Node,
        NodePage,
        Overview,
        PingAddress,
        Preview,
        Queue,
        QueuePage,
        RerunAnswers,
        Resource,
        ResourcePage,
        Run,
        RunDetail,
        RunPage,
        SecretPage,
        SegmentPage,
        SubmitPlan,
        Submitted,
        TokenPage,
        Trigger,
        TriggerPage,
    )

LARGE = 1 << 20  # bytes from which a document is many
MANY_TIMEOUT = 300.0  # seconds for them to be answered
ROTATION = 3600.0  # seconds for all secrets to be sealed anew


# ── jobs ──


def submit(
    document: bytes | str | Mapping[str, Any], content_type: str = "", *, key: str = "", directory: str = ""
) -> Call[Submitted]:
    """Create jobs from a document: text is YAML unless said otherwise. A server of one's own runs their steps in the
    `directory`, if it is on this machine."""
    is_text = isinstance(document, bytes | str)
    body = document.encode() if isinstance(document, str) else document
    headers = {
        "Content-Type": content_type or ("application/yaml" if is_text else "application/json"),
        "Idempotency-Key": key or new_key(),
    }
    near = {"Horae-Directory": quote(directory)} if directory else {}
    sent = body if isinstance(body, bytes) else dump(body)
    timeout = MANY_TIMEOUT if len(sent) > LARGE else TIMEOUT
    return one(Request("POST", "/v1/jobs", sent, headers, near, timeout=timeout), has="jobs")


def plan_submit(document: bytes, content_type: str, *, directory: str = "") -> Call[SubmitPlan]:
    """Return what a submit would create or change; everything is checked, and nothing is done."""
    near = {"Horae-Directory": quote(directory)} if directory else {}
    headers = {"Content-Type": content_type}
    return one(Request("POST", "/v1/jobs?dry_run=true", document, headers, near, timeout=MANY_TIMEOUT), has="items")


def submit_many(documents: Iterable[Mapping[str, Any]]) -> Call[list[Job]]:
    """Create any number of jobs, 10,000 at a time; returns them in order. What was created before an error is there."""

    def steps() -> Steps:
        made: list[Json] = []
        for part in parts(documents):
            headers = {"Content-Type": "application/json", "Idempotency-Key": new_key()}
            answer = yield from ask(Request("POST", "/v1/jobs", b'{"jobs": %b}' % part, headers, timeout=MANY_TIMEOUT))
            made += load_many(answer.body, "jobs", answer.server.url)
        return made

    return Call(steps)


def jobs(
    *,
    name: str | None = None,
    named: str | None = None,
    key: str | None = None,
    kind: str | None = None,
    owner: str | None = None,
    tag: str | None = None,
    queue: str | None = None,
    paused: bool | None = None,
    limit: int | None = 100,
    cursor: str | None = None,
) -> Call[JobPage]:
    """Jobs, newest first; limit None gives all of them."""
    exact = {"named": named, "key": key, "kind": kind, "owner": owner, "tag": tag, "queue": queue}
    where = {"name": name, **exact, "paused": paused}
    return list_all("/v1/jobs", where, limit, cursor)


def job(job_id: int) -> Call[Job]:
    """One job with its triggers."""
    return get(f"/v1/jobs/{job_id}", has="id")


def find_job(text: str) -> Call[Job]:
    """Return the job with this id, this key, or this name if no other has it."""

    def steps() -> Steps:
        if re.fullmatch(r"[0-9]{1,19}", text):
            try:
                return (yield from body_of(Request("GET", f"/v1/jobs/{int(text)}")))
            except NotFound:
                pass  # a key or a name may be a number too
        found: list[Json] = (yield from jobs(key=text, limit=None).steps())["items"]
        if not found:
            found = (yield from jobs(named=text, limit=None).steps())["items"]
        if not found:
            raise NotFound(f"no job has the id, key or name {text!r}", hint="`horae jobs` lists them")
        if len(found) > 1:
            ids = ", ".join(str(job["id"]) for job in found)
            message = f"{len(found)} jobs are called {text!r}: say which by its id ({ids})"
            raise Conflict(message, code="E_DUP_NAME")
        return found[0]

    return Call(steps, has="id")


def replace_job(job_id: int, document: Mapping[str, Any], *, version: int | None = None) -> Call[Job]:
    """Replace a job; with `version`, only if it still is that one."""
    headers = {"If-Match": f'"{version}"'} if version is not None else {}
    return send("PUT", f"/v1/jobs/{job_id}", document, headers)


def delete_job(job_id: int) -> Call[None]:
    """Delete a job. Its live runs are cancelled; its history stays readable by id."""
    return send("DELETE", f"/v1/jobs/{job_id}")


def reset_cursor(job_id: int) -> Call[None]:
    """Let a sync begin anew."""
    return send("DELETE", f"/v1/jobs/{job_id}/cursor")


def pause(job_id: int) -> Call[Job]:
    """Pause a job: it does not fire until it is resumed."""
    return send("POST", f"/v1/jobs/{job_id}/pause")


def resume(job_id: int) -> Call[Job]:
    """Let a paused job go on."""
    return send("POST", f"/v1/jobs/{job_id}/resume")


# ── triggers ──


def triggers(*, job_id: int | None = None, limit: int | None = 100, cursor: str | None = None) -> Call[TriggerPage]:
    """Triggers, of one job or of all; limit None gives all of them."""
    return list_all("/v1/triggers", {"job_id": job_id}, limit, cursor)


def trigger(trigger_id: int) -> Call[Trigger]:
    """One trigger."""
    return get(f"/v1/triggers/{trigger_id}", has="id")


def add_trigger(job_id: int, document: Mapping[str, Any]) -> Call[Trigger]:
    """Give a job one more trigger."""
    return send("POST", f"/v1/jobs/{job_id}/triggers", document)


def replace_trigger(trigger_id: int, document: Mapping[str, Any]) -> Call[Trigger]:
    """Replace a trigger."""
    return send("PUT", f"/v1/triggers/{trigger_id}", document)


def change_trigger(trigger_id: int, **changes: Any) -> Call[Trigger]:
    """Change some of: enabled, next_at (moves the next moment once), data."""
    return send("PATCH", f"/v1/triggers/{trigger_id}", changes)


def delete_trigger(trigger_id: int) -> Call[None]:
    """Delete a trigger."""
    return send("DELETE", f"/v1/triggers/{trigger_id}")


def rotate_hook(trigger_id: int) -> Call[Trigger]:
    """Give a webhook a new address, which is in the answer as `hook`, and only there."""
    return send("POST", f"/v1/triggers/{trigger_id}/hook")


def preview(
    schedule: str | Mapping[str, Any], *, count: int = 10, start_at: str | None = None, **more: Any
) -> Call[Preview]:
    """Return the next moments of a schedule."""
    document = {"schedule": schedule} if isinstance(schedule, str) else dict(schedule)
    start = {"start_at": start_at} if start_at else {}
    return send("POST", "/v1/preview", {**document, **more, **start, "count": count})


# ── many jobs at once ──


def pause_jobs(
    jobs: Iterable[int] | None = None, *, where: Mapping[str, Any] | None = None, dry_run: bool = False
) -> Call[JobChanges]:
    """Pause up to 10,000 jobs: those named, or those found by `where` (q, name, named, owner, kind, tag, queue, paused,
    state of the latest run). `dry_run` only says which would change."""
    return _change_jobs("pause", jobs, where, {}, dry_run=dry_run)


def resume_jobs(
    jobs: Iterable[int] | None = None, *, where: Mapping[str, Any] | None = None, dry_run: bool = False
) -> Call[JobChanges]:
    """Let paused jobs go on; as pause_jobs."""
    return _change_jobs("resume", jobs, where, {}, dry_run=dry_run)


def tag_jobs(
    jobs: Iterable[int] | None = None,
    *,
    where: Mapping[str, Any] | None = None,
    add: Sequence[str] = (),
    remove: Sequence[str] = (),
    dry_run: bool = False,
) -> Call[JobChanges]:
    """Add tags to jobs, or take them away; as pause_jobs."""
    return _change_jobs("tag", jobs, where, {"add": list(add), "remove": list(remove)}, dry_run=dry_run)


def _change_jobs(
    verb: str, jobs: Iterable[int] | None, where: Mapping[str, Any] | None, more: Mapping[str, Any], *, dry_run: bool
) -> Call[JobChanges]:
    named = {} if jobs is None else {"jobs": list(jobs)}
    found = {} if where is None else {"where": dict(where)}
    body = dump({**named, **found, **more, "dry_run": dry_run})
    headers = {"Content-Type": "application/json"}
    return one(Request("POST", f"/v1/jobs/{verb}", body, headers, timeout=MANY_TIMEOUT), has="items")


# ── runs ──


def run_now(
    job_id: int,
    *,
    data: Mapping[str, Any] | None = None,
    node: str | None = None,
    priority: int | None = None,
    run_at: str | None = None,
    key: str = "",
) -> Call[Run]:
    """Ask for a run, now or at a moment; it may be born skipped, if the job's overlap policy says so."""
    body = given({"data": data, "node": node, "priority": priority, "run_at": run_at})
    headers = {"Content-Type": "application/json", "Idempotency-Key": key or new_key()}
    return one(Request("POST", f"/v1/jobs/{job_id}/run", dump(body), headers), has="id")


def run_many(orders: Iterable[Mapping[str, Any]]) -> Call[list[Ordered]]:
    """Ask for any number of runs, 10,000 at a time: each order has a `job` (id or key), and may have data, priority,
    run_at, node and an idempotency_key. Returns, in order, the run or the error of each."""

    def steps() -> Steps:
        made, coming = OrderAnswers(), Ahead(parts(orders))
        while (part := coming.take()) is not None:
            headers = {"Content-Type": "application/json", "Idempotency-Key": new_key()}
            request = Request("POST", "/v1/runs", part, headers, timeout=MANY_TIMEOUT, meanwhile=coming.prepare)
            made.take((yield from ask(request)))
        return made

    return Call(steps)


def rerun(
    runs: Iterable[int] | None = None,
    *,
    job: int | str | None = None,
    state: Sequence[str] | None = None,
    due_from: str | None = None,
    due_until: str | None = None,
    node: str | None = None,
    dry_run: bool = False,
    key: str = "",
) -> Call[RerunAnswers]:
    """Run runs again with the data and priority they had: those named, or up to 10,000 found by what else is given (by
    default those that failed or timed out). `dry_run` only says which."""
    where = given(
        {"job": job, "state": state and list(state), "due_from": due_from, "due_until": due_until, "node": node}
    )
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
    parent: int | None = None,
    task: str | None = None,
    tasks: bool | None = None,
    limit: int | None = 100,
    cursor: str | None = None,
) -> Call[RunPage]:
    """Runs, newest first; `state` may be a comma list, moments are RFC 3339. Limit None gives all of them. Those that
    are tasks of workflows come with `tasks`, or as those of a `parent`,
    with `task` those of one name."""
    due = {"due_from": due_from, "due_until": due_until}
    where = {"job_id": job_id, "trigger_id": trigger_id, "state": state, **due, "node": node, "parent": parent}
    where |= {"task": task, "tasks": "true" if tasks else None}
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


# ── the cluster ──


def nodes() -> Call[NodePage]:
    """The nodes, dead ones included."""
    return get("/v1/nodes", has="items")


def handlers(*, node: str | None = None) -> Call[HandlerPage]:
    """The Python handlers of every node with an agent, or of one, as far as they are known without running any."""
    return get(to_address("/v1/handlers", {"node": node}), has="items")


def want_node(name: str, verb: str) -> Call[Node]:
    """Cordon, uncordon, drain or evict a node: `verb` is that word."""
    return send("POST", f"/v1/nodes/{quote(name, safe='')}/{verb}")


def segments() -> Call[SegmentPage]:
    """Who schedules which segment."""
    return get("/v1/segments", has="items")


def overview() -> Call[Overview]:
    """What the front page shows."""
    return get("/v1/overview")


def health() -> Call[Health]:
    """Whether the server lives, and which version it is."""
    return get("/healthz")


# ── queues ──


def queues() -> Call[QueuePage]:
    """Queues by name, and how they stand."""
    return get("/v1/queues", has="items")


def queue(name: str) -> Call[Queue]:
    """One queue, and how it stands."""
    return get(_queue(name), has="name")


def set_queue(name: str, document: Mapping[str, Any], *, version: int | None = None) -> Call[Queue]:
    """Make or replace a queue; with `version`, only if it still is that one."""
    return send("PUT", _queue(name), document, {"If-Match": f'"{version}"'} if version is not None else {})


def change_queue(name: str, verb: str) -> Call[Queue]:
    """Verbs: pause, resume, drain."""
    return send("POST", f"{_queue(name)}/{verb}")


def delete_queue(name: str) -> Call[None]:
    """Delete a queue that is drained, that no job names and in which nothing waits."""
    return send("DELETE", _queue(name))


def _queue(name: str) -> str:
    return f"/v1/queues/{quote(name, safe='')}"


# ── limits ──


def limits() -> Call[LimitPage]:
    """Limits that runs use or wait for, and how they stand."""
    return get("/v1/limits", has="items")


def resources() -> Call[ResourcePage]:
    """What the whole cluster has, counted, and how much of it is in use."""
    return get("/v1/resources", has="items")


def set_resource(name: str, capacity: int) -> Call[Resource]:
    """Say how much the whole cluster has of something."""
    return send("PUT", _resource(name), {"capacity": capacity})


def delete_resource(name: str) -> Call[None]:
    """Count it no longer: what waits for some of it is held by it no more."""
    return send("DELETE", _resource(name))


def _resource(name: str) -> str:
    return f"/v1/resources/{quote(name, safe='')}"


# ── secrets ──


def set_secret(name: str, value: str) -> Call[bool]:
    """Keep a secret for jobs to use; returns whether it is new. Nobody can read it back."""
    request = request_of("PUT", f"/v1/secrets/{quote(name, safe='')}", {"value": value})

    def steps() -> Steps:
        return (yield from ask(request)).status == 201

    return Call(steps)


def secrets() -> Call[SecretPage]:
    """Secrets by name, without their values."""
    return get("/v1/secrets", has="items")


def delete_secret(name: str) -> Call[None]:
    """Delete a secret: runs that need it and start from now on fail."""
    return send("DELETE", f"/v1/secrets/{quote(name, safe='')}")


def rotate_secrets() -> Call[KeyRotation]:
    """Seal everything with a new key; returns when it is done."""
    return one(Request("POST", "/v1/secrets/rotate", timeout=ROTATION))


# ── tokens ──


def create_token(
    name: str,
    *,
    scope: str = "user",
    owner: str | None = None,
    expires_in: str | float | None = None,
    node: str | None = None,
    kinds: Sequence[str] | None = None,
    labels: Sequence[str] | None = None,
    resources: Sequence[str] | None = None,
    org: int | None = None,
    role: str | None = None,
) -> Call[NewToken]:
    """Make a token; the answer's `token` is shown this once. `expires_in` is as 30d, or in seconds. `org` is the
    organisation that it is good for, `role` what may be done with it: viewer, operator, editor or admin. One of scope
    agent is good for the agent `node` (`*` for any), which may take `kinds`, have `labels` and offer `resources`, as
    gpu=2."""
    bounds = {"node": node, "kinds": kinds, "labels": labels, "resources": resources}
    wanted = {"name": name, "scope": scope, "owner": owner, "expires_in": expires_in, "org": org, "role": role}
    return send("POST", "/v1/tokens", given({**wanted, **bounds}))


def tokens() -> Call[TokenPage]:
    """Tokens, without their secrets."""
    return get("/v1/tokens", has="items")


def grants(*, limit: int | None = None, cursor: str | None = None) -> Call[GrantPage]:
    """Who may do more on some jobs than the role in the organisation says."""
    return list_all("/v1/grants", {}, limit, cursor)


def add_grant(
    who: str, role: str, *, job: int | None = None, tag: str | None = None, queue: str | None = None
) -> Call[Grant]:
    """Let somebody be operator or editor on one job, on those with a tag, or on those of a queue."""
    on = {"job": job, "tag": tag, "queue": queue}
    given = {name: value for name, value in on.items() if value is not None}
    return send("POST", "/v1/grants", {"who": who, "role": role, **given})


def remove_grant(grant_id: int) -> Call[None]:
    """Take a grant back."""
    return send("DELETE", f"/v1/grants/{grant_id}")


def revoke_token(token_id: int) -> Call[None]:
    """Revoke a token, for ever."""
    return send("DELETE", f"/v1/tokens/{token_id}")
