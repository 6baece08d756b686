"""Files that a run kept, sent as they are."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from horae.core.time import moments
from horae.errors import NotFound
from horae.service.insight.views import Artifact, Insight
from horae.web.streams import FileStream, Streams


async def send_artifact(insight: Insight, streams: Streams, run_id: int, path: str) -> FileStream:
    """`path` is that of the list; its slashes may stand as they are."""
    ref, artifact = await insight.find_artifact(run_id, path)
    first = await insight.read_artifact(ref, 0)
    if not first and artifact.size:
        raise _gone(run_id, path)
    streams.take()
    return FileStream(_pieces(insight, run_id, artifact, ref, first), streams, path, artifact.size)


async def _pieces(
    insight: Insight, run_id: int, artifact: Artifact, ref: str, piece: bytes
) -> AsyncGenerator[bytes, None]:
    offset = 0
    while offset < artifact.size:
        if not piece:  # it may have got its name, and so lie elsewhere by now
            ref, _ = await insight.find_artifact(run_id, artifact.path)
            piece = await insight.read_artifact(ref, offset)
        if not piece:
            raise _gone(run_id, artifact.path)
        yield piece
        offset += len(piece)
        piece = await insight.read_artifact(ref, offset) if offset < artifact.size else b""


def _gone(run_id: int, path: str) -> NotFound:
    return NotFound(f"the artifact {moments.quoted(path)} of run {run_id} is no longer there")
