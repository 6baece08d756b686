"""Output of which the store is away: it waits on this disk, in order, and is sent after."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

import pytest

from horae.errors import Unavailable
from horae.files import ShippedFiles, open_files, shipping
from horae.files import output as output_module
from tests.contract.postgres_server import Line
from tests.engines.s3_server import S3, running_s3

pytestmark = pytest.mark.xdist_group("s3")
DEADLINE = 180.0
ROOMY = 100_000_000


@pytest.fixture(scope="module")
def s3() -> Iterator[S3]:
    with running_s3() as service:
        service.store("outputs")
        yield service


class Distance:
    """A bucket at the end of a line that is down until it is opened."""

    def __init__(self, s3: S3, spool: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port: int = free.getsockname()[1]
        self._line = Line(urlsplit(s3.endpoint).port or 0)
        self._address = f"s3://outputs/{uuid4().hex}"
        self._s3, self._spool = s3, spool
        self._is_open = False

    def node(self) -> ShippedFiles:
        """Return a node beyond the line."""
        made = open_files(self._address, endpoint=f"http://127.0.0.1:{self._port}", spool=self._spool)
        assert isinstance(made, ShippedFiles)
        return made

    def near(self) -> ShippedFiles:
        """Another one, which reaches the bucket always."""
        made = open_files(self._address, endpoint=self._s3.endpoint, spool=self._spool.with_name("other"))
        assert isinstance(made, ShippedFiles)
        return made

    async def open(self) -> None:
        await self._line.open(self._port)
        self._is_open = True

    async def close(self) -> None:
        if self._is_open:
            await self._line.close()

    def spooled(self) -> list[str]:
        return sorted(str(path.relative_to(self._spool)) for path in self._spool.rglob("*") if path.is_file())


@pytest.fixture
async def distance(s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Distance]:
    for name, value in s3.environment.items():
        if name.endswith(("ACCESS_KEY_ID", "SECRET_ACCESS_KEY")):
            monkeypatch.setenv(name, value)
    made = Distance(s3, tmp_path / "spool")
    yield made
    await made.close()


async def settled(files: ShippedFiles) -> None:
    async with asyncio.timeout(DEADLINE):
        while files.waiting:
            await asyncio.sleep(0.05)


async def test_what_the_store_could_not_take_waits_in_order_and_is_sent_after(distance: Distance) -> None:
    files = distance.node()
    output = files.open(7, 1, 3, ROOMY)
    output.write(b"a" * output_module.LARGEST_CHUNK + b"b" * output_module.LARGEST_CHUNK)
    await output.close()
    ref = files.ref(7, 1, 3)
    assert distance.spooled() == [f"{ref}/00000000", f"{ref}/00000001"]
    await distance.open()
    await settled(files)
    assert distance.spooled() == []
    assert (
        await distance.near().read(ref, 0, ROOMY)
        == b"a" * output_module.LARGEST_CHUNK + b"b" * output_module.LARGEST_CHUNK
    )


async def test_a_file_that_waited_gets_its_name_when_the_store_has_it(distance: Distance, tmp_path: Path) -> None:
    files = distance.node()
    output = files.open(7, 1, 3, ROOMY)
    data = b"a" * (output_module.LARGEST_CHUNK + 1)
    with (tmp_path / "app").open("w+b") as file:
        file.write(data)
        file.seek(0)
        assert await output.attach(0, file, len(data), "dist/app") == len(data)
    ref = files.ref(7, 1, 3)
    assert await files.read(files.file_ref(ref, 0), 0, ROOMY) == data
    await distance.open()
    await settled(files)
    near, name = distance.near(), files.artifact_ref(ref, "dist/app")
    async with asyncio.timeout(DEADLINE):
        while await near.read(name, 0, ROOMY) != data:
            await asyncio.sleep(0.05)
            near = distance.near()


async def test_a_later_chunk_never_overtakes_one_that_waits(distance: Distance) -> None:
    files, ref = distance.node(), "runs/0/7/1-3"
    await files.store_chunk(ref, 0, b"one ")
    await distance.open()
    await files.store_chunk(ref, 1, b"two ")
    await settled(files)
    await files.store_chunk(ref, 2, b"three")
    assert await distance.near().read(ref, 0, ROOMY) == b"one two three"


async def test_a_node_shows_what_waits_on_its_own_disk(distance: Distance) -> None:
    files, ref = distance.node(), "runs/0/7/1-3"
    await distance.near().store_chunk(ref, 0, b"stored ")
    await files.store_chunk(ref, 1, b"waits")
    with pytest.raises(Unavailable):  # what comes before lies in the store
        await files.read(ref, 0, 3)
    await distance.open()
    async with asyncio.timeout(DEADLINE):
        while await files.read(ref, 0, ROOMY) != b"stored waits":
            await asyncio.sleep(0.05)


@pytest.mark.parametrize(("offset", "limit", "found"), [(0, 4, b"abcd"), (4, 100, b"ef"), (2, 2, b"cd"), (9, 5, b"")])
async def test_any_part_of_what_waits_can_be_read(distance: Distance, offset: int, limit: int, found: bytes) -> None:
    files, ref = distance.node(), "runs/0/7/1-3"
    for number, data in enumerate((b"abc", b"def")):
        await files.store_chunk(ref, number, data)
    assert await files.read(ref, offset, limit) == found
    await files.settle(0)


async def test_a_new_life_sends_what_an_earlier_one_left(distance: Distance) -> None:
    before, ref = distance.node(), "runs/0/7/1-3"
    for number in range(12):
        await before.store_chunk(ref, number, b"%d " % number)
    await before.settle(0)
    after = distance.node()
    await after.take_up()
    assert after.waiting == sum(len(b"%d " % number) for number in range(12))
    await distance.open()
    await settled(after)
    assert await distance.near().read(ref, 0, ROOMY) == b"".join(b"%d " % number for number in range(12))


async def test_a_spool_that_is_full_refuses_so_that_the_writer_marks_its_gap(
    distance: Distance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shipping, "SPOOL_LIMIT", 10)
    files, ref = distance.node(), "runs/0/7/1-3"
    await files.store_chunk(ref, 0, b"0123456789")
    with pytest.raises(Unavailable, match="wait for it already"):
        await files.store_chunk(ref, 1, b"x")
    await distance.open()
    await settled(files)
    await files.store_chunk(ref, 1, b"x")
    assert await distance.near().read(ref, 0, ROOMY) == b"0123456789x"


async def test_a_log_that_is_removed_does_not_come_back(distance: Distance) -> None:
    files, ref = distance.node(), "runs/0/7/1-3"
    await files.store_chunk(ref, 0, b"gone")
    with pytest.raises(Unavailable):  # the store is away: the next round of tidying removes the rest
        await files.remove(ref)
    await distance.open()
    await files.store_chunk("runs/0/8/1-1", 0, b"here")
    await settled(files)
    assert distance.spooled() == []
    assert await distance.near().size(ref) == 0
