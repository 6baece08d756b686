"""The administration service over gRPC, on a real server, called as a foreign client would: with messages made in the
test from the .proto files, and with nothing but what reflection tells."""

from __future__ import annotations

import asyncio
import base64
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

import horae.wire
from horae.contracts.admin.grpc import Administration
from horae.contracts.admin.guids import Kind, guid
from horae.core.model import State
from horae.rpc.callers import Callers
from horae.rpc.outputs import Outputs
from horae.rpc.server import RpcServer
from tests.facades.admin.jobs import job_guid, make, run_id
from tests.facades.world import NODE, World

NAME = "CIS.InternalServices.TaskSchedulingService.v1.TaskSchedulingService"
PROTOS = Path(horae.wire.__file__).parent / "cis"


class Client:
    """Calls methods by name, with messages of a pool of its own."""

    def __init__(self, pool: descriptor_pool.DescriptorPool, address: str) -> None:
        self._service = pool.FindServiceByName(NAME)
        self._channel = grpc.aio.insecure_channel(address)

    async def call(self, name: str, login: str = "", **fields: Any) -> dict[str, Any]:
        method = self._service.methods_by_name[name]
        asked, given = (message_factory.GetMessageClass(each) for each in (method.input_type, method.output_type))
        raw = json_format.ParseDict(fields, asked()).SerializeToString()
        answer = await self.send(name, raw, login)
        return json_format.MessageToDict(given.FromString(answer), preserving_proto_field_name=True)

    async def send(self, name: str, raw: bytes, login: str = "") -> bytes:
        metadata = (("authorization", login),) if login else ()
        answer: bytes = await self._channel.unary_unary(f"/{NAME}/{name}")(raw, metadata=metadata, timeout=30)
        return answer

    async def close(self) -> None:
        await self._channel.close()


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> descriptor_pool.DescriptorPool:
    """What a client's own compiler makes of our .proto files."""
    made = tmp_path_factory.mktemp("client") / "client.pb"
    files = [f"horae/wire/generated/{path.name}" for path in sorted(PROTOS.glob("*.proto"))]
    argv = [sys.executable, "-m", "grpc_tools.protoc", f"-Ihorae/wire/generated={PROTOS}", "--include_imports"]
    subprocess.run([*argv, f"--descriptor_set_out={made}", *files], check=True)
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(made.read_bytes()).file:
        pool.Add(file)
    return pool


async def _served(world: World, *, needs_login: bool) -> tuple[RpcServer, str]:
    callers = Callers(world.services.access, world.audit, lambda _: not needs_login)
    server = RpcServer(None, Outputs(world.files, "secret"), [Administration(world.services, callers)])
    return server, f"127.0.0.1:{await server.start('127.0.0.1:0')}"


@pytest.fixture
async def address(world: World) -> AsyncIterator[str]:
    server, place = await _served(world, needs_login=False)
    yield place
    await server.stop()


@pytest.fixture
async def client(generated: descriptor_pool.DescriptorPool, address: str) -> AsyncIterator[Client]:
    made = Client(generated, address)
    yield made
    await made.close()


async def test_a_generated_client_lists_runs_and_looks_up_what_it_ran(world: World, client: Client) -> None:
    job = await make(world, "DownloadRdmCodebooks", annotations={"admin": {"description": "all of them"}})

    [shown] = (await client.call("GetJobs"))["Jobs"]
    made = await client.call("ExecuteJob", JobId=shown["JobId"], JobData='{"MaxBatchSize":1000}')
    run = await world.jobs.get_run(run_id(made["ScheduleJobStatusId"]))
    await world.work("python", State.FAILED, "no such codebook")
    [status] = (await client.call("GetJobStatuses", PageSize=10, Page=1))["Items"]

    assert shown["Description"] == "all of them"
    assert shown["JobId"] == job_guid(job)
    assert (run.pin, run.data) == (NODE, {"MaxBatchSize": 1000})
    assert status["Status"] == "Failed"
    assert status["ScheduleJobStatusId"] == made["ScheduleJobStatusId"]
    assert "no such codebook" in status["FailedMessage"]
    assert status["StartedAt"]["year"] == status["StatusChangedAt"]["year"] == 2027
    assert "TriggerId" not in status


async def test_triggers_instance_and_scheduler_answer(world: World, client: Client) -> None:
    await make(world, triggers=[{"cron": "0 3 * * *"}])

    [trigger] = (await client.call("GetTriggers"))["Triggers"]
    assert (trigger["CronExpression"], trigger["TriggerName"]) == ("0 3 * * *", "DownloadRdmCodebooks #1")
    assert await client.call("UpdateScheduler") == {}
    assert await client.call("GetInstanceStatus") == {}  # nobody has segments, and defaults are not sent


@pytest.mark.parametrize(
    ("name", "fields", "status"),
    [
        ("GetJobStatuses", {"PageSize": 0, "Page": 1}, grpc.StatusCode.INVALID_ARGUMENT),
        ("GetJobStatuses", {"PageSize": 1, "Page": -1}, grpc.StatusCode.INVALID_ARGUMENT),
        ("ExecuteJob", {"JobId": "D2166A1D"}, grpc.StatusCode.INVALID_ARGUMENT),
        ("ExecuteJob", {"JobId": "D2166A1D-94A6-45A5-BA10-F54AA51B7538"}, grpc.StatusCode.NOT_FOUND),
        ("ExecuteJob", {"JobId": guid(Kind.JOB, 999)}, grpc.StatusCode.NOT_FOUND),
        ("ExecuteJob", {"JobId": guid(Kind.TRIGGER, 1)}, grpc.StatusCode.NOT_FOUND),
    ],
)
async def test_a_mistake_has_the_status_of_the_contract(
    client: Client, name: str, fields: dict[str, Any], status: grpc.StatusCode
) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await client.call(name, **fields)
    assert refused.value.code() is status


async def test_bytes_that_are_no_message_are_the_callers_fault(client: Client) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await client.send("ExecuteJob", b"\xff\xff\xff")
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_beyond_loopback_a_user_token_is_needed_as_bearer_or_basic(
    world: World, generated: descriptor_pool.DescriptorPool
) -> None:
    server, place = await _served(world, needs_login=True)
    _, token = await world.services.access.create("noby", "user", "noby", None)
    client = Client(generated, place)
    try:
        for wrong in ("", "Basic YTph", "Basic %", "Bearer x"):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await client.call("GetJobs", login=wrong)
            assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
        basic = base64.b64encode(f"technical-user:{token}".encode()).decode()
        assert await client.call("GetJobs", login=f"Basic {basic}") == {}
        assert await client.call("GetJobs", login=f"Bearer {token}") == {}
    finally:
        await client.close()
        await server.stop()


async def test_what_another_system_takes_for_a_login_is_ignored_on_loopback(client: Client) -> None:
    assert await client.call("GetJobs", login="Basic YTph") == {}


async def test_reflection_alone_is_enough_to_call(world: World, address: str) -> None:
    """What grpcurl does: list the services, fetch the descriptors, build the request, call."""
    await make(world, "MyJob")

    def look() -> tuple[list[str], descriptor_pool.DescriptorPool]:
        with grpc.insecure_channel(address) as channel:
            database = ProtoReflectionDescriptorDatabase(channel)
            pool = descriptor_pool.DescriptorPool(database)
            pool.FindServiceByName(NAME)
            return list(database.get_services()), pool

    names, pool = await asyncio.to_thread(look)
    client = Client(pool, address)
    [job] = (await client.call("GetJobs"))["Jobs"]
    await client.close()

    assert {NAME, "grpc.health.v1.Health"} <= set(names)
    assert job["JobName"] == "MyJob"


@pytest.mark.parametrize("name", ["", NAME])
async def test_health_is_told_of_the_server_and_of_the_service(address: str, name: str) -> None:
    async with grpc.aio.insecure_channel(address) as channel:
        answer = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(service=name))
    assert answer.status == health_pb2.HealthCheckResponse.SERVING
