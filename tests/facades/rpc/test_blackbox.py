"""The RPC contract against real servers: every call of the document, and what its clients and workers expect."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import grpc
import pytest

from horae.wire.generated import scheduling_pb2 as pb
from tests.acceptance.server import Server

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("rpc-blackbox")]  # one server for all

DOCUMENT = Path(__file__).parent / "document" / "calls.json"
NOOP = "horae.handlers:noop"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """As it comes: with agents of its own."""
    running = Server(tmp_path_factory.mktemp("rpc"), "--heartbeat-interval", "1").start()
    yield running
    running.stop()


@pytest.fixture(scope="module")
def scheduler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One that leaves all work to workers of their own."""
    directory = tmp_path_factory.mktemp("scheduler")
    running = Server(directory, "--heartbeat-interval", "1", "--roles", "api,coordinator,scheduler").start()
    yield running
    running.stop()


def ask(server: Server, method: str, *params: Any, **named: Any) -> Any:
    return server.post("/rpc", {"jsonrpc": "2.0", "id": 1, "method": method, "params": named or list(params)})


def call(server: Server, method: str, *params: Any, **named: Any) -> Any:
    answer = ask(server, method, *params, **named)
    assert "result" in answer, answer
    return answer["result"]


def refused(server: Server, method: str, *params: Any, **named: Any) -> tuple[int, str]:
    error = ask(server, method, *params, **named)["error"]
    return error["code"], error["data"]["code"]


def submit(server: Server, user: str, schedule: Any = None, location: str = NOOP, **fields: Any) -> int:
    return int(call(server, "submit_job", user_id=user, schedule=schedule, code_location=location, **fields))


def waiting(server: Server, job_id: int) -> int:
    """Return the execution of a job, once it waits for a worker."""

    def look() -> Any:
        return [row for row in call(server, "get_exec_history", job_id) if row["status"] == "scheduled"]

    return int(server.wait_until(look, f"job {job_id} to be scheduled")[0]["execution_id"])


def status(server: Server, job_id: int) -> str:
    rows = call(server, "get_exec_history", job_id)
    return str(rows[0]["status"]) if rows else "pending"


def await_status(server: Server, job_id: int, *words: str) -> Any:
    server.wait_until(lambda: status(server, job_id) in words, f"job {job_id} to be {words}")
    return call(server, "get_exec_history", job_id)[0]


class Worker:
    """A worker of their own that is called, as another system would write it."""

    def __init__(self, accepts: bool = True) -> None:
        self.asked: list[tuple[str, Any]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                document = json.loads(self.rfile.read(int(self.headers["content-length"])))
                outer.asked.append((f"{self.path} {document['method']}", document["params"]))
                no = {"error": {"code": 1, "message": "no room"}}
                answer = no if document["method"] == "dispatch" and not accepts else {"result": {"status": "ok"}}
                body = json.dumps({"jsonrpc": "2.0", "id": document["id"], **answer}).encode()
                self.send_response(200)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                """Nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def got(self, method: str) -> list[Any]:
        return [params for asked, params in self.asked if asked == f"/rpc {method}"]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def worker() -> Iterator[Worker]:
    listening = Worker()
    yield listening
    listening.close()


# ── the document ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.row("rpc-document", "rpc-batch")
def test_every_call_of_the_document_is_answered(scheduler: Server) -> None:
    answers = scheduler.post("/rpc", json.loads(DOCUMENT.read_text()))
    assert len(answers) == 9
    by_id = {answer["id"]: answer for answer in answers}
    assert by_id["submit_job(user_id, schedule, code_location)"]["result"] >= 1
    assert by_id["Health Checks (Heart Beats)"]["result"]["status"] == "ok"
    assert by_id["get_jobs_in_next_5_mins()"]["result"][0]["schedule"] == "*/5 * * * *"


@pytest.mark.row(
    "rpc-submit-job", "rpc-schedules", "rpc-retrieve-all-jobs", "rpc-job-types", "rpc-unix-time", "rpc-delete-job"
)
def test_a_user_makes_jobs_sees_them_and_deletes_them(server: Server) -> None:
    later = int(time.time()) + 200
    made = [submit(server, "ann", schedule) for schedule in ("*/5 * * * *", "1h30m", later)]
    jobs = call(server, "retrieve_all_jobs", "ann")
    assert [job["job_id"] for job in jobs] == made[::-1]
    assert [job["job_type"] for job in jobs] == ["one-time", "periodic", "periodic"]
    assert (jobs[0]["next_execution"], jobs[0]["status"], jobs[0]["user_id"]) == (later, "pending", "ann")
    assert refused(server, "delete_job", "bob", made[0]) == (-32003, "E_POLICY")
    for job_id in made:
        assert call(server, "delete_job", "ann", job_id) is True
    assert call(server, "retrieve_all_jobs", "ann") == []


@pytest.mark.row("rpc-exec-history", "rpc-history-message", "rpc-read-log", "rpc-code-locations")
def test_history_tells_what_became_of_an_execution_and_where_its_log_is(server: Server) -> None:
    good, bad = submit(server, "log"), submit(server, "log", None, "no_such_module:f")
    row = await_status(server, good, "completed")
    assert (row["retry_count"], row["scheduled_for"] <= row["started_at"] <= row["finished_at"]) == (0, True)
    assert row["worker_id"]
    failed = await_status(server, bad, "failed")
    assert failed["message"]
    shown = server.get(f"/v1/runs/{failed['execution_id']}")
    assert (failed["message"], failed["exit_code"]) == (shown["message"], shown["exit_code"])
    assert failed["logs_path"] == f"/v1/runs/{failed['execution_id']}/log"
    piece = call(server, "get_log", failed["execution_id"])
    assert piece["text"] == server.http.get(failed["logs_path"]).text
    assert piece["status"] == "failed"


@pytest.mark.row("rpc-next-5-mins", "rpc-pages", "rpc-no-cap")
def test_lists_are_whole_and_have_pages(server: Server) -> None:
    many = {"name": NOOP, "handler": NOOP, "schedule": "1h", "annotations": {"rpc": {"user_id": "many"}}}
    for _ in range(102):
        server.submit(*[many] * 100)
    assert len(call(server, "retrieve_all_jobs", "many")) == 10_200
    pages, cursor = [], ""
    while cursor is not None:
        page = call(server, "retrieve_all_jobs", user_id="many", limit=4000, cursor=cursor)
        pages.append(len(page["jobs"]))
        cursor = page["cursor"]
    assert pages == [4000, 4000, 2200]
    soon = int(time.time()) + 240
    made = [submit(server, "soon", soon + number) for number in range(3)]
    coming = [job["job_id"] for job in call(server, "get_jobs_in_next_5_mins") if job["user_id"] == "soon"]
    assert coming == made
    first = call(server, "get_jobs_in_next_5_mins", limit=1, cursor="")
    assert len(first["jobs"]) == 1
    assert call(server, "get_jobs_in_next_5_mins", limit=1, cursor=first["cursor"])["jobs"] != first["jobs"]
    for job_id in made:
        call(server, "delete_job", "soon", job_id)


@pytest.mark.row("rpc-dispatch-here", "rpc-health-here", "rpc-cancel")
def test_this_node_is_a_worker_too(server: Server) -> None:
    job_id = submit(server, "here", "1h")
    execution = call(server, "dispatch", job_id)
    assert await_status(server, job_id, "completed")["execution_id"] == execution
    assert call(server, "heartbeat")["capacity"] >= 1
    later = submit(server, "here", int(time.time()) + 3600)
    assert call(server, "cancel", job_id=later) == {"cancelled": []}


@pytest.mark.row("rpc-errors", "rpc-notification", "rpc-idempotency")
def test_what_is_wrong_is_told_in_the_contracts_own_shape(server: Server) -> None:
    assert refused(server, "submit_job", "u", "61 * * * *", NOOP) == (-32602, "E_CRON_RANGE")
    assert refused(server, "no_such_call") == (-32601, "E_NOT_FOUND")
    assert refused(server, "get_exec_history", 999_999_999) == (-32004, "E_NOT_FOUND")
    assert refused(server, "retrieve_all_jobs", user_id="u", cursor="zzz") == (-32602, "E_PATTERN")
    assert refused(server, "heartbeat", worker_id="w", address="nowhere") == (-32602, "E_PATTERN")
    assert server.http.post("/rpc", content=b"{").json()["error"]["code"] == -32700
    quiet = {"jsonrpc": "2.0", "method": "submit_job", "params": ["quiet", "1h", NOOP]}
    assert server.http.post("/rpc", json=quiet).status_code == 204
    keyed = [server.http.post("/rpc", json={**quiet, "id": 1}, headers={"Idempotency-Key": "k"}) for _ in range(2)]
    assert len({answer.json()["result"] for answer in keyed}) == 1
    assert len(call(server, "retrieve_all_jobs", "quiet")) == 2


@pytest.mark.row("rpc-grpc")
def test_grpc_has_the_same(server: Server) -> None:
    job_id = submit(server, "wire", "1h")
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
        grpc.channel_ready_future(channel).result(timeout=120)  # loads after HTTP answers

        def made(name: str, reply: Any) -> Any:
            return channel.unary_unary(
                f"/horae.v1.Scheduling/{name}", lambda it: it.SerializeToString(), reply.FromString
            )

        [job] = made("RetrieveAllJobs", pb.Jobs)(pb.RetrieveAllJobsRequest(user_id="wire")).jobs
        assert (job.job_id, job.schedule) == (job_id, "1h")
        execution = made("Dispatch", pb.DispatchReply)(pb.DispatchRequest(job_id=job_id)).execution_id
        await_status(server, job_id, "completed")
        [row] = made("GetExecHistory", pb.ExecHistory)(pb.GetExecHistoryRequest(job_id=job_id)).executions
        assert (row.execution_id, row.logs_path) == (execution, f"/v1/runs/{execution}/log")
        assert made("GetLog", pb.LogPiece)(pb.GetLogRequest(execution_id=execution)).status == "completed"


# ── workers of their own ───────────────────────────────────────────────────────────────────────────


@pytest.mark.row("rpc-due-now", "rpc-take-batch", "rpc-scheduled", "rpc-status-update", "rpc-write-log", "rpc-priority")
def test_a_worker_pulls_a_batch_writes_and_reports(scheduler: Server) -> None:
    jobs = [submit(scheduler, "pull", priority=priority) for priority in (1, 8)]
    slow, urgent = (waiting(scheduler, job_id) for job_id in jobs)
    due = {each["execution_id"] for each in call(scheduler, "get_due_jobs")}
    assert {slow, urgent} <= due
    taken = call(scheduler, "take_due_jobs", worker_id="puller", limit=2)
    assert [each["execution_id"] for each in taken] == [urgent, slow]
    assert taken[0]["code_location"] == NOOP
    call(scheduler, "status_update", execution_id=urgent, status="running", worker_id="puller", progress=50)
    assert status(scheduler, jobs[1]) == "running"
    call(scheduler, "write_log", execution_id=urgent, worker_id="puller", offset=0, text="half way\n")
    assert call(scheduler, "get_log", urgent)["text"] == "half way\n"
    done = {"execution_id": urgent, "worker_id": "puller", "attempt": 1}
    for _ in range(2):
        assert call(scheduler, "status_update", **done, status="completed", message="well", exit_code=0)
    row = call(scheduler, "get_exec_history", jobs[1])[0]
    assert (row["status"], row["worker_id"], row["message"], row["exit_code"]) == ("completed", "puller", "well", 0)
    assert scheduler.http.get(row["logs_path"]).text == "half way\n"
    assert refused(scheduler, "status_update", slow, "completed", "thief") == (-32009, "E_CONFLICT")
    call(scheduler, "status_update", execution_id=slow, status="completed", worker_id="puller")


@pytest.mark.row("rpc-retries")
def test_a_failure_is_tried_again_as_often_as_the_job_says(scheduler: Server) -> None:
    job_id = submit(scheduler, "again", retry_times=1)
    waiting(scheduler, job_id)
    for attempt in (1, 2):
        taken = scheduler.wait_until(
            lambda: call(scheduler, "take_due_jobs", worker_id="clumsy"), f"attempt {attempt} to be given out"
        )
        assert [(each["job_id"], each["attempt"]) for each in taken] == [(job_id, attempt)]
        call(scheduler, "status_update", taken[0]["execution_id"], "failed", "clumsy", "broken")
    row = call(scheduler, "get_exec_history", job_id)[0]
    assert (row["status"], row["retry_count"], row["message"]) == ("failed", 1, "broken")


@pytest.mark.row("rpc-give-back", "rpc-held", "rpc-heartbeat")
def test_a_worker_gives_back_what_it_did_not_begin_and_says_what_it_holds(scheduler: Server) -> None:
    execution = waiting(scheduler, submit(scheduler, "back"))
    [taken] = call(scheduler, "take_due_jobs", worker_id="returner", limit=1)
    assert taken["execution_id"] == execution
    beat = call(scheduler, "heartbeat", worker_id="returner", held=[execution, 999_999])
    assert (beat["lost"], beat["cancel"]) == ([999_999], [])
    call(scheduler, "status_update", execution_id=execution, status="scheduled", worker_id="returner")
    [again] = call(scheduler, "take_due_jobs", worker_id="other", limit=1)
    assert (again["execution_id"], again["attempt"]) == (execution, 1)
    call(scheduler, "status_update", execution_id=execution, status="completed", worker_id="other")


@pytest.mark.row("rpc-dispatch-worker", "rpc-health-worker", "rpc-cancel-worker", "rpc-capacity")
def test_a_worker_is_sent_work_asked_for_its_health_and_told_to_stop(scheduler: Server, worker: Worker) -> None:
    call(scheduler, "heartbeat", worker_id="called", capacity=1, address=worker.address)
    job_id = submit(scheduler, "push")
    [sent] = scheduler.wait_until(lambda: worker.got("dispatch"), "the worker to be called")
    assert (sent["job_id"], sent["code_location"], sent["attempt"]) == (job_id, NOOP, 1)
    execution = {"execution_id": sent["execution_id"], "worker_id": "called"}
    call(scheduler, "status_update", **execution, status="running")
    call(scheduler, "cancel", execution_id=sent["execution_id"])
    [stop] = scheduler.wait_until(lambda: worker.got("cancel"), "the worker to be told")
    assert stop["execution_id"] == sent["execution_id"]
    assert call(scheduler, "status_update", **execution, status="running")["cancel"] is True
    call(scheduler, "status_update", **execution, status="cancelled", message="stopped")
    assert status(scheduler, job_id) == "cancelled"
    scheduler.wait_until(lambda: worker.got("health"), "the worker to be asked how it is")
    call(scheduler, "heartbeat", worker_id="called", held=[], load=1)  # full: it takes nothing of the tests after it


@pytest.mark.row("rpc-dispatch-named", "rpc-dispatch-refused")
def test_a_job_is_sent_to_the_worker_that_is_named_also_beside_agents(server: Server, worker: Worker) -> None:
    call(server, "heartbeat", worker_id="named", capacity=1, address=worker.address)
    job_id = submit(server, "named", "1h")
    execution = call(server, "dispatch", job_id=job_id, worker_id="named")
    assert [sent["execution_id"] for sent in worker.got("dispatch")] == [execution]
    assert call(server, "get_exec_history", job_id)[0]["worker_id"] == "named"
    full = submit(server, "named", "1h")
    assert refused(server, "dispatch", job_id=full, worker_id="named") == (-32053, "E_AT_CAPACITY")
    assert status(server, full) == "cancelled"
    call(server, "status_update", execution_id=execution, status="completed", worker_id="named")
    assert status(server, job_id) == "completed"
    assert refused(server, "dispatch", job_id=job_id, worker_id="nobody") == (-32004, "E_NOT_FOUND")
