"""Work that is not its user's own, or not theirs alone, runs behind walls, without anybody asking for them."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

from ..acceptance.server import Server
from ..acceptance.test_first_job import run_of, server, write

__all__ = ["server"]  # the fixture


def test_code_from_elsewhere_is_walled_and_told_so(server: Server, tmp_path: Path, need: Callable[..., None]):
    need("bwrap", "git")
    source = tmp_path / "source"
    source.mkdir()
    (source / "mine").write_text("secret")
    for command in ("init -q -b main", "add .", "-c user.name=a -c user.email=a@b commit -q -m x"):
        subprocess.run(["git", "-C", str(source), *command.split()], check=True)
    job = {"name": "build", "checkout": {"url": f"file://{source}", "ref": "main"}}
    server.submit(job | {"steps": [{"run": f"cat mine; cat {tmp_path}/server/data/horae.db"}]})

    run, log = run_of(server, "build")

    assert (run["state"], run["result"]["walls"]) == ("failed", "bubblewrap"), log
    assert f"{tmp_path}/server/data/horae.db of this machine is hidden" in run["message"]
    assert run["result"]["cause"]["code"] == "file_hidden"
    assert "secret" in log


def test_with_a_login_everything_is_walled(tmp_path: Path, need: Callable[..., None]):
    need("bwrap")
    first = Server(tmp_path, "--sandbox", "auto").start()
    first.cli("token", "create", "ann", "--file", str(tmp_path / "ann.token"))
    first.stop()
    second = Server(tmp_path, "--sandbox", "auto").start()
    try:
        write(tmp_path / "pwd.yaml", "name: where\nsteps: [{run: pwd}]\n")
        second.cli("submit", str(tmp_path / "pwd.yaml"))
        run, log = run_of(second, "where")
        assert run["result"]["walls"] == "bubblewrap"
        assert str(tmp_path) + "\n" not in log
    finally:
        second.stop()
