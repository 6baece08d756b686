"""Output that lies with this server, for the other servers of the cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from horae import wire
from horae.errors import Error, Invalid, NotFound
from horae.ports.outputs import OutputReader
from horae.rpc.callers import check_peer
from horae.wire.generated import outputs_pb2 as pb

MOST_BYTES = wire.MAX_MESSAGE - (64 << 10)  # bytes in one answer
MOST_PIECES = 10_000  # of a log, in one answer


class Outputs:
    def __init__(self, files: OutputReader, secret: str) -> None:
        """`secret` is known to the servers of this cluster only."""
        self._files = files
        self._secret = secret

    async def read(self, raw: bytes, context: Any) -> bytes:
        async with _answering(context, self._secret):
            asked = pb.ReadOutput.FromString(raw)
            data = await self._files.read(asked.ref, asked.offset, min(asked.limit, MOST_BYTES))
        return pb.OutputBytes(data=data).SerializeToString()

    async def list_pieces(self, raw: bytes, context: Any) -> bytes:
        async with _answering(context, self._secret):
            asked = pb.ListPieces.FromString(raw)
            found = await self._files.written(asked.ref, max(0, asked.offset), min(asked.limit, MOST_PIECES))
        return pb.Pieces(pieces=[pb.Piece(offset=one.offset, at=one.at) for one in found]).SerializeToString()


@asynccontextmanager
async def _answering(context: Any, secret: str) -> AsyncIterator[None]:
    """Only servers of this cluster are answered; what goes wrong is told by its code."""
    await check_peer(context, secret, "read output")
    try:
        yield
    except (DecodeError, Invalid) as error:
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
    except NotFound as error:
        await context.abort(grpc.StatusCode.NOT_FOUND, error.message)
    except Error as error:
        await context.abort(grpc.StatusCode.UNAVAILABLE, error.message)
