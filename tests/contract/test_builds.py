"""What a build leaves behind, with real files and real processes: artifacts, reports, caches, commits."""

from __future__ import annotations

import asyncio
import io
import json
import os
import socket
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from horae.core.model import Json, Reason, State
from horae.core.runs.orders import Assignment, Result
from horae.core.work.builds import no_tests
from horae.errors import Invalid, Unavailable
from horae.executors.attempts import artifacts
from horae.executors.attempts.caches import Caches
from horae.executors.attempts.executor import SectionExecutor
from horae.executors.attempts.testreports import read_junit
from horae.executors.processes.process import KeeperProcess
from horae.executors.shell import shell_executor
from horae.files import ObjectFiles, open_files
from horae.ports.outputs import Output
from horae.ports.work import Sandboxes, Work
from horae.sandboxes.cgroups import Groups
from horae.sandboxes.plain import PlainSandbox
from horae.testing import START, FakeClock

PATIENCE = 180  # seconds; reached only when something is broken


class Builder:
    """A shell executor over real files."""

    def __init__(self, executor: SectionExecutor, files: ObjectFiles) -> None:
        self.executor = executor
        self.files = files
        self._runs = iter(range(1, 1000))

    async def run(self, spec: Json, *, job_id: int = 5, data: Json | None = None) -> tuple[Result, Json]:
        run_id = next(self._runs)
        output: Output = self.files.open(run_id, 1, 3, 1 << 20)
        assignment = Assignment(
            run_id, 3, 1, job_id, None, START, "shell", "build", json.dumps(spec), "{}", data and json.dumps(data)
        )
        ended: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self.executor.start([Work(assignment, spec, output, None, START)], ended.set_result)
        async with asyncio.timeout(PATIENCE):
            result = await ended
        return result, json.loads(result.result or "{}")

    async def log(self, result: Result) -> str:
        return (await self.files.read(result.output or "", 0, 1 << 20)).decode()

    async def file(self, result: Result, number: int) -> bytes:
        path = json.loads(result.result or "{}")["artifacts"][number]["path"]
        return await self.files.read(self.files.artifact_ref(result.output or "", path), 0, 1 << 30)


@pytest.fixture
async def builder(tmp_path: Path) -> AsyncIterator[Builder]:
    keeper = KeeperProcess(tmp_path / "keeper")
    await keeper.open()
    sandboxes = Sandboxes({"plain": PlainSandbox(keeper, Groups(tmp_path))}, "plain")
    executor = shell_executor(
        sandboxes, tmp_path / "workspaces", 4, FakeClock(), grace=0.5,
        caches=Caches(tmp_path / "caches", 1 << 20), artifact_limit=100_000,
    )  # fmt: skip
    await executor.open()
    yield Builder(executor, open_files(tmp_path / "outputs"))
    await executor.close()
    await keeper.close()


def steps(*runs: str, **more: Any) -> Json:
    return {"steps": [{"name": f"s{n}", "run": run} for n, run in enumerate(runs, 1)], **more}


# ── artifacts ──────────────────────────────────────────────────────────────────────────────────────


async def test_matched_files_are_stored_with_the_output_and_named_in_the_result(builder: Builder) -> None:
    make = "mkdir -p dist/sub && printf one > dist/a.txt && head -c 70000 /dev/zero > dist/sub/b.bin && echo no > c"
    result, facts = await builder.run(steps(make, artifacts=["dist"]))
    assert facts["artifacts"] == [{"path": "dist/a.txt", "size": 3}, {"path": "dist/sub/b.bin", "size": 70_000}]
    assert await builder.file(result, 0) == b"one"
    assert await builder.file(result, 1) == bytes(70_000)
    assert (await builder.log(result)).endswith("── 2 artifacts stored, 70003 bytes ──\n")


async def test_a_failed_attempt_keeps_its_artifacts_too(builder: Builder) -> None:
    result, facts = await builder.run(steps("echo why > log.txt; exit 3", artifacts=["*.txt"]))
    assert (result.state, result.exit_code) == (State.FAILED, 3)
    assert facts["artifacts"] == [{"path": "log.txt", "size": 4}]


async def test_neither_depth_nor_odd_names_keep_a_build_from_ending(builder: Builder, tmp_path: Path) -> None:
    deep = "mkdir -p out/$(printf 'd/%.0s' $(seq 1500)) || exit 9;"
    odd = "touch out/fine \"$(printf 'out/new\\nline')\" \"$(printf 'out/\\377')\""
    cache = [{"key": "k", "paths": ["out"]}]
    for _ in range(2):  # the second finds what the first has kept
        result, facts = await builder.run(steps(deep + odd, artifacts=["out/*"], cache=cache))
        assert result.state is State.SUCCEEDED, await builder.log(result)
        assert [one["path"] for one in facts["artifacts"]] == ["out/fine", "out/new\nline"]
    assert list((tmp_path / "workspaces").iterdir()) == []


async def test_files_go_with_the_output_they_lie_beside(builder: Builder) -> None:
    result, _ = await builder.run(steps("echo a > a", artifacts=["a"]))
    await builder.files.remove(result.output or "")
    assert await builder.file(result, 0) == b""
    assert await builder.log(result) == ""


async def test_links_and_pipes_and_sockets_named_like_artifacts_are_left_out(builder: Builder) -> None:
    make = "ln -s /etc/passwd a.txt; ln -s /etc out; mkfifo b.txt; echo fine > c.txt; ln -s c.txt d.txt"
    result, facts = await builder.run(steps(make, artifacts=["*.txt", "out/*", "**/passwd"]))
    assert facts["artifacts"] == [{"path": "c.txt", "size": 5}]
    assert "3 left out: a link, no plain file" in await builder.log(result)


def test_a_socket_and_a_name_that_is_no_text_are_left_out(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        (tmp_path / os.fsdecode(b"\xff.txt")).write_text("x")
        found = artifacts.find(tmp_path, ["**"], 10, Event())
    assert found.files == []
    assert found.remarks == ["2 left out: a link, no plain file, or a name that is not UTF-8"]


async def test_beyond_the_limit_artifacts_are_left_out_and_that_is_said(builder: Builder) -> None:
    make = "head -c 60000 /dev/zero > a; truncate -s 10G b; echo c > c"
    result, facts = await builder.run(steps(make, artifacts=["?"]))
    assert [one["path"] for one in facts["artifacts"]] == ["a"]
    assert "b and what comes after is left out: artifact_limit is reached" in await builder.log(result)


def test_directories_of_our_own_are_not_looked_into(tmp_path: Path) -> None:
    for name in (".git", ".horae-secrets-abc", "sub/.git"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "a").touch()
    found = artifacts.find(tmp_path, ["**", ".horae-secrets-abc/a"], 10, Event())
    assert [path for path, _ in found.files] == ["sub/.git/a"]


def test_the_number_of_artifacts_is_bounded(tmp_path: Path) -> None:
    for number in range(30):
        (tmp_path / f"{number:02}").touch()
    found = artifacts.find(tmp_path, ["*"], 20, Event())
    assert len(found.files) == 20
    assert "more than 20 files" in found.remarks[0]


def test_a_walk_ends_when_it_is_told_to(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    stop = Event()
    stop.set()
    with pytest.raises(artifacts.Stopped):
        artifacts.find(tmp_path, ["*"], 20, stop)


async def test_artifacts_that_cannot_be_stored_do_not_fail_the_run(
    builder: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(ref: str, number: int, data: bytes) -> None:
        raise Unavailable("the disk is full")

    store = builder.files.store_chunk
    monkeypatch.setattr("horae.files.output.CLOSE_SECONDS", 0.0)
    monkeypatch.setattr(
        builder.files, "store_chunk", lambda ref, *rest: refuse(ref, *rest) if "-files" in ref else store(ref, *rest)
    )
    result, facts = await builder.run(steps("echo a > a", artifacts=["a"]))
    assert result.state is State.SUCCEEDED
    assert "artifacts" not in facts
    assert "the artifacts could not be stored: the disk is full" in await builder.log(result)


async def test_a_stop_while_artifacts_are_stored_ends_the_attempt(
    builder: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = builder.files.store_chunk

    async def hang(ref: str, number: int, data: bytes) -> None:
        if "-files" not in ref:
            return await store(ref, number, data)
        builder.executor.stop(1, Reason.REQUESTED)
        return await asyncio.Event().wait()  # type: ignore[return-value]

    monkeypatch.setattr(builder.files, "store_chunk", hang)
    result, _ = await builder.run(steps("echo a > a", artifacts=["a"]))
    assert (result.state, result.message) == (State.CANCELLED, "cancelled while its files were stored")


# ── reports ────────────────────────────────────────────────────────────────────────────────────────

JUNIT = """<?xml version="1.0"?><testsuites><testsuite name="s" tests="4">
<testcase classname="m" name="good" time="0.5"/>
<testcase classname="m" name="bad" time="1.25"><failure message="1 != 2">trace</failure></testcase>
<testcase name="broken"><error>no such file</error></testcase>
<testcase name="later"><skipped/></testcase></testsuite></testsuites>"""


async def test_reports_are_summed_up_in_the_result(builder: Builder) -> None:
    spec = steps(f"cat > r1.xml <<'E'\n{JUNIT}\nE\ncp r1.xml r2.xml; exit 1", reports=["r*.xml"])
    _, facts = await builder.run(spec)
    failures = [{"name": "m.bad", "message": "1 != 2"}, {"name": "broken", "message": "no such file"}]
    cases = facts["tests"].pop("cases")
    assert [(one["name"], one["outcome"]) for one in cases] == [("m.good", "passed"), ("later", "skipped")] * 2
    assert facts["tests"] == {"passed": 2, "failed": 4, "skipped": 2, "seconds": 3.5, "failures": failures * 2}


async def test_go_test_is_counted_as_it_is_said(builder: Builder) -> None:
    fake = "mkdir bin; printf \"#!/bin/sh\\necho '--- PASS: TestA (0.01s)'\\n\" > bin/go; chmod +x bin/go"
    _, facts = await builder.run(steps(fake, "PATH=$PWD/bin:$PATH\ngo test -v ./..."))
    assert (facts["tests"]["passed"], facts["tests"]["seconds"]) == (1, 0.01)


def test_entities_end_the_reading_at_once() -> None:
    laughs = "".join(f'<!ENTITY a{n} "{f"&a{n - 1};" * 10}">' for n in range(1, 10))
    bomb = f'<!DOCTYPE t [<!ENTITY a0 "ha">{laughs}]><testsuite><testcase name="&a9;"/></testsuite>'
    outside = '<!DOCTYPE t [<!ENTITY x SYSTEM "file:///etc/passwd">]><testsuite><testcase name="&x;"/></testsuite>'
    for text in (bomb, bomb + " " * (10 << 20), outside):
        tests = no_tests()
        with pytest.raises(Invalid, match="document type or entities"):
            read_junit(io.BytesIO(text.encode()), tests)
        assert tests == no_tests()


def test_a_report_that_is_too_long_or_none_at_all_is_told() -> None:
    endless = b"<testsuite>" + b'<testcase name="%s"/>' % (b"a" * 100_000) * 400
    with pytest.raises(Invalid, match="longer than 32 MiB"):
        read_junit(io.BytesIO(endless), no_tests())
    for text, why in (("<html/>", "no JUnit report"), ("", "not XML"), ("<testsuite>", "not XML")):
        with pytest.raises(Invalid, match=why):
            read_junit(io.BytesIO(text.encode()), no_tests())


def test_times_that_make_no_sense_count_as_none() -> None:
    tests = no_tests()
    cases = "".join(f'<testcase name="a" time="{time}"/>' for time in ("", "x", "nan", "-1", "1,000.5"))
    read_junit(io.BytesIO(f"<testsuite>{cases}</testsuite>".encode()), tests)
    assert (tests["passed"], tests["seconds"]) == (5, 1000.5)


# ── caches ─────────────────────────────────────────────────────────────────────────────────────────

CACHED: Json = {"cache": [{"key": "deps-{hash:lock}", "paths": ["deps"]}]}


async def test_a_cache_is_saved_once_and_restored_by_key(builder: Builder) -> None:
    write = "mkdir -p deps/x && echo first > deps/x/y && chmod 755 deps/x/y && ln -s x/y deps/l"
    result, facts = await builder.run(steps(write, **CACHED))
    assert facts["caches"] == [{"key": "deps-none", "hit": False}]
    assert "── cache deps-none saved" in await builder.log(result)
    result, facts = await builder.run(steps("cat deps/l; test -x deps/x/y; echo second > deps/x/y", **CACHED))
    assert result.state is State.SUCCEEDED
    assert facts["caches"] == [{"key": "deps-none", "hit": True}]
    assert "── step 1/1 s1 ──\n── cache deps-none restored ──\nfirst\n" in await builder.log(result)
    result, _ = await builder.run(steps("cat deps/l", **CACHED))
    assert "first" in await builder.log(result)


async def test_a_cache_lends_nobody_the_rights_of_its_owner(builder: Builder) -> None:
    write = "mkdir deps && cp /bin/true deps/suid && chmod 6755 deps/suid && mkfifo deps/pipe"
    await builder.run(steps(write, **CACHED))
    result, facts = await builder.run(steps("stat -c '%a %n' deps/*", **CACHED))
    assert facts["caches"][0]["hit"]
    assert (await builder.log(result)).endswith("──\n755 deps/suid\n")


async def test_jobs_do_not_share_caches_and_failures_save_none(builder: Builder) -> None:
    await builder.run(steps("mkdir deps; echo bad > deps/a; exit 1", **CACHED))
    _, facts = await builder.run(steps("mkdir deps; echo good > deps/a", **CACHED))
    assert not facts["caches"][0]["hit"]
    _, facts = await builder.run(steps("test ! -e deps", **CACHED), job_id=6)
    assert not facts["caches"][0]["hit"]


async def test_another_file_makes_another_key(tmp_path: Path) -> None:
    caches, one, two = Caches(tmp_path / "c", 1 << 20), tmp_path / "one", tmp_path / "two"
    for place, content in ((one, "a"), (two, "b")):
        place.mkdir()
        (place / "lock").write_text(content)
    keys = [(await caches.restore(1, CACHED["cache"], place))[0]["key"] for place in (one, two)]
    assert len(set(keys)) == 2
    assert all(len(key) == len("deps-") + 64 for key in keys)


async def test_a_checkout_with_links_cannot_lead_a_cache_out_of_the_workspace(tmp_path: Path) -> None:
    caches, outside, first, second = Caches(tmp_path / "c", 1 << 20), *(tmp_path / name for name in ("o", "1", "2"))
    (first / "deps" / "sub").mkdir(parents=True)
    (first / "deps" / "sub" / "planted").write_text("x")
    wanted = CACHED["cache"]
    await caches.save(1, wanted, await caches.restore(1, wanted, first), first)
    outside.mkdir()
    (second / "deps").mkdir(parents=True)
    (second / "deps" / "sub").symlink_to(outside)
    assert (await caches.restore(1, wanted, second))[0]["hit"]
    assert list(outside.iterdir()) == []
    (third := tmp_path / "3").mkdir()
    (third / "deps").symlink_to(outside)
    with pytest.raises(Invalid, match="is a link"):
        await caches.restore(1, wanted, third)


async def test_what_was_used_longest_ago_goes_first(tmp_path: Path) -> None:
    caches, place = Caches(tmp_path / "c", 30_000), tmp_path / "w"
    (place / "deps").mkdir(parents=True)
    (place / "deps" / "a").write_bytes(bytes(6_000))

    async def use(key: str, moment: int) -> bool:
        wanted = [{"key": key, "paths": ["deps"]}]
        used = await caches.restore(1, wanted, place)
        await caches.save(1, wanted, used, place)
        os.utime(caches._entry(1, key), (moment, moment))
        return bool(used[0]["hit"])

    assert [await use(key, moment) for moment, key in enumerate("aba", 1)] == [False, False, True]
    await use("c", 4)  # 3 of 10 kB: one is too many
    assert (caches._entry(1, "a").exists(), caches._entry(1, "b").exists()) == (True, False)


async def test_a_cache_that_is_too_large_is_not_saved_and_nothing_half_written_stays(tmp_path: Path) -> None:
    caches, place = Caches(tmp_path / "c", 30_000), tmp_path / "w"
    (place / "deps").mkdir(parents=True)
    (place / "deps" / "a").write_bytes(bytes(6_000))
    (place / "deps" / "b").write_bytes(bytes(60_000))
    (tmp_path / "c" / ".part-1-1").mkdir(parents=True)  # of a crash
    wanted = CACHED["cache"]
    said = await caches.save(1, wanted, await caches.restore(1, wanted, place), place)
    assert said == ["cache deps-none was not saved: more than 30000 bytes, what cache_limit leaves"]
    assert list((tmp_path / "c").iterdir()) == []


# ── commits ────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def repository(tmp_path: Path) -> tuple[str, list[str]]:
    """Address and commits of a repository with three, and a tag on the first."""
    place = tmp_path / "repository"
    place.mkdir()

    def git(*words: str) -> str:
        who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        return subprocess.run(
            ["git", *who, *words], cwd=place, check=True, capture_output=True, text=True
        ).stdout.strip()

    git("init", "-b", "main")
    commits = []
    for number in range(3):
        (place / "number").write_text(str(number))
        git("add", ".")
        git("commit", "-m", str(number))
        commits.append(git("rev-parse", "HEAD"))
    git("tag", "-a", "v1", "-m", "first", commits[0])
    git("config", "uploadpack.allowAnySHA1InWant", "false")
    return f"file://{place}", commits


async def test_a_short_commit_is_fetched_without_noise(builder: Builder, repository: tuple[str, list[str]]) -> None:
    url, commits = repository
    result, _ = await builder.run(steps("true", checkout={"url": url, "ref": commits[1][:8]}))
    log = await builder.log(result)
    assert result.state is State.SUCCEEDED, log
    assert "fatal" not in log
    assert "couldn't find" not in log


@pytest.mark.parametrize("ref", ["main", "v1", "", "full", "short"])
async def test_the_commit_that_was_checked_out_is_in_the_result(
    builder: Builder, repository: tuple[str, list[str]], ref: str
) -> None:
    url, commits = repository
    number = {"main": 2, "v1": 0, "": 2, "full": 1, "short": 1}[ref]
    named = {"full": commits[1], "short": commits[1][:8]}.get(ref, ref)
    checkout = {"url": url, "ref": named} if named else {"url": url}
    result, facts = await builder.run(steps("cat number", checkout=checkout))
    log = await builder.log(result)
    assert result.state is State.SUCCEEDED, log
    assert facts["commit"] == commits[number]
    assert f"── step 1/1 s1 ──\n{number}" in log
    assert [step["name"] for step in facts["steps"]] == ["checkout", "s1"]
    assert log.count("── checkout") == 1


@pytest.mark.parametrize("name", ["repository", "another"])
async def test_a_push_builds_the_commit_that_was_pushed(
    builder: Builder, repository: tuple[str, list[str]], name: str
) -> None:
    url, commits = repository
    pushed = {"event": "push", "repository": name, "branch": "main", "commit": commits[1]}
    result, facts = await builder.run(steps("cat number", checkout={"url": url, "ref": "main"}), data=pushed)
    assert result.state is State.SUCCEEDED, await builder.log(result)
    assert facts["commit"] == commits[1 if name == "repository" else 2]


async def test_a_commit_that_nobody_has_fails_the_checkout(builder: Builder, repository: tuple[str, list[str]]) -> None:
    result, facts = await builder.run(steps("echo never", checkout={"url": repository[0], "ref": "0123456789"}))
    assert (result.state, result.reason) == (State.FAILED, Reason.ERROR)
    assert [step["exit_code"] != 0 for step in facts["steps"]] == [True]


@pytest.mark.parametrize("name", ["up/secret", "up/../up/secret", "in/up/secret", "../outside/secret", "here"])
async def test_a_key_tells_nothing_of_files_behind_a_link(tmp_path: Path, name: str) -> None:
    outside, workspace = tmp_path / "outside", tmp_path / "workspace"
    outside.mkdir()
    (outside / "secret").write_text("correct horse")
    (workspace / "in").mkdir(parents=True)
    for link in ("up", "in/up"):
        (workspace / link).symlink_to(outside)
    (workspace / "here").symlink_to(outside / "secret")
    (workspace / "in" / "plain").write_text("mine")

    wanted = [{"key": f"{{hash:{one}}}", "paths": ["deps"]} for one in (name, "in/plain")]
    theirs, ours = await Caches(tmp_path / "caches", 10**6).restore(1, wanted, workspace)

    assert theirs["key"] == "none"
    assert len(ours["key"]) == 64
