"""One job of every kind for every sandbox, which tells where it runs, and can be made to stay in its build or its run.

A job that stays has two processes at least, one of them in a session of its own; all of them bear the job's name and
their fence in the environment, by which they are found from outside, whatever walls are around them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..acceptance.server import Server
from ..repositories import GitServer, make_repository, serving
from .dockerd import Daemon
from .test_builds import GO

PATIENCE = 120.0  # seconds
IMAGE = "horae-test:tools"
SANDBOXES = ("plain", "bubblewrap", "docker")
KINDS = ("shell", "build", "git_java", "git_python")  # build: a shell job with a checkout
CASES = [*((kind, sandbox) for kind in KINDS for sandbox in SANDBOXES), ("python", "worker")]
CODE = 3  # with which jobs end that are not asked to stay

STAY = 'if [ "$HORAE_ATTEMPT" = 1 ]; then setsid sleep 600 & echo staying; sleep 600; fi\n'
FRESH = "test ! -e left; touch left\n"
LOOK = 'echo "namespace $(readlink /proc/self/ns/pid)"; if [ -e /image ]; then cat /image; fi\n'
COMPILE = "mkdir -p target/classes; javac -d target/classes src/Main.java\n"
COPY = "mkdir -p target; cp -r built target/classes\n"
GO_ENV = {"CGO_ENABLED": "0", "GOPROXY": "off", "GOFLAGS": "-mod=mod"}
JAVA = """
import java.nio.file.*;
public class Main {
  public static void main(String[] args) throws Exception {
    System.out.println("namespace " + Files.readSymbolicLink(Path.of("/proc/self/ns/pid")));
    if (Files.exists(Path.of("/image"))) System.out.println(Files.readString(Path.of("/image")));
    if (args[0].equals("stay") && System.getenv("HORAE_ATTEMPT").equals("1")) {
      new ProcessBuilder("setsid", "sleep", "600").start();
      System.out.println("staying");
      Thread.sleep(600_000);
    }
    System.out.println("done by java");
    System.exit(Integer.parseInt(args[1]));
  }
}
"""
PYTHON = """
import os, subprocess, sys, time
print("namespace", os.readlink("/proc/self/ns/pid"))
if os.path.exists("/image"):
    print(open("/image").read())
if sys.argv[1] == "stay" and os.environ["HORAE_ATTEMPT"] == "1":
    subprocess.Popen(["setsid", "sleep", "600"])
    print("staying")
    time.sleep(600)
print("done by python")
sys.exit(int(sys.argv[2]))
"""
HANDLER = """
import os, subprocess, time
from horae import handler

@handler
def work(context):
    print("namespace", os.readlink("/proc/self/ns/pid"), flush=True)
    if context.data["stay"] and context.attempt == 1:
        told = {"HORAE_JOB_NAME": context.data["name"], "HORAE_FENCE": str(context.fence)}
        subprocess.Popen(["sleep", "600"], env=told, start_new_session=True)
        print("staying", flush=True)
        time.sleep(600)
    return "done by a handler"
"""


@dataclass
class World:
    """A server that has every sandbox, the daemon of its containers, and the repositories of its jobs."""

    directory: Path
    server: Server
    daemon: Daemon
    site: GitServer
    hanging: threading.Event  # set: the git server answers nobody

    # ── jobs ──

    def job(self, kind: str, sandbox: str, stay: str = "", code: int = CODE) -> dict[str, Any]:
        """`stay`: build or run."""
        walls = {"image": IMAGE} if sandbox == "docker" else {"sandbox": sandbox}
        name = f"{kind}-{uuid.uuid4().hex}"
        made = {"name": name, "kind": "shell" if kind == "build" else kind, "triggers": [], **walls}
        if kind == "python":
            del made["sandbox"]
            return {**made, "handler": "matrix:work", "data": {"stay": bool(stay), "name": name}}
        if (kind, sandbox) == ("shell", "plain"):
            return made | self._shell(stay, code, fresh="")  # it is done in a directory of its user's
        return made | getattr(self, f"_{kind}")(stay, code)

    def _shell(self, stay: str, code: int, fresh: str = FRESH) -> dict[str, Any]:
        work = f"{fresh}{STAY if stay else ''}echo done by shell; exit {code}"
        return {"steps": [{"name": "look", "run": LOOK}, {"name": "work", "run": work}]}

    def _build(self, stay: str, code: int) -> dict[str, Any]:
        steps = [{"name": "look", "run": LOOK + FRESH}]
        if stay:
            steps += [{"name": "work", "run": f"{STAY if stay == 'run' else ''}echo done by build; exit {code}"}]
        else:
            steps += [{"name": "build", "run": "go build -o add ./cmd/add && ./add"}]
            steps += [{"name": "test", "run": f"go test -v ./...; echo done by build; exit {code}"}]
        return {"steps": steps, "env": GO_ENV, "checkout": {"url": self.site.url("go.git")}}

    def _git_java(self, stay: str, code: int) -> dict[str, Any]:
        build = FRESH + (STAY if stay == "build" else "") + (COPY if stay else COMPILE)
        args = f"{'stay' if stay == 'run' else 'go'} {code}"
        source = {"url": self.site.url("java.git")}
        return {"source": source, "build_tool": "maven", "build_cmd": build, "main_class": "Main", "args": args}

    def _git_python(self, stay: str, code: int) -> dict[str, Any]:
        build = FRESH + (STAY if stay == "build" else "")
        args = f"{'stay' if stay == 'run' else 'go'} {code}"
        source = {"url": self.site.url("python.git")}
        return {"source": source, "main_file": "main.py", "build_cmd": build, "args": args}

    def begin(self, job: dict[str, Any]) -> int:
        """Submit it and run it now."""
        if "image" in job:
            job = {**job, "network": "off"}  # the daemon of tests has no bridge
        (made,) = self.server.submit(job)
        return int(self.server.post(f"/v1/jobs/{made['id']}/run", status=201)["id"])

    # ── what is seen of them ──

    def log(self, run_id: int) -> str:
        return self.server.http.get(f"/v1/runs/{run_id}/log").text

    def ended(self, run_id: int) -> Any:
        def look() -> Any:
            run = self.server.get(f"/v1/runs/{run_id}")
            return run if run["state"] not in ("queued", "running", "blocked") else None

        return self.server.wait_until(look, f"run {run_id} to end: {self.log(run_id)}", PATIENCE)

    def until_staying(self, run_id: int, name: str, stay: str, kind: str) -> None:
        """A checkout that gets no answer says nothing: its processes are all there is of it."""
        is_silent = (kind, stay) == ("build", "build")
        self.server.wait_until(
            lambda: processes(name) and (is_silent or "\nstaying" in self.log(run_id)), f"{name} to stay", PATIENCE
        )

    def workspaces(self) -> list[str]:
        return os.listdir(self.directory / "data" / "agent" / "workspaces")

    def until_clean(self) -> None:
        """Neither containers nor workspaces; those of the run that ended last may be on their way."""
        self.server.wait_until(lambda: not self.daemon.containers() and not self.workspaces(), "leftovers to go")
        assert str(self.directory / "data") not in Path("/proc/self/mountinfo").read_text()


def processes(name: str) -> dict[int, str]:
    """Return the processes of a job, from outside: pid → fence."""
    found = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (fence := fence_of(int(entry), name)):
            found[int(entry)] = fence
    return found


def fence_of(pid: int, name: str) -> str:
    """Empty unless it is a process of that job, and alive."""
    with suppress(OSError):
        told = dict(pair.partition("=")[::2] for pair in Path(f"/proc/{pid}/environ").read_text("latin-1").split("\0"))
        return told.get("HORAE_FENCE", "") if told.get("HORAE_JOB_NAME") == name else ""
    return ""


class Witness(threading.Thread):
    """Sees, from outside and all the time, whether processes of two attempts of a job live at once."""

    def __init__(self, names: list[str]) -> None:
        super().__init__()
        self._names = names
        self._over = threading.Event()
        self.overlaps: list[str] = []

    def run(self) -> None:
        while not self._over.wait(0.02):
            for name in self._names:
                seen = processes(name)
                newest = max(seen.values(), key=int, default="")
                # Seen first does not mean at once: who is older must still be there now.
                older = {pid for pid, fence in seen.items() if fence != newest and fence_of(pid, name) == fence}
                if older:
                    self.overlaps.append(f"{name}: {older} beside fence {newest}")

    def stop(self) -> list[str]:
        self._over.set()
        self.join()
        return self.overlaps


@contextmanager
def make_world(directory: Path, *flags: str) -> Iterator[World]:
    root = directory / "served"
    make_repository(root / "go.git", GO)
    make_repository(root / "python.git", {"main.py": PYTHON})
    make_repository(root / "java.git", {"src/Main.java": JAVA, "built/Main.class": _compiled(directory)})
    (directory / "jobs").mkdir()
    (directory / "jobs" / "matrix.py").write_text(HANDLER)
    daemon = Daemon()
    try:
        import_tools(daemon)
        hanging = threading.Event()
        with serving(root) as site:
            site.on_request = lambda: _wait_while(hanging)
            given = ("--docker-url", daemon.url, "--heartbeat-interval", "0.5", "--sandbox", "auto", "--slots", "16")
            server = Server(directory, *given, "--on-restart", "end", *flags).start()
            try:
                yield World(directory, server, daemon, site, hanging)
            finally:
                hanging.clear()
                server.stop()
    finally:
        daemon.stop()


def _wait_while(hanging: threading.Event) -> None:
    while hanging.is_set():
        time.sleep(0.05)


def _compiled(directory: Path) -> bytes:
    source = directory / "Main.java"
    source.write_text(JAVA)
    subprocess.run(["javac", str(source)], check=True)
    return (directory / "Main.class").read_bytes()


def import_tools(daemon: Daemon) -> None:
    """An image with this machine's Go, Java and Python, in which programs lie where they lie here."""
    java, go = (Path(os.path.realpath(shutil.which(name) or "")).parents[1] for name in ("java", "go"))
    source = Path(os.path.realpath(go / "src"))
    version = Path(os.path.realpath("/usr/bin/python3")).name
    trees = [
        *(java / "bin", java / "lib", java / "conf", *Path("/etc").glob("java-*"), Path("/etc/alternatives")),
        *(Path("/usr/bin") / name for name in ("java", "javac", "go", "python3")),
        *(go / "bin", go / "VERSION", go / "src", go / "pkg" / "include", go / "pkg" / "tool"),
        *(path for path in (go / "pkg").glob("linux_*") if "_" not in path.name.removeprefix("linux_")),
        *(source, source.parent / "pkg" / "include", Path("/usr/lib") / version),
    ]
    programs = [f"/usr/bin/{version}", f"{java}/bin/java", f"{java}/lib/server/libjvm.so"]
    tools = ("sh", "cat", "cp", "echo", "kill", "mkdir", "readlink", "setsid", "sleep", "test", "touch")
    there = [str(path) for path in dict.fromkeys(trees) if os.path.lexists(path)]
    daemon.import_host(IMAGE, there, programs, tools)
