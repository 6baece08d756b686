"""The whole OpenAPI document against a real server: whatever is sent, a documented answer and never a 500."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance

from tests.facades.world import api_document

from .server import Server


@pytest.fixture(scope="module")
def busy_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server without an agent, so that no invented command is ever run, with something in it to hit."""
    server = Server(tmp_path_factory.mktemp("openapi"), "--roles", "api,coordinator,scheduler")
    server.start()
    for number in range(1, 4):
        server.submit({"name": f"job {number}", "schedule": "@yearly", "steps": [{"run": "true"}]})
        server.post(f"/v1/jobs/{number}/run", status=201)
    yield server
    server.wait_until(lambda: server.http.get("/readyz").json()["ready"], "it to be ready")
    assert server.stop() == 0


def described() -> Any:
    """Return the document as the server serves it. A body that is too large is refused for that, before anybody reads
    it."""
    found = schemathesis.openapi.from_dict(api_document())
    found.config.checks.negative_data_rejection.expected_statuses = ["4xx", "5xx"]
    return found


SCHEMA = described()
OPERATIONS = [
    (method.upper(), path)
    for path, methods in SCHEMA.raw_schema["paths"].items()
    for method in methods
    if not path.endswith("/log/follow")  # following a log never ends by itself
]


def may_be_wrong(operation: Any) -> bool:
    """Return whether anything that is sent could be wrong: any text is a name, and a thousand times one would be sought
    that is not."""
    given = [one.definition for one in operation.iter_parameters()]
    is_name = [one["in"] == "path" and one["schema"] == {"type": "string"} for one in given]
    return bool(operation.body) or not all(is_name)


@pytest.mark.slow
@pytest.mark.xdist_group("openapi")
@pytest.mark.parametrize("most", [4, pytest.param(30, marks=pytest.mark.long)])
@pytest.mark.parametrize(("method", "path"), OPERATIONS)
def test_S60_every_answer_is_a_documented_one(method: str, path: str, most: int, busy_server: Server) -> None:
    """Valid data may still be refused: that a cron expression has a moment, JSON Schema cannot say. Of many orders each
    is answered for itself, so a wrong one does not make the whole answer a refusal."""
    operation = SCHEMA[path][method]
    is_many = (method, path) == ("POST", "/v1/runs")
    unasked = [positive_data_acceptance, *([negative_data_rejection] if is_many else [])]
    examples = (
        most if path.startswith("/v1/") else most // 4
    )  # the others have hundreds of hostile requests of their own
    for mode in GenerationMode if may_be_wrong(operation) else [GenerationMode.POSITIVE]:

        @given(case=operation.as_strategy(generation_mode=mode))
        @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))
        def call(case: schemathesis.Case) -> None:
            case.call_and_validate(base_url=busy_server.url, excluded_checks=unasked)

        call()


@pytest.mark.slow
@pytest.mark.xdist_group("openapi")
@pytest.mark.parametrize("form", ["text", "json", "junit"])
def test_a_log_is_a_documented_answer_in_every_form(form: str, busy_server: Server) -> None:
    operation = SCHEMA["/api/v1/execution_logs/{execution_id}"]["GET"]
    case = operation.Case(path_parameters={"execution_id": 1}, query={"format": form})
    assert case.call_and_validate(base_url=busy_server.url).status_code == 200
