"""The servers of figures about data: a durable PostgreSQL with a table of orders, and an S3 service. They, and the
libraries to speak with them, are there only where the engines are installed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg2
import pyarrow.parquet as pq
from tests.contract.postgres_server import Postgres
from tests.engines.s3_server import ACCESS_KEY, REGION, S3, SECRET_KEY, running_s3

from horae.core.model import Json
from horae.executors.destinations.places import bucket

TABLE = """
CREATE TABLE orders AS SELECT i::bigint AS id, 'customer ' || i % 5000 AS name, (i * 1.25)::numeric(12,2) AS amount,
i % 7 AS kind, md5(i::text) AS note, timestamptz '2026-01-01' + i * interval '1 second' AS updated_at
FROM generate_series(1, {}) i
"""


@dataclass(frozen=True, slots=True)
class Servers:
    url: str
    s3: S3

    def do(self, statement: str) -> Any:
        connection = psycopg2.connect(self.url)
        try:
            with connection, connection.cursor() as cursor:
                cursor.execute(statement)
                return cursor.fetchone() if cursor.description else None
        finally:
            connection.close()

    def fill(self, rows: int) -> None:
        self.do("DROP TABLE IF EXISTS orders")
        self.do(TABLE.format(rows))

    def place(self, name: str) -> Json:
        if name == "postgres":
            return {"type": "postgresql", "url": self.url, "table": "copies.orders"}
        return {
            "type": "files", "path": "s3://lake/orders", "endpoint": self.s3.endpoint, "access_key_id": ACCESS_KEY,
            "secret_access_key": SECRET_KEY, "region": REGION,
        }  # fmt: skip

    def order(self, name: str) -> Json:
        spec = {
            "source": {"type": "database", "url": self.url}, "read": {"table": "orders"}, "mode": "full",
            "destinations": [self.place(name)],
        }  # fmt: skip
        return {"spec": spec, "cursor": None, "attempt": "1-1", "lake_root": "", "clickhouse_url": ""}

    def count(self, name: str) -> int:
        if name == "postgres":
            return int(self.do("SELECT count(*) FROM copies.orders")[0])
        files = bucket(self.place(name))
        return sum(_rows(files, path) for path in files.glob("lake/orders/*.parquet"))

    def clear(self, name: str) -> None:
        if name == "postgres":
            self.do("DROP SCHEMA IF EXISTS bare CASCADE")
            self.do("DROP SCHEMA IF EXISTS bare_staging CASCADE")
            self.do("DROP TABLE IF EXISTS copies.orders")
        elif (files := bucket(self.place(name))).exists("lake/orders"):
            files.rm("lake/orders", recursive=True)


def _rows(files: Any, path: str) -> int:
    with files.open(path, "rb") as file:
        return int(pq.ParquetFile(file).metadata.num_rows)


@contextmanager
def running_servers() -> Iterator[Servers]:
    postgres = Postgres.make(
        fsync="on", shared_buffers="512MB", max_wal_size="4GB", wal_level="minimal", max_wal_senders="0"
    )
    try:
        with running_s3() as s3:
            servers = Servers(postgres.start().url.replace("@", ":any@"), s3)  # dlt wants a password
            servers.do("CREATE SCHEMA copies")
            s3.store("lake")
            yield servers
    finally:
        postgres.remove()
