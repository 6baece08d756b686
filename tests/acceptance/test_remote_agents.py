"""Remote agents as real processes: they join, work, get lost, come back; nothing runs twice at once."""

from __future__ import annotations

import hashlib
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from .agent import AgentProcess, Proxy
from .server import DEADLINE, Server, free_port, horae
from .test_login import Far, run

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("remote agents")]  # they share servers
NO_AGENT = ("--roles", "api,coordinator,scheduler")
QUICK = ("--heartbeat-interval", "0.5", "--lease", "3")  # a busy machine stands still for a second
PATIENT = ("--heartbeat-interval", "0.3", "--lease", "15")

Begin = Callable[..., AgentProcess]


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Begin]:
    """Agents that are stopped when the test is over; each has its own name as a label."""
    started: list[AgentProcess] = []

    def start(server: str, name: str, *flags: str) -> AgentProcess:
        agent = AgentProcess(tmp_path, server, name, "--label", name, *flags)
        started.append(agent.start())
        return agent

    yield start
    for agent in started:
        agent.stop()


def serve(directory: Path, *flags: str) -> Iterator[Server]:
    """A server without an agent of its own."""
    server = Server(directory, *NO_AGENT, *flags).start()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def patient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    yield from serve(tmp_path_factory.mktemp("patient"), *PATIENT)


@pytest.fixture(scope="module")
def worker(patient: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentProcess]:
    """An agent that tests share which do it no harm."""
    agent = AgentProcess(tmp_path_factory.mktemp("agents"), at(patient), "worker", "--label", "worker").start()
    yield agent.joined()
    agent.stop()


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    yield from serve(tmp_path_factory.mktemp("quick"), *QUICK)


@pytest.fixture
def mortal(tmp_path: Path) -> Iterator[Server]:
    """A server that the test may kill."""
    yield from serve(tmp_path, *PATIENT)


def at(server: Server) -> str:
    return f"127.0.0.1:{server.grpc_port}"


def shell(server: Server, run: str, *labels: str) -> int:
    """Return a run of a shell job, just made."""
    (job,) = server.submit({"name": "job", "steps": [{"run": run}], "triggers": [], "labels": list(labels)})
    return int(server.post(f"/v1/jobs/{job['id']}/run", status=201)["id"])


def log_of(server: Server, run_id: int) -> str:
    return server.http.get(f"/v1/runs/{run_id}/log").text


def state_of(server: Server, run_id: int) -> str:
    return str(server.get(f"/v1/runs/{run_id}")["state"])


def has_written(server: Server, run_id: int, text: str) -> None:
    server.wait_until(lambda: text in log_of(server, run_id), f"run {run_id} to write {text!r}")


def node(server: Server, name: str) -> Any:
    return next((one for one in server.get("/v1/nodes")["items"] if one["name"] == name), None)


def until(file: Path) -> str:
    return f"while [ ! -e {file} ]; do sleep 0.05; done"


# Attempt 1 goes on until it is killed; any other ends soon. Every line says who wrote it, and when.
WITNESS = """
n=5; [ "$HORAE_ATTEMPT" = 1 ] && n=100000
for i in $(seq $n); do echo "$HORAE_FENCE $(date +%s.%N)" >> {file}; sleep 0.1; done
"""


def lines_of(file: Path) -> list[tuple[int, float]]:
    lines = [line.split() for line in file.read_text().splitlines()] if file.exists() else []
    return [(int(fence), float(when)) for fence, when in lines]


def check_one_after_the_other(file: Path) -> None:
    """The first attempt was dead before the second began."""
    seen = lines_of(file)
    assert {fence for fence, _ in seen} == {1, 2}
    assert max(when for fence, when in seen if fence == 1) < min(when for fence, when in seen if fence == 2)


# ── living together ──


def test_an_agent_joins_and_runs_what_needs_its_label(patient: Server, worker: AgentProcess, begin: Begin):
    port = free_port()
    begin(at(patient), "gpu", "--port", str(port)).joined()
    assert httpx.get(f"http://127.0.0.1:{port}/healthz").text == "ok\n"
    assert "horae_agent_slots 4.0" in httpx.get(f"http://127.0.0.1:{port}/metrics").text

    run_id = shell(patient, "echo run $HORAE_RUN_ID; seq 3", "gpu")
    run = patient.ended(run_id)

    assert (run["state"], run["node"]) == ("succeeded", "gpu")
    assert f"run {run_id}\n1\n2\n3\n" in log_of(patient, run_id)
    shown = node(patient, "gpu")
    assert (shown["slots"], shown["roles"]) == (4, ["agent"])
    assert {"gpu", "sandbox:plain"} <= set(shown["labels"])
    assert f"via {shown['via']}" in patient.cli("nodes").stdout
    assert node(patient, shown["via"])["roles"] == ["api", "coordinator", "scheduler"]


def listeners(agent: AgentProcess) -> set[int]:
    """Return the ports on which an agent, or any process that it started, takes connections."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
    assert agent.process is not None
    ours = {agent.process.pid}
    while found := {pid for pid, parent in parents.items() if parent in ours} - ours:
        ours |= found
    held = set()
    for pid in ours:
        for file in Path(f"/proc/{pid}/fd").glob("*"):
            with suppress(OSError):
                held.add(str(file.readlink()))
    lines = [line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()]
    return {int(line[1].rpartition(":")[2], 16) for line in lines if line[3] == "0A" and f"socket:[{line[9]}]" in held}


def test_S06_an_agent_opens_no_port_unless_it_is_told_to(patient: Server, worker: AgentProcess, begin: Begin):
    run_id = shell(patient, "echo done", "worker")
    assert patient.ended(run_id)["state"] == "succeeded"
    assert listeners(worker) == set()
    port = free_port()
    assert listeners(begin(at(patient), "probed", "--port", str(port)).joined()) == {port}


def test_the_handlers_of_a_remote_agent_are_listed(patient: Server, begin: Begin, tmp_path: Path):
    folder = tmp_path / "smith" / "jobs" / "forge"
    folder.mkdir(parents=True)
    (folder / "job.py").write_text("from horae import handler\n\n\n@handler\ndef run() -> None: ...\n")
    begin(at(patient), "smith").joined()
    patient.wait_until(lambda: node(patient, "smith"), "smith to be known")

    page = patient.get("/v1/handlers", node="smith")

    assert page["nodes"] == [{"name": "smith", "state": "listed", "note": ""}]
    assert [(it["name"], it["node"], it["kind"], it["error"]) for it in page["items"]] == [
        ("jobs/forge", "smith", "plain", "")
    ]
    assert page["items"][0]["version"] in patient.cli("handlers", "--node", "smith").stdout


def test_the_log_of_a_remote_run_grows_while_it_runs_and_a_cancel_reaches_it(
    patient: Server, worker: AgentProcess, tmp_path: Path
):
    run_id = shell(patient, f"echo begun; {until(tmp_path / 'never')}", "worker")
    has_written(patient, run_id, "begun")
    assert state_of(patient, run_id) == "running"

    patient.post(f"/v1/runs/{run_id}/cancel", status=202)

    assert patient.ended(run_id)["state"] == "cancelled"


def test_the_artifacts_of_a_remote_run_come_with_its_output(patient: Server, worker: AgentProcess):
    make = "mkdir out; head -c 700000 /dev/urandom > out/big; sha256sum out/big; echo small > out/small; touch out/none"
    (job,) = patient.submit(
        {"name": "remote build", "labels": ["worker"], "steps": [{"run": make}], "artifacts": ["out"]}
    )
    run = patient.ended(patient.post(f"/v1/jobs/{job['id']}/run", status=201)["id"])
    assert (run["state"], run["node"]) == ("succeeded", worker.name)
    listed = patient.get(f"/v1/runs/{run['id']}/artifacts")["items"]
    assert [(one["path"], one["size"]) for one in listed] == [("out/big", 700_000), ("out/none", 0), ("out/small", 6)]
    got = [patient.http.get(f"/v1/runs/{run['id']}/artifacts/{one['path']}") for one in listed]
    assert [answer.status_code for answer in got] == [200, 200, 200]
    log = patient.http.get(f"/v1/runs/{run['id']}/log").text
    assert hashlib.sha256(got[0].content).hexdigest() in log
    assert [answer.content for answer in got[1:]] == [b"", b"small\n"]
    patient.wait_until(lambda: not list(worker.directory.glob("data/agent/spool/outputs/runs/*/*/*")), "a tidy spool")
    kept = f"data/**/runs/*/{run['id']}/*-artifacts/out/*"
    patient.wait_until(
        lambda: len(list(patient.directory.glob(kept))) == 3, "the artifacts to lie there by their names"
    )
    assert patient.http.get(f"/v1/runs/{run['id']}/artifacts/out/big").content == got[0].content


def test_a_cordoned_agent_takes_nothing_until_it_is_uncordoned(patient: Server, worker: AgentProcess, tmp_path: Path):
    holding = shell(patient, f"echo begun; {until(tmp_path / 'go')}", "worker")
    has_written(patient, holding, "begun")
    assert "worker takes no new runs; 1 still running" in patient.cli("nodes", "cordon", "worker").stdout
    beat = node(patient, "worker")["heartbeat_at"]
    patient.wait_until(lambda: node(patient, "worker")["heartbeat_at"] > beat, "a beat, which tells it")
    run_id = shell(patient, "true", "worker")
    (tmp_path / "go").touch()
    assert patient.ended(holding)["state"] == "succeeded"
    assert state_of(patient, run_id) == "queued"

    patient.cli("nodes", "uncordon", "worker")

    assert patient.ended(run_id)["state"] == "succeeded"


def test_a_second_agent_of_the_same_name_is_refused(patient: Server, worker: AgentProcess, tmp_path: Path):
    argv = [horae(), "agent", "--server", at(patient), "--node", "worker", "--data", str(tmp_path / "other")]

    second = subprocess.run(argv, capture_output=True, text=True, timeout=DEADLINE)

    assert second.returncode == 5
    assert "another living agent is called worker" in second.stderr
    assert patient.ended(shell(patient, "true", "worker"))["state"] == "succeeded"


def test_an_agent_that_is_told_to_stop_finishes_its_work_first(patient: Server, begin: Begin, tmp_path: Path):
    agent = begin(at(patient), "leaving", "--on-restart", "end").joined()
    run_id = shell(patient, f"echo begun; {until(tmp_path / 'go')}; echo ended", "leaving")
    has_written(patient, run_id, "begun")

    agent.signal(signal.SIGTERM)
    agent.wait_for("node.stopping")
    (tmp_path / "go").touch()

    assert agent.stop() == 0
    assert state_of(patient, run_id) == "succeeded"
    assert log_of(patient, run_id).endswith("ended\n")
    assert node(patient, "leaving")["state"] == "gone"


def test_beyond_loopback_an_agent_needs_a_token_and_whom_to_trust(tmp_path: Path, begin: Begin):
    far = Far(tmp_path)
    far.server.start()
    try:
        ca, address = str(far.certificate), at(far.server)
        comes_in = ("--ca-file", ca, "--token-file", "token.txt")
        far.cli(*comes_in, "token", "create", "join", "--agent", "*", "--label", "*", "--file", "join.txt")
        flags = ("agent", "--server", address, "--node", "n", "--data", "other", "--ca-file", ca)
        nobody = run(tmp_path, *flags, check=False)
        user = run(tmp_path, *flags, "--token-file", "token.txt", check=False)

        begin(address, "trusted", "--ca-file", ca, "--token-file", str(tmp_path / "join.txt")).joined()
        far.server.wait_until(lambda: "trusted" in far.cli(*comes_in, "nodes").stdout, "it to be shown")
    finally:
        assert far.server.stop() == 0

    assert (nobody.returncode, "error[E_JOIN_TOKEN]" in nobody.stderr) == (3, True), nobody.stderr
    assert (user.returncode, "error[E_TOKEN_SCOPE]" in user.stderr) == (3, True), user.stderr
    assert (tmp_path / "join.txt").read_text().strip() not in far.server.log()


# ── coming through ──


def test_a_job_survives_the_crash_of_its_server(mortal: Server, begin: Begin, tmp_path: Path):
    agent = begin(at(mortal), "a1").joined()
    run_id = shell(mortal, f"echo one; {until(tmp_path / 'go')}; echo two")
    has_written(mortal, run_id, "one")

    mortal.kill()
    (tmp_path / "go").touch()  # it ends while there is no server
    mortal.start()
    agent.wait_for("joined", times=2)
    run = mortal.ended(run_id)

    assert (run["state"], run["attempt"]) == ("succeeded", 1)
    assert log_of(mortal, run_id).endswith("one\ntwo\n")


def test_a_result_outlives_the_agent_that_could_not_report_it(mortal: Server, begin: Begin, tmp_path: Path):
    agent = begin(at(mortal), "a1").joined()
    run_id = shell(mortal, f"echo begun; {until(tmp_path / 'go')}; echo done >> {tmp_path}/witness; seq 3")
    has_written(mortal, run_id, "begun")

    mortal.kill()
    (tmp_path / "go").touch()
    results = agent.directory / "data" / "agent" / "spool" / "results"
    mortal.wait_until(lambda: list(results.glob("*.json")), "the result to be on disk")
    agent.kill()
    mortal.start()
    agent.start()
    run = mortal.ended(run_id)

    assert (run["state"], run["attempt"]) == ("succeeded", 1)
    assert log_of(mortal, run_id).endswith("1\n2\n3\n")
    assert (tmp_path / "witness").read_text() == "done\n"
    mortal.wait_until(lambda: not list(results.glob("*.json")), "the spool to be empty")


def test_a_wire_that_breaks_and_stalls_costs_nothing(patient: Server, begin: Begin, tmp_path: Path):
    proxy = Proxy(patient.grpc_port)
    try:
        agent = begin(f"127.0.0.1:{proxy.port}", "far").joined()
        run_id = shell(patient, f"echo one; {until(tmp_path / 'go')}; seq 20000; echo two", "far")
        has_written(patient, run_id, "one")
        for _ in range(3):
            joined = agent.log().count("joined")
            proxy.cut()
            agent.wait_for("joined", times=joined + 1)
        proxy.stall()
        (tmp_path / "go").touch()
        time.sleep(2)
        proxy.resume()
        run = patient.ended(run_id)
    finally:
        proxy.close()

    assert (run["state"], run["attempt"]) == ("succeeded", 1)
    assert log_of(patient, run_id).endswith("".join(f"{i}\n" for i in range(1, 20001)) + "two\n")


# ── getting lost ──


def test_what_a_killed_agent_ran_dies_and_runs_elsewhere(quick: Server, begin: Begin, tmp_path: Path):
    witness = tmp_path / "witness"
    first = begin(at(quick), "killed", "--label", "k").joined()
    run_id = shell(quick, WITNESS.format(file=witness), "k")
    quick.wait_until(lambda: lines_of(witness), "the first line")

    first.kill()
    heir = begin(at(quick), "second", "--label", "k").joined()
    run = quick.ended(run_id)

    assert (run["state"], run["node"], run["attempt"]) == ("succeeded", heir.name, 2)
    check_one_after_the_other(witness)


@pytest.mark.long
def test_a_stopped_agent_loses_its_job_before_a_second_copy_starts(quick: Server, begin: Begin, tmp_path: Path):
    witness = tmp_path / "witness"
    first = begin(at(quick), "stopped", "--label", "s").joined()
    run_id = shell(quick, WITNESS.format(file=witness), "s")
    quick.wait_until(lambda: lines_of(witness), "the first line")
    begin(at(quick), "other", "--label", "s").joined()

    first.signal(signal.SIGSTOP)
    run = quick.ended(run_id)
    first.signal(signal.SIGCONT)

    assert (run["state"], run["node"], run["attempt"]) == ("succeeded", "other", 2)
    check_one_after_the_other(witness)
    quick.wait_until(lambda: "result.fenced" in quick.log(), "its late result to be refused")
    quick.wait_until(lambda: node(quick, "stopped")["state"] == "live", "it to come back")
    assert quick.ended(shell(quick, "true", "stopped"))["state"] == "succeeded"


def test_an_agent_behind_a_dead_wire_kills_its_job_before_another_may_start_it(
    quick: Server, begin: Begin, tmp_path: Path
):
    witness = tmp_path / "witness"
    proxy = Proxy(quick.grpc_port)
    try:
        begin(f"127.0.0.1:{proxy.port}", "lonely", "--label", "w").joined()
        run_id = shell(quick, WITNESS.format(file=witness), "w")
        quick.wait_until(lambda: lines_of(witness), "the first line")
        begin(at(quick), "near", "--label", "w").joined()
        proxy.stall()
        run = quick.ended(run_id)
        proxy.resume()
        quick.wait_until(lambda: node(quick, "lonely")["state"] == "live", "it to come back")
    finally:
        proxy.close()

    assert (run["state"], run["node"], run["attempt"]) == ("succeeded", "near", 2)
    check_one_after_the_other(witness)
