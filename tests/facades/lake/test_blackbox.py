"""The lake and sync contract from outside: a real `horae up`, and every request of the document.

The first server leaves the work to workers that pull, the second does it itself.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.server import Server
from tests.facades.lake.bodies import java, source, sync
from tests.facades.lake.test_document import differences, text

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("lake-blackbox")]  # one server for all

HOUR = 3_600_000  # ms
ONCE = {"class_name": "schedule_once", "start_time": 0}
NEVER = {"class_name": "none_schedule"}
HOURLY = {"class_name": "schedule_hourly", "recur_every": 1}


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    running = Server(
        tmp_path_factory.mktemp("lake"), "--heartbeat-interval", "0.5", "--lake-workers", "external"
    ).start()
    yield running
    running.stop()


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    running = Server(tmp_path_factory.mktemp("own"), "--heartbeat-interval", "0.5").start()
    yield running
    running.stop()


def send(server: Server, method: str, path: str, body: Any = None, status: int = 200, **headers: str) -> Any:
    answer = server.http.request(method, path, json=body, headers=headers)
    assert answer.status_code == status, (method, path, answer.text)
    return answer.json()


def refused(server: Server, method: str, path: str, body: Any = None) -> tuple[str, str]:
    """(reason, message), in the contract's shape."""
    answer = send(server, method, path, body, 400)
    assert answer.keys() == {"code", "reason", "message"}
    assert answer["code"] == 400
    return answer["reason"], answer["message"]


def make(server: Server, body: Any, side: str = "/lake") -> Any:
    return send(server, "POST", f"{side}/job/create", body)["job"]


def job(server: Server, job_id: int) -> Any:
    return send(server, "GET", f"/lake/job/{job_id}")["job"]


def sync_job(server: Server, job_id: int) -> Any:
    listed = send(server, "POST", "/job/list", {"from": 0, "size": 1000})
    return next(row["job"] for row in listed["data"] if row["job"]["job_id"] == job_id)


def history(server: Server, job_id: int, side: str = "/lake") -> list[Any]:
    rows = send(server, "POST", f"{side}/history/list", {"from": 0, "size": 1000})["data"]
    return [row for row in rows if row["job_id"] == job_id]


def await_status(server: Server, job_id: int, status: str) -> Any:
    def look() -> Any:
        found = job(server, job_id)
        return found if found["current_sync_status"] == status else None

    return server.wait_until(look, f"job {job_id} to be {status}")


def pull(server: Server, job_id: int, side: str = "/lake") -> Any:
    """Return what a worker gets, once it is this job's turn."""

    def look() -> Any:
        answer = send(server, "GET", f"{side}/schedule/job/next")
        if answer["has_job"] and answer["data"]["job"]["job_id"] != job_id:
            report(server, answer["data"], "Error")  # of another test
        return answer.get("data") if answer["has_job"] and answer["data"]["job"]["job_id"] == job_id else None

    return server.wait_until(look, f"a run of job {job_id}")


def report(server: Server, taken: Any, status: str, **more: Any) -> Any:
    side, name, kind = (
        ("", "sync_id", "jdbc_progress") if "sync_id" in taken else ("/lake", "run_id", "java_job_progress")
    )
    now = time.time_ns() // 1_000_000
    body = {"class_name": kind, "org_id": 1, name: taken[name], "job_id": taken["job"]["job_id"], "start_time": now}
    return send(
        server, "POST", f"{side}/schedule/job/report", {**body, "updated_time": now, "job_status": status, **more}
    )


def query(server: Server, statement: str) -> list[Any]:
    path = Path(server.directory, "data", "horae.db")
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        return connection.execute(statement).fetchall()


# ── the document ──


@pytest.mark.row("lake-create-java", "lake-get", "lake-update", "lake-list", "lake-delete", "lake-next-run-queued")
def test_the_requests_of_the_document_about_a_java_job(lake: Server) -> None:
    made = send(lake, "POST", "/lake/job/create", text("create-java.request"))
    assert differences(text("create-java.response"), made) == []
    job_id = made["job"]["job_id"]
    queued = await_status(lake, job_id, "Queued")
    assert queued["next_run_time"] == made["job"]["next_run_time"]  # as the document's list shows it
    listed = send(lake, "POST", "/lake/job/list", text("list.request"))
    shown = next(row for row in listed["data"] if row["job"]["job_id"] == job_id)
    assert differences(text("list.response")["data"][0], shown) == []
    assert differences(text("get.response"), {"job": {**queued, "current_sync_status": "Initialized"}}) == []
    update = text("update.request")
    update["job"]["job_id"] = job_id
    assert send(lake, "PUT", f"/lake/job/{job_id}", update) == text("update.response")
    assert job(lake, job_id)["build_tool"] == "sbt"
    assert send(lake, "DELETE", f"/lake/job/{job_id}", text("delete.request")) == text("delete.response")
    assert refused(lake, "GET", f"/lake/job/{job_id}") == ("bad_request", f"No job was found for id = {job_id}.")


@pytest.mark.row("lake-create-sql", "lake-create-python", "lake-output-hadoop", "lake-output-clickhouse")
def test_sql_jobs_with_both_outputs_and_python_jobs(lake: Server) -> None:
    made = send(lake, "POST", "/lake/job/create", text("create-sql.request"))
    assert differences(text("create-sql.response"), made) == []
    outputs = [text("output-hadoop"), text("output-clickhouse")]
    sql = {**text("create-sql.request")["job"], "query_info": {"query": "select 1", "outputs": outputs}}
    assert make(lake, {"job": {**sql, "schedule_time": NEVER}})["query_info"]["outputs"] == outputs
    own = {"class_name": "python_job", "display_name": "p", "git_url": "abcd", "main_file": "a.py"}
    assert make(lake, {"job": own})["job_type"] == "Python"


@pytest.mark.row("lake-output-type")
def test_the_type_of_an_output_decides(lake: Server) -> None:
    def outputs(kind: str, **config: str) -> Any:
        info = {"query": "select 1", "outputs": [{"type": kind, "config": config}]}
        return {"job": {"class_name": "sql_job", "display_name": "t", "query_info": info}}

    made = make(lake, outputs("datainsider", database="d", table_name="t"))
    assert made["query_info"]["outputs"][0]["config"]["class_name"] == "clickhouse_config"
    for kind, config, named in (
        ("zip", {"class_name": "hadoop_config", "result_path": "/x"}, "outputs[0].type"),
        ("datainsider", {"class_name": "hadoop_config", "result_path": "/x"}, "outputs[0].config.class_name"),
        ("text_file", {}, "outputs[0].config.result_path"),
    ):
        reason, message = refused(lake, "POST", "/lake/job/create", outputs(kind, **config))
        assert (reason, f"job.query_info.{named}: " in message) == ("invalid_param", True), message


@pytest.mark.row("lake-schedule-kinds")
def test_every_kind_of_schedule(lake: Server) -> None:
    start = (int(time.time()) + 7200) * 1000
    clock = {"at_hour": 2, "at_minute": 30, "at_second": 0, "start_time": start}
    for kind in (
        NEVER, {"class_name": "schedule_once", "start_time": start},
        {"class_name": "schedule_minutely", "recur_every": 5, "start_time": start},
        {"class_name": "schedule_hourly", "recur_every": 2, "start_time": start},
        {"class_name": "schedule_daily", "recur_every": 1, "start_time": start},
        {"class_name": "schedule_weekly", "recur_every": 1, "include_days": ["MONDAY", "FRIDAY"], **clock},
        {"class_name": "schedule_monthly", "recur_every_month": 1, "recur_on_days": [1, 31], **clock},
    ):  # fmt: skip
        made = make(lake, java(schedule_time=kind))
        assert made["schedule_time"] == kind
        assert made["next_run_time"] >= start


# ── workers ──


@pytest.mark.row(
    "lake-worker", "lake-status", "lake-history", "lake-history-id", "lake-history-updated", "lake-progress"
)
def test_a_worker_pulls_and_reports_and_everybody_sees_it(lake: Server) -> None:
    job_id = make(lake, java(schedule_time=NEVER, last_run_time=100))["job_id"]
    assert job(lake, job_id)["current_sync_status"] == "Initialized"
    assert send(lake, "PUT", f"/lake/schedule/job/{job_id}/now", {}) == {"success": True}
    [queued] = history(lake, job_id)
    taken = pull(lake, job_id)
    seen = [queued["job_status"]]
    moved = [queued["updated_time"]]
    for status in ("Compiling", "Running", "Running"):
        time.sleep(0.01)  # so that a millisecond has passed
        assert report(lake, taken, status, message="at it") == {"success": True}
        [row] = history(lake, job_id)
        assert (row["run_id"], row["end_time"]) == (queued["run_id"], 0)
        seen.append(row["job_status"])
        moved.append(row["updated_time"])
    assert send(lake, "GET", "/lake/schedule/job/progress")[str(job_id)]["job_status"] == "Running"
    assert report(lake, taken, "Finished", yarn_app_id="app_1") == {"success": True}
    assert report(lake, taken, "Running") == {"success": False}
    [row] = history(lake, job_id)
    assert (row["run_id"], row["log_path"]) == (taken["run_id"], "/app-logs/root/logs-tfile/app_1")
    assert [*seen, row["job_status"]] == ["Queued", "Compiling", "Running", "Running", "Finished"]
    assert moved == sorted(set(moved))
    assert row["end_time"] == row["updated_time"] >= moved[-1] - 1
    shown = job(lake, job_id)
    assert (shown["last_sync_status"], shown["last_run_time"]) == ("Finished", row["end_time"])


@pytest.mark.row("lake-history-attempts")
def test_each_attempt_has_a_row_of_its_own(lake: Server) -> None:
    spec = {"source": {"url": "abcd"}, "build_tool": "maven", "build_cmd": "mvn"}
    retry = {"attempts": 2, "backoff": 0}
    [made] = lake.submit({"name": "twice", "kind": "git_java", "spec": spec, "retry": retry})
    run = send(lake, "POST", f"/v1/jobs/{made['id']}/run", status=201)
    first = pull(lake, made["id"])
    report(lake, first, "Error", message="no such class")
    second = pull(lake, made["id"])
    assert (first["run_id"], second["run_id"]) == (run["id"] * 1000 + 1, run["id"] * 1000 + 2)
    report(lake, second, "Finished")
    rows = [(row["run_id"], row["job_status"], row["message"]) for row in history(lake, made["id"])]
    assert rows == [(second["run_id"], "Finished", ""), (first["run_id"], "Error", "no such class")]


@pytest.mark.row("lake-now-kill", "lake-start-stop", "lake-ping")
def test_people_run_kill_start_and_stop(lake: Server) -> None:
    job_id = make(lake, java(schedule_time=NEVER))["job_id"]
    now, kill = f"/lake/schedule/job/{job_id}/now", f"/lake/schedule/job/{job_id}/kill"
    assert send(lake, "PUT", kill) == {"success": False}
    assert send(lake, "PUT", now, {"mode": "Once"}) == {"success": True}
    assert refused(lake, "PUT", now, {})[1] == "job is already queued"
    assert send(lake, "PUT", kill) == {"success": True}
    assert job(lake, job_id)["current_sync_status"] == "Killed"
    send(lake, "PUT", now, {})
    taken = pull(lake, job_id)
    assert refused(lake, "PUT", now, {})[1] == "job is already running"
    assert send(lake, "PUT", kill) == {"success": True}
    assert report(lake, taken, "Running") == {"success": True, "cancel": True}
    report(lake, taken, "Killed")
    send(lake, "PUT", now, {})
    assert send(lake, "POST", "/lake/schedule/start") is False
    assert send(lake, "POST", "/lake/schedule/stop") is True
    assert job(lake, job_id)["current_sync_status"] == "Killed"
    assert send(lake, "GET", "/ping") == {"status": "ok", "data": "pong"}


# ── syncs ──


@pytest.mark.row("lake-sync-jobs", "lake-sync-worker", "lake-sources", "lake-sync-cursor")
def test_syncs_and_their_sources(lake: Server) -> None:
    kept = send(lake, "POST", "/source/create", source())
    assert kept["password"] == "******"
    assert send(lake, "GET", f"/source/{kept['id']}") == kept
    assert send(lake, "POST", "/source/list", {})["total"] >= 1
    made = make(lake, sync(source_id=kept["id"]), "")
    taken = pull(lake, made["job_id"], "")
    assert taken["source"]["password"] == "hunter2"
    report(lake, taken, "Syncing", total_sync_record=3)
    assert sync_job(lake, made["job_id"])["current_sync_status"] == "Syncing"
    report(lake, taken, "Synced", total_sync_record=5, total_execution_time=9, last_synced_value="42")
    [row] = history(lake, made["job_id"], "")
    assert (row["sync_id"], row["sync_status"], row["total_rows_inserted"]) == (taken["sync_id"], "Synced", 5)
    assert sync_job(lake, made["job_id"])["last_synced_value"] == "42"
    assert send(lake, "PUT", f"/job/{made['job_id']}", sync(source_id=kept["id"], display_name="other"))
    tables = {"base_job": sync(source_id=kept["id"], schedule_time=NEVER)["job"], "table_names": ["a", "b"]}
    assert send(lake, "POST", "/job/multi_create", tables) is True
    assert send(lake, "DELETE", f"/source/{kept['id']}") == {"success": True}
    left = send(lake, "POST", "/job/list", {"from": 0, "size": 1000})["data"]
    assert [each["job"] for each in left if each["job"]["source_id"] == kept["id"]] == []


@pytest.mark.row("lake-incremental-column", "lake-database-name")
def test_an_incremental_sync_names_its_column_and_a_database_is_no_schema(lake: Server) -> None:
    reason, message = refused(lake, "POST", "/job/create", sync(incremental_column=""))
    assert (reason, message.startswith("job.incremental_column: ")) == ("invalid_param", True)
    kept = send(lake, "POST", "/source/create", source())
    made = make(lake, sync(source_id=kept["id"], table_name="public.orders", schedule_time=NEVER), "")
    assert (made["database_name"], made["table_name"]) == ("shop", "public.orders")
    read = lake.get(f"/v1/jobs/{made['job_id']}")["spec"]["read"]
    assert read == {"database": "shop", "table": "public.orders"}


@pytest.mark.row("lake-mongo-refused")
def test_mongo_is_refused_with_a_sentence_where_agents_do_the_work(own: Server) -> None:
    body = sync(class_name="mongo_db_job")
    for path, sent in (
        ("/job/create", body),
        ("/job/multi_create", {"base_job": body["job"], "table_names": ["a"]}),
        ("/source/create", {"data_source": {"class_name": "mongo_db_source", "display_name": "m", "host": "h"}}),
    ):
        reason, message = refused(own, "POST", path, sent)
        assert (reason, "do not read from MongoDB" in message) == ("invalid_param", True), message


# ── the start-up rule and the tables ──


@pytest.mark.row(
    "lake-overdue-create", "lake-table-scheduler", "lake-table-status", "lake-tables-quoted", "lake-table-info"
)
def test_what_is_overdue_when_it_is_made_is_enqueued_once_and_the_tables_tell_what_was_sent(lake: Server) -> None:
    now = time.time_ns() // 1_000_000
    sent = {"last_sync_status": "Synced", "schedule_time": HOURLY, "dest_table_name": "overdue"}
    late = make(lake, sync(**sent, last_successful_sync=now - 24 * HOUR), "")["job_id"]
    fresh = make(lake, sync(**sent, last_successful_sync=now - HOUR // 2), "")
    assert abs(fresh["next_run_time"] - (now + HOUR // 2)) < 60_000
    columns = "last_time_sync, sync_internal, last_sync_status"
    found = query(lake, f'SELECT {columns} FROM "JobScheduler" WHERE job_id = {fresh["job_id"]}')
    assert found == [(now - HOUR // 2, 60, "Synced")]
    taken = pull(lake, late, "")
    assert query(lake, f'SELECT current_status FROM "JobStatus" WHERE job_id = {late}') == [("Syncing",)]
    report(lake, taken, "Synced")
    assert query(lake, f"SELECT current_status FROM JobStatus WHERE job_id = {late}") == [("Synced",)]
    assert len(history(lake, late, "")) == 1
    assert len(query(lake, f'SELECT datasource_id, job_id, job_data FROM "JobInfo" WHERE job_id = {late}')) == 1


@pytest.mark.row("lake-sync-internal")
def test_every_kind_of_schedule_that_has_an_interval_shows_it_in_minutes(lake: Server) -> None:
    weekly = {"class_name": "schedule_weekly", "recur_every": 2, "include_days": ["MONDAY"], "at_hour": 1}
    monthly = {"class_name": "schedule_monthly", "recur_every_month": 1, "recur_on_days": [1], "at_hour": 1}
    for kind, minutes in (
        ({"class_name": "schedule_minutely", "recur_every": 5}, 5), (HOURLY, 60),
        ({"class_name": "schedule_daily", "recur_every": 1}, 1440), (weekly, 20_160), (monthly, 43_200), (NEVER, 90),
    ):  # fmt: skip
        job_id = make(lake, sync(schedule_time=kind, sync_interval_in_mn=90), "")["job_id"]
        assert query(lake, f"SELECT sync_internal FROM JobScheduler WHERE job_id = {job_id}") == [(minutes,)]


@pytest.mark.row("lake-overdue-start", "lake-table-history")
def test_what_is_overdue_at_a_start_is_enqueued_once_also_when_it_was_killed(own: Server) -> None:
    now = time.time_ns() // 1_000_000
    late = sync(last_successful_sync=now - 24 * HOUR, sync_interval_in_mn=60, schedule_time=None)
    fresh = sync(last_successful_sync=now, sync_interval_in_mn=60, schedule_time=None, dest_table_name="fresh")
    late_id, fresh_id = make(own, late, "")["job_id"], make(own, fresh, "")["job_id"]

    def has_ended(count: int) -> bool:
        rows = history(own, late_id, "")
        return len(rows) >= count and all(row["sync_status"] == "Error" for row in rows)

    own.wait_until(lambda: has_ended(1), "the sync to fail, for there is no source")
    [(stats,)] = query(own, f'SELECT stats_data FROM "JobHistory" WHERE job_id = {late_id}')
    assert history(own, late_id, "")[0]["message"] in stats
    own.kill()
    own.start()
    own.wait_until(lambda: has_ended(2), "the sync to be tried again at the start")
    marker = own.submit({"name": "later", "steps": [{"run": "true"}]})[0]["id"]
    own.ended(send(own, "POST", f"/v1/jobs/{marker}/run", status=201)["id"])
    assert (len(history(own, late_id, "")), history(own, fresh_id, "")) == (2, [])


# ── errors and organisations ──


@pytest.mark.row("lake-errors", "lake-error-fields")
def test_errors_have_the_contracts_shape_and_name_its_fields(lake: Server) -> None:
    sql = {"class_name": "sql_job", "display_name": "t", "query_info": {"query": "", "outputs": []}}
    for path, body, named in (
        ("/lake/job/create", java(display_name=""), "job.display_name"),
        ("/lake/job/create", java(git_url=""), "job.git_url"),
        ("/lake/job/create", java(build_tool="gradle"), "job.build_tool"),
        ("/lake/job/create", {"job": sql}, "job.query_info.query"),
        ("/lake/job/create", {}, "job"),
        ("/lake/job/list", {"size": 1001}, "size"),
        ("/job/create", sync(dest_table_name="a/b", destinations=["Hadoop"]), "job.dest_table_name"),
        ("/job/create", sync(table_name=""), "job.table_name"),
        ("/job/create", sync(destinations=[]), "job destination can not be empty"),
    ):  # fmt: skip
        reason, message = refused(lake, "POST", path, body)
        assert (reason, named in message) == ("invalid_param", True), message
        assert "spec" not in message
    broken = lake.http.post("/lake/job/create", content=b"{", headers={"content-type": "application/json"})
    assert broken.json()["reason"] == "invalaid_json_format"
    assert refused(lake, "POST", "/job/create", sync(source_id=999))[1] == "not found source with id: 999"


@pytest.mark.row("lake-other-family")
def test_a_job_of_the_other_family_is_named_and_left_alone(lake: Server) -> None:
    one, other = make(lake, java(schedule_time=NEVER))["job_id"], make(lake, sync(schedule_time=NEVER), "")["job_id"]
    assert f"its address is /job/{other}" in refused(lake, "DELETE", f"/lake/job/{other}")[1]
    assert f"its address is /lake/job/{one}" in refused(lake, "DELETE", f"/job/{one}")[1]
    assert refused(lake, "DELETE", "/job/multi_delete", {"ids": [other, one]})[0] == "bad_request"
    assert (job(lake, one)["job_id"], sync_job(lake, other)["job_id"]) == (one, other)
    assert send(lake, "DELETE", f"/lake/job/{one + 10_000}") == {"success": True}


@pytest.mark.row("lake-org-token", "lake-org-body", "lake-credentials")
def test_organisations_come_from_the_token_wherever_it_is_sent(lake: Server) -> None:
    token = lake.cli_json("token", "create", "ann", "--org", "7")["token"]
    headers = {"access-token": token}
    made = send(lake, "POST", "/lake/job/create", java(org_id=1, creator_id="bob", schedule_time=NEVER), **headers)[
        "job"
    ]
    assert (made["org_id"], made["creator_id"]) == (7, "ann")
    places: tuple[dict[str, str], ...] = (
        headers, {"authorization": token}, {"authorization": f"Bearer {token}"}, {"cookie": f"ssid={token}"},
    )  # fmt: skip
    for place in places:
        assert send(lake, "POST", "/lake/job/list", {}, **place)["total"] == 1
    assert send(lake, "POST", f"/lake/job/list?api_key={token}", {})["total"] == 1
    refused(lake, "GET", f"/lake/job/{made['job_id']}")
    send(lake, "POST", "/lake/job/list", {}, 401, **{"access-token": token[:-1] + ("x" if token[-1] != "x" else "y")})
