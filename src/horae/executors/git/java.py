"""Kind `git_java`: a Java project is cloned, built by Maven, sbt or any command, and run.

    spec   {"source": {"url", "branch"?, …}, "build_tool", "build_cmd"?, "main_class"?, "args"?}
    result {"steps": [{"name", "seconds", "exit_code"}, …]}      of checkout, build, run

With a `main_class`, it runs with everything that was built on its class path; without, the one jar that names its own.
Where there is neither, building was the work.

What must stay true:
- User text reaches a shell only as `build_cmd` itself; the class and its arguments are given by argv.
- The operator's settings for Maven, which may hold passwords, are seen by builds that ask for them and nothing else.
- Build tools keep what they load in the workspace, unless the operator's settings for them say otherwise: no attempt
  can change what another one builds with.
"""

from __future__ import annotations

import os
import shlex
import shutil
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from horae.core.model import Json, Phase
from horae.errors import Invalid
from horae.executors.attempts.sections import Section
from horae.executors.git.checkout import OWN_DIRECTORIES, LocalRepositories, checkout_sections, source_of
from horae.ports.work import Work

BUILD, RUN = "build", "run"  # names of sections
MAVEN_SETTINGS = Path(".m2", "settings.xml")  # in the workspace, which is the home of the build
COMMANDS = {"maven": "mvn -q -B package", "sbt": "sbt -batch package"}
_PACKAGES = {"mvn": "apt-get install maven", "sbt": "see https://www.scala-sbt.org/download"}
# Where a build leaves what it made: in the project and its modules. Not looked for all over the tree, which is large.
_TARGETS = ("target", "*/target", "*/*/target")
_JARS = ("*.jar", "scala-*/*.jar", "dependency/*.jar", "lib/*.jar")
_NOT_RUN = ("-sources.jar", "-javadoc.jar", "-tests.jar", "-test-sources.jar")
MANIFEST = "META-INF/MANIFEST.MF"
LARGEST_MANIFEST = 1 << 20  # bytes


@dataclass(frozen=True, slots=True)
class JavaProjects:
    """How Java projects are carried out here. `path` is where programs are found."""

    path: str
    known_hosts: Path | None = None
    maven_settings: Path | None = None
    local: LocalRepositories = OWN_DIRECTORIES

    def sections(self, work: Work, workspace: Path) -> Iterator[Section]:
        spec, project = work.spec, workspace / "project"
        yield from checkout_sections(source_of(work), workspace, project, self.known_hosts, self.local)
        yield self._build(spec, workspace, project)
        (workspace / MAVEN_SETTINGS).unlink(missing_ok=True)  # for the build, not for what it made
        if argv := _program(spec, project):
            yield Section(RUN, RUN, "the program", (*argv, *shlex.split(spec.get("args", ""))), project)

    def _build(self, spec: Json, workspace: Path, project: Path) -> Section:
        command = spec.get("build_cmd") or COMMANDS[spec["build_tool"]]
        if "image" not in spec:
            self._require(command)
        if self.maven_settings is not None and spec.get("maven_settings"):
            place = workspace / MAVEN_SETTINGS
            place.parent.mkdir(exist_ok=True)
            shutil.copyfile(self.maven_settings, place)
        home = f"-Duser.home={workspace}"  # Java asks the system for it, not the environment
        return Section(
            f"{BUILD} {command.splitlines()[0]}", BUILD, "the build", ("/bin/sh", "-e", "-c", "--", command), project,
            {"MAVEN_OPTS": home, "SBT_OPTS": home}, network="network" not in spec, phase=Phase.PREPARING,
        )  # fmt: skip

    def _require(self, command: str) -> None:
        """Say what to install rather than that a shell did not find it."""
        program = command.split(maxsplit=1)[0]
        if program in _PACKAGES and shutil.which(program, path=self.path) is None:
            raise Invalid(f"the build needs {program}, which this agent does not have: {_PACKAGES[program]}")


def _program(spec: Json, project: Path) -> tuple[str, ...]:
    """Return what to start after the build; nothing when there is nothing to run."""
    jars = _jars(project)
    if main_class := spec.get("main_class"):
        built = jars or _built(project, ("classes",))
        if not built:
            raise Invalid(f"the build left no jar and no classes under target/ to run {main_class} from")
        return ("java", "-cp", ":".join(map(str, built)), main_class)
    runnable = [jar for jar in jars if _names_main_class(jar)]
    if len(runnable) > 1:
        names = ", ".join(str(jar.relative_to(project)) for jar in runnable)
        raise Invalid(f"the build left several jars that can run ({names}): name the main_class")
    return ("java", "-jar", str(runnable[0])) if runnable else ()


def _jars(project: Path) -> list[Path]:
    """Return what the build made to be run; shading leaves the jar it began with under another name."""
    jars = _built(project, _JARS)
    return [jar for jar in jars if not jar.name.endswith(_NOT_RUN) and not jar.name.startswith("original-")]


def _built(project: Path, patterns: tuple[str, ...]) -> list[Path]:
    found = {path for target in _TARGETS for pattern in patterns for path in project.glob(f"{target}/{pattern}")}
    return sorted(path for path in found if _is_inside(path, project))


def _is_inside(path: Path, project: Path) -> bool:
    """Also where links lead. A colon would end the entry of a class path."""
    return path.resolve().is_relative_to(project.resolve()) and os.pathsep not in str(path)


def _names_main_class(jar: Path) -> bool:
    try:
        with zipfile.ZipFile(jar) as archive, archive.open(MANIFEST) as manifest:
            lines = manifest.read(LARGEST_MANIFEST).splitlines()
    except (OSError, KeyError, zipfile.BadZipFile, NotImplementedError, RuntimeError):
        return False
    return any(line.lower().startswith(b"main-class:") for line in lines)
