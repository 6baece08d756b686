"""What it costs to ask whether somebody may do something, with very many people and grants behind it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

from bench.figure import Aim, Bench, Line, figure
from horae.app.machine import SystemClock
from horae.core.identity import Principal, User
from horae.core.model import Job, Policy
from horae.core.rights import Grant, may
from horae.core.roles import Permission, Role
from horae.ports.store import Store
from horae.service.access.grants import Grants

LIMIT = 5.0  # microseconds, of a check whose answer is remembered
EACH = 10  # grants of one person
TOGETHER = 500  # users that are written at once


@figure(
    "rights",
    "a check of the role, and of grants that are remembered, among very many users and grants",
    registered=[100_000], size=[10_000], trials=200_000,
    quick={"registered": [1_000], "size": [200], "trials": 20_000},
)  # fmt: skip
async def rights(bench: Bench) -> AsyncIterator[Line]:
    for users in bench["registered"]:
        for grants in bench["size"]:
            async with bench.places.fresh(bench.store) as place:
                store = await place.open()
                try:
                    await _fill(store, users, grants)
                    took = await _time(store, bench["trials"])
                finally:
                    await store.close()
            detail = {"users": users, "grants": grants, **took}
            yield Line("rights", bench.store, "µs", took["granted_us"], aim=Aim("at most", LIMIT), detail=detail)


async def _fill(store: Store, users: int, grants: int) -> None:
    for start in range(0, users, TOGETHER):
        names = [f"user-{number}" for number in range(start, min(users, start + TOGETHER))]
        await asyncio.gather(*(store.add_user(User(0, name, roles={1: Role.VIEWER})) for name in names))
    for number in range(grants):
        name = f"user-{number // EACH}"
        await store.put_grant(Grant(0, 1, name, Role.OPERATOR, tag=f"tag-{number % EACH}"))


async def _time(store: Store, times: int) -> dict[str, float]:
    """Return microseconds of each question."""
    asked, who = Grants(store, SystemClock()), Principal("user-0", 1, Role.VIEWER, via="token 1")
    job = Job(1, 1, "ann", "j", None, "shell", {}, Policy(tags=(f"tag-{EACH - 1}",)), 0, False, {}, 1, 0, 0)
    began = time.perf_counter()
    assert await asked.may_on(who, Permission.RUN, job)
    first = time.perf_counter() - began
    began = time.perf_counter()
    for _ in range(times):
        await asked.may_on(who, Permission.RUN, job)
    granted = time.perf_counter() - began
    began = time.perf_counter()
    for _ in range(times):
        may(who, Permission.READ)
    by_role = time.perf_counter() - began
    return {
        "granted_us": round(granted / times * 1e6, 2), "role_us": round(by_role / times * 1e6, 3),
        "first_ms": round(first * 1000, 2),
    }  # fmt: skip
