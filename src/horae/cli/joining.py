"""What `horae agent` is told about its servers, checked before anything is started."""

from __future__ import annotations

import os
import re
import socket
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from horae.core.hosts import is_loopback
from horae.errors import ConfigError, Error, Invalid
from horae.values import Refused, mask_database, read_queue

if TYPE_CHECKING:
    from horae.app.remote_agent import ServerAddress

MAX_FILE = 1 << 20  # bytes of a token or certificate file
GET_ONE = "make one on a server with `horae nodes join-token NODE`, and give it with --join"
JOIN_TOKEN, JOIN_TOKEN_FILE = "HORAE_JOIN_TOKEN", "HORAE_JOIN_TOKEN_FILE"


def agent_flags(flags: dict[str, str], labels: list[str]) -> dict[str, str]:
    """Return the flags of an agent, with its own defaults for what must differ from a server on the same machine."""
    host = re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname()).strip("-._") or "node"
    given = {"node": f"{host[:100]}-agent", "data": "./.horae-agent", **flags}
    if labels:
        given["labels"] = ",".join([*filter(None, [flags.get("labels")]), *labels])
    return given


class Login(NamedTuple):
    """What an agent comes in with."""

    token: str | None  # that it was given
    join: str | None  # by which it gets one of its own
    is_known: bool  # it has one of its own already

    def __bool__(self) -> bool:
        return bool(self.token or self.join or self.is_known)


def read_login(token_file: str | None, join: str | None, data: Path) -> Login:
    """Return what an agent comes in with: a flag counts more than the environment."""
    if token_file is not None and join is not None:
        raise Invalid("--join and --token-file are two ways in: give one of them", code="E_USAGE")
    if token_file is not None:
        return Login(_read_token(token_file), None, is_known=False)
    if join is None and (join := os.environ.get(JOIN_TOKEN, "").strip() or None) is None:
        join = _read_token(os.environ.get(JOIN_TOKEN_FILE))
    return Login(None, join, (data / "agent" / "credential").exists())


def read_way(servers: str, login: Login, ca_file: str | None, cert_file: str | None = None) -> ServerAddress:
    from horae.app.remote_agent import ServerAddress  # loads the server

    if servers.startswith(("nats://", "tls://")):
        return _way_by_nats(servers, login, ca_file)
    addresses = tuple(_address(text.strip()) for text in servers.split(","))
    is_far = not all(is_loopback(address.rpartition(":")[0].strip("[]")) for address in addresses)
    if is_far and not login:
        raise ConfigError(
            f"an agent of {servers} needs a token: only servers on loopback take agents without one",
            code="E_JOIN_TOKEN",
            hint=GET_ONE,
        )
    authority = _read(ca_file, "certificate") if ca_file else None
    return ServerAddress(
        addresses, login.token, login.join, is_secure=is_far or authority is not None, authority=authority,
        certificate=_read_certificate(cert_file) if cert_file else None,
    )  # fmt: skip


def _way_by_nats(address: str, login: Login, ca_file: str | None) -> ServerAddress:
    """Whoever reaches a broker could be anybody, so a token is always needed."""
    from horae.app.remote_agent import ServerAddress
    from horae.wire.nats.broker import hosts_of

    try:
        address = read_queue(address)
    except Refused as refused:
        raise ConfigError(
            f"--server must be {refused.expected}; got {mask_database(address)!r}", code="E_URL"
        ) from None
    if address.startswith("nats://") and not all(is_loopback(host) for host in hosts_of(address)):
        raise ConfigError(
            f"an agent calls NATS on another machine by TLS; got {mask_database(address)!r}",
            code="E_TLS_REQUIRED",
            hint="write tls:// in the place of nats://, and give --ca-file if its certificate is your own",
        )
    if not login:
        raise ConfigError("an agent that comes over NATS needs a token", code="E_JOIN_TOKEN", hint=GET_ONE)
    return ServerAddress(
        (address,),
        login.token,
        login.join,
        is_secure=True,
        authority=_read(ca_file, "certificate") if ca_file else None,
    )


def _read_certificate(name: str) -> bytes:
    from horae.client.address import trusted

    trusted(None, name)  # which says what is wrong with it
    return _read(name, "certificate")


def _read_token(token_file: str | None) -> str | None:
    return _read(token_file, "token").decode(errors="replace").strip() if token_file else None


def _address(text: str) -> str:
    found = re.fullmatch(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):([0-9]{1,5})", text)
    if not found or not 0 < int(found[2]) < 65536:
        raise ConfigError(
            f"--server must be HOST:PORT, or several with commas; got {_without_login(text)!r}",
            code="E_URL",
            hint="the port is the server's gRPC port: its HTTP port + 10, unless it says otherwise",
        )
    return text


def _without_login(text: str) -> str:
    """What stands before @ may be a password."""
    login, at, rest = text.rpartition("@")
    return f"{login.partition('://')[0]}://***@{rest}" if at and "://" in login else f"***@{rest}" if at else text


def _read(name: str, what: str) -> bytes:
    try:
        with Path(name).open("rb") as opened:
            content = opened.read(MAX_FILE)
    except OSError as error:
        raise Error(f"the {what} file {name} cannot be read: {error.strerror}", code="E_FILE") from None
    if not content.strip():
        raise Error(f"the {what} file {name} is empty", code="E_FILE")
    return content
