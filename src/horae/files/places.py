"""Which store an address means: a path or file:///path, s3://bucket/prefix, gs://bucket/prefix, az://container/prefix.

Credentials of buckets come from the environment in the way of each service (AWS_ACCESS_KEY_ID and so on, or the role
of the machine): they are no setting of ours.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from urllib.parse import unquote, urlsplit

from obstore.exceptions import BaseError
from obstore.store import LocalStore, ObjectStore, from_url

from horae.errors import ConfigError
from horae.files.objects import ObjectFiles
from horae.files.shipping import ShippedFiles

BUCKETS = ("s3", "gs", "az")  # schemes of stores that all nodes share
REGION = "us-east-1"  # of services that have none
# A request to a store that is away fails soon: its chunk then goes to the spool, where nobody waits for it.
RETRIES = {"max_retries": 1, "retry_timeout": timedelta(seconds=4)}
CLIENT = {"timeout": "10s", "connect_timeout": "2s", "allow_http": True}


def open_files(place: str | Path, *, endpoint: str = "", spool: Path | None = None) -> ObjectFiles:
    """Return the store at an address. One that is shared is reached at `endpoint`, where it is not the service's own,
    and needs a directory for its `spool`."""
    text = str(place)
    parts = urlsplit(text)
    if parts.scheme in BUCKETS and "://" in text:
        return _bucket(text, endpoint, spool)
    if "://" in text and (parts.scheme != "file" or parts.netloc not in ("", "localhost")):
        raise ConfigError(
            f"outputs lie in a local directory or in a bucket: expected a path, file:///path, s3://bucket/prefix, "
            f"gs://… or az://…, got {text!r}",
            code="E_URL",
        )
    return ObjectFiles(_directory(Path(unquote(parts.path) if "://" in text else text).absolute()))


def _directory(path: Path) -> LocalStore:
    try:
        return LocalStore(prefix=path, mkdir=True, automatic_cleanup=True)
    except (BaseError, OSError) as error:
        raise ConfigError(f"the output directory {path} cannot be used: {error}", code="E_FILE") from error


def _bucket(address: str, endpoint: str, spool: Path | None) -> ShippedFiles:
    if spool is None:
        raise ConfigError(f"outputs in {address} need a directory to wait in while the store is away", code="E_URL")
    return ShippedFiles(open_bucket(address, endpoint), ObjectFiles(_directory(spool)))


def open_bucket(address: str, endpoint: str = "") -> ObjectStore:
    """Return what lies below s3://bucket/prefix, gs://… or az://…, as it is."""
    if urlsplit(address).scheme not in BUCKETS or not urlsplit(address).netloc:
        raise ConfigError(f"s3://bucket/prefix, gs://… or az://… expected, got {address[:100]!r}", code="E_URL")
    config: dict[str, str] = {"endpoint": endpoint} if endpoint else {}
    if address.startswith("s3://"):
        config["virtual_hosted_style_request"] = "false" if endpoint else "true"
        config["region"] = REGION
    try:
        return from_url(address.rstrip("/"), config=config, client_options=CLIENT, retry_config=RETRIES)
    except (BaseError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise ConfigError(f"the store {address} cannot be used: {reason}", code="E_URL") from error
