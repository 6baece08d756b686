"""What handlers an agent has, told without running any of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from horae.executors.handlers.catalogue import CHANGED, NOTHING, Catalogue, folder_version
from horae.executors.handlers.messages import Load

HEAD = "from horae import handler\nraise RuntimeError('never run to find out')\n"


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    texts = {
        "plain": "@handler\ndef run(context): pass\n",
        "waits": "@handler()\nasync def run(context): pass\n",
        "named": '@horae.handler(name="a.name")\ndef run(context): pass\ndef other(): pass\n',
        "quick": '@handler(inline=True, name="quick")\nasync def run(context): pass\n',
        "my_job": "class MyJobHandler:\n    async def execute(self, job_data, cancellation): pass\n",
        "empty": "",
        "wrong": "@handler\ndef run(context) pass\n",
    }
    for folder, text in texts.items():
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "job.py").write_text(HEAD + text)
    (tmp_path / "notes").mkdir()
    return tmp_path


async def test_every_handler_of_the_jobs_directory_is_listed_with_its_kind(jobs: Path) -> None:
    found = {fact.name: (fact.kind, fact.error) for fact in await Catalogue(jobs).read()}
    assert found == {
        "jobs/plain": ("plain", ""),
        "jobs/waits": ("async", ""),
        "a.name": ("plain", ""),
        "quick": ("inline", ""),
        "jobs/my_job": ("async", ""),
        "jobs/empty": ("", NOTHING),
        "jobs/wrong": ("", "SyntaxError: expected ':', line 4"),
    }


async def test_without_a_jobs_directory_there_are_none() -> None:
    assert await Catalogue(None).read() == []


async def test_a_version_is_that_of_the_content_wherever_it_lies(jobs: Path, tmp_path: Path) -> None:
    (tmp_path / "copy").mkdir()
    (jobs / "plain").rename(tmp_path / "copy" / "plain")
    copied = folder_version(tmp_path / "copy" / "plain")
    (tmp_path / "copy" / "plain").rename(jobs / "plain")
    assert folder_version(jobs / "plain") == copied
    (jobs / "plain" / "more.py").write_text("")
    assert folder_version(jobs / "plain") != copied


async def test_what_was_loaded_is_told_for_the_version_that_it_was(jobs: Path) -> None:
    catalogue, file = Catalogue(jobs), str(jobs / "named" / "job.py")
    catalogue.note(Load("jobs/named", folder_version(jobs / "named"), "run", file, "plain"), 5)
    catalogue.note(Load("jobs/plain", folder_version(jobs / "plain"), error="it does not work"), 6)
    found = {fact.name: (fact.loaded_at, fact.error) for fact in await catalogue.read()}
    assert (found["a.name"], found["jobs/plain"]) == ((5, ""), (6, "it does not work"))
    for folder in ("named", "plain"):
        (jobs / folder / "more.py").write_text("")
    found = {fact.name: (fact.loaded_at, fact.error) for fact in await catalogue.read()}
    assert (found["a.name"], found["jobs/plain"]) == ((None, ""), (None, ""))


async def test_an_inline_handler_that_was_edited_says_that_it_is_the_old_one(jobs: Path) -> None:
    catalogue, file, old = Catalogue(jobs), str(jobs / "quick" / "job.py"), folder_version(jobs / "quick")
    catalogue.note(Load("quick", old, "run", file, "inline"), 5)
    (jobs / "quick" / "more.py").write_text("")
    (fact,) = [fact for fact in await catalogue.read() if fact.name == "quick"]
    assert (fact.version, fact.loaded_at, fact.error) == (old, 5, CHANGED)


async def test_a_handler_of_a_module_is_listed_once_it_was_loaded(jobs: Path) -> None:
    catalogue = Catalogue(jobs)
    catalogue.note(Load("reports:send", "abc", "send", str(jobs / "plain" / "job.py"), "async"), 7)
    assert ("reports:send", 7) in {(fact.name, fact.loaded_at) for fact in await catalogue.read()}


async def test_a_file_that_is_nested_too_deeply_is_a_handler_with_an_error(jobs: Path) -> None:
    (jobs / "deep").mkdir()
    (jobs / "deep" / "job.py").write_text("x = " + "-" * 100_000 + "1\n")
    (fact,) = [fact for fact in await Catalogue(jobs).read() if fact.name == "jobs/deep"]
    assert fact.error.startswith(("RecursionError", "MemoryError", "SyntaxError"))
