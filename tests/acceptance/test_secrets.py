"""Secrets on a real server: a canary goes in, and is found nowhere but in the hands of the job it is for."""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ..repositories import make_repository, serving
from .agent import AgentProcess
from .server import Server, horae

pytestmark = pytest.mark.slow
CANARY = "kaN4rien&vogel/7391-gelb"
OTHER = "zW3iter-Vogel-5507-blau"
PRINTED = base64.b64encode(f"user:{CANARY}".encode()).decode()

SHOW = """
printf %s "$BIRD" | wc -c
printf 'at 16 KiB: '; head -c 16370 /dev/zero | tr '\\0' x; printf '%s\\n' "$BIRD"
printf 'at 64 KiB: '; head -c 49150 /dev/zero | tr '\\0' y; printf '%s\\n' "$BIRD"
printf 'halved: '; printf %.9s "$BIRD"; sleep 1.5; printf '%s\\n' "${BIRD#?????????}"
printf 'user:%s' "$BIRD" | base64 -w0
echo; stat -c '%a %n' "$HORAE_SECRETS_DIR/keys/bird" | cut -c1-3
cmp "$HORAE_SECRETS_DIR/keys/bird" - <<END && echo same
$BIRD
END
echo "$BIRD" >&2
exit 3
"""
JOB = {
    "name": "canary",
    "run_once": True,
    "env": {"BIRD": {"secret": "BIRD"}},
    "files": {"keys/bird": {"secret": "BIRD_FILE"}},
    "steps": [{"name": "show", "run": SHOW}],
}
HANDLER = f"""
from horae import Context, handler

@handler
def sing(context: Context) -> dict[str, str]:
    bird = context.env["BIRD"]
    assert len(bird) == {len(CANARY)}
    print("bird", bird[:7], end="", flush=True)
    print(bird, flush=True)
    return {{"bird": bird}}

@handler
def fall(context: Context) -> None:
    raise ValueError("no such bird: " + context.env["BIRD"])
"""


def everything_below(place: Path) -> Iterator[bytes]:
    return (path.read_bytes() for path in place.rglob("*") if path.is_file())


def assert_hidden(text: str | bytes) -> None:
    shown = text.encode() if isinstance(text, str) else text
    for canary in (CANARY, OTHER, json.dumps(CANARY)[1:-1]):
        assert canary.encode() not in shown
        assert base64.b64encode(canary.encode()).rstrip(b"=")[:-1] not in shown
    assert PRINTED[8:-4].encode() not in shown


def set_canaries(server: Server) -> None:
    server.cli("secret", "set", "BIRD", input=f"{CANARY}\n")
    file = server.directory / "bird"
    file.write_text(f"{CANARY}\n")
    server.cli("secret", "set", "BIRD_FILE", "--from-file", str(file))
    file.unlink()


def started(server: Server, job: Any) -> Any:
    """Return the ended run of a job that runs once."""
    (made,) = server.submit(job)
    (run,) = server.wait_until(lambda: server.every("/v1/runs", job_id=made["id"]), "the run to be made")
    return server.ended(run["id"])


def test_S32_S34_a_canary_is_found_nowhere(server: Server):
    set_canaries(server)
    run = started(server, JOB)
    log = server.http.get(f"/v1/runs/{run['id']}/log", params={"limit": 1 << 20}).text

    assert (run["state"], run["exit_code"]) == ("failed", 3), log
    assert f"{len(CANARY)}\n" in log
    assert "x***\n" in log
    assert "y***\n" in log
    assert "halved: ka***\n" in log or "halved: ***\n" in log
    assert "400\nsame\n***\n" in log
    shown = [log]
    for arguments in (("secret", "list"), ("jobs",), ("jobs", "show", "canary"), ("runs",), ("logs", str(run["id"]))):
        shown += [server.cli(*arguments).stdout, server.cli("--json", *arguments).stdout]
    shown += [server.http.get(path).text for path in ("/v1/secrets", "/v1/jobs", "/v1/runs", "/v1/overview", "/")]
    for text in shown:
        assert_hidden(text)
    server.stop()
    for content in everything_below(server.directory):
        assert_hidden(content)


def test_handlers_get_values_and_what_they_say_is_hidden(tmp_path: Path):
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "birds.py").write_text(HANDLER)
    server = Server(tmp_path, "--jobs-directory", str(tmp_path / "jobs")).start()
    try:
        set_canaries(server)
        env = {"BIRD": {"secret": "BIRD"}}
        sung = started(server, {"name": "sing", "run_once": True, "handler": "birds:sing", "env": env})
        fell = started(server, {"name": "fall", "run_once": True, "handler": "birds:fall", "env": env})
        log = server.http.get(f"/v1/runs/{sung['id']}/log").text
        assert (sung["state"], sung["result"]) == ("succeeded", {"bird": "***"})
        assert log.endswith("***\n")
        assert "no such bird: ***" in fell["message"]
    finally:
        server.stop()
    for content in everything_below(tmp_path):
        assert_hidden(content)


def test_a_remote_agent_gets_values_and_keeps_them_off_its_disk(tmp_path: Path):
    server = Server(tmp_path, "--roles", "api,coordinator,scheduler", "--heartbeat-interval", "0.5").start()
    agent = AgentProcess(tmp_path, f"127.0.0.1:{server.grpc_port}", "far").start()
    try:
        agent.joined()
        set_canaries(server)
        run = started(server, JOB)
        log = server.http.get(f"/v1/runs/{run['id']}/log").text
        assert "400\nsame\n***\n" in log
        assert run["node"] == "far"
    finally:
        agent.stop()
        server.stop()
    for content in everything_below(tmp_path):
        assert_hidden(content)


@pytest.mark.long
def test_a_server_without_the_key_does_not_start_and_names_it(tmp_path: Path):
    server = Server(tmp_path).start()
    server.cli("secret", "set", "BIRD", input=OTHER)
    server.stop()
    key_file = tmp_path / "data" / "secrets.key"
    key = key_file.read_text()
    key_file.unlink()

    argv = [horae(), "up", "--port", str(server.port), "--grpc-port", str(server.grpc_port)]
    refused = subprocess.run([*argv, "--data", str(tmp_path / "data")], capture_output=True, text=True, timeout=60)

    assert refused.returncode == 2, refused.stderr
    assert "E_SECRET_KEY" in refused.stderr
    assert "is needed" in refused.stderr
    assert not key_file.exists()
    kept = tmp_path / "kept.key"
    kept.write_text(base64.b64encode(bytes(32)).decode() + "\n" + key)
    kept.chmod(0o600)
    again = Server(tmp_path, "--secret-key-file", str(kept)).start()
    again.cli("secret", "set", "NEW", input="x" * 10)
    again.stop()


def test_a_run_whose_secret_is_gone_fails_and_says_so(server: Server):
    run = started(server, JOB)

    assert (run["state"], run["reason"]) == ("failed", "error")
    assert "there is no secret BIRD: set it with `horae secret set BIRD`" in run["message"]


@pytest.mark.parametrize("given", ["named", "written"])
def test_a_checkout_is_opened_by_a_password_that_is_found_nowhere(
    server: Server, tmp_path_factory: pytest.TempPathFactory, given: str
):
    root = tmp_path_factory.mktemp("served")
    make_repository(root / "a.git", {"hello": "from afar\n"})
    set_canaries(server)
    with serving(root, CANARY) as site:
        password = {"secret": "BIRD"} if given == "named" else CANARY
        checkout = {"url": site.url("a.git"), "username": "ann", "password": password}
        run = started(server, {"name": "far", "run_once": True, "checkout": checkout, "steps": [{"run": "cat hello"}]})
    log = server.http.get(f"/v1/runs/{run['id']}/log").text

    assert run["state"] == "succeeded", log
    assert "from afar" in log
    shown = [
        log,
        *(server.cli(*words).stdout for words in (("jobs", "show", "far"), ("--json", "jobs", "show", "far"))),
    ]
    shown += [server.http.get(path).text for path in ("/v1/jobs", f"/v1/jobs/{run['job_id']}", "/")]
    for text in shown:
        assert_hidden(text)
    server.stop()
    for content in everything_below(server.directory):
        assert_hidden(content)


@pytest.mark.long
def test_a_rotation_that_is_killed_is_gone_on_with(server: Server):
    """Jobs with passwords of their own, and a secret; the key file has both keys while it is under way."""
    set_canaries(server)
    spec = {"source": {"url": "https://g.example/a", "username": "ann", "password": CANARY}, "main_file": "a.py"}
    for batch in range(5):
        server.submit(*({"name": f"j{batch}-{n}", "kind": "git_python", "spec": spec} for n in range(100)))
    key_file = server.directory / "data" / "secrets.key"
    old = key_file.read_text().strip()
    argv = [horae(), "--server", server.url, "secret", "rotate"]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as rotating:
        server.wait_until(lambda: len(key_file.read_text().split()) == 2, "a second key")
        server.kill()
        rotating.wait(60)
    new, kept = key_file.read_text().split()
    assert kept == old != new

    server.start()
    done = server.cli_json("secret", "rotate")
    assert key_file.read_text().split() == [new]
    assert 0 < done["resealed"] <= 500 + 2 + 1
    assert (done["unopened"], done["old"]) == (0, [])
    run = started(server, JOB)
    assert "400\nsame\n***\n" in server.http.get(f"/v1/runs/{run['id']}/log", params={"limit": 1 << 20}).text
    assert server.get("/v1/jobs", limit=1)["items"]
