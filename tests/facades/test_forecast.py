"""The forecast under /v1, and that the contract of remote calls lists the same jobs for its five minutes."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from horae.core.model import DEFAULT_ORG, State
from horae.core.runs.orders import Result
from horae.core.time.moments import format_moment
from horae.core.work.specs import parse_job
from horae.service.insight import forecasting as service
from horae.service.insight.forecasting import Forecasting
from horae.service.insight.learning import Learning
from horae.web.pages import shared

from .rpc.test_rpc import call
from .rpc.test_workers import walk
from .world import BOTH, World

JOB = {"name": "a", "steps": [{"run": "true"}]}


async def submit(world: World, **fields: Any) -> int:
    answer = await world.http.post("/v1/jobs", json={**JOB, **fields})
    assert answer.status_code == 201, answer.text
    return int(answer.json()["jobs"][0]["id"])


async def asked(world: World, **given: Any) -> Any:
    answer = await world.http.get("/v1/forecast", params=given)
    assert answer.status_code == 200, answer.text
    return answer.json()


@BOTH
async def test_a_forecast_counts_what_is_due(world: World) -> None:
    hourly = await submit(world, name="hourly", schedule="17 * * * *")
    minutely = await submit(world, name="minutely", schedule="1m", queue="default")
    found = await asked(world, hours=24)
    assert (found["moments"], found["triggers"], found["skipped"]) == (24 + 1439, 2, 0)
    assert [(item["key"], item["name"], item["moments"]) for item in found["items"]] == [
        (str(minutely), "minutely", 1439), (str(hourly), "hourly", 24)
    ]  # fmt: skip
    assert sum(found["items"][1]["buckets"]) == 24
    assert len(found["buckets"]) == 48
    assert (await asked(world, hours=2, by="queue", limit=1))["items"][0]["key"] == "default"
    later = format_moment(world.clock.now() + 86_400_000_000)
    assert (await asked(world, hours=1, **{"from": later}))["moments"] == 61


@BOTH
async def test_a_forecast_takes_durations_from_what_has_run(world: World) -> None:
    job_id = await submit(world, name="slow", schedule="10m")
    for _ in range(3):
        await world.http.post(f"/v1/jobs/{job_id}/run", json={})
        [claimed] = await world.claim("shell")
        started_at = world.clock.now()
        world.clock.advance(90)
        ended = Result(claimed.run_id, claimed.fence, State.SUCCEEDED, "", started_at, world.clock.now(), 0)
        await world.execution.finish([ended])
    assert len((await asked(world, hours=1))["notes"]) == 2
    for _ in range(3):
        await Learning(world.store).learn()
        world.clock.advance(31)
    found = await asked(world, hours=1)
    assert found["items"][0]["duration"]["seconds"] == pytest.approx(90, rel=0.01)
    assert len(found["notes"]) == 1


async def test_of_those_who_wait_for_the_same_forecast_one_makes_it_and_never_an_older_one(world: World) -> None:
    await submit(world, schedule="1h")
    made = 0

    class Counting:
        def __getattr__(self, name: str) -> Any:
            nonlocal made
            made += name == "load_planned"
            return getattr(world.store, name)

    forecasting = Forecasting(Counting())  # type: ignore[arg-type]
    found = await asyncio.gather(*(forecasting.make(hours=24) for _ in range(5)))
    assert made == 2, "one that had begun before the others asked, and one for all of these"
    assert len({id(one) for one in found}) == made, "whoever waited has that of the others who did"
    await submit(world, name="b", schedule="1h")
    assert (await forecasting.make(hours=24)).triggers == 2


@BOTH
async def test_midnight_is_a_clash_and_slots_that_nobody_has_run_out(world: World) -> None:
    for number in range(12):
        await submit(world, name=f"night {number}", schedule="0 0 * * *")
    found = await asked(world)
    [clash] = found["clashes"]
    assert (clash["triggers"], clash["crowds"][0]["schedule"], clash["crowds"][0]["instead"]) == (
        12, "0 0 * * *", "H 0 * * *"
    )  # fmt: skip
    assert found["shortages"][0]["what"] == "slots"


async def test_paused_jobs_are_not_foreseen(world: World) -> None:
    job_id = await submit(world, schedule="1h")
    await world.http.post(f"/v1/jobs/{job_id}/pause")
    assert (await asked(world))["triggers"] == 0


@pytest.mark.parametrize(
    ("given", "code", "path"),
    [
        ({"hours": "0"}, "E_RANGE", "hours"),
        ({"hours": "1000"}, "E_RANGE", "hours"),
        ({"hours": "nan"}, "E_TYPE", "hours"),
        ({"by": "color"}, "E_ENUM", "by"),
        ({"from": "2001-01-01T00:00:00Z"}, "E_RANGE", "from"),
        ({"from": "2199-01-01T00:00:00Z"}, "E_RANGE", "from"),
        ({"limit": "1001"}, "E_RANGE", "limit"),
    ],
)
async def test_a_question_that_makes_no_sense_is_refused(
    world: World, given: dict[str, str], code: str, path: str
) -> None:
    answer = await world.http.get("/v1/forecast", params=given)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["code"] == code
    assert answer.json()["errors"][0]["path"].endswith(path)


async def test_remote_calls_list_the_jobs_of_a_forecast_of_five_minutes(world: World) -> None:
    for number in range(250):
        await submit(world, name=f"job {number}", schedule=["1m", "4m", "10m", "0 0 1 1 *"][number % 4])
    listed = await call(world, "get_jobs_in_next_5_mins")
    foretold = await asked(world, hours=5 / 60, limit=1000)
    assert {str(job["job_id"]) for job in listed} == {item["key"] for item in foretold["items"]}


@BOTH
async def test_remote_calls_list_page_by_page_what_has_a_moment_of_its_own_and_a_forecast_counts_those(
    world: World,
) -> None:
    """Jobs that others make run have no moment to be listed at; a forecast counts their runs beside."""
    soon = [await submit(world, name=f"job {number}", key=f"k{number}", schedule="1m") for number in range(5)]
    soon.append(await submit(world, name="joins", after=["k0"], schedule="1m"))
    follows = await submit(world, name="follows", after=["k1"])
    await submit(world, name="off", triggers=[{"every": "1m", "enabled": False}])
    paused, deleted = await submit(world, name="paused", schedule="1m"), await submit(world, name="x", schedule="1m")
    await world.http.post(f"/v1/jobs/{paused}/pause")
    await world.http.delete(f"/v1/jobs/{deleted}")
    await world.jobs.submit([parse_job({**JOB, "name": "theirs", "schedule": "1m"})], owner="x", org=2)

    listed = [job["job_id"] for job in await walk(world, "get_jobs_in_next_5_mins", "jobs", 2)]
    foretold = await Forecasting(world.store).make(hours=5 / 60, org=DEFAULT_ORG, limit=1000)
    moments = {int(item.key): item.moments for item in foretold.items}
    assert sorted(listed) == sorted(soon)
    assert {job_id: moments[job_id] for job_id in soon} == dict.fromkeys(soon, 4)
    assert {*moments} - {*soon} == {follows}


@BOTH
async def test_of_very_many_triggers_who_only_looks_does_not_wait(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await submit(world, schedule="1h")
    forecasting = Forecasting(world.store)
    assert (await forecasting.look(hours=24)) is not None  # there is one trigger
    monkeypatch.setattr(service, "FEW", 0)

    assert await forecasting.look(hours=12) is None
    await asyncio.gather(*forecasting._making.values())
    found = await forecasting.look(hours=12)
    assert found is not None
    assert found.triggers == 1
    await submit(world, schedule="1h")
    assert await forecasting.look(hours=12) is found  # it was made lately
    assert await forecasting.lately(hours=12) is found

    forecasting._kept = {asked: kept._replace(fresh_until=0.0) for asked, kept in forecasting._kept.items()}
    assert await forecasting.look(hours=12) is found  # while the next is made
    assert (await forecasting.lately(hours=12)).triggers == 2
    forecasting._kept = {
        asked: kept._replace(fresh_until=0.0, good_until=0.0) for asked, kept in forecasting._kept.items()
    }
    assert await forecasting.look(hours=12) is None
    await asyncio.gather(*forecasting._making.values())


@BOTH
async def test_of_few_triggers_the_api_has_a_new_forecast_each_time(world: World) -> None:
    await submit(world, schedule="1h")
    assert (await asked(world, hours=12))["triggers"] == 1
    await submit(world, schedule="1h")
    assert (await asked(world, hours=12))["triggers"] == 2


async def test_pages_come_before_the_forecast_of_very_many_triggers_and_say_so(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await submit(world, schedule="1h")
    monkeypatch.setattr(service, "FEW", 0)
    html = {"accept": "text/html"}
    for path, soon in (("/forecast", "It is being worked out"), ("/timeline", "data-soon")):
        assert soon in (await world.http.get(path, headers=html)).text
        await asyncio.gather(*world.services.forecasting._making.values())
        assert soon not in (await world.http.get(path, headers=html)).text


async def test_while_a_forecast_is_worked_out_one_look_at_the_timeline_serves_all_and_then_another(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await submit(world, schedule="1h")
    monkeypatch.setattr(service, "FEW", 0)
    monkeypatch.setattr(shared, "time", SimpleNamespace(monotonic=lambda: 0.0))  # the second does not end
    forecasting, go_on, looks = world.services.forecasting, asyncio.Event(), 0

    async def slowly(it: service.Asked) -> Any:
        await go_on.wait()
        return await Forecasting(world.store).make(**it._asdict())

    async def count(*_: Any) -> list[Any]:
        nonlocal looks
        looks += 1
        return []

    monkeypatch.setattr(forecasting, "_apart", slowly)
    monkeypatch.setattr(world.jobs.glances, "live", count)
    for _ in range(2):
        assert "data-soon" in (await world.http.get("/timeline", headers={"accept": "text/html"})).text
    assert looks == 1
    go_on.set()
    await asyncio.gather(*forecasting._making.values())
    assert "data-soon" not in (await world.http.get("/timeline", headers={"accept": "text/html"})).text
    assert looks == 2
