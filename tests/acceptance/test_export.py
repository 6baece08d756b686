"""Jobs as files, on a real server: out, and in again without a difference."""

from __future__ import annotations

import json
from pathlib import Path

from .server import Server

EXAMPLES = Path(__file__).parents[2] / "examples"
DOCUMENTS = [EXAMPLES / name for name in ("hello.yaml", "schedules.yaml", "sandboxed.yaml")]


def test_what_was_exported_is_submitted_again_without_a_difference(server: Server, tmp_path: Path):
    server.cli("submit", *map(str, DOCUMENTS))
    before = {job["id"]: job["version"] for job in server.get("/v1/jobs", limit=100)["items"]}

    server.cli("export", "--all", "--out", str(tmp_path / "out"))
    exported = sorted((tmp_path / "out").iterdir())
    keyed = [file for file in exported if "\nkey: " in file.read_text()]
    planned = json.loads(server.cli("--json", "submit", "--dry-run", *map(str, keyed)).stdout)["items"]
    server.cli("submit", *map(str, keyed))

    assert len(exported) == len(before)
    assert keyed
    assert {one["outcome"] for one in planned} == {"unchanged"}
    assert {job["id"]: job["version"] for job in server.get("/v1/jobs", limit=100)["items"]} == before
