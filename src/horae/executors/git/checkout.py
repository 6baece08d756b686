"""The checkout of a git repository, as sections of an attempt.

What must stay true:
- git is started by argv, never through a shell; nothing of the repository runs: no hook, no submodule, no transport
  but https, http, ssh and file.
- It reaches the server of its address and nothing else, through the sandbox's own relay.
- Credentials stand on no command line and in no environment. They lie in files of mode 0600 in a directory that is
  made for the checkout, outside of what is cloned, and gone before the next section starts. A password is given to
  the host of the address only, wherever a server may redirect to.
- The key of an ssh server is remembered when it is met first; a server that shows another one later is refused.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit, urlunsplit

import msgspec

from horae.core.model import Json, Phase, Reason
from horae.core.work.repositories import is_address, is_commit, pushed_commit
from horae.errors import Denied, Invalid
from horae.executors.attempts.secretfiles import SecretFiles
from horae.executors.attempts.sections import CHECKOUT, Section
from horae.ports.work import Work

ENVIRONMENT = {
    "GIT_TERMINAL_PROMPT": "0",  # nobody is there to answer
    "GIT_ALLOW_PROTOCOL": "https:http:ssh:file",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
}
_OPTIONS = ("-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "submodule.recurse=false")
_PORTS = {"http": (80, 443), "https": (443,), "ssh": (22,)}  # http is often sent on to https
_SHALLOW = ("--no-tags", "--depth", "1")
FULL_HASH = 40  # digits, of SHA-1; SHA-256 has 64


def source_of(work: Work) -> Json:
    """Return the source of a project, as a checkout."""
    source = work.spec["source"]
    return at_push({**source, "ref": source.get("branch")}, work)


def at_push(wanted: Json, work: Work) -> Json:
    """Return a checkout, at the commit that was pushed if that is why the run was made."""
    data = work.assignment.data
    if data is None or '"push"' not in data:
        return wanted
    commit = pushed_commit(msgspec.json.decode(data), wanted["url"])
    return wanted if commit is None else {**wanted, "ref": commit}


@dataclass(frozen=True, slots=True)
class LocalRepositories:
    """Which directories of this machine may be cloned, as file:// addresses."""

    roots: tuple[Path, ...] | None = None  # those below one of these; None: those of the user that runs Horae
    hidden: Path | None = None  # the data directory: neither what lies in it nor what it lies in

    def find(self, repository: Path, workspace: Path) -> Path:
        """Return a repository, links followed; Denied when it is not one of them."""
        found = repository.resolve()
        for own in (workspace.parent.resolve(), *([self.hidden.resolve()] if self.hidden else ())):
            if found.is_relative_to(own):
                raise self._refusal(repository, "it lies among the workspaces, or other files, of this agent")
            if own.is_relative_to(found):
                raise self._refusal(repository, "the files of this agent lie in it")
        if self.roots is None:
            if found.exists() and found.stat().st_uid != os.getuid():
                raise self._refusal(repository, "it belongs to another user")
        elif not any(found.is_relative_to(root.resolve()) for root in self.roots):
            raise self._refusal(repository, "it lies below none of this agent's repository_roots")
        return found

    def _refusal(self, repository: Path, why: str) -> Denied:
        hint = "set repository_roots to the directories whose repositories jobs may clone"
        return Denied(f"the repository {str(repository)!r} is refused: {why}", hint="" if self.roots is None else hint)


OWN_DIRECTORIES = LocalRepositories()


def checkout_sections(
    wanted: Json, workspace: Path, directory: Path, known_hosts: Path | None = None,
    local: LocalRepositories = OWN_DIRECTORIES,
) -> Iterator[Section]:  # fmt: skip
    """Bring `url` at `ref` (a branch, a tag, a commit; the default branch unless said) into a directory of the
    workspace that is empty or not there. `known_hosts` remembers the keys of ssh servers."""
    url, ref = wanted["url"], wanted.get("ref")
    if not is_address(url):
        raise Invalid(f"{url!r} is not the address of a git repository: https://, ssh://, file:/// or git@host:path")
    bare, username, password = _split(url, wanted)
    shown = re.sub(r"//[^/@]*@", "//", bare)
    is_local = bare.startswith("file://")
    sees = (local.find(Path(unquote(bare.removeprefix("file://"))), workspace),) if is_local else ()
    with _access(bare, username, password, wanted.get("private_key"), workspace, known_hosts) as access:
        options, env, private = access
        git = _Git(("git", *_OPTIONS, *options), env, shown, sees, private, addresses_of(bare))
        is_empty = directory != workspace or workspace not in [path.parent for path in private]
        if is_empty and not (ref and is_commit(ref)):
            branch = ("--branch", ref) if ref else ()
            argv = ("clone", *_SHALLOW, *branch, "--", bare, os.path.relpath(directory, workspace))
            yield git.section(_at(shown, ref), argv, workspace)
        else:  # neither can be cloned
            yield from _fetch(git, bare, ref, directory)


def _fetch(git: _Git, url: str, ref: str | None, directory: Path) -> Iterator[Section]:
    """By name or full hash, one commit deep; all of it for a hash that is short (no server gives those out), or a
    server that gives out none."""
    directory.mkdir(exist_ok=True)
    at = ref or "HEAD"
    section = partial(git.section, _at(git.shown, ref), cwd=directory)
    yield section(("init", "-q"))
    section = partial(section, goes_on=True)
    is_hash = is_commit(at)
    is_short = is_hash and len(at) < FULL_HASH
    if not is_short:
        yield section(("fetch", *_SHALLOW, "--", url, at), may_fail=is_hash)
    if is_short or (is_hash and not _read(directory / ".git" / "FETCH_HEAD")):  # git empties it first
        yield section(("fetch", "--tags", "--", url, "+refs/heads/*:refs/remotes/origin/*"))
        at = f"origin/{at}" if (directory / ".git/refs/remotes/origin" / at).is_file() else at  # a branch's name
    else:
        at = "FETCH_HEAD"
    yield section(("checkout", "-q", "--detach", at, "--"))


def _at(shown: str, ref: str | None) -> str:
    return f"{shown} {ref}" if ref else shown


def head_of(directory: Path) -> str | None:
    """Return the commit that a checkout brought."""
    own = directory / ".git"
    head = _read(own / "HEAD").strip()
    if name := head.removeprefix("ref: ") if head.startswith("ref: ") else "":
        packed = (line.split(" ", 1) for line in _read(own / "packed-refs").splitlines() if " " in line)
        head = _read(own / name).strip() or next((commit for commit, other in packed if other == name), "")
    return head if is_commit(head) else None


@dataclass(frozen=True, slots=True)
class _Git:
    """How git is called for one checkout."""

    begin: tuple[str, ...]
    env: dict[str, str]
    shown: str  # the address, without a password
    sees: tuple[Path, ...]
    keeps: tuple[Path, ...]  # where its credentials are
    listed: tuple[str, ...]  # all that it reaches

    def section(
        self, title: str, argv: tuple[str, ...], cwd: Path, *, goes_on: bool = False, may_fail: bool = False
    ) -> Section:
        return Section(
            f"{CHECKOUT} {title}", CHECKOUT, f"the checkout of {self.shown}", (*self.begin, *argv), cwd, self.env,
            Reason.ERROR, listed=self.listed, sees=self.sees, phase=Phase.PREPARING, goes_on=goes_on, may_fail=may_fail,
            is_ours=True, keeps=self.keeps,
        )  # fmt: skip


def addresses_of(url: str) -> tuple[str, ...]:
    """Return where the server of a repository is, host:port each; nowhere for one of this machine's files. A server
    that sends on to another one is not followed there."""
    if url.startswith("file://"):
        return ()
    parts = urlsplit(url if "://" in url else f"ssh://{url.partition(':')[0]}")
    host = (parts.hostname or "").removesuffix(".")
    host = "127.0.0.1" if host == "localhost" else f"[{host}]" if ":" in host else host
    return tuple(f"{host}:{port}" for port in ((parts.port,) if parts.port else _PORTS[parts.scheme]))


# ── credentials ────────────────────────────────────────────────────────────────────────────────────


def _split(url: str, wanted: Json) -> tuple[str, str | None, str | None]:
    """Return the address without a password, with whom to be there. What the address says itself goes last."""
    username, password = wanted.get("username"), wanted.get("password")
    if not url.startswith(("http://", "https://")):
        return url, username, password
    parts = urlsplit(url)
    mine, _, host = parts.netloc.rpartition("@")
    user, _, word = mine.partition(":")
    bare = urlunsplit(parts._replace(netloc=host))
    if mine:
        username, password = username or unquote(user), password or unquote(word)
    return bare, username, password


Access = tuple[tuple[str, ...], dict[str, str], tuple[Path, ...]]


@contextmanager
def _access(
    url: str, username: str | None, password: str | None, key: str | None, workspace: Path, known_hosts: Path | None
) -> Iterator[Access]:
    """Options and environment with which git may go to an address, and where their files are, which are gone
    afterwards."""
    is_ssh = not url.startswith(("http://", "https://", "file://"))
    if not is_ssh and username is None and password is None:
        yield (), ENVIRONMENT, ()
        return
    secret_files = SecretFiles(CHECKOUT, workspace.parent)
    private = secret_files.make(workspace)
    try:
        if is_ssh:
            yield from _ssh(private, key, known_hosts)
        else:
            yield _password(url, username or "git", password or "", private), ENVIRONMENT, (private,)
    finally:
        secret_files.remove(private)


def _password(url: str, username: str, password: str, private: Path) -> tuple[str, ...]:
    parts = urlsplit(url)
    file = private / "password"
    _write(file, f"{parts.scheme}://{quote(username, safe='')}:{quote(password, safe='')}@{parts.netloc}\n")
    return ("-c", f"credential.helper=store --file={shlex.quote(str(file))}")


def _ssh(private: Path, key: str | None, known_hosts: Path | None) -> Iterator[Access]:
    """The keys of servers are lent to the checkout as a copy: what it met first is added to ours afterwards."""
    met = private / "known_hosts"
    before = _read(known_hosts) if known_hosts is not None else ""
    _write(met, before)
    ssh = ["ssh", "-oBatchMode=yes", "-oStrictHostKeyChecking=accept-new"]
    ssh.append(f'-oUserKnownHostsFile="{met}" ~/.ssh/known_hosts')
    if key is not None:
        _write(private / "key", key if key.endswith("\n") else key + "\n")
        ssh += ["-oIdentitiesOnly=yes", "-i", str(private / "key")]
    yield (), {**ENVIRONMENT, "GIT_SSH_COMMAND": shlex.join(ssh)}, (private,)
    after = _read(met)
    if known_hosts is not None and after != before:
        _remember(known_hosts, after.splitlines(keepends=True))


def _remember(known_hosts: Path, lines: list[str]) -> None:
    """Add what is new: another checkout may have added to it meanwhile."""
    known = _read(known_hosts)
    fresh = [line for line in lines if line not in known.splitlines(keepends=True)]
    part = known_hosts.with_suffix(".part")
    _write(part, known + "".join(fresh))
    part.replace(known_hosts)


def _read(file: Path) -> str:
    with suppress(FileNotFoundError):
        return file.read_text()
    return ""


def _write(file: Path, text: str) -> None:
    with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "w") as opened:
        opened.write(text)
