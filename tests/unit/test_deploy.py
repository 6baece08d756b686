"""The files of examples/deploy: what they start is ours as it is, and what they say to others those understand."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from horae.settings import SETTINGS
from horae.wire.nats.broker import servers_of

from ..certificates import make_certificate
from ..test_docs import ROOT, is_command

DEPLOY = ROOT / "examples" / "deploy"
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
SERVICES: dict[str, Any] = COMPOSE["services"]
BIN = Path(sys.executable).parent
VARIABLES = {f"HORAE_{setting.name.upper()}" for setting in SETTINGS}


def ours(service: Any) -> list[list[str]]:
    """Return the commands of Horae that a service runs."""
    text = service["command"] if isinstance(service["command"], str) else "\n".join(service["command"])
    lines = text.replace("\\\n", " ").replace("$$", "$").splitlines()
    return [shlex.split(found[1]) for line in lines if (found := re.match(r"(?:exec )?(horae .+)", line))]


def test_the_compose_file_has_the_cluster_that_the_page_promises():
    assert [name for name in SERVICES if re.fullmatch(r"n\d", name)] == ["n0", "n1", "n2"]
    assert [name for name in SERVICES if name.startswith("nats-")] == ["nats-1", "nats-2", "nats-3"]
    assert SERVICES["agent"]["deploy"]["replicas"] == 10
    assert len(servers_of(SERVICES["n0"]["environment"]["HORAE_QUEUE"])) == 3


@pytest.mark.parametrize("name", ["setup", "n0", "n1", "n2", "agent"])
def test_a_service_runs_commands_and_settings_that_there_are(name: str):
    commands = ours(SERVICES[name])

    assert commands
    assert [words for words in commands if not is_command(words)] == []
    given = {variable for variable in SERVICES[name]["environment"] if variable.startswith("HORAE_")}
    assert given <= VARIABLES
    assert given


def test_S47_agents_are_given_neither_the_database_nor_the_key_of_secrets():
    assert not {"HORAE_DATABASE", "HORAE_SECRET_KEY_FILE", "HORAE_QUEUE"} & set(SERVICES["agent"]["environment"])


def test_volumes_and_dependencies_of_every_service_are_there():
    for service in SERVICES.values():
        assert {volume.split(":")[0] for volume in service["volumes"]} <= set(COMPOSE["volumes"])
        assert set(service.get("depends_on", ())) <= set(SERVICES)


UNITS = sorted(DEPLOY.glob("*.service"))


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_a_unit_starts_a_command_that_there_is(unit: Path):
    (line,) = re.findall(r"^ExecStart=(.+)$", unit.read_text(), re.M)

    words = shlex.split(line)
    assert words[0] == "/opt/horae/.venv/bin/horae"
    assert is_command(["horae", *words[1:]])


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_systemd_understands_a_unit(unit: Path, tmp_path: Path):
    if shutil.which("systemd-analyze") is None:
        pytest.skip("there is no systemd here")
    here = tmp_path / unit.name.replace("@.", "@1.")
    text = unit.read_text().replace("/opt/horae/.venv/bin/horae", str(BIN / "horae"))
    here.write_text(text.replace("User=horae", "User=root"))

    done = subprocess.run(["systemd-analyze", "verify", str(here)], capture_output=True, text=True, timeout=60)

    complaints = [line for line in done.stderr.splitlines() if unit.name.split("@")[0].split(".")[0] in line]
    assert (done.returncode, complaints) == (0, [])


def check_nats(*argv: str) -> None:
    passwords = {"NODE_PASSWORD": "one", "AGENT_PASSWORD": "two"}
    done = subprocess.run(
        [str(BIN / "nats-server"), *argv, "-t"], capture_output=True, text=True, timeout=60,
        env={**os.environ, **passwords},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr + done.stdout


def test_nats_understands_its_settings_and_flags(tmp_path: Path):
    cert, key = make_certificate(tmp_path)
    conf = (DEPLOY / "nats.conf").read_text()
    conf = conf.replace("/etc/nats/server.pem", str(cert)).replace("/etc/nats/server.key", str(key))
    (tmp_path / "nats.conf").write_text(conf)
    check_nats("-c", str(tmp_path / "nats.conf"))

    (tmp_path / "flags.conf").write_text("port: 4222\n")  # flags alone are not tried
    for name in ("nats-1", "nats-2", "nats-3"):
        flags = SERVICES[name]["command"].replace("${NATS_PASSWORD:?}", "x")
        flags = flags.replace("/shared/server.pem", str(cert)).replace("/shared/server.key", str(key))
        assert f"--server_name {name} " in flags
        check_nats("-c", str(tmp_path / "flags.conf"), *shlex.split(flags))


def test_S46_agents_may_do_over_nats_what_the_page_says_and_no_more():
    page = (ROOT / "docs" / "howto" / "nats.md").read_text()
    conf = (DEPLOY / "nats.conf").read_text()
    (row,) = re.findall(r"^\| agent `NAME` \| (.+) \| (.+) \|$", page, re.M)
    for verb, cell in zip(("publish", "subscribe"), row, strict=True):
        (line,) = re.findall(rf"{verb}: \[(.+)\]", conf)
        named = [subject.replace(".NAME", ".*") for subject in re.findall(r"`([^`]+)`", cell)]
        assert named == re.findall(r'"([^"]+)"', line)
