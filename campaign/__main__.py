"""`python -m campaign`: break a real cluster for a while, then judge it.

    python -m campaign --seconds 600 --seed 7 --store postgres --nodes 3 --agents 2 --out DIR
    python -m campaign --queue nats --files s3        with a broker and an object store, broken too
    python -m campaign --store patroni                PostgreSQL that fails over, its primary killed and frozen
    python -m campaign --faults kills,clocks          some kinds of faults only
    python -m campaign check DIR        judge again what an earlier campaign left behind

Exit code 0: green. 1: RED, something that was promised did not hold. 2: UNKNOWN, too little happened to tell, or a
fault that was chosen did not really happen.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from campaign import history, patroni, spaces
from campaign.checker import GREEN, RED, Verdict, judge
from campaign.cluster import Cluster
from campaign.crowd import NOTED_LATE, Crowd
from campaign.flows import Flows
from campaign.history import OK, SUBMIT, History, Journal, Operation, Plan
from campaign.listening import Listener
from campaign.nemesis import GROUPS, Nemesis
from campaign.observer import Observer
from campaign.reading import Reader
from campaign.workload import Workload

CALM = 3.0  # seconds before the first fault
CODES = {GREEN: 0, RED: 1}
SHOWN = 20  # violations told in words; verdict.json has them all

# What must have happened for green to mean anything, per 600 seconds.
DEMANDS = {
    "kills": 200, "elections": 20, "fenced writes": 1, "lost agent": 1, "consumers killed": 20, "events told": 1000,
}  # fmt: skip
OF_SEVERAL = ("elections", "fenced writes", "lost agent")  # those that one node alone cannot have
STRAY = 150.0  # seconds after which a request that was given up has no effect any more, whatever its server met
LATE = 300.0  # seconds after its moment by which a record must exist, whatever the faults were


def parse(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m campaign", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("check", nargs="*", metavar="check DIR", help="judge an earlier campaign again")
    parser.add_argument("--seconds", type=int, default=60, help="how long there are faults")
    parser.add_argument("--patience", type=int, default=60, help="seconds more for a chosen fault that was not seen")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--store", choices=("postgres", "patroni", "sqlite"), default="postgres")
    parser.add_argument("--queue", choices=("database", "nats"), default="database")
    parser.add_argument("--files", choices=("directory", "s3"), default="directory")
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--agents", type=int, default=2, help="remote agents")
    parser.add_argument("--faults", default=",".join(GROUPS), help=f"any of {','.join(GROUPS)}")
    parser.add_argument("--outside", action="store_true", help="make no namespaces: no splits, no full disks")
    parser.add_argument("--out", type=Path, help="a directory for everything that is written down; must be empty")
    parser.add_argument("--json", action="store_true", help="the verdict as one JSON line")
    for name in DEMANDS:
        parser.add_argument(f"--min-{name.replace(' ', '-')}", type=int, help="fewer make the verdict UNKNOWN")
    arguments = parser.parse_args(argv)
    if arguments.check and (len(arguments.check) != 2 or arguments.check[0] != "check"):
        parser.error("expected nothing, or: check DIR")
    if arguments.store == "sqlite" and (arguments.nodes, arguments.agents) != (1, 0):
        arguments.nodes, arguments.agents = 1, 0  # SQLite is for one process
    arguments.faults = [group for group in arguments.faults.split(",") if group]
    if unknown := set(arguments.faults) - set(GROUPS):
        parser.error(f"expected faults of {','.join(GROUPS)}; got {','.join(sorted(unknown))}")
    if arguments.store == "patroni" and (why := patroni.missing()):
        parser.error(f"PostgreSQL under Patroni cannot be had: {why}")
    return arguments


def demands(arguments: argparse.Namespace, kinds: Sequence[str], slowness: float) -> dict[str, int]:
    """Return what must have been seen: of each fault that was chosen one, of some so many, scaled to the length and to
    the machine."""
    asked = dict.fromkeys(kinds, 1)
    for name, number in DEMANDS.items():
        given = getattr(arguments, f"min_{name.replace(' ', '_')}")
        is_possible = arguments.nodes > 1 or name not in OF_SEVERAL
        least = number * arguments.seconds / slowness // 600 or (arguments.seconds >= 60)
        asked[name] = given if given is not None else int(least) if is_possible else 0
    return {name: least for name, least in asked.items() if least}


async def campaign(arguments: argparse.Namespace, out: Path) -> None:
    """Live through it; everything is in `out` afterwards."""
    operations, faults = Journal(out / "ops.jsonl"), Journal(out / "faults.jsonl")
    cluster = Cluster(
        out, arguments.store, arguments.nodes, arguments.agents, queue=arguments.queue, files=arguments.files
    )
    workload, observer = Workload(cluster, operations, arguments.seed), Observer(cluster)
    crowd, flows = Crowd(cluster, workload, arguments.seed), Flows(cluster, workload, arguments.seed)
    listener = Listener(cluster, out / "events.jsonl", arguments.seed)
    nemesis = Nemesis(cluster, faults, arguments.seed, arguments.seconds, arguments.faults)
    times: dict[str, int] = {}
    try:
        await cluster.start()
        async with _watched(observer), listener.listening():
            await workload.begin()
            await crowd.begin()
            await flows.begin()
            await asyncio.sleep(CALM)
            over = asyncio.Event()
            async with asyncio.TaskGroup() as group:
                group.create_task(workload.run(over))
                group.create_task(crowd.run(over))
                group.create_task(flows.run(over))
                await nemesis.run(arguments.patience)
                over.set()
            await cluster.heal()
            times["healed_at"] = history.now()
            await flows.settle()
            await workload.end()
            talkative, followers = _ids(out, lambda plan: plan.talks), _ids(out, lambda plan: not plan.has_moments)
            reader = Reader(cluster, talkative, followers, history.resumed_by(_operations(out)))
            telling = asyncio.create_task(flows.tell())
            await reader.wait_until_quiet()
            telling.cancel()
            await asyncio.gather(telling, return_exceptions=True)
            await listener.catch_up()
            history.save(out / "stored.json", await listener.stored())
            times["read_at"] = history.now()
            history.save(out / "final.json", asdict(await reader.read()))
    finally:
        await cluster.close()
        meta = {
            "seed": arguments.seed, "seconds": arguments.seconds, "store": arguments.store, "queue": arguments.queue,
            "files": arguments.files, "nodes": arguments.nodes, "agents": arguments.agents,
            "faults": arguments.faults, "slowness": round(cluster.slowness, 1),
            "left_out": nemesis.left_out, "late_after": LATE, "stray": STRAY,
            "demands": demands(arguments, nemesis.kinds, cluster.slowness),
            "counts": {**observer.counts(), **listener.counts()},
            "queues": [asdict(crowd.queue)], "noted_late": NOTED_LATE, **times,
        }  # fmt: skip
        history.save(out / "meta.json", meta)
        operations.close()
        faults.close()


@asynccontextmanager
async def _watched(observer: Observer) -> AsyncIterator[None]:
    watching = asyncio.create_task(observer.run())
    try:
        yield
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


def _ids(out: Path, is_meant: Callable[[Plan], bool]) -> set[int]:
    """Jobs with such a plan."""
    return {
        one.job_id
        for one in _operations(out)
        if one.kind == SUBMIT and one.outcome == OK and one.job_id and one.plan and is_meant(one.plan)
    }


def _operations(out: Path) -> list[Operation]:
    return [history.read_operation(json.loads(line)) for line in (out / "ops.jsonl").read_text().splitlines()]


# ── telling ────────────────────────────────────────────────────────────────────────────────────────


def tell(verdict: Verdict, past: History, out: Path, *, as_json: bool) -> None:
    left_out = json.loads((out / "meta.json").read_text()).get("left_out", {})
    if as_json:
        print(json.dumps({**asdict(verdict), "left_out": left_out, "out": str(out)}))
        return
    console = Console()
    console.print(_faults(past))
    kinds = {fault.kind for fault in past.faults}
    table = Table(title="what happened", title_justify="left")
    table.add_column("count")
    table.add_column("seen", justify="right")
    for name, number in verdict.counts.items():
        if name not in kinds:
            table.add_row(name, str(number))
    console.print(table)
    for group, why in left_out.items():
        console.print(f"left out: {group}: {why}", style="yellow", markup=False, highlight=False)
    for violation in verdict.violations[:SHOWN]:
        console.print(violation.text(), style="red", markup=False, highlight=False)
    if len(verdict.violations) > SHOWN:
        console.print(f"… and {len(verdict.violations) - SHOWN} more in {out / 'verdict.json'}")
    for reason in verdict.reasons:
        console.print(reason, style="yellow", markup=False, highlight=False)
    console.print(f"verdict: {verdict.color}   ({out})", style="bold", markup=False, highlight=False)


def _faults(past: History) -> Table:
    """Every kind of fault: how often it was seen, and what was seen of it last."""
    table = Table(title="faults", title_justify="left")
    for name in ("fault", "seen", "unseen", "for example"):
        table.add_column(name)
    for kind in sorted({fault.kind for fault in past.faults}):
        every = [fault for fault in past.faults if fault.kind == kind]
        seen = [fault for fault in every if fault.happened]
        last = (seen or every)[-1]
        example = f"{last.target}, {last.seconds:.1f} s: {last.evidence}" if last.evidence else last.target
        table.add_row(kind, str(len(seen)), str(len(every) - len(seen) or ""), example)
    return table


def _out(arguments: argparse.Namespace) -> Path:
    out = (arguments.out or Path(tempfile.mkdtemp(prefix="horae-campaign-out-"))).resolve()
    out.mkdir(parents=True, exist_ok=True)
    if any(out.iterdir()):
        sys.exit(f"campaign: {out} is not empty; give another --out")
    return out


def main() -> int:
    arguments = parse(sys.argv[1:])
    if arguments.check:
        out = Path(arguments.check[1])
    else:
        _go_within(arguments)
        out = _out(arguments)
        asyncio.run(campaign(arguments, out))
    past = history.load(out)
    verdict = judge(past)
    history.save(out / "verdict.json", asdict(verdict))
    tell(verdict, past, out, as_json=arguments.json)
    return CODES.get(verdict.color, 2)


def _go_within(arguments: argparse.Namespace) -> None:
    """Where it can, a campaign goes on in namespaces of its own."""
    if spaces.is_within():
        spaces.open_loopback()
    elif not arguments.outside and not spaces.missing():
        spaces.enter(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
