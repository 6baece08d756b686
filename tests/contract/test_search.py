"""Lists by number, where jobs stand, and sources: the same on every store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from horae.core.definitions import Sort, Submission
from horae.core.model import SECOND, Job, JobFilter, LatestRun, Phase, Run, RunFilter, Source, State
from horae.core.runs.orders import NewRun, Order, Result, Waiting
from horae.ports.store import Store
from horae.stores.parts import lists, search
from horae.testing import START, make_job

from ..claiming import claim


async def keep(store: Store, *jobs: Job) -> None:
    await store.submit([Submission(list(jobs))])


async def run(store: Store, job: Job, state: State = State.SUCCEEDED, result: str | None = None) -> int:
    """Make a run and end it so."""
    run_id = await queue(store, job)
    [claimed] = [a for a in await claim(store, "node", job.kind, (), 100) if a.run_id == run_id]
    ended = Result(run_id, claimed.fence, state, "", START, START + SECOND, 0, "", result)
    await store.finish([ended])
    return run_id


async def queue(store: Store, job: Job) -> int:
    [receipt] = await store.enqueue([Order(NewRun(job.id, job.kind, 5, 0))])
    return receipt.ids[0]


def names(found: list[Job]) -> list[str]:
    return [job.name for job in found]


async def test_jobs_are_sorted_cut_and_counted(store: Store) -> None:
    jobs = [make_job(i, name=name) for i, name in enumerate(["b", "a", "c", "a"], start=1)]
    await keep(store, *jobs)
    found = await store.search_jobs(JobFilter(), [Sort("name")], 1, 2)
    assert (names(found.items), found.total) == (["a", "b"], 4)
    assert [job.id for job in (await store.search_jobs(JobFilter(), (), 0, 9)).items] == [4, 3, 2, 1]
    first = (await store.search_jobs(JobFilter(), [Sort("name", descending=True)], 0, 1)).items
    assert names(first) == ["c"]


async def test_jobs_are_sorted_by_their_next_moment_and_those_without_come_last(store: Store) -> None:
    await keep(
        store,
        make_job(1, name="later", trigger_id=1, next_at=START + 9 * SECOND),
        make_job(2, name="never"),
        make_job(3, name="soon", trigger_id=2, next_at=START + SECOND),
    )
    found = await store.search_jobs(JobFilter(), [Sort("next_at")], 0, 9)
    assert names(found.items) == ["soon", "later", "never"]
    assert found.items[0].triggers[0].next_at == START + SECOND


async def test_jobs_are_found_by_their_latest_run_or_by_what_was_said_of_those_without_one(store: Store) -> None:
    said = {"lake": {"current_status": "Error"}}
    jobs = [make_job(i, name=name) for i, name in enumerate(["ran", "ran again", "queued", "told", "untold"], start=1)]
    await keep(store, *jobs[:3], replace(jobs[3], annotations=said), jobs[4])
    await run(store, jobs[0], State.FAILED)
    await run(store, jobs[1], State.FAILED)
    await run(store, jobs[1], State.SUCCEEDED)
    await run(store, jobs[2], State.FAILED)
    await queue(store, jobs[2])

    async def found(*states: State, words: Sequence[str | None] = (), by: str = "id") -> tuple[list[str], int]:
        runs = frozenset((state, phase) for state in states for phase in Phase)
        latest = LatestRun(runs, ("lake", "current_status"), frozenset(words), frozenset({"Error", "Initialized"}))
        got = await store.search_jobs(JobFilter(latest=latest), [Sort(by)], 0, 9)
        return names(got.items), got.total

    assert await found(State.FAILED) == (["ran"], 1)
    assert await found(State.SUCCEEDED, State.QUEUED) == (["ran again", "queued"], 2)
    assert await found(State.FAILED, words=["Error"]) == (["ran", "told"], 2)
    assert await found(words=["Initialized", None], by="next_at") == (["untold"], 1)
    assert await found(State.RUNNING) == ([], 0)


async def test_a_list_by_latest_run_is_cut_after_it_was_narrowed(store: Store) -> None:
    jobs = [make_job(i, name=f"job {i}") for i in range(1, 6)]
    await keep(store, *jobs)
    for job in jobs[1:]:
        await run(store, job)
    latest = LatestRun(frozenset({(State.SUCCEEDED, phase) for phase in Phase}), ("lake",), frozenset(), frozenset())
    found = await store.search_jobs(JobFilter(latest=latest), [Sort("id")], 1, 2)
    assert (names(found.items), found.total) == (["job 3", "job 4"], 4)
    assert (await store.search_jobs(JobFilter(latest=latest), [Sort("id")], 9, 2)).items == []


async def test_a_list_by_latest_run_that_nobody_counts_ends_with_its_page(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "FIRST_LOOKED_AT", 1)
    monkeypatch.setattr(search, "LOOKED_AT", 2)
    jobs = [make_job(i, name=f"job {i}") for i in range(1, 8)]
    await keep(store, *jobs)
    for job in jobs:
        await run(store, job)
    runs = frozenset({(State.SUCCEEDED, phase) for phase in Phase})
    latest = LatestRun(runs, ("lake",), frozenset(), frozenset(), is_counted=False)
    found = await store.search_jobs(JobFilter(latest=latest), [Sort("id")], 0, 2)
    assert (names(found.items), found.total, found.is_cut) == (["job 1", "job 2"], 3, True)
    found = await store.search_jobs(JobFilter(latest=latest), [Sort("id")], 6, 2)
    assert (names(found.items), found.total, found.is_cut) == (["job 7"], 7, False)


async def test_the_next_due_come_first_of_all_jobs_however_old_they_are(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "SORTED", 3)
    old = make_job(1, name="old and soon", trigger_id=1, next_at=START + SECOND)
    others = [make_job(i, name=f"{i}", trigger_id=i, next_at=START + i * SECOND) for i in range(5, 12)]
    resting = [make_job(2, name="rests"), make_job(3, name="rests too")]
    foreign = replace(make_job(12, name="foreign", trigger_id=12, next_at=START), org=2)
    await keep(store, old, *resting, *others, foreign, make_job(13, trigger_id=13, next_at=START))
    await store.delete_job(13)
    by_next = [Sort("next_at")]
    expected = ["old and soon", *(job.name for job in others), "rests too", "rests"]

    found = await store.search_jobs(JobFilter(), by_next, 0, 20)

    assert (names(found.items), found.total, found.is_cut, found.is_part) == (expected, 10, False, False)
    for offset in range(0, 12, 4):
        page = await store.search_jobs(JobFilter(), by_next, offset, 4)
        assert (names(page.items), page.total) == (expected[offset : offset + 4], 10)
    assert names((await store.search_jobs(JobFilter(None), by_next, 0, 2)).items) == ["foreign", "old and soon"]
    by_last = await store.search_jobs(JobFilter(), [Sort("last_at", descending=True)], 0, 20)
    assert by_last.is_part, "of this there is no index"


async def test_jobs_are_found_by_words_with_and_without_letters_in_any_order_and_case(store: Store) -> None:
    await keep(
        store, make_job(1, name="Team 99 Ärger"), make_job(2, name="team 199"), make_job(3, name="team 98_x"),
        make_job(4, name="x", key="team-99"),
    )  # fmt: skip

    async def found(words: str, *sorts: Sort) -> tuple[list[str], int]:
        it = await store.search_jobs(JobFilter(words=words), sorts or [Sort("id", descending=True)], 0, 2)
        assert {job.id for job in (await store.list_jobs(JobFilter(words=words), None, 9)).items} >= {
            job.id for job in it.items
        }
        return names(it.items), it.total

    assert await found("99 TEAM") == (["x", "team 199"], 3)
    assert await found("99 TEAM", Sort("name")) == (["Team 99 Ärger", "team 199"], 3)
    assert await found("99") == (["x", "team 199"], 3)
    assert await found("8_") == (["team 98_x"], 1)
    assert await found("_") == (["team 98_x"], 1)
    assert await found("9%") == ([], 0)


async def test_jobs_are_found_by_their_tag_with_whatever_else_is_asked(store: Store) -> None:
    def tagged(number: int, *tags: str, **fields: object) -> Job:
        job = make_job(number, **fields)  # type: ignore[arg-type]
        return replace(job, policy=replace(job.policy, tags=tags))

    await keep(
        store,
        tagged(1, "etl", name="load"),
        tagged(2, "etl", "night", name="report"),
        tagged(3, "etl2", name="other"),
        make_job(4, name="etl"),
        replace(tagged(5, "etl", name="foreign"), org=2),
        tagged(6, "etl", name="gone"),
    )
    await store.delete_job(6)
    etl = JobFilter(tag="etl")

    assert names((await store.list_jobs(etl, None, 9)).items) == ["report", "load"]
    assert names((await store.search_jobs(etl, [Sort("name")], 0, 9)).items) == ["load", "report"]
    assert names((await store.list_jobs(replace(etl, words="repo"), None, 9)).items) == ["report"]
    assert names((await store.list_jobs(replace(etl, tag="night"), None, 9)).items) == ["report"]
    assert (await store.list_jobs(replace(etl, owner="nobody"), None, 9)).items == []
    assert (await store.list_jobs(replace(etl, tag="ETL"), None, 9)).items == []
    assert names((await store.list_jobs(replace(etl, org=None), None, 9)).items) == ["foreign", "report", "load"]


async def test_a_tag_that_was_given_or_taken_is_found_at_once_and_pages_by_tag_go_on(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lists, "SCANNED", 3)
    jobs = [make_job(i, name=f"{i}") for i in range(1, 9)]
    await keep(store, *(replace(job, policy=replace(job.policy, tags=("a",))) for job in jobs))
    changed = replace((await store.load_jobs([2]))[0], version=2)
    await store.save_job(replace(changed, policy=replace(changed.policy, tags=("b", "c"))), 1)

    pages, cursor = [], None
    while True:
        page = await store.list_jobs(JobFilter(tag="a"), cursor, 2)
        pages.append(names(page.items))
        cursor = page.cursor
        if cursor is None:
            break

    assert [name for page in pages for name in page] == ["8", "7", "6", "5", "4", "3", "1"]
    assert names((await store.list_jobs(JobFilter(tag="b"), None, 9)).items) == ["2"]
    paused = replace((await store.load_jobs([2]))[0], paused=True, version=3)
    await store.save_job(paused, 2)
    assert names((await store.list_jobs(JobFilter(tag="c"), None, 9)).items) == ["2"]


async def test_jobs_are_found_by_the_queue_in_which_their_runs_wait(store: Store) -> None:
    heavy = make_job(2, name="heavy")
    await keep(store, make_job(1, name="usual"), replace(heavy, policy=replace(heavy.policy, queue="heavy")))
    for queue, expected in (("heavy", ["heavy"]), ("default", ["usual"]), ("none", [])):
        assert names((await store.list_jobs(JobFilter(queue=queue), None, 9)).items) == expected
        assert names((await store.search_jobs(JobFilter(queue=queue), [Sort("name")], 0, 9)).items) == expected


async def test_a_search_looks_for_part_of_a_name_and_takes_wildcards_as_they_are(store: Store) -> None:
    await keep(store, make_job(1, name="Nightly 100%"), make_job(2, name="nightly 1000"))
    found = await store.search_jobs(JobFilter(name="LY 100%"), (), 0, 9)
    assert (names(found.items), found.total) == (["Nightly 100%"], 1)


async def test_kinds_organisations_and_deleted_jobs_are_told_apart(store: Store) -> None:
    foreign = replace(make_job(3, name="foreign"), org=2)
    await keep(store, make_job(1, name="python"), make_job(2, name="shell", kind="shell"), foreign, make_job(4))
    await store.delete_job(4)
    assert names((await store.search_jobs(JobFilter(kinds=("shell",)), (), 0, 9)).items) == ["shell"]
    assert names((await store.search_jobs(JobFilter(not_kinds=("shell",)), (), 0, 9)).items) == ["python"]
    assert (await store.search_jobs(JobFilter(org=2), (), 0, 9)).total == 1


async def test_jobs_of_all_organisations_are_found_where_none_is_named(store: Store) -> None:
    assert (await store.search_jobs(JobFilter(org=None), (), 0, 9)).total == 0
    await keep(store, replace(make_job(1, name="a foreign one"), org=2))
    for where in (JobFilter(org=None), JobFilter(org=None, words="foreign"), JobFilter(org=None, owner="local")):
        assert (await store.search_jobs(where, (), 0, 9)).total == 1
    await keep(store, make_job(2, name="not foreign"), make_job(3, name="gone"))
    await store.delete_job(3)
    for where in (JobFilter(org=None), JobFilter(org=None, words="foreign"), JobFilter(org=None, owner="local")):
        assert (await store.search_jobs(where, [Sort("id")], 0, 9)).total == 2
        assert names((await store.list_jobs(where, None, 9)).items) == ["not foreign", "a foreign one"]
    assert names((await store.list_jobs(JobFilter(org=None, deleted=True), None, 9)).items) == ["gone"]


async def test_the_syncs_of_a_source_are_found(store: Store) -> None:
    await keep(
        store,
        make_job(1, name="one", kind="sync", spec={"source_id": 7}),
        make_job(2, name="other", kind="sync", spec={"source_id": 77}),
        make_job(3, name="not a sync", spec={"source_id": 7}),
    )
    assert names((await store.search_jobs(JobFilter(source=7), (), 0, 9)).items) == ["one"]


LONG = "a user " * 1000  # no index has so much


async def test_the_jobs_of_a_user_are_those_made_for_them_and_their_own_without_one(store: Store) -> None:
    own, made_for_ann, made_for_seven = make_job(1, name="own"), make_job(2, name="for ann"), make_job(3, name="for 7")
    await keep(
        store,
        replace(own, owner="ann"),
        replace(made_for_ann, annotations={"rpc": {"user_id": "ann"}}),
        replace(made_for_seven, owner="ann", annotations={"rpc": {"user_id": 7}}),
        replace(make_job(4, name="odd"), owner="bob", annotations={"rpc": ["no", "user"]}),
        replace(make_job(5, name="long"), annotations={"rpc": {"user_id": LONG}}),
    )
    found = {
        user: names((await store.search_jobs(JobFilter(made_for=user), (), 0, 9)).items)
        for user in ("ann", "7", "bob", LONG, LONG + "!", LONG[:64])
    }
    expected = {"ann": ["for ann", "own"], "7": ["for 7"], "bob": ["odd"], LONG: ["long"]}
    assert found == expected | {LONG + "!": [], LONG[:64]: []}


async def test_nothing_is_sorted_by_text_that_is_not_a_known_name(store: Store) -> None:
    with pytest.raises(ValueError, match="nothing is sorted by"):
        await store.search_jobs(JobFilter(), [Sort("id; DROP TABLE jobs")], 0, 9)
    with pytest.raises(ValueError, match="nothing is sorted by"):
        await store.search_runs(RunFilter(), [Sort("message")], 0, 9)


async def test_jobs_are_loaded_in_the_order_they_are_asked_for(store: Store) -> None:
    await keep(store, make_job(1), make_job(2, trigger_id=5, next_at=START), make_job(3))
    await store.delete_job(3)
    loaded = await store.load_jobs([3, 99, 1, 2])
    assert [job.id for job in loaded] == [3, 1, 2]
    assert loaded[0].deleted_at is not None
    assert loaded[2].triggers[0].id == 5
    assert await store.load_jobs([]) == []


async def test_a_job_stands_where_its_latest_run_does(store: Store) -> None:
    idle, ended, live = make_job(1), make_job(2), make_job(3)
    await keep(store, idle, ended, live)
    last = await run(store, ended, State.FAILED)
    first = await run(store, live)
    waiting = await queue(store, live)
    await queue(store, live)  # skipped: it does not count
    standing = await store.load_standing([1, 2, 3, 99])
    assert standing[1].latest is None
    assert standing[1].ended is None
    assert standing[99].latest is None
    assert standing[2].latest == standing[2].ended
    assert (ident(standing[2].latest), ident(standing[3].latest), ident(standing[3].ended)) == (last, waiting, first)


def ident(found: Run | None) -> int | None:
    return found.id if found else None


async def test_runs_are_searched_with_the_names_of_their_jobs(store: Store) -> None:
    a, b = make_job(1, name="Alpha"), make_job(2, name="Beta", kind="shell")
    foreign = replace(make_job(3, name="Alpha too"), org=2)
    await keep(store, a, b, foreign)
    runs = [await run(store, job) for job in (a, b, foreign)] + [await queue(store, a)]
    everything = await store.search_runs(RunFilter(), (), 0, 9)
    assert [found.id for found, _ in everything.items] == sorted(runs, reverse=True)
    mine = await store.search_runs(RunFilter(org=1, name="alph"), [Sort("id")], 0, 9)
    assert [(found.id, name) for found, name in mine.items] == [(runs[0], "Alpha"), (runs[3], "Alpha")]
    by_name = await store.search_runs(RunFilter(org=1), [Sort("name", descending=True)], 0, 1)
    assert (by_name.items[0][1], by_name.total) == ("Beta", 3)
    assert (await store.search_runs(RunFilter(kinds=("shell",)), (), 0, 9)).total == 1


async def test_every_page_of_a_search_has_its_own_runs_also_past_the_first(store: Store) -> None:
    job = make_job(1)
    await keep(store, job)
    runs = [await run(store, job) for _ in range(7)]
    pages = [(await store.search_runs(RunFilter(), [Sort("id")], at, 3)).items for at in (0, 3, 6, 9)]
    assert [[found.id for found, _ in page] for page in pages] == [runs[0:3], runs[3:6], runs[6:7], []]


async def test_lost_attempts_are_listed_newest_first_with_their_run(store: Store) -> None:
    job = make_job(1)
    await keep(store, job)
    run_id = await queue(store, job)
    [claimed] = await claim(store, "node", "python", (), 1)
    lost = Result(run_id, claimed.fence, State.FAILED, "lost", START, START + SECOND, message="its agent died")
    await store.finish([], [Waiting(lost, None, lost=True)])
    [(attempt, now)] = await store.list_lost(10)
    assert (attempt.node, attempt.reason, now.id, now.state) == ("node", "lost", run_id, State.QUEUED)


async def test_a_source_is_kept_changed_found_and_deleted_within_its_organisation(store: Store) -> None:
    made = await store.add_source(Source(0, 1, "me", "Orders", "jdbc_source", {"url": "x"}, START, START))
    assert made.id > 0
    assert await store.get_source(1, made.id) == made
    assert await store.get_source(2, made.id) is None
    changed = replace(made, name="orders 2", config={"url": "y"}, updated_at=START + 1)
    assert await store.save_source(changed)
    assert not await store.save_source(replace(changed, org=2))
    await store.add_source(replace(made, name="other"))
    found = await store.search_sources(1, "ORD", [Sort("name")], 0, 9)
    assert (found.items, found.total) == ([changed], 1)
    assert not await store.delete_source(2, made.id)
    assert await store.delete_source(1, made.id)
    assert (await store.search_sources(1, None, (), 0, 9)).total == 1


async def test_tombstones_are_listed_when_they_are_asked_for(store: Store) -> None:
    await keep(store, make_job(1, name="here"), make_job(2, name="gone"))
    await store.delete_job(2)
    assert names((await store.list_jobs(JobFilter(deleted=True), None, 9)).items) == ["gone"]
    assert names((await store.search_jobs(JobFilter(), (), 0, 9)).items) == ["here"]


async def test_runs_are_found_by_the_node_that_ran_them(store: Store) -> None:
    job = make_job(1)
    await keep(store, job)
    ran = await run(store, job)
    await queue(store, job)
    found = await store.search_runs(RunFilter(nodes=("other", "node")), (), 0, 9)
    assert [each.id for each, _ in found.items] == [ran]
    assert (await store.search_runs(RunFilter(nodes=("other",)), (), 0, 9)).total == 0


# ── attempts ──


async def test_each_attempt_at_a_run_is_an_item_and_keeps_its_number(store: Store) -> None:
    job = make_job(1, name="Alpha")
    await keep(store, job)

    async def seen() -> list[tuple[int, State | None]]:
        found = await store.search_tries(RunFilter(org=1), [Sort("id")], 0, 9)
        assert found.total == len(found.items)
        return [(it.number, it.past.state if it.past else None) for it in found.items]

    run_id = await queue(store, job)
    assert await seen() == [(1, None)]
    for lost in (1, 2):
        [claimed] = await claim(store, "n1", "python", [], 1)
        assert (await seen())[0] == (lost, None)
        now = await store.now()
        ended = Result(run_id, claimed.fence, State.FAILED, "lost", now, now)
        await store.finish([], [Waiting(ended, None, lost=True)])
        assert (await seen())[:2] == [(lost + 1, None), (lost, State.FAILED)]
    await store.cancel([run_id], "requested")  # the third never began
    assert await seen() == [(3, None), (2, State.FAILED), (1, State.FAILED)]
    page = await store.search_tries(RunFilter(), [Sort("id")], 1, 1)
    assert ([it.number for it in page.items], page.total) == ([2], 3)


async def test_the_last_success_of_a_job_and_the_organisations_that_have_jobs_are_found(store: Store) -> None:
    a, b = make_job(1), replace(make_job(2), org=7)
    await keep(store, a, b)
    await run(store, a)
    last = await store.get_run(await run(store, a))
    assert last is not None
    assert await store.load_successes([1, 2]) == {1: last.finished_at}
    assert [await store.next_org(after) for after in (0, 1, 7)] == [1, 7, None]
