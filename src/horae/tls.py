"""The certificate that this process serves with: checked once, before anything listens.

A certificate that is missing, expired or not the key's is refused at the start, in words. Found by the first
client instead, it would be a line in a log that nobody reads.
"""

from __future__ import annotations

import ssl
import stat
from datetime import datetime, timedelta
from pathlib import Path

from horae.errors import ConfigError

SOON = timedelta(days=14)  # before its end a certificate is worth a warning at every start


def server_context(
    certificate: Path, key: Path, now: datetime, client_ca: Path | None = None
) -> tuple[ssl.SSLContext, list[str]]:
    """Return what a server needs to speak TLS 1.2 or newer with this certificate, and what to warn of. With
    `client_ca`, clients need a certificate that was signed by one of these."""
    warnings = [*_dates(certificate, now), *_exposure(key)]
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate, key, password=_no_password)
    except ssl.SSLError as error:
        raise _unusable(certificate, key, error) from None
    except OSError as error:
        raise ConfigError(f"the key {key} cannot be read: {error.strerror}", code="E_TLS", path="tls_key") from None
    if client_ca is not None:
        _ask_clients(context, client_ca)
    return context, warnings


def _ask_clients(context: ssl.SSLContext, client_ca: Path) -> None:
    try:
        context.load_verify_locations(cafile=client_ca)
    except OSError as error:  # what OpenSSL says is one too
        why = "it holds no certificate" if isinstance(error, ssl.SSLError) else error.strerror
        raise ConfigError(
            f"the certificates {client_ca} cannot be used: {why}", code="E_TLS", path="tls_client_ca",
            hint="certificates in PEM form are expected",
        ) from None  # fmt: skip
    context.verify_mode = ssl.CERT_REQUIRED


def _no_password() -> str:
    """Without this, OpenSSL would ask whoever sits at the terminal."""
    raise ConfigError(
        "the key is encrypted, and nobody is there to give its password",
        code="E_TLS",
        path="tls_key",
        hint="write it without: openssl pkey -in KEY -out PLAIN, and chmod 600 PLAIN",
    )


def _unusable(certificate: Path, key: Path, error: ssl.SSLError) -> ConfigError:
    if error.reason == "KEY_VALUES_MISMATCH":
        return ConfigError(
            f"the key {key} is not that of the certificate {certificate}", code="E_TLS", path="tls_key",
            hint="give the key that the certificate was asked for with",
        )  # fmt: skip
    return ConfigError(
        f"the key {key} cannot be used with the certificate {certificate}: {error.reason or 'no key in it'}",
        code="E_TLS", path="tls_key", hint="a private key in PEM form is expected",
    )  # fmt: skip


def _dates(path: Path, now: datetime) -> list[str]:
    from cryptography import x509  # slow to load, and only those who serve TLS need it

    try:
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
    except OSError as error:
        raise ConfigError(
            f"the certificate {path} cannot be read: {error.strerror}", code="E_TLS", path="tls_cert"
        ) from None
    except ValueError:
        raise ConfigError(
            f"{path} holds no certificate", code="E_TLS", path="tls_cert", hint="a certificate in PEM form is expected"
        ) from None
    begins, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if now > ends:
        raise ConfigError(f"the certificate {path} has expired on {ends:%Y-%m-%d}", code="E_TLS", path="tls_cert",
                          hint="renew it")  # fmt: skip
    if now < begins:
        raise ConfigError(f"the certificate {path} is not valid before {begins:%Y-%m-%d %H:%M} UTC", code="E_TLS",
                          path="tls_cert", hint="is the clock of this machine right?")  # fmt: skip
    return [f"the certificate {path} expires on {ends:%Y-%m-%d}: renew it"] if now > ends - SOON else []


def _exposure(key: Path) -> list[str]:
    try:
        mode = key.stat().st_mode
    except OSError:
        return []  # told when it is read
    return [f"{key} can be read by every user of this machine: chmod 600 {key}"] if mode & stat.S_IROTH else []
