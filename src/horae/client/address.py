"""Where a server is, and the way to it: its address, the certificates to trust, a proxy."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote, urlsplit

from horae.core.hosts import is_loopback
from horae.errors import Error, Invalid, Unauthenticated

if TYPE_CHECKING:
    import ssl

DEFAULT_URL = "http://127.0.0.1:8080"


class Server(NamedTuple):
    """One server, and what every request to it begins with."""

    url: str
    host: str
    port: int
    headers: str  # of every request: a token may be among them
    is_near: bool  # on this machine
    tls: ssl.SSLContext | None = None
    proxy: tuple[str, int] | None = None
    proxy_headers: str = ""

    def __repr__(self) -> str:
        return f"Server({self.url})"  # and no token

    @property
    def target(self) -> str:
        """Return what stands before the path: a proxy wants the whole address, unless it only passes bytes on."""
        return self.url if self.proxy and self.tls is None else ""

    @property
    def tunnel(self) -> bytes:
        """Return what asks a proxy to pass bytes on."""
        where = f"{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"
        return f"CONNECT {where} HTTP/1.1\r\nHost: {where}\r\n{self.proxy_headers}\r\n".encode("ascii")


def server_url(text: str, *, insecure: bool = False) -> str:
    """Return `scheme://host:port` of whatever way a server was written, or raise Invalid(E_URL)."""
    given = text.strip()
    try:
        url = urlsplit(given if "://" in given else f"http://{given}")
        host, port = url.hostname or "", url.port
    except ValueError:
        raise _bad_url(text, "an IPv6 address stands in brackets, as in http://[::1]:8080") from None
    if url.scheme not in ("http", "https") or not re.fullmatch(r"[A-Za-z0-9._:%-]+", host) or port == 0:
        raise _bad_url(text)
    if url.path.strip("/") or url.query or url.fragment or url.username is not None:
        raise _bad_url(text, "leave out user, path and query")
    if url.scheme == "http" and not insecure and not is_loopback(host):
        raise Invalid(
            f"{text} is not encrypted: everything sent there can be read on the way",
            code="E_URL",
            hint="use https://, or --insecure if the network is your own",
        )
    return f"{url.scheme}://{f'[{host}]' if ':' in host else host}{f':{port}' if port else ''}"


def _bad_url(text: str, hint: str = "") -> Invalid:
    return Invalid(f"expected a server such as http://127.0.0.1:8080, got {text!r}", code="E_URL", hint=hint)


def find_server(
    text: str, token: str | None, *, insecure: bool, ca_file: str | None, cert_file: str | None = None,
    org: int | str | None = None,
) -> Server:  # fmt: skip
    """Return the server that is meant, with the way to it."""
    if token and not re.fullmatch(r"[\x21-\x7e]{1,1000}", token):
        raise Unauthenticated("the token holds what no token does: is it one line, without spaces?")
    if org is not None and not re.fullmatch(r"[\x21-\x7e]{1,64}", str(org)):
        raise Invalid(f"an organisation is a name or a number, got {org!r}", code="E_CHAR", path="org")
    url = server_url(text, insecure=insecure)
    parts = urlsplit(url)
    host, is_tls = parts.hostname or "", parts.scheme == "https"
    login = f"Authorization: Bearer {token}\r\n" if token else ""
    where = f"Horae-Organisation: {org}\r\n" if org is not None else ""
    headers = f"Host: {parts.netloc}\r\nUser-Agent: horae\r\nAccept: */*\r\n{login}{where}"
    tls = trusted(ca_file, cert_file) if is_tls else None
    port = parts.port or (443 if is_tls else 80)
    if is_loopback(host):  # a proxy cannot reach this machine's loopback
        return Server(url, host, port, headers, True, tls)
    proxy, proxy_login = _proxy_for(parts.scheme, parts.netloc)
    with_login = headers + ("" if is_tls else proxy_login)
    return Server(url, host, port, with_login, False, tls, proxy, proxy_login)


def trusted(ca_file: str | None, cert_file: str | None = None) -> ssl.SSLContext:
    """Return what a server's certificate is checked against, and what we show of our own."""
    import ssl  # most clients talk to this machine: they do without

    try:
        context = ssl.create_default_context(cafile=ca_file)
    except OSError as error:  # what OpenSSL says is one too
        why = "it holds no certificate" if isinstance(error, ssl.SSLError) else error.strerror
        raise Error(f"the CA file {ca_file} cannot be used: {why}", code="E_FILE") from None
    if cert_file is not None:
        _show(context, cert_file)
    return context


def _show(context: ssl.SSLContext, cert_file: str) -> None:
    import ssl

    try:
        context.load_cert_chain(cert_file, password=lambda: "")
    except OSError as error:
        why = "it holds no certificate with its key" if isinstance(error, ssl.SSLError) else error.strerror
        raise Error(f"the certificate file {cert_file} cannot be used: {why}", code="E_FILE") from None


def _proxy_for(scheme: str, netloc: str) -> tuple[tuple[str, int] | None, str]:
    """Return the proxy that the environment names (HTTPS_PROXY, NO_PROXY, …), and the header that it asks for."""
    from urllib.request import getproxies, proxy_bypass  # reads the environment as every program does

    found = getproxies()
    text = found.get(scheme) or found.get("all")
    if not text or proxy_bypass(netloc):
        return None, ""
    try:
        url = urlsplit(text if "://" in text else f"http://{text}")
        host, port = url.hostname, url.port or 80
    except ValueError:
        host = None
    if not host or url.scheme != "http":
        hint = "name another in HTTPS_PROXY, or this server in NO_PROXY"
        raise Invalid(f"expected a proxy such as http://proxy.example:3128, got {text!r}", code="E_URL", hint=hint)
    if url.username is None:
        return (host, port), ""
    from base64 import b64encode

    login = b64encode(f"{unquote(url.username)}:{unquote(url.password or '')}".encode()).decode()
    return (host, port), f"Proxy-Authorization: Basic {login}\r\n"
