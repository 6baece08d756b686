"""A new key for everything: killed anywhere, it is gone on with, and no key goes that something needs."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

from horae.core.definitions import Submission
from horae.core.model import Node
from horae.core.work.specs import parse_job
from horae.errors import Conflict, Unavailable
from horae.keys import FileKeys
from horae.service.execution import Execution
from horae.service.jobs import Jobs
from horae.service.metrics import Metrics
from horae.service.secrets.named import Secrets
from horae.service.secrets.rotation import Rotation
from horae.service.secrets.sealing import WITNESS, Sealing
from horae.service.sources import Sources
from horae.testing import FakeClock, make_job

from .parts import BOTH, Probe, Told, node

CANARY = "kaN4rienvogel7391"
ROWS = 8  # that Stage.fill makes: 4 jobs, 1 source, 2 secrets, and the witness
SPEC: dict[str, Any] = {
    "source": {"type": "database", "url": f"postgresql://u:{CANARY}@db/x", "password": CANARY},
    "read": {"table": "t"}, "destinations": [{"type": "files", "path": "a"}],
}  # fmt: skip


class Stage:
    """Everything that is sealed, by one server; made anew, it is the same server after a crash."""

    def __init__(self, probe: Probe, queue: Told, clock: FakeClock, directory: Path) -> None:
        self.probe: Any = probe
        self.file = directory / "secrets.key"
        self.keys = FileKeys(self.file)
        self.secrets, self.sealing = Secrets(self.probe, self.keys), Sealing(self.probe, self.keys)
        self.jobs = Jobs(self.probe, queue, sealing=self.sealing)
        self.sources = Sources(self.probe, self.jobs, self.sealing)
        self.execution = Execution(self.probe, queue, clock, Metrics(), sealing=self.sealing)
        self.rotation = Rotation(self.probe, self.keys, self.secrets, self.sealing, node="n1")

    async def fill(self) -> None:
        await self.secrets.set(1, "A", CANARY)
        await self.secrets.set(2, "A", CANARY)
        for number in range(3):
            await self.jobs.submit([parse_job({"name": f"j{number}", "kind": "sync", "spec": SPEC})])
        await self.jobs.delete(3)
        await self.sources.add(org=1, owner="a", name="s", kind="k", config={"password": CANARY})
        await self.probe.submit([Submission([make_job(9, kind="sync", spec=SPEC)])])  # by an earlier version

    async def assert_whole(self) -> None:
        """Everything opens with the keys that are there."""
        await self.secrets.check()
        await self.sealing.verify()
        assert await self.secrets.resolve(2, ["A"]) == {"A": CANARY}
        for job_id in (1, 2, 3, 9):
            assert self.sealing.open_job(await self.jobs.get(job_id)).spec["source"] == SPEC["source"]
        assert (await self.sources.opened(await self.sources.get(1, 1), "")).config == {"password": CANARY}

    async def keys_in_use(self) -> set[str]:
        rows = [
            row.text
            for place in ("job", "source", "secret", "setting")
            for row in await self.probe.load_sealable(place, 0, 100)
        ]
        return {name for row in rows for name in re.findall(r"v1\.([0-9a-f]{8})\.", row)}


@pytest.fixture
async def stage(probe: Probe, queue: Told, clock: FakeClock, tmp_path: Path) -> Stage:
    stage = Stage(probe, queue, clock, tmp_path)
    await stage.fill()
    return stage


@BOTH
async def test_everything_is_sealed_by_a_new_key_and_the_old_one_is_gone(stage: Stage):
    old = stage.file.read_text()
    before = await stage.jobs.get(1)
    rotated = await stage.rotation.rotate()

    assert (rotated.resealed, rotated.unopened, rotated.old) == (ROWS, 0, [])
    assert await stage.keys_in_use() == {rotated.key}
    assert old not in stage.file.read_text()
    assert stage.file.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in stage.file.parent.glob("secrets.key*")] == ["secrets.key"]
    await stage.assert_whole()
    assert CANARY not in json.dumps((await stage.jobs.get(9)).spec)
    after = await stage.jobs.get(1)
    assert (after.version, after.updated_at) == (before.version, before.updated_at)
    assert after.spec != before.spec


@pytest.mark.parametrize("step", range(1, ROWS + 1))
async def test_killed_anywhere_it_loses_nothing_and_is_gone_on_with(
    stage: Stage, probe: Probe, queue: Told, clock: FakeClock, tmp_path: Path, step: int
):
    left = step

    async def die(*_: Any) -> None:
        nonlocal left
        left -= 1
        probe.before("reseal", die)
        if not left:
            raise Unavailable("killed")

    probe.before("reseal", die)
    with pytest.raises(Unavailable):
        await stage.rotation.rotate()
    await stage.assert_whole()

    again = Stage(probe, queue, clock, tmp_path)
    await again.assert_whole()
    added, old = again.keys.names
    rotated = await again.rotation.rotate()
    assert (rotated.key, rotated.resealed) == (added, ROWS - step + 1)
    assert await again.keys_in_use() == {added} != {old}
    await again.assert_whole()


async def test_an_old_key_that_cannot_be_removed_stays_and_the_repeat_removes_it(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
):
    def die(_: FileKeys) -> None:
        raise Unavailable("killed")

    monkeypatch.setattr(FileKeys, "drop_old", die)
    with pytest.raises(Unavailable):
        await stage.rotation.rotate()
    assert len(stage.keys.names) == 2
    monkeypatch.undo()

    rotated = await stage.rotation.rotate()
    assert (rotated.resealed, rotated.old) == (0, [])
    await stage.assert_whole()


async def test_what_is_written_meanwhile_is_not_lost(stage: Stage, probe: Probe):
    """A job is saved between the look at it and the new seal, as it was before; the next round sees that."""
    old = await stage.jobs.get(1)

    async def save(*args: Any) -> None:
        await probe.store.save_job(old, old.version)

    probe.before("reseal", save)
    rotated = await stage.rotation.rotate()
    assert await stage.keys_in_use() == {rotated.key}
    await stage.assert_whole()


async def test_an_old_key_waits_for_what_is_on_its_way_to_the_store(stage: Stage, probe: Probe):
    """A submit that has sealed with the old key is slow to write."""
    sealed, go = asyncio.Event(), asyncio.Event()

    async def dawdle(*args: Any) -> None:
        sealed.set()
        await go.wait()

    probe.before("submit", dawdle)
    late = asyncio.create_task(stage.jobs.submit([parse_job({"name": "late", "kind": "sync", "spec": SPEC})]))
    await sealed.wait()
    rotating = asyncio.create_task(stage.rotation.rotate())
    while len(stage.keys.names) < 2:
        await asyncio.sleep(0)
    go.set()
    (job,) = (await late).jobs
    await rotating
    assert stage.sealing.open_job(await stage.jobs.get(job.id)).spec["source"] == SPEC["source"]


async def test_a_row_that_no_key_opens_keeps_the_old_keys(stage: Stage):
    await stage.probe.put_secret(1, "ODD", "v1.00000000.AAAA", 1)
    rotated = await stage.rotation.rotate()

    assert (rotated.unopened, len(rotated.old)) == (1, 1)
    await stage.probe.delete_secret(1, "ODD")
    assert (await stage.rotation.rotate()).old == []
    await stage.assert_whole()


async def test_with_other_servers_keys_come_and_go_by_hand(stage: Stage):
    other: Node = node("n2")
    await stage.probe.register_node(other)
    with pytest.raises(Conflict, match="n2") as refused:
        await stage.rotation.rotate()
    assert refused.value.code == "E_SECRET_KEY"
    assert len(stage.keys.names) == 1

    stage.keys.add()
    rotated = await stage.rotation.rotate()
    assert len(rotated.old) == 1
    assert await stage.keys_in_use() == {rotated.key}
    assert len(stage.keys.names) == 2


async def test_no_copy_of_a_key_is_left_beside_the_file(stage: Stage, tmp_path: Path):
    """Not even by a server that was killed before it could give the file its name."""
    (tmp_path / "secrets.key.0123456789abcdef").write_text(stage.file.read_text())
    (tmp_path / "secrets.key.mine").write_text("kept elsewhere by its owner")
    await stage.rotation.rotate()

    assert sorted(path.name for path in tmp_path.glob("secrets.key*")) == ["secrets.key", "secrets.key.mine"]


async def test_notes_in_the_key_file_stay(stage: Stage):
    stage.file.write_text(f"# of the shop\n{stage.file.read_text().strip()}  # 2025\n")
    await stage.rotation.rotate()

    assert "# of the shop" in stage.file.read_text()
    assert "2025" not in stage.file.read_text()
    assert await stage.probe.get_setting(WITNESS) is not None
