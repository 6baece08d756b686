"""Login against a real identity provider: Chromium with PKCE, the device flow of the command line, refresh, expiry, new
keys, a provider that is away, revocation on a second node, and the way from docs/howto/login.md to a first login.

Two servers on one PostgreSQL; a cookie of 127.0.0.1 is sent to both, whatever their ports.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import stat
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import distribution, requires
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from tests.acceptance.server import DEADLINE, Server, horae, rest
from tests.certificates import make_certificate
from tests.engines.conftest import need_packages
from tests.engines.oidc_server import USERS, OidcServer, install

pytestmark = pytest.mark.xdist_group("oidc")
WITHIN = 5.0  # seconds after which no node believes what was revoked
LIMIT = 60  # seconds of a session, the least that the setting takes
LINK = "Log in with your organisation's account"
MANUAL = Path(__file__).parents[2] / "docs" / "howto" / "login.md"
MOST_LINES = 10  # to type, from nothing to a login


@pytest.fixture(scope="module")
def provider_files(tmp_path_factory: pytest.TempPathFactory, need: Callable[..., None]) -> Path:
    need("node", "npm", "chromium")
    need_packages("playwright")
    directory = tmp_path_factory.mktemp("provider")
    install(directory)
    return directory


@dataclass
class Place:
    provider: OidcServer
    nodes: list[Server]
    chromium: Any

    def browser(self) -> Any:
        """Return a page of a browser of its own."""
        page = self.chromium.new_context(ignore_https_errors=True).new_page()
        page.set_default_timeout(60_000)
        return page

    def log_in(self, page: Any, user: str, path: str = "/login", node: int = 0, link: str = LINK) -> None:
        page.goto(self.nodes[node].url + path)
        page.get_by_role("link", name=link).click()
        page.fill("input[name=login]", user)
        page.fill("input[name=password]", "any")
        page.click("button[type=submit]")
        page.get_by_role("button", name="Continue").click()
        page.wait_for_url(lambda url: str(url).startswith(self.nodes[node].url))

    def me(self, page: Any, node: int = 0) -> Any:
        """Return who a browser is; None for a stranger."""
        answer = page.context.request.get(f"{self.nodes[node].url}/v1/me")
        return answer.json() if answer.ok else None

    def ask(self, page: Any, method: str, path: str, body: Any = None, node: int = 0) -> Any:
        """As a page of this node asks."""
        url = self.nodes[node].url
        return page.context.request.fetch(url + path, method=method, data=body, headers={"origin": url})


@pytest.fixture
def chromium(provider_files: Path) -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        args = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=args)
        yield browser
        browser.close()


@pytest.fixture
def place(
    provider_files: Path, postgres_url: str, tmp_path: Path, chromium: Any, request: pytest.FixtureRequest
) -> Iterator[Place]:
    """Two nodes; a test may ask for more of their settings."""
    (tmp_path / "secret").write_text("hush\n")
    directories = [tmp_path / name for name in ("one", "two")]
    nodes = []
    for directory in directories:
        directory.mkdir()
        flags = ["--database", postgres_url, "--secret-key-file", str(tmp_path / "secrets.key"), "--require-token"]
        flags += ["--oidc-client-id", "horae", "--oidc-client-secret-file", str(tmp_path / "secret")]
        flags += ["--oidc-scopes", "openid,profile,email,groups,offline_access", *getattr(request, "param", ())]
        nodes.append(Server(directory, *flags, "--oidc-roles", "admins=*:admin,viewers=viewer"))
    provider = OidcServer(provider_files, [f"{node.url}/login/callback" for node in nodes])
    provider.start()
    try:
        for node in nodes:
            node._flags += ("--oidc-issuer", provider.issuer)
            node.start()
        yield Place(provider, nodes, chromium)
    finally:
        provider.stop()
        for node in nodes:
            if node.process is not None:
                node.stop()


def wait_until(condition: Callable[[], Any], what: str) -> Any:
    began = time.monotonic()
    while time.monotonic() < began + DEADLINE:
        if found := condition():
            return found
        rest(began)
    raise AssertionError(f"waited in vain for {what}")


def seconds_accepted(is_accepted: Callable[[], Any], what: str) -> float:
    """Wait until it is not; return when it was asked for the last time with success, in seconds from now: however long
    an answer took."""
    began = accepted = time.monotonic()

    def is_refused() -> bool:
        nonlocal accepted
        asked = time.monotonic()
        if not is_accepted():
            return True
        accepted = asked
        return False

    wait_until(is_refused, what)
    return accepted - began


def test_a_browser_logs_in_with_pkce_and_comes_to_the_page_it_wanted(place: Place) -> None:
    page, asked = place.browser(), []
    page.on("request", lambda request: asked.append(request.url))
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)

    place.log_in(page, "alice", "/docs")

    assert page.url == f"{place.nodes[0].url}/docs"
    assert "alice" in page.inner_text("#who")
    found = next(url for url in asked if "/auth?" in url)
    query = {name: values[0] for name, values in parse_qs(urlsplit(found).query).items()}
    assert (query["response_type"], query["code_challenge_method"]) == ("code", "S256")
    assert len(query["code_challenge"]) == 43
    assert query["state"] != query["nonce"]
    assert query["redirect_uri"] == f"{place.nodes[0].url}/login/callback"
    assert place.me(page)["role"] == "admin"
    assert place.me(page, 1) == place.me(page)
    assert re.fullmatch(
        "horae-look=[a-zA-Z./_-]+", page.evaluate("document.cookie")
    )  # of the session, scripts see none
    refused_by_policy = [each for each in complaints if "Content Security Policy" in each and "127.0.0.1" not in each]
    assert refused_by_policy == []
    page.locator("#who summary").click()
    page.get_by_role("button", name="Log out").click()
    page.wait_for_url("**/login")
    assert place.me(page) is None


def test_groups_give_roles_and_who_has_none_is_told_what_to_do(place: Place) -> None:
    bob, carol = place.browser(), place.browser()
    place.log_in(bob, "bob")
    assert (place.me(bob)["role"], place.me(bob)["org"]) == ("viewer", 1)
    refused = bob.context.request.post(
        f"{place.nodes[0].url}/v1/jobs", data={"name": "x", "steps": []}, headers={"origin": place.nodes[0].url}
    )
    assert (refused.status, refused.json()["code"]) == (403, "E_ROLE")
    place.log_in(carol, "carol")
    assert "E_NO_MEMBER" in carol.content()
    assert "horae orgs add default carol" in carol.content().lower()
    assert place.me(carol) is None


def test_a_session_is_renewed_with_new_claims_and_ends_when_the_provider_says_no(place: Place) -> None:
    page = place.browser()
    place.log_in(page, "bob")
    first = place.me(page)
    assert first["role"] == "viewer"

    place.provider.set_users({**USERS, "bob": {**USERS["bob"], "groups": ["admins"]}})
    wait_until(lambda: place.me(page)["role"] == "admin", "the new role")
    assert place.me(page)["via"] == first["via"]

    place.provider.set_users({name: claims for name, claims in USERS.items() if name != "bob"})
    wait_until(lambda: place.me(page) is None and place.me(page, 1) is None, "the end of the session")


def test_groups_that_the_provider_tells_only_when_asked_give_roles_and_are_followed(place: Place) -> None:
    place.provider.stop()
    place.provider.tells_when_asked = True
    place.provider.start()
    page = place.browser()
    place.log_in(page, "bob")
    assert (place.me(page)["name"], place.me(page)["role"]) == ("bob", "viewer")
    admin = place.browser()
    place.log_in(admin, "alice", node=1)
    users = {each["name"]: each for each in place.ask(admin, "GET", "/v1/users", node=1).json()["items"]}
    assert users["bob"]["email"] == "bob@example.org"

    place.provider.set_users({**USERS, "bob": {**USERS["bob"], "groups": ["admins"]}})
    wait_until(lambda: place.me(page)["role"] == "admin", "the new role")


def test_while_the_provider_is_away_sessions_and_tokens_go_on_and_logins_are_told(place: Place) -> None:
    page, other = place.browser(), place.browser()
    place.log_in(page, "alice")
    answer = page.context.request.post(
        f"{place.nodes[0].url}/v1/tokens", data={"name": "ci"}, headers={"origin": place.nodes[0].url}
    )
    bearer = {"authorization": f"Bearer {answer.json()['token']}"}
    place.provider.stop()

    began = time.monotonic()
    wait_until(lambda: time.monotonic() > began + 12 and place.me(page), "a look after the renewal was due")
    assert place.me(page)["name"] == "alice"
    assert httpx.get(f"{place.nodes[1].url}/v1/me", headers=bearer).status_code == 200
    other.goto(f"{place.nodes[1].url}/login")  # which has not looked for the provider before
    other.get_by_role("link", name="Log in with your organisation's account").click()
    other.get_by_text("E_IDP").wait_for()


def test_new_keys_of_the_provider_are_found(place: Place) -> None:
    page = place.browser()
    place.log_in(page, "alice")
    place.provider.stop()
    place.provider.rotate_keys()
    place.provider.start()

    def comes_in() -> bool:
        fresh = place.browser()
        place.log_in(fresh, "bob")
        came = place.me(fresh)
        fresh.context.close()
        return came is not None and came["name"] == "bob"

    wait_until(comes_in, "a login by the new keys")  # they are looked for once in half a minute


def test_what_is_revoked_on_one_node_is_refused_by_the_other_within_seconds(place: Place) -> None:
    admin, bob = place.browser(), place.browser()
    place.log_in(admin, "alice")
    place.log_in(bob, "bob")
    assert place.me(bob, 0)
    assert place.me(bob, 1)
    done = admin.context.request.post(
        f"{place.nodes[0].url}/v1/users/bob/disable", headers={"origin": place.nodes[0].url}
    )
    assert done.ok, done.text()
    assert place.me(bob, 0) is None
    assert seconds_accepted(lambda: place.me(bob, 1), "the other node to refuse") < WITHIN
    again = place.browser()
    place.log_in(again, "bob")
    assert "E_DISABLED" in again.content()


def test_a_token_a_session_a_member_and_a_grant_end_on_the_other_node_within_seconds_too(place: Place) -> None:
    admin, bob, elsewhere, carol = (place.browser() for _ in range(4))
    for page, user in ((admin, "alice"), (bob, "bob"), (elsewhere, "bob"), (carol, "carol")):
        place.log_in(page, user)
    assert "E_NO_MEMBER" in carol.content()
    assert place.ask(admin, "PUT", "/v1/orgs/default/members/carol", {"role": "viewer"}).ok
    carol = place.browser()
    place.log_in(carol, "carol")
    token = place.ask(admin, "POST", "/v1/tokens", {"name": "ci"}).json()
    job = {"name": "nightly", "handler": "horae.handlers:noop"}
    job_id = place.ask(admin, "POST", "/v1/jobs", job).json()["jobs"][0]["id"]
    grant = place.ask(admin, "POST", "/v1/grants", {"who": "bob", "role": "operator", "job": job_id}).json()
    bearer = {"authorization": f"Bearer {token['token']}"}
    session = place.me(elsewhere)["via"].removeprefix("session ")
    cases: dict[str, tuple[Any, str, Callable[[int], bool]]] = {
        "token": (
            admin, f"/v1/tokens/{token['id']}",
            lambda node: httpx.get(f"{place.nodes[node].url}/v1/me", headers=bearer).status_code == 200,
        ),
        "session": (bob, f"/v1/sessions/{session}", lambda node: place.me(elsewhere, node) is not None),
        "member": (admin, "/v1/orgs/default/members/carol", lambda node: place.me(carol, node) is not None),
        "grant": (
            admin, f"/v1/grants/{grant['id']}",
            lambda node: place.ask(bob, "POST", f"/v1/jobs/{job_id}/pause", {}, node).status == 200,
        ),
    }  # fmt: skip
    for name, (who, path, is_good) in cases.items():
        assert is_good(0), name
        assert is_good(1), name
        taken = place.ask(who, "DELETE", path)
        assert taken.status == 204, (name, taken.text())
        lag = seconds_accepted(lambda is_good=is_good: is_good(1), f"the other node to refuse the {name}")
        assert lag < WITHIN, name
        assert not is_good(0), name
    assert place.me(bob, 1)["name"] == "bob"  # whose other session ended


@pytest.mark.parametrize("place", [("--session-limit", f"{LIMIT}s")], indirect=True, ids=["limit"])
def test_a_session_past_its_limit_is_refused_by_every_node_however_it_was_used(place: Place) -> None:
    page, began = place.browser(), time.monotonic()
    place.log_in(page, "bob")
    kept = next(it["value"] for it in page.context.cookies() if it["name"] == "horae")
    cookie = {"cookie": f"horae={kept}"}  # which a browser forgets by itself

    def comes_in(node: int) -> bool:
        return httpx.get(f"{place.nodes[node].url}/v1/me", headers=cookie).status_code == 200

    assert comes_in(0)
    assert comes_in(1)
    assert seconds_accepted(lambda: comes_in(0) | comes_in(1), "the end of the session") <= LIMIT
    assert time.monotonic() - began >= LIMIT  # nothing else ended it: the provider goes on vouching
    page.goto(f"{place.nodes[1].url}/jobs")
    page.get_by_role("link", name=LINK).wait_for()


def test_the_command_line_logs_in_by_a_code_and_keeps_a_token_for_its_owner_only(place: Place, tmp_path: Path) -> None:
    url = place.nodes[0].url
    environment = {k: v for k, v in os.environ.items() if not k.startswith("HORAE_")} | {
        "XDG_CONFIG_HOME": str(tmp_path)
    }

    def run(*args: str) -> subprocess.CompletedProcess[str]:
        argv = [horae(), "--server", url, *args]
        return subprocess.run(argv, capture_output=True, text=True, env=environment, timeout=DEADLINE)

    assert run("whoami").returncode == 3
    argv = [horae(), "--server", url, "login"]
    login = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        assert login.stderr is not None
        line = login.stderr.readline()
        shown = re.search(r"open (\S+) and type the code ([A-Z]{4}-[A-Z]{4})", line)
        assert shown is not None, line
        assert shown[1] == f"{url}/device"
        page = place.browser()
        place.log_in(page, "bob", "/device")
        page.fill("input[name=code]", shown[2])
        page.get_by_role("button", name="Go on").click()
        page.get_by_role("button", name="Approve").click()
        page.get_by_text("was approved").wait_for()
        out, errors = login.communicate(timeout=DEADLINE)
    finally:
        login.kill()
        login.wait()
    assert (login.returncode, "as bob (viewer)" in out) == (0, True), out + errors
    kept = tmp_path / "horae" / "credentials.json"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert json.loads(run("--json", "whoami").stdout)["name"] == "bob"
    assert run("logout").returncode == 0
    assert run("whoami").returncode == 3
    assert json.loads(kept.read_text()) == {}


class TypedServer(Server):
    """One that is started as the documentation says, in the directory of its settings; on ports that are free."""

    def launch(self, *program: str) -> None:
        given = {"HORAE_PORT": self.port, "HORAE_GRPC_PORT": self.grpc_port, "HORAE_DATA": self.directory / "data"}
        environment = {k: v for k, v in os.environ.items() if not k.startswith("HORAE_")}
        environment |= {name: str(value) for name, value in given.items()}
        with self._log.open("ab") as log:
            argv = [horae(), *program[1:]]
            self.process = subprocess.Popen(argv, stdout=log, stderr=log, cwd=self.directory, env=environment)


def put_in(text: str, values: dict[str, str]) -> str:
    """Return it with what is one's own, all of which must be in it."""
    for example, value in values.items():
        assert example in text, f"{example} in {text}"
        text = text.replace(example, value)
    return text


def found_in(manual: str, pattern: str) -> str:
    match = re.search(pattern, manual, re.DOTALL)
    assert match is not None, pattern
    return match[1]


def test_a_new_user_comes_in_with_what_the_documentation_says_to_type(
    provider_files: Path, chromium: Any, tmp_path: Path
) -> None:
    manual = MANUAL.read_text().partition("\n## Single sign-on\n")[2].partition("\n## ")[0]
    install, start = found_in(manual, "`(pip install [^`]+)`"), found_in(manual, "`(horae up [^`]+)`")
    settings = [*found_in(manual, "```toml\n(.*?)```").splitlines(), found_in(manual, "`(oidc_scopes = [^`]+)`")]
    typed = [install, "the secret, into a file", *settings, start]
    assert len(typed) <= MOST_LINES, typed
    extra = found_in(install, r"'horae\[(\w+)\]'")
    wanted = [each for each in requires("horae") or [] if re.search(f"extra == [\"']{extra}[\"']", each)]
    assert wanted, extra
    assert all(distribution(found_in(each, r"^([\w-]+)")) for each in wanted)

    certificate, key = make_certificate(tmp_path)
    server = TypedServer(tmp_path, ca=certificate)
    host = "https://horae.example.com:8080"
    redirect = put_in(found_in(manual, "redirect address `([^`]+)`"), {host: server.url})
    provider = OidcServer(provider_files, [redirect])
    provider.set_users({**USERS, "dave": {"preferred_username": "dave", "groups": ["horae-admins"]}})
    secret = tmp_path / "oidc.secret"
    secret.write_text("hush\n")
    secret.chmod(0o600)
    own = {host: server.url, "https://id.example.com": provider.issuer, "/etc/horae/oidc.secret": str(secret)}
    (tmp_path / "horae.toml").write_text(put_in("\n".join(settings), own))
    argv = shlex.split(put_in(start, {"server.pem": str(certificate), "server.key": str(key)}))
    provider.start()
    try:
        server.start(*argv)
        place = Place(provider, [server], chromium)
        dave, bob, link = place.browser(), place.browser(), found_in(manual, r"choose \*([^*]+)\*")
        place.log_in(dave, "dave", "/", link=link)
        place.log_in(bob, "bob", "/", link=link)
        found = {user: place.me(page) for user, page in (("dave", dave), ("bob", bob))}
        assert {user: it and it["role"] for user, it in found.items()} == {"dave": "admin", "bob": "viewer"}
    finally:
        provider.stop()
        if server.process is not None:
            server.stop()
