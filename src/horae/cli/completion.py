"""What a shell offers when Tab is pressed: commands, options, files, jobs, nodes, queues, runs and triggers.

click knows the shells and what it may offer of commands and options; here are the command that prints the script, and
the names that a server knows. Whoever presses Tab waits: a server has a moment to answer, and one that does not is as
silent as one that is not there. Names were written by others: none reaches a command line unquoted.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    add_completion_class,
    get_completion_class,
    shell_complete,
)

from horae.cli.options import COMPLETE_VARIABLE, Argument
from horae.cli.session import JSON, Session, command
from horae.errors import Invalid

if TYPE_CHECKING:
    from horae.client import SyncClient

SHELLS = ("bash", "zsh", "fish")
PATIENCE = 2.0  # seconds in which a server that is there may tell what it knows
MOST = 200  # jobs that are offered
LAST = 50  # runs


class Bash(BashComplete):
    """As click's; but other than zsh and fish, bash takes a word as it is given."""

    def format_completion(self, item: CompletionItem[Any]) -> str:
        import shlex  # rarely needed

        value = shlex.quote(item.value) if item.type == "plain" else item.value
        return f"{item.type},{value}"


add_completion_class(Bash, "bash")


def completion(session: Session, shell: Annotated[str, Argument(metavar="SHELL", help="bash, zsh or fish.")]) -> None:
    """Print the script that lets a shell complete commands, options, jobs and nodes.

    For bash: source <(horae completion bash), in ~/.bashrc. For zsh the same, in ~/.zshrc after compinit. For fish:
    horae completion fish > ~/.config/fish/completions/horae.fish
    """
    kind = get_completion_class(shell) if shell in SHELLS else None
    if kind is None:
        raise Invalid(f"SHELL must be one of {', '.join(SHELLS)}; got {shell!r}", code="E_USAGE")
    made = kind(click.get_current_context().find_root().command, {}, "horae", COMPLETE_VARIABLE)
    script = made.source_template % made.source_vars()
    if session.as_json:
        session.screen.json({"shell": shell, "script": script})
    else:
        session.screen.line(script.strip())


def complete(app: click.Command, instruction: str) -> int:
    """Answer the shell, which asks by a variable; whatever goes wrong, it is offered nothing."""
    try:
        return shell_complete(app, {"obj": offer}, "horae", COMPLETE_VARIABLE, instruction)
    except Exception:
        return 1


def offer(what: str, ctx: click.Context, begun: str) -> list[CompletionItem[str]]:
    """Return what may stand in the place of a word that was begun: "FILE", "SHELL", or what a server knows."""
    if what == "FILE":
        return [CompletionItem(begun, type="file")]
    found = dict.fromkeys(SHELLS if what == "SHELL" else ())
    if what in _ASKED:
        with contextlib.suppress(Exception), _client(_session_of(ctx)) as client, _within(PATIENCE):
            found = dict.fromkeys(_ASKED[what](client, begun))
    return [CompletionItem(name) for name in found if name.startswith(begun) and name.isprintable()]


def _names_of_jobs(client: SyncClient, begun: str) -> list[str]:
    """Keys before names: a key belongs to one job alone."""
    jobs = client.json.jobs(limit=MOST)["items"]
    if begun and len(jobs) == MOST:
        jobs += client.json.jobs(name=begun, limit=MOST)["items"]
    return [*(job["key"] for job in jobs if job["key"]), *(job["name"] for job in jobs)]


def _names_of_nodes(client: SyncClient, _: str) -> list[str]:
    return [node["name"] for node in client.json.nodes()["items"]]


def _names_of_queues(client: SyncClient, _: str) -> list[str]:
    return [queue["name"] for queue in client.json.queues()["items"]]


def _ids_of_runs(client: SyncClient, _: str) -> list[str]:
    """The last ones."""
    return [str(run["id"]) for run in client.json.runs(limit=LAST)["items"]]


def _ids_of_triggers(client: SyncClient, _: str) -> list[str]:
    return [str(trigger["id"]) for trigger in client.json.triggers(limit=MOST)["items"]]


_ASKED = {  # of a server
    "JOB": _names_of_jobs, "NODE": _names_of_nodes, "QUEUE": _names_of_queues, "RUN": _ids_of_runs,
    "TRIGGER": _ids_of_triggers,
}  # fmt: skip


def _client(session: Session) -> SyncClient:
    """Return a client that gives up where another would pause before its next try."""
    from horae.client import SyncClient
    from horae.client.steps import Pause, Step

    class Impatient(SyncClient):
        def _do(self, step: Step) -> Any:
            if isinstance(step, Pause):
                raise TimeoutError
            return super()._do(step)

    return Impatient(
        session.server, session.token(), insecure=session.insecure, ca_file=session.ca_file,
        cert_file=session.cert_file, org=session.org,
    )  # fmt: skip


def _session_of(ctx: click.Context | None) -> Session:
    """Return what the options before the word say of the server."""
    session = Session()
    while ctx is not None:
        known = ("server", "token_file", "ca_file", "cert_file", "insecure", "organisation")
        given = {name: ctx.params.get(name) for name in known}
        session.adopt(**{name: value for name, value in given.items() if value})
        ctx = ctx.parent
    return session


@contextlib.contextmanager
def _within(seconds: float) -> Iterator[None]:
    """Break off whatever takes longer."""

    def stop(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def register(app: click.Group) -> None:
    command(app, "completion", "horae completion bash > ~/.horae-completion", shared=(JSON,))(completion)
