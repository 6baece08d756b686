"""Where rows are written, by syncs and by Spark SQL: staged where nobody looks, then put in place in one step, or so
that each step can be repeated.

    rows        what a sync has read, and how a destination takes it
    postgres    tables of PostgreSQL                      syncs
    clickhouse  tables of ClickHouse                      syncs and queries
    files       directories of files, local and on S3     syncs
    run_files   files of a run, local, on S3 and HDFS     queries
    places      addresses of databases, of the lake and of buckets

What must stay true: whoever dies whenever, readers see what was there before or all that is new, and the next attempt
removes what was left.
"""

from __future__ import annotations

import socket
from urllib.parse import urlsplit

from horae.errors import Invalid, Unavailable

CONNECT_SECONDS = 15  # for a database to take a connection
REACH_SECONDS = 10.0  # for a server to take one that only shows that it is there


class Refused(Invalid):
    """The work cannot be done as it is asked for: a retry would not help."""


def check_reachable(what: str, address: str) -> None:
    """Fail at once where nobody listens: the clients of engines go on trying for many minutes. An address without a
    port is the name of a group of servers, which the client knows."""
    parts = urlsplit(address)
    if parts.hostname is None or parts.port is None:
        return
    try:
        socket.create_connection((parts.hostname, parts.port), timeout=REACH_SECONDS).close()
    except OSError as error:
        raise Unavailable(
            f"{what} at {parts.hostname}:{parts.port} cannot be reached: {error.strerror or error}"
        ) from None
