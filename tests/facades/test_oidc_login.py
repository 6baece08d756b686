"""Logins by a provider that lies, is slow, is away or changes its keys: a real HTTP server that says what a test wants.
tests/engines/test_oidc.py logs in by a real provider."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from joserfc import jwk, jwt

from horae.contracts import CONTRACTS
from horae.core.audit import AuditFilter
from horae.core.identity import EVERYWHERE, LOCAL
from horae.core.model import SECOND
from horae.core.roles import Role
from horae.oidc import fetching
from horae.oidc.provider import COOLDOWN, KEYS_SECONDS, Client, OidcProvider
from horae.service.access.logins import Logins, RoleRule
from horae.service.access.sessions import PROVEN_SECONDS
from horae.web import app as web
from tests.facades.test_native import problem_of
from tests.facades.world import BOTH, World

FAR = "https://10.0.0.1:8443"
PAGE = {"accept": "text/html"}
RULES = [RoleRule("admins", "*", Role.ADMIN), RoleRule("data", "default", Role.EDITOR)]
COOKIE = "__Host-horae"


def b64(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def rsa(kid: str = "k1", **more: str) -> jwk.RSAKey:
    return jwk.RSAKey.generate_key(2048, {"kid": kid, "use": "sig", **more})


KEY, OTHER_KEY = rsa(), rsa("k2")


class Issuer:
    """Discovery, keys and tokens, as the test makes them; counts what it is asked."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.issuer = ""
        self.keys: list[Any] = [KEY.as_dict(private=False)]
        self.claims: dict[str, Any] = {}
        self.subject, self.groups, self.email, self.name = "s1", ["data"], "ann@example.org", "ann"
        self.sign: Callable[[dict[str, Any]], str] = lambda claims: jwt.encode(
            {"alg": "RS256", "kid": "k1"}, claims, KEY
        )
        self.nonce = ""
        self.info: dict[str, Any] = {}  # what UserInfo tells
        self.asked: list[str] = []
        self.bearers: list[str] = []
        self.forms: list[dict[str, str]] = []
        self.answers: dict[str, tuple[int, bytes]] = {}  # what to say in place of the truth, by path
        self.more: dict[str, Any] = {}  # of discovery
        self.grant: dict[str, Any] = {}
        self.slow: set[str] = set()

    async def serve(self) -> asyncio.Server:
        server = await asyncio.start_server(self._answer, "127.0.0.1", 0)
        self.issuer = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        return server

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            length = next((int(line[15:]) for line in head.lower().split("\r\n") if line[:15] == "content-length:"), 0)
            body = await reader.readexactly(length)
            path = head.split(" ")[1]
            self.asked.append(path)
            self.bearers += [
                line[22:] for line in head.split("\r\n") if line.lower().startswith("authorization: bearer ")
            ]
            if path in self.slow:
                await asyncio.sleep(3600)
            status, content = self.answers.get(path) or (200, json.dumps(self._document(path, body)).encode())
            writer.write(b"HTTP/1.1 %d X\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % (status, len(content)))
            writer.write(content)
            await writer.drain()
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    def _document(self, path: str, body: bytes) -> Any:
        if path == "/jwks":
            return {"keys": self.keys}
        if path == "/userinfo":
            return {"sub": self.subject, **self.info}
        if path == "/token":
            self.forms.append({name: values[0] for name, values in parse_qs(body.decode()).items()})
            return {"id_token": self.sign(self.said()), "access_token": "x", "expires_in": 60, **self.grant}
        places = {name: f"{self.issuer}{path}" for name, path in _PLACES.items()}
        return {"issuer": self.issuer, **places, **self.more}

    def said(self) -> dict[str, Any]:
        now = self._world.clock.now() // SECOND
        claims = {
            "iss": self.issuer, "sub": self.subject, "aud": "horae", "exp": now + 60, "iat": now, "nonce": self.nonce,
            "groups": self.groups, "email": self.email, "preferred_username": self.name, **self.claims,
        }  # fmt: skip
        return {name: value for name, value in claims.items() if value is not None}


_PLACES = {"authorization_endpoint": "/auth", "token_endpoint": "/token", "jwks_uri": "/jwks"}


@pytest.fixture
async def issuer(world: World) -> AsyncIterator[Issuer]:
    made = Issuer(world)
    server = await made.serve()
    yield made
    server.close()


def connect(world: World, issuer: Issuer, **client: Any) -> OidcProvider:
    known = Client(issuer.issuer, "horae", "hush", f"{FAR}/login/callback")
    provider = OidcProvider(replace(known, **client), world.clock)
    world.logins.provider, world.logins._rules = provider, RULES
    return provider


@pytest.fixture
async def far(world: World, issuer: Issuer) -> AsyncIterator[httpx.AsyncClient]:
    provider = connect(world, issuer)
    gate = web.create_app(world.services, CONTRACTS, version="1", loopback_only=False)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(gate), base_url=FAR, headers={"origin": FAR}) as browser:
        yield browser
    await provider.close()


async def begin(far: httpx.AsyncClient, issuer: Issuer, path: str = "/login/sso") -> dict[str, str]:
    """Return what a provider is asked, and remember the nonce as it does."""
    answer = await far.get(path)
    assert answer.status_code == 303, answer.text
    query = {name: values[0] for name, values in parse_qs(urlsplit(answer.headers["location"]).query).items()}
    issuer.nonce = query["nonce"]
    return query


async def come_back(far: httpx.AsyncClient, state: str, **sent: str) -> httpx.Response:
    return await far.get("/login/callback", params={"code": "c1", "state": state, **sent})


async def log_in(far: httpx.AsyncClient, issuer: Issuer) -> httpx.Response:
    return await come_back(far, (await begin(far, issuer))["state"])


# ── as it should be ──


@BOTH
async def test_a_code_with_pkce_state_and_nonce_opens_a_session(
    far: httpx.AsyncClient, issuer: Issuer, world: World
) -> None:
    asked = await begin(far, issuer, "/login/sso?next=/docs")
    assert {name: asked[name] for name in ("response_type", "client_id", "scope", "code_challenge_method")} == {
        "response_type": "code", "client_id": "horae", "scope": "openid profile email", "code_challenge_method": "S256",
    }  # fmt: skip
    answer = await come_back(far, asked["state"], session_state="what providers add")
    assert (answer.status_code, answer.headers["location"]) == (303, "/docs")
    verifier = issuer.forms[0]["code_verifier"]
    assert b64(hashlib.sha256(verifier.encode()).digest()) == asked["code_challenge"]
    me = (await far.get("/v1/me")).json()
    assert (me["name"], me["role"], me["org"]) == ("ann", "editor", 1)
    assert (await world.store.list_sessions(me["user_id"]))[0].issuer == issuer.issuer


async def test_F31_the_cookie_of_a_login_that_began_has_all_flags_and_goes_with_it(
    far: httpx.AsyncClient, issuer: Issuer
) -> None:
    sent = (await far.get("/login/sso")).headers["set-cookie"]
    assert sent.startswith("__Host-horae-")
    assert {"HttpOnly", "SameSite=Lax", "Secure", "Path=/"} <= set(sent.split("; "))
    await log_in(far, issuer)
    begun = [name for name in far.cookies if name.startswith("__Host-horae-")]
    assert len(begun) == 1  # that of the first, which nobody came back from


async def test_two_logins_may_begin_in_one_browser(far: httpx.AsyncClient, issuer: Issuer) -> None:
    first = await begin(far, issuer)
    second = await begin(far, issuer)
    assert (await come_back(far, second["state"])).status_code == 303
    issuer.nonce = first["nonce"]
    assert (await come_back(far, first["state"])).status_code == 303


async def test_roles_follow_the_groups_of_each_login(far: httpx.AsyncClient, issuer: Issuer, world: World) -> None:
    issuer.groups = ["admins"]
    await log_in(far, issuer)
    assert (await far.get("/v1/me")).json()["role"] == "admin"
    issuer.groups = []
    refused = await log_in(far, issuer)
    problem_of(refused, 403, "E_NO_MEMBER")
    await world.services.users.add_member(1, "ann", Role.VIEWER, LOCAL)
    assert (await log_in(far, issuer)).status_code == 303
    assert (await far.get("/v1/me")).json()["role"] == "viewer"


# ── what the provider tells only when it is asked ──


@pytest.fixture
def terse(issuer: Issuer) -> Issuer:
    """A provider whose ID token says neither groups nor mail: they are asked for with the access token."""
    issuer.more = {"userinfo_endpoint": f"{issuer.issuer}/userinfo"}
    issuer.info = {"groups": issuer.groups, "email": issuer.email, "preferred_username": issuer.name}
    issuer.claims = dict.fromkeys(("groups", "email", "preferred_username"))
    issuer.grant = {"access_token": "access-one"}
    return issuer


@BOTH
async def test_groups_mail_and_name_that_only_userinfo_tells_count(
    far: httpx.AsyncClient, terse: Issuer, world: World
) -> None:
    assert (await log_in(far, terse)).status_code == 303
    me = (await far.get("/v1/me")).json()
    assert (me["name"], me["role"]) == ("ann", "editor")
    (user,) = await world.store.list_users("", 10)
    assert user.email == "ann@example.org"
    assert terse.bearers == ["access-one"]


@pytest.mark.parametrize("missing", ["groups", "email"])
async def test_what_the_id_token_says_counts_before_userinfo(
    far: httpx.AsyncClient, terse: Issuer, world: World, missing: str
) -> None:
    terse.claims = {missing: None}
    terse.info = {"groups": ["admins"], "email": "told@example.org", "preferred_username": "told"}
    await log_in(far, terse)
    me = (await far.get("/v1/me")).json()
    assert (me["name"], me["role"]) == ("ann", "admin" if missing == "groups" else "editor")
    (user,) = await world.store.list_users("", 10)
    assert user.email == ("told@example.org" if missing == "email" else "ann@example.org")


async def test_nobody_asks_userinfo_where_the_id_token_says_all_or_no_mail_is_wanted(
    far: httpx.AsyncClient, terse: Issuer, world: World
) -> None:
    terse.claims = {}
    assert (await log_in(far, terse)).status_code == 303
    terse.claims = {"email": None}
    provider = connect(world, terse, scopes=("openid", "groups"))
    assert (await log_in(far, terse)).status_code == 303
    await provider.close()
    assert "/userinfo" not in terse.asked


async def test_groups_are_found_by_a_path_in_userinfo_too(far: httpx.AsyncClient, terse: Issuer, world: World) -> None:
    provider = connect(world, terse, groups_claim="realm_access.roles")
    terse.claims["realm_access"] = {"of": "another kind"}
    terse.info["realm_access"] = {"roles": ["admins"]}
    await log_in(far, terse)
    assert (await far.get("/v1/me")).json()["role"] == "admin"
    await provider.close()


@pytest.mark.parametrize("subject", ["s2", "", None, 7, ["s1"]], ids=str)
async def test_S36_what_userinfo_tells_of_another_user_lets_nobody_in(
    far: httpx.AsyncClient, terse: Issuer, world: World, subject: object
) -> None:
    terse.info = {**terse.info, "sub": subject}
    problem_of(await log_in(far, terse), 401, "E_ID_TOKEN")
    assert COOKIE not in far.cookies
    assert await world.store.list_users("", 10) == []


async def test_S36_userinfo_does_not_say_who_it_is_nor_when_that_was_proven(
    far: httpx.AsyncClient, terse: Issuer, world: World
) -> None:
    now = world.clock.now() // SECOND
    terse.info = {**terse.info, "groups": ["admins"], "iss": "https://evil.example", "auth_time": now}
    assert (await log_in(far, terse)).status_code == 303
    assert await world.store.find_identity(terse.issuer, "s1") is not None
    problem_of(await acts(far), 401, "E_REAUTH")


@pytest.mark.parametrize("status", [401, 403])
async def test_who_is_refused_by_userinfo_is_not_let_in(far: httpx.AsyncClient, terse: Issuer, status: int) -> None:
    terse.answers["/userinfo"] = (status, b"<html>")
    problem_of(await log_in(far, terse), 401, "E_IDP_REFUSED")
    assert COOKIE not in far.cookies


@pytest.mark.parametrize("token", ["a\r\nb: c", "é", "", "x" * 70_000], ids=["line", "letter", "empty", "long"])
async def test_an_access_token_that_fits_in_no_header_is_refused(
    far: httpx.AsyncClient, terse: Issuer, token: str
) -> None:
    terse.grant = {"access_token": token}
    problem_of(await log_in(far, terse), 401, "E_ID_TOKEN")
    assert "/userinfo" not in terse.asked


UNREADABLE = {
    "down": (503, b"{}"), "moved": (302, b"{}"), "signed": (200, b"eyJhbGciOiJSUzI1NiJ9.e30.AA"), "empty": (200, b""),
    "list": (200, b"[]"), "large": (200, b'{"sub": "' + b"x" * (fetching.MOST_BYTES + 1) + b'"}'),
}  # fmt: skip


@pytest.mark.parametrize("answer", [pytest.param(answer, id=name) for name, answer in UNREADABLE.items()])
async def test_F15_while_userinfo_is_away_or_broken_logins_are_told_and_sessions_keep_their_roles(
    far: httpx.AsyncClient, terse: Issuer, world: World, answer: tuple[int, bytes]
) -> None:
    terse.answers["/userinfo"] = answer
    problem_of(await log_in(far, terse), 503, "E_IDP")
    del terse.answers["/userinfo"]
    terse.grant["refresh_token"] = "refresh-one"
    assert (await log_in(far, terse)).status_code == 303
    terse.answers["/userinfo"], asked = answer, terse.asked.count("/userinfo")
    world.clock.advance(60)
    assert (await far.get("/v1/me")).json()["role"] == "editor"
    assert terse.asked.count("/userinfo") == asked + 1


async def test_F15_a_userinfo_that_does_not_answer_costs_a_bounded_time(
    far: httpx.AsyncClient, terse: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "SECONDS", 0.2)
    terse.slow = {"/userinfo"}
    assert "no whole answer" in problem_of(await log_in(far, terse), 503, "E_IDP")["detail"]


async def test_a_userinfo_without_tls_is_not_asked(far: httpx.AsyncClient, terse: Issuer) -> None:
    terse.more = {"userinfo_endpoint": "ftp://127.0.0.1/userinfo"}
    problem_of(await log_in(far, terse), 503, "E_IDP")
    assert "/userinfo" not in terse.asked


async def test_a_session_is_renewed_with_the_groups_that_userinfo_tells_then(
    far: httpx.AsyncClient, terse: Issuer, world: World
) -> None:
    terse.grant["refresh_token"] = "refresh-one"
    await log_in(far, terse)
    terse.info["groups"] = ["admins"]
    world.clock.advance(60)
    assert (await far.get("/v1/me")).json()["role"] == "admin"
    terse.answers["/userinfo"] = (401, b"")
    world.clock.advance(60)
    assert (await far.get("/v1/me")).status_code == 401


# ── who proved to be there, and when ──

DANGEROUS = "/v1/tokens"


async def acts(far: httpx.AsyncClient) -> httpx.Response:
    return await far.post(DANGEROUS, json={"name": "x"})


async def log_in_anew(far: httpx.AsyncClient, issuer: Issuer) -> httpx.Response:
    asked = await begin(far, issuer, "/login/sso?anew=true")
    assert (asked["prompt"], asked["max_age"]) == ("login", "0")
    return await come_back(far, asked["state"])


@pytest.fixture
def admin(issuer: Issuer) -> Issuer:
    issuer.groups = ["admins"]
    return issuer


@BOTH
async def test_S37_a_login_that_the_provider_let_pass_without_a_question_proves_nothing(
    far: httpx.AsyncClient, admin: Issuer, world: World
) -> None:
    admin.claims = {"auth_time": world.clock.now() // SECOND - PROVEN_SECONDS}
    assert (await log_in(far, admin)).status_code == 303
    problem_of(await acts(far), 401, "E_REAUTH")
    admin.claims = {"auth_time": world.clock.now() // SECOND - PROVEN_SECONDS + 1}
    assert (await log_in(far, admin)).status_code == 303
    assert (await acts(far)).status_code == 201
    world.clock.advance(1)
    problem_of(await acts(far), 401, "E_REAUTH")  # ten minutes after it was proven, not after the login


async def test_S37_a_provider_that_does_not_say_when_is_believed_where_it_was_told_to_ask(
    far: httpx.AsyncClient, admin: Issuer
) -> None:
    asked = await begin(far, admin)
    assert "prompt" not in asked
    assert int(asked["max_age"]) > 300 * 86_400
    await come_back(far, asked["state"])
    problem_of(await acts(far), 401, "E_REAUTH")
    assert (await log_in_anew(far, admin)).status_code == 303
    assert (await acts(far)).status_code == 201


async def test_S37_a_provider_that_did_not_ask_though_it_was_told_to_is_refused(
    far: httpx.AsyncClient, admin: Issuer, world: World
) -> None:
    admin.claims = {"auth_time": world.clock.now() // SECOND - PROVEN_SECONDS}
    problem_of(await log_in_anew(far, admin), 401, "E_REAUTH")
    assert COOKIE not in far.cookies
    admin.claims = {"auth_time": world.clock.now() // SECOND + 30}  # its clock is ahead
    assert (await log_in_anew(far, admin)).status_code == 303
    assert (await acts(far)).status_code == 201
    world.clock.advance(PROVEN_SECONDS)
    problem_of(await acts(far), 401, "E_REAUTH")


# ── what the provider changes ──


async def told(world: World, **where: Any) -> list[tuple[str, str, str, int, Any]]:
    found = await world.store.list_audit(AuditFilter(**where), None, 100)
    return [(row.who, row.action, row.subject, row.org, json.loads(row.change or "null")) for row in reversed(found)]


@BOTH
async def test_S41_what_a_provider_makes_and_changes_of_users_is_told(
    far: httpx.AsyncClient, issuer: Issuer, world: World
) -> None:
    issuer.grant = {"refresh_token": "refresh-one"}
    await log_in(far, issuer)
    made = {"email": [None, "ann@example.org"], "kind": [None, "person"], "role in 1": [None, "editor"]}
    first = (issuer.issuer, "users.write", "ann", 1, made)
    assert await told(world, kind="user") == [first]
    await log_in(far, issuer)
    assert await told(world, kind="user") == [first]  # it said the same
    issuer.groups = ["admins"]
    await log_in(far, issuer)
    now_admin = {"role in *": [None, "admin"], "role in 1": ["editor", None]}
    assert (await told(world, kind="user"))[1:] == [(issuer.issuer, "users.write", "ann", 1, now_admin)]
    issuer.groups = ["data", "admins"]
    world.clock.advance(60)
    assert (await far.get("/v1/me")).status_code == 200  # the session is renewed
    again = {"role in 1": [None, "editor"]}
    assert (await told(world, kind="user"))[2:] == [(issuer.issuer, "users.write", "ann", 1, again)]
    sessions = await told(world, kind="session")
    assert [who for who, *_ in sessions] == ["ann"] * 3


# ── F-23: who is who ──


@BOTH
async def test_F23_the_same_mail_of_another_subject_is_another_account_until_an_admin_links_it(
    far: httpx.AsyncClient, issuer: Issuer, world: World
) -> None:
    await log_in(far, issuer)
    issuer.subject = "s2"
    await log_in(far, issuer)
    assert (await far.get("/v1/me")).json()["name"] == "ann-2"
    await world.services.users.link("ann", issuer.issuer, "s3", LOCAL)
    issuer.subject, issuer.email, issuer.name = "s3", "other@example.org", "other"
    await log_in(far, issuer)
    assert (await far.get("/v1/me")).json()["name"] == "ann"


async def test_F23_a_new_user_never_gets_the_name_of_an_owner_of_tokens_or_of_the_operator(
    far: httpx.AsyncClient, issuer: Issuer, world: World
) -> None:
    await world.services.access.create("ci", "user", "ann", None)
    await log_in(far, issuer)
    assert (await far.get("/v1/me")).json()["name"] == "ann-2"
    issuer.subject, issuer.name = "s2", "local"
    await log_in(far, issuer)
    assert (await far.get("/v1/me")).json()["name"] == "local-2"


# ── F-11 … F-21, F-27, F-29, F-59: tokens that are not accepted ──

PEM = KEY.as_pem(private=False)
DER = KEY.as_der(private=False)


def hs256(secret: bytes) -> Callable[[dict[str, Any]], str]:
    def sign(claims: dict[str, Any]) -> str:
        head = b64(json.dumps({"alg": "HS256", "kid": "k1"}).encode())
        body = b64(json.dumps(claims).encode())
        return f"{head}.{body}.{b64(hmac.digest(secret, f'{head}.{body}'.encode(), 'sha256'))}"

    return sign


def signed(head: dict[str, Any], key: Any = KEY) -> Callable[[dict[str, Any]], str]:
    return lambda claims: jwt.encode(head, claims, key)


def headed(head: dict[str, Any], signature: str = "") -> Callable[[dict[str, Any]], str]:
    """A token with any head, and a signature that is none."""
    return lambda claims: f"{b64(json.dumps(head).encode())}.{b64(json.dumps(claims).encode())}.{signature}"


def broken(change: Callable[[str], str]) -> Callable[[dict[str, Any]], str]:
    return lambda claims: change(jwt.encode({"alg": "RS256", "kid": "k1"}, claims, KEY))


SIGNATURES: dict[str, Callable[[dict[str, Any]], str]] = {
    "F11_hs256_pem": hs256(PEM), "F11_hs256_der": hs256(DER),
    "F11_hs256_jwk": hs256(json.dumps(KEY.as_dict(private=False)).encode()),
    "F11_none": headed({"alg": "none"}), "F11_none_signed": headed({"alg": "None"}, "x"),
    "F11_key_in_the_head": signed({"alg": "RS256", "kid": "k1", "jwk": OTHER_KEY.as_dict(private=False)}, OTHER_KEY),
    "F13_kid_path": headed({"alg": "RS256", "kid": "../../dev/null"}, "AA"),
    "F13_kid_sql": headed({"alg": "RS256", "kid": "' OR 1=1 --"}, "AA"),
    "F13_kid_long": headed({"alg": "RS256", "kid": "k" * 10_000}, "AA"),
    "F13_kid_no_text": headed({"alg": "RS256", "kid": {"a": 1}}, "AA"),
    "F13_kid_unknown": signed({"alg": "RS256", "kid": "k9"}, OTHER_KEY),
    "F13_other_key": signed({"alg": "RS256", "kid": "k1"}, OTHER_KEY),
    "F19_truncated": broken(lambda text: text[:-8]), "F19_empty": broken(lambda text: text.rpartition(".")[0] + "."),
    "F19_two_parts": broken(lambda text: text.rpartition(".")[0]), "F19_four_parts": broken(lambda text: text + ".x"),
    "F19_padding": broken(lambda text: text + "=="), "F19_garbage": broken(lambda text: text[:-4] + "!!é\0"),
    "F19_changed": broken(lambda text: text.replace(text.split(".")[1][:4], "eyJB", 1)),
    "F19_deep_head": lambda _: b64(b"[" * 30_000) + ".e30.AA", "F19_large": lambda _: "x" * 100_000,
    "F21_es256_zero": headed({"alg": "ES256", "kid": "ec"}, b64(b"\0" * 64)),
    "crit": headed({"alg": "RS256", "kid": "k1", "crit": ["exp"]}, "AA"),
}  # fmt: skip


@pytest.mark.parametrize("sign", [pytest.param(sign, id=name) for name, sign in SIGNATURES.items()])
async def test_S36_a_signature_that_is_none_of_the_providers_is_refused(
    far: httpx.AsyncClient, issuer: Issuer, world: World, sign: Callable[[dict[str, Any]], str]
) -> None:
    issuer.keys.append(jwk.ECKey.generate_key("P-256", {"kid": "ec"}).as_dict(private=False))
    issuer.keys.append({"kty": "oct", "kid": "k1", "k": b64(PEM)})
    issuer.sign = sign
    problem_of(await log_in(far, issuer), 401, "E_ID_TOKEN")
    assert COOKIE not in far.cookies
    assert await world.store.list_users("", 10) == []


MINUTE = 60
CLAIMS: dict[str, dict[str, Any]] = {
    "F17_expired": {"exp": 1}, "F17_no_exp": {"exp": None}, "F17_exp_text": {"exp": "9999999999"},
    "F17_exp_bool": {"exp": True}, "F17_nbf_future": {"nbf": 9_999_999_999}, "F17_iat_future": {"iat": 9_999_999_999},
    "F17_no_iat": {"iat": None}, "F27_nonce": {"nonce": "other"}, "F27_no_nonce": {"nonce": None},
    "F29_issuer": {"iss": "https://evil.example"}, "audience": {"aud": "other"}, "audience_list": {"aud": ["other"]},
    "audience_missing": {"aud": None}, "azp": {"azp": "other"}, "azp_missing": {"aud": ["horae", "other"]},
    "auth_time_text": {"auth_time": "9"}, "auth_time_future": {"auth_time": 9_999_999_999},
    "no_subject": {"sub": None}, "empty_subject": {"sub": ""}, "long_subject": {"sub": "s" * 256},
    "subject_number": {"sub": 7},
}  # fmt: skip


@pytest.mark.parametrize("claims", [pytest.param(claims, id=name) for name, claims in CLAIMS.items()])
async def test_S36_claims_that_are_not_for_us_now_are_refused(
    far: httpx.AsyncClient, issuer: Issuer, world: World, claims: dict[str, Any]
) -> None:
    issuer.claims = claims
    problem_of(await log_in(far, issuer), 401, "E_ID_TOKEN")
    assert await world.store.list_users("", 10) == []


@pytest.mark.parametrize(("skew", "comes_in"), [(-45, True), (45, True), (-300, False), (300, False)])
async def test_F59_clocks_may_differ_by_a_minute_and_more_is_named(
    far: httpx.AsyncClient, issuer: Issuer, world: World, skew: int, comes_in: bool
) -> None:
    now = world.clock.now() // SECOND + skew
    issuer.claims = {"iat": now, "exp": now + 1}
    answer = await log_in(far, issuer)
    if comes_in:
        assert answer.status_code == 303
    else:
        assert "clock skew" in problem_of(answer, 401, "E_ID_TOKEN")["detail"]


async def test_F29_an_answer_that_names_another_issuer_is_refused(far: httpx.AsyncClient, issuer: Issuer) -> None:
    state = (await begin(far, issuer))["state"]
    problem_of(await come_back(far, state, iss="https://evil.example"), 401, "E_ID_TOKEN")
    state = (await begin(far, issuer))["state"]
    assert (await come_back(far, state, iss=issuer.issuer)).status_code == 303


async def test_F29_a_provider_that_names_itself_must_do_so(
    far: httpx.AsyncClient, issuer: Issuer, world: World
) -> None:
    issuer.more = {"authorization_response_iss_parameter_supported": True}
    problem_of(await log_in(far, issuer), 401, "E_ID_TOKEN")


# ── F-25: what comes back ──


@pytest.mark.parametrize(
    ("sent", "status", "code"),
    [
        ({}, 400, "E_CALLBACK"),
        ({"error": "access_denied"}, 403, "E_IDP_DENIED"),
        ({"error": "access_denied", "code": "c1"}, 403, "E_IDP_DENIED"),
    ],
)
async def test_F25_a_callback_without_a_code_or_with_an_error_is_told_clearly(
    far: httpx.AsyncClient, issuer: Issuer, sent: dict[str, str], status: int, code: str
) -> None:
    state = (await begin(far, issuer))["state"]
    problem_of(await far.get("/login/callback", params={**sent, "state": state}), status, code)
    state = (await begin(far, issuer))["state"]
    page = await far.get("/login/callback", params={**sent, "state": state}, headers=PAGE)
    assert (page.status_code, code in page.text) == (status, True)
    assert "/token" not in issuer.asked


@pytest.mark.parametrize("state", ["", "x", "x" * 43, "x" * 3000, "é"])
async def test_a_callback_that_this_browser_did_not_begin_is_refused(
    far: httpx.AsyncClient, issuer: Issuer, state: str
) -> None:
    await begin(far, issuer)
    sent = {"code": "c1", **({"state": state} if state else {})}
    problem_of(await far.get("/login/callback", params=sent), 400, "E_CALLBACK")
    assert "/token" not in issuer.asked


async def test_F31_a_callback_made_up_for_a_browser_that_began_none_is_refused(
    far: httpx.AsyncClient, issuer: Issuer
) -> None:
    """Who knows how a state comes from a secret makes one for no secret at all, and would log others in as himself."""
    made_up = {what: b64(hashlib.sha256(f"horae {what} ".encode()).digest()) for what in ("state", "nonce")}
    issuer.nonce = made_up["nonce"]
    problem_of(await come_back(far, made_up["state"]), 400, "E_CALLBACK")
    assert "/token" not in issuer.asked


async def test_a_callback_of_another_browser_is_refused(far: httpx.AsyncClient, issuer: Issuer) -> None:
    state = (await begin(far, issuer))["state"]
    far.cookies.clear()
    problem_of(await come_back(far, state), 400, "E_CALLBACK")


async def test_a_code_that_the_provider_refuses_is_told_without_its_words(
    far: httpx.AsyncClient, issuer: Issuer
) -> None:
    issuer.answers["/token"] = (400, b'{"error": "invalid_grant", "error_description": "<script>"}')
    problem = problem_of(await log_in(far, issuer), 401, "E_IDP_REFUSED")
    assert "invalid_grant" in problem["detail"]
    assert "script" not in str(problem)


# ── F-15: a provider that is away or broken ──

BROKEN = {
    "down": (503, b"{}"), "html": (200, b"<html>"), "empty": (200, b""), "list": (200, b"[]"),
    "large": (200, b'{"keys": "' + b"x" * (fetching.MOST_BYTES + 1) + b'"}'), "no_keys": (200, b'{"keys": []}'),
    "odd_keys": (200, b'{"keys": [7]}'),
}  # fmt: skip


@pytest.mark.parametrize("answer", [pytest.param(answer, id=name) for name, answer in BROKEN.items()])
async def test_F15_keys_that_cannot_be_had_are_503_and_those_of_before_are_used_for_a_day(
    far: httpx.AsyncClient, issuer: Issuer, world: World, answer: tuple[int, bytes]
) -> None:
    issuer.answers["/jwks"] = answer
    problem_of(await log_in(far, issuer), 503, "E_IDP")
    world.clock.advance(COOLDOWN)
    del issuer.answers["/jwks"]
    assert (await log_in(far, issuer)).status_code == 303

    issuer.answers["/jwks"] = answer
    world.clock.advance(KEYS_SECONDS)
    assert (await log_in(far, issuer)).status_code == 303
    world.clock.advance(fetching.STALE_SECONDS)
    problem_of(await log_in(far, issuer), 503, "E_IDP")


@pytest.mark.parametrize("path", ["/.well-known/openid-configuration", "/jwks", "/token"])
async def test_F15_a_provider_that_does_not_answer_costs_a_bounded_time(
    far: httpx.AsyncClient, issuer: Issuer, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setattr(fetching, "SECONDS", 0.2)
    issuer.slow.add(path)
    answer = await far.get("/login/sso")
    if answer.status_code == 303:
        answer = await log_in(far, issuer)
    problem_of(answer, 503, "E_IDP")


@pytest.mark.parametrize(
    "more",
    [
        {"issuer": "https://evil.example"},
        {"token_endpoint": None},
        {"jwks_uri": "file:///etc/passwd"},
        {"authorization_endpoint": "javascript:alert(1)"},
    ],
)
async def test_a_discovery_document_that_cannot_be_used_is_503(
    far: httpx.AsyncClient, issuer: Issuer, more: dict[str, Any]
) -> None:
    issuer.more = more
    problem_of(await far.get("/login/sso"), 503, "E_IDP")
    page = await far.get("/login/sso", headers=PAGE)
    assert (page.status_code, "E_IDP" in page.text) == (503, True)


async def test_new_keys_are_found_and_unknown_ones_cost_one_look_in_half_a_minute(
    far: httpx.AsyncClient, issuer: Issuer, world: World
) -> None:
    assert (await log_in(far, issuer)).status_code == 303
    issuer.keys, issuer.sign = [OTHER_KEY.as_dict(private=False)], signed({"alg": "RS256", "kid": "k2"}, OTHER_KEY)
    world.clock.advance(COOLDOWN)
    assert (await log_in(far, issuer)).status_code == 303

    issuer.sign = signed({"alg": "RS256", "kid": "k3"}, KEY)
    before = issuer.asked.count("/jwks")
    for _ in range(5):
        problem_of(await log_in(far, issuer), 401, "E_ID_TOKEN")
    assert issuer.asked.count("/jwks") == before
    world.clock.advance(COOLDOWN)
    for _ in range(5):
        problem_of(await log_in(far, issuer), 401, "E_ID_TOKEN")
    assert issuer.asked.count("/jwks") == before + 1


# ── refresh, F-61 ──


async def test_a_session_is_renewed_when_due_and_follows_new_claims(
    far: httpx.AsyncClient, issuer: Issuer, world: World
) -> None:
    issuer.grant = {"refresh_token": "refresh-one"}
    await log_in(far, issuer)
    assert "refresh-one" not in str(await world.store.list_sessions(1))  # sealed
    issuer.grant, issuer.groups = {"refresh_token": "r2"}, ["admins"]
    assert (await far.get("/v1/me")).json()["role"] == "editor"
    world.clock.advance(60)
    assert (await far.get("/v1/me")).json()["role"] == "admin"
    assert (issuer.forms[-1]["grant_type"], issuer.forms[-1]["refresh_token"]) == ("refresh_token", "refresh-one")
    world.clock.advance(60)
    await far.get("/v1/me")
    assert issuer.forms[-1]["refresh_token"] == "r2"


async def test_F61_many_requests_at_once_renew_a_session_once(
    far: httpx.AsyncClient, issuer: Issuer, world: World
) -> None:
    issuer.grant = {"refresh_token": "refresh-one"}
    await log_in(far, issuer)
    world.clock.advance(60)
    answers = await asyncio.gather(*(far.get("/v1/me") for _ in range(10)))
    assert {answer.status_code for answer in answers} == {200}
    assert [form["grant_type"] for form in issuer.forms].count("refresh_token") == 1


@pytest.mark.parametrize("reason", ["refused", "other user"])
async def test_a_renewal_that_is_refused_ends_the_session(
    far: httpx.AsyncClient, issuer: Issuer, world: World, reason: str
) -> None:
    issuer.grant = {"refresh_token": "refresh-one"}
    await log_in(far, issuer)
    if reason == "refused":
        issuer.answers["/token"] = (400, b'{"error": "invalid_grant"}')
    else:
        issuer.subject = "s2"
    world.clock.advance(60)
    problem_of(await far.get("/v1/me"), 401, "E_TOKEN")
    assert await world.store.list_sessions(1) == []


async def login_of_a_program(far: httpx.AsyncClient, issuer: Issuer, world: World) -> dict[str, str]:
    """Log in, let a program in, and return its headers."""
    issuer.grant = {"refresh_token": "refresh-one"}
    issuer.claims["auth_time"] = world.clock.now() // SECOND  # who was not asked just now lets nobody in
    await log_in(far, issuer)
    begun = (await far.post("/v1/device")).json()
    await far.post("/device", data={"code": begun["user_code"], "decision": "approve"}, headers=PAGE)
    token = (await far.post("/v1/device/token", json={"device_code": begun["device_code"]})).json()
    return {"authorization": f"Bearer {token['token']}", "cookie": ""}


@BOTH
async def test_F61_a_user_whom_the_provider_lets_in_no_more_has_no_login_tokens_left(
    far: httpx.AsyncClient, issuer: Issuer, world: World
) -> None:
    program = await login_of_a_program(far, issuer, world)
    made, _ = await world.services.access.create("script", "user", "ann", None)
    other, _ = await world.services.access.create("login", "user", "tom", None, org=EVERYWHERE)
    assert (await far.get("/v1/me", headers=program)).json()["name"] == "ann"
    issuer.answers["/token"] = (400, b'{"error": "invalid_grant"}')
    world.clock.advance(60)
    problem_of(await far.get("/v1/me"), 401, "E_TOKEN")
    problem_of(await far.get("/v1/me", headers=program), 401, "E_TOKEN")
    good = {token.id for token in await world.services.access.list() if token.revoked_at is None}
    assert good == {made.id, other.id}  # what is no login stays, and so do those of others
    rows = [row for row in await told(world, kind="token") if row[0] == issuer.issuer]
    assert [(action, org, change) for _, action, _, org, change in rows] == [
        ("tokens.write", 1, {"state": ["good", "revoked"]})
    ]


@pytest.mark.parametrize("answer", [(401, b'{"error": "invalid_client"}'), (502, b"bad gateway")])
async def test_login_tokens_stay_when_the_provider_says_nothing_of_the_user(
    far: httpx.AsyncClient, issuer: Issuer, world: World, answer: tuple[int, bytes]
) -> None:
    program = await login_of_a_program(far, issuer, world)
    issuer.answers["/token"] = answer
    world.clock.advance(60)
    await far.get("/v1/me")
    assert (await far.get("/v1/me", headers=program)).json()["name"] == "ann"


async def test_while_the_provider_is_away_the_session_goes_on_and_is_renewed_later(
    far: httpx.AsyncClient, issuer: Issuer, world: World
) -> None:
    issuer.grant = {"refresh_token": "refresh-one"}
    await log_in(far, issuer)
    issuer.answers["/token"] = (502, b"bad gateway")
    for _ in range(3):
        world.clock.advance(60)
        assert (await far.get("/v1/me")).status_code == 200
    del issuer.answers["/token"]
    issuer.groups = ["admins"]
    world.clock.advance(60)
    assert (await far.get("/v1/me")).json()["role"] == "admin"


async def test_dangerous_acts_ask_the_provider_for_a_new_login(
    far: httpx.AsyncClient, issuer: Issuer, world: World
) -> None:
    await log_in(far, issuer)
    world.clock.advance(600)
    page = await far.get("/device", headers=PAGE)
    assert "anew=true" in page.text
    assert (await begin(far, issuer, "/login/sso?anew=true"))["prompt"] == "login"


async def test_without_a_provider_the_page_does_not_offer_one(world: World, far: httpx.AsyncClient) -> None:
    assert "organisation's account" in (await far.get("/login")).text
    assert isinstance(world.services.logins, Logins)
    world.services.logins.provider = None
    assert "organisation's account" not in (await far.get("/login")).text
    problem_of(await far.get("/login/sso"), 409, "E_NO_IDP")
