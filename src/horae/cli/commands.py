"""Every command: the module of horae.cli that registers it, and its words in the list of all.

What must stay true: the words are the first sentence of what the command says of itself, which is not loaded for the
list.
"""

from __future__ import annotations

# In the order in which a new user meets them.
COMMANDS = {
    "up": ("local", "Start Horae: everything in one process, until Ctrl-C."),
    "agent": ("local", "Run jobs of a server elsewhere, until Ctrl-C."),
    "submit": ("jobs.jobs", "Submit the jobs of one or more files."),
    "export": ("jobs.exporting", "Write jobs as files that `horae submit` takes again."),
    "jobs": ("jobs.jobs", "List jobs, newest first."),
    "triggers": ("jobs.jobs", "List triggers: when jobs run next, and when they ran last."),
    "runs": ("runs.runs", "List runs, newest first; those that are tasks of workflows only where they are asked for."),
    "logs": ("runs.logs", "Show what runs have written, or follow it."),
    "events": (
        "runs.events",
        "Show what happened to jobs, triggers, runs, nodes, segments, queues and settings, the oldest first.",
    ),
    "artifacts": ("runs.builds", "List the artifacts of a run, or bring one here."),
    "run": ("runs.runs", "Run a job now."),
    "cancel": ("runs.runs", "Cancel runs; of a job, all that wait or run."),
    "signal": ("runs.signals", "Tell a run something."),
    "callback": ("runs.signals", "Show the address at which others can tell a run something, without a login."),
    "approve": ("runs.signals", "Approve runs that wait for it."),
    "reject": ("runs.signals", "Reject runs that wait for an approval: they fail."),
    "approvals": ("runs.signals", "List what waits for your approval, oldest first."),
    "pause": ("jobs.jobs", "Pause jobs: they do not fire until they are resumed."),
    "resume": ("jobs.jobs", "Let paused jobs go on."),
    "preview": ("jobs.jobs", "Show the next moments of a schedule, as the server reads it."),
    "forecast": (
        "cluster.forecast",
        "Foretell the runs of the next hours: how many, how many at once, how late, where slots or limits run "
        "out, and which schedules clash.",
    ),
    "explain": ("runs.explaining", "Say why a run, a job or a trigger is as it is."),
    "ping-url": ("runs.watching", "Show the address at which whoever runs a watched job tells of it, without a login."),
    "exec": ("runs.watching", "Run a command, and tell Horae when it began, what it wrote and how it ended."),
    "mcp": (
        "local",
        "Let an assistant list, explain and run jobs: a server of the Model Context Protocol on stdin and stdout.",
    ),
    "nodes": (
        "cluster.nodes",
        "List the nodes: state, how busy they are, when they were last seen, through whom agents come in.",
    ),
    "handlers": (
        "cluster.nodes",
        "List Python handlers of all agents: version of their code, kind, when it was loaded, what is wrong with it.",
    ),
    "alerts": (
        "cluster.alerts",
        "List what is going on: what failed, is late, slow, silent, gone or full, by the rules that there are.",
    ),
    "queues": (
        "cluster.queues",
        "List the queues: what waits in them, what is blocked and why, what runs, how long, how fast.",
    ),
    "limits": (
        "cluster.limits",
        "List the limits that runs use or wait for: how much each allows, what is in use, who waits, and until when.",
    ),
    "resources": (
        "cluster.limits",
        "List what the whole cluster has, counted: how much of it there is, what is in use, and who waits for some.",
    ),
    "secret": ("cluster.secrets", "Keep the secrets that jobs use."),
    "login": ("login", "Log in by a browser, and keep a token for this server."),
    "logout": ("login", "Forget the token that is kept for this server, and revoke it there if it may."),
    "whoami": ("login", "Tell who one is for the server, and by what."),
    "sessions": ("login", "List where one is logged in with a browser, newest first."),
    "admin": ("cluster.users", "Make the first user, and let users set a password."),
    "users": (
        "cluster.users",
        "List users by name: all of them to who runs the installation, to others those of their organisation.",
    ),
    "orgs": ("cluster.users", "List organisations."),
    "token": ("cluster.tokens", "Make, list and revoke the tokens that people and agents log in with."),
    "grants": ("cluster.grants", "List who may do more on some jobs than the role in the organisation says."),
    "audit": ("cluster.audit", "Show who did what, who was refused, and to whom secrets were given, newest first."),
    "inbox": (
        "cluster.inbox",
        "Let other programs hand work over in their own transactions, and see what was refused.",
    ),
    "check": ("local", "Check job files, or the settings."),
    "migrate": ("local", "Bring the database schema up to this version."),
    "completion": ("completion", "Print the script that lets a shell complete commands, options, jobs and nodes."),
}
