"""The overview says what is so, also where very many wait; and every number leads to what it counts."""

from __future__ import annotations

import html
import re

from horae.core.model import SECOND, State
from horae.web.pages.words import count
from tests.contract.test_overviews import BACKLOG, put_ended, put_live
from tests.facades.test_signals import wait_for
from tests.facades.world import BOTH, World

HTML = {"accept": "text/html"}
LATER = 600 * SECOND


async def part(world: World, name: str) -> str:
    """Return a part of the overview, as it is drawn now."""
    answer = await world.http.get("/", headers=HTML)
    assert answer.status_code == 200, answer.text
    found = re.search(rf'data-fresh="{name}".*?</section>', answer.text, re.DOTALL)
    assert found, name
    return html.unescape(found[0])


@BOTH
async def test_below_a_backlog_what_runs_and_what_has_ended_is_shown_and_the_line_is_not_empty(world: World) -> None:
    await world.join()
    await world.end_run(State.SUCCEEDED)
    running = (await world.start_run()).run_id
    await put_live(world.store, 1000, 999 + BACKLOG, world.clock.now(), State.QUEUED)
    assert f'href="/runs/{running}"' in await part(world, "running")
    assert 'href="/runs/1"' in await part(world, "recent")
    drawn = await part(world, "line")
    assert {'href="/runs/1"', f'href="/runs/{running}"'} <= set(re.findall(r'href="/runs/\d+"', drawn))
    assert count(BACKLOG) in await part(world, "waiting")


@BOTH
async def test_late_runs_need_attention_however_many_came_after_them_and_link_to_their_list(world: World) -> None:
    await world.join()
    await world.submit()
    await put_live(world.store, 1, 3, world.clock.now() - LATER, State.QUEUED)
    await put_live(world.store, 4, 6, world.clock.now() - 7 * LATER, State.BLOCKED, "limit")
    await put_live(world.store, 1000, 999 + BACKLOG, world.clock.now(), State.QUEUED)
    text = await part(world, "attention")
    for said, listed in (("3 runs are late", [3, 2, 1]), ("3 runs are blocked for long: limit", [6, 5, 4])):
        [where] = re.findall(rf'href="(/runs[^"]*)"[^>]*>{said}', text)
        answer = await world.http.get(where, headers=HTML)
        assert [int(found) for found in re.findall(r'<tr data-run="(\d+)"', answer.text)] == listed


async def test_a_job_that_fails_ever_again_does_not_hide_another(world: World) -> None:
    await world.join()
    noisy, quiet = await world.submit(name="noisy"), await world.submit(name="quiet")
    await put_ended(world.store, quiet.id, 1, 1, world.clock.now() - LATER, 0, State.FAILED)
    await put_ended(world.store, noisy.id, 2, 900, world.clock.now() - SECOND, 1, State.FAILED)
    text = await part(world, "attention")
    assert "noisy" in text
    assert "quiet" in text


async def test_where_places_run_out_is_attention_and_nothing_is_green_then(world: World) -> None:
    await world.join()
    for number in range(14):
        await world.submit(name=f"hourly {number}", schedule="0 * * * *")
    text = await part(world, "attention")
    assert re.search(r'href="/forecast"[^>]*>Slots for shell run out at \d\d:00<.*14 wanted, 8 there', text, re.DOTALL)
    assert "Nothing needs attention" not in text


@BOTH
async def test_what_waits_for_an_approval_is_attention(world: World) -> None:
    await world.join()
    run = await wait_for(world, approval={"by": ["ann", "bob"], "message": "is it good?"})
    text = await part(world, "attention")
    assert re.search(rf'href="/runs/{run.id}"[^>]*>waits waits for an approval', text)
    assert "is it good? · ann, bob may decide" in text


async def test_every_figure_of_the_overview_leads_to_what_it_counts(world: World) -> None:
    await world.join()
    await world.queue_run()
    figures = await part(world, "figures")
    links = re.findall(r'<a href="([^"]*)"><b>', figures)
    assert "<div><b>" not in figures
    assert links[:5] == ["/jobs", "/timeline", "/runs?state=running", "/runs?state=queued", "/runs?state=blocked"]
    oldest = await world.http.get(links[5], headers=HTML)
    assert re.findall(r'<tr data-run="(\d+)"', oldest.text) == ["1"]
    assert 'href="/runs?state=running&node=node-1"' in await part(world, "nodes")
