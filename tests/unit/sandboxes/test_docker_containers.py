"""Containers of Docker that end while they are looked at."""

from __future__ import annotations

import asyncio
import os
from typing import Any, cast

import pytest
from aiodocker.exceptions import DockerError

from horae.core.model import Reason
from horae.errors import Invalid
from horae.ports.work import Exit, Limits
from horae.sandboxes.docker import Contained


class Unstarted:
    """A container that could not be started, and the process that attends it."""

    id = "c" * 64
    pid = 1

    def __init__(self) -> None:
        self.asked, self.removed = asyncio.Event(), asyncio.Event()

    async def show(self) -> dict[str, Any]:
        if not self.asked.is_set():
            self.asked.set()
            await self.removed.wait()
        if self.removed.is_set():
            raise DockerError(404, {"message": f"No such container: {self.id}"})
        return {"State": {"Status": "created", "ExitCode": 127, "Error": "no such program"}}

    async def delete(self, **_: object) -> None:
        self.removed.set()

    async def wait(self) -> Exit:
        await self.asked.wait()
        return Exit(127)


def contained(container: Unstarted) -> Contained:
    reading, writing = os.pipe()
    os.close(reading)
    return Contained(cast(Any, container), cast(Any, container), writing, Limits())


async def test_a_container_that_is_removed_while_it_is_asked_for_has_ended() -> None:
    one = contained(Unstarted())
    assert await one.find_pid() == 0
    assert (await one.wait()).message == "the container could not be started: no such program"


async def test_a_container_that_others_removed_is_lost() -> None:
    container = Unstarted()
    container.asked.set()
    container.removed.set()
    one = contained(container)
    with pytest.raises(Invalid, match="No such container"):
        await one.find_pid()
    assert (await one.wait()).reason == Reason.LOST
