"""APScheduler 3 with its SQLAlchemy store: python apscheduler_program.py URL ACTION COUNT CLIENTS, answers with one
JSON line (see __init__.py). It has no queue that several processes drain, and no bulk."""

import asyncio
import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore
from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.schedulers.background import BackgroundScheduler

LATE: list[float] = []
FAR = datetime.now(UTC) + timedelta(days=1)


def store(url: str) -> SQLAlchemyJobStore:
    return SQLAlchemyJobStore(url=url.replace("postgresql://", "postgresql+psycopg://"))


async def note(at: float) -> None:
    LATE.append(time.time() - at)


def nothing() -> None:
    pass


def prepare(url: str, count: int, clients: int) -> dict[str, object]:
    return {}


def enqueue(url: str, count: int, clients: int) -> dict[str, object]:
    """Jobs that wait for tomorrow: what one `add_job` costs, without their being run."""
    scheduler = BackgroundScheduler(jobstores={"default": store(url)})
    scheduler.start(paused=True)

    def one(_: int) -> None:
        for _ in range(count // clients):
            scheduler.add_job(nothing, "date", run_date=FAR)

    scheduler.add_job(nothing, "date", run_date=FAR)  # the connection is open now
    began = time.time()
    with ThreadPoolExecutor(clients) as pool:
        list(pool.map(one, range(clients)))
    took = time.time() - began
    scheduler.shutdown(wait=False)
    return {"seconds": took}


def latency(url: str, count: int, clients: int) -> dict[str, object]:
    async def run() -> None:
        scheduler = AsyncIOScheduler(jobstores={"default": store(url)})
        scheduler.start()
        for _ in range(count):
            scheduler.add_job(note, args=[time.time()], misfire_grace_time=60)
            await asyncio.sleep(0.02)
        while len(LATE) < count:
            await asyncio.sleep(0.05)
        scheduler.shutdown(wait=False)

    asyncio.run(run())
    return {"late": LATE}


def herd(url: str, count: int, clients: int) -> dict[str, object]:
    """Recurring jobs, all due at one moment. They are written while it pauses, and the clock starts when it goes on:
    how long they take to be written does not count."""

    async def run() -> float:
        scheduler = AsyncIOScheduler(jobstores={"default": store(url)})
        scheduler.start(paused=True)
        due = datetime.now(UTC)
        for _ in range(count):
            scheduler.add_job(herded, "interval", hours=1, next_run_time=due, misfire_grace_time=3600)
        began = time.time()
        scheduler.resume()
        while len(LATE) < count:
            await asyncio.sleep(0.01)
        scheduler.shutdown(wait=False)
        return max(LATE) - began

    return {"seconds": asyncio.run(run())}


async def herded() -> None:
    LATE.append(time.time())


if __name__ == "__main__":
    url, action, count, clients = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    actions = {one.__name__: one for one in (prepare, enqueue, latency, herd)}
    print(json.dumps(actions[action](url, count, clients)), flush=True)
