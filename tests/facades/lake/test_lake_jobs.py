from __future__ import annotations

from typing import Any

import pytest

from horae.core.model import State
from horae.core.work import specs
from tests.facades.lake.bodies import NEVER, ONCE, Client, java, sync
from tests.facades.world import World

SECRET = "hunter2"


# ── dialects ──


async def test_the_newer_dialect_is_read_and_answered_in_the_older(client: Client) -> None:
    made = await client.ask("POST", "/lake/job/create", {"job": {
        "class_name": "java_job", "org_id": -1, "creator_id": "x", "name": "n", "last_run_time": 7,
        "last_run_status": "Finished", "current_job_status": "Error", "build_tool": "Sbt", "build_cmd": "sbt package",
        "git_clone_info": {"class_name": "http_clone_info", "url": "https://g.example/a", "username": ""},
        "main_class": "a.Main", "args": "", "yarn_app_id": "",
    }})  # fmt: skip
    job = made["job"]
    assert (job["display_name"], job["last_sync_status"], job["current_sync_status"]) == ("n", "Finished", "Error")
    assert (job["git_url"], job["build_tool"], job["main_class"]) == ("https://g.example/a", "sbt", "a.Main")
    assert not {"git_clone_info", "args", "yarn_app_id", "name"} & job.keys()
    assert (job["schedule_time"], job["next_run_time"]) == (NEVER, 9223372036854775807)


async def test_sql_is_read_in_both_dialects(client: Client) -> None:
    newer = {
        "class_name": "sql_job", "name": "q", "query": "select 1\nfrom a", "outputs": [
            {"class_name": "hadoop_result_output", "result_path": "/x", "write_mode": "Replace"},
            {"class_name": "clickhouse_result_output", "database_name": "d", "table_name": "t", "write_mode": "Append"},
        ],
    }  # fmt: skip
    made = (await client.ask("POST", "/lake/job/create", {"job": newer}))["job"]
    files = {"class_name": "hadoop_config", "result_path": "/x", "write_mode": "replace"}
    table = {"class_name": "clickhouse_config", "database": "d", "table_name": "t", "write_mode": "append"}
    outputs = [{"type": "text_file", "config": files}, {"type": "datainsider", "config": table}]
    assert made["query_info"] == {"query": "select 1\nfrom a", "outputs": outputs}
    assert made["job_type"] == "Sql"
    again = (await client.ask("POST", "/lake/job/create", {"job": made}))["job"]
    assert again["query_info"] == made["query_info"]


async def test_a_python_job_can_be_made_and_read(client: Client) -> None:
    own = {"main_file": "src/main.py", "requirements": "requirements.txt", "args": "--day 1"}
    body = {"class_name": "python_job", "display_name": "p", "git_url": "git@example:a.git", **own}
    job = await client.job(await client.make({"job": body}))
    assert {name: job[name] for name in own} == own
    assert (job["class_name"], job["job_type"], job["git_url"]) == ("python_job", "Python", "git@example:a.git")


# ── what is refused ──


@pytest.mark.parametrize(
    ("changes", "reason", "words"),
    [
        (
            {"class_name": "unheard_of"},
            "invalid_param",
            "one of java_job, python_job, sql_job expected, got 'unheard_of'",
        ),
        ({"class_name": None}, "invalid_param", "got none"),
        ({"display_name": ""}, "invalid_param", "a job needs a name"),
        ({"build_tool": "make"}, "invalid_param", "one of maven, sbt, got 'make'"),
        ({"build_cmd": 7}, "invalid_param", "must be text, got number"),
        ({"git_url": "ext::sh -c id"}, "invalid_param", "helper program"),
        ({"git_url": "--upload-pack=id"}, "invalid_param", "not an option"),
        ({"current_sync_status": "Resting"}, "invalid_param", "got 'Resting'"),
        ({"last_run_time": "soon"}, "invalid_param", "must be a whole number"),
        ({"schedule_time": {"class_name": "schedule_yearly"}}, "invalid_param", "got 'schedule_yearly'"),
        ({"schedule_time": {"class_name": "schedule_daily"}}, "invalid_param", "recur_every"),
        ({"schedule_time": {"class_name": "schedule_weekly", "recur_every": 1}}, "invalid_param", "include_days"),
        (
            {"schedule_time": {"class_name": "schedule_monthly", "recur_every_month": 1, "recur_on_days": []}},
            "invalid_param",
            "recur_on_days",
        ),
        ({"schedule_time": {"class_name": "schedule_minutely", "recur_every": 0}}, "invalid_param", "recur_every"),
        ({"schedule_time": {"class_name": "schedule_once", "start_time": -1}}, "invalid_param", "start_time"),
    ],
)
async def test_what_cannot_be_a_job_is_refused_in_words(
    client: Client, changes: dict[str, Any], reason: str, words: str
) -> None:
    before = await client.world.rows()
    got = await client.refused("POST", "/lake/job/create", java(**changes))
    assert got[0] == reason
    assert words in got[1]
    assert await client.world.rows() == before


async def test_a_body_that_is_no_json_is_refused_as_such(world: World) -> None:
    answer = await world.http.post("/lake/job/create", content=b"{job:")
    assert (answer.status_code, answer.json()["reason"]) == (400, "invalaid_json_format")


async def test_another_method_is_405_in_the_shape_of_the_contract(world: World) -> None:
    answer = await world.http.patch("/lake/job/1")
    assert (answer.status_code, answer.json()["reason"]) == (405, "not_supported")
    assert answer.headers["allow"] == "DELETE, GET, HEAD, PUT"


# ── changing ──


async def test_a_change_is_refused_when_the_body_names_another_job(client: Client) -> None:
    job_id = await client.make(java())
    assert await client.refused("PUT", f"/lake/job/{job_id}", java(job_id=job_id + 1)) == (
        "invalid_param",
        f"job_id: {job_id} expected, as in the address, got {job_id + 1}",
    )
    for named in (0, job_id):
        await client.ask("PUT", f"/lake/job/{job_id}", java(job_id=named, display_name="renamed"))
    assert (await client.job(job_id))["display_name"] == "renamed"


async def test_a_job_can_become_one_of_another_class(client: Client) -> None:
    job_id = await client.make(java())
    body = {"class_name": "sql_job", "display_name": "q", "query_info": {"query": "select 1", "outputs": []}}
    await client.ask("PUT", f"/lake/job/{job_id}", {"job": body})
    assert (await client.job(job_id))["query_info"] == {"query": "select 1", "outputs": []}


async def test_an_unchanged_schedule_goes_on_and_a_changed_one_begins_anew(client: Client) -> None:
    hourly = {"class_name": "schedule_hourly", "recur_every": 1}
    job_id = await client.make(java(schedule_time=hourly))
    first = (await client.job(job_id))["next_run_time"]
    client.world.clock.advance(600)
    await client.ask("PUT", f"/lake/job/{job_id}", java(schedule_time=hourly, display_name="b"))
    assert (await client.job(job_id))["next_run_time"] == first
    await client.ask("PUT", f"/lake/job/{job_id}", java(schedule_time={**hourly, "recur_every": 2}))
    assert (await client.job(job_id))["next_run_time"] == client.world.clock.now() // 1000 + 2 * 3_600_000


async def test_a_change_keeps_what_this_contract_has_no_words_for(client: Client) -> None:
    native = {
        "name": "n", "key": "k", "kind": "spark_sql", "query": "select 1", "schedule": "0 2 * * *", "retry": 3,
        "annotations": {"other": {"a": 1}},
    }  # fmt: skip
    [made] = (await client.ask("POST", "/v1/jobs", native, 201))["jobs"]
    seen = await client.job(made["id"])
    assert seen["schedule_time"] == {"class_name": "none_schedule", "description": "at 02:00 every day, UTC"}
    await client.ask("PUT", f"/lake/job/{made['id']}", {"job": {**seen, "display_name": "renamed"}})
    kept = await client.ask("GET", f"/v1/jobs/{made['id']}")
    assert (kept["name"], kept["key"], kept["policy"]["retry"]["attempts"]) == ("renamed", "k", 3)
    assert kept["annotations"]["other"] == {"a": 1}
    assert [(t["id"], t["schedule"], t["next_at"]) for t in kept["triggers"]] == [
        (t["id"], t["schedule"], t["next_at"]) for t in made["triggers"]
    ]


# ── secrets ──

HTTP = {"class_name": "http_clone_info", "url": "https://g.example/a", "username": "ann", "password": SECRET}
SSH = {"class_name": "ssh_clone_info", "url": "git@g.example:a", "private_key": f"-----BEGIN\n{SECRET}\n-----END"}


@pytest.mark.parametrize("info", [HTTP, SSH])
async def test_secrets_are_hidden_from_people_kept_by_changes_and_given_to_workers(
    client: Client, info: dict[str, str]
) -> None:
    job_id = await client.make(java(git_url=None, git_clone_info=info))
    shown = await client.job(job_id)
    hidden = "password" if "password" in info else "private_key"
    assert shown["git_clone_info"] == {**info, hidden: "******"}
    assert SECRET not in (await client.send("GET", f"/v1/jobs/{job_id}")).text
    assert SECRET not in (await client.send("POST", "/lake/job/list", {})).text
    await client.ask("PUT", f"/lake/job/{job_id}", {"job": {**shown, "display_name": "b"}})
    await client.world.fire()
    taken = await client.pull()
    assert (taken["job"]["display_name"], taken["job"]["git_clone_info"]) == ("b", info)


async def test_a_copy_of_a_job_needs_its_secrets_anew(client: Client) -> None:
    shown = await client.job(await client.make(java(git_url=None, git_clone_info=HTTP)))
    reason, message = await client.refused("POST", "/lake/job/create", {"job": shown})
    assert (reason, "source.password" in message) == ("invalid_param", True)


async def test_a_secret_within_an_address_is_hidden_too(client: Client) -> None:
    job_id = await client.make(java(git_url=f"https://ann:{SECRET}@g.example/a.git"))
    assert (await client.job(job_id))["git_url"] == "https://ann:******@g.example/a.git"


# ── deleting, listing ──


async def test_deleting_what_is_not_there_is_a_success(client: Client) -> None:
    job_id = await client.make(java())
    for path in (f"/lake/job/{job_id}", f"/lake/job/{job_id}", "/lake/job/4711"):
        assert await client.ask("DELETE", path) == {"success": True}
    assert (await client.refused("DELETE", "/lake/job/x"))[0] == "bad_request"


async def test_the_other_half_of_the_contract_has_jobs_of_its_own(client: Client) -> None:
    lake, other = await client.make(java()), await client.make(sync(), "")
    for method, path, address in (
        ("GET", f"/lake/job/{other}", f"a sync job: its address is /job/{other}"),
        ("DELETE", f"/lake/job/{other}", f"a sync job: its address is /job/{other}"),
        ("DELETE", f"/job/{lake}", f"a lake job: its address is /lake/job/{lake}"),
    ):
        reason, message = await client.refused(method, path)
        assert (reason, address in message) == ("bad_request", True), message
    assert (await client.refused("DELETE", "/job/multi_delete", {"ids": [other, lake]}))[0] == "bad_request"
    assert await client.job(lake)
    assert await client.sync_job(other)
    assert (await client.ask("POST", "/lake/job/list", {}))["total"] == 1


async def test_a_list_has_pages_sorts_and_keywords(client: Client) -> None:
    for name in ("pear", "apple", "100%_sure"):
        await client.make(java(display_name=name))
    listed = await client.ask(
        "POST", "/lake/job/list", {"from": 1, "size": 1, "sorts": [{"field": "display_name", "order": "ASC"}]}
    )
    assert ([row["job"]["display_name"] for row in listed["data"]], listed["total"]) == (["apple"], 3)
    found = await client.ask("POST", "/lake/job/list", {"keyword": "%_"})
    assert ([row["job"]["display_name"] for row in found["data"]], found["total"]) == (["100%_sure"], 1)
    newest = await client.ask("POST", "/lake/job/list", {"sorts": [{"field": "job_id", "order": "DESC"}], "size": 1})
    assert newest["data"][0]["job"]["display_name"] == "100%_sure"


@pytest.mark.parametrize(
    "body",
    [
        {"size": 1001},
        {"from": -1},
        {"sorts": [{"field": "id; DROP TABLE jobs"}]},
        {"sorts": [{"field": "job_id", "order": "SIDEWAYS"}]},
        {"sorts": [{}]},
        {"sorts": "job_id"},
        {"keyword": 7},
        [],
    ],
)
@pytest.mark.parametrize("path", ["/lake/job/list", "/lake/history/list"])
async def test_a_page_that_cannot_be_is_refused(client: Client, path: str, body: Any) -> None:
    assert (await client.refused("POST", path, body))[0] == "invalid_param"


async def test_a_list_can_be_narrowed_to_statuses(client: Client) -> None:
    waiting = await client.make(java(display_name="waiting"))
    await client.make(java(display_name="resting", schedule_time=NEVER))
    await client.world.fire()
    listed = await client.ask("POST", "/lake/job/list", {"current_statuses": ["Queued"]})
    assert ([row["job"]["job_id"] for row in listed["data"]], listed["total"]) == ([waiting], 1)
    assert (await client.refused("POST", "/lake/job/list", {"current_statuses": ["Odd"]}))[0] == "invalid_param"


async def test_jobs_of_other_organisations_do_not_exist(client: Client) -> None:
    draft = specs.parse_job({"name": "theirs", "kind": "spark_sql", "query": "select 1", "run_once": True})
    done = await client.world.jobs.submit([draft], owner="them", org=2)
    await client.world.fire()
    theirs = done.jobs[0].id
    for method, path in (
        ("GET", f"/lake/job/{theirs}"),
        ("PUT", f"/lake/schedule/job/{theirs}/now"),
        ("PUT", f"/lake/schedule/job/{theirs}/kill"),
    ):
        assert (await client.refused(method, path))[1] == f"No job was found for id = {theirs}."
    await client.refused("PUT", f"/lake/job/{theirs}", java())
    await client.ask("DELETE", f"/lake/job/{theirs}")
    assert (await client.world.jobs.get(theirs)).deleted_at is None
    assert (await client.ask("POST", "/lake/job/list", {}))["total"] == 0
    assert (await client.ask("POST", "/lake/history/list", {}))["total"] == 0
    await client.ask("POST", "/lake/schedule/stop")
    assert (await client.world.jobs.standing([theirs]))[theirs].latest.state is State.QUEUED  # type: ignore[union-attr]


async def test_a_job_of_another_interface_is_shown_and_run(client: Client) -> None:
    odd = {"name": "s", "steps": [{"run": "true"}], "annotations": {"lake": {"last_status": [], "schedule_time": 3}}}
    [made] = (await client.ask("POST", "/v1/jobs", odd, 201))["jobs"]
    job = await client.job(made["id"])
    assert (job["class_name"], job["job_type"], job["kind"]) == ("unsupported_job", "Others", "shell")
    assert (job["last_sync_status"], job["current_sync_status"], job["last_run_time"]) == ("Initialized",) * 2 + (0,)
    assert await client.ask("PUT", f"/lake/schedule/job/{made['id']}/now") == {"success": True}
    await client.world.work("shell")
    assert (await client.job(made["id"]))["current_sync_status"] == "Finished"
    assert (await client.refused("PUT", f"/lake/job/{made['id']}", java()))[1] == "job type not supported"


async def test_a_request_that_is_repeated_with_its_key_acts_once(world: World) -> None:
    key = {"Idempotency-Key": "a1"}
    made = [await world.http.post("/lake/job/create", json=java(schedule_time=ONCE), headers=key) for _ in range(2)]
    assert made[0].json()["job"]["job_id"] == made[1].json()["job"]["job_id"]
    assert (await world.rows())[0] == 1


# ── who asks ──


async def test_ping_answers(client: Client) -> None:
    assert await client.ask("GET", "/ping") == {"status": "ok", "data": "pong"}


@pytest.mark.parametrize("place", ["access-token", "authorization", "bearer", "cookie", "api_key"])
async def test_a_token_is_found_wherever_the_clients_of_the_contract_put_it(world: World, place: str) -> None:
    _, token = await world.services.access.create("ann", "user", "ann@example.com", None)
    headers = {
        "access-token": {"access-token": token},
        "authorization": {"authorization": token},
        "bearer": {"authorization": f"Bearer {token}"},
        "cookie": {"cookie": f"a=b; ssid={token}"},
        "api_key": {},
    }[place]
    params = {"api_key": token} if place == "api_key" else {}
    made = await world.http.post("/lake/job/create", json=java(), headers=headers, params=params)
    assert made.json()["job"]["creator_id"] == "ann@example.com"


async def test_a_wrong_token_is_401_and_what_is_none_of_ours_is_ignored_on_loopback(world: World) -> None:
    wrong = await world.http.post("/lake/job/list", json={}, headers={"access-token": "horae_u_1_" + "x" * 43})
    assert (wrong.status_code, wrong.json()["reason"]) == (401, "not_authenticated")
    foreign = await world.http.post("/lake/job/list", json={}, headers={"access-token": "job$cheduler@datainsider.co"})
    assert foreign.status_code == 200
