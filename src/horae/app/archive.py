"""Where a command takes the audit log to: a bucket, by the credentials of whoever runs the command."""

from __future__ import annotations

import os

from horae.files import Archive, open_bucket


def open_archive(address: str) -> Archive:
    """The bucket at s3://bucket/prefix, gs://… or az://…; a service of one's own is named as its clients do it."""
    return Archive(open_bucket(address, os.environ.get("AWS_ENDPOINT_URL", "")))
