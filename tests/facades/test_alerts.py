"""Alerts through the API: what failures, absences and looks become, on both stores."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import httpx
import pytest

from horae.core.alerts.messages import Spoken, compose
from horae.core.alerts.states import Alert, AlertState, after_telling, is_to_remind, key_of
from horae.core.events import Cursor
from horae.core.insight.baselines import Baseline, Ended, learn
from horae.core.insight.learning import first_mark
from horae.core.model import SECOND, Node, NodeState, State
from horae.service.alerts.disks import AlertDisks
from horae.service.alerts.telling import AlertTelling
from horae.service.alerts.watching import LOOK, AlertWatching

from .world import BOTH, World

HOOK = {"kind": "webhook", "url": "https://ops.example.org/hook"}
AT_ONCE = {"wait": 0, "every": 0}


def problem(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["code"]


class Watch:
    """The leader of a world, moved by hand."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.watching = AlertWatching(world.store, world.queue, world.clock, is_leader=lambda: True)
        self.telling = AlertTelling(
            world.store, world.clock, world.secrets, world.teller, "here", is_needed=lambda: True
        )

    async def go(self) -> list[Any]:
        """Go once round and deliver; return the messages that came of it."""
        before = len(self.world.teller.sent)
        self.watching._looked = float("-inf")
        await self.watching._refresh()
        await self.watching.go_round()
        while await self.telling.deliver():
            pass
        return [message for _, message, _ in self.world.teller.sent[before:]]

    async def after(self, seconds: float) -> list[Any]:
        self.world.clock.advance(seconds)
        return await self.go()


async def make(world: World, name: str = "rule", **rule: Any) -> None:
    answer = await world.http.put("/v1/alerts/channels/ops", json=HOOK)
    assert answer.status_code in (200, 201), answer.text
    answer = await world.http.put(f"/v1/alerts/rules/{name}", json={"channels": ["ops"], **rule})
    assert answer.status_code in (200, 201), answer.text
    world.clock.advance(1)


async def ends(world: World, job_id: int, state: State, **fields: Any) -> int:
    work = await world.start_run(job_id)
    await work.end(state, **fields)
    return work.run_id


async def opened(world: World) -> list[Any]:
    return list((await world.http.get("/v1/alerts")).json()["items"])


@BOTH
async def test_a_failure_is_told_once_and_its_recovery_once(world: World) -> None:
    await make(world, when="failure")
    watch, job = Watch(world), await world.submit(name="nightly")
    run = await ends(world, job.id, State.FAILED, exit_code=3, message="no such table")
    assert await watch.go() == []  # more of it may come
    [told] = await watch.after(11)
    assert told["title"] == f"rule: job nightly ({job.id}) failed"
    assert "no such table" in told["text"]
    assert (told["opened"], told["closed"], told["count"]) == (1, 0, 1)
    assert told["alerts"][0]["run"] == run
    assert [(it["name"], it["count"]) for it in await opened(world)] == [(f"job nightly ({job.id})", 1)]
    await ends(world, job.id, State.FAILED)
    assert await watch.after(3600) == []
    await ends(world, job.id, State.SUCCEEDED)
    await watch.go()
    [over] = await watch.after(11)
    assert over["title"] == f"rule: job nightly ({job.id}) succeeds again"
    assert (over["opened"], over["closed"]) == (0, 1)
    assert await opened(world) == []
    assert await watch.after(10 * 3600) == []


@BOTH
async def test_many_failures_are_one_message_with_a_count(world: World) -> None:
    await make(world, when="failure")
    watch = Watch(world)
    jobs = [await world.submit(name=f"j{number}", overlap="allow") for number in range(5)]
    for _ in range(6):
        for job in jobs:
            await world.queue_run(job.id)
        await world.work("shell", State.FAILED)
        assert await watch.after(9) == []
    [told] = await watch.after(11)
    assert told["title"] == "rule: 5 jobs failed, 30 times in all"
    assert (told["opened"], told["count"], len(told["alerts"])) == (5, 30, 5)


@BOTH
async def test_so_many_in_a_row_are_told_and_fewer_are_not(world: World) -> None:
    await make(world, when="failure", count=3, **AT_ONCE)
    watch, job = Watch(world), await world.submit()
    for state in (State.FAILED, State.FAILED, State.SUCCEEDED, State.FAILED, State.FAILED):
        await ends(world, job.id, state)
        assert await watch.after(1) == []
    await ends(world, job.id, State.TIMED_OUT)
    [told] = await watch.after(1)
    assert told["title"].endswith("failed 3 times")
    await ends(world, job.id, State.SUCCEEDED)
    assert len(await watch.after(1)) == 1


@BOTH
async def test_a_rule_is_of_one_job_one_owner_or_one_queue(world: World) -> None:
    await world.http.put("/v1/queues/reports", json={})
    job = await world.submit(name="one", key="one", queue="reports")
    other = await world.submit(name="other")
    for name, scope in (
        ("a", {"job": "one"}),
        ("b", {"job": other.id}),
        ("c", {"queue": "reports"}),
        ("d", {"owner": "x"}),
    ):
        await make(world, name, when="failure", **scope, **AT_ONCE)
    watch = Watch(world)
    await ends(world, job.id, State.FAILED)
    assert sorted(told["rule"] for told in await watch.after(1)) == ["a", "c"]
    await ends(world, other.id, State.FAILED)
    assert [told["rule"] for told in await watch.after(1)] == ["b"]


@BOTH
async def test_recovery_alone_is_told_where_a_rule_says_so(world: World) -> None:
    await make(world, when="failure", tell="recovery", **AT_ONCE)
    watch, job = Watch(world), await world.submit()
    await ends(world, job.id, State.FAILED)
    assert await watch.after(1) == []
    assert len(await opened(world)) == 1
    await ends(world, job.id, State.SUCCEEDED)
    [told] = await watch.after(1)
    assert "succeeds again" in told["title"]


@BOTH
async def test_a_missed_moment_is_told(world: World) -> None:
    await make(world, when="missed", **AT_ONCE)
    watch = Watch(world)
    job = await world.submit(triggers=[{"every": "1h"}], start_deadline="30s", misfire="skip")
    await world.fire()
    world.clock.advance(3601)
    await world.fire()
    world.clock.advance(60)
    await world.store.sweep()
    told = await watch.after(1)
    assert [each["when"] for each in told] == ["missed"]
    assert told[0]["alerts"][0]["subject"] == f"job:{job.id}"


@BOTH
async def test_a_run_that_begins_or_waits_too_long_is_told_once(world: World) -> None:
    await make(world, when="late", after="5m", **AT_ONCE)
    watch, job = Watch(world), await world.submit(overlap="allow")
    run = await world.queue_run(job.id)
    assert await watch.after(200) == []
    [told] = await watch.after(200)
    assert "it waits since" in told["text"]
    assert told["alerts"][0]["run"] == run.id
    assert await watch.after(200) == []
    await (await world.take(run.id)).end(State.SUCCEEDED)
    assert await watch.after(20) == []  # it began late: what goes on is known
    await ends(world, job.id, State.SUCCEEDED)
    [over] = await watch.after(1)
    assert "begins in time again" in over["title"]


@BOTH
async def test_a_job_that_takes_unusually_long_is_told(world: World) -> None:
    await make(world, when="slow", **AT_ONCE)
    watch, job = Watch(world), await world.submit()
    usual = learn(Baseline(), [Ended(10.0 + number % 3, True) for number in range(60)])
    long = learn(usual, [Ended(100.0, True)] * 3)
    mark = first_mark(0, world.clock.now())
    await world.store.begin_learning(mark)
    await world.store.save_baselines(mark, mark, {job.id: usual}, world.clock.now())
    assert await watch.after(20) == []
    await world.store.save_baselines(mark, mark, {job.id: long}, world.clock.now())
    [told] = await watch.after(20)
    assert told["title"] == f"rule: job job ({job.id}) takes unusually long"
    await world.store.save_baselines(mark, mark, {job.id: learn(long, [Ended(10.0, True)])}, world.clock.now())
    [over] = await watch.after(20)
    assert "as long as usual again" in over["title"]


@BOTH
async def test_silence_is_told_and_its_end(world: World) -> None:
    await make(world, when="silent", after="1h", owner="local", **AT_ONCE)
    watch, job = Watch(world), await world.submit(owner="local")
    assert await watch.go() == []
    await ends(world, job.id, State.SUCCEEDED)
    assert await watch.after(3500) == []
    await ends(world, job.id, State.FAILED)
    [told] = await watch.after(200)
    assert told["title"] == "rule: nothing has succeeded for too long: owner local"
    assert await watch.after(3600) == []
    await ends(world, job.id, State.SUCCEEDED)
    [over] = await watch.after(1)
    assert over["title"] == "rule: something has succeeded again: owner local"
    assert await watch.after(3000) == []
    assert len(await watch.after(700)) == 1


def node(world: World, name: str, **fields: Any) -> Node:
    now = world.clock.now()
    given: dict[str, Any] = {
        "roles": ("agent",), "kinds": ("shell",), "labels": (), "slots": 1, "version": "1", "address": "",
        "started_at": now, "heartbeat_at": now, "beat": 0, "holder": "pid 1 on there", **fields,
    }  # fmt: skip
    return Node(name, **given)


@BOTH
async def test_a_node_that_was_lost_is_told_and_one_that_left_is_not(world: World) -> None:
    await make(world, when="node_gone", **AT_ONCE)
    watch = Watch(world)
    for name in ("lost", "left"):
        await world.store.register_node(node(world, name))
    await world.store.retire_node("left", NodeState.GONE)
    lease = await world.store.take_lease("leader", "me", None)
    seen = [each for each in await world.store.list_nodes() if each.name == "lost"]
    assert await watch.after(LOOK) == []
    assert lease is not None
    assert await world.store.bury_nodes(seen, lease)
    [told] = await watch.after(LOOK)
    assert told["title"] == "rule: node lost is gone"
    await world.store.register_node(node(world, "lost"))
    [over] = await watch.after(LOOK)
    assert over["title"] == "rule: node lost is back"


@BOTH
async def test_a_queue_in_which_something_waits_for_too_long_is_told(world: World) -> None:
    await make(world, when="queue_waiting", after="10m", queue="default", **AT_ONCE)
    watch, run = Watch(world), await world.queue_run()
    assert await watch.after(500) == []
    [told] = await watch.after(200)
    assert told["title"] == "rule: queue default waits for too long"
    await world.take(run.id)
    [over] = await watch.after(LOOK)
    assert over["title"] == "rule: queue default waits no longer"


@BOTH
async def test_a_disk_that_is_nearly_full_is_told(world: World) -> None:
    used = [50.0]
    disks = AlertDisks(world.store, world.clock, node="a", measure=lambda: used[0])
    await disks.note()
    assert await world.store.load_disks(0) == []  # nobody asks
    await make(world, when="disk_full", above=90, **AT_ONCE)
    watch = Watch(world)
    for name in ("a", "agent"):
        await world.store.register_node(node(world, name))
    await disks.note()
    assert await watch.after(LOOK) == []
    used[0] = 93.4
    await disks.note()
    [told] = await watch.after(LOOK)
    assert told["title"] == "rule: node a is short of disk"
    assert "93 %" in told["text"]
    await world.store.note_ailment("agent", "/w: No space left on device")
    [second] = await watch.after(LOOK)
    assert second["title"] == "rule: node agent is short of disk"
    used[0] = 80.0
    await disks.note()
    [over] = await watch.after(LOOK)
    assert over["title"] == "rule: node a has room again"


@BOTH
async def test_what_is_acknowledged_is_told_no_more_until_it_is_over(world: World) -> None:
    await make(world, when="failure", repeat="1h", **AT_ONCE)
    watch, job = Watch(world), await world.submit()
    await ends(world, job.id, State.FAILED)
    assert len(await watch.after(1)) == 1
    await ends(world, job.id, State.FAILED)
    [again] = await watch.after(3700)
    assert again["title"].startswith("rule: still: ")
    [alert] = await opened(world)
    answer = await world.http.post(f"/v1/alerts/{alert['id']}/ack")
    assert (answer.status_code, answer.json()["acked_by"]) == (200, "local")
    await ends(world, job.id, State.FAILED)
    assert await watch.after(3700) == []
    assert (await opened(world))[0]["count"] == 3
    await ends(world, job.id, State.SUCCEEDED)
    assert len(await watch.after(1)) == 1
    await ends(world, job.id, State.FAILED)
    assert len(await watch.after(1)) == 1  # it is another one, which nobody knows of


@BOTH
async def test_quiet_hours_are_kept_and_what_happened_is_one_message(world: World) -> None:
    await make(world, when="failure", quiet={"from": "00:00", "until": "23:59"}, **AT_ONCE)
    watch, job = Watch(world), await world.submit()
    for _ in range(3):
        await ends(world, job.id, State.FAILED)
        world.clock.advance(1)
        first = await watch.go()
    assert first == []
    told: list[Any] = []
    for _ in range(25):
        told += await watch.after(3600 - 1)
        if told:
            break
        until_midnight = 86_400 - world.clock.now() // SECOND % 86_400
        if until_midnight < 3600:
            told += await watch.after(until_midnight - 30)
            break
    assert [each["count"] for each in told] == [3]


@BOTH
async def test_a_channel_that_refuses_is_tried_again_and_what_was_told_is_listed(world: World) -> None:
    await make(world, when="failure", **AT_ONCE)
    watch, job = Watch(world), await world.submit()
    world.teller.refusal = "the answer is 503"
    await ends(world, job.id, State.FAILED)
    assert await watch.after(1) == []
    [waiting] = (await world.http.get("/v1/alerts/deliveries")).json()["items"]
    assert (waiting["state"], waiting["tries"], waiting["error"]) == ("waiting", 1, "the answer is 503")
    world.teller.refusal = ""
    assert await watch.after(5) == []
    [told] = await watch.after(6)
    assert told["count"] == 1
    [sent] = (await world.http.get("/v1/alerts/deliveries")).json()["items"]
    assert (sent["state"], sent["tries"], sent["error"]) == ("sent", 2, "")


@BOTH
async def test_two_leaders_at_once_tell_it_once(world: World) -> None:
    await make(world, when="failure", **AT_ONCE)
    job = await world.submit()
    one, two = Watch(world), Watch(world)
    await one.go()
    await two.go()
    await ends(world, job.id, State.FAILED)
    assert len(await one.after(1) + await two.go() + await two.after(1)) == 1
    await ends(world, job.id, State.FAILED)
    await ends(world, job.id, State.SUCCEEDED)
    assert len(await two.after(1) + await two.after(1) + await one.after(1) + await one.after(1)) == 1


@BOTH
async def test_whoever_dies_between_two_steps_has_lost_nothing(world: World) -> None:
    await make(world, when="failure", **AT_ONCE)
    job = await world.submit()
    await Watch(world).go()
    await ends(world, job.id, State.FAILED)
    read = Watch(world)
    await read.watching._refresh()
    await read.watching._read()  # and dies
    written = Watch(world)
    await written.watching._refresh()
    await written.watching.go_round()  # and dies before it sends
    taken = Watch(world)
    now = await world.store.now()
    assert len(await world.store.take_deliveries(now, now + 120 * SECOND, 5)) == 1  # and dies while it sends
    assert await taken.after(100) == []
    assert len(await taken.after(30)) == 1
    assert await taken.after(600) == []


@BOTH
async def test_a_rule_that_is_deleted_leaves_nothing_and_costs_nothing(world: World) -> None:
    await make(world, when="failure", **AT_ONCE)
    watch, job = Watch(world), await world.submit()
    await ends(world, job.id, State.FAILED)
    world.teller.refusal = "no"
    await watch.after(1)
    world.teller.refusal = ""
    assert (await world.http.delete("/v1/alerts/rules/rule")).status_code == 204
    assert await opened(world) == []
    assert await world.store.load_reader("alerts") is None
    assert await watch.after(1000) == []
    await make(world, when="failure", **AT_ONCE)
    assert await watch.after(1) == []  # what failed before is none of it


async def test_a_deleted_job_has_no_alert(world: World) -> None:
    await make(world, when="failure", **AT_ONCE)
    watch, job = Watch(world), await world.submit()
    await ends(world, job.id, State.FAILED)
    await watch.after(1)
    await world.http.delete(f"/v1/jobs/{job.id}")
    await watch.after(1)
    assert await opened(world) == []


@BOTH
async def test_opening_and_closing_are_events(world: World) -> None:
    await make(world, when="failure", **AT_ONCE)
    watch, job = Watch(world), await world.submit(name="a")
    await ends(world, job.id, State.FAILED)
    await watch.after(1)
    await ends(world, job.id, State.SUCCEEDED)
    await watch.after(1)
    page = (await world.http.get("/v1/events?kinds=alert.opened,alert.closed")).json()["items"]
    assert [each["type"] for each in page] == ["horae.alert.opened", "horae.alert.closed"]
    assert page[0]["data"] == {"rule": "rule", "about": f"job:{job.id}", "job": job.id, "name": "a"}
    assert page[0]["subject"] == f"alerts/rule/job:{job.id}"


@BOTH
async def test_what_a_task_of_a_workflow_comes_to_is_told_by_its_workflow_alone(world: World) -> None:
    await make(world, when="failure", **AT_ONCE)
    watch, job = Watch(world), await world.submit(overlap="allow")
    parent, child = await world.start_run(job.id), await world.start_run(job.id)
    await world.store.write(
        world.store._statement("UPDATE live SET parent_id = $1 WHERE id = $2"), parent.run_id, child.run_id
    )
    await child.end(State.FAILED)
    assert await watch.after(1) == []
    await parent.end(State.FAILED)
    [told] = await watch.after(1)
    assert (told["count"], told["alerts"][0]["run"]) == (1, parent.run_id)


# ── the documents ──


async def test_rules_and_channels_are_made_read_changed_and_deleted(world: World) -> None:
    hook = await world.http.put("/v1/alerts/channels/ops", json=HOOK)
    assert (hook.status_code, hook.headers["etag"]) == (201, '"1"')
    made = await world.http.put("/v1/alerts/rules/r", json={"when": "failure", "channels": ["ops"]})
    again = await world.http.put("/v1/alerts/rules/r", json=made.json(), headers={"If-Match": '"1"'})
    stale = await world.http.put("/v1/alerts/rules/r", json=made.json(), headers={"If-Match": '"1"'})
    assert (made.status_code, again.status_code, again.json()["version"]) == (201, 200, 2)
    assert problem(stale) == (412, "E_VERSION_CONFLICT")
    absent = await world.http.put("/v1/alerts/rules/s", json=made.json() | {"name": "s"}, headers={"If-Match": '"1"'})
    assert problem(absent) == (412, "E_VERSION_CONFLICT")
    assert problem(await world.http.delete("/v1/alerts/channels/ops")) == (409, "E_CHANNEL_IN_USE")
    assert (await world.http.get("/v1/alerts/rules/r")).headers["etag"] == '"2"'
    assert [it["name"] for it in (await world.http.get("/v1/alerts/rules")).json()["items"]] == ["r"]
    assert (await world.http.delete("/v1/alerts/rules/r")).status_code == 204
    assert (await world.http.delete("/v1/alerts/channels/ops")).status_code == 204
    for path in ("rules/r", "channels/ops", "rules/%00", "channels/a%20b"):
        assert problem(await world.http.get(f"/v1/alerts/{path}")) == (404, "E_NOT_FOUND")
        assert problem(await world.http.delete(f"/v1/alerts/{path}")) == (404, "E_NOT_FOUND")


@pytest.mark.parametrize(
    ("method", "path", "document", "expected"),
    [
        ("PUT", "rules/r", {"when": "failure", "channels": ["opps"]}, (422, "E_CHANNEL_UNKNOWN")),
        ("PUT", "rules/r", {"when": "failure", "channels": ["ops"], "wat": 1}, (422, "E_UNKNOWN_FIELD")),
        ("PUT", "rules/a%20b", {"when": "failure", "channels": ["ops"]}, (422, "E_PATTERN")),
        ("PUT", "rules/%00", {"when": "failure", "channels": ["ops"]}, (422, "E_PATTERN")),
        ("PUT", "rules/r", [], (422, "E_TYPE")),
        ("PUT", "channels/c", {"kind": "command"}, (403, "E_POLICY")),
        ("PUT", "channels/c", {"kind": "slack", "url": "https://x.example"}, (422, "E_TYPE")),
        ("POST", "channels/none/test", {}, (404, "E_NOT_FOUND")),
        ("POST", "99/ack", {}, (404, "E_NOT_FOUND")),
        ("POST", "x/ack", {}, (404, "E_NOT_FOUND")),
        ("POST", "9223372036854775807/ack", {}, (404, "E_NOT_FOUND")),
    ],
)
async def test_bad_requests_are_refused(
    world: World, method: str, path: str, document: Any, expected: tuple[int, str]
) -> None:
    await world.http.put("/v1/alerts/channels/ops", json=HOOK)
    assert problem(await world.http.request(method, f"/v1/alerts/{path}", json=document)) == expected


async def test_a_bad_cursor_is_refused_and_pages_go_on(world: World) -> None:
    assert problem(await world.http.get("/v1/alerts?cursor=x")) == (422, "E_PATTERN")
    await make(world, when="failure", **AT_ONCE)
    watch = Watch(world)
    for number in range(3):
        await ends(world, (await world.submit(name=f"j{number}")).id, State.FAILED)
    await watch.after(1)
    first = (await world.http.get("/v1/alerts?limit=2")).json()
    rest = (await world.http.get(f"/v1/alerts?limit=2&cursor={first['cursor']}")).json()
    assert [it["name"][:6] for it in first["items"] + rest["items"]] == ["job j0", "job j1", "job j2"]
    assert rest["cursor"] is None


async def test_a_channel_is_tried_and_the_answer_says_what_came_of_it(world: World) -> None:
    await world.http.put("/v1/alerts/channels/ops", json=HOOK)
    answer = (await world.http.post("/v1/alerts/channels/ops/test")).json()
    assert (answer["is_sent"], world.teller.sent[0][1]["title"]) == (True, "a test of the channel ops")
    await world.http.put("/v1/alerts/channels/ops", json={"kind": "slack", "url": {"secret": "HUSH"}})
    answer = (await world.http.post("/v1/alerts/channels/ops/test")).json()
    assert answer["is_sent"] is False
    assert "there is no secret HUSH" in answer["detail"]


async def test_a_command_is_a_channel_that_the_api_cannot_change(world: World) -> None:
    world.teller.commands["page"] = "/usr/bin/page"
    shown = (await world.http.get("/v1/alerts/channels/page")).json()
    assert (shown["kind"], shown["url"]) == ("command", None)
    assert "/usr/bin" not in str(shown)
    assert (await world.http.put("/v1/alerts/channels/page", json=HOOK)).status_code == 409
    assert (await world.http.delete("/v1/alerts/channels/page")).status_code == 409
    made = await world.http.put("/v1/alerts/rules/r", json={"when": "failure", "channels": ["page"]})
    assert made.status_code == 201


async def test_where_there_are_no_rules_nothing_else_is_read_and_the_first_one_is_heard_of(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    watching = AlertWatching(world.store, world.queue, world.clock, is_leader=lambda: True)
    asked: list[str] = []
    plain, looked = type(world.store)._get, asyncio.Event()

    async def counted(store: Any, name: str, *args: Any) -> Any:
        asked.append(name)
        looked.set()
        return await plain(store, name, *args)

    with monkeypatch.context() as patch:
        patch.setattr(type(world.store), "_get", counted)
        patch.setattr(type(world.store), "_put", None)
        step = asyncio.create_task(watching.step())
        await looked.wait()
        await asyncio.sleep(0)
        assert asked == ["list_alert_rules"]
    await make(world, when="failure")
    async with asyncio.timeout(30):  # it was told: it does not wait for a minute
        await step
    await watching._refresh()
    assert watching.has_rules


async def test_what_a_channel_answers_may_hold_anything(world: World) -> None:
    await make(world, when="failure", **AT_ONCE)
    watch, job = Watch(world), await world.submit()
    world.teller.refusal = "\0\ud800\x1b[31m" + "x" * 10_000
    await ends(world, job.id, State.FAILED)
    await watch.after(1)
    [waiting] = (await world.http.get("/v1/alerts/deliveries")).json()["items"]
    assert len(waiting["error"]) == 500
    assert waiting["error"].isprintable()


@BOTH
async def test_of_two_who_write_the_same_one_has_done_nothing(world: World) -> None:
    await make(world, when="failure", **AT_ONCE)
    [rule] = await world.store.list_alert_rules()
    place = await world.store.load_reader("alerts")
    assert place is not None
    now = await world.store.now()
    alert = Alert(0, 1, "rule", "job:1", "job a (1)", AlertState.OPEN, 1, 1, now, now, changed_at=now)
    key, moved = key_of(alert), Cursor(place.stamp, place.batch + 1, 0)
    assert await world.store.save_alerts({key: alert}, (place, moved))
    assert not await world.store.save_alerts({key: replace(alert, count=2)}, (place, moved))
    [group] = await world.store.load_groups()
    assert group.times == 1
    message = compose(rule, group, await world.store.load_pending(1, "rule", 20), now)
    assert await world.store.tell(group, rule, Spoken(0, None), message, now)
    assert not await world.store.tell(group, rule, Spoken(0, None), message, now)
    assert len(await world.store.list_deliveries(1, 10)) == 1
    [taken] = await world.store.take_deliveries(now, now + 1, 5)
    assert await world.store.take_deliveries(now, now + 1, 5) == []
    [again] = await world.store.take_deliveries(now + 1, now + 2, 5)
    await world.store.settle_delivery(taken._replace(state="sent"))  # who was too slow says nothing any more
    assert [it.state for it in await world.store.list_deliveries(1, 10)] == ["waiting"]
    await world.store.settle_delivery(again._replace(state="sent", sent_at=now))
    assert [it.state for it in await world.store.list_deliveries(1, 10)] == ["sent"]
    await world.store.drop_deliveries(now + 1)
    assert await world.store.list_deliveries(1, 10) == []


@BOTH
async def test_a_rule_that_this_version_cannot_read_is_left_out(world: World) -> None:
    await make(world, "good", when="failure", **AT_ONCE)
    await make(world, "newer", when="failure", **AT_ONCE)
    await world.store.write(
        world.store._statement("UPDATE alert_rules SET document = $1 WHERE name = 'newer'"), '{"when":"eclipse"}'
    )
    watch, job = Watch(world), await world.submit()
    await ends(world, job.id, State.FAILED)
    assert [told["rule"] for told in await watch.after(1)] == ["good"]


@BOTH
async def test_the_stores_write_what_the_core_says_becomes_of_what_was_told(world: World) -> None:
    await make(world, when="failure", **AT_ONCE)
    [rule], now = await world.store.list_alert_rules(), await world.store.now()
    plain = Alert(0, 1, "rule", "", "a job", AlertState.OPEN, 1, 3, 1, 2, "exit", 7, changed_at=now)
    every = [
        replace(plain, subject=f"job:{number}", state=state, streak=streak, stands=stands)
        for number, (state, streak, stands) in enumerate(
            (state, streak, stands)
            for state in (AlertState.OPEN, AlertState.CLOSED)
            for streak in (0, 2)
            for stands in (False, True)
        )
    ]
    await world.store.save_alerts({key_of(alert): alert for alert in every})
    subjects = [alert.subject for alert in every]
    kept = await world.store.load_alerts(subjects)
    [group] = await world.store.load_groups()
    assert await world.store.tell(group, rule, Spoken(), {"title": ""}, now)
    told = await world.store.load_alerts(subjects)
    expected = {key: after for key, alert in kept.items() if (after := after_telling(alert, rule, now)) is not None}
    assert told == expected
    later = now + round(rule.repeat * SECOND)
    assert await world.store.remind(later - 1) == 0
    assert await world.store.remind(later) == sum(is_to_remind(alert, later) for alert in told.values()) > 0
