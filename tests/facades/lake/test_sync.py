from __future__ import annotations

from typing import Any

import pytest

from horae.contracts.lake import connectors
from horae.core.model import State
from tests.facades.lake.bodies import NEVER, Client, source, sync

MINUTELY = {"class_name": "schedule_minutely", "recur_every": 5}


async def make_source(client: Client, **changes: Any) -> Any:
    return await client.ask("POST", "/source/create", source(**changes))


# ── jobs ──


async def test_a_sync_job_is_made_with_its_source_and_listed(client: Client) -> None:
    made_source = await make_source(client)
    made = await client.ask("POST", "/job/create", sync(source_id=made_source["id"], schedule_time=MINUTELY))
    assert made["source"] == made_source
    sent, job = sync(source_id=made_source["id"], schedule_time=MINUTELY)["job"], made["job"]
    assert {name: job[name] for name in sent} == sent
    assert (job["org_id"], job["job_type"], job["creator_id"]) == (1, "Jdbc", "local")
    assert job["next_run_time"] == client.world.clock.now() // 1000 + 300_000
    listed = await client.ask("POST", "/job/list", {"from": 0, "size": 10})
    assert listed == {"data": [made], "total": 1}


@pytest.mark.parametrize("name", connectors.CONNECTORS)
async def test_every_class_of_sync_can_be_made_and_is_shown_as_sent(client: Client, name: str) -> None:
    connector = connectors.CONNECTORS[name]
    examples = {int: 3, bool: True, list: [{"a": 1}], dict: {"a": 1}}
    own = {}
    for field in (*connector.needed, *(connector.others or ("anything",))):
        types, _ = connectors._EXPECTED.get(field, (str, ""))
        own[field] = examples.get(types if isinstance(types, type) else types[0], "x")
        if field == "primary_key":
            own[field] = ["id"]
    mode = "FullSync" if name in connectors.FULL_ONLY else "IncrementalSync"
    body = {name: value for name, value in sync(sync_mode=mode)["job"].items() if name in connectors.COMMON}
    job = (await client.ask("POST", "/job/create", {"job": {**body, "class_name": name, **own}}))["job"]
    hidden = {"access_token", "refresh_token", "api_key"}
    assert {field: job[field] for field in own} == {k: "******" if k in hidden else v for k, v in own.items()}
    assert job["job_type"] == connector.job_type


async def test_an_older_row_is_scheduled_by_its_interval(client: Client) -> None:
    body = sync(sync_interval_in_mn=15, schedule_time=None)
    job = (await client.ask("POST", "/job/create", body))["job"]
    assert job["schedule_time"] == {"class_name": "schedule_minutely", "recur_every": 15}
    assert job["sync_interval_in_mn"] == 15


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"destinations": []}, "job destination can not be empty"),
        ({"destinations": None}, "job destination can not be empty"),
        ({"destinations": ["Mars"]}, "invalid job destination, possible values are Hadoop, Clickhouse"),
        ({"destinations": [{}]}, "invalid job destination"),
        ({"display_name": ""}, "a job needs a name"),
        ({"class_name": "fax_job"}, "got 'fax_job'"),
        ({"sync_mode": "Sometimes"}, "got 'Sometimes'"),
        ({"database_name": None}, "database_name"),
        ({"max_fetch_size": "many"}, "a whole number expected"),
        ({"max_fetch_size": True}, "a whole number expected"),
        ({"table_name": 7}, "text expected"),
        ({"source_id": 4711}, "not found source with id: 4711"),
        ({"source_id": "1"}, "must be a whole number"),
        ({"dest_table_name": ""}, "a sync needs the table it fills"),
    ],
)
async def test_what_cannot_be_a_sync_job_is_refused_in_words(
    client: Client, changes: dict[str, Any], words: str
) -> None:
    assert words in (await client.refused("POST", "/job/create", sync(**changes)))[1]
    assert await client.world.rows() == (0, 0, 0)


async def test_a_list_of_sync_jobs_must_say_which_part(client: Client) -> None:
    assert (await client.refused("POST", "/job/list", {"from": 0}))[0] == "invalid_param"


async def test_one_job_is_made_for_each_table(client: Client) -> None:
    body = {"base_job": sync()["job"], "table_names": ["a", "b"]}
    assert await client.ask("POST", "/job/multi_create", body) is True
    listed = await client.ask("POST", "/job/list", {"from": 0, "size": 9, "sorts": [{"field": "display_name"}]})
    jobs = [row["job"] for row in listed["data"]]
    assert [(job["display_name"], job["table_name"], job["dest_table_name"]) for job in jobs] == [
        ("orders_a", "a", "a"),
        ("orders_b", "b", "b"),
    ]
    body = {"base_job": sync(class_name="hubspot_job")["job"], "table_names": ["a"]}
    assert await client.refused("POST", "/job/multi_create", body) == (
        "bad_request",
        "not support multi create hubspot_job",
    )


async def test_many_are_made_all_or_none_and_deleted_together(client: Client) -> None:
    good, bad = sync()["job"], sync(destinations=[])["job"]
    await client.refused("POST", "/job/multi_create_jobs", {"jobs": [good, bad]})
    assert await client.world.rows() == (0, 0, 0)
    assert await client.ask("POST", "/job/multi_create_jobs", {"jobs": [good, good]}) is True
    listed = await client.ask("POST", "/job/list", {"from": 0, "size": 9})
    ids = [row["job"]["job_id"] for row in listed["data"]]
    assert await client.ask("DELETE", "/job/multi_delete", {"ids": [*ids, 4711]}) == {"success": True}
    assert (await client.ask("POST", "/job/list", {"from": 0, "size": 9}))["total"] == 0


async def test_a_sync_job_can_be_changed_and_deleted(client: Client) -> None:
    job_id = await client.make(sync(), "")
    await client.ask("PUT", f"/job/{job_id}", sync(job_id=job_id, sync_mode="FullSync"))
    assert (await client.sync_job(job_id))["sync_mode"] == "FullSync"
    assert (await client.refused("PUT", f"/job/{job_id}", sync(job_id=job_id + 1)))[0] == "invalid_param"
    assert await client.ask("DELETE", f"/job/{job_id}") == {"success": True}
    assert (await client.refused("PUT", f"/job/{job_id}", sync()))[1] == f"No job was found for id = {job_id}."


# ── work ──


async def test_a_sync_worker_pulls_with_the_source_and_its_secrets(client: Client) -> None:
    made = await make_source(client)
    job_id = await client.make(sync(source_id=made["id"]), "")
    await client.world.fire()
    [waiting] = await client.ask("GET", "/schedule/job/status")
    assert (waiting["job"]["job_id"], waiting["source"]["password"], waiting["sync_id"] % 1000) == (job_id, "******", 1)
    taken = await client.pull("")
    assert taken["sync_id"] == waiting["sync_id"]
    assert (taken["source"]["password"], taken["source"]["jdbc_url"]) == (
        "hunter2",
        source()["data_source"]["jdbc_url"],
    )
    assert (await client.sync_job(job_id))["current_sync_status"] == "Syncing"
    await client.report(taken, "Syncing", total_sync_record=10, total_execution_time=500)
    [row] = (await client.ask("POST", "/history/list", {"from": 0, "size": 5}))["data"]
    assert (row["sync_id"], row["sync_status"], row["total_rows_inserted"]) == (taken["sync_id"], "Syncing", 10)
    await client.report(taken, "Synced", total_sync_record=20, total_execution_time=900, last_synced_value="42")
    [row] = (await client.ask("POST", "/history/list", {"from": 0, "size": 5}))["data"]
    assert row == {
        "sync_id": taken["sync_id"], "job_id": job_id, "job_name": "orders",
        "last_sync_time": client.world.clock.now() // 1000, "total_synced_time": 900, "sync_status": "Synced",
        "total_rows_inserted": 20, "message": "",
    }  # fmt: skip
    job = await client.sync_job(job_id)
    assert (job["current_sync_status"], job["last_sync_status"]) == ("Synced", "Synced")
    assert (job["last_synced_value"], job["last_successful_sync"]) == ("42", client.world.clock.now() // 1000)
    assert await client.ask("GET", "/schedule/job/status") == []


async def run(client: Client, job_id: int, status: str, **more: Any) -> Any:
    """Run a sync job now, end it so; what its worker was given."""
    await client.ask("PUT", f"/schedule/job/{job_id}/now")
    taken = await client.pull("")
    await client.report(taken, status, **more)
    return taken["job"]


async def test_a_sync_goes_on_where_the_last_success_ended(client: Client) -> None:
    job_id = await client.make(sync(schedule_time=NEVER), "")
    assert (await run(client, job_id, "Synced", last_synced_value="10"))["last_synced_value"] == "0"
    assert (await run(client, job_id, "Error", last_synced_value="15"))["last_synced_value"] == "10"
    assert (await run(client, job_id, "Terminated", last_synced_value="17"))["last_synced_value"] == "10"
    assert (await run(client, job_id, "Synced", last_synced_value="20"))["last_synced_value"] == "10"
    assert (await run(client, job_id, "Synced"))["last_synced_value"] == "20"


async def test_where_to_go_on_can_be_set_and_counts_until_the_next_success(client: Client) -> None:
    job_id = await client.make(sync(schedule_time=NEVER), "")
    await run(client, job_id, "Synced", last_synced_value="10")
    echo = await client.sync_job(job_id)
    await client.ask("PUT", f"/job/{job_id}", {"job": {**echo, "display_name": "renamed"}})
    assert (await client.sync_job(job_id))["last_synced_value"] == "10"
    await client.ask("PUT", f"/job/{job_id}", {"job": {**echo, "last_synced_value": "3"}})
    assert (await client.sync_job(job_id))["last_synced_value"] == "3"
    await client.ask("PUT", f"/job/{job_id}", {"job": {**echo, "last_synced_value": "3", "display_name": "again"}})
    assert (await run(client, job_id, "Error"))["last_synced_value"] == "3"
    assert (await run(client, job_id, "Synced", last_synced_value="10"))["last_synced_value"] == "3"
    assert (await run(client, job_id, "Synced", last_synced_value="11"))["last_synced_value"] == "10"


async def test_several_sync_jobs_can_be_run_at_once(client: Client) -> None:
    ids = [await client.make(sync(schedule_time=NEVER), "") for _ in range(2)]
    await client.ask("PUT", f"/schedule/job/{ids[0]}/now")
    done = await client.ask("PUT", "/schedule/job/multi_sync/now", {"ids": [*ids, 4711]})
    assert done == {str(ids[0]): False, str(ids[1]): True, "4711": False}


async def test_a_sync_can_be_killed(client: Client) -> None:
    job_id = await client.make(sync(), "")
    await client.world.fire()
    taken = await client.pull("")
    assert await client.ask("PUT", f"/schedule/job/{job_id}/kill") == {"success": True}
    assert await client.report(taken, "Syncing") == {"success": True, "cancel": True}
    await client.report(taken, "Terminated")
    assert (await client.sync_job(job_id))["current_sync_status"] == "Terminated"
    assert list(await client.ask("GET", "/schedule/job/progress")) == []


# ── sources ──


async def test_a_source_is_made_shown_changed_listed_and_deleted_with_its_jobs(client: Client) -> None:
    made = await make_source(client)
    assert (made["jdbc_url"], made["password"]) == ("jdbc:mysql://root:******@db:3306/shop", "******")
    assert (made["class_name"], made["org_id"], made["creator_id"]) == ("jdbc_source", 1, "local")
    path = f"/source/{made['id']}"
    assert await client.ask("GET", path) == made
    await client.ask("PUT", path, {"data_source": {**made, "display_name": "renamed"}})
    admin = {**source()["data_source"], "display_name": "renamed", "username": "admin"}
    await client.ask("PUT", path, {"data_source": admin})
    real = await client.ask("GET", f"{path}/organization/1")
    assert (real["display_name"], real["username"], real["password"]) == ("renamed", "admin", "hunter2")
    assert real["jdbc_url"] == source()["data_source"]["jdbc_url"]
    listed = await client.ask("POST", "/source/list", {"keyword": "nam", "sorts": [{"field": "last_modify"}]})
    assert ([row["data_source"]["id"] for row in listed["data"]], listed["total"]) == ([made["id"]], 1)
    assert "hunter2" not in str(listed)
    job_id = await client.make(sync(source_id=made["id"]), "")
    kept = await client.make(sync(), "")
    assert await client.ask("DELETE", path) == {"success": True}
    assert await client.refused("GET", path) == ("bad_request", f"not found source with id: {made['id']}")
    assert (await client.world.jobs.get(job_id)).deleted_at is not None
    assert (await client.world.jobs.get(kept)).deleted_at is None
    assert await client.ask("DELETE", path) == {"success": True}


async def test_sources_of_other_organisations_do_not_exist(client: Client) -> None:
    own = await make_source(client)
    theirs = await client.world.services.sources.add(
        org=2, owner="them", name="x", kind="jdbc_source", config={"password": "hunter2"}
    )
    for path in (f"/source/{theirs.id}", f"/source/{theirs.id}/organization/2", f"/source/{own['id']}/organization/2"):
        assert (await client.refused("GET", path))[0] == "bad_request"
    await client.refused("PUT", f"/source/{theirs.id}", source())
    await client.refused("POST", "/job/create", sync(source_id=theirs.id))
    await client.ask("DELETE", f"/source/{theirs.id}")
    await client.ask("DELETE", "/source/multi_delete", {"ids": [theirs.id, own["id"]]})
    assert await client.world.services.sources.get(2, theirs.id) == theirs
    assert (await client.ask("POST", "/source/list", {}))["total"] == 0


@pytest.mark.parametrize("name", connectors.SOURCES)
async def test_every_class_of_source_can_be_made(client: Client, name: str) -> None:
    connector = connectors.SOURCES[name]
    own = {field: "MySql" if field == "database_type" else "x" for field in connector.needed}
    made = await client.ask("POST", "/source/create", {"data_source": {"class_name": name, "display_name": "s", **own}})
    assert made["class_name"] == name


@pytest.mark.parametrize(
    "changes",
    [{"class_name": "sock"}, {"display_name": None}, {"jdbc_url": None}, {"password": 7}, {"database_type": "Access"}],
)
async def test_what_cannot_be_a_source_is_refused(client: Client, changes: dict[str, Any]) -> None:
    assert (await client.refused("POST", "/source/create", source(**changes)))[0] == "invalid_param"
    assert (await client.ask("POST", "/source/list", {}))["total"] == 0


async def test_a_sync_job_of_another_interface_is_shown(client: Client) -> None:
    native = {
        "name": "n", "kind": "sync", "source": {"type": "service", "name": "own"}, "run_once": True,
        "destinations": [{"type": "files", "database": "d", "table": "t"}],
        "options": {"job_id": 5, "access_token": "hunter2"},
    }  # fmt: skip
    [made] = (await client.ask("POST", "/v1/jobs", native, 201))["jobs"]
    assert made["spec"]["options"]["access_token"] == "******"
    job = await client.sync_job(made["id"])
    assert (job["job_id"], job["class_name"], job["job_type"]) == (made["id"], "own_job", "Others")
    assert (job["dest_database_name"], job["dest_table_name"], job["destinations"]) == ("d", "t", ["Hadoop"])
    await client.world.fire()
    await client.world.work("sync", State.FAILED)
    assert (await client.sync_job(made["id"]))["current_sync_status"] == "Error"


async def test_agents_are_told_in_our_own_words_what_to_sync(client: Client) -> None:
    made = await make_source(client)
    job_id = await client.make(sync(source_id=made["id"], last_synced_value="7"), "")
    spec = (await client.world.jobs.get(job_id)).spec
    assert spec == {
        "source_id": made["id"], "read": {"database": "shop", "table": "orders"}, "mode": "incremental",
        "cursor": "id", "begin": "7",
        "destinations": [{"type": "clickhouse", "database": "lake", "table": "orders"}], "options": spec["options"],
    }  # fmt: skip
    sources = client.world.services.sources
    kept = (await sources.opened(await sources.get(1, made["id"]), "")).config
    assert (kept["type"], kept["url"]) == ("database", source()["data_source"]["jdbc_url"])


@pytest.mark.parametrize(
    ("job", "read"),
    [
        ({"query_statement": "select 1"}, {"database": "shop", "query": "select 1"}),
        ({"primary_key": ["id"]}, {"database": "shop", "table": "orders"}),
        (
            {
                "class_name": "amazon_s3_job", "bucket_name": "b", "folder_path": "in/",
                "file_config": {"class_name": "csv_config", "include_header": False, "delimiter": ";"},
            },
            {"path": "b/in", "format": "csv", "header": False, "delimiter": ";"},
        ),
        (
            {"class_name": "google_sheets_job_v2", "spread_sheet_id": "x", "sheet_id": 0, "include_header": True},
            {"sheet": "x", "range": "A:ZZZ", "header": True},
        ),
        ({"class_name": "google_sheets_job_v2", "spread_sheet_id": "x", "sheet_id": 3}, {}),
        ({"class_name": "hubspot_job"}, {}),
    ],
)  # fmt: skip
async def test_what_is_read_is_said_in_our_words_and_shown_as_sent(client: Client, job: Any, read: Any) -> None:
    made = await make_source(client)
    sent = sync(source_id=made["id"], **job)["job"]
    job_id = await client.make({"job": sent}, "")
    assert (await client.world.jobs.get(job_id)).spec["read"] == read
    shown = await client.sync_job(job_id)
    assert {name: shown[name] for name in job} == job


async def test_what_another_interface_changes_is_shown(client: Client) -> None:
    made = await make_source(client)
    job_id = await client.make(sync(source_id=made["id"]), "")
    spec = (await client.world.jobs.get(job_id)).spec
    changed = {**spec, "read": {"table": "shop.customers"}, "cursor": "updated_at"}
    await client.ask("PUT", f"/v1/jobs/{job_id}", {"name": "n", "kind": "sync", "spec": changed})
    job = await client.sync_job(job_id)
    assert (job["table_name"], job["incremental_column"], job["max_fetch_size"]) == (
        "shop.customers",
        "updated_at",
        1000,
    )
