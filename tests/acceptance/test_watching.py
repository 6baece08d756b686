"""Jobs that others run, watched: a line of a crontab wrapped by `horae exec`, whose machine may be unplugged."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .server import Server, horae

NOWHERE = "http://127.0.0.1:9/v1/pings/1/x"  # nobody listens there


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    running = Server(tmp_path).start()
    yield running
    running.stop()


def watch(server: Server, schedule: str = "0 0 1 1 *", grace: str = "1h") -> tuple[int, str]:
    """Return a job that others run, and its address."""
    (job,) = server.submit({"name": "backup", "key": "backup", "schedule": schedule, "watched": {"grace": grace}})
    return int(job["id"]), server.cli("ping-url", "backup").stdout.strip()


def wrap(tmp_path: Path, url: str, *words: str, patience: int = 30) -> subprocess.Popen[bytes]:
    env = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")}
    argv = [horae(), "exec", "--watch", url, "--patience", str(patience), "--", *words]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env, start_new_session=True)


def run_crontab_line(tmp_path: Path, line: str, **environ: str) -> subprocess.Popen[bytes]:
    """As cron does: what follows the five fields goes to a shell, with hardly anything in its environment."""
    given = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "SHELL": "/bin/sh", **environ}
    argv = ["/bin/sh", "-c", line.split(None, 5)[5]]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=given, start_new_session=True)


def ended(wrapped: subprocess.Popen[bytes]) -> tuple[bytes, bytes, int]:
    """Return what it wrote, and its exit code."""
    with wrapped:
        return *wrapped.communicate(timeout=60), wrapped.returncode


def spooled(tmp_path: Path) -> list[Path]:
    return list((tmp_path / "state" / "horae" / "pings").glob("*.json"))


def runs(server: Server) -> list[Any]:
    items: list[Any] = server.get("/v1/runs", limit=100)["items"]
    return items


def log_of(server: Server, run: Any) -> str:
    return server.http.get(f"/v1/runs/{run['id']}/log").text


def test_a_wrapped_command_is_told_of_and_passes_through_unchanged(server: Server, tmp_path: Path) -> None:
    job_id, url = watch(server)
    assert url == server.cli_json("ping-url", "backup")["address"]
    assert ended(wrap(tmp_path, url, "sh", "-c", "echo out; echo err >&2; exit 7")) == (b"out\n", b"err\n", 7)
    [made] = runs(server)
    run = server.ended(made["id"])
    assert (run["job_id"], run["state"], run["reason"], run["exit_code"]) == (job_id, "failed", "exit", 7)
    assert sorted(log_of(server, run).splitlines()) == ["err", "out"]
    assert ended(wrap(tmp_path, url, "true")) == (b"", b"", 0)
    server.wait_until(lambda: runs(server)[0]["state"] == "succeeded", "the second run to be told of")
    assert spooled(tmp_path) == []


def test_a_command_shows_how_long_it_took_and_a_lone_success_does_not(server: Server, tmp_path: Path) -> None:
    _, url = watch(server)
    ended(wrap(tmp_path, url, "sleep", "1.2"))
    [wrapped] = server.wait_until(lambda: [run for run in runs(server) if run["state"] == "succeeded"], "its end")
    assert re.search(r"took +1\.[2-9]s|took +[2-9]", server.cli("runs", "show", str(wrapped["id"])).stdout)
    told = server.http.post(url).json()
    alone = server.ended(told["run_id"])
    assert (alone["state"], alone["started_at"]) == ("succeeded", None)
    assert "took" not in server.cli("runs", "show", str(alone["id"])).stdout
    assert not re.search(r"(?<!\d)0ms", server.cli("runs").stdout)


def test_an_address_that_was_made_anew_is_the_only_one(server: Server, tmp_path: Path) -> None:
    _, old = watch(server)
    new = server.cli("ping-url", "backup", "--rotate").stdout.strip()
    assert server.cli("ping-url", "backup").stdout.strip() == new != old
    assert b"the ping was refused: 404" in ended(wrap(tmp_path, old, "true"))[1]
    assert ended(wrap(tmp_path, new, "true")) == (b"", b"", 0)


def test_a_machine_that_is_unplugged_is_missed_after_the_grace_with_its_last_words(
    server: Server, tmp_path: Path
) -> None:
    _, url = watch(server, grace="15s")
    script = tmp_path / "backup.py"
    script.write_text("import time; print('half way', flush=True); time.sleep(600)")
    line = f"* * * * *  {horae()} exec -- {sys.executable} {script}"
    cron = run_crontab_line(tmp_path, line, HORAE_WATCH=url)
    try:
        made = server.wait_until(lambda: runs(server), "the beginning to be told")[0]
        server.wait_until(lambda: "half way" in log_of(server, made), "its first words to be told")
    finally:
        os.killpg(cron.pid, signal.SIGKILL)  # the shell, the wrapper and its command, all at once
    ended(cron)
    assert server.get(f"/v1/runs/{made['id']}")["state"] == "blocked", "it is not missed before the grace is over"
    run = server.ended(made["id"])
    assert (run["state"], run["reason"]) == ("failed", "missed")
    assert run["message"].startswith("it began at ")
    told = server.get("/v1/events", run=run["id"], kinds="run.finished")["items"]
    assert [(event["data"]["reason"], event["data"]["message"]) for event in told] == [("missed", run["message"])]
    assert "missed" in server.cli("runs").stdout
    assert server.cli("logs", str(run["id"]), "--tail", "5").stdout == "half way\n"
    assert spooled(tmp_path) == []


def test_the_moments_of_a_job_that_nobody_tells_of_are_missed(server: Server) -> None:
    watch(server, schedule="* * * * * *", grace="1s")
    missed = server.wait_until(lambda: [run for run in runs(server) if run["reason"] == "missed"], "a missed run")
    assert "nothing was heard" in missed[0]["message"]


def test_horae_away_costs_the_command_nothing_and_it_is_told_the_next_time(server: Server, tmp_path: Path) -> None:
    _, url = watch(server)
    server.kill()
    out, err, code = ended(wrap(tmp_path, url, "sh", "-c", "echo done; exit 3", patience=0))
    assert (out, code) == (b"done\n", 3)
    assert b"horae exec: Horae could not be told" in err
    assert len(spooled(tmp_path)) == 1
    server.start()
    assert ended(wrap(tmp_path, url, "true")) == (b"", b"", 0)
    server.wait_until(
        lambda: sorted(run["state"] for run in runs(server)) == ["failed", "succeeded"], "both to be told of"
    )
    assert spooled(tmp_path) == []


@pytest.mark.parametrize("url", [NOWHERE, "", "no address", "http://[", "ftp://x/y"])
def test_no_address_makes_a_command_fail(tmp_path: Path, url: str) -> None:
    out, err, code = ended(wrap(tmp_path, url, "sh", "-c", "echo it runs", patience=0))
    assert (out, code) == (b"it runs\n", 0), err
    assert err.startswith(b"horae exec: ")
    assert b"Traceback" not in err


def test_an_address_that_is_refused_is_told_and_not_kept(server: Server, tmp_path: Path) -> None:
    _, url = watch(server)
    _, err, code = ended(wrap(tmp_path, f"{url}x", "true"))
    assert (code, spooled(tmp_path)) == (0, [])
    assert b"the ping was refused: 404" in err


def test_signals_and_their_ends_go_through(tmp_path: Path) -> None:
    script = "import time; print('begun', flush=True); time.sleep(600)"
    wrapped = wrap(tmp_path, NOWHERE, sys.executable, "-c", script, patience=0)
    assert wrapped.stdout is not None
    assert wrapped.stdout.readline() == b"begun\n"
    wrapped.send_signal(signal.SIGTERM)
    assert ended(wrapped)[2] == -signal.SIGTERM


def test_a_command_that_is_not_there_ends_as_in_a_shell(tmp_path: Path) -> None:
    _, err, code = ended(wrap(tmp_path, NOWHERE, "no-such-command", patience=0))
    assert code == 127
    assert b"no-such-command: No such file or directory" in err
