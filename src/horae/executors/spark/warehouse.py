"""Where a warehouse lies: in a directory of this machine, or on HDFS."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import hdfs_native

from horae.executors.destinations import check_reachable
from horae.executors.spark.registry import Files, Folder


def files_of(warehouse: str) -> Files:
    return HadoopFolder(warehouse) if warehouse.startswith("hdfs://") else Folder(Path(warehouse))


class HadoopFolder:
    def __init__(self, warehouse: str) -> None:
        parts = urlsplit(warehouse)
        self._root = parts.path.rstrip("/")
        check_reachable("HDFS", warehouse)
        self._client: Any = hdfs_native.Client(f"hdfs://{parts.netloc}")

    def list(self, directory: str) -> dict[str, float]:
        try:
            found = list(self._client.list_status(self._at(directory)))
        except FileNotFoundError:
            return {}
        return {one.path.rpartition("/")[2]: one.modification_time / 1000 for one in found}

    def read(self, path: str) -> bytes | None:
        try:
            with self._client.read(self._at(path)) as file:
                return bytes(file.read())
        except FileNotFoundError:
            return None

    def make(self, path: str, data: bytes) -> bool:
        directory, _, name = self._at(path).rpartition("/")
        written = f"{directory}/.{name}.{uuid.uuid4()}"
        with self._client.create(written) as file:
            file.write(data)
        try:
            self._client.rename(written, self._at(path))
        except FileExistsError:
            self._client.delete(written)
            return False
        return True

    def remove(self, path: str) -> None:
        self._client.delete(self._at(path), recursive=True)

    def _at(self, path: str) -> str:
        return f"{self._root}/{path}".rstrip("/")
