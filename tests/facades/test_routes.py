"""The table of operations: one answer per method and path, each of them documented."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import jsonschema_rs
import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.specs.openapi.checks import positive_data_acceptance

from horae.errors import CODES
from horae.web import app as web
from horae.web import dashboard, http, native, openapi
from horae.web.facades import facade_operations
from tests.facades.fake_services import Services


@pytest.fixture
def operations() -> list[http.Operation]:
    services: Any = Services()
    streams = http.Streams()
    own = native.Native(services, streams)
    pages = dashboard.Dashboard(services, own, openapi.Api("1"), "1")
    return [*own.operations(), *pages.operations(), *facade_operations(services, streams)]


@pytest.fixture
def document() -> dict[str, Any]:
    services: Any = Services()
    return web.create_app(services, version="1").api.document


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
    theirs = [operation for operation in operations if operation.is_lenient]
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


def test_only_health_and_the_login_are_open_to_strangers(operations: list[http.Operation]) -> None:
    health = {"/healthz", "/readyz", "/ping", "/actuator/health"}
    assert {operation.path for operation in operations if operation.is_open} == {*health, "/api/v1/login"}


def _far_gate() -> tuple[web.Gate, dict[str, str]]:
    """A server that listens beyond loopback, and the header that opens it."""
    services: Any = Services()
    _, text = asyncio.run(services.access.create("fuzz", "user", "fuzz", None))
    return web.create_app(services, version="1", loopback_only=False), {"Authorization": f"Bearer {text}"}


FAR, LOGIN = _far_gate()
# Our own interface: those of other systems need the real services, and have hostile requests of their own.
fuzzed = schemathesis.openapi.from_asgi("/openapi.json", FAR, headers=LOGIN)
fuzzed = fuzzed.include(path_regex="^/v1/").exclude(path_regex="/log/follow")


@pytest.mark.slow
@fuzzed.parametrize()
@settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck))
def test_the_document_is_true(case: schemathesis.Case) -> None:
    """Whatever is sent, valid or not: a documented status, media type and body, and never a 500."""
    is_suicide = case.method == "DELETE" and case.operation.path == "/v1/tokens/{token_id}"
    if not is_suicide:  # it would revoke what the next request comes with
        case.call_and_validate(headers=LOGIN, excluded_checks=[positive_data_acceptance])
