"""Kind `git_python`: a Python project is cloned, given the packages it requires, and run.

    spec   {"source": {"url", "branch"?, …}, "main_file" or "module", "requirements"?, "build_cmd"?, "args"?}
    result {"steps": [{"name", "seconds", "exit_code"}, …]}      of checkout, environment, build, run

Packages are installed into a virtual environment. One that is made from a plain list of packages is kept and shared
by all projects of one owner with the same list; one that depends on the project (paths, options, addresses) is made in
the workspace, for the attempt; so is one of an image, whose interpreter is its own.

What must stay true:
- Files of the project are used only if they lie in it, links followed.
- A kept environment is used only when it was made to its end (see executors.environment, which makes it); whoever
  makes one can write to that one only, and nobody once it is made.
- Nothing of the project is imported while packages are installed; a kept environment is made outside of it.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from horae.core.model import Json, Phase, Reason
from horae.errors import Invalid
from horae.executors.attempts.sections import Section
from horae.executors.attempts.trees import remove_tree
from horae.executors.git import environment as program
from horae.executors.git.checkout import OWN_DIRECTORIES, LocalRepositories, checkout_sections, source_of
from horae.ports.work import Work

ENVIRONMENT, BUILD, RUN = "environment", "build", "run"  # names of sections
UNUSED_SECONDS = 30 * 24 * 3600  # after which a kept environment is removed
LARGEST_LIST = 1 << 20  # bytes
# Nothing in it can be read in two ways, so a line is read once.
_PACKAGE = re.compile(r"[A-Za-z0-9][\w.-]*+\s*+(?:\[[\w\s,.-]*+\]\s*+)?(?:[=<>!~][^;@\s/][^;@/]*+)?(?:;[^@]*+)?")
_HASH = "--hash="


@dataclass(frozen=True, slots=True)
class PythonProjects:
    """How Python projects are carried out here, by the interpreter `python`. `path` is where programs are found."""

    python: str
    path: str
    environments: Path
    known_hosts: Path | None = None
    local: LocalRepositories = OWN_DIRECTORIES

    def sections(self, work: Work, workspace: Path) -> Iterator[Section]:
        spec, project = work.spec, workspace / "project"
        yield from checkout_sections(source_of(work), workspace, project, self.known_hosts, self.local)
        python, env = "python3" if "image" in spec else self.python, {"PYTHONUNBUFFERED": "1"}
        sees: tuple[Path, ...] = ()
        if "requirements" in spec:
            place = self._place(work, _inside(project, spec["requirements"]), workspace)
            yield self._environment(spec, python, place, project, workspace)
            python, sees = str(place / program.VENV / "bin" / "python"), (place,)
            env |= {"VIRTUAL_ENV": str(place / program.VENV), "PATH": f"{place / program.VENV / 'bin'}:{self.path}"}
        if command := spec.get("build_cmd"):
            argv = ("/bin/sh", "-e", "-c", "--", command)
            title, network = f"{BUILD} {command.splitlines()[0]}", "network" not in spec
            yield Section(
                title, BUILD, "the build", argv, project, env, network=network, sees=sees, phase=Phase.PREPARING
            )
        what = ("-m", spec["module"]) if "module" in spec else (str(_inside(project, spec["main_file"])),)
        argv = (python, *what, *shlex.split(spec.get("args", "")))
        yield Section(RUN, RUN, "the program", argv, project, env, sees=sees)

    def _place(self, work: Work, requirements: Path, workspace: Path) -> Path:
        """Return where the environment is, or will be."""
        spec, owner = work.spec, work.assignment.owner
        text = requirements.read_bytes()[: LARGEST_LIST + 1]
        if len(text) > LARGEST_LIST:
            raise Invalid(f"the requirements are larger than {LARGEST_LIST // 1024} KiB")
        if "image" in spec or not is_plain(text.decode(errors="replace")):
            return workspace / ENVIRONMENT
        key = hashlib.sha256(b"\0".join((os.path.realpath(self.python).encode(), owner.encode(), text)))
        return self.environments.resolve() / key.hexdigest()[:32]

    def _environment(self, spec: Json, python: str, place: Path, project: Path, workspace: Path) -> Section:
        """Paths in a list are those of the project; a list that is kept has none."""
        place.mkdir(parents=True, exist_ok=True)
        is_made = (place / program.MADE).exists()
        if is_made:
            os.utime(place)  # it is still in use
        argv = (python, "-I", program.__file__, str(place), str(_inside(project, spec["requirements"])))
        cwd, code = project if place.is_relative_to(workspace) else place, Path(program.__file__)
        return Section(
            ENVIRONMENT, ENVIRONMENT, "the environment", argv, cwd, {"PIP_NO_INPUT": "1"}, Reason.ERROR,
            network="network" not in spec and not is_made, sees=(code, place) if is_made else (code,),
            keeps=() if is_made else (place,), phase=Phase.PREPARING,
        )  # fmt: skip

    def tidy(self) -> None:
        """Remove environments that nobody has used for long. Nothing may run yet."""
        self.environments.mkdir(parents=True, exist_ok=True)
        for place in list(self.environments.iterdir()):
            if time.time() - place.lstat().st_mtime > UNUSED_SECONDS:
                remove_tree(place)


def is_plain(requirements: str) -> bool:
    """Return whether a list of requirements says all by itself: packages and versions, no options, paths or
    addresses."""
    lines = (re.sub(r"(^|\s)#.*", "", line).strip() for line in re.sub(r"\\\n", " ", requirements).splitlines())
    return all(_PACKAGE.fullmatch(_without_hashes(line)) for line in lines if line)


def _without_hashes(line: str) -> str:
    words = line.split() if _HASH in line else [line]
    while words and words[-1].startswith(_HASH) and words[-1] != _HASH:
        words.pop()
    return " ".join(words)


def _inside(project: Path, name: str) -> Path:
    found = (project / name).resolve()
    if not found.is_relative_to(project.resolve()):
        raise Invalid(f"{name!r} leads out of the project")
    if not found.is_file():
        raise Invalid(f"there is no file {name!r} in the project")
    return found
