"""Pages as HTML: user text is text, nothing is inline, links lead somewhere, and what one may not do is not offered."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import AsyncIterator
from html.parser import HTMLParser
from pathlib import Path

import httpx
import pytest
from demo.pages import PAGES, addresses

from horae.contracts import CONTRACTS
from horae.core.model import State
from horae.core.roles import Role
from horae.core.work.specs import parse_job
from horae.service.insight.learning import Learning
from horae.service.jobs.orders import RunRequest
from horae.stores.parts import search
from horae.web import app as web
from horae.web.pages import words
from horae.web.pages.assets import Assets
from horae.web.pages.shell import RAIL, Look, read_look
from tests.facades.world import BOTH, HERE, OWN, World, api_document, from_here

HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)> \U0001f9e8"
MESSAGE = f"{HOSTILE}\u202egnp.exe \u200bzero \x1b[31mred " + "long" * 2500
STATIC = Path(web.__file__).parent / "pages" / "static"
PLACES = addresses(job=1, run=1, flow=2, flow_run=2, follower=3)


class Tags(HTMLParser):
    """The tags of a page, with their attributes, as a browser reads them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def of(self, tag: str, name: str) -> dict[str, str | None]:
        """Return the attributes of the one with this id."""
        return next(attrs for seen, attrs in self.seen if seen == tag and attrs.get("id") == name)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))


@pytest.fixture
async def api(world: World) -> AsyncIterator[httpx.AsyncClient]:
    gate = web.create_app(world.services, CONTRACTS, version="1.2.3", free_pass=OWN)
    async with httpx.AsyncClient(transport=from_here(gate), base_url=HERE) as client:
        yield client


async def furnish(world: World) -> None:
    """Hostile text wherever somebody may write: in jobs, a workflow, what comes after, runs, users, alerts, queues."""
    work = {"steps": [{"name": HOSTILE[:60], "run": HOSTILE}]}
    documents = (
        {"name": HOSTILE, "key": "a-key", "schedule": "30 2 * * *", "timezone": "Europe/Berlin", **work},
        {"name": HOSTILE, "key": "flow", "tasks": {"a": work, "b": {"needs": ["a"], "steps": work["steps"]}}},
        {"name": "x" * 128, "after": ["a-key"], **work},
    )
    job = (await world.jobs.submit([parse_job(each) for each in documents], owner=HOSTILE)).jobs[0]
    await world.join()
    run = await world.take((await world.jobs.orders.place(RunRequest(job.id, {HOSTILE: HOSTILE * 100}))).id)
    await run.write(f"{MESSAGE}\n".encode())
    await run.end(State.FAILED, message=MESSAGE, exit_code=1, result=json.dumps({HOSTILE: HOSTILE * 100}))
    await world.jobs.orders.place(RunRequest(2, {HOSTILE: HOSTILE}))
    http = world.http
    for method, path, body in (
        ("PUT", "/v1/queues/reports", {"concurrency": 4, "description": HOSTILE}),
        ("POST", "/v1/tokens", {"name": HOSTILE, "owner": HOSTILE}),
        ("POST", "/v1/users", {"name": "zoe", "email": f"{HOSTILE}@example.org"}),
        ("POST", "/v1/grants", {"who": HOSTILE, "role": "editor", "tag": HOSTILE}),
        ("PUT", "/v1/secrets/A", {"value": HOSTILE}),
        ("PUT", "/v1/alerts/channels/ops", {"kind": "email", "to": [f"{HOSTILE}@example.org"]}),
        ("PUT", "/v1/alerts/rules/nights", {"when": "failure", "channels": ["ops"], "owner": HOSTILE}),
    ):
        await http.request(method, path, json=body)  # what is refused is not shown


@BOTH
async def test_hostile_text_is_text_on_every_page_and_nothing_is_inline(api: httpx.AsyncClient, world: World):
    await furnish(world)
    for path in PLACES.values():
        page = await api.get(path)
        assert page.status_code == 200, (path, page.text[:300])
        assert "<script>alert" not in page.text, path
        assert "<img src=x" not in page.text, path
        tags = Tags(page.text)
        assert all("src" in attributes for tag, attributes in tags.seen if tag == "script"), path
        assert not [tag for tag, attributes in tags.seen if tag == "style" or "style" in attributes], path
        assert not [name for _, attributes in tags.seen for name in attributes if name.startswith("on")], path


def test_every_page_is_in_the_table_of_pages():
    answers = {
        path: methods["get"]["responses"] for path, methods in api_document()["paths"].items() if "get" in methods
    }
    served = {path for path, found in answers.items() if "text/html" in found.get("200", {}).get("content", ())}
    assert served == {page.route for page in PAGES}


async def test_every_link_of_a_page_leads_somewhere(api: httpx.AsyncClient, world: World):
    await furnish(world)
    for path in (path for name, path in PLACES.items() if name not in ("docs", "explanations")):
        for link in set(re.findall(r'\s(?:href|src|action)="([^"#]+)', (await api.get(path)).text)):
            assert link.startswith("/"), (path, link)
            assert not link.startswith("//"), (path, link)
            if link not in ("/logout", "/login/invite"):  # which are sent to
                answer = await api.get(link.replace("&amp;", "&"))
                assert answer.status_code == 200, (path, link)


async def test_the_rail_shows_the_pages_that_there_are_and_where_one_is(api: httpx.AsyncClient, world: World):
    await furnish(world)
    page = (await api.get("/jobs/1")).text
    assert re.search(r'<a href="/jobs" aria-current="page">', page)
    assert not re.search(r'<a href="/" aria-current', page)
    assert re.findall(r'<a href="(/\w*)"[^>]*><svg', page) == [entry.path for entry in RAIL]


async def test_what_a_viewer_may_not_do_is_neither_offered_nor_done(world: World):
    await furnish(world)
    gate = web.create_app(world.services, CONTRACTS, version="1", loopback_only=False)
    _, text = await world.services.access.create("viewer", "user", "ann", None, role=Role.VIEWER)
    async with httpx.AsyncClient(
        transport=from_here(gate), base_url=HERE, headers={"authorization": f"Bearer {text}"}
    ) as viewer:
        job, jobs, overview = [(await viewer.get(path)).text for path in ("/jobs/1", "/jobs", "/")]
        refused = await viewer.get("/jobs/new")
    for page, offers in (
        (job, ("Run now", "data-act=", "/edit")),
        (jobs, ("New job", "bulk")),
        (overview, ("Run again",)),
    ):
        assert [offer for offer in offers if offer in page] == []
    assert (refused.status_code, refused.json()["code"]) == (403, "E_ROLE")


async def test_failures_that_were_not_recovered_come_first_and_others_do_not(api: httpx.AsyncClient, world: World):
    await world.join()
    names = []
    for name, states in (("still bad", [State.FAILED]), ("recovered", [State.FAILED, State.SUCCEEDED])):
        job = await world.submit(name=name)
        for state in states:
            await (await world.start_run(job.id)).end(state)
        names.append(name)
    page = (await api.get("/")).text
    attention = page[page.index("Needs attention") : page.index('class="figures"')]
    assert "still bad" in attention
    assert "recovered" not in attention


async def test_the_first_job_can_be_made_on_an_empty_overview(api: httpx.AsyncClient, world: World):
    assert 'id="make"' in (await api.get("/")).text
    await world.submit()
    fresh = web.create_app(world.services, CONTRACTS, version="1", free_pass=OWN)  # a look is good for a second
    async with httpx.AsyncClient(transport=from_here(fresh), base_url=HERE) as later:
        assert 'id="make"' not in (await later.get("/")).text


async def test_moments_are_said_in_the_zone_of_the_viewer(api: httpx.AsyncClient, world: World):
    await furnish(world)
    page = await api.get("/jobs/1", headers={"cookie": "horae-look=dark.compact.Asia/Tokyo"})
    assert 'data-theme="dark" data-density="compact" data-zone="Asia/Tokyo"' in page.text
    assert re.search(r"\d\d:\d\d:\d\d JST", page.text)
    assert "Europe/Berlin" in page.text


async def test_sentences_that_say_why_name_moments_in_the_zone_of_the_viewer(api: httpx.AsyncClient, world: World):
    job = await world.submit(name="2026-99-99T00:00:00Z", schedule="0 2 1 1 *")
    look = {"cookie": "horae-look=auto.roomy.Asia/Tokyo"}
    why = (await api.get(f"/jobs/{job.id}", headers=look)).text.partition('id="why"')[2].partition("</section>")[0]
    assert re.search(
        r'<time datetime="2\d{3}-01-01T02:00:00Z" title="in [^"]+">\w{3} 2\d{3}-01-01 11:00:00 JST</time>', why
    )
    assert not re.search(r"[^\"]2\d{3}-01-01T02:00:00Z", why)


def test_text_that_only_looks_like_a_moment_stays_text():
    assert words.dated("<b>2026-99-99T00:00:00Z", "UTC", "2026-11-18T00:00:00Z") == "&lt;b&gt;2026-99-99T00:00:00Z"


def test_commands_that_show_a_run_are_links_to_it():
    assert words.linked("horae logs 7 --attempt 2") == (
        '<a href="/runs/7?attempt=2#log"><code>horae logs 7 --attempt 2</code></a>'
    )
    assert words.linked("horae runs show 8, then horae runs retry 8") == (
        '<a href="/runs/8"><code>horae runs show 8</code></a>, then horae runs retry 8'
    )
    assert words.linked("<b>horae logs x") == "&lt;b&gt;horae logs x"


@BOTH
async def test_who_runs_the_server_sees_jobs_of_all_organisations_and_others_their_own(
    api: httpx.AsyncClient, world: World
):
    flow = {"name": "theirs", "tasks": {"one": {"steps": [{"run": "true"}]}}}
    await world.jobs.submit([parse_job(flow)], org=7)
    await world.jobs.submit([parse_job({**flow, "name": "ours"})])
    gate = web.create_app(world.services, CONTRACTS, version="1", loopback_only=False)
    _, text = await world.services.access.create("viewer", "user", "ann", None, role=Role.VIEWER)
    headers = {"authorization": f"Bearer {text}"}
    async with httpx.AsyncClient(transport=from_here(gate), base_url=HERE, headers=headers) as bound:
        for path in ("/jobs", "/workflows", "/v1/jobs", "/jobs?sort=next", "/jobs?q=s"):
            own, every = (await bound.get(path)).text, (await api.get(path)).text
            assert ("ours" in own, "theirs" in own) == (True, False), path
            assert ("ours" in every, "theirs" in every) == (True, True), path


@pytest.mark.parametrize(
    "text", [None, "", "dark", "<b>.x.UTC", "dark.compact.../../etc/passwd", "a.b.Nowhere/City", "x" * 9999]
)
def test_a_cookie_that_says_nonsense_says_nothing(text: str | None):
    assert read_look(text) == Look()


async def test_files_are_kept_by_their_edition_and_small(api: httpx.AsyncClient):
    assets = Assets(STATIC)
    sheet = await api.get(assets.address("page.css"), headers={"accept-encoding": "gzip"})
    assert sheet.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert sheet.headers["content-encoding"] == "gzip"
    assert (await api.get("/static/000000000000/page.css")).headers["cache-control"] == "no-cache"
    assert assets.packed_size < 200_000
    plain = await api.get(assets.address("shell.js"), headers={"accept-encoding": "identity"})
    assert "content-encoding" not in plain.headers
    assert gzip.decompress(gzip.compress(plain.content)) == (STATIC / "shell.js").read_bytes()
    assert (await api.get("/static/x/y/../../app.py")).status_code == 404


async def test_scripts_name_only_files_that_there_are():
    names = {path.name for path in STATIC.iterdir()}
    for script in STATIC.glob("*.js"):
        used = re.findall(r'(?:from|import\(|new URL\()\s*"\./([^"]+)"', script.read_text())
        assert set(used) <= names, script.name


async def test_the_plan_of_a_change_tells_what_is_wrong_or_which_moments_come(api: httpx.AsyncClient, world: World):
    await furnish(world)
    good = await api.post(
        "/v1/jobs/1/plan", json={"name": "a", "schedule": "0 18 * * FRIL", "steps": [{"run": "true"}]}
    )
    bad = await api.post("/v1/jobs/1/plan", json={"name": "a", "schedule": "99 * * * *", "steps": [{"run": "true"}]})
    assert good.json()["items"][0]["triggers"][0]["description"] == "at 18:00 on the last Friday of the month, UTC"
    assert len(good.json()["items"][0]["triggers"][0]["moments"]) == 5
    assert (bad.status_code, bad.json()["code"]) == (422, "E_CRON_RANGE")
    assert (await world.jobs.get(1)).name == HOSTILE
    assert (await api.get("/v1/audit?kind=job&id=1")).json()["items"] == []  # nobody has done anything


async def test_what_the_edit_page_shows_can_be_saved_unchanged(api: httpx.AsyncClient):
    made = (await api.post("/v1/jobs", json={"name": "a", "schedule": "0 2 * * *", "steps": [{"run": "true"}]})).json()
    page = (await api.get(f"/jobs/{made['jobs'][0]['id']}/edit?as=yaml")).text
    text = re.search(r"<textarea[^>]*>(.*?)</textarea>", page, re.S)
    assert text is not None
    document = text[1].replace("&#39;", "'").replace("&#34;", '"')
    saved = await api.put(
        f"/v1/jobs/{made['jobs'][0]['id']}", content=document, headers={"content-type": "application/yaml"}
    )
    assert (saved.status_code, saved.json().get("version")) == (200, made["jobs"][0]["version"]), saved.text


async def test_a_form_offers_what_it_has_room_for_of_a_job(api: httpx.AsyncClient, world: World):
    every = {"name": "a", "steps": [{"run": "true"}], "triggers": [{"every": "5m"}]}
    several = {
        "name": "b",
        "steps": [{"run": "true"}, {"run": "false"}],
        "triggers": [{"every": "5m"}, {"cron": "@daily"}],
    }
    delayed = {"name": "c", "handler": "jobs/report", "triggers": [{"every": "5m", "mode": "delay"}]}
    offered = []
    for document in (every, several, delayed):
        job = (await world.jobs.submit([parse_job(document)])).jobs[0]
        page = (await api.get(f"/jobs/{job.id}/edit")).text
        form = re.sub(r"<template>.*?</template>", "", page.partition('id="change"')[2], flags=re.S)
        names = re.findall(r'<(?:input|textarea)[^>]* ?name="([^"]+)"', form)
        own = [name for name in names if name in ("name", "handler") or name.startswith("steps")]
        offered.append(
            (own, re.findall(r'name="schedule"[^>]* value="([^"]*)"', form), form.count("is changed as YAML"))
        )
    assert offered == [
        (["name", "steps.0.run"], ["every 5m"], 0),
        (["name", "steps.0.run", "steps.1.run"], ["every 5m", "@daily"], 0),
        (["name", "handler"], [], 1),
    ]
    refused = await api.get("/jobs/1/edit?as=xml")
    assert (refused.status_code, refused.json()["code"]) == (422, "E_ENUM")


@BOTH
async def test_the_page_of_a_job_draws_what_it_comes_after_and_what_comes_after_it(
    api: httpx.AsyncClient, world: World
):
    first = await world.submit(name=HOSTILE, key="first")
    job = await world.submit(name="between", key="between", after=["first"])
    last = await world.submit(name="last", after=[{"job": "between", "on": "failure"}])
    page = (await api.get(f"/jobs/{job.id}")).text
    drawn = page[page.index('id="dependencies"') : page.index("The year")]
    picture, _, table = drawn.partition("<details")
    for part in (picture, table):
        assert re.findall(r'href="(/jobs/\d+)"', part) == [f"/jobs/{first.id}", f"/jobs/{last.id}"]
    assert "<td>before, on success</td>" in table
    assert "<td>after, on failure</td>" in table
    assert re.findall(r'class="on-(\w+)"', drawn) == ["success", "failure"]
    assert "<script>alert" not in drawn
    alone = (await api.get(f"/jobs/{(await world.submit()).id}")).text
    assert 'id="dependencies"' not in alone


async def test_the_trend_of_a_job_shows_what_was_learned_of_it_else_what_its_runs_took(
    api: httpx.AsyncClient, world: World
):
    job = await world.submit()
    await world.join()
    for _ in range(3):
        run = await world.start_run(job.id)
        await run.end(State.SUCCEEDED, finished_at=world.clock.now() + 10_000_000)
    before = (await api.get(f"/jobs/{job.id}")).text
    learning = Learning(world.store)
    for _ in range(2):
        await learning.learn()
        world.clock.advance(3600)
        await (await world.start_run(job.id)).end(State.SUCCEEDED, finished_at=world.clock.now() + 10_000_000)
    await learning.learn()
    after = (await api.get(f"/jobs/{job.id}")).text
    assert "half of them less than 10.0 s" in before
    assert "two of three are expected to take" in after
    assert 'class="band"' not in before
    assert 'class="band"' in after


@BOTH
async def test_jobs_are_filtered_by_tag_kind_and_queue_and_the_page_says_so(api: httpx.AsyncClient, world: World):
    await world.submit(name="tagged job", tags=["etl", "x/y"])
    await world.submit(name="plain job")
    every = (await api.get("/jobs")).text
    assert 'href="/jobs?tag=x%2Fy">#x/y</a>' in every
    assert every.count('<option value="shell">') == 1
    for query, found in (
        ("tag=etl", True),
        ("tag=none", False),
        ("kind=shell&queue=default", True),
        ("kind=http", False),
    ):
        page = (await api.get(f"/jobs?{query}")).text
        assert ("tagged job" in page) is found, query
    page = (await api.get("/jobs?tag=x%2Fy&is=active&state=failing")).text
    assert json.loads(Tags(page).of("section", "jobs")["data-where"] or "") == {
        "tag": "x/y", "paused": False, "state": ["failed", "timed_out"],
    }  # fmt: skip
    assert 'name="tag" value="x/y"' in page


async def test_an_order_that_is_only_of_the_newest_jobs_says_so(
    api: httpx.AsyncClient, world: World, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(search, "SORTED", 2)
    for number in range(4):
        await world.submit(name=f"job {number}")
    assert "among the newest only" not in (await api.get("/jobs?sort=next")).text
    assert "among the newest only" in (await api.get("/jobs?sort=last")).text


async def test_the_page_of_a_job_says_how_it_runs(api: httpx.AsyncClient, world: World):
    await world.submit(name="backup", retry={"attempts": 3}, tags=["nightly"], labels=["gpu"])
    page = (await api.get("/jobs/1")).text
    assert "<dt>Retries</dt><dd>up to 3 attempts" in page
    assert "<dt>Agents with</dt><dd>gpu</dd>" in page
    assert '<a class="tag" href="/jobs?tag=nightly">#nightly</a>' in page


async def test_the_year_and_the_trend_of_a_job_lead_to_its_runs_and_it_can_be_deleted(
    api: httpx.AsyncClient, world: World
):
    job = await world.submit(schedule="0 2 * * *")
    await world.join()
    runs = []
    for number in range(2):
        work = await world.start_run(job.id)
        await work.end(State.SUCCEEDED, finished_at=world.clock.now() + (number + 1) * 1_000_000)
        runs.append(work.run_id)
    page = (await api.get(f"/jobs/{job.id}", headers={"cookie": "horae-look=auto.roomy.Asia/Tokyo"})).text
    [day] = re.findall(r'href="(/runs\?job=[^"]+)" aria-label="[^"]*succeeded"', page)
    assert re.search(r"since=\d{4}-\d\d-\d\dT00%3A00%3A00%2B09%3A00&amp;until=", day)
    assert (await api.get(day.replace("&amp;", "&"))).status_code == 200
    assert all(f'<a href="/runs/{run}" aria-label="#{run} succeeded' in page for run in runs)
    assert f'data-post="/v1/jobs/{job.id}"' in page
    assert f'data-post="/v1/triggers/{job.triggers[0].id}"' in page
    await api.delete(f"/v1/jobs/{job.id}")
    assert "data-post" not in (await api.get(f"/jobs/{job.id}")).text
