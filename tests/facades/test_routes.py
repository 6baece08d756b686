"""The table of operations: one answer per method and path, each of them documented."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import jsonschema_rs
import pytest

from horae import contracts
from horae.core.alerts.states import Alert, AlertState, key_of
from horae.core.hooks import hash_of
from horae.core.identity import LOCAL
from horae.core.model import State
from horae.core.roles import Role
from horae.core.work.specs import parse_job
from horae.errors import CODES
from horae.service.access.grants import parse_grant
from horae.service.policy.placing import Placing
from horae.service.secrets.sealing import Sealing
from horae.service.workflows.flows import Workflows
from horae.service.workflows.outbox import Outbox
from horae.service.workflows.parts import Parts
from horae.web import app as web
from horae.web import devices, http, native, openapi, pages, sessions
from horae.web.streams import Streams
from tests.facades.world import NODE, World, api_document

DOCUMENT = api_document()


@pytest.fixture
def operations(world: World) -> list[http.Operation]:
    streams = Streams()
    own = native.Native(world.services, streams)
    dashboard = pages.Dashboard(world.services, own.cluster, openapi.Api("1"), "1")
    theirs = [
        operation for contract in contracts.CONTRACTS for operation in contract(world.services, streams).operations()
    ]
    browsers = sessions.Sessions(world.services, dashboard.entrance).operations()
    browsers += devices.DevicePages(world.services, dashboard.entrance).operations()
    return [*own.operations(), *dashboard.operations(), *browsers, *theirs]


@pytest.fixture
def document() -> dict[str, Any]:
    return DOCUMENT


def shape(path: str) -> str:
    return re.sub(r"{\w+}", "{}", path)


def test_no_method_and_path_stands_twice(operations: list[http.Operation]) -> None:
    seen = [(operation.method, shape(operation.path)) for operation in operations]
    assert sorted(set(seen)) == sorted(seen)


def test_a_repeated_operation_is_refused(operations: list[http.Operation]) -> None:
    with pytest.raises(ValueError, match="declared twice"):
        web.Routes([*operations, operations[0]])


def test_every_operation_is_in_the_document_and_nothing_else_is(
    operations: list[http.Operation], document: dict[str, Any]
) -> None:
    declared = {(operation.path, operation.method.lower()) for operation in operations}
    assert {(path, method) for path, methods in document["paths"].items() for method in methods} == declared


def test_operation_ids_are_unique(document: dict[str, Any]) -> None:
    ids = [operation["operationId"] for methods in document["paths"].values() for operation in methods.values()]
    assert len(ids) == len(set(ids))


def test_every_reference_leads_somewhere(document: dict[str, Any]) -> None:
    known = {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}
    assert set(references(document)) <= known


def references(value: Any) -> list[str]:
    if isinstance(value, dict):
        own = [value["$ref"]] if "$ref" in value else []
        return own + [found for each in value.values() for found in references(each)]
    return [found for each in value for found in references(each)] if isinstance(value, list) else []


def test_every_operation_documents_its_path_parameters_and_failures(document: dict[str, Any]) -> None:
    for path, methods in document["paths"].items():
        for operation in methods.values():
            named = {each["name"] for each in operation["parameters"] if each["in"] == "path"}
            assert named == set(re.findall(r"{(\w+)}", path))
            failures = [answer for status, answer in operation["responses"].items() if status[0] in "4d"]
            assert failures
            assert all(len(answer["content"]) == 1 for answer in failures)


def test_every_failure_of_our_own_interface_is_a_problem(operations: list[http.Operation]) -> None:
    own = [operation for operation in operations if operation.path.startswith("/v1/")]
    assert len(own) > 20
    assert all(operation.shape is http.PROBLEM and not operation.is_lenient for operation in own)


def test_the_contracts_of_other_systems_have_failures_of_their_own(operations: list[http.Operation]) -> None:
    theirs = [each for each in operations if each.is_lenient and each.path != "/login/callback"]  # as providers add
    assert len(theirs) > 60
    assert not [operation.path for operation in theirs if operation.shape is http.PROBLEM]


def test_examples_of_requests_fit_their_schemas(document: dict[str, Any]) -> None:
    for path, methods in document["paths"].items():
        for operation in methods.values():
            for media in operation.get("requestBody", {}).get("content", {}).values():
                schema = {**media["schema"], "components": document["components"]}
                assert jsonschema_rs.validator_for(schema).is_valid(media["example"]), path


def test_every_error_code_is_explained_once_and_ends_in_a_full_stop() -> None:
    assert all(meaning.endswith(".") for meaning in CODES.values())


def test_only_health_calls_by_address_and_the_login_are_open_to_strangers(operations: list[http.Operation]) -> None:
    open_to_all = {
        "/healthz",
        "/readyz",
        "/ping",
        "/actuator/health",
        "/api/v1/login",
        "/login",
        "/login/sso",
        "/login/callback",
        "/login/invite",
        "/login/invite/{invitation}",
        "/v1/device",
        "/v1/device/token",
        "/static/{path}",
        "/v1/hooks/{trigger_id}/{token}",
        "/v1/callbacks/{run_id}/{name}/{token}",
        "/v1/pings/{job_id}/{token}",
        "/v1/pings/{job_id}/{token}/{state}",
    }
    assert {operation.path for operation in operations if operation.is_open} == open_to_all


# ── every operation does something ──
#
# Requests as they should be, to the real services: each is carried out, so that none asks a service for what it
# does not have. Our own interface and the pages; contracts of other systems are replayed by their own tests, and
# test_browser_login.py, test_users.py and test_oidc_login.py log in and out.

CONTRACTS = {"segment contract", "administration", "lake", "sync", "ci", "rpc"}
OWN = [
    (method.upper(), path)
    for path, methods in DOCUMENT["paths"].items()
    for method, shown in methods.items()
    if shown["tags"][0] not in CONTRACTS
    and not path.startswith(("/login", "/logout", "/organisation", "/device", "/v1/device", "/v1/sessions", "/v1/me/"))
]
SYNC = {
    "name": "orders", "kind": "sync", "source": {"type": "database", "url": "postgresql://db/shop"},
    "read": {"table": "orders"}, "destinations": [{"type": "clickhouse", "table": "orders"}],
}  # fmt: skip
ADDRESSES = {
    ("POST", "/v1/nodes/{name}/evict"): "/v1/nodes/elsewhere/evict",
    ("GET", "/v1/runs/{run_id}/log/matches"): "/v1/runs/1/log/matches?q=a",  # where the first of its kind will not do
    ("DELETE", "/v1/jobs/{job_id}/cursor"): "/v1/jobs/2/cursor",
    ("GET", "/v1/runs/{run_id}/log/follow"): "/v1/runs/2/log/follow",
    ("POST", "/v1/triggers/{trigger_id}/hook"): "/v1/triggers/2/hook",
    ("POST", "/v1/hooks/{trigger_id}/{token}"): "/v1/hooks/2/known",
    ("GET", "/v1/runs/{run_id}/artifacts/{path}"): "/v1/runs/2/artifacts/report.txt",
    ("GET", "/static/{path}"): "/static/page.css",
    ("POST", "/v1/runs/{run_id}/signals/{name}"): "/v1/runs/1/signals/go",
    ("GET", "/v1/runs/{run_id}/callbacks/{name}"): "/v1/runs/1/callbacks/go",
    ("POST", "/v1/callbacks/{run_id}/{name}/{token}"): "/v1/callbacks/1/go/{token}",
    ("GET", "/v1/jobs/{job_id}/ping"): "/v1/jobs/{watched}/ping",
    ("POST", "/v1/jobs/{job_id}/ping"): "/v1/jobs/{watched}/ping",
    ("POST", "/v1/pings/{job_id}/{token}"): "/v1/pings/{watched}/{ping}",
    ("POST", "/v1/pings/{job_id}/{token}/{state}"): "/v1/pings/{watched}/{ping}/start",
    ("DELETE", "/v1/orgs/{org}"): "/v1/orgs/2",
    ("POST", "/v1/runs/{run_id}/retry"): "/v1/runs/4/retry",
    ("POST", "/v1/runs/{run_id}/approve"): "/v1/runs/3/approve",
    ("POST", "/v1/runs/{run_id}/reject"): "/v1/runs/3/reject",
}


async def furnish(world: World) -> None:
    """Something of every kind: jobs (the second a sync), a trigger, two runs (the second has ended), a webhook, a run
    that is to be approved, a workflow that failed, an alert."""
    await world.jobs.queues.put("old", {"state": "draining"})
    await world.jobs.limits.set_resource("license-x", 2)
    world.clock.advance(10)  # so that it can be deleted
    await world.join()
    await world.submit(schedule="@yearly")
    await world.services.access.create("ci", "user", "ann", None)
    await world.services.users.create("ann", LOCAL, roles={1: Role.EDITOR})
    await world.services.users.create_organisation("archive", LOCAL)  # of number 2
    await world.services.grants.add(parse_grant({"who": "bob", "role": "operator", "tag": "t"}), LOCAL)
    await world.services.secrets.set(1, "A", "hunter2")
    await world.jobs.submit([parse_job(SYNC)])
    await world.queue_run(1)
    work = await world.start_run((await world.submit()).id)
    await work.write(b"hello\n")
    await work.keep(0, b"all is well")
    kept = json.dumps({"artifacts": [{"path": "report.txt", "size": 11}]})
    await work.end(State.SUCCEEDED, result=kept)
    job = await world.jobs.get((await world.submit(triggers=[{"webhook": {}}])).id)
    known = replace(job.triggers[0], hook=hash_of("known"))
    await world.store.save_job(replace(job, triggers=(known,), version=2), 1)
    for work in ({"wait": {"approval": {"by": ["ann"]}}}, {"tasks": {"a": {"steps": [{"run": "true"}]}}}):
        document = parse_job({"name": "by servers", **work})
        await world.queue_run((await world.jobs.submit([document])).jobs[0].id)
    await fail_workflow(world)
    await open_alert(world)
    here = await world.store.get_node(NODE)
    assert here is not None
    await world.store.register_node(replace(here, name="elsewhere", roles=("agent",), via=NODE))


async def open_alert(world: World) -> None:
    """Two channels, of which a rule names one, and something that goes on under it."""
    for name in ("ops", "spare"):
        await world.services.alerts.put_channel(1, name, {"kind": "email", "to": ["ann@example.org"]})
    await world.services.alerts.put_rule(1, "nights", {"when": "failure", "channels": ["ops"]})
    alert = Alert(0, 1, "nights", "job:1", "job", AlertState.OPEN, 1, 1, 0, 0)
    assert await world.store.save_alerts({key_of(alert): alert})


async def fail_workflow(world: World) -> None:
    """Begin the workflow that is queued, and cancel its task."""
    parts = Parts(world.store, Sealing(world.store))
    workflows = Workflows(world.store, world.queue, Placing(world.store, world.queue), parts)
    claimed = await world.claim("workflow")
    assert await workflows.begin(claimed) == []
    [task] = await world.store.load_tasks([one.run_id for one in claimed])
    await world.jobs.cancel(task.run_id)
    await Outbox(world.store, workflows).act()


def address(method: str, path: str) -> str:
    things = {
        "/v1/nodes": NODE, "/v1/secrets": "A", "/v1/queues": "old", "/v1/resources": "license-x",
        "/v1/alerts/rules": "nights", "/v1/alerts/channels": "spare",
        "/v1/users": "ann", "/v1/orgs/{org}/members": "ann",
    }  # fmt: skip
    names = {"{name}": things.get(path.partition("/{name}")[0], "")}
    return ADDRESSES.get((method, path)) or re.sub(r"{\w+}", lambda found: names.get(found[0], "1"), path)


@pytest.mark.parametrize("form", ["text", "json", "junit"])
async def test_a_log_is_documented_in_every_form(world: World, form: str) -> None:
    await furnish(world)
    path = "/api/v1/execution_logs/{execution_id}"
    answer = await world.http.get(path.format(execution_id=2), params={"format": form})
    media = answer.headers["content-type"].partition(";")[0]
    assert media in DOCUMENT["paths"][path]["get"]["responses"]["200"]["content"]


@pytest.mark.parametrize(("method", "path"), OWN)
async def test_every_operation_is_carried_out(world: World, method: str, path: str) -> None:
    await furnish(world)
    shown = DOCUMENT["paths"][path][method.lower()]
    body = shown.get("requestBody", {}).get("content", {}).get("application/json", {}).get("example")

    token = (await world.jobs.callbacks.make_path(1, "go")).rpartition("/")[2]
    if path in ("/v1/events/stream", "/v1/events/pulse"):
        world.gate.streams.close()  # it would never end by itself
    watched = (await world.jobs.submit([parse_job({"name": "w", "watched": {"grace": "5m"}})])).jobs[0].id
    given = {"{token}": token, "{watched}": str(watched), "{ping}": await world.services.watching.make_token(watched)}
    asked = re.sub(r"{\w+}", lambda found: given[found[0]], address(method, path))
    answer = await world.http.request(method, asked, json=body)

    assert 200 <= answer.status_code < 300 or answer.status_code == 303, answer.text
    assert str(answer.status_code) in shown["responses"]
