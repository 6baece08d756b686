"""Kind `shell`: named steps, one after the other, each a script of /bin/sh in one fresh workspace; or one file.

    spec   {"steps": [{"name", "run", "env"?, "working_directory"?}, …], "env"?, "working_directory"?}
           or {"script", "args"?, …}; with {"checkout": {"url", "ref"?}} the workspace begins as that repository
           "artifacts", "reports": globs; "cache": [{"key", "paths"}]
    result {"steps": [{"name", "seconds", "exit_code"}, …]       of the sections that were started: checkout, steps
            "commit"?, "tests"?: {"passed", "failed", "skipped", "seconds", "failures", "cases"},
            "artifacts"?: [{"path", "size"}, …], "caches"?: [{"key", "hit"}, …]}

What must stay true:
- User text reaches a shell only as the script itself; git and files are started without one.
- A file of this machine is executed only if it really lies, links followed, below one of the `script_roots`.
- Work that asks for an image never runs outside of it.
How sections are carried out is executors/attempts/sections.py.
"""

from __future__ import annotations

import os
import re
from collections.abc import Awaitable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from horae.core.work.builds import FIELDS, GoTests, no_tests
from horae.core.work.isolation import is_in_place
from horae.errors import Error, Invalid
from horae.executors.attempts import artifacts
from horae.executors.attempts.caches import Caches
from horae.executors.attempts.executor import SectionExecutor
from horae.executors.attempts.sections import Section, enter
from horae.executors.git.checkout import OWN_DIRECTORIES, LocalRepositories, at_push, checkout_sections, head_of
from horae.executors.processes.process import GRACE
from horae.ports.clock import Clock
from horae.ports.work import Keeper, Sandboxes, Work


@dataclass(frozen=True, slots=True)
class Rules:
    """What this agent allows, and how its shell work is done."""

    script_roots: tuple[Path, ...] = ()
    has_images: bool = False
    known_hosts: Path | None = None  # of executors.git
    caches: Caches | None = None
    artifact_limit: int = 1 << 30  # bytes of all artifacts of an attempt
    local: LocalRepositories = OWN_DIRECTORIES
    home: Path | None = None  # where work of one's own is done that names no directory; None: in a workspace

    def sections(self, work: Work, workspace: Path) -> Iterator[Section]:
        spec = work.spec
        if spec.get("image") and not self.has_images:
            raise Invalid(f"the image {spec['image']!r} was asked for, and this agent runs no containers")
        if checkout := spec.get("checkout"):
            yield from checkout_sections(at_push(checkout, work), workspace, workspace, self.known_hosts, self.local)
            if commit := head_of(workspace):
                work.facts["commit"] = commit
        home = self.home if is_in_place(spec) else None
        own = self._script(spec, workspace, home) if "script" in spec else _steps(work, workspace, home)
        for number, section in enumerate(own):
            is_first = number == 0 and self.caches is not None and spec.get("cache")
            yield replace(section, before=partial(self._restore, work, workspace)) if is_first else section

    def _script(self, spec: dict[str, Any], workspace: Path, home: Path | None) -> Iterator[Section]:
        cwd = enter(workspace, spec.get("working_directory"), home)
        script = _find_script(spec["script"], workspace, self.script_roots, cwd if home else None)
        argv = (str(script), *spec.get("args", ()))
        yield Section(f"script {spec['script']}", spec["script"], f"script '{spec['script']}'", argv, cwd)

    async def _restore(self, work: Work, workspace: Path) -> Sequence[str]:
        assert self.caches is not None
        used = await self.caches.restore(work.assignment.job_id, work.spec["cache"], workspace)
        work.facts["caches"] = used
        return [f"cache {use['key']} {'restored' if use['hit'] else 'is new'}" for use in used]

    def close(self, work: Work, workspace: Path, is_good: bool) -> Awaitable[Sequence[str]] | None:
        return self._close(work, workspace, is_good) if FIELDS & work.spec.keys() else None

    async def _close(self, work: Work, workspace: Path, is_good: bool) -> Sequence[str]:
        """Read the reports, store the artifacts, keep the caches. What goes wrong here does not fail the work."""
        spec, facts = work.spec, work.facts
        remarks: list[str] = []
        if globs := spec.get("reports"):
            tests = facts.setdefault("tests", no_tests())
            remarks += await artifacts.in_thread(partial(artifacts.read_reports, workspace, globs, tests))
        if globs := spec.get("artifacts"):
            remarks += await self._store(work, workspace, globs)
        if is_good and self.caches is not None and "caches" in facts:
            saved = self.caches.save(work.assignment.job_id, spec["cache"], facts["caches"], workspace)
            remarks += await saved
        return remarks

    async def _store(self, work: Work, workspace: Path, globs: Sequence[str]) -> Sequence[str]:
        found = await artifacts.in_thread(partial(artifacts.find, workspace, globs, artifacts.MAX_FILES))
        try:
            stored = await artifacts.store(work.output, workspace, found, self.artifact_limit)
        except (Error, OSError) as error:
            return [f"the artifacts could not be stored: {error}"]
        if stored:
            work.facts["artifacts"] = stored
        size = sum(one["size"] for one in stored)
        return [*found.remarks, f"{len(stored)} artifact{'s' * (len(stored) != 1)} stored, {size} bytes"]


_GO_TEST = re.compile(r"^[ \t]*go test\b", re.MULTILINE)


def _steps(work: Work, workspace: Path, home: Path | None) -> Iterator[Section]:
    spec = work.spec
    steps = spec["steps"]
    for number, step in enumerate(steps, 1):
        base = enter(workspace, spec.get("working_directory"), home) if home else None
        cwd = enter(workspace, step.get("working_directory") or (None if home else spec.get("working_directory")), base)
        argv = ("/bin/sh", "-e", "-c", "--", step["run"])
        title, what = f"step {number}/{len(steps)} {step['name']}", f"step {number} '{step['name']}'"
        watch = None
        if _GO_TEST.search(step["run"]):
            watch = GoTests(work.facts.setdefault("tests", no_tests())).watch
        yield Section(title, step["name"], what, argv, cwd, step.get("env") or {}, watch=watch)


def shell_executor(
    sandboxes: Sandboxes,
    workspaces: Path,
    slots: int,
    clock: Clock,
    *,
    grace: float = GRACE,
    script_roots: Sequence[Path] = (),
    known_hosts: Path | None = None,
    caches: Caches | None = None,
    artifact_limit: int = 1 << 30,
    keeper: Keeper | None = None,
    local: LocalRepositories = OWN_DIRECTORIES,
) -> SectionExecutor:
    home = Path(sandboxes.trust.directory) if sandboxes.trust else None
    rules = Rules(tuple(script_roots), "docker" in sandboxes.named, known_hosts, caches, artifact_limit, local, home)
    return SectionExecutor(
        "shell", rules.sections, sandboxes, workspaces, slots, clock, grace=grace, closing=rules.close, keeper=keeper
    )


# ── what is started ────────────────────────────────────────────────────────────────────────────────


def _find_script(script: str, workspace: Path, roots: Sequence[Path], own: Path | None = None) -> Path:
    """Return the file itself, links followed: in the checkout, or below a root. Anything else is refused, but for
    whoever runs this agent: theirs is any file, by its name in their `own` directory."""
    if own is not None:
        return _executable(script, (own / script).resolve())
    is_absolute = os.path.isabs(script)
    if is_absolute and not roots:
        hint = "set script_roots to the directories whose files jobs may execute"
        raise Invalid(f"the script {script!r} is refused: this agent has no script_roots; {hint}")
    found = Path(script).resolve() if is_absolute else (workspace / script).resolve()
    allowed = [root.resolve() for root in roots] if is_absolute else [workspace]
    if not any(found.is_relative_to(root) for root in allowed):
        where = "any of this agent's script_roots" if is_absolute else "the checkout"
        raise Invalid(f"the script {script!r} does not lie below {where}")
    return _executable(script, found)


def _executable(script: str, found: Path) -> Path:
    if not found.is_file():
        raise Invalid(f"the script {script!r} is not there")
    if not os.access(found, os.X_OK):
        raise Invalid(f"the script {script!r} is not executable: chmod +x it")
    return found
