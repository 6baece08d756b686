"""A client of the administration contract: it sees jobs through their lives, and may be killed at any moment.

    python examples/admin_client.py --server 127.0.0.1:8080 --grpc 127.0.0.1:8090 --name me --jobs 10

For each of its jobs it creates the job and its trigger under GUIDs of its own, runs it now, watches its status until
it has ended, changes the trigger's cron, and deletes the job. The contract leaves the making of jobs to migrations, so
that goes by `/v1`; all the rest goes by gRPC.

Killed and started again, it does nothing twice: the GUIDs follow from its name and the number of the job, and every
call that changes something carries an idempotency key that follows from the GUID. What was done is answered again, not
done again. The journal only saves it the asking.
"""

from __future__ import annotations

import argparse
import http.client
import json
import logging
import os
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import grpc

from horae.wire.generated import administration_pb2 as pb  # made of administration.proto

SERVICE = "CIS.InternalServices.TaskSchedulingService.v1.TaskSchedulingService"
NAMESPACE = uuid.UUID("6f6f2c0e-5d0c-4c55-9a49-4f7a1b8a4b52")  # of all GUIDs that clients like this one make
NIGHTLY, YEARLY = "0 3 * * *", "0 3 1 1 *"
PATIENCE = 300.0  # seconds for which it tries again while the server is away

log = logging.getLogger("admin_client")
T = TypeVar("T")


class Administration:
    """The service over gRPC, and jobs by HTTP. A call that breaks off is made again: it says the same."""

    def __init__(self, server: str, address: str) -> None:
        self._server = server
        self._channel = grpc.insecure_channel(address)

    def execute(self, job_id: str, data: str, key: str) -> str:
        request = pb.ExecuteJobRequest(JobId=job_id, JobData={"value": data})
        answer = self._call("ExecuteJob", request, pb.ExecuteJobResponse, (("idempotency-key", key),))
        return str(answer.ScheduleJobStatusId)

    def status(self, status_id: str) -> Any:
        request = pb.GetJobStatusesRequest(PageSize=1, Page=1, ScheduleJobStatusId={"value": status_id})
        [found] = self._call("GetJobStatuses", request, pb.GetJobStatusesResponse).Items
        return found

    def triggers(self, job_id: str) -> list[Any]:
        found = self._call("GetTriggers", pb.GetTriggersRequest(), pb.GetTriggersResponse).Triggers
        return [trigger for trigger in found if trigger.JobId == job_id]

    def _call(self, name: str, request: Any, answer: Any, metadata: tuple[tuple[str, str], ...] = ()) -> Any:
        ask = self._channel.unary_unary(
            f"/{SERVICE}/{name}", lambda message: message.SerializeToString(), answer.FromString
        )
        return _patiently(lambda: ask(request, timeout=30, metadata=metadata, wait_for_ready=True))

    def put_job(self, document: dict[str, Any], key: str) -> dict[str, Any]:
        """Create the job of this document, or change the one with its key; then what that comes to."""
        answer = _patiently(lambda: self._ask("POST", "/v1/jobs", {"jobs": [document]}, key))
        return dict(answer["jobs"][0])

    def delete_job(self, number: int) -> None:
        _patiently(lambda: self._ask("DELETE", f"/v1/jobs/{number}"))

    def _ask(self, method: str, path: str, body: Any = None, key: str = "") -> Any:
        connection = http.client.HTTPConnection(self._server, timeout=30)
        headers = {"content-type": "application/json", **({"idempotency-key": key} if key else {})}
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            content = answer.read()
        finally:
            connection.close()
        if answer.status == 503:
            raise ConnectionError(content.decode())
        if answer.status >= 400 and (method, answer.status) != ("DELETE", 404):  # that is what we wanted
            raise SystemExit(f"{method} {path}: {answer.status} {content.decode()}")
        return json.loads(content) if content else None


def _patiently(step: Callable[[], T]) -> T:
    until = time.monotonic() + PATIENCE
    while True:
        try:
            return step()
        except (OSError, http.client.HTTPException) as error:
            if time.monotonic() > until:
                raise
            log.warning("again: %s", error)
        except grpc.RpcError as error:
            if time.monotonic() > until or error.code() not in (
                grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED
            ):  # fmt: skip
                raise
            log.warning("again: %s", error.details())
        time.sleep(0.2)


class Journal:
    """The numbers of jobs that are done, one a line. A line that was cut off says nothing: that job is seen again."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        lines = path.read_text().splitlines(keepends=True)
        self.done = {int(line) for line in lines if line.endswith("\n") and line.strip().isdigit()}

    def note(self, number: int) -> None:
        with self._path.open("a") as file:
            file.write(f"\n{number}\n")
            file.flush()
            os.fsync(file.fileno())
        self.done.add(number)


def see_through(admin: Administration, name: str, number: int, command: str) -> str:
    """The whole life of one job; return the word of its status."""
    job_id, trigger_id = (str(uuid.uuid5(NAMESPACE, f"{name}/{number}/{what}")) for what in ("job", "trigger"))

    def document(cron: str) -> dict[str, Any]:
        trigger = {"key": trigger_id, "name": "the only one", "cron": cron}
        run = command.format(name=name, number=number)
        return {"key": job_id, "name": f"{name} {number}", "steps": [{"run": run}], "triggers": [trigger]}

    made = admin.put_job(document(NIGHTLY), f"{job_id}-create")
    if made.get("deleted_at"):
        return "deleted"  # by an earlier life of ours, which did all the rest before
    status_id = admin.execute(job_id, json.dumps({"client": name}), f"{job_id}-run")
    while (status := admin.status(status_id)).Status == "InProgress":
        time.sleep(0.05)
    admin.put_job(document(YEARLY), f"{job_id}-change")
    [trigger] = admin.triggers(job_id)
    if (trigger.TriggerId, trigger.CronExpression) != (trigger_id, YEARLY):
        raise SystemExit(f"the changed trigger is {trigger}")
    admin.delete_job(made["id"])
    return str(status.Status)


def main() -> None:
    parser = argparse.ArgumentParser(description="Sees jobs through their lives.")
    parser.add_argument("--server", default="127.0.0.1:8080", help="host and port of HTTP")
    parser.add_argument("--grpc", default="127.0.0.1:8090", help="host and port of gRPC")
    parser.add_argument("--name", default="admin-client", help="of this client: its GUIDs follow from it")
    parser.add_argument("--jobs", type=int, default=3)
    parser.add_argument("--command", default="echo {name} {number}", help="what the jobs do")
    parser.add_argument("--journal", type=Path, help="file of what is done")
    given = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    journal = Journal(given.journal or Path(f"{given.name}.journal"))
    admin = Administration(given.server, given.grpc)
    for number in range(given.jobs):
        if number not in journal.done:
            log.info("job %s of %s: %s", number, given.name, see_through(admin, given.name, number, given.command))
            journal.note(number)


if __name__ == "__main__":
    main()
