"""Containers of a Docker daemon: the image a job names, and nothing of the machine but the workspace.

The daemon is the parent of containers, so nothing dies with the agent by itself. What ties them together is a `docker
start -ai` below the keeper: it carries the output, and holds the container's input open. When it is gone, however it
went, the daemon closes that input; the container's first process, a few lines of shell, waits for just this, and kills
everything in the container.

What must stay true:
- A container is removed before its end is told, however it ended; one that an earlier life left, at open.
- What runs in it is not root, of the container or of the machine: nobody where the agent is root, else the agent.
- No capability, no new privileges, a read-only system, a bounded number of processes; no network unless asked for.
- stdout and stderr are one stream: their order is kept.
- The daemon's socket is never given to a container.
"""

from __future__ import annotations

import asyncio
import json
import os
import stat
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar

import aiodocker
from aiodocker.containers import DockerContainer
from aiodocker.exceptions import DockerError

from horae.core.model import Reason
from horae.errors import Error, Invalid, MachineFault, Unavailable
from horae.ports.work import Boundary, Command, Exit, Keeper, Limits, Process
from horae.sandboxes.cgroups import LOOK_SECONDS, Group, group_of, words_of
from horae.sandboxes.endpoints import Plan, Reach, Relayed, spawn_relay
from horae.sandboxes.plain import PATH

NOBODY = 65534  # who works in containers of an agent that is root
PIDS = 4096  # processes of work that has no limit of its own
TMP_BYTES = 512 * 1024 * 1024  # of its /tmp, which is memory
LABEL = "horae.agent"  # whose containers these are
PULL_SECONDS = 600.0
START_LOOK_SECONDS = 0.02
NOT_THERE = 404
KILLED = -9
NO_SPACE = "no space left on device"  # as the daemon words it

# Runs the command ("$@") with everything it starts; TERM goes to all of it. The end of input means that nobody attends
# to it any more: then everything dies. The watcher of the input is there before the work is, and heeds no TERM. A wait
# that a signal cut short has no code to tell (145 where a child had ended) and is done again; 127 from the second means
# that the first had it after all. The work may kill or stop the watcher, but not the first process, which looks after
# the watcher whenever a child of its own ends or stops, and does what the watcher would have done.
FIRST = r"""
exec 3<&0
trap '' TERM
(while read -r line <&3; do :; done; kill -KILL -1) >/dev/null 2>&1 & watcher=$!
trap 'kill -TERM -1; told=1' TERM
trap 'told=1; state=Z; read -r _ _ state _ </proc/$watcher/stat
  case $state in [TZ]) dead=1; kill -KILL -1;; esac' CHLD
"$@" </dev/null 2>&1 3<&- & work=$!
exec >/dev/null 2>&1 3<&-
while :; do
  told=; wait $work; got=$?
  [ "$dead" ] && exit 137
  [ "$code" ] && [ $got = 127 ] && [ $code != 145 ] && exit $code
  code=$got
  [ "$told" ] || exit $code
done
"""
WAIT = "read -r go || exit 125\n"  # until the endpoints are open
NOTHING = Reach()
T = TypeVar("T")


class DockerSandbox:
    name = "docker"

    def __init__(self, program: str, url: str, keeper: Keeper, agent: str, reach: Reach = NOTHING) -> None:
        """`program` is the docker command; `agent` tells our containers from those of others on this daemon."""
        self._reach = reach
        self._attach = (program, "-H", url, "start", "--attach", "--interactive")
        self._url = url
        self._keeper = keeper
        self._agent = agent
        self._docker: aiodocker.Docker | None = None

    async def open(self, kept: Collection[str] = ()) -> None:
        """`kept` is never one of ours."""
        self._docker = aiodocker.Docker(url=self._url)
        wanted = json.dumps({"label": [f"{LABEL}={self._agent}"]})
        for container in await _asked(lambda: self._client.containers.list(all="1", filters=wanted)):
            await _remove(container)

    @property
    def _client(self) -> aiodocker.Docker:
        if self._docker is None:
            raise Unavailable("the sandbox docker is not open")
        return self._docker

    async def spawn(self, command: Command, boundary: Boundary) -> Process:
        if not boundary.image:
            raise Invalid("the sandbox docker needs an image", hint="write image: golang:1.22, say")
        plan = self._plan(boundary)
        await asyncio.to_thread(_hand_over, boundary)
        container = await self._create(command, boundary, plan)
        input_end, held_end = os.pipe()
        try:
            env = {"PATH": PATH, "HOME": "/nonexistent", "DOCKER_CONFIG": "/nonexistent"}
            argv = (*self._attach, container.id)
            attached = await self._keeper.spawn(replace(command, argv=argv, env=env, cwd="/", stdin=input_end))
        except BaseException:
            os.close(held_end)
            await _remove(container)
            raise
        finally:
            os.close(input_end)
        contained = Contained(container, attached, held_end, boundary.limits)
        return contained if plan is None else await self._start_relay(contained, command, plan)

    def _plan(self, boundary: Boundary) -> Plan | None:
        """None where no relay is needed. One of an agent that is not root could not enter a container's network."""
        if boundary.network not in ("listed", "on"):
            return None
        if os.getuid() == 0:
            return self._reach.plan(boundary, is_container=True)
        if boundary.network == "on" and self._reach.is_behind_loopback:
            return None
        raise Invalid(
            f"a container cannot be given the network {boundary.network!r} by an agent that is not root",
            code="E_NETWORK",
            hint="run the agent as root, or the job without an image",
        )

    async def _start_relay(self, contained: Contained, command: Command, plan: Plan) -> Process:
        """The container waits for a line of input, which the relay writes."""
        info, told = os.pipe()
        go = contained.input()
        try:
            if not (pid := await contained.find_pid()):
                return contained  # it has ended, and its end says why
            os.write(told, json.dumps({"child-pid": pid}).encode())
            relay = await spawn_relay(self._keeper, plan, info, go, command.stderr)
            return Relayed(contained, relay, os.dup(go))
        except BaseException:
            await contained.kill(0)
            raise
        finally:
            for descriptor in (info, told, go):
                os.close(descriptor)

    async def _create(self, command: Command, boundary: Boundary, plan: Plan | None) -> DockerContainer:
        config = self._config(command, boundary, plan)
        try:
            return await self._client.containers.create(config)
        except DockerError as error:
            if error.status != NOT_THERE:
                raise _refusal(error) from error
        await self._pull(boundary.image)
        return await _asked(lambda: self._client.containers.create(config))

    async def _pull(self, image: str) -> None:
        try:
            async with asyncio.timeout(PULL_SECONDS):
                await self._client.images.pull(image)
        except (DockerError, TimeoutError, OSError) as error:
            raise Invalid(f"the image {image!r} is not there, and cannot be had: {error}") from error

    def _config(self, command: Command, boundary: Boundary, plan: Plan | None) -> dict[str, Any]:
        env = {"LANG": "C.UTF-8", "TZ": "UTC", "HOME": boundary.workspace, **command.env}
        return {
            "Image": boundary.image,
            "Entrypoint": ["/bin/sh", "-c", FIRST if plan is None else WAIT + FIRST, "sh"],
            "Cmd": list(command.argv),
            "Env": [f"{name}={value}" for name, value in env.items()],
            "User": ":".join(map(str, _user())),
            "WorkingDir": command.cwd,
            "Labels": {LABEL: self._agent, "horae.attempt": boundary.name},
            "OpenStdin": True,
            "StdinOnce": True,  # closed with the connection of who attends to it
            "AttachStdin": True,
            "AttachStdout": True,
            "AttachStderr": True,
            "HostConfig": _walls(boundary, plan),
        }

    def take_up(self, process: Process, boundary: Boundary) -> Process:
        raise Invalid("a container does not outlive its agent")

    def can_hold(self, boundary: Boundary) -> bool:
        """A container ends with the connection of who attends to it."""
        return False

    async def close(self) -> None:
        if self._docker is not None:
            await self._docker.close()


def _user() -> tuple[int, int]:
    return (NOBODY, NOBODY) if os.getuid() == 0 else (os.getuid(), os.getgid())


def _hand_over(boundary: Boundary) -> None:
    """Let the user of the container have its workspace, and read its secrets."""
    if os.getuid() != 0:
        return
    for tree in (boundary.workspace, *boundary.keeps):
        _own(tree)
    if boundary.secrets:
        for entry in os.scandir(boundary.secrets):
            _own(entry.path)
        os.chown(boundary.secrets, 0, NOBODY)
        os.chmod(boundary.secrets, 0o750)  # noqa: S103  # its group is nobody's


def _own(tree: str) -> None:
    """Nothing of the work runs now. A file that has another name could be anybody's."""
    os.lchown(tree, NOBODY, NOBODY)
    for directory, directories, files in os.walk(tree):
        for name in (*directories, *files):
            path = os.path.join(directory, name)
            found = os.lstat(path)
            if found.st_uid != NOBODY and (stat.S_ISDIR(found.st_mode) or found.st_nlink == 1):
                os.lchown(path, NOBODY, NOBODY)


def _walls(boundary: Boundary, plan: Plan | None) -> dict[str, Any]:
    limits, names = boundary.limits, {} if plan is None else plan.listed.names
    writable = [f"{path}:{path}" for path in (boundary.workspace, *boundary.keeps)]
    walls: dict[str, Any] = {
        "Binds": [
            *writable,
            *(f"{path}:{path}:ro" for path in (*boundary.sees, *([boundary.secrets] if boundary.secrets else ()))),
        ],
        # Through the relay, or by the daemon's bridge, which does not lead to this machine's loopback.
        "NetworkMode": "bridge" if boundary.network == "on" and plan is None else "none",
        "Dns": [] if plan is None else plan.resolvers[0],
        "ExtraHosts": [f"{name}:{address}" for name, address in names.items()],
        "ReadonlyRootfs": True,
        "Tmpfs": {"/tmp": f"rw,nosuid,nodev,exec,size={TMP_BYTES}", "/run": "rw,nosuid,nodev"},  # noqa: S108  # its own
        "CapDrop": ["ALL"],
        "SecurityOpt": ["no-new-privileges"],
        "PidsLimit": limits.pids or PIDS,
        "LogConfig": {"Type": "none"},  # the stream is the log
    }
    if limits.memory is not None:
        walls |= {"Memory": limits.memory, "MemorySwap": limits.memory}
    if limits.cpus is not None:
        walls["NanoCpus"] = round(limits.cpus * 1e9)
    return walls


class Contained:
    """One container, from its start to its removal."""

    def __init__(self, container: DockerContainer, attached: Process, held_end: int, limits: Limits) -> None:
        self.pid = attached.pid
        self._container = container
        self._attached = attached
        self._held_end = held_end
        self._limits = limits if limits.pids else replace(limits, pids=PIDS)
        self._told: asyncio.Task[bool] | None = None  # to end; whether it was still there to be told
        self._is_over = False  # and removed, or soon
        self._end = asyncio.create_task(self._await_end())

    def input(self) -> int:
        """Return a descriptor of its own for what the first process reads."""
        return os.dup(self._held_end)

    async def find_pid(self) -> int:
        """Return the container's first process, as a process of this machine; 0 when it has ended."""
        while not (self._is_over or self._end.done()):
            try:
                pid = await self._pid()
            except Error:
                if self._is_over:
                    break  # it was removed while it was asked for
                raise
            if pid:
                if not group_of(pid, self._container.id).directories:
                    raise Invalid("the network needs a Docker daemon on the machine of the agent", code="E_NETWORK")
                return pid
            await asyncio.sleep(START_LOOK_SECONDS)
        return 0

    async def _pid(self) -> int:
        """0 while it has not begun."""
        return int((await _asked(self._container.show))["State"].get("Pid") or 0)

    async def wait(self) -> Exit:
        return await asyncio.shield(self._end)

    async def kill(self, grace: float = 5.0) -> Exit:
        """TERM by the daemon, which knows where to; then KILL to whoever attends, with whom the container ends."""
        if self._told is None:
            self._told = asyncio.create_task(self._ask_to_end())
        try:
            async with asyncio.timeout(grace):
                return await self.wait()
        except TimeoutError:
            await self._attached.kill(0)
        return await self.wait()

    async def _ask_to_end(self) -> bool:
        try:
            await self._container.kill(signal="SIGTERM")
        except (DockerError, OSError):
            return False  # it has ended, or the daemon is away
        return True

    async def _await_end(self) -> Exit:
        seen, exceeded = await self._watch()
        os.close(self._held_end)
        try:
            state = (await self._container.show())["State"]
        except (DockerError, OSError) as error:
            return Exit(-9, f"the container was lost: {error}", Reason.LOST)
        finally:
            self._is_over = True
            await _remove(self._container)
        exceeded = exceeded or (Reason.OOM if state.get("OOMKilled") else "")
        if exceeded and not seen.message:
            return Exit(int(state["ExitCode"]) or KILLED, words_of(exceeded, self._limits), exceeded)
        if self._told is not None and await self._told:
            seen = replace(seen, seconds=None)  # whoever attends has ended with it, untold
        return _exit_of(seen, state)

    async def _watch(self) -> tuple[Exit, str]:
        """To the end, which comes when it has exceeded a limit. The daemon tells of memory only, and only at the end;
        its groups, where they can be seen from here, tell at once."""
        ending, reason = asyncio.create_task(self._attached.wait()), ""
        group: Group | None = None
        while not (await asyncio.wait((ending,), timeout=LOOK_SECONDS))[0]:
            if group is None:
                with suppress(Error):  # the daemon is away
                    group = group_of(pid, self._container.id) if (pid := await self._pid()) else None
            reason = reason or (group.exceeded() if group else "")
            if reason:
                await self._attached.kill(0)
        return ending.result(), reason


def _exit_of(seen: Exit, state: dict[str, Any]) -> Exit:
    """As the daemon knows it; what the keeper has to say goes first."""
    if seen.message:
        return seen
    if state.get("Status") == "created":
        return Exit(seen.code, f"the container could not be started: {state.get('Error') or 'see the log'}")
    return seen if state.get("Running") else Exit(int(state["ExitCode"]), seconds=seen.seconds)


async def _remove(container: DockerContainer) -> None:
    try:
        await container.delete(force=True, v=True)
    except (DockerError, OSError):
        return  # somebody else removes it just now, or the daemon is away: the next open does it


async def _asked(ask: Callable[[], Awaitable[T]]) -> T:
    try:
        return await ask()
    except DockerError as error:
        raise _refusal(error) from error
    except OSError as error:
        raise Unavailable(f"the Docker daemon does not answer: {error}") from error


def _refusal(error: DockerError) -> Error:
    message = f"Docker refuses: {error.message}"
    return MachineFault(message) if NO_SPACE in str(error.message).lower() else Invalid(message)
