"""Pages of runs, one run, timeline, queues, cluster, workflows, alerts and settings, and what they ask of the API."""

from __future__ import annotations

import html
import json
import re
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

import pytest

from horae.core.insight.arrivals import Window
from horae.core.model import SECOND, Node, State
from horae.core.time.moments import format_moment, parse_moment
from horae.core.work.specs import parse_job
from horae.service.insight import timelines
from horae.service.jobs import glances
from horae.testing import START, make_job
from horae.web.pages import runs
from horae.web.pages.filters import next_at
from tests.facades.world import BOTH, TWICE, World

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(1)> \U0001f680 " + "é" * 40
PAGES = ("/runs", "/timeline", "/timeline?span=28d", "/timeline?clock=03:00", "/queues", "/cluster",
         "/workflows", "/alerts", "/settings", "/forecast", "/forecast?span=7d&by=owner",
         "/forecast?by=queue")  # fmt: skip
HTML = {"accept": "text/html"}


async def page(world: World, path: str, **headers: str) -> str:
    answer = await world.http.get(path, headers={**HTML, **headers})
    assert answer.status_code == 200, answer.text
    return answer.text


async def make(world: World, name: str = "job", **fields: Any) -> int:
    document = {"name": name, "steps": [{"name": "a", "run": "true"}], **fields}
    return (await world.jobs.submit([parse_job(document)])).jobs[0].id


async def fail(world: World, job_id: int, log: bytes = b"") -> int:
    run = await world.jobs.run_now(job_id)
    work = await world.take(run.id)
    if log:
        await work.write(log)
    await work.end(State.FAILED, exit_code=3, message=HOSTILE)
    return run.id


@pytest.mark.parametrize("path", PAGES)
async def test_a_page_has_no_script_or_style_within_it_and_shows_hostile_text_as_text(world: World, path: str) -> None:
    job_id = await make(world, HOSTILE, schedule={"every": "5m"})
    flow = {"name": f"{HOSTILE}w", "tasks": {"a": {"steps": [{"run": "true"}]}}}
    await world.jobs.submit([parse_job(flow)])
    await fail(world, job_id)
    text = await page(world, path)
    assert "<script>alert" not in text
    assert "<img src=x" not in text
    assert " style=" not in text
    assert not re.search(r"<script(?![^>]*\bsrc=)", text)
    assert not re.search(r"\son[a-z]+=", re.sub(r"&[a-z#0-9]+;[^<]*", "", text))


async def test_the_page_of_a_run_shows_its_time_attempts_data_and_what_may_be_done(world: World) -> None:
    job_id = await make(world, HOSTILE, retry=TWICE)
    run = await world.jobs.run_now(job_id, data={"who": HOSTILE})
    work = await (await world.take(run.id)).fail_once()
    steps = [{"name": HOSTILE, "seconds": 0.5, "exit_code": 3}]
    await work.end(State.FAILED, exit_code=3, result=json.dumps({"steps": steps}))
    text = await page(world, f"/runs/{run.id}")
    assert "<script>alert" not in text
    assert " style=" not in text
    for said in ("attempt 1", "waits to be tried again", "attempt 2", "Run again", "Data", "Result", "log/file"):
        assert said in text
    assert 'data-post="/v1/runs' not in text  # what has ended is not cancelled


async def test_the_page_of_a_run_says_how_long_ago_it_was_and_where_all_of_its_data_is(world: World) -> None:
    job_id = await make(world)
    for length, is_cut in ((100, False), (30_000, True)):
        run = await world.jobs.run_now(job_id, data={"text": "x" * length})
        await (await world.take(run.id)).end(State.SUCCEEDED)
        text = await page(world, f"/runs/{run.id}")
        assert (f'href="/v1/runs/{run.id}">All of it<' in text) is is_cut
        for field in ("due_at", "started_at", "finished_at"):
            assert re.search(rf'data-clock="{field}">\s*<time datetime="2027[^"]*" data-away title="\w', text), field


async def test_runs_are_filtered_by_their_address_and_its_empty_fields_say_nothing(world: World) -> None:
    good, bad = await make(world, "good one"), await make(world, "bad one")
    ended = await fail(world, bad)
    waiting = (await world.jobs.run_now(good)).id

    def links(text: str) -> set[int]:
        return {int(found) for found in re.findall(r'href="/runs/(\d+)"', text)}

    assert links(await page(world, "/runs?state=&name=&owner=&node=&since=&until=")) == {ended, waiting}
    assert links(await page(world, "/runs?state=failed&state=timed_out&since=midnight")) == {ended}
    assert links(await page(world, "/runs?name=GOOD")) == {waiting}
    assert links(await page(world, "/runs?owner=nobody")) == set()
    assert links(await page(world, "/runs?queue=default")) == {waiting}
    assert (await world.http.get("/runs?since=yesterday", headers=HTML)).status_code == 422


async def test_who_may_only_look_is_offered_nothing_and_refused_when_trying(world: World) -> None:
    made = await world.http.post("/v1/tokens", json={"name": "v", "scope": "user", "owner": "ann", "role": "viewer"})
    token = {"authorization": f"Bearer {made.json()['token']}"}
    run_id = (await world.jobs.run_now(await make(world))).id
    await world.http.put("/v1/secrets/db-password", json={"value": "correct horse"})
    for path in (*PAGES, f"/runs/{run_id}"):
        text = await page(world, path, **token)
        assert "data-post" not in text
        assert "data-bulk" not in text
        assert "db-password" not in text
    assert (await world.http.post("/v1/runs/cancel", json={"where": {}}, headers=token)).status_code == 403
    assert (await world.http.get("/v1/settings", headers=token)).status_code == 403


@BOTH
async def test_many_runs_are_counted_first_and_then_cancelled(world: World) -> None:
    job_id = await make(world, overlap="allow")
    ended = await fail(world, await make(world, "other"))
    ids = [(await world.jobs.run_now(job_id)).id for _ in range(3)]

    dry = (await world.http.post("/v1/runs/cancel", json={"where": {"name": "job"}, "dry_run": True})).json()["items"]
    assert [one["run_id"] for one in dry] == ids
    assert {one["run"]["state"] for one in dry} == {"queued"}
    answers = (await world.http.post("/v1/runs/cancel", json={"runs": [*ids, ended, 999]})).json()["items"]
    assert [one.get("run", {}).get("state") for one in answers] == ["cancelled"] * 3 + [None, None]
    assert [one["error"]["code"] for one in answers[3:]] == ["E_TERMINAL", "E_NOT_FOUND"]
    wrong = await world.http.post("/v1/runs/cancel", json={"where": {"state": ["failed"]}})
    assert (wrong.status_code, wrong.json()["code"]) == (422, "E_ENUM")


async def test_what_is_done_with_all_that_were_found_is_sent_every_filter_of_the_page(world: World) -> None:
    job_id = await make(world)
    await world.http.put("/v1/queues/slow", json={})
    asked = {
        "state": "queued", "job": str(job_id), "name": "jo", "owner": "ann", "node": "n1", "queue": "slow",
        "since": "2020-01-01T00:00:00Z", "until": "2090-01-01T00:00:00Z",
    }  # fmt: skip
    assert asked.keys() == {param.name for param in runs.ASKED} - {"cursor", "parent", "task"}
    for tasks in ("parent=1", "task=a"):  # which are not acted on so
        text = await page(world, f"/runs?{tasks}&state=queued")
        assert [word for word in ("data-where", "data-whole", 'id="everything"') if word in text] == []
    text = await page(world, f"/runs?{urlencode(asked)}")
    sent = json.loads(html.unescape(re.findall(r'data-where="([^"]*)"', text)[0]))
    named = {"since": "due_from", "until": "due_until"}
    wanted = {named.get(name, name): value for name, value in asked.items()}
    assert sent == {**wanted, "state": ["queued"], "job": job_id}
    dry = await world.http.post("/v1/runs/cancel", json={"where": sent, "dry_run": True})
    assert (dry.status_code, dry.json()["items"]) == (200, [])


@BOTH
async def test_runs_of_a_queue_are_cancelled_and_those_of_others_are_not(world: World) -> None:
    await world.http.put("/v1/queues/slow", json={})
    there = (await world.jobs.run_now(await make(world, "there", queue="slow"))).id
    elsewhere = (await world.jobs.run_now(await make(world, "elsewhere"))).id
    where = {"where": {"state": ["queued"], "queue": "slow"}}
    answers = (await world.http.post("/v1/runs/cancel", json=where)).json()["items"]
    assert [one["run_id"] for one in answers] == [there]
    assert (await world.jobs.get_run(elsewhere)).state is State.QUEUED

    unknown = await world.http.post("/v1/runs/cancel", json={"where": {"queue": "nowhere"}})
    assert (unknown.status_code, unknown.json()["code"]) == (404, "E_NOT_FOUND")
    ended = await world.http.post("/v1/runs/rerun", json={"where": {"queue": "slow"}, "dry_run": True})
    assert (ended.status_code, ended.json()["code"]) == (422, "E_FIELD_CONFLICT")
    wrong = await world.http.post("/v1/runs/cancel", json={"where": {"queue": 7}})
    assert (wrong.status_code, wrong.json()["code"]) == (422, "E_TYPE")


@BOTH
async def test_the_timeline_has_what_ran_and_what_is_to_run_by_job(world: World) -> None:
    job_id = await make(world, "every five minutes", schedule={"every": "5m"})
    world.clock.advance(300)
    await world.fire()
    found = (await world.http.get("/v1/timeline", params={"name": "FIVE"})).json()
    [row] = found["rows"]
    assert row["job_id"] == job_id
    states = [run["state"] for run in row["runs"]]
    assert states[0] == "queued"
    assert states[1:] == ["expected"] * 35  # in less than three hours
    assert not found["is_cut"]
    past = {"from": "2020-01-01T00:00:00Z", "until": "2020-01-02T00:00:00Z"}
    assert (await world.http.get("/v1/timeline", params=past)).json()["rows"] == []
    wrong = await world.http.get("/v1/timeline", params={**past, "until": "2019-01-01T00:00:00Z"})
    assert (wrong.status_code, wrong.json()["code"]) == (422, "E_RANGE")


@BOTH
async def test_of_very_many_moments_the_first_are_told_and_the_others_are_a_band(world: World) -> None:
    until = format_moment(world.clock.now() + 11 * 3600 * SECOND)
    job_id = await make(world, "each minute", schedule={"every": "1m", "end_at": until})
    [row] = (await world.http.get("/v1/timeline", params={"until": until})).json()["rows"]
    assert len(row["runs"]) == 300
    text = await page(world, "/timeline?span=24h")
    [spots] = re.findall(r'data-spots="([^"]+)"', text)
    *_, band = (spot.split() for spot in spots.split(";"))
    x, width, state, run, many, _ = band
    assert (state, run) == ("expected", "0")
    assert int(many) == 11 * 60 - 300
    assert int(x) == pytest.approx(500 + 300 / 1.44, abs=2)
    assert int(x) + int(width) == pytest.approx(500 + 660 / 1.44, abs=2), "no farther than the last of them"
    assert f'<path class="bar more" d="M{x} 4h{width}v12h-{width}z"/>' in text
    assert f'href="/jobs/{job_id}" data-spots' in text, "there is no run of it to be shown"


async def test_a_trigger_that_cannot_be_read_here_takes_no_timeline_away() -> None:
    """A newer release wrote it, beside one with more moments than are told."""
    job = make_job(trigger_id=1, next_at=START, schedule={"every": "1m"})
    newer = replace(job.triggers[0], id=2, schedule={"tide": "high"})
    job = replace(job, triggers=(*job.triggers, newer))
    window = Window(START, START + 600 * SECOND)
    assert timelines._beyond(job, window) == (START, START + 540 * SECOND, 10)


@BOTH
async def test_of_very_many_runs_a_timeline_shows_some_and_the_newest_of_each_row(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fail(world, await make(world, "before"))
    world.clock.advance(86_400)
    busy, rare = await make(world, "busy"), await make(world, "rare")
    start = world.clock.now()
    runs = [await fail(world, busy) for _ in range(6)]
    await fail(world, rare)
    for name, value in (("READ_WHOLE", 4), ("PIECES", 2), ("PIECE", 1), ("NEWEST", 2)):
        monkeypatch.setattr(glances, name, value)
    asked = {"from": format_moment(start - 600 * SECOND), "until": format_moment(start + 600 * SECOND)}

    found = (await world.http.get("/v1/timeline", params=asked)).json()

    assert found["is_cut"]
    [row] = found["rows"]
    assert (row["name"], row["count"]) == ("busy", 7)  # two of seven were looked at
    assert sorted(run["id"] for run in row["runs"]) == [runs[0], runs[3], runs[4], runs[5]]
    [named] = (await world.http.get("/v1/timeline", params={**asked, "name": "RARE"})).json()["rows"]
    assert (named["job_id"], named["count"]) == (rare, 1)


@BOTH
async def test_the_forecast_shows_when_slots_run_out_and_a_table_with_the_same(world: World) -> None:
    await world.join()
    document = {"schedule": "0 3 * * *", "steps": [{"run": "true"}]}
    await world.jobs.submit([parse_job({"name": f"at three {number}", **document}) for number in range(40)])
    text = await page(world, "/forecast")
    assert re.search(r'class="warning"><b>Slots for shell</b> run out', text)
    assert re.search(r"40 triggers, ", text)
    assert "<code>H 3 * * *</code> spreads them" in text
    assert text.count('<rect class="short"') == 1
    assert len(re.findall("<tr>", text[text.index("As a table") : text.index("Runs that begin")])) > 20
    assert (await world.http.get("/forecast?span=9d", headers=HTML)).status_code == 422


@BOTH
async def test_a_time_long_past_is_found_without_a_look_at_all_since(world: World) -> None:
    first = await fail(world, await make(world, "old"))
    at = world.clock.now()
    world.clock.advance(86_400)
    for number in range(5):
        await fail(world, await make(world, f"new {number}"))
    asked = {"from": format_moment(at - 600 * SECOND), "until": format_moment(at + 600 * SECOND)}
    [row] = (await world.http.get("/v1/timeline", params=asked)).json()["rows"]
    assert [run["id"] for run in row["runs"]] == [first]


@pytest.mark.parametrize(
    ("now", "clock", "expected"),
    [
        ("2027-03-27T20:00:00Z", "03:00", "2027-03-28T01:00:00Z"),  # an hour after 01:59 in Berlin
        ("2027-03-27T20:00:00Z", "21:00", "2027-03-28T19:00:00Z"),  # now is not next
        ("2027-10-30T12:00:00Z", "02:30", "2027-10-31T00:30:00Z"),  # the first of two
    ],
)
def test_a_time_of_the_day_is_the_next_that_the_clock_shows(now: str, clock: str, expected: str) -> None:
    assert format_moment(next_at(clock, parse_moment(now), "Europe/Berlin")) == expected


async def test_a_node_is_evicted_and_let_back_in_but_not_the_one_that_answers(world: World) -> None:
    await world.join()
    now = world.clock.now()
    other = Node("gpu-1", ("agent",), ("shell",), (), 8, "1", "", started_at=now, heartbeat_at=now, beat=0)
    await world.store.register_node(other)
    assert re.findall(r"/v1/nodes/([^/]+)/evict", await page(world, "/cluster")) == ["gpu-1"]
    await world.http.post("/v1/nodes/gpu-1/evict")
    text = await page(world, "/cluster")
    assert "/evict" not in text
    assert re.search(r'data-post="/v1/nodes/gpu-1/uncordon"[^>]*>Let it back in', text)


async def test_a_log_is_indexed_searched_and_downloaded(world: World) -> None:
    log = "── step 1/1 a ──\nfine\nERROR: no\n".encode()
    run_id = await fail(world, await make(world), log)
    index = (await world.http.get(f"/v1/runs/{run_id}/log/index")).json()
    assert (index["first_error"]["line"], index["heads"][0]["line"], index["size"]) == (3, 1, len(log))
    found = (await world.http.get(f"/v1/runs/{run_id}/log/matches", params={"q": "error"})).json()
    assert [(one["line"], one["text"]) for one in found["items"]] == [(3, "ERROR: no")]
    whole = await world.http.get(f"/v1/runs/{run_id}/log/file")
    assert whole.content == log
    assert whole.headers["content-disposition"].startswith("attachment")
    assert (await world.http.get(f"/v1/runs/{run_id}/log/matches")).json()["code"] == "E_REQUIRED"


async def test_the_page_of_a_run_shows_its_tests_and_trace(world: World) -> None:
    job_id = await make(world)
    run = await world.jobs.run_now(job_id)
    failures = [{"name": f"test {HOSTILE}", "message": HOSTILE}]
    told = {"tests": {"passed": 1200, "failed": 1, "skipped": 0, "seconds": 2.5, "failures": failures}}
    await (await world.take(run.id)).end(State.FAILED, exit_code=1, result=json.dumps(told))
    text = await page(world, f"/runs/{run.id}")
    shown = text.partition('id="tests"')[2].partition("</section>")[0]
    assert re.findall(r"<b[^>]*>([^<]+)</b><span>(\w+)</span>", shown) == [
        ("1 200", "passed"), ("1", "failed"), ("0", "skipped"),
    ]  # fmt: skip
    assert "test &lt;script&gt;" in shown
    assert f"<dt>Trace</dt><dd><code>686f726165000000{run.id:016x}</code></dd>" in text


@pytest.mark.parametrize(
    "result", [None, [1], {"tests": 3}, {"tests": {"passed": "many"}}, {"tests": {"failures": [1]}}]
)
async def test_a_result_may_say_anything_of_tests(world: World, result: Any) -> None:
    run = await world.jobs.run_now(await make(world))
    await (await world.take(run.id)).end(State.SUCCEEDED, result=json.dumps(result))
    assert await page(world, f"/runs/{run.id}")


async def test_the_timeline_says_when_triggers_clash_and_what_runs_out_and_leads_there(world: World) -> None:
    first = await make(world, name="at noon 0", schedule="0 12 * * *")
    for number in range(1, 40):
        await make(world, name=f"at noon {number}", schedule="0 12 * * *")
    text = await page(world, "/timeline?span=3d")
    clashes = text.partition('id="clashes"')[2].partition("</section>")[0]
    assert "40 triggers" in clashes
    assert "40 with 0 12 * * * (UTC)" in clashes
    assert re.search(r"<time datetime=\"[^\"]+T12:00:00Z\"", clashes)
    assert re.search(r'href="/jobs/\d+"', clashes)
    assert re.search(r'<line class="clash" x1="\d+"', text)
    assert first


@BOTH
async def test_segments_show_who_owns_them_and_how_much_there_is_to_schedule(world: World) -> None:
    lease = await world.store.take_lease("leader", "n", None)
    assert lease is not None
    assert await world.store.assign_segments({7: "n0", 8: "n1", 9: "n1"}, lease)
    for segment, schedule in ((7, "*/5 * * * *"), (7, "*/7 * * * *"), (8, "0 0 1 1 *")):
        await make(world, f"of {segment}", schedule=schedule, segment=segment)
    listed = (await world.http.get("/v1/segments")).json()["items"]
    assert [(it["segment"], it["owner"], it["triggers"], it["due_within_hour"]) for it in listed] == [
        (7, "n0", 2, 2), (8, "n1", 1, 0), (9, "n1", 0, 0),
    ]  # fmt: skip
    due, triggers = await page(world, "/cluster"), await page(world, "/cluster?load=triggers")
    full = re.compile(
        r'data-segment="(\d+)"[^>]*><title>[^<]*</title><rect class="rim"[^>]*/><rect class="full"[^>]*height="(\d+)"'
    )
    assert full.findall(due) == [("7", "18")]
    assert full.findall(triggers) == [("7", "18"), ("8", "9")]
    assert "segment 7: n0, term 1; 2 triggers, 2 due within the hour" in due
    assert (await world.http.get("/cluster?load=x", headers=HTML)).status_code == 422


@BOTH
async def test_the_list_of_jobs_shows_only_those_that_are_named(world: World) -> None:
    ids = [await make(world, f"job {number}", tags=["t"]) for number in range(4)]
    await world.http.delete(f"/v1/jobs/{ids[1]}")
    text = await page(world, f"/jobs?only={ids[0]},{ids[1]},{ids[3]},99999&q=nothing&tag=t")
    assert re.findall(r'data-job="(\d+)"', text) == [str(ids[0]), str(ids[3])]
    assert "only=" not in re.findall(r'class="tag" href="([^"]+)"', text)[0]
    assert (await world.http.get("/jobs?only=1,x", headers=HTML)).status_code == 422
