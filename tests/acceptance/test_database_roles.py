"""A cluster whose servers work with a role that owns nothing: made by the commands, on real processes."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest

from ..conftest import with_database
from ..database_roles import as_role, tell
from .server import Server, free_port
from .test_login import run

pytestmark = pytest.mark.slow
QUICK = ("--heartbeat-interval", "0.5", "--lease", "3")


@pytest.fixture
def database(postgres_server: str) -> Iterator[str]:
    """An empty one; its address as the superuser."""
    name = f"roles_{uuid.uuid4().hex[:10]}"
    asyncio.run(tell(postgres_server, f"CREATE DATABASE {name}"))
    yield with_database(postgres_server, name)
    asyncio.run(tell(postgres_server, f"DROP DATABASE {name} WITH (FORCE)"))


def test_S47_servers_work_with_a_role_that_owns_nothing_and_another_one_migrates(database: str, tmp_path: Path) -> None:
    names = [f"{name}_{uuid.uuid4().hex[:10]}" for name in ("owner", "server", "reader")]
    owner, server, reader = (as_role(database, name) for name in names)
    rights = run(tmp_path, "migrate", "--roles", ",".join(names)).stdout
    asyncio.run(tell(database, rights))
    for name in names:
        asyncio.run(tell(database, f"ALTER ROLE {name} PASSWORD 'x'"))
    started: list[Server] = []
    try:
        port = str(free_port())
        for command in (("up", "--port", port), ("migrate",)):
            said = run(tmp_path, *command, "--database", server, check=False)
            assert "error[E_DB_RIGHTS]" in said.stderr
            assert "run `horae migrate`" in said.stderr
        assert "schema" in run(tmp_path, "migrate", "--database", owner).stdout.splitlines()[-1]
        asyncio.run(tell(database, rights))
        assert run(tmp_path, "migrate", "--check", "--database", server).returncode == 0

        for name in ("one", "two"):
            (tmp_path / name).mkdir()
            started.append(Server(tmp_path / name, "--database", server, "--node", name, *QUICK).start())
        one, two = started
        echo = {"name": "echo", "steps": [{"run": "echo it is $HORAE_NODE"}]}
        ticking, asked = one.submit({**echo, "schedule": "1s"}, {**echo, "triggers": []})
        run_id = two.post(f"/v1/jobs/{asked['id']}/run", status=201)["id"]
        assert one.ended(run_id)["state"] == "succeeded"
        one.wait_until(
            lambda: len(one.every("/v1/runs", job_id=ticking["id"], state="succeeded")) >= 3, "moments to be fired"
        )
        for each in started:
            assert "history.unindexed" not in each.log()
            assert "permission denied" not in each.log()
        refused = run(tmp_path, "inbox", "grant", names[2], "--database", server, check=False)
        assert "error[E_DB_RIGHTS]" in refused.stderr
        run(tmp_path, "inbox", "grant", names[2], "--owner", "local", "--database", owner)
        asyncio.run(tell(reader, f"SELECT horae_enqueue('{asked['id']}')"))
        one.wait_until(
            lambda: len(one.every("/v1/runs", job_id=asked["id"], state="succeeded")) == 2, "what was handed over"
        )
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            asyncio.run(tell(server, "DROP TABLE jobs"))
    finally:
        for each in started:
            assert each.stop() == 0
        for name in names:
            asyncio.run(tell(database, f"DROP OWNED BY {name}; DROP ROLE {name}"))
