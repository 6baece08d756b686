"""The commands that ask a server: submit, jobs, triggers, runs, logs, run, cancel, pause, resume, preview, nodes,
handlers.

Each is: one or two calls of the client, then the screen. Nothing about jobs is decided here.
"""

from __future__ import annotations

import click

from horae.cli.builds import artifacts
from horae.cli.jobs import pause, preview, register_jobs, register_triggers, resume, submit
from horae.cli.nodes import cordon, drain, handlers, nodes, uncordon
from horae.cli.runs import cancel, logs, register_runs, run_now
from horae.cli.session import command, listing


def register(app: click.Group) -> None:
    """Hang the commands into the program."""
    command(app, "submit", "horae submit backup.yaml")(submit)
    register_jobs(app)
    register_triggers(app)
    register_runs(app)
    command(app, "logs", "horae logs -f --job backup")(logs)
    command(app, "artifacts", "horae artifacts 42 dist/package.whl --output package.whl")(artifacts)
    command(app, "run", "horae run backup --data '{\"full\": true}' --wait")(run_now)
    command(app, "cancel", "horae cancel 42")(cancel)
    command(app, "pause", "horae pause backup")(pause)
    command(app, "resume", "horae resume backup")(resume)
    command(app, "preview", "horae preview '30 2 * * MON-FRI' --timezone Europe/Berlin --count 5")(preview)
    command(app, "handlers", "horae handlers")(handlers)
    group = listing(app, "nodes", "horae nodes")(nodes)
    command(group, "cordon", "horae nodes cordon worker-3")(cordon)
    command(group, "uncordon", "horae nodes uncordon worker-3")(uncordon)
    command(group, "drain", "horae nodes drain worker-3")(drain)
