"""The lean claim gives what the whole one gives, wherever it is taken, and knows as much of what it gave."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from horae.core.definitions import Submission
from horae.core.model import Overlap, Policy
from horae.core.policy.queues import Queue
from horae.core.runs.orders import NewRun, Order, Want
from horae.stores.lines import Lines
from horae.stores.postgres import PostgresStore, attempts
from horae.testing import START, make_job

from ..unit.service.parts import node

WAITING = 60
RESET = "UPDATE live SET state = 0, attempt = 0, fence = 0, node = NULL, started_at = NULL WHERE state = 1"


class Said:
    """The names of the claims that were made."""

    def __init__(self, store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> None:
        self.names: list[str] = []
        names = {store.queries[name]: name for name in ("claim", "claim_lean")}
        fetch = attempts.Connection.fetch

        async def listen(connection: Any, statement: str, *given: Any, **more: Any) -> Any:
            if statement in names:
                self.names.append(names[statement])
            return await fetch(connection, statement, *given, **more)

        monkeypatch.setattr(attempts.Connection, "fetch", listen)


@pytest.fixture
def said(postgres_store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> Said:
    return Said(postgres_store, monkeypatch)


async def fill(store: PostgresStore, seed: int) -> None:
    """Runs of three kinds in three queues, of several ranks, some pinned, some for a label, some almost too late."""
    chance = Random(seed)
    for name, offset in (("fast", 3), ("slow", -3)):
        await store.add_queue(Queue(0, name, priority_offset=offset), 10)
    queues = [queue.id for queue in await store.list_queues()]
    for job_id, kind in enumerate(("python", "shell", "git"), 1):
        await store.submit([Submission([make_job(job_id, kind=kind, policy=Policy(overlap=Overlap.ALLOW))])])
    for _ in range(WAITING):
        job_id, kind = chance.choice(((1, "python"), (1, "python"), (2, "shell"), (3, "git")))
        new = NewRun(
            job_id, kind, chance.choice((4, 5, 6)), Overlap.ALLOW,
            needs=chance.choice(((), (), ("gpu",))), pin=chance.choice((None, None, None, "n1", "n2")),
            start_by=chance.choice((None, None, START - 1, START + 1)),
        )  # fmt: skip
        [receipt] = await store.enqueue([Order(new)])
        await store.write(f"UPDATE live SET queue = {chance.choice(queues)} WHERE id = {receipt.ids[0]}")


async def claimed(store: PostgresStore, wants: Sequence[Want], labels: Sequence[str]) -> tuple[Any, dict[Any, int]]:
    """Return what each want got, and how far the store knows lines to have come; all of it waits again."""
    store._lines = Lines()
    given = await store.claim(wants, labels)
    await store.write(RESET)
    return [None if got is None else sorted(a.run_id for a in got) for got in given], dict(store._lines._at)


@pytest.mark.parametrize("seed", range(6))
async def test_it_gives_the_same_runs_as_the_whole_one(
    postgres_store: PostgresStore, said: Said, monkeypatch: pytest.MonkeyPatch, seed: int
):
    store = postgres_store
    await fill(store, seed)
    line = await store.register_node(node("n1"))
    for labels in ((), ("gpu",)):
        for most in (1, 3, 7, 100):
            wants = [Want("n1", kind, most, line) for kind in ("python", "shell", "git")]
            lean = await claimed(store, wants, labels)
            with monkeypatch.context() as patch:
                patch.setattr(attempts, "_is_each_for_one", lambda wants: False)
                whole = await claimed(store, wants, labels)
            assert lean == whole
            assert any(lean[0])
    assert said.names == ["claim_lean", "claim"] * 8


async def test_a_line_that_is_over_gets_nothing_of_it(postgres_store: PostgresStore, said: Said):
    await fill(postgres_store, 1)
    line = await postgres_store.register_node(node("n1"))
    over, still = await postgres_store.claim([Want("n1", "python", 2, line - 1), Want("n1", "shell", 2, line)])
    assert over is None
    assert len(still or ()) == 2
    assert said.names == ["claim_lean"]


async def test_who_stands_by_and_who_shares_a_kind_go_by_the_whole_one(postgres_store: PostgresStore, said: Said):
    await fill(postgres_store, 2)
    await postgres_store.claim([Want("n1", "python", 2)], standby="n1")
    await postgres_store.claim([Want("n1", "python", 2), Want("n2", "python", 2)])
    assert said.names == ["claim", "claim"]


async def test_how_far_a_line_has_come_is_written_down_by_the_whole_one(postgres_store: PostgresStore, said: Said):
    await postgres_store.submit([Submission([make_job(1, kind="python", policy=Policy(overlap=Overlap.ALLOW))])])
    await postgres_store.enqueue([Order(NewRun(1, "python", 5, Overlap.ALLOW)) for _ in range(3)])
    for _ in range(3):
        await postgres_store.claim([Want("n1", "python", 1)])
    assert said.names == ["claim_lean", "claim", "claim_lean"]  # the second tells of the first
