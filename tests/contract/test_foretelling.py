"""Forecasts that are made in a process of their own."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from horae.app import foretelling
from horae.app.foretelling import ForecastProcess
from horae.core.definitions import Submission
from horae.core.insight.items import JOB
from horae.core.model import SECOND
from horae.errors import Unavailable
from horae.service.insight import forecasting as service
from horae.service.insight.forecasting import Asked, Forecasting
from horae.stores.postgres import PostgresStore
from horae.testing import make_job

NIGHTS = 12  # triggers that clash at midnight
ASKED = Asked(24.0, None, JOB, None, 20)


@pytest.fixture
async def planned(postgres_url: str) -> Any:
    """A store by the server's own clock, with triggers in it."""
    store = PostgresStore(postgres_url)
    now = await store.now()
    midnight = now - now % 86_400_000_000 + 86_400_000_000
    jobs = [make_job(i, trigger_id=i, next_at=midnight, schedule={"cron": "0 0 * * *"}) for i in range(1, NIGHTS + 1)]
    await store.submit([Submission(jobs)])
    yield store
    await store.close()


async def test_a_process_of_its_own_makes_the_forecast_that_the_server_would_make(
    planned: PostgresStore, postgres_url: str
) -> None:
    asked = ASKED._replace(start=await planned.now() + 60 * SECOND)  # the same for both, whenever they begin
    apart, here = await ForecastProcess(postgres_url).make(asked), await Forecasting(planned).make(**asked._asdict())
    assert (apart.triggers, apart.moments, len(apart.items)) == (NIGHTS, NIGHTS, NIGHTS)
    assert apart == here
    assert type(apart.clashes[0].crowds[0]) is type(here.clashes[0].crowds[0])


async def test_where_the_database_is_out_of_reach_the_process_fails_and_leaves_nothing_behind(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(Unavailable, match="ended with 1"):
        await ForecastProcess("postgresql://somebody:secret@127.0.0.1:1/none").make(ASKED)
    assert "secret" not in capfd.readouterr().err


async def test_a_process_that_nobody_waits_for_any_more_is_ended(
    planned: PostgresStore, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[asyncio.subprocess.Process] = []
    begin = asyncio.create_subprocess_exec

    async def note(*argv: Any, **given: Any) -> asyncio.subprocess.Process:
        made.append(await begin("sleep", "600", **given))
        return made[0]

    monkeypatch.setattr(foretelling.asyncio, "create_subprocess_exec", note)
    making = asyncio.ensure_future(ForecastProcess(postgres_url).make(ASKED))
    while not made:
        await asyncio.sleep(0)
    making.cancel()
    with pytest.raises(asyncio.CancelledError):
        await making
    assert made[0].returncode is not None


async def test_only_what_is_large_and_merely_looked_at_is_made_apart_and_here_if_that_fails(
    planned: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Asked] = []

    async def fail(one: Asked) -> Any:
        asked.append(one)
        raise Unavailable("there is no room for another process")

    forecasting = Forecasting(planned, fail)
    assert await forecasting.look(hours=24) is not None
    assert not asked, "there are few triggers: whoever looks waits"
    monkeypatch.setattr(service, "FEW", 0)
    assert (await forecasting.lately(hours=30)).triggers == NIGHTS
    assert not asked, "somebody waited for it"
    assert await forecasting.look(hours=36) is None
    await asyncio.gather(*forecasting._making.values())
    assert [one.hours for one in asked] == [36]
    found = await forecasting.look(hours=36)
    assert found is not None
    assert found.triggers == NIGHTS
