"""What `horae agent` is told about its servers, checked before anything is started."""

from __future__ import annotations

import re
import socket
from pathlib import Path
from typing import TYPE_CHECKING

from horae.errors import ConfigError, Error
from horae.values import Refused, is_loopback, mask_database, read_queue

if TYPE_CHECKING:
    from horae.app.remote_agent import ServerAddress

MAX_FILE = 1 << 20  # bytes of a token or certificate file
GET_ONE = "make one on a server with `horae token create NAME --agent NODE`, and give it with --token-file"


def agent_flags(flags: dict[str, str], labels: list[str]) -> dict[str, str]:
    """Return the flags of an agent, with its own defaults for what must differ from a server on the same machine."""
    host = re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname()).strip("-._") or "node"
    given = {"node": f"{host[:100]}-agent", "data": "./.horae-agent", **flags}
    if labels:
        given["labels"] = ",".join([*filter(None, [flags.get("labels")]), *labels])
    return given


def read_way(servers: str, token_file: str | None, ca_file: str | None) -> ServerAddress:
    from horae.app.remote_agent import ServerAddress  # loads the server

    if servers.startswith(("nats://", "tls://")):
        return _way_by_nats(servers, token_file, ca_file)
    addresses = tuple(_address(text.strip()) for text in servers.split(","))
    is_far = not all(is_loopback(address.rpartition(":")[0].strip("[]")) for address in addresses)
    token = _read_token(token_file)
    if is_far and not token:
        raise ConfigError(
            f"an agent of {servers} needs a token: only servers on loopback take agents without one",
            code="E_JOIN_TOKEN",
            hint=GET_ONE,
        )
    authority = _read(ca_file, "certificate") if ca_file else None
    return ServerAddress(addresses, token, is_secure=is_far or authority is not None, authority=authority)


def _way_by_nats(address: str, token_file: str | None, ca_file: str | None) -> ServerAddress:
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
    token = _read_token(token_file)
    if not token:
        raise ConfigError("an agent that comes over NATS needs a token", code="E_JOIN_TOKEN", hint=GET_ONE)
    return ServerAddress(
        (address,), token, is_secure=True, authority=_read(ca_file, "certificate") if ca_file else None
    )


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
