"""How the tasks of a workflow's run stand, for people; and the children of a run on every agent, which are shown alike:
each as a task by the name of its agent."""

from __future__ import annotations

import json
from collections import Counter

from horae.core.model import Json, Run, State
from horae.core.work.kinds import EVERY, WORKFLOW
from horae.core.workflows.picture import TaskTally
from horae.core.workflows.progress import split_label
from horae.ports.store.definitions import Definitions
from horae.ports.store.flows import Flows
from horae.ports.store.runs import Runs


class Tasks:
    """Looks at them."""

    def __init__(self, runs: Runs, jobs: Definitions, flows: Flows) -> None:
        self._runs = runs
        self._jobs = jobs
        self._flows = flows

    async def of_run(self, run: Run) -> tuple[Json, TaskTally] | None:
        """Return the workflow of a run, and how its tasks stand; None of one that is none. A run that has begun shows
        the workflow as it was then, whatever became of its job."""
        if run.kind == EVERY:
            return await self._of_agents(run)
        if run.kind != WORKFLOW:
            return None
        tally = await self._runs.tally_tasks(run.id)
        spec: Json = json.loads(tally.document) if tally.document is not None else {}
        if "tasks" not in spec:
            jobs = await self._jobs.load_jobs([run.job_id])
            spec = jobs[0].spec if jobs else {}
        return (spec, _with_adopted(tally)) if "tasks" in spec else None

    async def _of_agents(self, run: Run) -> tuple[Json, TaskTally] | None:
        """None before it has begun: which agents there are is seen then."""
        flows = await self._flows.load_flows([run.id])
        jobs = await self._jobs.load_jobs([run.job_id])
        if not flows or not jobs:
            return None
        agents: list[str] = json.loads(flows[0].document)[EVERY]
        made = {split_label(task.task)[1]: task for task in await self._flows.load_tasks([run.id])}
        there = {name: made[number] for number, name in enumerate(agents) if number in made}
        counts = {name: {task.state.word: 1} for name, task in there.items()}
        runs = {name: task.run_id for name, task in there.items()}
        spec: Json = {"tasks": {name: {"kind": jobs[0].kind} for name in agents}}
        return spec, TaskTally(flows[0].document, None, counts, runs)


def _with_adopted(tally: TaskTally) -> TaskTally:
    """Count what was taken over from an earlier run: it succeeded there."""
    if tally.adopted is None:
        return tally
    earlier: dict[str, int] = json.loads(tally.adopted)
    adopted = Counter(split_label(label)[0] for label in earlier)
    counts = {name: Counter(tally.counts.get(name, {})) for name in [*tally.counts, *adopted]}
    for name, count in adopted.items():
        counts[name][State.SUCCEEDED.word] += count
    runs = {split_label(label)[0]: run_id for label, run_id in earlier.items()} | dict(tally.runs)
    return tally._replace(counts=counts, runs=runs)
