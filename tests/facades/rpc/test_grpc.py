"""The RPC contract over gRPC: a real server, a client made from the .proto, reflection, statuses, tokens."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

import horae.wire
from horae.contracts.rpc.calls import Calls
from horae.contracts.rpc.grpc import METHODS, Scheduling
from horae.core.model import State
from horae.rpc.callers import Callers
from horae.rpc.outputs import Outputs
from horae.rpc.server import RpcServer
from horae.wire.generated import scheduling_pb2 as pb
from tests.facades.world import NODE, World

PROTO = Path(horae.wire.__file__).parent / "horae" / "v1" / "scheduling.proto"
NOOP = "horae.handlers:noop"


class Caller:
    """A client of the service, through the messages that are committed."""

    def __init__(self, port: int, **metadata: str) -> None:
        self.channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}")
        self._metadata = tuple(metadata.items())

    async def __call__(self, name: str, request: Any, kind: Any) -> Any:
        method = self.channel.unary_unary(
            f"/horae.v1.Scheduling/{name}",
            request_serializer=lambda message: message if isinstance(message, bytes) else message.SerializeToString(),
            response_deserializer=kind.FromString,
        )
        return await method(request, metadata=self._metadata)

    async def refused(self, name: str, request: Any) -> tuple[grpc.StatusCode, str]:
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await self(name, request, pb.Job)
        return error.value.code(), (error.value.details() or "").partition(":")[0]


async def serve(world: World, *, needs_login: bool, most: int | None = None) -> tuple[RpcServer, int]:
    callers = Callers(world.services.access, world.audit, lambda _: not needs_login)
    contract = Scheduling(Calls(world.services), callers)
    server = RpcServer(None, Outputs(world.files, "secret"), (contract,))
    return server, await server.start("127.0.0.1:0", most=most)


@pytest.fixture
async def port(world: World) -> AsyncIterator[int]:
    server, port = await serve(world, needs_login=False)
    yield port
    await server.stop()


@pytest.fixture
async def client(port: int) -> AsyncIterator[Caller]:
    caller = Caller(port)
    yield caller
    await caller.channel.close()


async def submit(client: Caller, user: str = "ann", schedule: str | None = "1h") -> int:
    request = pb.SubmitJobRequest(user_id=user, schedule=schedule, code_location=NOOP)
    return int((await client("SubmitJob", request, pb.SubmitJobReply)).job_id)


async def test_resources_are_numbers_by_name(client: Caller, world: World) -> None:
    asked = {"gpu": 1, "cpus": 1.5, "memory": 2**29}
    request = pb.SubmitJobRequest(user_id="ann", code_location=NOOP, resources=asked)
    made = await client("SubmitJob", request, pb.SubmitJobReply)
    assert (await world.jobs.get(made.job_id)).policy.resources == (("cpus", 1500), ("gpu", 1), ("memory", 2**29))
    for wrong in (float("nan"), float("inf"), -1, 0.5, 1e300):
        request = pb.SubmitJobRequest(user_id="ann", code_location=NOOP, resources={"gpu": wrong})
        assert (await client.refused("SubmitJob", request))[0] is grpc.StatusCode.INVALID_ARGUMENT


CLIENT = """
import sys, grpc
import scheduling_pb2 as pb, scheduling_pb2_grpc as api
calls = api.SchedulingStub(grpc.insecure_channel("127.0.0.1:" + sys.argv[1]))
job = calls.SubmitJob(pb.SubmitJobRequest(user_id="ann", schedule="*/5 * * * *", code_location="jobs/report")).job_id
[found] = calls.RetrieveAllJobs(pb.RetrieveAllJobsRequest(user_id="ann")).jobs
assert (found.job_id, found.job_type, found.code_location, found.status) == (job, "periodic", "jobs/report", "pending")
assert [each.job_id for each in calls.GetJobsInNext5Mins(pb.GetJobsInNext5MinsRequest()).jobs] == [job]
execution = calls.Dispatch(pb.DispatchRequest(job_id=job)).execution_id
[due] = calls.GetDueJobs(pb.GetDueJobsRequest()).executions
assert (due.execution_id, due.code_location, due.HasField("lease_seconds")) == (execution, "jobs/report", False)
[taken] = calls.TakeDueJobs(pb.TakeDueJobsRequest(worker_id="w", limit=5)).executions
assert (taken.execution_id, taken.attempt, taken.lease_seconds) == (execution, 1, 30)
written = pb.WriteLogRequest(execution_id=execution, worker_id="w", offset=0, text="hello")
assert calls.WriteLog(written).next_offset == calls.WriteLog(written).next_offset == 5
piece = calls.GetLog(pb.GetLogRequest(execution_id=execution))
assert (piece.text, piece.next_offset, piece.status) == ("hello", 5, "running")
said = calls.Heartbeat(pb.HeartbeatRequest(worker_id="w", held=pb.Executions(ids=[execution, 99])))
assert (list(said.lost), said.HasField("load")) == ([99], False)
assert calls.Heartbeat(pb.HeartbeatRequest(worker_id="w")).status == "ok"
calls.StatusUpdate(pb.StatusUpdateRequest(execution_id=execution, status="running", worker_id="w", progress=5))
assert list(calls.Cancel(pb.CancelRequest(execution_id=execution)).cancelled) == [execution]
assert list(calls.Heartbeat(pb.HeartbeatRequest(worker_id="w")).cancel) == [execution]
ended = {"status": "cancelled", "worker_id": "w", "message": "stopped", "exit_code": 143, "attempt": 1}
calls.StatusUpdate(pb.StatusUpdateRequest(execution_id=execution, **ended))
page = calls.GetExecHistory(pb.GetExecHistoryRequest(job_id=job, cursor=""))
[row] = page.executions
assert (row.message, row.exit_code, row.logs_path) == ("stopped", 143, f"/v1/runs/{execution}/log")
assert not page.HasField("cursor")
assert (row.status, row.worker_id, row.HasField("finished_at")) == ("cancelled", "w", True)
assert calls.DeleteJob(pb.DeleteJobRequest(user_id="ann", job_id=job)).deleted
print("every call was answered")
"""


async def run(*argv: str, cwd: Path) -> str:
    process = await asyncio.create_subprocess_exec(
        *argv, cwd=cwd, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    out, _ = await process.communicate()
    assert process.returncode == 0, out.decode()
    return out.decode()


async def test_a_client_made_from_the_proto_file_can_make_every_call(port: int, tmp_path: Path) -> None:
    protoc = (sys.executable, "-m", "grpc_tools.protoc", f"-I{PROTO.parent}")
    await run(*protoc, "--python_out=.", "--grpc_python_out=.", str(PROTO), cwd=tmp_path)
    (tmp_path / "client.py").write_text(CLIENT)
    assert "every call" in await run(sys.executable, "client.py", str(port), cwd=tmp_path)


async def test_the_service_is_found_by_reflection(port: int) -> None:
    def look() -> tuple[list[str], list[str]]:
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            database = ProtoReflectionDescriptorDatabase(channel)
            service = DescriptorPool(database).FindServiceByName("horae.v1.Scheduling")
            return list(database.get_services()), [method.name for method in service.methods]

    services, methods = await asyncio.to_thread(look)
    assert "horae.v1.Scheduling" in services
    assert methods == list(METHODS)


async def test_strangers_are_not_told_what_there_is(world: World) -> None:
    callers = Callers(world.services.access, world.audit, lambda _: False)
    server = RpcServer(None, Outputs(world.files, "secret"), identify=callers.identify)
    port = await server.start("127.0.0.1:0")
    _, token = await world.services.access.create("t", "user", "ann", None)

    async def ask(**metadata: str) -> int:
        request = reflection_pb2.ServerReflectionRequest(list_services="")
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            stub = reflection_pb2_grpc.ServerReflectionStub(channel)
            answers = stub.ServerReflectionInfo(iter([request]), metadata=list(metadata.items()))
            return len([each async for each in answers])

    try:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await ask()
        assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
        assert await ask(authorization=f"Bearer {token}") == 1
    finally:
        await server.stop()


async def test_what_is_wrong_is_told_by_status_and_code(client: Caller, world: World) -> None:
    job_id = await submit(client)
    before = await world.rows()
    status = grpc.StatusCode
    bad = pb.SubmitJobRequest(user_id="a", schedule="61 * * * *", code_location=NOOP)
    assert await client.refused("SubmitJob", bad) == (status.INVALID_ARGUMENT, "E_CRON_RANGE")
    assert await client.refused("SubmitJob", pb.SubmitJobRequest()) == (status.INVALID_ARGUMENT, "E_REQUIRED")
    assert await client.refused("SubmitJob", b"\xff\xff") == (status.INVALID_ARGUMENT, "E_SYNTAX")
    missing = pb.DeleteJobRequest(user_id="a", job_id=999)
    assert await client.refused("DeleteJob", missing) == (status.NOT_FOUND, "E_NOT_FOUND")
    theirs = pb.DeleteJobRequest(user_id="bob", job_id=job_id)
    assert await client.refused("DeleteJob", theirs) == (status.PERMISSION_DENIED, "E_POLICY")
    waiting = pb.DispatchRequest(job_id=job_id)
    execution = (await client("Dispatch", waiting, pb.DispatchReply)).execution_id
    early = pb.StatusUpdateRequest(execution_id=execution, status="completed")
    assert await client.refused("StatusUpdate", early) == (status.FAILED_PRECONDITION, "E_CONFLICT")
    object.__setattr__(world.services.local_node, "busy", lambda: 8)
    assert await client.refused("Dispatch", waiting) == (status.RESOURCE_EXHAUSTED, "E_LIMITED")
    assert await client.refused("DeleteJob", pb.DeleteJobRequest(user_id="a", job_id=-1)) == (
        status.INVALID_ARGUMENT,
        "E_RANGE",
    )
    assert (await world.rows())[:2] == before[:2]


async def test_a_fault_of_ours_shows_nothing_of_itself(client: Caller, world: World) -> None:
    object.__setattr__(world.services.local_node, "busy", lambda: 1 // 0)
    job_id = await submit(client)
    assert await client.refused("Dispatch", pb.DispatchRequest(job_id=job_id)) == (
        grpc.StatusCode.INTERNAL,
        "E_INTERNAL",
    )


async def test_both_faces_show_the_same(client: Caller, world: World) -> None:
    job_id = await submit(client, schedule=None)
    await world.fire()
    await world.work("python", State.SUCCEEDED)
    body = {"jsonrpc": "2.0", "id": 1, "method": "retrieve_all_jobs", "params": ["ann"]}
    [over_json] = (await world.http.post("/rpc", json=body)).json()["result"]
    [over_grpc] = (await client("RetrieveAllJobs", pb.RetrieveAllJobsRequest(user_id="ann"), pb.Jobs)).jobs
    shown = {field.name: value for field, value in over_grpc.ListFields()}
    assert shown == {name: value for name, value in over_json.items() if value not in (None, 0)}
    assert (shown["job_id"], shown["status"]) == (job_id, "completed")


async def test_a_repeat_with_the_same_key_makes_nothing_twice(port: int) -> None:
    caller = Caller(port, **{"idempotency-key": "k"})
    assert await submit(caller) == await submit(caller)
    assert await caller.refused("SubmitJob", pb.SubmitJobRequest(user_id="x", code_location=NOOP)) == (
        grpc.StatusCode.FAILED_PRECONDITION,
        "E_IDEMPOTENCY_MISMATCH",
    )
    await caller.channel.close()


GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4" + bytes(5)  # of HTTP/2, with empty settings


async def test_a_connection_beyond_the_limit_is_hung_up_on_until_others_leave(world: World) -> None:
    server, port = await serve(world, needs_login=False, most=3)
    crowd = [await asyncio.open_connection("127.0.0.1", port) for _ in range(5)]
    for _, writer in crowd:
        writer.write(GREETING)

    async with asyncio.timeout(60):
        heard = [bool(await reader.read(1)) for reader, _ in crowd]

    assert sorted(heard) == [False, False, True, True, True]

    caller = Caller(port)
    assert (await caller.refused("SubmitJob", pb.SubmitJobRequest()))[0] == grpc.StatusCode.UNAVAILABLE
    for _, writer in crowd:
        writer.close()
    async with asyncio.timeout(60):
        await caller.channel.channel_ready()
    assert await submit(caller)
    await caller.channel.close()
    await server.stop()


async def test_beyond_loopback_a_token_is_needed_and_tells_who_owns_what_is_made(world: World) -> None:
    _, token = await world.services.access.create("t", "user", "ann", None)
    _, agent = await world.services.access.create("t", "agent", "ann", None)
    server, port = await serve(world, needs_login=True)
    asked = pb.HeartbeatRequest()
    for sent, expected in (
        ({}, (grpc.StatusCode.UNAUTHENTICATED, "E_TOKEN")),
        ({"authorization": "Basic x"}, (grpc.StatusCode.UNAUTHENTICATED, "E_TOKEN")),
        ({"authorization": f"Bearer {token[:-1]}_"}, (grpc.StatusCode.UNAUTHENTICATED, "E_TOKEN")),
        ({"authorization": f"Bearer {agent}"}, (grpc.StatusCode.PERMISSION_DENIED, "E_TOKEN_SCOPE")),
    ):
        stranger = Caller(port, **sent)
        assert await stranger.refused("Heartbeat", asked) == expected
        await stranger.channel.close()
    known = Caller(port, authorization=f"Bearer {token}")
    assert (await known("Heartbeat", asked, pb.HeartbeatReply)).worker_id == NODE
    assert (await world.jobs.get(await submit(known, user="u"))).owner == "ann"
    await known.channel.close()
    await server.stop()
