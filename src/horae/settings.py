"""The settings of a Horae process, as one table.

`SETTINGS` is the only list of settings. Parsing (config.py), the flags of `horae up`, `horae check` and the reference
page are all drawn from it; `Config` has one field per row (a test compares them).
"""

from __future__ import annotations

import os
import pwd
import re
import socket
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from horae.values import (
    DATABASE,
    FLAG,
    PORT,
    ROLES,
    SHARE,
    SQLITE,
    Kind,
    Refused,
    choice,
    duration,
    mask_address,
    mask_database,
    read_access_log,
    read_allowed_hosts,
    read_allowed_networks,
    read_buckets,
    read_clickhouse,
    read_collector,
    read_commands,
    read_database,
    read_directory,
    read_docker,
    read_endpoint,
    read_existing_directory,
    read_existing_file,
    read_files,
    read_group_roles,
    read_hdfs_user,
    read_host,
    read_issuer,
    read_key_file,
    read_kinds,
    read_labels,
    read_lake_root,
    read_node,
    read_ports,
    read_queue,
    read_resources,
    read_roles,
    read_scopes,
    read_script_roots,
    read_sender,
    read_settings_file,
    read_smtp,
    read_spark,
    read_trusted_proxies,
    read_warehouse,
    read_word,
    show_commands,
    show_group_roles,
    show_hidden,
    show_ports,
    show_resources,
    size,
    stranger_of,
    whole,
)

SANDBOXES = ("auto", "plain", "bubblewrap")
SCHEDULER_MODES = ("shared", "active-passive")
ON_RESTART = ("keep", "end")
LOG_FORMATS = ("text", "json")
LAKE_WORKERS = ("internal", "external")
HISTORY_DAYS = 90  # of an installation that is not told otherwise
DISK_SHARE = 10  # a tenth of the disk, at most, is output
DECIDED_AT_START = frozenset({"history_days", "files_limit"})  # where nothing is said

Values = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Setting:
    """One row of the table. A default that depends on others is a function of those read before it."""

    name: str
    kind: Kind
    default: object
    help: str
    default_text: str = ""  # how the default is described, where it is a function

    @property
    def flag(self) -> str:
        return f"--{self.name.replace('_', '-')}"

    @property
    def variable(self) -> str:
        return f"HORAE_{self.name.upper()}"

    def shown(self, value: object) -> str:
        """Return a value as text; one that is decided at the start, as the default is described."""
        return self.default_text if value is None and self.name in DECIDED_AT_START else self.kind.show(value)

    def described_default(self) -> str:
        return self.default_text or self.kind.show(self.kind.read(self.default))


def _default_grpc_port(values: Values) -> int:
    port: int = values["port"]
    return port + 10 if port + 10 <= 65535 else port - 10


def _default_database(values: Values) -> str:
    return f"{SQLITE}{values['data']}/horae.db"


def _default_node(values: Values) -> str:
    host = re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname()).strip("-._") or "node"
    return f"{host[:100]}-{values['port']}"


def _default_jobs_directory(_: Values) -> Path | None:
    """Return ./jobs or ./Jobs; where there is neither, ./jobs all the same: whoever makes it later need not restart.
    Not where anybody may make it, as in /tmp."""
    found = [path for path in (Path("jobs"), Path("Jobs")) if path.is_dir()] or [Path("jobs")]
    ours = [path for path in found if not stranger_of(path if path.exists() else Path())]
    is_safe = ours and (ours[0].exists() or not Path().stat().st_mode & stat.S_IWOTH)
    return ours[0].absolute() if is_safe else None


def _read_jobs_directory(value: object) -> Path:
    """One that is named must be there; ours, the default, need not yet."""
    return value if isinstance(value, Path) else read_existing_directory(value)


def _default_declarations(_: Values) -> str | None:
    return "declarations" if Path("declarations").is_dir() and not stranger_of(Path("declarations")) else None


def _default_hdfs_user(_: Values) -> str:
    try:
        own = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a user that only has a number, as in containers
        own = str(os.getuid())
    return os.environ.get("HADOOP_USER_NAME") or own


def _default_otlp(_: Values) -> str | None:
    """Return what OpenTelemetry's own variables say. They may be meant for others: what we cannot use is no fault."""
    told = {name.removeprefix("OTEL_"): text for name, text in os.environ.items() if name.startswith("OTEL_")}
    protocol = told.get("EXPORTER_OTLP_TRACES_PROTOCOL") or told.get("EXPORTER_OTLP_PROTOCOL") or ""
    if told.get("SDK_DISABLED", "").lower() == "true" or told.get("TRACES_EXPORTER") == "none" or protocol == "grpc":
        return None
    general = told.get("EXPORTER_OTLP_ENDPOINT")
    endpoint = told.get("EXPORTER_OTLP_TRACES_ENDPOINT") or (general and f"{general.rstrip('/')}/v1/traces")
    try:
        return read_collector(endpoint) if endpoint else None
    except Refused:
        return None


def _nothing(_: Values) -> None:
    return None


_list_of = ",".join


def _list_of_paths(value: tuple[Path, ...]) -> str:
    return ",".join(map(str, value))


_CERTIFICATE = Kind("FILE", read_existing_file)

# fmt: off
SETTINGS: tuple[Setting, ...] = (
    Setting("host", Kind("ADDRESS", read_host), "127.0.0.1",
            "Address to listen on; any but loopback needs a user token, tls_cert and tls_key."),
    Setting("port", PORT, 8080,
            "Port of the API and the dashboard."),
    Setting("grpc_port", PORT, _default_grpc_port,
            "Port of gRPC, for remote agents and other nodes.", "port + 10"),
    Setting("compat_ports", Kind("LIST", read_ports, show_ports, bare="true"), False,
            "Further ports that serve the same; as a flag, those of the segment contract's services: 8081 to 8085.",
            "none"),
    Setting("data", Kind("DIR", read_directory), "./.horae",
            "Directory of everything this node keeps; nobody else may look into it.", "./.horae"),
    Setting("database", Kind("URL", read_database, mask_database), _default_database,
            "Where state is kept: sqlite:///path (one process) or postgresql://… (many nodes); standbys as "
            "postgresql://one,two/name.",
            "sqlite in the data directory"),
    Setting("queue", Kind("URL", read_queue, mask_database), DATABASE,
            "What tells nodes and agents of work: database, or NATS as nats://host:4222 or tls://…, its servers with "
            "commas."),
    Setting("node", Kind("NAME", read_node), _default_node,
            "Name of this node, different on each.", "<host name>-<port>"),
    Setting("roles", Kind("LIST", read_roles, _list_of), list(ROLES),
            "What this process does."),
    Setting("slots", whole(1, 10_000), lambda _: max(4, 4 * (os.cpu_count() or 1)),
            "How many processes this agent runs at once.", "4 per CPU, at least 4"),
    Setting("labels", Kind("LIST", read_labels, _list_of), [],
            "What this agent has that a job may ask for.", "none"),
    Setting("resources", Kind("NAME=N,…", read_resources, show_resources), {},
            "What runs may have of this agent beside slots: cpus, memory, and whatever else can be counted, as gpu=1.",
            "the cpus and the memory of the machine"),
    Setting("kinds", Kind("LIST", read_kinds, _list_of), [],
            "Kinds of work that this agent takes.", "all that it can do"),
    Setting("handler_slots", whole(1, 100_000), 2000,
            "How many Python handlers this agent runs at once."),
    Setting("workers", whole(1, 256), 2,
            "Python worker processes that run the handlers."),
    Setting("jobs_directory", Kind("DIR", _read_jobs_directory), _default_jobs_directory,
            "Directory from which Python handlers are imported.", "./jobs, or ./Jobs if there is one"),
    Setting("script_roots", Kind("LIST", read_script_roots, _list_of_paths), [],
            "Directories whose files jobs may name as their script.", "none"),
    Setting("repository_roots", Kind("LIST", read_script_roots, _list_of_paths), [],
            "Directories below which jobs may clone file:// repositories of this machine; never the data directory.",
            "none; directories of its user on a loopback server without logins"),
    Setting("maven_settings", Kind("FILE", read_settings_file), _nothing,
            "settings.xml with which Maven builds Java projects, for a mirror or a shared repository.",
            "Maven's own"),
    Setting("declarations", Kind("DIR", read_existing_directory), _default_declarations,
            "Directory of jobs that are declared in files, applied at start.", "./declarations if there is one"),
    Setting("sandbox", choice(*SANDBOXES), "auto",
            "Where processes of jobs run that do not say; bubblewrap allows nothing else, auto is bubblewrap where it "
            "works."),
    Setting("docker_url", Kind("URL", read_docker), "unix:///var/run/docker.sock",
            "Address of the Docker daemon that runs jobs with an image; without one there, this agent runs none."),
    Setting("allowed_networks", Kind("LIST", read_allowed_networks, _list_of), [],
            "What jobs may reach although it is this machine or its link, and requests although it is a private "
            "network: networks such as 127.0.0.0/8; Horae's own ports only with the port, 127.0.0.1:8080.", "none"),
    Setting("scheduler_mode", choice(*SCHEDULER_MODES), "shared",
            "Whether schedulers share the segments, or one has all while the others stand by."),
    Setting("scan_interval", duration(1, 3600), 60,
            "Longest time between two sweeps for missed work."),
    Setting("heartbeat_interval", duration(0.1, 60), 5,
            "Time between two signs of life of a node."),
    Setting("lease", duration(0.2, 600), lambda values: 3 * values["heartbeat_interval"],
            "How long a silent node keeps what it holds.", "3 heartbeat intervals"),
    Setting("on_restart", choice(*ON_RESTART), "keep",
            "What becomes of running work when this process dies or is told to stop: keep lets it go on for the rest "
            "of the lease, for the next process with the same data directory to take up; end ends it."),
    Setting("worker_timeout", duration(1, 86_400), 60,
            "How long a silent worker that registered by HTTP keeps its segments and runs."),
    Setting("output_limit", size(2**10, 2**40), 100 * 2**20,
            "Most output kept of one attempt."),
    Setting("artifact_limit", size(0, 2**50), 2**30,
            "Most bytes of artifacts kept of one attempt."),
    Setting("cache_limit", size(0, 2**50), 5 * 2**30,
            "Most bytes of build caches that an agent keeps."),
    Setting("log_format", choice(*LOG_FORMATS), "text",
            "How Horae writes its own log."),
    Setting("access_log", Kind("off|stderr|FILE", read_access_log), "off",
            "Where a line of JSON is written for each HTTP request: nowhere, to standard error, or to a file."),
    Setting("otlp_endpoint", Kind("URL", read_collector), _default_otlp,
            "Address of an OpenTelemetry collector that is told of traces by OTLP over HTTP, http://host:4318; with a "
            "path, all of it.", "OTEL_EXPORTER_OTLP_ENDPOINT of the environment, else none: nothing is told"),
    Setting("trace_ratio", SHARE, 1.0,
            "Share of traces that are told, by trace id: all spans of a trace, or none. Agents follow their server."),
    Setting("startup_timeout", duration(0, 3600), 30,
            "How long to wait for the database at start."),
    Setting("allowed_hosts", Kind("LIST", read_allowed_hosts, _list_of), [],
            "Further names under which browsers may reach this server; who comes by one needs a token.", "none"),
    Setting("trusted_proxies", Kind("LIST", read_trusted_proxies, _list_of), [],
            "Addresses and networks of reverse proxies that are believed when they tell, by X-Forwarded-For, "
            "X-Forwarded-Proto or Forwarded, from where a request came and whether by TLS.", "none"),
    Setting("require_token", FLAG, False,
            "Whether also the user who runs this server needs a token; on loopback only others do."),
    Setting("request_rate", whole(0, 1_000_000), 1_000,
            "Requests a second that one user, and one address of those without a login, may send a node, over HTTP and "
            "gRPC; what ten seconds have room for may come at once. The user who runs a loopback server, and agents, "
            "are not counted. 0 is no limit."),
    Setting("most_waiting_per_owner", whole(0, 1_000_000_000), 0,
            "Runs of one owner that may wait; who asks for more is refused. 0 is no limit."),
    Setting("history_days", whole(0, 36_500), _nothing,
            "Days for which ended runs and their output are kept; 0 keeps them for ever.",
            f"{HISTORY_DAYS}; 0 on an installation that is older than this default"),
    Setting("events_days", whole(0, 36_500), 7,
            "Days for which events can be read again; 0 keeps them for ever."),
    Setting("audit_days", whole(0, 36_500), 400,
            "Days for which the audit log is kept; 0 keeps it for ever."),
    Setting("files", Kind("PLACE", read_files), lambda values: str(values["data"] / "outputs"),
            "Where the output of runs is kept: a directory, or a bucket that all nodes share, s3://name/prefix.",
            "outputs in the data directory"),
    Setting("files_endpoint", Kind("URL", read_endpoint), _nothing,
            "Address of the S3 service, where it is not Amazon's.", "none"),
    Setting("files_limit", size(0, 2**60), _nothing,
            "Most bytes of output kept, the oldest go first; 0 keeps all.",
            "a tenth of the disk; 0 in a bucket, and on an installation that is older than this default"),
    Setting("tls_cert", _CERTIFICATE, _nothing,
            "Certificate to serve with, PEM, the server's own first.", "none: no TLS"),
    Setting("tls_key", _CERTIFICATE, _nothing,
            "Private key of the certificate, PEM.", "none: no TLS"),
    Setting("tls_client_ca", _CERTIFICATE, _nothing,
            "Certificates of who signs those of clients, PEM: whoever shows none, over HTTP or gRPC, is refused.",
            "none: clients need no certificate"),
    Setting("credential_renewal", duration(1, 366 * 86_400), 86_400,
            "How long an agent that joined by a join token has the same secret; then it makes itself a new one."),
    Setting("public_url", Kind("URL", read_endpoint), _nothing,
            "Address at which systems outside reach this server: handlers hand it on (`context.callback_url`).",
            "none: handlers have no such address"),
    Setting("session_idle", duration(60, 366 * 86_400), 8 * 3600,
            "How long a browser stays logged in that nobody uses."),
    Setting("session_limit", duration(60, 366 * 86_400), 24 * 3600,
            "How long a browser stays logged in at most."),
    Setting("oidc_issuer", Kind("URL", read_issuer), _nothing,
            "The identity provider by which users log in, as it names itself: https://id.example.org.", "none"),
    Setting("oidc_client_id", Kind("TEXT", read_word), _nothing,
            "What the provider knows this server by.", "none"),
    Setting("oidc_client_secret", Kind("TEXT", read_word, show_hidden), _nothing,
            "Its secret there; none where it is a public client.", "none"),
    Setting("oidc_client_secret_file", Kind("FILE", read_key_file), _nothing,
            "A file with that secret, in place of oidc_client_secret.", "none"),
    Setting("oidc_scopes", Kind("LIST", read_scopes, _list_of), ["openid", "profile", "email"],
            "What the provider is asked for; offline_access lets it be asked again while a session lasts."),
    Setting("oidc_groups_claim", Kind("NAME", read_word), "groups",
            "The claim that has a user's groups, or a path to it such as realm_access.roles."),
    Setting("oidc_roles", Kind("GROUP=ROLE,…", read_group_roles, show_group_roles), {},
            "What groups of the provider may do: admins=*:admin,data=2:editor,*=viewer. Before the colon stands an "
            "organisation, its name or number, `*` for all, the default one unless said; a group `*` is everybody.",
            "nothing: admins say who is a member"),
    Setting("smtp_url", Kind("URL", read_smtp, mask_address), _nothing,
            "The mail server by which alerts are sent: smtps://user:password@host:465, or smtp://host:25.", "none"),
    Setting("smtp_from", Kind("ADDRESS", read_sender), "horae@localhost",
            "From whom those mails are."),
    Setting("alert_commands", Kind("NAME=PATH,…", read_commands, show_commands), {},
            "Programs to which alerts may be told, each a channel by its name; the same on every server. They run as "
            "the user of this process.", "none"),
    Setting("lake_workers", choice(*LAKE_WORKERS), "internal",
            "Who does lake and sync jobs: agents of Horae, or only workers that pull them over HTTP."),
    Setting("lake_lease", duration(1, 86_400), 600,
            "How long a worker that pulled a lake or sync run may be silent before it is given to another."),
    Setting("secret_key_file", Kind("FILE", read_key_file), lambda values: values["data"] / "secrets.key",
            "Keys that secrets are encrypted with; made when it is first needed, the same on every node.",
            "secrets.key in the data directory"),
    Setting("spark_url", Kind("URL", read_spark, mask_address), "local[*]",
            "Where Spark SQL runs: local[*] starts one for each query, sc://host:port is a Spark Connect server, "
            "spark://host:port a standalone master."),
    Setting("spark_warehouse", Kind("DIR", read_warehouse), lambda values: values["data"] / "warehouse",
            "Where a Spark that an agent starts keeps its tables: a directory, or hdfs://…; the same for all agents. "
            "A Spark Connect server has its own.", "warehouse in the data directory"),
    Setting("hdfs_user", Kind("NAME", read_hdfs_user), _default_hdfs_user,
            "The user as whom files on HDFS are read and written.",
            "HADOOP_USER_NAME of the agent's environment, else the agent's user"),
    Setting("clickhouse_url", Kind("URL", read_clickhouse, mask_address), _nothing,
            "The ClickHouse that data work writes to, http(s)://user:password@host:8123.", "none"),
    Setting("lake_root", Kind("DIR", read_lake_root), lambda values: values["data"] / "lake",
            "Where files of data work go that name no place of their own: a directory, hdfs://… or s3://…; local files "
            "are written nowhere else.", "lake in the data directory"),
    Setting("lake_buckets", Kind("LIST", read_buckets, _list_of), [],
            "Buckets that Spark queries may write to with the agent's keys, besides that of lake_root.", "none"),
    Setting("spark_code", FLAG, False,
            "Whether Spark queries may run code that is no SQL: ADD JAR, reflect, TRANSFORM, EXECUTE IMMEDIATE; "
            "and name places by http, webhdfs or JDBC."),
)
# fmt: on
BY_NAME = {setting.name: setting for setting in SETTINGS}
