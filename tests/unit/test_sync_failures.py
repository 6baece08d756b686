"""What a sync that failed says: enough to mend it, and no secret."""

from __future__ import annotations

import socket

from horae.executors.sync.failures import words_for

URL = "postgresql://me:secret-word@db.nowhere.test:5432/shop"
SPEC = {
    "source": {"type": "database", "url": URL, "password": "pass-word"},
    "destinations": [{"type": "clickhouse", "url": "http://lake.test:8123"}, {"type": "files", "path": "a/b"}],
}


def test_a_name_that_is_not_known_is_named():
    said = words_for(socket.gaierror(-2, "Name or service not known"), SPEC)
    assert "(db.nowhere.test or lake.test)" in said["message"]
    assert said["message"].endswith("a retry may help")


def test_no_secret_is_repeated():
    said = words_for(RuntimeError("cannot log in as me with pass-word at postgresql://me:secret-word@db"), SPEC)
    assert "pass-word" not in said["message"]
    assert "secret-word" not in said["message"]
