"""The kinds of values that settings have: how each is written, read, refused and shown again."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from horae.core.hosts import is_address
from horae.core.hosts import is_loopback as is_loopback
from horae.core.roles import ROLE_WORDS, Role, read_role
from horae.core.spelling import suggest
from horae.errors import Invalid

ROLES = ("api", "coordinator", "scheduler", "agent")
COMPAT_PORTS = (8081, 8082, 8083, 8084, 8085)  # of the five services of the segment contract
MASK = "***"
SQLITE = "sqlite://"


class Refused(Exception):
    """A value does not fit; the text says what was expected."""

    def __init__(self, expected: str, code: str = "E_CONFIG", hint: str = "") -> None:
        super().__init__(expected)
        self.expected, self.code, self.hint = expected, code, hint


def as_text(value: object) -> str:
    return "" if value is None else str(value)


@dataclass(frozen=True, slots=True)
class Kind:
    """How a value is written (`metavar`), read, and shown again."""

    metavar: str
    read: Callable[[object], Any]
    show: Callable[[Any], str] = as_text
    bare: str = ""  # the value that its flag alone stands for; empty where the flag takes one


def read_flag(value: object) -> bool:
    if value is True or value == "true":
        return True
    if value is False or value in ("false", ""):
        return False
    raise Refused("true or false")


FLAG = Kind("true|false", read_flag, lambda value: "true" if value else "false", bare="true")


def whole(low: int, high: int) -> Kind:
    def read(value: object) -> int:
        expected = f"a whole number from {low} to {high}"
        if isinstance(value, str) and re.fullmatch(r"[+-]?[0-9]{1,12}", value.strip()):
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise Refused(expected)
        return value

    return Kind("N", read)


def read_share(value: object) -> float:
    if isinstance(value, str) and re.fullmatch(r"[0-9]{0,3}\.?[0-9]{0,9}", value.strip()) and value.strip(". "):
        value = float(value)
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= 1:
        raise Refused("a number from 0 to 1, such as 0.1")
    return float(value)


SHARE = Kind("SHARE", read_share, "{:g}".format)
_RESOURCES = "resources by name, such as gpu=1,memory=8GiB"
_BYTES = {"": 1, "B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
PORT = whole(1, 65535)


def show_seconds(value: float) -> str:
    return f"{value:g}s"


def read_seconds(value: object) -> float | None:
    """Return a number of seconds, or a duration as jobs have it; None if it is neither."""
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,6})?", value.strip()):
        value = float(value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    from horae.core.time import moments  # here, because few starts need it and every command would load it

    try:
        return moments.read_duration(value) / 1_000_000
    except Invalid:
        return None


def duration(low: float, high: float) -> Kind:
    def read(value: object) -> float:
        seconds = read_seconds(value)
        if seconds is None or not low <= seconds <= high:
            raise Refused(f"a duration from {show_seconds(low)} to {show_seconds(high)}, such as 30s or 5m")
        return seconds

    return Kind("DURATION", read, show_seconds)


def read_bytes(value: object) -> int | None:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    found = re.fullmatch(r"([0-9]{1,15})\s*([A-Za-z]*)", str(value).strip())
    return int(found[1]) * _BYTES[found[2]] if found and found[2] in _BYTES else None


def show_bytes(value: int) -> str:
    units = (unit for unit in ("GiB", "MiB", "KiB") if value % _BYTES[unit] == 0)
    unit = next(units, "")
    return f"{value // _BYTES[unit]}{unit}"


def size(low: int, high: int) -> Kind:
    def read(value: object) -> int:
        size = read_bytes(value)
        if size is None or not low <= size <= high:
            raise Refused(f"a size from {show_bytes(low)} to {show_bytes(high)}, such as 100MiB")
        return size

    return Kind("SIZE", read, show_bytes)


def choice(*allowed: str) -> Kind:
    def read(value: object) -> str:
        if not isinstance(value, str) or value not in allowed:
            raise Refused(f"one of: {', '.join(allowed)}")
        return value

    return Kind("|".join(allowed), read)


def read_names(value: object, expected: str) -> tuple[str, ...]:
    """Return a TOML list or comma-separated text as distinct names."""
    parts = [part.strip() for part in value.split(",")] if isinstance(value, str) else value
    if not isinstance(parts, list) or not all(isinstance(part, str) and part for part in parts):
        raise Refused(expected)
    if repeated := sorted({part for part in parts if parts.count(part) > 1}):
        raise Refused(f"{expected}, each once ({', '.join(repeated)} stands twice)")
    return tuple(parts)


def read_roles(value: object) -> tuple[str, ...]:
    expected = f"a list out of: {', '.join(ROLES)}"
    named = read_names(value, expected)
    if unknown := [name for name in named if name not in ROLES]:
        raise Refused(expected, hint=suggest(unknown[0], ROLES))
    if not named:
        raise Refused(f"at least one of: {', '.join(ROLES)}")
    return tuple(role for role in ROLES if role in named)


def read_labels(value: object) -> tuple[str, ...]:
    expected = "a list of labels such as gpu or zone=eu"
    named = read_names(value, expected) if value != "" else ()
    if not all(re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_./:=-]{0,62}", name) for name in named):
        raise Refused(expected)
    return named


def read_names_like(pattern: str, value: object, expected: str) -> tuple[str, ...]:
    named = read_names(value, expected) if value != "" else ()
    if not all(re.fullmatch(pattern, name) for name in named):
        raise Refused(expected)
    return named


def read_resources(value: object) -> tuple[tuple[str, int], ...]:
    """Return a TOML table, or text such as gpu=1,memory=8GiB, as amounts (core.policy.resources)."""
    from horae.core.fields import Fields, Problems  # as in read_seconds
    from horae.core.policy import resources

    problems = Problems()
    found = resources.read_resources(Fields({"resources": _amounts(value)}, "", problems))
    if problems.listed:
        first = problems.listed[0]
        raise Refused(f"{_RESOURCES} ({first.path}: {first.message})", hint=first.hint)
    if any(name == resources.SLOTS for name, _ in found):
        raise Refused(_RESOURCES, hint="slots is a setting of its own")
    return found


def _amounts(value: object) -> object:
    if isinstance(value, dict):
        return value
    if not isinstance(value, str):
        raise Refused(_RESOURCES)
    from horae.core.policy.resources import amounts_of

    found = amounts_of(part for part in value.split(",") if part.strip())
    if not all(name and amount != "" for name, amount in found.items()):
        raise Refused(_RESOURCES)
    return found


def show_resources(value: tuple[tuple[str, int], ...]) -> str:
    from horae.core.policy.resources import words_of

    return ",".join(words_of(value))


def read_kinds(value: object) -> tuple[str, ...]:
    return read_names_like("[a-z][a-z0-9_]{0,63}", value, "a list of kinds of work such as shell or git_python")


def read_buckets(value: object) -> tuple[str, ...]:
    return read_names_like("[a-z0-9][a-z0-9.-]{1,62}", value, "a list of names of buckets, such as reports")


def read_allowed_hosts(value: object) -> tuple[str, ...]:
    pattern = r"[A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]+\]"
    return read_names_like(pattern, value, "a list of host names, without scheme or port")


def read_trusted_proxies(value: object) -> tuple[str, ...]:
    """Each a network, as ipaddress writes it."""
    expected = "a list of addresses or networks of proxies, such as 127.0.0.1 or 10.0.0.0/24"
    networks = []
    for name in read_names(value, expected) if value != "" else ():
        try:
            networks.append(ipaddress.ip_network(name))
        except ValueError:
            raise Refused(expected) from None
    if not all(network.prefixlen for network in networks):
        raise Refused(expected, hint="whoever is believed can be anybody: name your proxies, not every address")
    return tuple(map(str, networks))


def read_ports(value: object) -> tuple[int, ...]:
    if value is True or value == "true":
        return COMPAT_PORTS
    if value is False or value in ("false", ""):
        return ()
    expected = f"true for {show_ports(COMPAT_PORTS)}, or a list of other ports"
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, list | tuple):
        raise Refused(expected)
    ports = tuple(PORT.read(part) for part in parts)
    if len(set(ports)) < len(ports):
        raise Refused(f"{expected}, each once")
    return ports


def show_ports(ports: tuple[int, ...]) -> str:
    return ",".join(map(str, ports))


def read_path(value: object, what: str = "directory") -> Path:
    if not isinstance(value, str | Path) or not str(value).strip() or "\0" in str(value):
        raise Refused(f"a {what}")
    if "://" in str(value):
        raise Refused(f"a {what} on this machine, not an address")
    return Path(os.path.abspath(value))  # not resolve(): a link stays the name its owner gave it


def read_directory(value: object) -> Path:
    path = read_path(value)
    if path.exists() and not path.is_dir():
        raise Refused("a directory (this is a file)")
    return path


def read_files(value: object) -> str:
    """Return a directory, or a bucket that all nodes share."""
    if isinstance(value, str) and "://" in value and not value.startswith("file://"):
        parts = urlsplit(value)
        if parts.scheme not in ("s3", "gs", "az") or not parts.netloc or parts.query or "@" in parts.netloc:
            raise Refused(
                "a directory, or a bucket such as s3://name/prefix", code="E_URL",
                hint="the endpoint of a service of your own is files_endpoint; credentials are read from the "
                "environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY)",
            )  # fmt: skip
        return value.rstrip("/")
    return str(read_directory(value))


def read_endpoint(value: object) -> str:
    if value is None:
        return ""
    parts = urlsplit(value) if isinstance(value, str) else urlsplit("")
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
        raise Refused("an address such as http://127.0.0.1:8333", code="E_URL")
    return str(value).rstrip("/")


def read_collector(value: object) -> str:
    try:
        return read_endpoint(value)
    except Refused:
        raise Refused("an address such as http://127.0.0.1:4318", code="E_URL") from None


def read_access_log(value: object) -> str:
    """Return where requests are written down: nowhere, standard error, or the path of a file."""
    return str(value) if value in ("off", "stderr") else str(read_path(value))


def read_existing_directory(value: object) -> Path:
    path = read_path(value)
    if not path.is_dir():
        raise Refused("a directory that exists")
    return path


def read_script_roots(value: object) -> tuple[Path, ...]:
    named = read_names(value, "a list of directories that exist") if value != "" else ()
    return tuple(read_existing_directory(name) for name in named)


def read_allowed_networks(value: object) -> tuple[str, ...]:
    """Each `network` or `network:port`, as ipaddress writes it; an IPv6 network with a port is in brackets."""
    expected = "a list of networks such as 127.0.0.0/8, 10.0.0.7:8080 or [::1]:5432"
    return tuple(_read_network(name, expected) for name in (read_names(value, expected) if value != "" else ()))


def _read_network(text: str, expected: str) -> str:
    found = re.fullmatch(r"(?:\[([0-9A-Fa-f:./]+)\]|([0-9./]+)):([0-9]{1,5})|([0-9A-Fa-f:./]+)", text)
    try:
        network = ipaddress.ip_network((found[1] or found[2] or found[4]) if found else "")
    except ValueError:
        raise Refused(expected) from None
    if found is None or found[3] is None:
        return str(network)
    if not 0 < int(found[3]) < 65536:
        raise Refused(expected)
    return f"[{network}]:{int(found[3])}" if network.version == 6 else f"{network}:{int(found[3])}"


def read_settings_file(value: object) -> Path:
    path = read_path(value, "file")
    if not path.is_file():
        raise Refused("a file that exists")
    return path


def read_existing_file(value: object) -> Path:
    path = read_path(value, "file")
    if not path.exists():
        raise Refused("a file that exists", code="E_TLS")
    if not path.is_file():
        raise Refused("a file (this is something else)", code="E_TLS")
    return path


def read_key_file(value: object) -> Path:
    path = read_path(value, "file")
    if path.is_dir():
        raise Refused("a file (this is a directory)")
    return path


def read_node(value: object) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}", value):
        raise Refused("a name of 1 to 128 letters, digits, dots, dashes and underscores")
    return value


def read_host(value: object) -> str:
    host = value.strip().removeprefix("[").removesuffix("]") if isinstance(value, str) else ""
    is_number = ":" in host or re.fullmatch(r"[0-9.]+", host)
    if not re.fullmatch(r"[A-Za-z0-9._:%-]+", host) or (is_number and not is_address(host)):
        raise Refused("an address to listen on, such as 127.0.0.1", code="E_LISTEN")
    return host


def read_database(value: object) -> str:
    expected = "an address such as postgresql://user@host/name or sqlite:///path/to/file"
    text = value.strip() if isinstance(value, str) else ""
    found = re.fullmatch(r"sqlite:(/*)([^/].*)", text)
    if found and len(found[1]) != 2:  # sqlite://name would be a host
        return SQLITE + os.path.abspath(found[1][:1] + found[2])
    if text.startswith(("postgresql://", "postgres://")):
        login = text.partition("://")[2].partition("?")[0]
        if login.count("@") > 1 or re.search(r"%(?![0-9a-fA-F]{2})", login):
            hint = "in a user name or password write @ as %40, : as %3A, / as %2F and % as %25"
            raise Refused(expected, code="E_URL", hint=hint)
        if has_hosts(text):
            return text
    raise Refused(expected)


def read_docker(value: object) -> str:
    text = value.strip() if isinstance(value, str) else ""
    if re.fullmatch(r"unix:///[^\s]+", text):
        return text
    hint = ""
    if re.match(r"(tcp|http|https)://", text):
        hint = (
            "over TCP whoever reaches the daemon is root: forward its socket, "
            "ssh -L /run/horae/docker.sock:/var/run/docker.sock HOST, and name that"
        )
    raise Refused("the socket of a daemon, such as unix:///var/run/docker.sock", hint=hint)


def read_spark(value: object) -> str:
    text = value.strip() if isinstance(value, str) else ""
    if re.fullmatch(r"local(\[(\*|[1-9][0-9]*)\])?|(sc|spark)://[^\s/]+\S*", text):
        return text
    raise Refused("local[*], sc://host:port or spark://host:port")


def read_clickhouse(value: object) -> str:
    text = value.strip() if isinstance(value, str) else ""
    if re.fullmatch(r"https?://([^\s/@]*@)?[^\s/@]+/?", text):
        return text
    raise Refused("an address such as http://user:password@127.0.0.1:8123")


def read_lake_root(value: object) -> str:
    text = str(value).strip() if isinstance(value, (str, Path)) else ""
    if "://" in text:
        if re.fullmatch(r"(hdfs|s3)://[^\s/]+(/\S*)?", text):
            return text.rstrip("/")
        raise Refused("a directory, hdfs://host:port/path or s3://bucket/path")
    return str(read_directory(text))


def read_warehouse(value: object) -> str:
    text = str(value).strip() if isinstance(value, (str, Path)) else ""
    if "://" not in text:
        return str(read_directory(text))
    if re.fullmatch(r"hdfs://[^\s/]+/\S*[^\s/]", text.rstrip("/")):
        return text.rstrip("/")
    hint = "tables on S3 are those of a Spark Connect server, which has its own catalog and keys: set spark_url"
    raise Refused("a directory, or hdfs://host:port/path", hint=hint if text.startswith("s3") else "")


def read_hdfs_user(value: object) -> str:
    text = value.strip() if isinstance(value, str) else ""
    if re.fullmatch(r"[\w.$][\w.@/$-]{0,254}", text):
        return text
    raise Refused("the name of a user, such as etl")


DATABASE = "database"  # the queue that needs nothing else


def read_queue(value: object) -> str:
    text = value.strip() if isinstance(value, str) else ""
    if text == DATABASE or (re.match(r"(nats|tls)://[^\s/]+$", text) and has_hosts(text)):
        return text
    raise Refused(f"{DATABASE}, or an address such as nats://user:password@host:4222,host2:4222 or tls://host:4222")


def has_hosts(text: str) -> bool:
    """Return whether every host of an address, of which PostgreSQL and NATS may have several, is one."""
    try:
        parts = urlsplit(text)
        return all(urlsplit(f"//{host}").port != 0 for host in parts.netloc.rpartition("@")[2].split(","))
    except ValueError:
        return False


def mask_database(url: str) -> str:
    """Return the address with its password hidden, wherever it stands; works on broken addresses too."""
    hidden = re.sub(r"(//[^:/@]*:).*@", rf"\1{MASK}@", url)
    return re.sub(r"(?i)(password=)[^&]*", rf"\1{MASK}", hidden)


def read_smtp(value: object) -> str:
    text = value.strip() if isinstance(value, str) else ""
    if re.fullmatch(r"smtps?://([^\s/@]*@)?[^\s/@]+/?", text):
        try:
            urlsplit(text).port  # noqa: B018  # raises where it is none
            return text
        except ValueError:
            pass
    raise Refused("an address such as smtps://user:password@mail.example.org:465 or smtp://127.0.0.1:25")


def read_sender(value: object) -> str:
    text = value.strip() if isinstance(value, str) else ""
    if re.fullmatch(r"[^\s@<>,;]{1,64}@[A-Za-z0-9.-]{1,190}", text):
        return text
    raise Refused("an address such as horae@example.org")


_COMMANDS = "programs by name, such as page=/usr/local/bin/page"


def read_commands(value: object) -> tuple[tuple[str, str], ...]:
    """Return a TOML table, or text such as page=/usr/local/bin/page, as pairs by name."""
    if isinstance(value, str):
        pairs = [part.strip().partition("=")[::2] for part in value.split(",") if part.strip()]
    elif isinstance(value, dict):
        pairs = list(value.items())
    else:
        raise Refused(_COMMANDS)
    for name, program in pairs:
        if not re.fullmatch(r"[A-Za-z0-9_.-]{1,63}", name):
            raise Refused(_COMMANDS)
        if not isinstance(program, str) or not program.startswith("/"):
            raise Refused(_COMMANDS, hint="each is the absolute path of one program, run without a shell")
    return tuple(sorted(pairs))


def show_commands(value: tuple[tuple[str, str], ...]) -> str:
    return ",".join(f"{name}={program}" for name, program in value)


def read_issuer(value: object) -> str:
    """Return the address of a provider as it names itself; without TLS only on this machine."""
    text = value.strip() if isinstance(value, str) else ""
    parts = urlsplit(text)
    is_safe = parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname or ""))
    if not is_safe or not parts.hostname or "@" in parts.netloc or parts.query or parts.fragment:
        raise Refused("an address such as https://id.example.org", code="E_URL", hint="only loopback does without TLS")
    return text


def read_word(value: object) -> str:
    text = value.strip() if isinstance(value, str) else ""
    if not re.fullmatch(r"[\x21-\x7e]{1,512}", text):
        raise Refused("one word of printable ASCII characters")
    return text


def show_hidden(value: str | None) -> str:
    return MASK if value else ""


def read_scopes(value: object) -> tuple[str, ...]:
    words = value.replace(",", " ").split() if isinstance(value, str) else value
    if not isinstance(words, list | tuple) or not all(
        isinstance(word, str) and re.fullmatch(r"[\x21\x23-\x5b\x5d-\x7e]{1,128}", word) for word in words
    ):
        raise Refused("scopes such as openid,profile,email")
    return ("openid", *(word for word in words if word != "openid"))


_GROUP_ROLES = "groups of the provider and roles, such as admins=*:admin,data=2:editor"


def read_group_roles(value: object) -> tuple[tuple[str, str, Role], ...]:
    """Return a TOML table, or text such as admins=*:admin, as (group, organisation, role)."""
    if isinstance(value, str):
        pairs = [part.strip().rpartition("=")[::2] for part in value.split(",") if part.strip()]
    elif isinstance(value, dict):
        pairs = list(value.items())
    else:
        raise Refused(_GROUP_ROLES)
    return tuple(_group_role(group, word) for group, word in pairs)


def _group_role(group: str, word: object) -> tuple[str, str, Role]:
    org, _, text = word.rpartition(":") if isinstance(word, str) else ("", "", "")
    role = read_role(text)
    if not group or role is None:
        raise Refused(_GROUP_ROLES, hint=f"a role is {ROLE_WORDS}, with `org:` before it or without")
    return group, org or "default", role


def show_group_roles(value: tuple[tuple[str, str, Role], ...]) -> str:
    return ",".join(f"{group}={org}:{role}" for group, org, role in value)


def mask_address(url: str | None) -> str:
    """Return the same of an engine that may not be set, and that may be entered with a token."""
    return re.sub(r"(?i)(token=)[^;&]*", rf"\1{MASK}", mask_database(url)) if url else "none"


def stranger_of(path: Path) -> str:
    """Return the other user to whom something here belongs, or the directory it lies in; empty where that is us, or
    root. A settings file says what is run: one that came with somebody else's directory is not for us to obey."""
    try:
        uids = (path.stat().st_uid, path.absolute().parent.stat().st_uid)
    except OSError:
        return ""  # whoever reads it says what is wrong
    return next((f"the user with id {uid}" for uid in uids if uid not in (os.geteuid(), 0)), "")
