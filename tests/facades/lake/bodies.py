"""Bodies that clients of the contract send, and the world seen through their eyes."""

from __future__ import annotations

from typing import Any

import httpx

from tests.facades.world import World

ONCE = {"class_name": "schedule_once", "start_time": 0}
NEVER = {"class_name": "none_schedule"}


def java(**changes: Any) -> dict[str, Any]:
    job = {
        "class_name": "java_job", "display_name": "build", "last_run_time": 100, "last_sync_status": "Initialized",
        "current_sync_status": "Initialized", "schedule_time": ONCE, "git_url": "https://git.example/a.git",
        "build_tool": "maven", "build_cmd": "mvn package",
    }  # fmt: skip
    return {"job": {**job, **changes}}


def sync(**changes: Any) -> dict[str, Any]:
    job = {
        "class_name": "jdbc_job", "display_name": "orders", "sync_mode": "IncrementalSync", "source_id": 0,
        "last_successful_sync": 0, "sync_interval_in_mn": 0, "last_sync_status": "Initialized",
        "current_sync_status": "Initialized", "schedule_time": ONCE, "dest_database_name": "lake",
        "dest_table_name": "orders", "destinations": ["Clickhouse"], "database_name": "shop", "table_name": "orders",
        "incremental_column": "id", "last_synced_value": "0", "max_fetch_size": 1000,
    }  # fmt: skip
    return {"job": {**job, **changes}}


def source(**changes: Any) -> dict[str, Any]:
    own = {
        "class_name": "jdbc_source", "display_name": "shop", "database_type": "MySql",
        "jdbc_url": "jdbc:mysql://root:hunter2@db:3306/shop", "username": "root", "password": "hunter2",
    }  # fmt: skip
    return {"data_source": {**own, **changes}}


class Client:
    """Asks, expects success, gives the answer's body."""

    def __init__(self, world: World) -> None:
        self.world = world

    async def ask(self, method: str, path: str, body: Any = None, status: int = 200) -> Any:
        answer = await self.send(method, path, body)
        assert answer.status_code == status, (method, path, answer.text)
        return answer.json()

    async def send(self, method: str, path: str, body: Any = None) -> httpx.Response:
        return await self.world.http.request(method, path, json=body) if body is not None else (
            await self.world.http.request(method, path)
        )  # fmt: skip

    async def refused(self, method: str, path: str, body: Any = None) -> tuple[str, str]:
        """(reason, message) of a 400."""
        answer = await self.ask(method, path, body, 400)
        assert answer["code"] == 400
        return answer["reason"], answer["message"]

    async def make(self, body: dict[str, Any], side: str = "/lake") -> int:
        return int((await self.ask("POST", f"{side}/job/create", body))["job"]["job_id"])

    async def job(self, job_id: int) -> Any:
        return (await self.ask("GET", f"/lake/job/{job_id}"))["job"]

    async def sync_job(self, job_id: int) -> Any:
        listed = await self.ask("POST", "/job/list", {"from": 0, "size": 1000})
        return next(row["job"] for row in listed["data"] if row["job"]["job_id"] == job_id)

    async def report(self, taken: Any, status: str, **more: Any) -> Any:
        """Return what a worker says of what it pulled."""
        is_sync = "sync_id" in taken
        progress = {
            "class_name": "jdbc_progress" if is_sync else "java_job_progress", "org_id": 1,
            "job_id": taken["job"]["job_id"], "start_time": 1, "updated_time": self.world.clock.now() // 1000,
            "job_status": status, **({"sync_id": taken["sync_id"]} if is_sync else {"run_id": taken["run_id"]}), **more,
        }  # fmt: skip
        return await self.ask("POST", f"{'' if is_sync else '/lake'}/schedule/job/report", progress)

    async def pull(self, side: str = "/lake") -> Any:
        return (await self.ask("GET", f"{side}/schedule/job/next")).get("data")

    async def take_back(self) -> None:
        """What a leader does with loans that ran out."""
        for loan in await self.world.store.load_overdue_loans():
            await self.world.execution.take_back(loan.worker, {loan.run_id: loan.fence})
