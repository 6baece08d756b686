"""The settings of a Horae process: one table, four sources, one frozen value.

`SETTINGS` is the only list of settings. Parsing, the flags of `horae up`, `horae check` and the
reference page are all drawn from it; `Config` has one field per row (a test compares them).
Sources, strongest first: flags, environment (HORAE_*), the TOML file, the default.
A value that cannot be used is refused here, with what was expected, what was got and where it stands.
Nothing below `bootstrap` sees a Config: parts get plain arguments.
"""

from __future__ import annotations

import os
import re
import socket
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from horae.errors import ConfigError
from horae.values import (
    DATABASE,
    FLAG,
    PORT,
    ROLES,
    SQLITE,
    Kind,
    Refused,
    choice,
    duration,
    is_loopback,
    mask_address,
    mask_database,
    nearest,
    read_allowed_hosts,
    read_allowed_networks,
    read_buckets,
    read_clickhouse,
    read_database,
    read_directory,
    read_docker,
    read_endpoint,
    read_existing_directory,
    read_existing_file,
    read_files,
    read_host,
    read_key_file,
    read_kinds,
    read_labels,
    read_lake_root,
    read_node,
    read_ports,
    read_queue,
    read_roles,
    read_script_roots,
    read_settings_file,
    read_spark,
    show_bytes,
    show_ports,
    show_seconds,
    size,
    whole,
)

SANDBOXES = ("auto", "plain", "bubblewrap")
SCHEDULER_MODES = ("shared", "active-passive")
ON_RESTART = ("keep", "end")
LOG_FORMATS = ("text", "json")
LAKE_WORKERS = ("internal", "external")
DEFAULT_FILE = "horae.toml"
MAX_FILE = 1 << 20  # bytes of a settings file
HISTORY_DAYS = 90  # of an installation that is not told otherwise
DISK_SHARE = 10  # a tenth of the disk, at most, is output
DECIDED_AT_START = frozenset({"history_days", "files_limit"})  # where nothing is said

# Variables that begin with HORAE_ and are no settings: the command line's own and that of the tests, and what
# a job is given, because a job may well call `horae`.
JOB_VARIABLES = frozenset(
    f"HORAE_{name}"
    for name in ("RUN_ID", "JOB_ID", "JOB_NAME", "ATTEMPT", "FENCE", "SCHEDULED_FOR", "STEP", "RUN_DATA", "SECRETS_DIR")
)
_OWN_VARIABLES = frozenset(f"HORAE_{name}" for name in ("SERVER", "TOKEN", "TOKEN_FILE", "CA_FILE", "REQUIRE_SERVERS"))
OTHER_VARIABLES = _OWN_VARIABLES | JOB_VARIABLES


@dataclass(frozen=True, slots=True)
class Config:
    """Everything `horae up` can be told. Paths are absolute, every default is filled in."""

    host: str
    port: int
    grpc_port: int
    compat_ports: tuple[int, ...]
    data: Path
    database: str  # sqlite:///absolute/path or postgresql://…
    queue: str  # "database", or nats://… or tls://…
    node: str
    roles: tuple[str, ...]
    slots: int
    labels: tuple[str, ...]
    kinds: tuple[str, ...]
    handler_slots: int
    workers: int
    jobs_directory: Path | None
    script_roots: tuple[Path, ...]
    repository_roots: tuple[Path, ...]
    maven_settings: Path | None
    declarations: Path | None
    sandbox: str
    docker_url: str
    allowed_networks: tuple[str, ...]
    scheduler_mode: str
    scan_interval: float
    heartbeat_interval: float
    lease: float
    on_restart: str
    worker_timeout: float
    output_limit: int
    artifact_limit: int
    cache_limit: int
    log_format: str
    startup_timeout: float
    allowed_hosts: tuple[str, ...]
    require_token: bool
    history_days: int | None  # None: as the installation is old (see bootstrap.settle_retention)
    files: str  # a directory, or the address of a bucket
    files_endpoint: str
    files_limit: int | None  # as history_days
    tls_cert: Path | None
    tls_key: Path | None
    lake_workers: str
    lake_lease: float
    secret_key_file: Path
    spark_url: str
    clickhouse_url: str | None
    lake_root: str  # a directory, hdfs://… or s3://…
    lake_buckets: tuple[str, ...]
    spark_code: bool
    sources: Mapping[str, str] = field(default_factory=dict)  # setting → where its value comes from
    warnings: tuple[str, ...] = ()

    @property
    def sqlite_path(self) -> Path | None:
        """The database file; None when the database is a server."""
        return Path(self.database[len(SQLITE) :]) if self.database.startswith(SQLITE) else None

    @property
    def broker(self) -> str | None:
        """The address of NATS, if it is the queue."""
        return None if self.queue == DATABASE else self.queue

    @property
    def address(self) -> str:
        """Where people reach this process."""
        scheme = "https" if self.tls_cert else "http"
        return f"{scheme}://[{self.host}]:{self.port}" if ":" in self.host else f"{scheme}://{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach what listens here."""
        return is_loopback(self.host)

    @property
    def free_pass(self) -> frozenset[int]:
        """The users of this machine who need no token: who runs this process, and root. Empty: everybody does."""
        return frozenset({os.geteuid(), 0}) if self.is_loopback and not self.require_token else frozenset()

    @property
    def further_ports(self) -> tuple[int, ...]:
        """Where the same is served beside `port`."""
        return tuple(port for port in self.compat_ports if port != self.port)

    @property
    def serves_rpc(self) -> bool:
        """Whether somebody has reason to call: agents, or servers that show output which lies here."""
        return "api" in self.roles or "agent" in self.roles

    @property
    def grpc_address(self) -> str:
        """Where agents and other servers reach this process."""
        return f"[{self.host}]:{self.grpc_port}" if ":" in self.host else f"{self.host}:{self.grpc_port}"

    def shown(self) -> list[tuple[str, str, str]]:
        """(setting, value as text, source) of every setting; passwords are masked."""
        return [
            (one.name, one.shown(getattr(self, one.name)), self.sources.get(one.name, "default")) for one in SETTINGS
        ]


# ── the table ──────────────────────────────────────────────────────────────────────────────────────

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
        """A value as text; one that is decided at the start, as the default is described."""
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


def _default_jobs_directory(_: Values) -> str | None:
    return "jobs" if Path("jobs").is_dir() and not _stranger_of(Path("jobs")) else None


def _default_declarations(_: Values) -> str | None:
    return "declarations" if Path("declarations").is_dir() and not _stranger_of(Path("declarations")) else None


def _stranger_of(path: Path) -> str:
    """The other user to whom something here belongs, or the directory it lies in; empty where that is us, or root.
    A settings file says what is run: one that came with somebody else's directory is not for us to obey."""
    try:
        uids = (path.stat().st_uid, path.absolute().parent.stat().st_uid)
    except OSError:
        return ""  # whoever reads it says what is wrong
    return next((f"the user with id {uid}" for uid in uids if uid not in (os.geteuid(), 0)), "")


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
    Setting("kinds", Kind("LIST", read_kinds, _list_of), [],
            "Kinds of work that this agent takes.", "all that it can do"),
    Setting("handler_slots", whole(1, 100_000), 2000,
            "How many Python handlers this agent runs at once."),
    Setting("workers", whole(1, 256), 2,
            "Python worker processes that run the handlers."),
    Setting("jobs_directory", Kind("DIR", read_existing_directory), _default_jobs_directory,
            "Directory from which Python handlers are imported.", "./jobs if there is one"),
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
            "What jobs may reach although it is this machine or its link: networks such as 127.0.0.0/8; Horae's own "
            "ports only with the port, 127.0.0.1:8080.", "none"),
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
    Setting("startup_timeout", duration(0, 3600), 30,
            "How long to wait for the database at start."),
    Setting("allowed_hosts", Kind("LIST", read_allowed_hosts, _list_of), [],
            "Further names under which browsers may reach this server; who comes by one needs a token.", "none"),
    Setting("require_token", FLAG, False,
            "Whether also the user who runs this server needs a token; on loopback only others do."),
    Setting("history_days", whole(0, 36_500), _nothing,
            "Days for which ended runs and their output are kept; 0 keeps them for ever.",
            f"{HISTORY_DAYS}; 0 on an installation that is older than this default"),
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
_BY_NAME = {setting.name: setting for setting in SETTINGS}


# ── reading the sources ────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class _Given:
    """A value somebody wrote, and where."""

    value: object
    source: str  # flag --port, environment HORAE_PORT, or file:line


def load(
    flags: Mapping[str, str] | None = None,
    *,
    file: str | Path | None = None,
    environ: Mapping[str, str] | None = None,
) -> Config:
    """Read every source and give the one valid Config, or raise ConfigError.

    `file` None reads horae.toml of the working directory if there is one that is ours; a named file must exist.
    """
    path = Path(DEFAULT_FILE) if file is None else Path(file)
    is_read = file is not None or (path.exists() and not _stranger_of(path))
    in_file, warnings = _from_file(path) if is_read else ({}, ())
    given = {**in_file, **_from_environment(os.environ if environ is None else environ)}
    for name, text in (flags or {}).items():
        given[name] = _Given(text, f"flag {_BY_NAME[name].flag}")
    values: dict[str, Any] = {}
    for setting in SETTINGS:
        values[setting.name] = _value_of(setting, given.get(setting.name), values)
    sources = {name: one.source for name, one in given.items()}
    _check_together(values, sources)
    return Config(**values, sources=sources, warnings=(*warnings, *_left_alone(file is None, given)))


def _left_alone(by_default: bool, given: Mapping[str, _Given]) -> Iterator[str]:
    """What lies here and would be read, were it ours."""
    found = {
        DEFAULT_FILE: ("--config", by_default),
        "jobs": ("--jobs-directory", "jobs_directory" not in given),
        "declarations": ("--declarations", "declarations" not in given),
    }
    for name, (flag, is_default) in found.items():
        if is_default and Path(name).exists() and (stranger := _stranger_of(Path(name))):
            yield f"./{name} is not read: it or its directory belongs to {stranger}: {flag} {name} reads it"


def _value_of(setting: Setting, given: _Given | None, values: Values) -> Any:
    if given is None:
        default = setting.default(values) if callable(setting.default) else setting.default
        given = _Given(default, "default")
    if given.value is None:
        return None
    try:
        return setting.kind.read(given.value)
    except Refused as refused:
        got = repr(mask_address(given.value) if given.value and isinstance(given.value, str) else given.value)
        raise ConfigError(
            f"{setting.name} must be {refused.expected}; got {got} ({given.source})",
            code=refused.code,
            hint=refused.hint,
            path=setting.name,
        ) from None


def _check_together(values: Values, sources: Mapping[str, str]) -> None:
    """What no setting can judge alone."""
    if values["grpc_port"] == values["port"]:
        _refuse_pair("grpc_port", f"must differ from port; both are {values['port']}", sources)
    if values["grpc_port"] in values["compat_ports"]:
        _refuse_pair("grpc_port", f"is among compat_ports; got {values['grpc_port']}", sources)
    if values["lease"] < 2 * values["heartbeat_interval"]:
        heartbeat = show_seconds(values["heartbeat_interval"])
        got = show_seconds(values["lease"])
        _refuse_pair("lease", f"must be at least 2 heartbeat intervals of {heartbeat}; got {got}", sources)
    for one, other in (("tls_cert", "tls_key"), ("tls_key", "tls_cert")):
        if values[one] and not values[other]:
            _refuse_pair(other, f"is missing: {one} and {other} go together", sources)
    if not is_loopback(values["host"]) and not values["tls_cert"]:
        raise ConfigError(
            f"listening on {values['host']} needs a login and TLS: tls_cert and tls_key are not set "
            f"({sources.get('host', 'default')})",
            code="E_TLS_REQUIRED",
            path="host",
            hint="give --tls-cert and --tls-key (docs/howto/login-and-tls.md), or leave --host out and come in "
            "through an SSH tunnel: ssh -L 8080:127.0.0.1:8080 HOST",
        )


def _refuse_pair(name: str, text: str, sources: Mapping[str, str]) -> None:
    raise ConfigError(f"{name} {text} ({sources.get(name, 'default')})", path=name)


def _from_environment(environ: Mapping[str, str]) -> dict[str, _Given]:
    variables = {setting.variable: setting.name for setting in SETTINGS}
    given = {}
    for variable in sorted(environ):
        if not variable.startswith("HORAE_") or variable in OTHER_VARIABLES:
            continue
        if variable not in variables:
            raise ConfigError(
                f"the environment variable {variable} is no setting of Horae",
                hint=nearest(variable, variables) or "unset it; `horae up --help` lists the settings",
            )
        given[variables[variable]] = _Given(environ[variable], f"environment {variable}")
    return given


def _from_file(path: Path) -> tuple[dict[str, _Given], tuple[str, ...]]:
    import tomllib  # as in read_seconds

    text, mode = _read_file(path)
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(_toml_message(path, str(error)), hint="a setting is a line such as: port = 8080") from None
    given: dict[str, _Given] = {}
    for name, key, value in in_tables(table):
        where = f"{path}:{_line_of(text, key)}"
        if name not in _BY_NAME:
            known = "a table; settings stand alone" if isinstance(value, dict) else "no setting of Horae"
            hint = nearest(name, _BY_NAME) or "`horae up --help` lists the settings"
            raise ConfigError(f"{where}: {name} is {known}", hint=hint, path=name)
        if name in given:
            raise ConfigError(f"{where}: {name} stands twice", hint=f"it is also at {given[name].source}", path=name)
        given[name] = _Given(value, f"file {where}")
    return given, _file_warnings(path, mode, table)


def in_tables(table: Mapping[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """(setting, key, value) of everything in a settings file: `lake_lease` may stand as `lease` under [lake]."""
    for name, value in table.items():
        if name not in _BY_NAME and isinstance(value, dict) and any(each.startswith(f"{name}_") for each in _BY_NAME):
            yield from ((f"{name}_{key}", key, inner) for key, inner in value.items())
        else:
            yield name, name, value


def _read_file(path: Path) -> tuple[str, int]:
    """The text and the mode of a settings file; a FIFO or device never blocks or floods the start."""
    try:
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):
            raise ConfigError(f"the settings file {path} is not a file")
        with path.open("rb") as opened:
            content = opened.read(MAX_FILE + 1)
        if len(content) > MAX_FILE:
            raise ConfigError(f"the settings file {path} is larger than {show_bytes(MAX_FILE)}")
        return content.decode(), mode
    except OSError as error:
        raise ConfigError(f"the settings file {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"the settings file {path} is not UTF-8 text") from None


def _toml_message(path: Path, text: str) -> str:
    """`path:line:column: what`, from the parser's `what (at line 3, column 7)`."""
    found = re.fullmatch(r"(.*) \(at line (\d+), column (\d+)\)", text, re.DOTALL)
    return f"{path}:{found[2]}:{found[3]}: {found[1]}" if found else f"{path}: {text}"


def _line_of(text: str, name: str) -> str:
    """line:column where a top-level key or table is written (the parser keeps no positions)."""
    found = re.search(rf"""(?m)^[ \t]*\[*[ \t]*["']?({re.escape(name)})["']?[ \t]*[=.\]]""", text)
    if not found:
        return "1:1"
    start = found.start(1)
    return f"{text.count(chr(10), 0, start) + 1}:{start - text.rfind(chr(10), 0, start)}"


def _file_warnings(path: Path, mode: int, table: Mapping[str, object]) -> tuple[str, ...]:
    warnings = []
    if mode & stat.S_IWOTH:
        warnings.append(f"{path} can be changed by every user of this machine: chmod o-w {path}")
    addresses = [str(table[name]) for name in ("database", "queue", "spark_url", "clickhouse_url") if table.get(name)]
    if mode & stat.S_IROTH and any(mask_address(each) != each for each in addresses):
        warnings.append(f"{path} holds a password and can be read by every user: chmod o-r {path}")
    return tuple(warnings)
