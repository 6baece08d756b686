"""The last read: the whole ledger through the public API, once nothing is live any more."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import httpx

from campaign.cluster import Cluster
from campaign.history import AGAIN, Attempt, Final, Run, moment

STILL = 240.0  # seconds for which nothing moves, though something is live: then it never will
QUIET = 3600.0  # seconds in which everything that waits must have come to its end, however slow the machine
LIVE = "queued,running,blocked"
AT_ONCE = 8  # requests


class Reader:
    def __init__(
        self, cluster: Cluster, talkative: set[int], followers: Collection[int] = (),
        resumed: Mapping[int, int] = MappingProxyType({}),
    ) -> None:  # fmt: skip
        self._cluster = cluster
        self._url = cluster.nodes[0].url
        self._talkative = talkative  # ids of jobs whose logs are read
        self._followers = followers  # ids of jobs whose runs are made by the ends of others
        self._resumed = resumed  # runs that go on from where others failed
        self._turn = asyncio.Semaphore(AT_ONCE)

    async def wait_until_quiet(self) -> None:
        """Return when no run is live and all output is stored, or when nothing moves any more: the ledger will tell."""
        began = moved = time.monotonic()
        before: object = None
        while time.monotonic() < min(began + QUIET, moved + STILL):
            standing = await self._standing()
            if not any(standing):
                return
            if standing != before:
                before, moved = standing, time.monotonic()
            await asyncio.sleep(0.5)

    async def _standing(self) -> tuple[list[Any], list[int], list[Path]]:
        """Return what goes on: runs, witnesses, and output that is not stored yet."""
        runs = await self._all("/v1/runs", state=LIVE, tasks="true")
        live = [(run["id"], run["state"], run["reason"], run["fence"]) for run in runs]
        return live, sorted(self._cluster.living_witnesses()), self._cluster.waiting_output()

    async def read(self) -> Final:
        alive = tuple(self._cluster.living_witnesses())
        try:
            jobs = [job["name"] for job in await self._all("/v1/jobs")]
            runs = await asyncio.gather(*(self._run(run) for run in await self._all("/v1/runs", tasks="true")))
        except (httpx.HTTPError, KeyError, ValueError) as error:
            return Final((), (), alive, f"{type(error).__name__}: {error}")
        return Final(tuple(runs), tuple(jobs), alive)

    async def _get(self, path: str, **query: Any) -> Any:
        response = await self._cluster.http.get(f"{self._url}{path}", params=query, timeout=30)
        return response.raise_for_status().json()

    async def _all(self, path: str, **query: str) -> list[Any]:
        items: list[Any] = []
        cursor: dict[str, str] = {}
        while True:
            page = await self._get(path, limit=1000, **query, **cursor)
            items += page["items"]
            if not page["cursor"]:
                return items
            cursor = {"cursor": page["cursor"]}

    async def _run(self, shown: dict[str, Any]) -> Run:
        async with self._turn:
            earlier = (await self._get(f"/v1/runs/{shown['id']}"))["attempts"] if shown["attempt"] > 1 else []
            log = await self._log(shown["id"]) if shown["job_id"] in self._talkative and shown["attempt"] else None
        run = read_run(shown, earlier, log, self._resumed.get(shown["id"]))
        return replace(run, by_hand=False) if run.job_id in self._followers else run

    async def _log(self, run_id: int) -> str:
        response = await self._cluster.http.get(f"{self._url}/v1/runs/{run_id}/log", timeout=30)
        return response.text if response.is_success else f"unreadable: {response.status_code} {response.text}"


def read_run(shown: dict[str, Any], earlier: list[dict[str, Any]], log: str | None, resumes: int | None = None) -> Run:
    finished_at, data = shown["finished_at"], shown["data"] or {}
    key = data.get("key") if resumes is None else f"{AGAIN}{resumes}"  # its data is that of the other
    return Run(
        id=shown["id"], job_id=shown["job_id"], due_at=moment(shown["due_at"]),
        state=shown["state"], reason=shown["reason"], attempt=shown["attempt"], fence=shown["fence"],
        lost=shown["lost"], created_at=moment(shown["created_at"]), log=log,
        finished_at=moment(finished_at) if finished_at else None, exit_code=shown["exit_code"],
        by_hand=shown["trigger_id"] is None and shown.get("parent_id") is None, parent_id=shown.get("parent_id"),
        task=shown.get("task"), into_run_id=shown["into_run_id"], key=key, node=shown["node"],
        resumes=resumes, result=shown["result"],
        earlier=tuple(
            Attempt(one["attempt"], one["fence"], one["state"], one["reason"], one["exit_code"]) for one in earlier
        ),
    )  # fmt: skip
