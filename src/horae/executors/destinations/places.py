"""Where rows come from and go to: addresses of databases, the lake of this agent, and buckets of S3.

What must stay true: the agent's own credentials open nothing but the lake. A bucket that a job names is opened with
what the job brings, or as anybody may.
"""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import fsspec
import sqlalchemy as sa

from horae.core.model import Json
from horae.executors.destinations import Refused, check_reachable
from horae.executors.reach import guarded

ELSEWHERE = frozenset({"host", "hostaddr", "port", "service", "servicefile", "unix_socket", "read_default_file"})
DRIVERS = {
    "postgresql": "postgresql+psycopg2",
    "postgres": "postgresql+psycopg2",
    "mysql": "mysql+pymysql",
    "mariadb": "mysql+pymysql",
}
S3 = "s3://"
HDFS = "hdfs://"
# A file is sent in parts: how large they are, and how many are in memory at once.
MEMORY: dict[str, Any] = {"default_block_size": 16 << 20, "max_concurrency": 2}


def is_local(lake_root: str, path: str) -> bool:
    return "://" not in path and "://" not in lake_root


def find(path: str, place: Json, lake_root: str) -> tuple[Any, str]:
    """Return the file system, and the path there, of an address, or of a path in the lake."""
    if "://" in path:
        return bucket(place), path.removeprefix(S3)
    if not lake_root:
        raise Refused("this agent has no lake: set lake_root to the directory or address of its files")
    if "://" not in lake_root:
        return fsspec.filesystem("file"), str(Path(lake_root, path).resolve())
    if lake_root.startswith(HDFS):
        return hadoop(lake_root), f"{urlsplit(lake_root).path.rstrip('/')}/{path}"
    endpoint = os.environ.get("AWS_ENDPOINT_URL")
    lake = fsspec.filesystem("s3", endpoint_url=endpoint, skip_instance_cache=True, **MEMORY)
    return lake, f"{lake_root.removeprefix(S3).rstrip('/')}/{path}"


def hadoop(address: str) -> Any:
    """HDFS, as the user that HADOOP_USER_NAME names. Its library takes long to load."""
    check_reachable("HDFS", address)
    parts = urlsplit(address)
    return import_module("hdfs_native.fsspec").HdfsFileSystem(parts.hostname, parts.port)


def bucket(place: Json) -> Any:
    """Return a service of one's own (`endpoint`) has its buckets in the path of an address, unless `path_style` is
    false; Amazon's has them in the name of the host, unless it is true."""
    key, region, in_path = place.get("access_key_id"), place.get("region"), place.get("path_style")
    style = {} if in_path is None else {"s3": {"addressing_style": "path" if in_path else "virtual"}}
    return fsspec.filesystem(
        "s3", key=key, secret=place.get("secret_access_key"), endpoint_url=place.get("endpoint"), anon=not key,
        client_kwargs={"region_name": region} if region else {}, config_kwargs=style, skip_instance_cache=True,
        **MEMORY,
    )  # fmt: skip


# ── databases ──────────────────────────────────────────────────────────────────────────────────────


def address_of(place: Json) -> sa.URL:
    """Return the address of a database with who logs in."""
    try:
        url = _as_drivers_say(place["url"])
    except (sa.exc.ArgumentError, ValueError):
        raise Refused("the url of the database cannot be read: postgresql://user@host:5432/name expected") from None
    if url.drivername not in DRIVERS:
        raise Refused(f"databases are {', '.join(DRIVERS)}; there is no driver for {url.drivername}")
    given = {name: place[name] for name in ("username", "password") if place.get(name)}
    return _pinned(url.set(drivername=DRIVERS[url.drivername], **given))


def _as_drivers_say(text: str) -> sa.URL:
    """Addresses of JDBC have parameters of its own drivers: what matters is said in the words of ours."""
    url = sa.make_url(text.removeprefix("jdbc:"))
    if not text.startswith("jdbc:"):
        return url
    said = {name.lower(): str(value) for name, value in url.query.items()}
    who = {"username": url.username or said.get("user"), "password": url.password or said.get("password")}
    return url.set(query=_encryption(url.drivername, said), **who)


def _encryption(driver: str, said: dict[str, str]) -> dict[str, str]:
    """Return what an address of JDBC says of TLS. Nothing that it asks for is left out silently."""
    mode = said.get("sslmode", "").lower().replace("_", "-")
    asks = mode or ("require" if "true" in (said.get("ssl"), said.get("usessl"), said.get("requiressl")) else "")
    if driver.startswith("postgres"):
        return {"sslmode": asks} if asks else {}
    if asks in ("verify-ca", "verify-identity", "verify-full"):
        raise Refused("the url of the database asks to verify a certificate: write mysql://…?ssl_ca=FILE instead")
    return {"ssl_check_hostname": "false"} if asks in ("require", "required") else {}


def _pinned(url: sa.URL) -> sa.URL:
    """Drivers look names up themselves, where nobody hears it: they get an address that was judged. Where the name is
    needed, to see whether a certificate is for it, it stays beside the address."""
    reach = guarded()
    if reach is None:
        return url
    if elsewhere := ELSEWHERE & url.query.keys():
        raise Refused(f"the url of the database names its host itself, not by {', '.join(sorted(elsewhere))}")
    if not url.host:
        raise Refused("the url of the database names no host")
    address = reach.pinned(url.host, url.port or (5432 if url.drivername.startswith("postgresql") else 3306))
    if str(url.query.get("sslmode", "")).startswith("verify-"):
        return url.update_query_dict({"hostaddr": address})
    return url if any(name.startswith("ssl_") for name in url.query) else url.set(host=address)
