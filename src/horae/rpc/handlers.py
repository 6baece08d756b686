"""The handlers of this server, and of the agents that come in through it, for the other servers of the cluster."""

from __future__ import annotations

from typing import Any

import grpc
from google.protobuf.message import DecodeError

from horae.errors import Error, NotFound
from horae.rpc.callers import check_peer
from horae.service.cluster.catalogues import Catalogues
from horae.wire.generated import handlers_pb2 as pb
from horae.wire.handlers import write_handlers


class Handlers:
    def __init__(self, catalogues: Catalogues, secret: str) -> None:
        """`secret` is known to the servers of this cluster only."""
        self._catalogues = catalogues
        self._secret = secret

    async def list(self, raw: bytes, context: Any) -> bytes:
        await check_peer(context, self._secret, "ask for handlers")
        try:
            told = await self._catalogues.read(pb.ListHandlers.FromString(raw).node)
        except DecodeError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        except NotFound as error:
            await context.abort(grpc.StatusCode.NOT_FOUND, error.message)
        except (Error, OSError) as error:
            await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
        if told is None:
            return pb.HandlerList(unknown=True).SerializeToString()
        answer = write_handlers(told.items)
        answer.left_out += told.left_out
        return answer.SerializeToString()
