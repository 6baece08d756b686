"""The lines of a remote agent over gRPC: a bidirectional stream to the server's own port."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc

from horae import wire
from horae.errors import Unavailable
from horae.links.session import Credentials, RemoteLink
from horae.links.stream import Line, LineEnded

OPTIONS = (
    ("grpc.use_local_subchannel_pool", 1),  # a new channel is a new connection, not the dead one again
    ("grpc.max_receive_message_length", wire.MAX_MESSAGE),
    ("grpc.max_send_message_length", wire.MAX_MESSAGE),
    ("grpc.enable_retries", 0),
    ("grpc.enable_http_proxy", 0),
)


class GrpcLink(RemoteLink):
    """Servers are host:port of their gRPC."""

    def _line(self, server: str) -> Line:
        return _GrpcLine(server, self._credentials)


class _GrpcLine:
    def __init__(self, server: str, credentials: Credentials) -> None:
        self._channel: Any = _channel(server, credentials)
        metadata = (("authorization", f"Bearer {credentials.login}"),) if credentials.login else ()
        self._call = self._channel.stream_stream(wire.CONNECT)(metadata=metadata)

    async def open(self, seconds: float) -> None:
        """Connect. Left to itself, the kernel repeats a call that nobody heard after 1, 3, 7 and 15 s: a new one is
        heard sooner. Why a call was refused, the first frame learns."""
        ready, failed = grpc.ChannelConnectivity.READY, grpc.ChannelConnectivity.TRANSIENT_FAILURE
        try:
            async with asyncio.timeout(seconds):
                while (state := self._channel.get_state(try_to_connect=True)) not in (ready, failed):
                    await self._channel.wait_for_state_change(state)
        except TimeoutError:
            raise Unavailable(f"no connection within {seconds:g} s") from None

    async def read(self) -> bytes | None:
        try:
            raw = await self._call.read()
        except grpc.aio.AioRpcError as error:
            raise LineEnded(error.code().name, error.details() or "") from None
        return None if raw is grpc.aio.EOF else bytes(raw)

    async def write(self, frame: bytes) -> None:
        try:
            await self._call.write(frame)
        except grpc.aio.AioRpcError as error:
            raise LineEnded(error.code().name, error.details() or "") from None
        except asyncio.InvalidStateError:
            raise Unavailable("the server ended the stream") from None

    async def close(self) -> None:
        self._call.cancel()
        await self._channel.close()


def _channel(server: str, credentials: Credentials) -> Any:
    if not credentials.is_secure:
        return grpc.aio.insecure_channel(server, options=OPTIONS)
    shown = credentials.certificate  # key and certificates are found in it by their headings
    secure = grpc.ssl_channel_credentials(credentials.authority, shown, shown)
    return grpc.aio.secure_channel(server, secure, options=OPTIONS)
