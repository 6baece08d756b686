"""Files of declarations: found, read, applied once for a whole cluster, and never when they were changed."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from horae.app.declarations import read_declarations
from horae.core.model import JobFilter
from horae.errors import ConfigError
from horae.queues.local import LocalQueue
from horae.service.jobs import Jobs
from horae.service.jobs.declarations import Declarations
from horae.stores.sqlite import SqliteStore

FIRST = "jobs: [{key: a, name: first, handler: b}, {key: z, name: stays, handler: b}]\n"
SECOND = "jobs: [{key: a, name: second, handler: b}]\n"
EXAMPLES = Path(__file__).parents[2] / "examples" / "declarations"


class Node:
    """A process that starts on a database."""

    def __init__(self, store: SqliteStore, directory: Path) -> None:
        self.jobs = Jobs(store, LocalQueue())  # type: ignore[arg-type]
        self._declarations = Declarations(store, self.jobs)  # type: ignore[arg-type]
        self._directory = directory

    async def start(self) -> list[str]:
        return await self._declarations.apply(read_declarations(self._directory))

    async def names(self) -> list[str]:
        return sorted(job.name for job in (await self.jobs.list(JobFilter())).items)


@pytest.fixture
def node(sqlite_store: SqliteStore, tmp_path: Path) -> Node:
    directory = tmp_path / "declarations"
    directory.mkdir()
    (directory / "0001_first.yaml").write_text(FIRST)
    return Node(sqlite_store, directory)


def declare(node: Node, name: str, text: str) -> None:
    (node._directory / name).write_text(text)


async def test_files_are_applied_in_the_order_of_their_numbers(node: Node) -> None:
    declare(node, "0010_second.yaml", SECOND)
    declare(node, "0002_gone.yml", "delete: [z, never-there]\n")
    assert await node.start() == ["0001_first", "0002_gone", "0010_second"]
    assert await node.names() == ["second"]


async def test_a_file_is_applied_once_whatever_became_of_its_jobs(node: Node) -> None:
    await node.start()
    [job] = [each for each in (await node.jobs.list(JobFilter())).items if each.key == "a"]
    await node.jobs.set_paused(job.id, True)
    assert await node.start() == []
    assert (await node.jobs.get(job.id)).paused


async def test_a_later_file_changes_the_same_job(node: Node) -> None:
    await node.start()
    before = {job.key: job.id for job in (await node.jobs.list(JobFilter())).items}
    declare(node, "0002_second.yaml", SECOND)
    assert await node.start() == ["0002_second"]
    after = {job.key: job.id for job in (await node.jobs.list(JobFilter())).items}
    assert after == before
    assert await node.names() == ["second", "stays"]


async def test_several_nodes_at_once_make_each_job_once(node: Node) -> None:
    declare(node, "0002_second.yaml", SECOND)
    await asyncio.gather(*(node.start() for _ in range(5)))
    assert await node.names() == ["second", "stays"]


async def test_a_file_that_was_changed_refuses_the_start_and_changes_nothing(node: Node) -> None:
    await node.start()
    declare(node, "0001_first.yaml", FIRST.replace("first", "other"))
    declare(node, "0002_second.yaml", SECOND)
    with pytest.raises(ConfigError, match="0001_first was applied to this database with another text") as refused:
        await node.start()
    assert "a new one with a higher number" in refused.value.hint
    assert await node.names() == ["first", "stays"]


async def test_a_new_file_before_one_that_was_applied_refuses_the_start(node: Node) -> None:
    await node.start()
    declare(node, "0000_earlier.yaml", SECOND)
    with pytest.raises(ConfigError, match="0000_earlier is new, but 0001_first"):
        await node.start()
    assert await node.names() == ["first", "stays"]


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("0002_bad.yaml", "jobs: [\n  {key: a", r"0002_bad\.yaml: .*line 2"),
        ("0002_bad.yaml", "jobs: [{key: a, name: b}]", r"0002_bad\.yaml: jobs\[0\]\.steps"),
        ("0002_bad.yaml", "", r"0002_bad\.yaml: .*empty"),
        ("second.yaml", SECOND, r"second\.yaml: a declaration is named as"),
        ("0001_again.yml", SECOND, r"same number"),
    ],
)
async def test_a_file_that_cannot_be_used_refuses_the_start_before_anything_is_applied(
    node: Node, name: str, text: str, expected: str
) -> None:
    declare(node, name, text)
    with pytest.raises(ConfigError, match=expected):
        await node.start()
    assert await node.names() == []


def test_other_files_are_none_of_its_business(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("about")
    assert read_declarations(tmp_path) == []
    assert read_declarations(None) == []
    with pytest.raises(ConfigError, match="cannot be read"):
        read_declarations(tmp_path / "nowhere")


async def test_the_example_can_be_applied(sqlite_store: SqliteStore) -> None:
    node = Node(sqlite_store, EXAMPLES)
    assert await node.start() == ["0001_codebooks"]
    assert await node.names() == ["DownloadRdmCodebooks", "tidy"]
