"""What every output store must do: a directory, and a bucket of a real S3 service."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import obstore
import pytest
from obstore.store import LocalStore, ObjectStore

from horae.core.model import SECOND
from horae.errors import ConfigError, Invalid, MachineFault, NotFound, Unavailable
from horae.files import ChunkedOutput, ObjectFiles, objects, open_files
from horae.files import output as writing
from tests.disks import clear, fill, needs_root, small_disk
from tests.engines.s3_server import S3, running_s3

DEADLINE = 180.0
SLACK = 2.0  # seconds: stores tell whole ones, by a clock of their own
ROOMY = 100_000_000


@dataclass(frozen=True, slots=True)
class Place:
    """Where outputs lie, seen from outside."""

    address: str
    store: ObjectStore
    endpoint: str
    spool: Path

    def open(self) -> ObjectFiles:
        return open_files(self.address, endpoint=self.endpoint, spool=self.spool)

    def stored(self) -> list[str]:
        return sorted(each["path"] for page in obstore.list(self.store) for each in page)


@pytest.fixture(scope="session")
def s3() -> Iterator[S3]:
    with running_s3() as service:
        yield service


def directory(request: pytest.FixtureRequest, path: Path) -> Place:
    return Place(str(path / "output"), LocalStore(prefix=path / "output", mkdir=True), "", path / "spool")


def bucket(request: pytest.FixtureRequest, path: Path) -> Place:
    """Return a prefix of its own in a bucket that all tests share."""
    service: S3 = request.getfixturevalue("s3")
    for name, value in service.environment.items():
        if name.endswith(("ACCESS_KEY_ID", "SECRET_ACCESS_KEY")):
            request.getfixturevalue("monkeypatch").setenv(name, value)
    prefix = uuid.uuid4().hex
    return Place(f"s3://outputs/{prefix}", service.store("outputs", prefix), service.endpoint, path / "spool")


@pytest.fixture(params=[directory, pytest.param(bucket, marks=pytest.mark.xdist_group("s3"))])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    build: Callable[[pytest.FixtureRequest, Path], Place] = request.param
    return build(request, tmp_path)


@pytest.fixture
def files(place: Place) -> ObjectFiles:
    return place.open()


@pytest.fixture
def local(tmp_path: Path) -> ObjectFiles:
    return open_files(tmp_path / "output")


async def grown(files: ObjectFiles, ref: str, size: int) -> bytes:
    """Follow a log until it has this many bytes."""
    async with asyncio.timeout(DEADLINE):
        while True:
            change = files.changed(ref)
            if await files.size(ref) >= size:
                change.cancel()
                return await files.read(ref, 0, ROOMY)
            await change


class Gate:
    """Holds back every chunk until it is opened; counts them."""

    def __init__(self, files: ObjectFiles, monkeypatch: pytest.MonkeyPatch) -> None:
        self.opened = asyncio.Event()
        self.reached = asyncio.Event()
        self._real = files.store_chunk
        monkeypatch.setattr(files, "store_chunk", self._store)

    async def _store(self, ref: str, number: int, data: bytes) -> None:
        self.reached.set()
        await self.opened.wait()
        await self._real(ref, number, data)


# ── when it was stored ──


async def test_each_piece_of_a_log_is_told_with_the_moment_at_which_it_was_stored(files: ObjectFiles) -> None:
    ref, begun = files.ref(1, 1, 1), time.time()
    for number, data in enumerate((b"one\n", b"two\nthr", b"ee\n")):
        await files.store_chunk(ref, number, data)

    found = await files.written(ref, 0, 10)

    assert [one.offset for one in found] == [0, 4, 11]
    moments = [one.at / SECOND for one in found]
    assert moments == sorted(moments)
    assert begun - SLACK <= moments[0] <= moments[-1] <= time.time() + SLACK
    assert [one.offset for one in await files.written(ref, 4, 10)] == [4, 11]
    assert [one.offset for one in await files.written(ref, 10, 1)] == [4]
    assert await files.written(ref, 500, 10) == []
    assert await files.written(files.ref(2, 1, 1), 0, 10) == []


async def test_of_a_log_with_a_hole_what_comes_before_it_is_told(files: ObjectFiles) -> None:
    ref = files.ref(1, 1, 1)
    for number in (0, 1, 3):
        await files.store_chunk(ref, number, b"x")
    assert [one.offset for one in await files.written(ref, 0, 10)] == [0, 1]


# ── removing ──


async def test_a_removed_log_is_gone_and_removing_it_again_is_no_error(files: ObjectFiles, place: Place) -> None:
    for attempt, fence in ((1, 1), (1, 11)):
        output = files.open(1, attempt, fence, ROOMY)
        output.write(b"x" * 3 * writing.CHUNK)
        await output.close()
    ref = files.ref(1, 1, 1)
    assert await files.size(ref) == 3 * writing.CHUNK

    for _ in range(2):
        await files.remove(ref)

    assert await files.size(ref) == 0
    assert await files.read(ref, 0, 100) == b""
    assert await files.size(files.ref(1, 1, 11)) == 3 * writing.CHUNK
    await files.remove(files.ref(1, 1, 11))
    assert place.stored() == []


@pytest.mark.parametrize("how", ["one", "many", "range"])
async def test_a_log_that_goes_while_it_is_looked_up_is_not_remembered(
    files: ObjectFiles, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    output = files.open(1, 1, 1, ROOMY)
    output.write(b"text")
    await output.close()
    ref = files.ref(1, 1, 1)
    assert await files.size(ref) == 4
    looks, goes_on, original = asyncio.Event(), asyncio.Event(), obstore.list

    async def slowly(*args: Any, **fields: Any) -> Any:
        looks.set()
        await goes_on.wait()
        async for page in original(*args, **fields):
            yield page

    with monkeypatch.context() as patch:
        patch.setattr(objects.obstore, "list", slowly)
        looking = asyncio.create_task(files.size(ref))
        await looks.wait()
    if how == "one":
        await files.remove(ref)
    else:
        await (files.remove_all([ref]) if how == "many" else files.remove_range(0))
    goes_on.set()
    await looking

    assert await files.size(ref) == 0


async def test_logs_go_by_the_thousand(files: ObjectFiles, place: Place) -> None:
    for run_id in (1, 999, 1000, 1999, 2000, 2500):
        await files.store_chunk(files.ref(run_id, 1, 1), 0, b"x")
    obstore.put(place.store, "runs/mine", b"not a log")
    assert await files.stored_ranges() == ([0, 1000, 2000], 1000)

    for _ in range(2):
        await files.remove_range(1000)

    kept = [run_id for run_id in (1, 999, 1000, 1999, 2000, 2500) if await files.size(files.ref(run_id, 1, 1))]
    assert kept == [1, 999, 2000, 2500]
    assert "runs/mine" in place.stored()


async def test_there_are_no_ranges_where_nothing_was_ever_written(files: ObjectFiles) -> None:
    assert (await files.stored_ranges())[0] == []
    await files.remove_range(5000)


async def test_many_logs_and_their_files_go_at_once_and_no_others(files: ObjectFiles, place: Place) -> None:
    runs = (1, 11, 999, 1000)
    for run_id in runs:
        ref = files.ref(run_id, 1, 1)
        for number in range(3):
            await files.store_chunk(ref, number, b"x")
        await files.store_chunk(files.file_ref(ref, 1), 0, b"file")
    later = files.ref(1, 1, 11)
    await files.store_chunk(later, 0, b"y")

    for _ in range(2):
        await files.remove_all([files.ref(run_id, 1, 1) for run_id in (1, 1000, 77)])

    stored = {"/".join(path.split("/")[-3:-1]) for path in place.stored()}
    assert stored == {"1/1-11", "11/1-1", "1-1-files/1", "999/1-1"}
    assert await files.size(files.ref(1, 1, 1)) == 0
    assert await files.size(later) == 1


async def test_a_file_gets_its_name_and_goes_with_its_log(files: ObjectFiles, place: Place) -> None:
    ref = files.ref(7, 1, 3)
    await files.store_chunk(ref, 0, b"log")
    for number, data in enumerate((b"x" * 300_000, b"y")):
        await files.store_chunk(files.file_ref(ref, 0), number, data)
    name = files.artifact_ref(ref, "dist/ä b%20.txt")
    assert await files.read(name, 0, 9) == b""

    await files.name_file(ref, 0, "dist/ä b%20.txt", 300_002)  # not whole
    assert await files.read(name, 0, 9) == b""
    for _ in range(2):
        await files.name_file(ref, 0, "dist/ä b%20.txt", 300_001)
        await files.name_file(ref, 1, "empty", 0)
        assert await files.read(name, 299_999, 9) == b"xy"
        assert await files.read(name, 300_001, 9) == b""
        assert await files.size(files.file_ref(ref, 0)) == 0
    assert {path.partition("/7/")[2] for path in place.stored()} == {
        "1-3/00000000", "1-3-artifacts/dist/ä b%20.txt", "1-3-artifacts/empty",
    }  # fmt: skip
    assert await files.trim(300_005) == 0
    await files.remove(ref)
    assert place.stored() == []
    assert await files.read(name, 0, 9) == b""


async def test_named_files_count_and_go_with_many_others(files: ObjectFiles, place: Place) -> None:
    for run_id in (1, 2):
        ref = files.ref(run_id, 1, 1)
        await files.store_chunk(files.file_ref(ref, 0), 0, b"12345")
        await files.name_file(ref, 0, "a", 5)
    await files.remove_all([files.ref(1, 1, 1)])
    assert [path.partition("runs/")[2] for path in place.stored()] == ["0/2/1-1-artifacts/a"]
    assert await files.trim(4) == 5
    assert place.stored() == []


@pytest.mark.parametrize(
    "path", ["", "/etc/passwd", "../x", "a/../../x", "a//b", "a/.", "n\nl", "x" * 300, "a#1", "\x00"]
)
async def test_what_no_object_can_be_called_keeps_its_number(files: ObjectFiles, place: Place, path: str) -> None:
    ref = files.ref(7, 1, 3)
    await files.store_chunk(files.file_ref(ref, 0), 0, b"data")
    before = place.stored()
    await files.name_file(ref, 0, path, 4)
    assert place.stored() == before
    assert await files.read(files.artifact_ref(ref, path or "x"), 0, 9) == b""


async def test_a_bucket_is_emptied_by_the_thousand_not_by_the_object(
    files: ObjectFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    refs = [files.ref(run_id, 1, 1) for run_id in range(1, 41)]
    for ref in refs:
        await files.store_chunk(ref, 0, b"x")
    delete, requests = obstore.delete_async, []

    async def counted(store: ObjectStore, names: Any) -> None:
        requests.append(names)
        await delete(store, names)

    monkeypatch.setattr(obstore, "delete_async", counted)
    await files.remove_all(refs)
    assert [len(names) for names in requests] == [40]


async def test_only_outputs_can_be_removed(files: ObjectFiles) -> None:
    with pytest.raises(Invalid):
        await files.remove("runs/0/1")


# ── writing and reading ──


async def test_what_was_written_can_be_read(files: ObjectFiles) -> None:
    output = files.open(12_345, 2, 3, ROOMY)
    output.write(b"hello ")
    output.write(b"world\n")
    await output.close()
    assert output.ref == files.ref(12_345, 2, 3) == "runs/12/12345/2-3"
    assert await files.read(output.ref, 0, 100) == b"hello world\n"
    assert await files.size(output.ref) == 12


async def test_without_a_byte_there_is_no_object(files: ObjectFiles, place: Place) -> None:
    output = files.open(1, 1, 1, ROOMY)
    output.write(b"")
    assert output.ref is None
    await output.close()
    assert output.ref is None
    assert place.stored() == []


async def test_an_unknown_log_is_empty(files: ObjectFiles) -> None:
    assert await files.read("runs/0/7/1-1", 0, 100) == b""
    assert await files.size("runs/0/7/1-1") == 0


@pytest.mark.parametrize(("offset", "limit"), [(0, 10), (5, 65_531), (65_530, 20), (199_990, 50), (200_000, 5), (3, 0)])
async def test_any_part_can_be_read_across_chunks(files: ObjectFiles, offset: int, limit: int) -> None:
    written = bytes(range(250)) * 800
    output = files.open(1, 1, 1, ROOMY)
    for at in range(0, len(written), 10_000):
        output.write(written[at : at + 10_000])
        await asyncio.sleep(0)
    await output.close()
    assert await files.read(files.ref(1, 1, 1), offset, limit) == written[offset : offset + limit]


async def test_attempts_do_not_share_a_log(files: ObjectFiles) -> None:
    for attempt, fence in ((1, 1), (2, 2), (2, 22)):
        output = files.open(1, attempt, fence, ROOMY)
        output.write(b"%d-%d" % (attempt, fence))
        await output.close()
    assert await files.read(files.ref(1, 2, 2), 0, 100) == b"2-2"
    assert await files.read(files.ref(1, 2, 22), 0, 100) == b"2-22"


async def test_two_readers_of_one_store_see_the_same(files: ObjectFiles, place: Place) -> None:
    other = place.open()
    output = files.open(1, 1, 1, ROOMY)
    for number in range(3):
        output.write(b"%d" % number * writing.CHUNK)
        seen = await grown(other, files.ref(1, 1, 1), (number + 1) * writing.CHUNK)
        assert seen == await files.read(files.ref(1, 1, 1), 0, ROOMY)
    await output.close()


async def test_a_chunk_that_is_listed_too_soon_is_not_read(files: ObjectFiles) -> None:
    ref = files.ref(1, 1, 1)
    await files.store_chunk(ref, 0, b"first ")
    await files.store_chunk(ref, 2, b"third")
    assert await files.read(ref, 0, 100) == b"first "
    await files.store_chunk(ref, 1, b"second ")
    assert await files.read(ref, 0, 100) == b"first second third"


async def test_a_chunk_is_never_overwritten(files: ObjectFiles) -> None:
    ref = files.ref(1, 1, 1)
    await files.store_chunk(ref, 0, b"first")
    await files.store_chunk(ref, 0, b"again")
    assert await files.read(ref, 0, 100) == b"first"


# ── when chunks are written ──


async def test_a_few_bytes_are_stored_soon_without_closing(files: ObjectFiles) -> None:
    output = files.open(1, 1, 1, ROOMY)
    output.write(b"a line\n")
    assert await grown(files, files.ref(1, 1, 1), 7) == b"a line\n"
    output.write(b"another\n")
    assert await grown(files, files.ref(1, 1, 1), 15) == b"a line\nanother\n"
    await output.close()


async def test_a_full_chunk_does_not_wait(files: ObjectFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "LINGER", 3600.0)
    output = files.open(1, 1, 1, ROOMY)
    output.write(b"x" * writing.CHUNK)
    assert len(await grown(files, files.ref(1, 1, 1), writing.CHUNK)) == writing.CHUNK
    await output.close()


async def test_small_writes_share_a_chunk(files: ObjectFiles, place: Place) -> None:
    output = files.open(1, 1, 1, ROOMY)
    for _ in range(1_000):
        output.write(b"line\n")
    await output.close()
    assert place.stored() == ["runs/0/1/1-1/00000000"]


async def test_what_is_written_while_a_chunk_is_stored_follows_it(
    files: ObjectFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(files, monkeypatch)
    output = files.open(1, 1, 1, ROOMY)
    output.write(b"1" * writing.CHUNK)
    await gate.reached.wait()
    output.write(b"2")
    gate.opened.set()
    assert (await grown(files, files.ref(1, 1, 1), writing.CHUNK + 1)).endswith(b"12")
    await output.close()


async def test_what_is_written_after_closing_is_ignored(files: ObjectFiles) -> None:
    output = files.open(1, 1, 1, ROOMY)
    output.write(b"in time")
    await output.close()
    output.write(b"too late")
    await output.close()
    assert await files.read(files.ref(1, 1, 1), 0, 100) == b"in time"


# ── limits ──


@pytest.mark.parametrize("pieces", [[b"0123456789abc"], [b"01234", b"56789", b"a", b"bc"]])
async def test_past_the_limit_the_log_is_cut_and_says_so_once(files: ObjectFiles, pieces: list[bytes]) -> None:
    output = files.open(1, 1, 1, limit=10)
    for piece in pieces:
        output.write(piece)
    assert output.is_full
    await output.close()
    assert await files.read(files.ref(1, 1, 1), 0, 1000) == (b"0123456789\n[output truncated: the limit is 10 bytes]\n")


async def test_a_log_of_just_the_limit_is_whole(files: ObjectFiles) -> None:
    output = files.open(1, 1, 1, limit=10)
    output.write(b"0123456789")
    assert not output.is_full
    await output.close()
    assert await files.read(files.ref(1, 1, 1), 0, 1000) == b"0123456789"


async def test_a_store_that_is_too_slow_leaves_a_marked_gap(
    files: ObjectFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(files, monkeypatch)
    output = files.open(1, 1, 1, ROOMY)
    output.write(b"a" * (writing.MAX_WAITING - 10))
    await gate.reached.wait()
    output.write(b"b" * 15)
    output.write(b"c" * 100)
    gate.opened.set()
    await grown(files, files.ref(1, 1, 1), writing.MAX_WAITING)
    output.write(b"d")
    await output.close()
    text = await files.read(files.ref(1, 1, 1), writing.MAX_WAITING - 15, 1000)
    assert text == b"aaaaabbbbbbbbbb\n[105 bytes lost: the output store was too slow]\nd"


async def test_a_gap_at_the_end_is_marked_too(files: ObjectFiles) -> None:
    output = files.open(1, 1, 1, ROOMY)
    output.write(b"x" * (writing.MAX_WAITING + 7))
    await output.close()
    assert (await files.read(files.ref(1, 1, 1), writing.MAX_WAITING, 1000)).startswith(b"\n[7 bytes lost")


# ── following ──


async def test_followers_are_woken_by_the_writer(files: ObjectFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "FOLLOW_SECONDS", 3600.0)
    output = files.open(1, 1, 1, ROOMY)
    followers = [files.changed(files.ref(1, 1, 1)) for _ in range(2)]
    stranger = files.changed(files.ref(2, 1, 1))
    output.write(b"x")
    async with asyncio.timeout(DEADLINE):
        await asyncio.gather(*followers)
        end = files.changed(files.ref(1, 1, 1))
        await output.close()
        await end
    assert not stranger.done()
    stranger.cancel()


async def test_a_follower_looks_again_after_a_while(files: ObjectFiles) -> None:
    async with asyncio.timeout(DEADLINE):
        await files.changed(files.ref(1, 1, 1))


async def test_followers_that_leave_are_forgotten(files: ObjectFiles) -> None:
    for _ in range(3):
        change = files.changed(files.ref(1, 1, 1))
        change.cancel()
        await asyncio.gather(change, return_exceptions=True)
    assert not files._followers._by_log


# ── refusals and faults ──


@pytest.mark.parametrize(
    "ref",
    [
        "",
        "runs",
        "../etc/passwd",
        "runs/0/1/1-1/../../..",
        "/runs/0/1/1-1",
        "runs/0/1/1-1/",
        "runs/0/1/1-1\n",
        "runs/0/x/1-1",
    ],
)
async def test_S15_only_names_of_outputs_are_read(files: ObjectFiles, ref: str) -> None:
    with pytest.raises(Invalid):
        await files.read(ref, 0, 100)
    with pytest.raises(Invalid):
        await files.size(ref)


@pytest.mark.parametrize(("offset", "limit"), [(-1, 5), (0, -1)])
async def test_a_negative_range_is_refused(files: ObjectFiles, offset: int, limit: int) -> None:
    with pytest.raises(Invalid):
        await files.read("runs/0/1/1-1", offset, limit)


async def test_a_log_removed_while_it_is_read_is_not_found(files: ObjectFiles, place: Place) -> None:
    await files.store_chunk(files.ref(1, 1, 1), 0, b"here")
    await files.size(files.ref(1, 1, 1))
    obstore.delete(place.store, "runs/0/1/1-1/00000000")
    with pytest.raises(NotFound):
        await files.read(files.ref(1, 1, 1), 0, 4)


def obstruct(place: Path) -> Path:
    """Return a file where a directory must be: no permission bit stops root, this does."""
    place.mkdir(exist_ok=True)
    (place / "runs").write_text("")
    return place / "runs"


async def test_a_store_out_of_order_is_unavailable(
    local: ObjectFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "CLOSE_SECONDS", 0.0)
    obstruct(tmp_path / "output")
    output = local.open(1, 1, 1, ROOMY)
    output.write(b"x")
    with pytest.raises(Unavailable, match="runs/0/1/1-1") as caught:
        await output.close()
    assert "\n" not in caught.value.message


async def test_a_store_that_comes_back_gets_everything(
    local: ObjectFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(writing, "RETRY_SECONDS", 0.01)
    obstacle = obstruct(tmp_path / "output")
    output = local.open(1, 1, 1, ROOMY)
    with caplog.at_level(logging.WARNING):
        closing = asyncio.ensure_future(close_with(output, b"kept"))
        async with asyncio.timeout(DEADLINE):
            while not caplog.records:
                await asyncio.sleep(0)
    obstacle.unlink()
    await closing
    assert await local.read(local.ref(1, 1, 1), 0, 100) == b"kept"


async def close_with(output: ChunkedOutput, data: bytes) -> None:
    output.write(data)
    await output.close()


@pytest.mark.parametrize("place", ["ftp://bucket/outputs", "http://example.com", "file://elsewhere/path"])
def test_an_address_of_something_else_is_refused(place: str) -> None:
    with pytest.raises(ConfigError) as caught:
        open_files(place)
    assert caught.value.code == "E_URL"


def test_a_place_that_cannot_be_a_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError) as caught:
        open_files(tmp_path / "file" / "below")
    assert caught.value.code == "E_FILE"


async def test_a_file_address_is_a_path(tmp_path: Path) -> None:
    there = open_files(f"file://{tmp_path}/with%20space")
    await there.store_chunk(there.ref(1, 1, 1), 0, b"x")
    assert (tmp_path / "with space/runs/0/1/1-1/00000000").read_bytes() == b"x"


# ── a full disk ──


@needs_root
async def test_output_that_finds_no_room_ends_with_a_mark_that_outlasts_the_shortage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "CLOSE_SECONDS", 0.1)
    with small_disk(tmp_path / "small") as disk:
        files = open_files(disk / "output")
        first = files.open(1, 1, 1, ROOMY)
        first.write(b"begun\n")
        await grown(files, files.ref(1, 1, 1), 6)
        fill(disk)
        first.write(b"x" * 1000)
        with pytest.raises(MachineFault, match="No space left on device"):
            await first.close()
        mark = b"begun\n\n[output truncated: the last 1000 bytes could not be stored]\n"
        assert await files.read(first.ref or "", 0, ROOMY) == mark
        assert await files.load_chunk(first.ref or "", 1) == mark[6:]
        clear(disk)
        second = files.open(2, 1, 1, ROOMY)
        second.write(b"there is room again")
        await second.close()
        assert await open_files(disk / "output").read(first.ref or "", 0, ROOMY) == mark


@needs_root
async def test_output_that_waited_for_room_is_whole(tmp_path: Path) -> None:
    with small_disk(tmp_path / "small") as disk:
        files = open_files(disk / "output")
        output = files.open(1, 1, 1, ROOMY)
        fill(disk)
        output.write(b"x" * 100_000)
        closing = asyncio.create_task(output.close())
        await asyncio.sleep(2 * writing.RETRY_SECONDS)
        clear(disk)
        await closing
        assert await files.size(output.ref or "") == 100_000
