"""The client for programs that use asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, cast

from horae.client import (
    access,
    accounts,
    alerting,
    auditing,
    cluster,
    definitions,
    happenings,
    insight,
    output,
    running,
)
from horae.client.address import DEFAULT_URL, find_server
from horae.client.steps import Call, Give, Hear, Later, Pause, Read, Step, Stream, next_step
from horae.client.streams import Streams
from horae.client.together import Together
from horae.client.twins import Late, Plain, dress, plainly, read_json, read_typed, typed
from horae.client.wire import Request
from horae.wire.http import Fault

PASSES = 3  # of the event loop, from what a task is told to what it does next

P = ParamSpec("P")
T = TypeVar("T")


def _method(make: Callable[P, Call[T]]) -> Callable[Concatenate[Client, P], Coroutine[Any, Any, T]]:
    async def method(self: Client, /, *args: P.args, **given: P.kwargs) -> T:
        call = typed(make(*args, **given), self._streams.server)
        found: T = read_typed(make, await self._perform(call), call, self._streams.server)
        return found

    late: Callable[Concatenate[Client, P], Coroutine[Any, Any, T]] = cast(Any, Late(lambda: dress(method, make)))
    return late


def _stream(make: Callable[P, Stream[T]]) -> Callable[Concatenate[Client, P], AsyncGenerator[T, None]]:
    def method(self: Client, /, *args: P.args, **given: P.kwargs) -> AsyncGenerator[T, None]:
        return self._flow(make(*args, **given))

    late: Callable[Concatenate[Client, P], AsyncGenerator[T, None]] = cast(Any, Late(lambda: dress(method, make)))
    return late


def _later(act: Callable[[], None], passes: int = PASSES) -> None:
    loop = asyncio.get_running_loop()
    if passes:
        loop.call_soon(_later, act, passes - 1)
    else:
        act()


class Client:
    """One Horae server. Use it as a context manager, or close it. Tasks of one event loop may share it."""

    def __init__(
        self, url: str = DEFAULT_URL, token: str | None = None, *, insecure: bool = False, ca_file: str | None = None,
        cert_file: str | None = None, org: int | str | None = None,
    ) -> None:  # fmt: skip
        """`ca_file` holds the certificates to trust (PEM) in place of the usual authorities, `cert_file` our own with
        its key, where the server asks for one. `org` is the organisation in which to act, of who is in several."""
        self._streams = Streams(
            find_server(
                url,
                token,
                insecure=insecure,
                ca_file=ca_file,
                cert_file=cert_file,
                org=None if org is None else str(org),
            )
        )
        self.url = self._streams.server.url
        self._orders = Together(lambda: asyncio.get_running_loop().create_future())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        self._streams.close()

    @property
    def json(self) -> Any:
        """The same calls; answers are the JSON that the server sent, as plain data: client.json.run(42)["state"]."""
        return Plain(type(self), self._perform_plainly)

    async def _perform_plainly(self, call: Call[Any]) -> Any:
        server = self._streams.server
        return read_json(await self._perform(plainly(call, server)), call.has, server)

    async def _perform(self, call: Call[Any]) -> Any:
        steps = call.steps() if call.order is None else self._orders.place(call)
        outcome = fault = None
        try:
            while True:
                outcome, fault = await self._do(next_step(steps, outcome, fault))
        except StopIteration as end:
            return end.value
        finally:
            steps.close()

    async def _flow(self, stream: Stream[T]) -> AsyncGenerator[T, None]:
        steps, outcome, fault = stream.steps(), None, None
        try:
            while True:
                step = next_step(steps, outcome, fault)
                if isinstance(step, Give):
                    yield step.item
                    outcome = fault = None
                else:
                    outcome, fault = await self._do(step)
        except StopIteration:
            return
        finally:
            steps.close()

    async def _do(self, step: Step) -> tuple[Any, Fault | None]:
        """Return what a step gave, or the fault that it ended with."""
        try:
            if isinstance(step, Request):
                return await self._streams.exchange(step), None
            if isinstance(step, Read):
                return await step.answer.rest.read() if step.answer.rest else b"", None
            if isinstance(step, Hear):
                await asyncio.wait((step.slot,), timeout=step.seconds)
                return step.slot.result() if step.slot.done() else None, None
            if isinstance(step, Later):
                _later(step.act)
                return None, None
            assert isinstance(step, Pause)
            await asyncio.sleep(step.seconds)
        except Fault as fault:
            return None, fault
        return None, None

    submit = _method(definitions.submit)
    plan_submit = _method(definitions.plan_submit)
    submit_many = _method(definitions.submit_many)
    jobs = _method(definitions.jobs)
    job = _method(definitions.job)
    find_job = _method(definitions.find_job)
    data_schema = _method(definitions.data_schema)
    replace_job = _method(definitions.replace_job)
    delete_job = _method(definitions.delete_job)
    reset_cursor = _method(definitions.reset_cursor)
    pause = _method(definitions.pause)
    resume = _method(definitions.resume)
    pause_jobs = _method(definitions.pause_jobs)
    resume_jobs = _method(definitions.resume_jobs)
    tag_jobs = _method(definitions.tag_jobs)
    triggers = _method(definitions.triggers)
    trigger = _method(definitions.trigger)
    add_trigger = _method(definitions.add_trigger)
    replace_trigger = _method(definitions.replace_trigger)
    change_trigger = _method(definitions.change_trigger)
    delete_trigger = _method(definitions.delete_trigger)
    rotate_hook = _method(definitions.rotate_hook)
    preview = _method(definitions.preview)
    run_now = _method(running.run_now)
    run_many = _method(running.run_many)
    rerun = _method(running.rerun)
    runs = _method(running.runs)
    run = _method(running.run)
    wait = _method(running.wait)
    cancel = _method(running.cancel)
    retry = _method(running.retry)
    signal = _method(running.signal)
    callback = _method(running.callback)
    ping_address = _method(running.ping_address)
    rotate_ping = _method(running.rotate_ping)
    approve = _method(running.approve)
    reject = _method(running.reject)
    approvals = _method(running.approvals)
    log = _stream(output.log)
    artifacts = _method(running.artifacts)
    artifact = _stream(output.artifact)
    follow = _stream(output.follow)
    explain_run = _method(insight.explain_run)
    explain_job = _method(insight.explain_job)
    explain_trigger = _method(insight.explain_trigger)
    events = _stream(happenings.events)
    event_page = _method(happenings.event_page)
    nodes = _method(cluster.nodes)
    handlers = _method(cluster.handlers)
    want_node = _method(cluster.want_node)
    segments = _method(cluster.segments)
    overview = _method(cluster.overview)
    health = _method(cluster.health)
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
    queues = _method(cluster.queues)
    queue = _method(cluster.queue)
    set_queue = _method(cluster.set_queue)
    change_queue = _method(cluster.change_queue)
    delete_queue = _method(cluster.delete_queue)
    limits = _method(cluster.limits)
    resources = _method(cluster.resources)
    forecast = _method(insight.forecast)
    set_resource = _method(cluster.set_resource)
    delete_resource = _method(cluster.delete_resource)
    set_secret = _method(access.set_secret)
    secrets = _method(access.secrets)
    delete_secret = _method(access.delete_secret)
    rotate_secrets = _method(access.rotate_secrets)
    create_token = _method(access.create_token)
    audit = _method(auditing.audit)
    audit_sealed = _method(auditing.audit_sealed)
    verify_audit = _method(auditing.verify_audit)
    tokens = _method(access.tokens)
    revoke_token = _method(access.revoke_token)
    grants = _method(access.grants)
    add_grant = _method(access.add_grant)
    remove_grant = _method(access.remove_grant)
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
