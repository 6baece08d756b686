"""What it costs to let a request in and to ask whether it may do something, with very many people and grants there.

Many ask in turn, as they do on a server: fewer than it remembers, so that no answer comes from the store, and too many
for what was asked last to lie in a cache of the processor by chance.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from statistics import median
from typing import Any

from bench.figure import Aim, Bench, Line, Void, figure
from horae.app.machine import SystemClock
from horae.core.identity import User
from horae.core.model import Job, Policy, Token
from horae.core.rights import Grant, may
from horae.core.roles import Permission, Role
from horae.ports.store import Store
from horae.service.access import Access, Admitted
from horae.service.access.credentials import CACHED, hash_of, new_secret, text_of
from horae.service.access.grants import Grants

LIMIT = 5.0  # microseconds, of a check whose answer is remembered
EACH = 10  # grants of one person
TOGETHER = 500  # users that are written at once
ASKING = CACHED - 96  # people who ask in turn
LOOKED_UP = ("get_token", "get_user", "load_grants")


@figure(
    "rights",
    "a check of a request that was let in, by role or by grants, µs, many in turn; with letting in",
    registered=[100_000], size=[10_000], trials=50,
    quick={"registered": [1_000], "size": [200], "trials": 3},
)  # fmt: skip
async def rights(bench: Bench) -> AsyncIterator[Line]:
    for users in bench["registered"]:
        for grants in bench["size"]:
            async with bench.places.fresh(bench.store) as place:
                store = await place.open()
                try:
                    async for line in _lines(bench, store, users, grants):
                        yield line
                finally:
                    await store.close()


async def _lines(bench: Bench, store: Store, users: int, grants: int) -> AsyncIterator[Line]:
    check = Line("rights", bench.store, "µs", aim=Aim("at most", LIMIT), detail={"users": users, "grants": grants})
    both = Line("rights.admitted", bench.store, "µs", detail={"users": users, "grants": grants})
    try:
        await _fill(store, users, grants)
        took = await _time(store, min(users, ASKING), grants // EACH, bench["trials"])
    except Void as why:
        check.void = both.void = str(why)
    else:
        check.value, both.value = max(took["granted_us"], took["role_us"]), took["admitted_us"]
        check.detail |= took
    yield check
    yield both


async def _fill(store: Store, users: int, grants: int) -> None:
    """Those who have grants may only look by their role; all others may do without."""
    for start in range(0, users, TOGETHER):
        numbers = range(start, min(users, start + TOGETHER))
        roles = [Role.VIEWER if number < grants // EACH else Role.OPERATOR for number in numbers]
        await asyncio.gather(*(
            store.add_user(User(0, f"user-{number}", roles={1: role}))
            for number, role in zip(numbers, roles, strict=True)
        ))  # fmt: skip
    for number in range(grants):
        name = f"user-{number // EACH}"
        await store.put_grant(Grant(0, 1, name, Role.OPERATOR, tag=f"tag-{number % EACH}"))


async def _time(store: Any, asking: int, granted: int, rounds: int) -> dict[str, float]:
    """Return microseconds of each question, the median of rounds in which everybody asks once."""
    access, grants, count = Access(store, _Still()), Grants(store, _Still()), _count(store)
    job = Job(1, 1, "ann", "j", None, "shell", {}, Policy(tags=(f"tag-{EACH - 1}",)), 0, False, {}, 1, 0, 0)
    texts = []
    for start in range(0, asking, TOGETHER):
        made = (_token(store, f"user-{number}") for number in range(start, min(asking, start + TOGETHER)))
        texts += await asyncio.gather(*made)

    async def admit() -> list[Admitted]:
        return [await access.admit(text, "user", "127.0.0.1") for text in texts]

    async def admit_and_check() -> None:
        for text in texts:
            admitted = await access.admit(text, "user", "127.0.0.1")
            if not may(admitted.who, Permission.RUN):  # as web.native.organisations asks
                await grants.refuse_ungranted(admitted.who, Permission.RUN, job)

    everybody = [admitted.who for admitted in await admit()]
    with_grants, others = everybody[:granted], everybody[granted:]
    if {who.role for who in with_grants} != {Role.VIEWER} or {who.role for who in others} != {Role.OPERATOR}:
        raise Void("the tokens do not have the roles of their users")

    async def check_granted() -> None:
        for who in with_grants:
            if not may(who, Permission.RUN):
                await grants.refuse_ungranted(who, Permission.RUN, job)

    async def check_role() -> None:
        for who in others:
            if not may(who, Permission.RUN):
                await grants.refuse_ungranted(who, Permission.RUN, job)

    asks = {"admitted": admit_and_check, "granted": check_granted, "role": check_role}
    times: dict[str, list[float]] = {name: [] for name in asks}
    await admit_and_check()
    before = count()
    for _ in range(rounds):
        for name, ask in asks.items():
            times[name].append(await _seconds(ask))
    if count() != before:
        raise Void("the store was asked meanwhile: not everybody was remembered")
    people = {"admitted": asking, "granted": len(with_grants), "role": len(others)}
    found = {f"{name}_us": round(median(took) / people[name] * 1e6, 3) for name, took in times.items()}
    return {**found, **people, "rounds": rounds}


class _Still(SystemClock):
    """What was looked up stays believed, however long the looking takes; to ask it costs what it always costs."""

    def __init__(self) -> None:
        self._began = super().elapsed()

    def elapsed(self) -> float:
        SystemClock.elapsed(self)
        return self._began


async def _token(store: Store, name: str) -> str:
    """Return what a user shows, bound to the account: it may do what the user may."""
    user, secret = await store.find_user(name), new_secret()
    assert user is not None
    wanted = Token(0, "bench", "user", name, hash_of(secret), time.time_ns() // 1000, user_id=user.id)
    return text_of("u", (await store.add_token(wanted)).id, secret)


def _count(store: Any) -> Callable[[], int]:
    """Return what says how often the store was asked about somebody."""
    asked = 0

    def counted(inner: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def counting(*args: Any) -> Any:
            nonlocal asked
            asked += 1
            return await inner(*args)

        return counting

    for name in LOOKED_UP:
        setattr(store, name, counted(getattr(store, name)))
    return lambda: asked


async def _seconds(ask: Callable[[], Awaitable[None]]) -> float:
    began = time.perf_counter()
    await ask()
    return time.perf_counter() - began
