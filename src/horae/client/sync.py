"""The client for programs that do without asyncio."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from horae.client import accounts, alerting, auditing, calls, forecasting, happenings, output
from horae.client.address import DEFAULT_URL, find_server
from horae.client.sockets import Sockets
from horae.client.steps import Call, Give, Pause, Read, Step, Stream, next_step
from horae.client.twins import Plain, dress, read_json, read_typed
from horae.client.wire import Request
from horae.wire.http import Fault

P = ParamSpec("P")
T = TypeVar("T")


def _method(make: Callable[P, Call[T]]) -> Callable[Concatenate[SyncClient, P], T]:
    def method(self: SyncClient, /, *args: P.args, **given: P.kwargs) -> T:
        call = make(*args, **given)
        typed: T = read_typed(make, self._perform(call), call, self._sockets.server)
        return typed

    dressed: Callable[Concatenate[SyncClient, P], T] = dress(method, make)
    return dressed


def _stream(make: Callable[P, Stream[T]]) -> Callable[Concatenate[SyncClient, P], Generator[T, None, None]]:
    def method(self: SyncClient, /, *args: P.args, **given: P.kwargs) -> Generator[T, None, None]:
        return self._flow(make(*args, **given))

    dressed: Callable[Concatenate[SyncClient, P], Generator[T, None, None]] = dress(method, make)
    return dressed


class SyncClient:
    """One Horae server. Use it as a context manager, or close it. Threads may share it."""

    def __init__(
        self, url: str = DEFAULT_URL, token: str | None = None, *, insecure: bool = False, ca_file: str | None = None,
        cert_file: str | None = None, org: int | str | None = None,
    ) -> None:  # fmt: skip
        """`ca_file` holds the certificates to trust (PEM) in place of the usual authorities, `cert_file` our own with
        its key, where the server asks for one. `org` is the organisation in which to act, of who is in several."""
        self._sockets = Sockets(
            find_server(
                url,
                token,
                insecure=insecure,
                ca_file=ca_file,
                cert_file=cert_file,
                org=None if org is None else str(org),
            )
        )
        self.url = self._sockets.server.url

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._sockets.close()

    @property
    def json(self) -> Any:
        """The same calls; answers are the JSON that the server sent, as plain data: client.json.run(42)["state"]."""
        return Plain(self._perform_plainly)

    def _perform_plainly(self, call: Call[Any]) -> Any:
        return read_json(self._perform(call), call.has, self._sockets.server)

    def _perform(self, call: Call[Any]) -> Any:
        steps, outcome, fault = call.steps(), None, None
        try:
            while True:
                outcome, fault = self._do(next_step(steps, outcome, fault))
        except StopIteration as end:
            return end.value
        finally:
            steps.close()

    def _flow(self, stream: Stream[T]) -> Generator[T, None, None]:
        steps, outcome, fault = stream.steps(), None, None
        try:
            while True:
                step = next_step(steps, outcome, fault)
                if isinstance(step, Give):
                    yield step.item
                    outcome = fault = None
                else:
                    outcome, fault = self._do(step)
        except StopIteration:
            return
        finally:
            steps.close()

    def _do(self, step: Step) -> tuple[Any, Fault | None]:
        """Return what a step gave, or the fault that it ended with."""
        try:
            if isinstance(step, Request):
                return self._sockets.exchange(step), None
            if isinstance(step, Read):
                return step.answer.rest.read() if step.answer.rest else b"", None
            assert isinstance(step, Pause)
            time.sleep(step.seconds)
        except Fault as fault:
            return None, fault
        return None, None

    submit = _method(calls.submit)
    plan_submit = _method(calls.plan_submit)
    submit_many = _method(calls.submit_many)
    jobs = _method(calls.jobs)
    job = _method(calls.job)
    find_job = _method(calls.find_job)
    replace_job = _method(calls.replace_job)
    delete_job = _method(calls.delete_job)
    reset_cursor = _method(calls.reset_cursor)
    pause = _method(calls.pause)
    resume = _method(calls.resume)
    pause_jobs = _method(calls.pause_jobs)
    resume_jobs = _method(calls.resume_jobs)
    tag_jobs = _method(calls.tag_jobs)
    triggers = _method(calls.triggers)
    trigger = _method(calls.trigger)
    add_trigger = _method(calls.add_trigger)
    replace_trigger = _method(calls.replace_trigger)
    change_trigger = _method(calls.change_trigger)
    delete_trigger = _method(calls.delete_trigger)
    rotate_hook = _method(calls.rotate_hook)
    preview = _method(calls.preview)
    run_now = _method(calls.run_now)
    run_many = _method(calls.run_many)
    rerun = _method(calls.rerun)
    runs = _method(calls.runs)
    run = _method(calls.run)
    wait = _method(calls.wait)
    cancel = _method(calls.cancel)
    retry = _method(calls.retry)
    signal = _method(calls.signal)
    callback = _method(calls.callback)
    ping_address = _method(calls.ping_address)
    rotate_ping = _method(calls.rotate_ping)
    approve = _method(calls.approve)
    reject = _method(calls.reject)
    approvals = _method(calls.approvals)
    log = _stream(output.log)
    artifacts = _method(calls.artifacts)
    artifact = _stream(output.artifact)
    follow = _stream(output.follow)
    explain_run = _method(calls.explain_run)
    explain_job = _method(calls.explain_job)
    explain_trigger = _method(calls.explain_trigger)
    events = _stream(happenings.events)
    event_page = _method(happenings.event_page)
    nodes = _method(calls.nodes)
    handlers = _method(calls.handlers)
    want_node = _method(calls.want_node)
    segments = _method(calls.segments)
    overview = _method(calls.overview)
    health = _method(calls.health)
    alerts = _method(alerting.alerts)
    acknowledge_alert = _method(alerting.acknowledge_alert)
    alert_deliveries = _method(alerting.alert_deliveries)
    alert_rules = _method(alerting.alert_rules)
    set_alert_rule = _method(alerting.set_alert_rule)
    delete_alert_rule = _method(alerting.delete_alert_rule)
    alert_channels = _method(alerting.alert_channels)
    set_alert_channel = _method(alerting.set_alert_channel)
    delete_alert_channel = _method(alerting.delete_alert_channel)
    try_alert_channel = _method(alerting.try_alert_channel)
    queues = _method(calls.queues)
    queue = _method(calls.queue)
    set_queue = _method(calls.set_queue)
    change_queue = _method(calls.change_queue)
    delete_queue = _method(calls.delete_queue)
    limits = _method(calls.limits)
    resources = _method(calls.resources)
    forecast = _method(forecasting.forecast)
    set_resource = _method(calls.set_resource)
    delete_resource = _method(calls.delete_resource)
    set_secret = _method(calls.set_secret)
    secrets = _method(calls.secrets)
    delete_secret = _method(calls.delete_secret)
    rotate_secrets = _method(calls.rotate_secrets)
    create_token = _method(calls.create_token)
    audit = _method(auditing.audit)
    audit_sealed = _method(auditing.audit_sealed)
    verify_audit = _method(auditing.verify_audit)
    tokens = _method(calls.tokens)
    revoke_token = _method(calls.revoke_token)
    grants = _method(calls.grants)
    add_grant = _method(calls.add_grant)
    remove_grant = _method(calls.remove_grant)
    me = _method(accounts.me)
    sessions = _method(accounts.sessions)
    end_session = _method(accounts.end_session)
    begin_device = _method(accounts.begin_device)
    fetch_device_token = _method(accounts.fetch_device_token)
    users = _method(accounts.users)
    create_user = _method(accounts.create_user)
    invite_user = _method(accounts.invite_user)
    disable_user = _method(accounts.disable_user)
    enable_user = _method(accounts.enable_user)
    link_user = _method(accounts.link_user)
    orgs = _method(accounts.orgs)
    create_org = _method(accounts.create_org)
    rename_org = _method(accounts.rename_org)
    limit_org = _method(accounts.limit_org)
    delete_org = _method(accounts.delete_org)
    members = _method(accounts.members)
    add_member = _method(accounts.add_member)
    remove_member = _method(accounts.remove_member)
    revoke_own_token = _method(accounts.revoke_own_token)
