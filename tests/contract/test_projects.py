"""Projects from git, with real repositories, a real git server and real processes: the checkout and Python projects.

Java projects need Maven and are in tests/engines.
"""

from __future__ import annotations

import io
import json
import os
import stat
import subprocess
import sys
import zipfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from horae.core.model import Json, Phase, Reason, State
from horae.errors import Denied, Invalid
from horae.executors.attempts.executor import SectionExecutor
from horae.executors.attempts.secretfiles import MEMORY, SecretFiles
from horae.executors.attempts.trees import remove_tree
from horae.executors.git import environment
from horae.executors.git.checkout import LocalRepositories, checkout_sections
from horae.executors.git.java import JavaProjects
from horae.executors.git.python import PythonProjects, is_plain
from horae.executors.processes.process import KeeperProcess
from horae.sandboxes.plain import PATH
from horae.testing import FakeClock

from ..repositories import GIT, GitServer, commit, git, make_repository, serving
from .test_executors import GRACE, MemoryOutput, Rig, plain

PASSWORD = "s3cret/+ pass@word"
MAIN = """
import json, os, sys
print("main", json.dumps(sys.argv[1:]), os.environ["HORAE_RUN_ID"])
print("around", sorted(os.listdir("..")))
sys.exit(int(os.environ.get("CODE", "0")))
"""


@pytest.fixture
async def keeper(tmp_path: Path) -> AsyncIterator[KeeperProcess]:
    keeper = KeeperProcess(tmp_path / "keeper")
    await keeper.open()
    yield keeper
    await keeper.close()


@pytest.fixture
async def rig(keeper: KeeperProcess, tmp_path: Path) -> AsyncIterator[Rig]:
    clock = FakeClock()
    projects = PythonProjects("/usr/bin/python3", PATH, tmp_path / "environments", tmp_path / "known_hosts")
    projects.tidy()
    executor = SectionExecutor(
        "git_python", projects.sections, plain(keeper, tmp_path), tmp_path / "workspaces", 4, clock, grace=GRACE
    )
    await executor.open()
    yield Rig(executor, clock)
    await executor.close()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "served" / "a.git", {"main.py": MAIN, "tool/__main__.py": "print('a module')"})


@pytest.fixture
def server(tmp_path: Path, repository: Path) -> Iterator[GitServer]:
    with serving(tmp_path / "served", PASSWORD) as site:
        yield site


def spec(repository: Path | str, **more: Any) -> Json:
    """Return a project of this machine, or at an address."""
    source = {"url": f"file://{repository}" if isinstance(repository, Path) else repository}
    for name in ("branch", "username", "password"):
        if name in more:
            source[name] = more.pop(name)
    return {"source": source, **({} if "module" in more else {"main_file": "main.py"}), **more}


def names(result: Any) -> list[str]:
    return [step["name"] for step in json.loads(result.result)["steps"]]


# ── running ──


async def test_a_project_is_cloned_and_its_file_run_with_arguments(rig: Rig, repository: Path) -> None:
    result, text = await rig.run(spec(repository, args="one 'two three' \"$HOME\" ;id"))

    assert (result.state, result.exit_code) == (State.SUCCEEDED, 0), text
    assert names(result) == ["checkout", "run"]
    assert 'main ["one", "two three", "$HOME", ";id"] 1' in text


async def test_a_module_is_run_in_place_of_a_file(rig: Rig, repository: Path) -> None:
    result, text = await rig.run(spec(repository, module="tool"))

    assert result.state is State.SUCCEEDED, text
    assert "a module" in text


async def test_the_exit_code_of_the_program_is_that_of_the_run(rig: Rig, repository: Path) -> None:
    commit(repository, {"main.py": "raise SystemExit(3)"})

    result, _ = await rig.run(spec(repository))

    assert (result.state, result.reason, result.exit_code) == (State.FAILED, Reason.EXIT, 3)
    assert result.message == "the program ended with exit code 3"


async def test_the_phase_turns_to_running_when_the_program_starts(rig: Rig, repository: Path) -> None:
    told: list[tuple[Phase, str]] = []
    output = MemoryOutput()
    rig.start(
        spec(repository, build_cmd="echo built"), output=output,
        note_phase=lambda phase: told.append((phase, output.text)),
    )  # fmt: skip

    assert (await rig.ended()).state is State.SUCCEEDED
    ((phase, before),) = told
    assert phase is Phase.RUNNING
    assert "built" in before
    assert "main" not in before.replace("main.py", "")


async def test_a_build_that_fails_ends_the_run_before_the_program(rig: Rig, repository: Path) -> None:
    result, text = await rig.run(spec(repository, build_cmd="exit 4"))

    assert (result.state, result.exit_code, names(result)) == (State.FAILED, 4, ["checkout", "build"])
    assert "main [" not in text


@pytest.mark.parametrize("field", ["main_file", "requirements"])
async def test_a_file_that_leads_out_of_the_project_is_refused(
    rig: Rig, repository: Path, tmp_path: Path, field: str
) -> None:
    (tmp_path / "secret").write_text("print('out')")
    (repository / "link").symlink_to(tmp_path / "secret")
    commit(repository, {})

    result, text = await rig.run(spec(repository, **{field: "link"}))

    assert (result.state, result.reason) == (State.FAILED, Reason.ERROR)
    assert result.message == "'link' leads out of the project"
    assert "out\n" not in text


async def test_a_file_that_is_not_there_is_named(rig: Rig, repository: Path) -> None:
    result, _ = await rig.run({**spec(repository), "main_file": "other.py"})

    assert result.message == "there is no file 'other.py' in the project"


async def test_cancelling_leaves_neither_process_nor_workspace(rig: Rig, repository: Path, tmp_path: Path) -> None:
    commit(repository, {"main.py": "import time\nprint('waiting', flush=True)\ntime.sleep(600)"})
    output = rig.start(spec(repository))
    await output.until("waiting")

    rig.executor.stop(1, Reason.REQUESTED)
    result = await rig.ended()

    assert result.state is State.CANCELLED
    assert list((tmp_path / "workspaces").iterdir()) == []
    assert str(tmp_path) not in "".join(command_lines("project/main.py"))


def command_lines(part: str) -> list[str]:
    """Of every process of this machine that has this in its command line."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            found += [line] if part in line else []
    return found


# ── environments ──


def wheel(name: str, code: str) -> bytes:
    """Return a wheel with one module."""
    info = f"{name}-1.0.dist-info"
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr(f"{name}.py", code)
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return content.getvalue()


async def test_what_the_project_brings_along_is_installed_for_the_attempt(
    rig: Rig, repository: Path, tmp_path: Path
) -> None:
    commit(repository, {
        "main.py": "import sundial; print('it is', sundial.HOUR)",
        "requirements.txt": "--no-index\n./wheels/sundial-1.0-py3-none-any.whl\n",
        "wheels/sundial-1.0-py3-none-any.whl": wheel("sundial", "HOUR = 7"),
    })  # fmt: skip

    result, text = await rig.run(spec(repository, requirements="requirements.txt"))

    assert result.state is State.SUCCEEDED, text
    assert names(result) == ["checkout", "environment", "run"]
    assert "it is 7" in text
    assert list((tmp_path / "environments").iterdir()) == []


def test_only_repositories_below_the_roots_are_cloned_also_by_links(tmp_path: Path) -> None:
    root, other, workspace = tmp_path / "root", tmp_path / "other", tmp_path / "workspaces" / "1-1"
    for directory in (root / "mine", other, workspace):
        directory.mkdir(parents=True)
    (root / "link").symlink_to(other)
    local = LocalRepositories((root,))
    assert local.find(root / "mine", workspace) == root / "mine"
    for refused in (other, root / "link", root / ".." / "other", Path("/")):
        with pytest.raises(Denied):
            local.find(refused, workspace)
    with pytest.raises(Denied, match="repository_roots"):
        LocalRepositories(()).find(root / "mine", workspace)


def test_neither_the_data_directory_nor_what_it_lies_in_is_cloned(tmp_path: Path) -> None:
    data = tmp_path / "home" / "data"
    workspace = data / "agent" / "workspaces" / "1-1"
    workspace.mkdir(parents=True)
    (data / "outputs").mkdir()
    local = LocalRepositories((Path("/"),), data)
    for refused in (data, data / "outputs", data.parent, tmp_path, Path("/"), workspace):
        with pytest.raises(Denied):
            local.find(refused, workspace)


def test_directories_of_other_users_are_not_cloned_for_one_user(tmp_path: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can give a directory to somebody else")
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    os.chown(theirs, 65534, 65534)
    with pytest.raises(Denied, match="another user"):
        LocalRepositories().find(theirs, tmp_path / "workspaces" / "1-1")


POISON = "import os, sys; print('poisoned', sys.prefix); sys.exit(0)"


@pytest.mark.parametrize(
    "requirements",
    [pytest.param("# none today\n", marks=pytest.mark.long), "--no-index\n"],
    ids=["kept", "for the attempt"],
)
async def test_a_pip_of_the_project_installs_nothing(rig: Rig, repository: Path, requirements: str) -> None:
    fakes = {f"{name}/{file}.py": POISON for name in ("pip", "venv", "ensurepip") for file in ("__init__", "__main__")}
    commit(repository, {"main.py": "print('well')", "packages.txt": requirements, **fakes})
    result, text = await rig.run(spec(repository, requirements="packages.txt"))
    assert result.state is State.SUCCEEDED, text
    assert "poisoned" not in text
    assert text.endswith("well\n")


def test_an_environment_is_of_one_owner(tmp_path: Path) -> None:
    def place(owner: str) -> Path:
        work: Any = SimpleNamespace(spec={}, assignment=SimpleNamespace(owner=owner))
        return projects._place(work, requirements, tmp_path)

    requirements = tmp_path / "packages.txt"
    requirements.write_text("requests==2.31.0\n")
    projects = PythonProjects("/usr/bin/python3", PATH, tmp_path / "environments")
    assert place("ann") != place("bob") == place("bob")


@pytest.mark.long
async def test_environments_belong_to_one_owner_and_are_sealed(rig: Rig, repository: Path, tmp_path: Path) -> None:
    commit(repository, {"main.py": "import sys; print('in', sys.prefix)", "packages.txt": "# none today\n"})
    project = spec(repository, requirements="packages.txt")
    for number, owner in enumerate(("ann", "bob", "bob")):
        result, text = await rig.run(project, run_id=number + 1, owner=owner)
        assert result.state is State.SUCCEEDED, text
    places = list((tmp_path / "environments").iterdir())
    assert len(places) == 2
    made = [path for place in places for path in (place / "venv", *(place / "venv").rglob("*"))]
    assert [path for path in made if not path.is_symlink() and path.stat().st_mode & 0o222] == []
    for place in places:
        assert remove_tree(place)


async def test_a_plain_list_makes_one_environment_for_everybody(rig: Rig, repository: Path, tmp_path: Path) -> None:
    commit(repository, {"main.py": "import sys; print('in', sys.prefix)", "packages.txt": "# none today\n"})
    project = spec(repository, requirements="packages.txt")

    first = rig.start(project, run_id=1)
    second = rig.start(project, run_id=2)  # at the same time: it waits for the first
    await rig.ended(2)

    (place,) = (tmp_path / "environments").iterdir()
    assert [result.state for result in rig.results] == [State.SUCCEEDED] * 2, first.text + second.text
    assert f"in {place / 'venv'}" in first.text
    assert f"in {place / 'venv'}" in second.text
    assert (first.text + second.text).count("the environment is there already") == 1


def test_an_environment_that_was_not_made_to_its_end_is_made_anew(tmp_path: Path) -> None:
    left_over, requirements = tmp_path / "venv" / "left-over", tmp_path / "requirements.txt"
    left_over.parent.mkdir()
    left_over.touch()
    requirements.write_text("--no-index\nno-such-package-anywhere==1.0\n")

    uv = Path(sys.executable).with_name("uv")  # pip takes longer to be there than all else here
    argv = ["/usr/bin/python3", "-I", environment.__file__, str(tmp_path), str(requirements), str(uv)]
    done = subprocess.run(argv, env={"PATH": PATH}, capture_output=True, text=True, check=False)

    assert done.returncode == 1, done.stderr
    assert not left_over.exists()
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", True), ("# a\n\n", True), ("requests", True), ("requests==2.31.0 # pinned\nflask>=2,<3", True),
        ("uvicorn[standard]~=0.20 ; python_version > '3.8'", True),
        ("a==1 \\\n  --hash=sha256:00 \\\n  --hash=sha256:11", True),
        ("-r more.txt", False), ("-e .", False), ("./wheels/a.whl", False), ("--index-url http://evil", False),
        ("a @ file:///srv/a", False), ("a@https://x/y", False), ("https://x/a.whl", False), (".", False),
        ("git+https://x/y", False), ("a/b", False),
    ],
)  # fmt: skip
def test_a_list_is_plain_when_it_says_all_by_itself(text: str, expected: bool) -> None:
    assert is_plain(text) is expected


# ── the checkout ──


async def test_a_branch_a_tag_and_a_commit_can_be_asked_for(rig: Rig, repository: Path) -> None:
    old = git(repository, "rev-parse", "HEAD")
    git(repository, "tag", "v1")
    git(repository, "branch", "old")
    commit(repository, {"main.py": "print('new')"})

    texts = {
        ref: (await rig.run(spec(repository, branch=ref), run_id=n))[1] for n, ref in enumerate(["v1", "old", old], 1)
    }

    assert all("main []" in text for text in texts.values()), texts
    assert "new" in (await rig.run(spec(repository), run_id=9))[1]


async def test_a_password_opens_the_repository_and_is_seen_nowhere(
    rig: Rig, server: GitServer, repository: Path, tmp_path: Path
) -> None:
    seen: list[str] = []
    modes: list[int] = []
    prefix = SecretFiles("checkout", tmp_path / "workspaces")._prefix

    def look() -> None:
        seen.extend(command_lines("s3cret"))
        modes.extend(stat.S_IMODE(path.stat().st_mode) for path in MEMORY.glob(f"{prefix}*/*"))
        seen.extend(_environments("s3cret"))

    server.on_request = look
    result, text = await rig.run(spec(server.url("a.git"), username="ann", password=PASSWORD))

    assert result.state is State.SUCCEEDED, text
    assert server.asked
    assert seen == []
    assert set(modes) == {0o600}
    assert "around ['project']" in text  # what opened it is gone when the program runs
    assert "s3cret" not in text + str(result)


def _environments(part: str) -> list[str]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                found += [entry.name] if part.encode() in (entry / "environ").read_bytes() else []
            except OSError:
                continue
    return found


@pytest.mark.parametrize("kind", ["in the address", "wrong", "none"])
async def test_a_password_may_stand_in_the_address_and_must_be_right(rig: Rig, server: GitServer, kind: str) -> None:
    own = {"in the address": "ann:s3cret%2F%2B%20pass%40word@", "wrong": "ann:wr0ng@", "none": ""}[kind]
    seen: list[str] = []
    server.on_request = lambda: seen.extend(command_lines("s3cret") + command_lines("wr0ng"))

    result, text = await rig.run(spec(server.url("a.git").replace("//", f"//{own}")))

    assert result.state is (State.SUCCEEDED if kind == "in the address" else State.FAILED), text
    assert seen == []
    assert "wr0ng" not in text + str(result)


async def test_S18_a_password_is_not_given_to_another_server(
    rig: Rig, server: GitServer, repository: Path, tmp_path: Path
) -> None:
    """The second server asks for a password that would be the same."""
    with serving(tmp_path / "served", PASSWORD) as other:
        commit(repository, {".gitmodules": f'[submodule "x"]\n path = x\n url = {other.url("a.git")}\n'})
        result, _ = await rig.run(spec(server.url("a.git"), username="ann", password=PASSWORD))

    assert result.state is State.SUCCEEDED
    assert other.asked == []


async def test_S20_nothing_of_a_repository_runs_at_its_checkout(rig: Rig, repository: Path, tmp_path: Path) -> None:
    """G11: submodules are left alone, whatever transport they name; attributes name no program that is known."""
    evil = tmp_path / "evil"
    commit(repository, {
        ".gitmodules": f'[submodule "x"]\n path = x\n url = ext::touch {evil}\n update = !touch {evil}\n',
        ".gitattributes": "*.py filter=evil\n",
        ".gitconfig": f'[filter "evil"]\n smudge = touch {evil}\n[core]\n fsmonitor = touch {evil}\n',
    })  # fmt: skip
    hash_ = git(repository, "rev-parse", "HEAD")
    git(repository, "update-index", "--add", "--cacheinfo", f"160000,{hash_},x")
    git(repository, "commit", "-q", "-m", "a submodule")

    for run_id, ref in enumerate([None, git(repository, "rev-parse", "HEAD")], 1):
        given = {"branch": ref} if ref else {}
        result, text = await rig.run(spec(repository, **given), run_id=run_id)
        assert result.state is State.SUCCEEDED, text
    assert not evil.exists()


@pytest.mark.parametrize("url", ["abcd", "ext::sh -c id", "--upload-pack=id", "ftp://h/x", "/srv/a"])
async def test_an_address_that_is_none_fails_with_words(rig: Rig, url: str) -> None:
    result, _ = await rig.run({"source": {"url": url}, "main_file": "main.py"})

    assert (result.state, result.reason) == (State.FAILED, Reason.ERROR)
    assert "is not the address of a git repository" in result.message


async def test_the_workspaces_of_others_cannot_be_cloned(rig: Rig, tmp_path: Path) -> None:
    other = make_repository(tmp_path / "workspaces" / "77-1" / "project", {"main.py": "print('theirs')"})

    result, text = await rig.run(spec(other))

    assert "lies among the workspaces" in result.message
    assert "theirs" not in text


# ── ssh ──


def sections(tmp_path: Path, known_hosts: Path, **source: str) -> Any:
    """Return those of a checkout over ssh, with the first of them."""
    workspace = tmp_path / "workspace"
    workspace.mkdir(exist_ok=True)
    wanted = {"url": "git@git.example:team/a.git", **source}
    steps = checkout_sections(wanted, workspace, workspace / "project", known_hosts)
    return steps, next(steps)


def test_a_private_key_is_a_file_of_ours_for_as_long_as_the_checkout(tmp_path: Path) -> None:
    steps, section = sections(tmp_path, tmp_path / "known_hosts", private_key="-----BEGIN KEY-----")

    [private] = section.keeps
    key = private / "key"
    assert private.parent == MEMORY
    assert (stat.S_IMODE(key.stat().st_mode), key.read_text()) == (0o600, "-----BEGIN KEY-----\n")
    command = section.env["GIT_SSH_COMMAND"]
    assert f"-i {key}" in command
    for option in ("-oBatchMode=yes", "-oIdentitiesOnly=yes", "-oStrictHostKeyChecking=accept-new"):
        assert option in command
    assert "BEGIN" not in command + str(section.argv)
    assert next(steps, None) is None
    assert not private.exists()


def test_a_checkout_that_breaks_off_leaves_no_key(tmp_path: Path) -> None:
    steps, section = sections(tmp_path, tmp_path / "known_hosts", private_key="x")

    steps.close()

    assert not section.keeps[0].exists()


def test_the_key_of_a_server_is_remembered_when_it_is_met_first(tmp_path: Path) -> None:
    known_hosts = tmp_path / "known_hosts"
    known_hosts.write_text("a.example ssh-ed25519 AAAA\n")
    steps, section = sections(tmp_path, known_hosts)
    met = section.keeps[0] / "known_hosts"
    assert met.read_text() == "a.example ssh-ed25519 AAAA\n"

    known_hosts.write_text("a.example ssh-ed25519 AAAA\nc.example ssh-ed25519 CCCC\n")  # by another checkout
    with met.open("a") as file:
        file.write("git.example ssh-ed25519 BBBB\n")
    assert next(steps, None) is None

    assert [line[0] for line in known_hosts.read_text().splitlines()] == ["a", "c", "g"]


def test_the_real_ssh_understands_what_it_is_told(tmp_path: Path) -> None:
    steps, section = sections(tmp_path, tmp_path / "known_hosts", private_key="x")
    [private], command = section.keeps, section.env["GIT_SSH_COMMAND"]

    shown = subprocess.run(
        f"{command} -G git.example", shell=True, capture_output=True, text=True, env=GIT, check=False
    )

    assert f"userknownhostsfile {private / 'known_hosts'}" in shown.stdout, shown.stderr
    assert "stricthostkeychecking accept-new" in shown.stdout
    assert f"identityfile {private / 'key'}" in shown.stdout
    steps.close()


def test_S21_what_is_no_address_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(Invalid):
        sections(tmp_path, tmp_path / "known_hosts", url="--x", private_key="x")
    workspace = tmp_path / "workspace"
    assert list(workspace.iterdir()) == list(MEMORY.glob(f"{SecretFiles('checkout', tmp_path)._prefix}*")) == []


# ── Maven's settings ──


@pytest.mark.parametrize("asked", [{"maven_settings": True}, {}])
def test_the_operators_settings_are_seen_by_builds_that_ask_for_them_only(
    tmp_path: Path, asked: dict[str, Any]
) -> None:
    settings, workspace = tmp_path / "operators.xml", tmp_path / "workspace"
    settings.write_text("<settings>a password</settings>")
    (workspace / "project").mkdir(parents=True)
    spec = {"source": {"url": "https://example.org/x.git"}, "build_tool": "maven", "build_cmd": "true", **asked}
    work: Any = SimpleNamespace(spec=spec, assignment=SimpleNamespace(data=None))

    seen = {
        section.name: [path.read_text() for path in workspace.rglob("settings.xml")]
        for section in JavaProjects(PATH, None, settings).sections(work, workspace)
    }

    assert seen["build"] == (["<settings>a password</settings>"] if asked else [])
    assert list(workspace.rglob("settings.xml")) == []
