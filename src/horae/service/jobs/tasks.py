"""How the tasks of a workflow's run stand, for people."""

from __future__ import annotations

import json
from collections import Counter

from horae.core.model import Json, Run, State
from horae.core.work.kinds import WORKFLOW
from horae.core.workflows.picture import TaskTally
from horae.core.workflows.progress import split_label
from horae.ports.store.definitions import Definitions
from horae.ports.store.runs import Runs


class Tasks:
    """Looks at them."""

    def __init__(self, runs: Runs, jobs: Definitions) -> None:
        self._runs = runs
        self._jobs = jobs

    async def of_run(self, run: Run) -> tuple[Json, TaskTally] | None:
        """Return the workflow of a run, and how its tasks stand; None of one that is none. A run that has begun shows
        the workflow as it was then, whatever became of its job."""
        if run.kind != WORKFLOW:
            return None
        tally = await self._runs.tally_tasks(run.id)
        spec: Json = json.loads(tally.document) if tally.document is not None else {}
        if "tasks" not in spec:
            jobs = await self._jobs.load_jobs([run.job_id])
            spec = jobs[0].spec if jobs else {}
        return (spec, _with_adopted(tally)) if "tasks" in spec else None


def _with_adopted(tally: TaskTally) -> TaskTally:
    """Count what was taken over from an earlier run: it succeeded there."""
    if tally.adopted is None:
        return tally
    adopted = Counter(split_label(label)[0] for label in json.loads(tally.adopted))
    counts = {name: Counter(tally.counts.get(name, {})) for name in [*tally.counts, *adopted]}
    for name, count in adopted.items():
        counts[name][State.SUCCEEDED.word] += count
    return tally._replace(counts=counts)
