"""Kind `shell`: named steps, one after the other, each a script of /bin/sh in one fresh workspace; or one file.

    spec   {"steps": [{"name", "run", "env"?, "working_directory"?}, …], "env"?, "working_directory"?}
           or {"script", "args"?, …}; with {"checkout": {"url", "ref"?}} the workspace begins as that repository
    result {"steps": [{"name", "seconds", "exit_code"}, …]}      of the sections that were started: checkout, steps

What must stay true:
- User text reaches a shell only as the script itself; git and files are started without one.
- A file of this machine is executed only if it really lies, links followed, below one of the `script_roots`.
- Work that asks for an image never runs outside of it.
How sections are carried out is executors.sections.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from horae.core.model import Json, Reason
from horae.errors import Invalid
from horae.executors.sections import Section, SectionExecutor, enter
from horae.ports import Clock, Sandboxes, Work

CHECKOUT = "checkout"  # the name of the first section, where there is one
GIT_ENVIRONMENT = {
    "GIT_TERMINAL_PROMPT": "0",  # nobody is there to answer
    "GIT_ALLOW_PROTOCOL": "https:http:ssh:file",
    "GIT_SSH_COMMAND": "ssh -oBatchMode=yes",
}


@dataclass(frozen=True, slots=True)
class Rules:
    """What this agent allows, and how its shell work is done."""

    script_roots: tuple[Path, ...] = ()
    has_images: bool = False

    def sections(self, work: Work, workspace: Path) -> Iterator[Section]:
        spec = work.spec
        if spec.get("image") and not self.has_images:
            raise Invalid(f"the image {spec['image']!r} was asked for, and this agent runs no containers")
        if checkout := spec.get("checkout"):
            yield checkout_section(checkout, workspace)
        if "script" in spec:
            script = _find_script(spec["script"], workspace, self.script_roots)
            cwd = enter(workspace, spec.get("working_directory"))
            argv = (str(script), *spec.get("args", ()))
            yield Section(f"script {spec['script']}", spec["script"], f"script '{spec['script']}'", argv, cwd)
            return
        steps = spec["steps"]
        for number, step in enumerate(steps, 1):
            cwd = enter(workspace, step.get("working_directory") or spec.get("working_directory"))
            argv = ("/bin/sh", "-e", "-c", "--", step["run"])
            title, what = f"step {number}/{len(steps)} {step['name']}", f"step {number} '{step['name']}'"
            yield Section(title, step["name"], what, argv, cwd, step.get("env") or {})


def shell_executor(
    sandboxes: Sandboxes,
    workspaces: Path,
    slots: int,
    clock: Clock,
    *,
    grace: float = 5.0,
    script_roots: Sequence[Path] = (),
) -> SectionExecutor:
    rules = Rules(tuple(script_roots), has_images="docker" in sandboxes.named)
    return SectionExecutor("shell", rules.sections, sandboxes, workspaces, slots, clock, grace=grace)


# ── what is started ────────────────────────────────────────────────────────────────────────────────


def checkout_section(wanted: Json, workspace: Path) -> Section:
    """Clone a repository into the workspace, which is empty; no hook of anybody runs."""
    url, ref = wanted["url"], wanted.get("ref")
    branch = ("--branch", ref) if ref else ()
    argv = ("git", "-c", "core.hooksPath=/dev/null", "clone", "--depth", "1", *branch, "--", url, ".")
    shown = re.sub(r"//[^/@]*@", "//", url)  # a password may stand there
    title = f"{CHECKOUT} {shown} {ref}" if ref else f"{CHECKOUT} {shown}"
    local = (_readable(Path(url.removeprefix("file://")), workspace),) if url.startswith("file://") else ()
    return Section(
        title, CHECKOUT, f"the checkout of {shown}", argv, workspace, GIT_ENVIRONMENT, Reason.ERROR,
        network=True, sees=local,
    )  # fmt: skip


def _readable(repository: Path, workspace: Path) -> Path:
    """A repository of this machine, links followed; those of other attempts are not for us."""
    found = repository.resolve()
    if found.is_relative_to(workspace.parent):
        raise Invalid(f"the repository {str(repository)!r} is refused: it lies among the workspaces of this agent")
    return found


def _find_script(script: str, workspace: Path, roots: Sequence[Path]) -> Path:
    """The file itself, links followed: in the checkout, or below a root. Anything else is refused."""
    is_absolute = os.path.isabs(script)
    if is_absolute and not roots:
        hint = "set script_roots to the directories whose files jobs may execute"
        raise Invalid(f"the script {script!r} is refused: this agent has no script_roots; {hint}")
    found = Path(script).resolve() if is_absolute else (workspace / script).resolve()
    allowed = [root.resolve() for root in roots] if is_absolute else [workspace]
    if not any(found.is_relative_to(root) for root in allowed):
        where = "any of this agent's script_roots" if is_absolute else "the checkout"
        raise Invalid(f"the script {script!r} does not lie below {where}")
    if not found.is_file():
        raise Invalid(f"the script {script!r} is not there")
    if not os.access(found, os.X_OK):
        raise Invalid(f"the script {script!r} is not executable: chmod +x it")
    return found
