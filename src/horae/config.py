"""What a Horae process was told: four sources, read by the table of settings.py, one frozen value.

Sources, strongest first: flags, environment (HORAE_*), the TOML file, the default.
A value that cannot be used is refused here, with what was expected, what was got and where it stands.
Nothing below `app` sees a Config: parts get plain arguments.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from horae.core.roles import Role
from horae.core.spelling import suggest
from horae.errors import ConfigError
from horae.settings import BY_NAME, SETTINGS, Setting, Values
from horae.values import (
    DATABASE,
    SQLITE,
    Refused,
    is_loopback,
    mask_address,
    show_bytes,
    show_seconds,
    stranger_of,
)

DEFAULT_FILE = "horae.toml"
NO_FILE = Path()  # for `load`: read none
MAX_FILE = 1 << 20  # bytes of a settings file

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
    resources: tuple[tuple[str, int], ...]  # those that were named (core.policy.resources)
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
    access_log: str  # "off", "stderr" or a path
    otlp_endpoint: str  # empty: nothing is told
    trace_ratio: float
    startup_timeout: float
    allowed_hosts: tuple[str, ...]
    trusted_proxies: tuple[str, ...]
    require_token: bool
    request_rate: int
    most_waiting_per_owner: int
    history_days: int | None  # None: as the installation is old (see app.server.settle_retention)
    events_days: int
    audit_days: int
    files: str  # a directory, or the address of a bucket
    files_endpoint: str
    files_limit: int | None  # as history_days
    tls_cert: Path | None
    tls_key: Path | None
    tls_client_ca: Path | None
    credential_renewal: float
    public_url: str
    session_idle: float
    session_limit: float
    oidc_issuer: str
    oidc_client_id: str
    oidc_client_secret: str
    oidc_client_secret_file: Path | None
    oidc_scopes: tuple[str, ...]
    oidc_groups_claim: str
    oidc_roles: tuple[tuple[str, str, Role], ...]  # group, organisation, role
    smtp_url: str | None
    smtp_from: str
    alert_commands: tuple[tuple[str, str], ...]  # name → program
    lake_workers: str
    lake_lease: float
    secret_key_file: Path
    spark_url: str
    spark_warehouse: str  # a directory, or hdfs://…
    hdfs_user: str
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

    `file` None reads horae.toml of the working directory if there is one that is ours, NO_FILE none; a named file must
    exist.
    """
    path = Path(DEFAULT_FILE) if file is None else Path(file)
    is_read = path != NO_FILE and (file is not None or (path.exists() and not stranger_of(path)))
    in_file, warnings = _from_file(path) if is_read else ({}, ())
    given = {**in_file, **_from_environment(os.environ if environ is None else environ)}
    for name, text in (flags or {}).items():
        given[name] = _Given(text, f"flag {BY_NAME[name].flag}")
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
        if is_default and Path(name).exists() and (stranger := stranger_of(Path(name))):
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
    if values["tls_client_ca"] and not values["tls_cert"]:
        _refuse_pair("tls_cert", "is missing: tls_client_ca is of use only with TLS", sources)
    _check_provider(values, sources)
    if not is_loopback(values["host"]) and not values["tls_cert"]:
        raise ConfigError(
            f"listening on {values['host']} needs a login and TLS: tls_cert and tls_key are not set "
            f"({sources.get('host', 'default')})",
            code="E_TLS_REQUIRED",
            path="host",
            hint="give --tls-cert and --tls-key (docs/howto/login-and-tls.md), or leave --host out and come in "
            "through an SSH tunnel: ssh -L 8080:127.0.0.1:8080 HOST",
        )


def _check_provider(values: Values, sources: Mapping[str, str]) -> None:
    """A provider needs to know us, and to find the way back; browsers never go by the name in a request."""
    if not values["oidc_issuer"]:
        return
    if not values["oidc_client_id"]:
        _refuse_pair("oidc_client_id", "is missing: oidc_issuer needs it", sources)
    if not is_loopback(values["host"]) and not values["public_url"]:
        _refuse_pair("public_url", "is missing: the identity provider sends browsers back to it", sources)


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
                hint=suggest(variable, variables) or "unset it; `horae up --help` lists the settings",
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
        if name not in BY_NAME:
            known = "a table; settings stand alone" if isinstance(value, dict) else "no setting of Horae"
            hint = suggest(name, BY_NAME) or "`horae up --help` lists the settings"
            raise ConfigError(f"{where}: {name} is {known}", hint=hint, path=name)
        if name in given:
            raise ConfigError(f"{where}: {name} stands twice", hint=f"it is also at {given[name].source}", path=name)
        given[name] = _Given(value, f"file {where}")
    return given, _file_warnings(path, mode, table)


def in_tables(table: Mapping[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """(setting, key, value) of everything in a settings file: `lake_lease` may stand as `lease` under [lake]."""
    for name, value in table.items():
        if name not in BY_NAME and isinstance(value, dict) and any(each.startswith(f"{name}_") for each in BY_NAME):
            yield from ((f"{name}_{key}", key, inner) for key, inner in value.items())
        else:
            yield name, name, value


def _read_file(path: Path) -> tuple[str, int]:
    """Return the text and the mode of a settings file; a FIFO or device never blocks or floods the start."""
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
    addresses = [
        str(table[name]) for name in ("database", "queue", "spark_url", "clickhouse_url", "smtp_url") if table.get(name)
    ]
    if mode & stat.S_IROTH and any(mask_address(each) != each for each in addresses):
        warnings.append(f"{path} holds a password and can be read by every user: chmod o-r {path}")
    return tuple(warnings)
