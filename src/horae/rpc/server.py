"""The gRPC server of a process: the agent link, what other servers ask, contracts, health and reflection.

Messages are read by the services themselves, not by gRPC, so that bytes nobody can read are the caller's fault
(INVALID_ARGUMENT) and not ours.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2_grpc

from horae import wire
from horae.errors import ConfigError, Error, Limited, Unavailable
from horae.rpc.agents.admission import Agents
from horae.rpc.agents.nats import NatsListener
from horae.rpc.handlers import Handlers
from horae.rpc.outputs import Outputs
from horae.web.connections import most_connections
from horae.wire.generated import agents_pb2, handlers_pb2, outputs_pb2

GRACE_SECONDS = 2.0  # seconds for calls that are under way when the server stops

OPTIONS = (
    ("grpc.so_reuseport", 0),  # two processes on one port would share its callers
    ("grpc.max_receive_message_length", wire.MAX_MESSAGE),
    ("grpc.max_send_message_length", wire.MAX_MESSAGE),
    ("grpc.max_metadata_size", 16 << 10),
    ("grpc.server_handshake_timeout_ms", 15_000),
    ("grpc.max_connection_idle_ms", 300_000),  # without a call: clients connect again by themselves
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.max_ping_strikes", 0),
)


@dataclass(frozen=True, slots=True)
class Certificate:
    """PEM bytes."""

    chain: bytes
    key: bytes
    client_ca: bytes | None = None  # who signs the certificates of clients; None: they need none


class Contract(Protocol):
    """A service for clients."""

    @property
    def descriptor(self) -> Any:
        """Of the service, as its generated module has it."""

    def handlers(self) -> dict[str, Any]:
        """Method → handler."""


class RpcServer:
    def __init__(
        self,
        agents: Agents | None,
        outputs: Outputs,
        contracts: Sequence[Contract] = (),
        listener: NatsListener | None = None,
        identify: Callable[[Any], Awaitable[object]] | None = None,
        handlers: Handlers | None = None,
    ) -> None:
        """`agents` None: none are taken here. `listener` is another way in for them. `identify` refuses those who may
        not ask what there is; None: everybody may. `handlers` None: nobody is told of them."""
        self._identify = identify
        self._listener = listener
        self._agents = agents
        self._outputs, self._catalogues = outputs, handlers
        self._contracts = contracts
        self._server: Any = None

    async def start(self, address: str, certificate: Certificate | None = None, most: int | None = None) -> int:
        """Listen; return the port. `most` connections, or as many as a quarter of our files is enough for; who comes
        then is hung up on, and tries again by itself."""
        most = most_connections(1 / 4) if most is None else most
        server = self._server = grpc.aio.server(options=(*OPTIONS, ("grpc.max_allowed_incoming_connections", most)))
        server.add_generic_rpc_handlers(self._handlers())
        health_servicer = health.aio.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(health_servicer, server)
        names = self._service_names()
        for name in ("", *names):
            await health_servicer.set(name, health_pb2.HealthCheckResponse.SERVING)
        reflected = (*names, health.SERVICE_NAME, reflection.SERVICE_NAME)
        reflection_pb2_grpc.add_ServerReflectionServicer_to_server(_Reflection(reflected, self._identify), server)
        try:
            port = _listen(server, address, certificate)
        except RuntimeError as error:
            raise ConfigError(
                f"cannot listen on {address} for gRPC", code="E_LISTEN", hint="give another --grpc-port"
            ) from error
        await server.start()
        if self._listener is not None:
            self._listener.start()
        return port

    def _handlers(self) -> tuple[Any, ...]:
        outputs: dict[str, Any] = {
            _method(wire.READ_OUTPUT): grpc.unary_unary_rpc_method_handler(self._outputs.read),
            _method(wire.LIST_PIECES): grpc.unary_unary_rpc_method_handler(self._outputs.list_pieces),
        }
        handlers = [grpc.method_handlers_generic_handler(_service(wire.READ_OUTPUT), outputs)]
        if self._catalogues is not None:
            listed: Any = grpc.unary_unary_rpc_method_handler(self._catalogues.list)
            handlers.append(grpc.method_handlers_generic_handler(_service(wire.LIST_HANDLERS), {"List": listed}))
        if self._agents is not None:
            connect: Any = grpc.stream_stream_rpc_method_handler(self._agents.connect)
            handlers.append(grpc.method_handlers_generic_handler(_service(wire.CONNECT), {"Connect": connect}))
        contracts = [
            grpc.method_handlers_generic_handler(each.descriptor.full_name, each.handlers()) for each in self._contracts
        ]
        return (*handlers, *contracts)

    def _service_names(self) -> Sequence[str]:
        files = (agents_pb2, handlers_pb2, outputs_pb2)
        ours = [service.full_name for file in files for service in file.DESCRIPTOR.services_by_name.values()]
        theirs = [contract.descriptor.full_name for contract in self._contracts]
        return [*ours, *theirs]

    async def stop(self) -> None:
        """Send agents elsewhere, end what is under way, close."""
        if self._listener is not None:
            await self._listener.shut()
        if self._agents is not None:
            await self._agents.leave()
        if self._listener is not None:
            await self._listener.stop()
        if self._server is not None:
            await self._server.stop(GRACE_SECONDS)


class _Reflection(reflection.aio.ReflectionServicer):  # type: ignore[misc]
    """Tells what there is to whoever may call it."""

    def __init__(self, names: Sequence[str], identify: Callable[[Any], Awaitable[object]] | None) -> None:
        super().__init__(names)
        self._identify = identify

    async def ServerReflectionInfo(self, asked: Any, context: Any) -> AsyncIterator[Any]:
        try:
            if self._identify is not None:
                await self._identify(context)
        except Unavailable as error:
            await context.abort(grpc.StatusCode.UNAVAILABLE, error.message)
        except Limited as error:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, f"{error.code}: {error.message}")
        except Error as error:
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, f"{error.code}: {error.message}")
        async for answer in super().ServerReflectionInfo(asked, context):
            yield answer


def _listen(server: Any, address: str, certificate: Certificate | None) -> int:
    if certificate is None:
        return int(server.add_insecure_port(address))
    credentials = grpc.ssl_server_credentials(
        [(certificate.key, certificate.chain)], certificate.client_ca, certificate.client_ca is not None
    )
    return int(server.add_secure_port(address, credentials))


def _service(path: str) -> str:
    return path.split("/")[1]


def _method(path: str) -> str:
    return path.split("/")[2]
