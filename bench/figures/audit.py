"""How fast the audit log is sealed, and verified as a whole."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator

from bench.figure import Aim, Bench, Line, Void, figure
from bench.places import Place
from horae.core.audit import Deed
from horae.service.audit import Audit
from horae.service.audit.sealing import Sealer
from horae.service.metrics import Metrics
from horae.testing import START, FakeClock

TOGETHER = 1000  # rows of one append


@figure(
    "audit", "seconds to verify an audit log of so many rows; rows sealed a second",
    size=[1_000_000], trials=1, quick={"size": [20_000]},
)  # fmt: skip
async def audit(bench: Bench) -> AsyncIterator[Line]:
    for size in bench["size"]:
        line = Line("audit", bench.store, "s", aim=Aim("at most", 30), detail={"rows": size})
        async with bench.places.fresh(bench.store) as place:
            try:
                line.value, line.detail["sealed_per_second"] = await _verify(place, size)
            except Void as why:
                line.void = str(why)
        yield line


async def _verify(place: Place, size: int) -> tuple[float, int]:
    store = await place.open()
    try:
        for start in range(0, size, TOGETHER):
            await store.append_audit([_deed(number) for number in range(start, start + TOGETHER)])
        sealer, began = Sealer(store.for_roles(), Metrics(), days=0), time.perf_counter()
        while await sealer.seal():
            pass
        sealed = size / (time.perf_counter() - began)
        log, cursor, checked, began = Audit(store, FakeClock(START), Metrics()), None, 0, time.perf_counter()
        is_last = False
        while not is_last:
            check, _, is_last = await log.verify(cursor, None)
            if check.faults:
                raise Void(check.faults[0].message)
            cursor, checked = str(check.place), checked + check.checked
        if checked != size:
            raise Void(f"{checked} of {size} rows were verified")
        return round(time.perf_counter() - began, 2), round(sealed)
    finally:
        await store.close()


def _deed(number: int) -> Deed:
    change = '{"policy.timeout_seconds":[60,120],"triggers.7.schedule.cron":["0 2 * * *","30 2 * * *"]}'
    return Deed(
        "ann", 1, "token 7", "10.0.0.17", "jobs.write", "PUT /v1/jobs/{job_id}", f"bench-{number:x}", "job",
        str(number), change=change,
    )  # fmt: skip
