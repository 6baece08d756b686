"""The dashboard and the alarms of examples/deploy, on a real Prometheus that watches a real Horae: every query is
understood, names metrics that there are, and says something."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from horae.service.metrics import Metrics
from tests.acceptance.server import DEADLINE, Server
from tests.engines.prometheus_server import Prometheus, running_prometheus
from tests.test_docs import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("prometheus")]
DEPLOY = ROOT / "examples" / "deploy"
RULES = DEPLOY / "alert-rules.yaml"
DASHBOARD = json.loads((DEPLOY / "grafana-dashboard.json").read_text())
ALERTS: list[Any] = yaml.safe_load(RULES.read_text())["groups"][0]["rules"]
QUERIES: dict[str, str] = {
    f"{panel['title']} {target['refId']}": target["expr"]
    for panel in DASHBOARD["panels"]
    for target in panel["targets"]
}
NAME = re.compile(r"\bhorae_\w+")


def filled(expression: str) -> str:
    """Return a query as Grafana asks it."""
    return expression.replace("$__rate_interval", "1m").replace("$job", ".*")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    made = Server(tmp_path_factory.mktemp("watched")).start()
    yield made
    made.stop()


@pytest.fixture(scope="module")
def prometheus(
    server: Server, need: Callable[..., None], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Prometheus]:
    """One that was told what the example says, but for the addresses, and looks every second."""
    need("prometheus", "promtool")
    directory = tmp_path_factory.mktemp("prometheus")
    config = yaml.safe_load((DEPLOY / "prometheus.yml").read_text())
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    config["rule_files"] = [str(RULES)]
    config["scrape_configs"] = [
        {"job_name": "horae", "static_configs": [{"targets": [f"127.0.0.1:{server.port}"]}]},
    ]
    place = directory / "prometheus.yml"
    place.write_text(yaml.safe_dump(config))
    with running_prometheus(place, directory) as found:
        yield found


@pytest.fixture(scope="module")
def busy(server: Server, prometheus: Prometheus) -> Prometheus:
    """Some runs have ended, one failed, and all of it was scraped."""
    (good, bad) = server.submit(
        {"name": "good", "steps": [{"run": "true"}]}, {"name": "bad", "run_once": True, "steps": [{"run": "exit 1"}]}
    )
    for _ in range(3):
        server.ended(server.post(f"/v1/jobs/{good['id']}/run", status=201)["id"])
    server.wait_until(lambda: _ended(server, bad["id"]), "the failure")
    for state in ("succeeded", "failed"):
        query = f'horae_runs_finished_total{{state="{state}"}} > 0'
        server.wait_until(lambda query=query: prometheus.query(query), f"Prometheus to see {state}")
    return prometheus


def _ended(server: Server, job_id: int) -> bool:
    runs = server.get("/v1/runs", job_id=job_id)["items"]
    return bool(runs) and runs[0]["state"] == "failed"


def test_metrics_are_as_prometheus_wants_them(server: Server, need: Callable[..., None]):
    need("promtool")
    text = server.http.get("/metrics").text
    done = subprocess.run(
        ["promtool", "check", "metrics"], input=text, capture_output=True, text=True, timeout=DEADLINE
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_example_configuration_is_one(need: Callable[..., None], tmp_path: Path):
    need("promtool")
    text = (DEPLOY / "prometheus.yml").read_text().replace("/etc/prometheus", str(tmp_path))
    (tmp_path / "prometheus.yml").write_text(text)
    (tmp_path / RULES.name).write_text(RULES.read_text())
    (tmp_path / "horae.token").write_text("token")
    (tmp_path / "horae-ca.pem").write_text("")
    done = subprocess.run(
        ["promtool", "check", "config", "prometheus.yml"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=DEADLINE,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("panel", QUERIES)
def test_every_query_of_the_dashboard_says_something(busy: Prometheus, server: Server, panel: str):
    query = filled(QUERIES[panel])
    assert set(NAME.findall(query)) <= busy.names()
    server.wait_until(lambda: busy.query(query), f"an answer to {query}")


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert["alert"])
def test_every_alarm_is_understood_and_names_what_there_is(busy: Prometheus, alert: Any):
    assert set(NAME.findall(alert["expr"])) <= busy.names()
    busy.query(alert["expr"])
    left = re.split(r" (?:and|/|[<>=]+) ", " ".join(alert["expr"].split()))[0].lstrip("(")
    assert busy.query(left), f"{left} says nothing, so the alarm never could"


def test_prometheus_has_read_the_alarms_and_none_is_broken(busy: Prometheus, server: Server):
    def rules() -> list[Any]:
        (group,) = busy.ask("rules")["groups"]
        return [rule for rule in group["rules"] if rule["health"] == "ok"]

    server.wait_until(lambda: len(rules()) == len(ALERTS), "all alarms to have been looked at")


# What makes each alarm go off, as promtool writes series: after an hour of it.
CAUSES = {
    "HoraeNodeDown": {'up{job="horae",instance="n1"}': "0x120"},
    "HoraeNoLeader": {'horae_leader{instance="n1"}': "0x120"},
    "HoraeMomentsOverdue": {"horae_oldest_due_seconds": "61x120"},
    "HoraeRunsLate": {
        'horae_lateness_seconds_bucket{le="5.0"}': "0x120",
        'horae_lateness_seconds_bucket{le="10.0"}': "0+10x120",
        'horae_lateness_seconds_bucket{le="+Inf"}': "0+10x120",
    },
    "HoraeWorkPilesUp": {"horae_oldest_queued_seconds": "901x120"},
    "HoraeAgentsFull": {"horae_agent_busy": "8x120", "horae_agent_slots": "8x120"},
    "HoraeRunsFail": {
        'horae_runs_finished_total{state="failed"}': "0+1x120",
        'horae_runs_finished_total{state="succeeded"}': "0+1x120",
    },
    "HoraeAttemptsLost": {"horae_attempts_lost_total": "0+1x120"},
    "HoraeTriggersUnreadable": {"horae_triggers_unreadable": "1x120"},
    "HoraeCommitsLost": {"horae_database_commits_lost_total": "0+1x120"},
    "HoraeEventsHeldUp": {"horae_events_delay_seconds": "301x120"},
    "HoraeInboxStuck": {"horae_inbox_oldest_seconds": "61x120"},
    "HoraeInboxRefused": {"horae_inbox_refused": "1x120"},
    "HoraeSpansLost": {"horae_spans_dropped_total": "0+1x120"},
}


def test_every_alarm_goes_off_when_it_should_and_says_so(need: Callable[..., None], tmp_path: Path):
    need("promtool")
    assert set(CAUSES) == {alert["alert"] for alert in ALERTS}
    tests = [
        {
            "interval": "30s",
            "input_series": [{"series": series, "values": values} for series, values in causes.items()],
            "promql_expr_test": [
                {
                    "expr": f'count(ALERTS{{alertname="{name}",alertstate="firing"}})',
                    "eval_time": "1h",
                    "exp_samples": [{"labels": "{}", "value": 1}],
                }
            ],
        }
        for name, causes in CAUSES.items()
    ]
    place = tmp_path / "tests.yaml"
    place.write_text(yaml.safe_dump({"rule_files": [str(RULES)], "evaluation_interval": "30s", "tests": tests}))
    done = subprocess.run(["promtool", "test", "rules", str(place)], capture_output=True, text=True, timeout=DEADLINE)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_metric_that_is_watched_is_one_of_ours():
    """Without Prometheus: what the queries name is what a process counts."""
    ours = {
        f"{family.name}{suffix}" for family in Metrics().collect() for suffix in ("", "_total", "_bucket", "_count")
    }
    asked = {name for query in (*QUERIES.values(), *(rule["expr"] for rule in ALERTS)) for name in NAME.findall(query)}
    assert asked <= ours
