"""Artifacts of agents elsewhere get their names here, once their bytes are here and their run has ended.

It is done beside everything else: a large file takes a while, and nobody waits for its name, since it can be read
without. So it can be when this process dies first: then it stays without.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec
import structlog

from horae import wire
from horae.core.runs.orders import Result
from horae.errors import Error
from horae.ports.outputs import OutputWriter
from horae.service.insight.views import Artifact, artifacts_in

log = structlog.get_logger()


class Naming:
    """Of all sessions of a server."""

    def __init__(self, files: OutputWriter) -> None:
        self._files = files
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, results: Sequence[Result]) -> None:
        for result in results:
            if result.output is None or result.result is None or '"artifacts"' not in result.result:
                continue
            found = artifacts_in(msgspec.json.decode(result.result))[: wire.MAX_FILES]
            if found:
                task = asyncio.create_task(self._name(result.output, found))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _name(self, ref: str, artifacts: Sequence[Artifact]) -> None:
        try:
            for number, one in enumerate(artifacts):
                await self._files.name_file(ref, number, one.path, one.size)
        except Error as error:
            log.warning("artifacts.unnamed", output=ref, error=error.message)
