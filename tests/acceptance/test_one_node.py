"""The installed command in real processes: what a new user does, and what an operator does."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from .server import DEADLINE, Server, free_port, horae

pytestmark = pytest.mark.xdist_group("one node")  # those that do it no harm share a server
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    running = Server(tmp_path_factory.mktemp("shared"), "--heartbeat-interval", "1").start()
    yield running
    running.stop()


def test_the_first_example_runs_and_its_log_can_be_followed(server: Server):
    submitted = server.cli("submit", str(ROOT / "examples" / "hello.yaml"))
    assert "hello" in submitted.stdout
    (run,) = server.wait_until(lambda: server.get("/v1/runs")["items"], "the first run")

    followed = server.cli("logs", "-f", str(run["id"]))

    assert "part 3 of 3" in followed.stdout
    assert followed.stdout.index("greet") < followed.stdout.index("part 1 of 3") < followed.stdout.index("goodbye")
    ended = server.ended(run["id"])
    assert (ended["state"], ended["exit_code"]) == ("succeeded", 0)
    assert 0 <= ended["late_ms"] < 60_000
    assert "succeeded" in server.cli("runs").stdout


def test_what_a_server_keeps_is_its_users_alone_and_work_has_the_users_own_umask(tmp_path: Path):
    data = tmp_path / "data"
    data.mkdir(mode=0o755)
    server = Server(tmp_path).start()
    try:
        run = {"name": "own", "run_once": True, "steps": [{"run": f"umask; echo made > {tmp_path}/made"}]}
        (job,) = server.submit(run)
        (found,) = server.wait_until(lambda: server.get("/v1/runs", job_id=job["id"])["items"], "the run")
        server.ended(found["id"])
        assert [path for path in (data, *data.rglob("*")) if _rights_of_others(path)] == []
        assert "data.was_open" in server.log()
        assert "\n0022\n" in server.cli("logs", str(found["id"])).stdout
    finally:
        server.stop()


def _rights_of_others(path: Path) -> int:
    mode = path.lstat().st_mode
    return 0 if stat.S_ISLNK(mode) or stat.S_ISCHR(mode) else stat.S_IMODE(mode) & 0o077  # /dev/null is everybody's


def test_following_a_job_ends_when_no_more_runs_can_come(shared: Server):
    shared.submit({"name": "once", "run_once": True, "steps": [{"run": "echo only"}]})

    assert "only" in shared.cli("logs", "-f", "once").stdout


def test_run_wait_ends_with_the_exit_code_of_the_job(shared: Server):
    shared.submit({"name": "three", "steps": [{"run": "exit 3"}]}, {"name": "fine", "steps": [{"run": "true"}]})

    assert shared.cli("run", "three", "--wait", check=False).returncode == 3
    assert shared.cli("run", "fine", "--wait").returncode == 0


def test_a_job_that_is_cancelled_is_dead_with_everything_it_started(shared: Server, tmp_path: Path):
    pids = tmp_path / "pids"
    run = f"(setsid sleep 300 & echo $! >> {pids}); echo $$ >> {pids}; sleep 300"
    (job,) = shared.submit({"name": "long", "steps": [{"run": run}]})
    run_id = shared.post(f"/v1/jobs/{job['id']}/run", status=201)["id"]
    shared.wait_until(lambda: pids.exists() and len(pids.read_text().split()) == 2, "the job to start its daemon")

    shared.post(f"/v1/runs/{run_id}/cancel", status=202)

    assert shared.ended(run_id)["state"] == "cancelled"
    assert [pid for pid in pids.read_text().split() if Path(f"/proc/{pid}").exists()] == []


def test_a_timeout_ends_the_attempt_and_a_retry_follows(shared: Server, tmp_path: Path):
    mark = tmp_path / "mark"
    (job,) = shared.submit(
        {"name": "slow once", "timeout": "1s", "retry": {"attempts": 2, "backoff": "100ms"},
         "steps": [{"run": f"if [ -e {mark} ]; then echo again; else touch {mark}; sleep 60; fi"}]}
    )  # fmt: skip
    run_id = shared.post(f"/v1/jobs/{job['id']}/run", status=201)["id"]

    run = shared.ended(run_id)

    assert (run["state"], run["attempt"]) == ("succeeded", 2)
    assert [attempt["state"] for attempt in run["attempts"]] == ["timed_out"]
    assert "again" in shared.http.get(f"/v1/runs/{run_id}/log").text


@pytest.mark.parametrize("lines", [500_000, pytest.param(3_000_000, marks=pytest.mark.long)])
def test_a_flood_of_output_is_kept_to_the_last_byte(shared: Server, lines: int):
    """Megabytes at full speed: the job waits for its log rather than losing a line of it."""
    (job,) = shared.submit({"name": "flood", "steps": [{"run": f"seq {lines}"}]})
    run_id = shared.post(f"/v1/jobs/{job['id']}/run", status=201)["id"]
    assert shared.ended(run_id)["state"] == "succeeded"

    text, offset = b"", 0
    while part := shared.http.get(f"/v1/runs/{run_id}/log", params={"offset": offset}).content:
        text += part
        offset += len(part)

    assert text.split(b"\n")[1:-1] == [b"%d" % number for number in range(1, lines + 1)]


def test_a_python_handler_gets_its_data_and_gives_its_result(shared: Server):
    (job,) = shared.submit({"name": "echo", "handler": "horae.handlers:echo"})
    run_id = shared.post(f"/v1/jobs/{job['id']}/run", {"data": {"x": [1, 2]}}, status=201)["id"]

    run = shared.ended(run_id)

    assert (run["state"], run["result"]) == ("succeeded", {"x": [1, 2]})
    assert json.loads(shared.http.get(f"/v1/runs/{run_id}/log").text) == {"x": [1, 2]}


def test_handlers_of_a_jobs_directory_run_and_see_the_previous_result(tmp_path: Path):
    jobs = tmp_path / "jobs" / "counter"
    jobs.mkdir(parents=True)
    (jobs / "job.py").write_text(
        "from horae import handler\n\n"
        "@handler\n"
        "async def counter(context):\n"
        "    print('counting')\n"
        "    return {'count': (context.previous_result or {'count': 0})['count'] + 1}\n"
    )
    server = Server(tmp_path, "--jobs-directory", str(tmp_path / "jobs"))
    server.start()
    try:
        (job,) = server.submit(
            {"name": "counter", "kind": "python", "spec": {"handler": "jobs/counter", "previous_result": True}}
        )
        results = []
        for _ in range(3):
            run = server.ended(server.post(f"/v1/jobs/{job['id']}/run", status=201)["id"])
            assert run["state"] == "succeeded", run
            results.append(run["result"])

        assert results == [{"count": 1}, {"count": 2}, {"count": 3}]
        assert server.http.get(f"/v1/runs/{run['id']}/log").text == "counting\n"
    finally:
        server.stop()


def test_a_second_process_on_the_same_data_is_told_who_holds_it(shared: Server):
    argv = [horae(), "up", "--port", str(free_port()), "--data", str(shared.directory / "data")]

    second = subprocess.run(argv, capture_output=True, text=True, timeout=DEADLINE)

    assert second.returncode != 0
    assert "E_SINGLE_NODE_LOCK" in second.stderr
    assert shared.process is not None
    assert str(shared.process.pid) in second.stderr


def test_a_taken_port_is_refused_at_once(shared: Server, tmp_path: Path):
    argv = [horae(), "up", "--port", str(shared.port), "--data", str(tmp_path / "other")]

    second = subprocess.run(argv, capture_output=True, text=True, timeout=DEADLINE)

    assert second.returncode != 0
    assert "E_LISTEN" in second.stderr
    assert not (tmp_path / "other").exists()


def test_stopping_lets_running_work_finish_and_leaves_with_zero(server: Server, tmp_path: Path):
    mark = tmp_path / "done"
    (job,) = server.submit({"name": "short", "steps": [{"run": f"sleep 1; touch {mark}"}]})
    run_id = server.post(f"/v1/jobs/{job['id']}/run", status=201)["id"]
    server.wait_until(lambda: server.get(f"/v1/runs/{run_id}")["state"] == "running", "the run to start")

    assert server.process is not None
    server.process.send_signal(signal.SIGTERM)

    assert server.process.wait(DEADLINE) == 0
    assert mark.exists()
    server.start()
    assert server.ended(run_id)["state"] == "succeeded"


def test_what_was_answered_survives_kill_nine(server: Server):
    (job,) = server.submit({"name": "keep me", "schedule": "@yearly", "steps": [{"run": "true"}]})
    server.kill()
    server.start()

    assert server.get(f"/v1/jobs/{job['id']}")["name"] == "keep me"


def test_an_attempt_that_dies_with_the_server_is_repeated(tmp_path: Path):
    server = Server(tmp_path, "--heartbeat-interval", "1", "--on-restart", "end").start()
    try:
        check_repetition(server, tmp_path)
    finally:
        server.stop()


def check_repetition(server: Server, tmp_path: Path) -> None:
    log = tmp_path / "log"
    run = f"echo start $HORAE_ATTEMPT $HORAE_FENCE >> {log}; [ $HORAE_ATTEMPT -gt 1 ] || sleep 300"
    (job,) = server.submit({"name": "phoenix", "steps": [{"run": run}]})
    run_id = server.post(f"/v1/jobs/{job['id']}/run", status=201)["id"]
    server.wait_until(lambda: log.exists() and log.read_text(), "the first attempt")
    server.kill()
    server.start()

    run = server.ended(run_id)

    assert (run["state"], run["attempt"], run["lost"]) == ("succeeded", 2, 1)
    assert log.read_text().split("\n")[:2] == ["start 1 1", "start 2 2"]


def test_a_start_costs_little_work(tmp_path: Path):
    """Work, not time: other tests run beside this one. A second of it is what a second and a half of waiting allows."""
    best = min(_cpu_of_start(tmp_path) for _ in range(3))

    assert best < 2.5, f"the best of three starts took {best:.2f} s of CPU"


def _cpu_of_start(directory: Path) -> float:
    server = Server(directory)
    server.start()
    assert server.process is not None
    fields = Path(f"/proc/{server.process.pid}/stat").read_text().rpartition(")")[2].split()
    server.stop()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_the_same_commands_work_on_postgresql(tmp_path: Path, postgres_url: str):
    server = Server(tmp_path, "--database", postgres_url)
    server.start()
    try:
        server.submit({"name": "tick", "schedule": "1s", "steps": [{"run": "echo tick"}]})

        def three() -> bool:
            return len(server.get("/v1/runs", state="succeeded")["items"]) >= 3

        server.wait_until(three, "three runs on PostgreSQL")
        server.kill()
        server.start()
        run_id = server.post("/v1/jobs/1/run", status=201)["id"]
        assert server.ended(run_id)["state"] in ("succeeded", "skipped")
    finally:
        assert server.stop() == 0


def test_the_server_answers_only_to_its_own_names(shared: Server):
    answer = httpx.get(f"{shared.url}/v1/jobs", headers={"Host": "evil.example"})

    assert answer.json()["code"] == "E_HOST"
