"""Where files are: the lake of this agent, and buckets of S3.

What must stay true: the agent's own credentials open nothing but the lake. A bucket that a job names is opened with
what the job brings, or as anybody may.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import fsspec

from horae.core.model import Json
from horae.executors.sync.batch import Refused

S3 = "s3://"
# A file is sent in parts: how large they are, and how many are in memory at once.
MEMORY: dict[str, Any] = {"default_block_size": 16 << 20, "max_concurrency": 2}


def is_local(lake_root: str, path: str) -> bool:
    return "://" not in path and "://" not in lake_root


def find(path: str, place: Json, lake_root: str) -> tuple[Any, str]:
    """The file system, and the path there, of an address, or of a path in the lake."""
    if "://" in path:
        return bucket(place), path.removeprefix(S3)
    if not lake_root:
        raise Refused("this agent has no lake: set lake_root to the directory or address of its files")
    if "://" not in lake_root:
        return fsspec.filesystem("file"), str(Path(lake_root, path).resolve())
    if not lake_root.startswith(S3):
        raise Refused(f"a sync uses a lake in a directory or on s3://, and the lake_root of this agent is {lake_root}")
    endpoint = os.environ.get("AWS_ENDPOINT_URL")
    lake = fsspec.filesystem("s3", endpoint_url=endpoint, skip_instance_cache=True, **MEMORY)
    return lake, f"{lake_root.removeprefix(S3).rstrip('/')}/{path}"


def bucket(place: Json) -> Any:
    key, region = place.get("access_key_id"), place.get("region")
    return fsspec.filesystem(
        "s3", key=key, secret=place.get("secret_access_key"), endpoint_url=place.get("endpoint"), anon=not key,
        client_kwargs={"region_name": region} if region else {}, skip_instance_cache=True,
        **MEMORY,
    )  # fmt: skip
