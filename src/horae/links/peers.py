"""Other servers of the cluster, asked over gRPC. A channel per node is kept; nothing is loaded before it is needed."""

from __future__ import annotations

from typing import Any

from horae import wire
from horae.core.model import Node
from horae.core.work.catalogues import HandlerList
from horae.errors import Invalid, NotFound, Unavailable
from horae.ports.outputs import Written

ASK_SECONDS = 10.0
HANDLERS_SECONDS = 2.0
LONGEST_BACKOFF = 1000  # ms before a node that was away is tried again


class GrpcPeers:
    def __init__(self, secret: str, authority: bytes | None = None, own: tuple[bytes, bytes] | None = None) -> None:
        """`secret` is what servers of a cluster have in common; `authority` (PEM) makes it TLS, `own` are key and
        certificate (PEM) to show there."""
        self._secret = secret
        self._authority = authority
        self._own = own
        self._channels: dict[str, Any] = {}

    async def read_output(self, node: Node, ref: str, offset: int, limit: int) -> bytes:
        import grpc  # slow to load, and most nodes are alone

        from horae.wire.generated import outputs_pb2 as pb

        try:
            answer = await self._ask(node, wire.READ_OUTPUT, pb.ReadOutput(ref=ref, offset=offset, limit=limit))
        except grpc.aio.AioRpcError as error:
            raise _translated(node, error) from error
        return bytes(pb.OutputBytes.FromString(answer).data)

    async def list_pieces(self, node: Node, ref: str, offset: int, limit: int) -> list[Written]:
        import grpc

        from horae.wire.generated import outputs_pb2 as pb

        try:
            answer = await self._ask(node, wire.LIST_PIECES, pb.ListPieces(ref=ref, offset=offset, limit=limit))
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.UNIMPLEMENTED:
                return []
            raise _translated(node, error) from error
        return [Written(piece.offset, piece.at) for piece in pb.Pieces.FromString(answer).pieces]

    async def list_handlers(self, server: Node, node: str) -> HandlerList | None:
        import grpc

        from horae.wire.generated import handlers_pb2 as pb
        from horae.wire.handlers import read_handlers

        try:
            answer = await self._ask(server, wire.LIST_HANDLERS, pb.ListHandlers(node=node), HANDLERS_SECONDS)
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.UNIMPLEMENTED:
                return None
            raise Unavailable(error.details() or error.code().name) from error
        told = pb.HandlerList.FromString(answer)
        return None if told.unknown else read_handlers(told)

    async def _ask(self, node: Node, path: str, question: Any, seconds: float = ASK_SECONDS) -> bytes:
        call = self._channel(node.grpc).unary_unary(path)
        metadata = ((wire.SECRET_HEADER, self._secret),)
        answer: bytes = await call(question.SerializeToString(), timeout=seconds, metadata=metadata)
        return answer

    def _channel(self, address: str) -> Any:
        import grpc

        if address not in self._channels:
            options = [
                ("grpc.max_receive_message_length", wire.MAX_MESSAGE),
                ("grpc.enable_http_proxy", 0),
                ("grpc.max_reconnect_backoff_ms", LONGEST_BACKOFF),
            ]
            if self._authority is None:
                self._channels[address] = grpc.aio.insecure_channel(address, options=options)
            else:
                credentials = grpc.ssl_channel_credentials(self._authority, *(self._own or ()))
                self._channels[address] = grpc.aio.secure_channel(address, credentials, options=options)
        return self._channels[address]

    async def close(self) -> None:
        for channel in self._channels.values():
            await channel.close()


def _translated(node: Node, error: Any) -> Exception:
    text = error.details() or error.code().name
    if error.code().name == "NOT_FOUND":
        return NotFound(text)
    if error.code().name == "INVALID_ARGUMENT":
        return Invalid(text)
    return Unavailable(
        f"this output lies with the node {node.name}, which does not answer at {node.grpc}: {text}",
        hint=f"see whether {node.name} is up and can be reached from here",
    )
