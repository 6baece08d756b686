"""How the tasks of a run stand: counted by name and state, on both stores."""

from __future__ import annotations

from horae.core.model import Overlap, Reason, RunFilter
from horae.core.runs.orders import NewRun, Order
from horae.ports.store import Store
from horae.testing import make_job

from .test_store import submit


def a_task(parent_id: int, task: str) -> Order:
    return Order(NewRun(1, "python", 5, Overlap.ALLOW, parent_id=parent_id, task=task))


async def test_tasks_are_counted_by_name_and_state_and_items_with_their_task(store: Store):
    await submit(store, make_job(1))
    [parent, other] = [
        one.ids[0] for one in await store.enqueue([Order(NewRun(1, "workflow", 5, Overlap.ALLOW)) for _ in range(2)])
    ]
    names = ["list2", "convert[0]", "convert[17]", "convert[200]", "a-b_c"]
    made = [receipt.ids[0] for receipt in await store.enqueue([a_task(parent, name) for name in names])]
    await store.enqueue([a_task(other, "convert[0]")])
    await store.cancel([made[0], made[2]], Reason.REQUESTED)

    tally = await store.tally_tasks(parent)

    assert tally.counts == {
        "list2": {"cancelled": 1},
        "convert": {"queued": 2, "cancelled": 1},
        "a-b_c": {"queued": 1},
    }
    assert tally.document is None
    assert tally.runs == {"list2": made[0], "convert": max(made[1:4]), "a-b_c": made[4]}
    assert (await store.tally_tasks(made[0])).counts == {}


async def test_the_runs_of_one_task_are_listed_with_its_items_and_no_others(store: Store):
    await submit(store, make_job(1))
    [parent] = (await store.enqueue([Order(NewRun(1, "workflow", 5, Overlap.ALLOW))]))[0].ids
    names = ["convert", "convert[0]", "convert[17]", "convert2", "convert2[0]", "con_ert[0]", "CONVERT[0]"]
    made = [receipt.ids[0] for receipt in await store.enqueue([a_task(parent, name) for name in names])]
    await store.cancel([made[1]], Reason.REQUESTED)

    page = await store.list_runs(RunFilter(parent_id=parent, task="convert"), None, 100)

    assert sorted(run.id for run in page.items) == made[:3]
