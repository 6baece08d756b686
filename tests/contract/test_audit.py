"""The audit log of both stores: rows go with the changes they tell of, are sealed into a chain, and are dropped from
the front."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from horae.core.audit import (
    COLUMNS,
    NO_HASH,
    SEALED,
    AuditFilter,
    Check,
    Deed,
    Fault,
    Head,
    Outcome,
    Place,
    Row,
    Seal,
    seal,
)  # fmt: skip
from horae.core.definitions import Idempotency, Submission
from horae.core.model import SECOND, Overlap, Policy
from horae.core.runs.orders import NewRun, Order
from horae.errors import Conflict
from horae.ports import deeds
from horae.ports.store import Store
from horae.service.audit import Audit
from horae.service.audit.sealing import Sealer
from horae.service.metrics import Metrics
from horae.stores.postgres import PostgresStore
from horae.testing import START, FakeClock, make_job

DAY = 86_400 * SECOND
EVERYTHING = AuditFilter()


def deed(request_id: str, **fields: Any) -> Deed:
    return Deed("ann", via="token 7", address="10.0.0.1", action="jobs.write", request_id=request_id, **fields)


@contextmanager
def carrying(one: Deed) -> Iterator[Deed]:
    deeds.carry(one)
    try:
        yield one
    finally:
        deeds.carry(None)


async def rows(store: Store, where: AuditFilter = EVERYTHING) -> list[Row]:
    return list(reversed(await store.list_audit(where, None, 1000)))


async def sealed(store: Store, count: int = 6) -> list[Row]:
    for number in range(count):
        await store.append_audit([deed(f"r{number}", kind="job", subject=str(number))])
    sealer = Sealer(store, Metrics(), days=0)
    assert await sealer.seal() == count
    return await read_sealed(store)


async def read_sealed(store: Store) -> list[Row]:
    found = await store.read_sealed(0, 1000)
    return [row for row in found if isinstance(row, Row)]


async def write_seal(store: Store, rows: Sequence[Row], *hashes: str | None) -> None:
    """Write the only seal there is anew, as somebody would who knows what it is."""
    ids = [row.id for row in rows]
    told = ids if isinstance(store, PostgresStore) else json.dumps(ids)
    text = "".join(each or "" for each in hashes)
    count = len(ids)
    await tamper(store, "UPDATE audit_seals SET seq = $1, count = $2, ids = $3, hashes = $4", count, count, told, text)


async def verify(store: Store, head: str | None = None) -> list[Fault]:
    faults, cursor, is_last = list[Fault](), None, False
    while not is_last:
        check, _, is_last = await Audit(store, FakeClock(START), Metrics()).verify(cursor, head)
        faults, cursor = faults + check.faults, str(check.place)
    return faults


async def tamper(store: Store, statement: str, *args: Any) -> None:
    """As somebody would who has the database."""
    await store.write(store._statement(statement), *args)  # type: ignore[attr-defined]


# ── with the change ──


async def test_a_job_and_who_submitted_it_are_written_together(store: Store) -> None:
    mine, theirs = deed("r1"), replace(deed("r2"), who="bob")
    await store.submit([Submission([make_job(1)], deed=mine), Submission([make_job(2), make_job(3)], deed=theirs)])
    found = await rows(store)
    assert [(row.who, row.made, row.amount) for row in found] == [("ann", "1", 1), ("bob", "2-3", 2)]
    assert (mine.rows, theirs.rows) == (1, 1)
    assert found[0].at == START


async def test_a_submit_that_is_a_repeat_writes_no_row_of_its_own(store: Store) -> None:
    key = Idempotency("ann POST /v1/jobs", "k", "d")
    await store.submit([Submission([make_job(1)], key, deed=deed("r1"))])
    again = deed("r2")
    [receipt] = await store.submit([Submission([make_job(2)], key, deed=again)])
    assert receipt.replayed
    assert again.rows == 0
    assert [row.request_id for row in await rows(store)] == ["r1"]


@pytest.mark.parametrize("overlap", [Overlap.ALLOW, Overlap.FORBID, Overlap.QUEUE])
async def test_a_run_by_request_and_who_asked_are_written_together(store: Store, overlap: Overlap) -> None:
    await store.submit([Submission([make_job(1, kind="shell", policy=Policy(overlap=overlap))])])
    run = NewRun(1, "shell", 5, overlap)
    one, two, three = deed("r1"), deed("r2"), deed("r3")
    [first] = await store.enqueue([Order(run, deed=one)])
    others = await store.enqueue([Order(run, deed=two), Order(run, deed=three)])
    ids = [first.ids[0], *(receipt.ids[0] for receipt in others)]
    assert [(row.request_id, row.made) for row in await rows(store)] == [
        (name, str(run_id)) for name, run_id in zip(("r1", "r2", "r3"), ids, strict=True)
    ]
    assert [each.rows for each in (one, two, three)] == [1, 1, 1]


async def test_many_runs_of_one_request_are_one_row_for_each_transaction(store: Store) -> None:
    await store.submit([Submission([make_job(1, kind="shell", policy=Policy(overlap=Overlap.ALLOW))])])
    order = Order(NewRun(1, "shell", 5, Overlap.ALLOW), deed=deed("r1", is_bulk=True))
    made = await store.enqueue_alike(order, ["1", "2", "3"])
    receipts = await store.enqueue([order, order])
    assert made is not None
    found = await rows(store)
    assert [(row.request_id, row.nth, row.amount) for row in found] == [("r1", 0, 3), ("r1", 1, 2)]
    assert found[0].made == f"{min(made.ids)}-{max(made.ids)}"
    assert found[1].made == f"{receipts[0].ids[0]}-{receipts[1].ids[0]}"


async def test_an_order_for_a_job_that_is_gone_writes_no_row(store: Store) -> None:
    asked = deed("r1")
    [receipt] = await store.enqueue([Order(NewRun(99, "shell", 5, Overlap.ALLOW), deed=asked)])
    assert not receipt.ids
    assert asked.rows == 0
    assert await rows(store) == []


async def test_a_change_that_did_nothing_writes_no_row(store: Store) -> None:
    await store.submit([Submission([make_job(1)])])
    with carrying(deed("r1")) as lost:
        assert await store.save_job(replace(make_job(1), version=3), 2) is None
    assert lost.rows == 0
    with carrying(deed("r2", change='{"name":["a","b"]}')) as won:
        assert await store.save_job(replace(make_job(1), name="b", version=2), 1) is not None
    assert won.rows == 1
    assert [(row.request_id, row.change) for row in await rows(store)] == [("r2", '{"name":["a","b"]}')]


async def test_a_change_that_fails_takes_its_row_with_it(store: Store) -> None:
    await store.submit([Submission([make_job(1, key="a"), make_job(2, key="b")])])
    with carrying(deed("r1")) as failed, pytest.raises(Conflict):
        await store.save_job(replace(make_job(2, key="a"), version=2), 1)
    assert failed.rows == 0
    assert await rows(store) == []


async def test_what_a_request_writes_first_has_its_row_and_nothing_after_that(store: Store) -> None:
    await store.submit([Submission([make_job(1), make_job(2)])])
    with carrying(deed("r1")):
        await store.save_job(replace(make_job(1), name="b", version=2), 1)
        await store.save_job(replace(make_job(2), name="b", version=2), 1)
    assert len(await rows(store)) == 1


async def test_the_same_row_is_written_once(store: Store) -> None:
    await store.append_audit([deed("r1")])
    await store.append_audit([deed("r1"), deed("r2")])
    assert [row.request_id for row in await rows(store)] == ["r1", "r2"]


async def test_texts_that_no_database_keeps_are_kept_without_them(store: Store) -> None:
    await store.append_audit([deed("r1", subject="a\x00b\ud800c\U0001f600", operation="x" * 5000)])
    [row] = await rows(store)
    assert row.subject == "a?b?c\U0001f600"
    assert len(row.operation) == 200


async def test_rows_are_found_by_who_what_and_when(store: Store, clock: FakeClock) -> None:
    await store.append_audit([deed("r1", kind="job", subject="7")])
    clock.advance(60)
    await store.append_audit(
        [replace(deed("r2", kind="queue", subject="7"), who="bob", org=2, outcome=Outcome.REFUSED)]
    )
    for where, expected in (
        (AuditFilter(who="bob"), ["r2"]),
        (AuditFilter(kind="job", subject="7"), ["r1"]),
        (AuditFilter(org=2), ["r2"]),
        (AuditFilter(outcome="refused"), ["r2"]),
        (AuditFilter(action="jobs.write"), ["r1", "r2"]),
        (AuditFilter(since=START + 1), ["r2"]),
        (AuditFilter(until=START + 1), ["r1"]),
        (AuditFilter(who="carl"), []),
    ):
        assert [row.request_id for row in await rows(store, where)] == expected, where
    newest = (await store.list_audit(EVERYTHING, None, 1))[0]
    assert [row.request_id for row in await store.list_audit(EVERYTHING, newest.id, 10)] == ["r1"]


# ── the chain ──


async def test_sealed_rows_are_numbered_without_gaps_and_fit_each_other(store: Store) -> None:
    found = await sealed(store)
    assert [row.seq for row in found] == [1, 2, 3, 4, 5, 6]
    assert found[0].hash == seal("0" * 64, found[0])
    assert await verify(store) == []
    assert (await store.audit_head())[:2] == (6, found[-1].hash)


async def test_of_two_leaders_that_seal_at_once_each_row_is_sealed_once(store: Store) -> None:
    await store.append_audit([deed(f"r{number}") for number in range(20)])
    counts = await asyncio.gather(*(store.seal_audit(10) for _ in range(4)))
    assert sorted(count for count, _ in counts) == [0, 0, 10, 10]
    assert [row.seq for row in await read_sealed(store)] == list(range(1, 21))
    assert await verify(store) == []


async def test_rows_say_by_what_they_are_sealed(store: Store) -> None:
    found = await sealed(store)
    await store.append_audit([deed("new")])
    listed = await rows(store)
    assert [(row.seq, row.hash) for row in listed] == [*((row.seq, row.hash) for row in found), (None, None)]


async def test_many_rows_are_sealed_in_parts_that_are_read_from_any_place(store: Store) -> None:
    await store.append_audit([deed(f"r{number}") for number in range(2 * SEALED + 3)])
    assert (await store.seal_audit(10_000))[0] == 2 * SEALED + 3
    assert [len(one) for one in [await store.read_sealed(0, 10_000), await store.read_sealed(SEALED + 1, 10)]] == [
        2 * SEALED + 3, 10
    ]  # fmt: skip
    assert (await store.read_sealed(SEALED + 1, 10))[0].seq == SEALED + 2
    assert await verify(store) == []


async def test_a_row_that_commits_late_is_sealed_after_those_that_were_faster(store: Store) -> None:
    if not isinstance(store, PostgresStore):
        pytest.skip("SQLite has one writer, and so no late row")
    import asyncpg

    slow = await asyncpg.connect(store._url)
    try:
        transaction = slow.transaction()
        await transaction.start()
        columns = (START, 1, "slow", "", "", "", "", "", "", "", 1, "", "late", 0, "done", "")
        await slow.execute(
            "INSERT INTO audit (at, org, who, via, address, action, operation, kind, subject, made, count, change, "
            "request_id, nth, outcome, code) VALUES ($1,$2,$3,$4,$5,$6,$7,$8,$9,$10,$11,$12,$13,$14,$15,$16)",
            *columns,
        )
        await store.append_audit([deed("fast")])
        sealer = Sealer(store, Metrics(), days=0)
        assert await sealer.seal() == 1
        await transaction.commit()
        assert await sealer.seal() == 1
    finally:
        await slow.close()
    found = await read_sealed(store)
    assert [row.request_id for row in found] == ["fast", "late"]
    assert found[1].id < found[0].id
    assert await verify(store) == []


async def test_ids_that_nobody_can_fill_any_more_are_not_looked_for(store: Store) -> None:
    if not isinstance(store, PostgresStore):
        pytest.skip("SQLite has one writer, and so no late row")
    sealer = Sealer(store, Metrics(), days=0)
    await store.append_audit([deed("a")])
    await store.append_audit([deed("a"), deed("b")])  # the id of the first is lost
    assert await sealer.seal() == 2
    assert len(json.loads((await store.read("SELECT holes FROM audit_head"))[0][0])) == 1
    async with asyncio.timeout(20):  # other tests have transactions on the same server
        for number in count():
            await store.append_audit([deed(f"c{number}")])
            assert await sealer.seal() == 1
            if (await store.read("SELECT holes FROM audit_head"))[0][0] == "[]":
                break
    assert await verify(store) == []


async def test_a_changed_row_is_named(store: Store) -> None:
    found = await sealed(store)
    await tamper(store, "UPDATE audit SET who = 'nobody' WHERE id = $1", found[2].id)
    assert [(fault.seq, fault.what) for fault in await verify(store)] == [(3, "changed")]


async def test_a_removed_row_is_named_and_those_after_it_are_still_looked_at(store: Store) -> None:
    found = await sealed(store)
    await tamper(store, "DELETE FROM audit WHERE id = $1", found[3].id)
    assert [(fault.seq, fault.what) for fault in await verify(store)] == [(4, "missing")]
    await tamper(store, "UPDATE audit SET who = 'nobody' WHERE id = $1", found[4].id)
    assert [(fault.seq, fault.what) for fault in await verify(store)] == [(4, "missing"), (5, "changed")]


async def test_a_row_that_was_taken_out_of_its_seal_too_is_named_by_the_next(store: Store) -> None:
    found = await sealed(store)
    await tamper(store, "DELETE FROM audit WHERE id = $1", found[3].id)
    left = [*found[:3], *found[4:]]
    await write_seal(store, left, *(row.hash for row in left))
    faults = await verify(store)
    assert (4, "changed") in [(fault.seq, fault.what) for fault in faults]


async def test_a_row_that_was_put_in_is_named_even_if_its_hash_is_right(store: Store) -> None:
    found = await sealed(store)
    await store.append_audit([deed("false")])
    [false] = await store.list_audit(EVERYTHING, None, 1)
    assert found[2].hash is not None
    hashes = [row.hash for row in found]
    await write_seal(store, [*found[:3], false, *found[3:]], *hashes[:3], seal(found[2].hash, false), *hashes[3:])
    assert (4, "inserted") in [(fault.seq, fault.what) for fault in await verify(store)]


async def test_a_row_that_was_put_in_between_and_is_in_no_seal_is_named(store: Store) -> None:
    await sealed(store)
    columns = ", ".join(COLUMNS).replace("request_id", "'false'")
    await tamper(
        store,
        f"INSERT INTO audit (id, at, {', '.join(COLUMNS)}) SELECT -7, at, {columns} FROM audit WHERE request_id = $1",
        "r3",
    )
    assert [(fault.what, fault.id) for fault in await verify(store)] == [("inserted", -7)]


async def test_rows_that_changed_places_are_named(store: Store) -> None:
    found = await sealed(store)
    moved = [*found[:2], found[3], found[2], *found[4:]]
    await write_seal(store, moved, *(row.hash for row in moved))
    assert {3, 4} <= {fault.seq for fault in await verify(store)}


async def test_rows_cut_off_at_the_end_are_named(store: Store) -> None:
    found = await sealed(store)
    await tamper(store, "DELETE FROM audit WHERE id > $1", found[3].id)
    assert [(fault.seq, fault.what) for fault in await verify(store)] == [(5, "missing")]


async def test_rows_cut_off_with_their_seal_are_named_by_the_head(store: Store) -> None:
    found = await sealed(store)
    await tamper(store, "DELETE FROM audit WHERE id > $1", found[3].id)
    await write_seal(store, found[:4], *(row.hash for row in found[:4]))
    assert [(fault.seq, fault.what) for fault in await verify(store)] == [(5, "missing")]


async def test_a_cut_that_moved_the_head_too_is_seen_by_a_head_that_was_written_down(store: Store) -> None:
    found = await sealed(store)
    written = f"6:{found[-1].hash}"
    await tamper(store, "DELETE FROM audit WHERE id > $1", found[3].id)
    await write_seal(store, found[:4], *(row.hash for row in found[:4]))
    await tamper(store, "UPDATE audit_head SET seq = 4, hash = $1", found[3].hash)
    assert await verify(store) == []
    assert [(fault.seq, fault.what) for fault in await verify(store, written)] == [(5, "missing")]


async def test_a_chain_that_was_written_anew_is_seen_by_a_head_that_was_written_down(store: Store) -> None:
    found = await sealed(store)
    written = f"6:{found[-1].hash}"
    await tamper(store, "UPDATE audit SET who = 'nobody'")
    anew = Seal.of([row._replace(who="nobody") for row in found], 0, NO_HASH)
    await write_seal(store, found, anew.hashes)
    await tamper(store, "UPDATE audit_head SET hash = $1", anew.last_hash)
    assert await verify(store) == []
    assert [fault.seq for fault in await verify(store, written)] == [6]


async def test_a_seal_that_was_taken_out_is_named_and_the_walk_goes_on(store: Store) -> None:
    for number in range(3):
        await store.append_audit([deed(f"a{number}"), deed(f"b{number}")])
        await store.seal_audit(10)
    await tamper(store, "DELETE FROM audit_seals WHERE seq = $1", 4)
    assert [(fault.seq, fault.what) for fault in await verify(store)] == [
        (3, "missing"), (2, "inserted"), (2, "inserted")
    ]  # fmt: skip


# ── retention ──


async def test_old_rows_go_from_the_front_and_the_rest_still_fits(store: Store, clock: FakeClock) -> None:
    old = await sealed(store, 3)
    clock.advance(10 * 86_400)
    await store.append_audit([deed("new")])
    sealer = Sealer(store, Metrics(), days=5)
    await sealer.seal()
    assert not await sealer.drop()
    head = await store.audit_head()
    assert (head.first_seq, head.first_hash) == (3, old[-1].hash)
    assert [row.request_id for row in await read_sealed(store)] == ["new"]
    assert await verify(store) == []
    assert [(row.action, row.amount) for row in await rows(store)][-1] == ("audit.drop", 3)
    await sealer.drop()
    assert (await store.audit_head()).first_seq == 3


async def test_unsealed_rows_are_never_dropped(store: Store, clock: FakeClock) -> None:
    await store.append_audit([deed("old")])
    clock.advance(10 * 86_400)
    await Sealer(store, Metrics(), days=1).drop()
    assert [row.request_id for row in await rows(store)] == ["old"]


async def test_a_walk_along_the_chain_goes_on_from_its_cursor(store: Store) -> None:
    found = await sealed(store)
    whole = Check(Place(0, "0" * 64))
    whole.see(found[:3])
    rest = Check(whole.place)
    rest.see(found[3:])
    rest.end(Head(6, found[-1].hash or ""))
    assert (whole.faults, rest.faults, rest.checked) == ([], [], 3)
