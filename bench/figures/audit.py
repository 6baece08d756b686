"""How fast the audit log is sealed, and verified as a whole; and that one changed row of it is found."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator

from bench.figure import Aim, Bench, Line, Void, figure
from bench.places import Place
from horae.core.audit import Deed, Fault, Row
from horae.ports.store import Store
from horae.service.audit import Audit
from horae.service.audit.sealing import Sealer
from horae.service.metrics import Metrics
from horae.testing import START, FakeClock

TOGETHER = 1000  # rows of one append


@figure(
    "audit", "seconds to verify an audit log of so many rows, in which a changed one is found; rows sealed a second",
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
        began = time.perf_counter()
        await _judge(store, size, [])
        took = round(time.perf_counter() - began, 2)
        row_id, seq = await _change_one(place, store, size)
        await _judge(store, size, [(seq, "changed", row_id)])
        return took, round(sealed)
    finally:
        await store.close()


async def _judge(store: Store, size: int, expected: list[tuple[int, str, int | None]]) -> None:
    """Verify all rows; what is found must be this and nothing else."""
    log, cursor, checked, is_last = Audit(store, FakeClock(START), Metrics()), None, 0, False
    faults: list[Fault] = []
    while not is_last:
        check, _, is_last = await log.verify(cursor, None)
        cursor, checked, faults = str(check.place), checked + check.checked, faults + check.faults
    if checked != size:
        raise Void(f"{checked} of {size} rows were verified")
    if [(fault.seq, fault.what, fault.id) for fault in faults] != expected:
        found = [fault.message for fault in faults[:3]]
        raise Void(f"verify was to name {expected or 'no row'}; it named {len(faults)}: {found}")


async def _change_one(place: Place, store: Store, size: int) -> tuple[int, int]:
    """Change a row behind the back of the store; return its id and its number in the chain."""
    seq = size * 2 // 3
    [row] = await store.read_sealed(seq - 1, 1)
    if not isinstance(row, Row) or row.seq != seq:
        raise Void(f"there is no row {seq}")
    await place.rows(f"UPDATE audit SET subject = subject || '0' WHERE id = {row.id}")
    return row.id, seq


def _deed(number: int) -> Deed:
    change = '{"policy.timeout_seconds":[60,120],"triggers.7.schedule.cron":["0 2 * * *","30 2 * * *"]}'
    return Deed(
        "ann", 1, "token 7", "10.0.0.17", "jobs.write", "PUT /v1/jobs/{job_id}", f"bench-{number:x}", "job",
        str(number), change=change,
    )  # fmt: skip
