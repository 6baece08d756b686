"""A real identity provider on this machine: oidc-provider from npm, with users and keys of the test's own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
from joserfc import jwk

from tests.ports import free_port

DEADLINE = 180.0  # seconds
PACKAGE = "oidc-provider@9.13.3"
PROGRAM = Path(__file__).with_name("oidc_provider.mjs")

USERS: dict[str, Any] = {
    "alice": {"preferred_username": "alice", "email": "alice@example.org", "groups": ["admins"]},
    "bob": {"preferred_username": "bob", "email": "bob@example.org", "groups": ["viewers"]},
    "carol": {"preferred_username": "carol", "email": "carol@example.org", "groups": []},
}


def install(directory: Path) -> None:
    """The package is fetched as npm is set up; PROGRAM finds it beside itself."""
    done = subprocess.run(
        ["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(directory), PACKAGE],
        capture_output=True, text=True, timeout=DEADLINE,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    shutil.copy(PROGRAM, directory / PROGRAM.name)


class OidcServer:
    def __init__(self, directory: Path, redirects: Sequence[str]) -> None:
        self._directory, self._redirects = directory, redirects
        self.port = free_port()
        self.issuer = f"http://127.0.0.1:{self.port}"
        self.tells_when_asked = False  # from the next start on: claims of users are at UserInfo only
        self._process: subprocess.Popen[bytes] | None = None
        self.set_users(USERS)
        self.rotate_keys()

    def set_users(self, users: dict[str, Any]) -> None:
        fresh = self._directory / "users.new"
        fresh.write_text(json.dumps(users))
        fresh.replace(self._directory / "users.json")

    def rotate_keys(self) -> None:
        """For the next start."""
        key = jwk.RSAKey.generate_key(2048, {"use": "sig", "alg": "RS256"}, private=True)
        key.ensure_kid()
        (self._directory / "keys.json").write_text(json.dumps([key.as_dict(private=True)]))

    def start(self) -> None:
        log = self._directory / "provider.log"
        files = [str(self._directory / name) for name in ("users.json", "keys.json")]
        argv = ["node", str(self._directory / PROGRAM.name), str(self.port), *files, *self._redirects]
        environment = {**os.environ, "CLAIMS": "userinfo" if self.tells_when_asked else "id_token"}
        with log.open("ab") as written:
            self._process = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=written, stderr=written, env=environment
            )
        began = time.monotonic()
        while not self._answers():
            assert self._process.poll() is None, log.read_text()
            assert time.monotonic() < began + DEADLINE, log.read_text()
            time.sleep(0.1)

    def _answers(self) -> bool:
        try:
            return httpx.get(f"{self.issuer}/.well-known/openid-configuration").status_code == 200
        except httpx.TransportError:
            return False

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
