"""What an agent executes with: the sandboxes and executors that work on this machine.

Each kind that is missing here says why in the log; agents advertise only what they have.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import structlog

from horae.app.machine import keeps_work, machine_resources
from horae.config import Config
from horae.core.model import Node
from horae.core.work.catalogues import HandlerFact
from horae.core.work.kinds import KINDS
from horae.errors import ConfigError
from horae.executors.attempts.caches import Caches
from horae.executors.attempts.executor import SectionExecutor
from horae.executors.attempts.sections import Plan
from horae.executors.git.checkout import LocalRepositories
from horae.executors.git.java import JavaProjects
from horae.executors.git.python import PythonProjects
from horae.executors.handlers.describer import Describer
from horae.executors.handlers.python import PythonExecutor
from horae.executors.http.executor import HttpExecutor
from horae.executors.processes.probe import MachineProbe
from horae.executors.processes.process import KeeperProcess
from horae.executors.reach import reach_of
from horae.executors.shell import shell_executor
from horae.executors.spark import GRACE, SparkQueries
from horae.executors.sync import Syncs
from horae.handlers import Function
from horae.ports.clock import Clock
from horae.ports.outputs import OutputWriter, Spool
from horae.ports.telemetry import SpanSink
from horae.ports.transport import Link
from horae.ports.work import Executor, Keeper, Sandbox, Sandboxes, Trust
from horae.sandboxes.bubblewrap import BubblewrapSandbox, Bwrap, find_bwrap
from horae.sandboxes.cgroups import Groups
from horae.sandboxes.endpoints import Reach, find_joiner
from horae.sandboxes.plain import PATH, PlainSandbox
from horae.service.agent.agent import Agent
from horae.values import is_loopback

log = structlog.get_logger()
FindHere = Callable[[str], Function | None]


@dataclass(frozen=True, slots=True)
class Work:
    """What a server or a remote agent does work with; a server without the role has no sandboxes and no executors."""

    keeper: KeeperProcess
    sandboxes: Sandboxes
    executors: dict[str, Executor]
    describer: Describer | None = None  # of the handlers that its agent runs

    def make_agent(
        self, config: Config, node: Node, link: Link, outputs: OutputWriter, clock: Clock, place: Path | None,
        spool: Spool | None = None, installation: str = "", spans: SpanSink | None = None,
    ) -> Agent:  # fmt: skip
        """`place` is where this agent writes what its work says, if that is a directory."""
        return Agent(
            node, link, self.executors, outputs, self.keeper, clock, lease_seconds=config.lease,
            output_limit=config.output_limit, spool=spool, sandboxes=tuple(self.sandboxes.named.values()),
            examine=make_probe(config, self.keeper, place).examine, installation=installation,
            spans=spans, trace_ratio=None if spans is None else config.trace_ratio,
        )  # fmt: skip


def offered(config: Config) -> dict[str, int]:
    """Return what runs may have of this agent beside slots: what its machine has, unless it was told otherwise."""
    return {**machine_resources(), **dict(config.resources)}


def environments_of(config: Config) -> Path:
    return config.data / "agent" / "environments"


def nowhere(_: str) -> Function | None:
    """Return what this very program runs under the name of a handler: nothing."""
    return None


def make_work(config: Config, clock: Clock, reach: Reach, *, umask: int, find_here: FindHere = nowhere) -> Work:
    """`find_here` as of PythonExecutor."""
    keeper = KeeperProcess(config.data / "agent", keeps=keeps_work(config), umask=umask)
    if "agent" not in config.roles:
        return Work(keeper, Sandboxes({}, ""), {})
    sandboxes = make_sandboxes(config, keeper, reach)
    executors = make_executors(config, keeper, sandboxes, clock, reach, find_here)
    describer = None
    if "python" in executors:
        describer = Describer(keeper, clock, config.jobs_directory, environments_of(config))
    return Work(keeper, sandboxes, executors, describer)


def make_reach(config: Config, *, has_one_user: bool = False, servers: Sequence[str] = ()) -> Reach:
    """Return what the network of work may lead to. `servers` are those of a remote agent, host:port each."""
    theirs = [int(port) for _, _, port in (server.rpartition(":") for server in servers) if port.isdigit()]
    ports = (config.port, config.grpc_port, *config.further_ports, *theirs)
    is_behind = config.is_loopback and all(is_loopback(server.rpartition(":")[0].strip("[]")) for server in servers)
    return Reach(find_joiner(PATH), ports, config.allowed_networks, has_one_user, is_behind)


def make_sandboxes(config: Config, keeper: Keeper, reach: Reach) -> Sandboxes:
    """Return those that work on this machine. The setting `bubblewrap` is a policy too: nothing runs outside of it.
    `plain`, which hides nothing, is offered where it was asked for, to one user alone, and where there is nothing
    better."""
    groups, named = Groups(config.data), dict[str, Sandbox]()
    bwrap = find_bwrap()
    if isinstance(bwrap, Bwrap):
        named["bubblewrap"] = BubblewrapSandbox(
            bwrap, keeper, groups, hidden=config.data, roots=config.script_roots, reach=reach
        )
    elif config.sandbox == "bubblewrap":
        hint = "install bubblewrap and let it make user namespaces, or set sandbox to plain"
        raise ConfigError(f"the sandbox bubblewrap cannot be used: {bwrap}", path="sandbox", hint=hint)
    else:
        log.warning("sandbox.unavailable", sandbox="bubblewrap", why=bwrap)
    if config.sandbox == "plain" or (config.sandbox == "auto" and (reach.has_one_user or not named)):
        named["plain"] = PlainSandbox(keeper, groups)
    if (docker := make_docker(config, keeper, reach)) is not None:
        named["docker"] = docker
    default = next(iter(named)) if config.sandbox == "auto" else config.sandbox
    why, weaker = ("", bwrap.warning) if isinstance(bwrap, Bwrap) else (bwrap, "")
    warning = _warning(config, why) if default == "plain" else weaker
    if warning:
        log.warning("sandbox.none", text=warning)
    log.info("sandbox.default", sandbox=default, offered=",".join(named))
    trust = _trust() if config.sandbox == "auto" and reach.has_one_user else None
    return Sandboxes(named, default, warning, trust)


def _trust() -> Trust:
    """In the directory where this process was started, with what its user's own commands have."""
    known = ("PATH", "HOME", "SHELL", "LANG", "LC_ALL", "USER", "LOGNAME", "VIRTUAL_ENV")
    return Trust(os.getcwd(), {name: os.environ[name] for name in known if name in os.environ})


def _warning(config: Config, why: str) -> str:
    reason = "the setting sandbox is plain" if config.sandbox == "plain" else why
    return f"jobs run without walls, with all rights of the user that runs Horae: {reason}"


def make_docker(config: Config, keeper: Keeper, reach: Reach) -> Sandbox | None:
    """Containers, where a daemon answers; loaded only then, because few agents have one."""
    if not has_daemon(config.docker_url):
        return None
    if importlib.util.find_spec("aiodocker") is None:
        log.warning("sandbox.unavailable", sandbox="docker", why="aiodocker is missing: pip install 'horae[docker]'")
        return None
    from horae.sandboxes.docker import DockerSandbox

    program = shutil.which("docker", path=PATH)
    if program is None:
        log.warning("sandbox.unavailable", sandbox="docker", why="the docker command is not there")
        return None
    agent = hashlib.sha256(str(config.data.resolve()).encode()).hexdigest()[:16]
    return DockerSandbox(program, config.docker_url, keeper, agent, reach)


def has_daemon(url: str) -> bool:
    """Return whether somebody listens at the socket of a Docker daemon."""
    try:
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(1.0)
            probe.connect(urlsplit(url).path)
    except (OSError, ValueError):
        return False
    return True


def make_executors(
    config: Config, keeper: Keeper, sandboxes: Sandboxes, clock: Clock, reach: Reach, find_here: FindHere = nowhere
) -> dict[str, Executor]:
    """With one user, repositories of theirs on this machine may be cloned unless the settings say which."""
    is_open = reach.has_one_user and not config.repository_roots
    local = LocalRepositories(None if is_open else config.repository_roots, config.data)
    shell = shell_executor(
        sandboxes, config.data / "agent" / "workspaces", slots=config.slots, clock=clock,
        script_roots=config.script_roots, known_hosts=config.data / "agent" / "known_hosts",
        caches=Caches(config.data / "agent" / "caches", config.cache_limit), artifact_limit=config.artifact_limit,
        keeper=keeper, local=local,
    )  # fmt: skip
    python = PythonExecutor(
        keeper, clock, slots=config.handler_slots, processes=config.workers, jobs_directory=config.jobs_directory,
        environments=environments_of(config), find_here=find_here,
    )  # fmt: skip
    http = HttpExecutor(reach_of(reach.for_requests()), clock, config.handler_slots)
    every: dict[str, Executor] = {
        "shell": shell, "python": python, "http": http,
        **make_project_executors(config, keeper, sandboxes, clock, local),
        **make_data_executors(config, sandboxes, clock, reach),
    }  # fmt: skip
    if unknown := [kind for kind in config.kinds if kind not in every]:
        message = f"this machine does no work of the kind {unknown[0]}"
        raise ConfigError(message, path="kinds", hint=f"it can do {', '.join(every)}")
    return {kind: executor for kind, executor in every.items() if not config.kinds or kind in config.kinds}


async def list_handlers(executors: Mapping[str, Executor]) -> list[HandlerFact]:
    """Return the Python handlers that an agent with these executors has."""
    python = executors.get("python")
    return await python.catalogue.read() if isinstance(python, PythonExecutor) else []


def make_probe(config: Config, keeper: Keeper, output: Path | None) -> MachineProbe:
    """`output` is where this agent writes what its work says, if that is a directory."""
    return MachineProbe(keeper, [config.data / "agent" / "workspaces", *([output] if output else ())])


def make_project_executors(
    config: Config, keeper: Keeper, sandboxes: Sandboxes, clock: Clock, local: LocalRepositories
) -> dict[str, Executor]:
    """Return those whose programs are on this machine; what a build needs besides is known when a job wants it."""
    agent, known_hosts = config.data / "agent", config.data / "agent" / "known_hosts"
    java, python = JavaProjects(PATH, known_hosts, config.maven_settings, local), shutil.which("python3", path=PATH)
    plans: dict[str, Plan] = {}
    if _has_all_of("git_java"):
        plans["git_java"] = java.sections
    if python and _has_all_of("git_python"):
        projects = PythonProjects(python, PATH, agent / "environments", known_hosts, local)
        projects.tidy()
        plans["git_python"] = projects.sections
    return {
        kind: SectionExecutor(kind, plan, sandboxes, agent / "workspaces", config.slots, clock, keeper=keeper)
        for kind, plan in plans.items()
    }


def make_data_executors(config: Config, sandboxes: Sandboxes, clock: Clock, reach: Reach) -> dict[str, Executor]:
    """Return those whose libraries are installed; whether their engines answer is known when a job runs."""
    workspaces, made = config.data / "agent" / "workspaces", dict[str, Executor]()
    if _has_all_of("sync"):
        syncs = Syncs(
            reach.for_ours(), config.lake_root, config.clickhouse_url or "", os.environ, config.hdfs_user
        )  # fmt: skip
        made["sync"] = SectionExecutor("sync", syncs.sections, sandboxes, workspaces, config.slots, clock)
    if _has_all_of("spark_sql"):
        queries = SparkQueries(
            config.spark_url, config.clickhouse_url, config.lake_root, os.environ, config.spark_warehouse,
            config.hdfs_user, config.lake_buckets, allows_code=config.spark_code,
        )  # fmt: skip
        made["spark_sql"] = SectionExecutor(
            "spark_sql", queries.sections, sandboxes, workspaces, config.slots, clock, grace=GRACE
        )
    return made


def _has_all_of(kind: str) -> bool:
    """Return whether the programs and packages of a kind of work are on this machine."""
    about = KINDS[kind]
    has_packages = all(importlib.util.find_spec(name) is not None for name in about.packages)
    return has_packages and all(shutil.which(name, path=PATH) for name in about.programs)


def all_labels(config: Config, sandboxes: Sandboxes) -> tuple[str, ...]:
    """Return what the operator says this agent has, and the sandboxes that work here."""
    return tuple(dict.fromkeys((*config.labels, *(f"sandbox:{name}" for name in sandboxes.named))))
