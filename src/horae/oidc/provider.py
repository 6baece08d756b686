"""One provider: found by discovery, asked for codes, tokens and renewals."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode, urlsplit

from horae.core.model import SECOND
from horae.errors import GrantOver, Unauthenticated
from horae.oidc.fetching import Http, Json, Kept, KeptKeys, unreachable
from horae.oidc.tokens import IdTokens, refused
from horae.ports.clock import Clock
from horae.ports.identity import Claims, Granted

DISCOVERY = "/.well-known/openid-configuration"
DISCOVERY_SECONDS = 3600.0
KEYS_SECONDS = 600.0
COOLDOWN = 30.0  # seconds between two looks for keys, or for a provider that did not answer
LONG_AGO = 365 * 86_400  # seconds; whoever is asked for an age says when a user logged in, and this asks for no other
RETRY = 5.0  # seconds between two tries to find the provider
MOST_GROUPS = 1000
_ACCESS_TOKEN = re.compile(r"[\x21-\x7e]{1,65536}")  # what fits into a header


@dataclass(frozen=True, slots=True)
class Client:
    """What the provider knows us by."""

    issuer: str
    id: str
    secret: str | None  # None: a public client
    redirect: str  # where it sends browsers back to
    scopes: tuple[str, ...] = ("openid", "profile", "email")
    groups_claim: str = "groups"


class OidcProvider:
    def __init__(self, client: Client, clock: Clock) -> None:
        self._client, self._clock = client, clock
        self.issuer = client.issuer
        self._http = Http()
        self._found = Kept(self._http, clock, "the identity provider", fresh=DISCOVERY_SECONDS, cooldown=RETRY)
        keys = KeptKeys(self._http, clock, "the keys of the identity provider", fresh=KEYS_SECONDS, cooldown=COOLDOWN)
        self._tokens = IdTokens(keys, client.id)

    async def authorize_url(self, *, state: str, nonce: str, challenge: str, is_anew: bool) -> str:
        found = await self._discover()
        asked = {
            "response_type": "code", "client_id": self._client.id, "redirect_uri": self._client.redirect,
            "scope": " ".join(self._client.scopes), "state": state, "nonce": nonce, "code_challenge": challenge,
            "code_challenge_method": "S256",
        }  # fmt: skip
        asked["max_age"] = str(0 if is_anew else LONG_AGO)
        prompts = ["login"] if is_anew else []
        if "offline_access" in self._client.scopes:
            prompts.append("consent")  # without it, a provider gives nothing to ask again with
        if prompts:
            asked["prompt"] = " ".join(prompts)
        place = found["authorization_endpoint"]
        return f"{place}{'&' if urlsplit(place).query else '?'}{urlencode(asked)}"

    async def exchange(self, code: str, *, verifier: str, nonce: str, issuer: str | None) -> Granted:
        found = await self._discover()
        if issuer is None and found.get("authorization_response_iss_parameter_supported") is True:
            raise refused("it does not say of which issuer it is")
        if issuer is not None and issuer != found["issuer"]:
            raise refused("it is of another issuer")
        form = {"grant_type": "authorization_code", "code": code, "redirect_uri": self._client.redirect}
        return await self._granted(found, {**form, "code_verifier": verifier}, nonce)

    async def refresh(self, token: str, subject: str) -> Granted:
        found = await self._discover()
        granted = await self._granted(found, {"grant_type": "refresh_token", "refresh_token": token}, None)
        if granted.claims is not None and granted.claims.subject != subject:
            raise refused("it is of another user")
        return granted

    async def _granted(self, found: Json, form: Json, nonce: str | None) -> Granted:
        answer = await self._ask_for_token(found, form)
        claims = None
        if nonce is not None or "id_token" in answer:  # who is renewed need not be named again
            read = await self._tokens.read(
                answer.get("id_token"), issuer=found["issuer"], keys_url=found["jwks_uri"], nonce=nonce,
                now=self._clock.now(),
            )  # fmt: skip
            more = await self._ask_for_more(found, read, answer.get("access_token"))
            claims = self._claims(read, more, found["issuer"])
        refresh, expires_in = answer.get("refresh_token"), answer.get("expires_in")
        return Granted(
            claims,
            refresh if isinstance(refresh, str) and refresh else None,
            float(expires_in) if isinstance(expires_in, int | float) and not isinstance(expires_in, bool) else None,
        )

    async def _ask_for_token(self, found: Json, form: Json) -> Json:
        auth = None
        methods = found.get("token_endpoint_auth_methods_supported", ["client_secret_basic"])
        if self._client.secret is None:
            form = {**form, "client_id": self._client.id}
        elif "client_secret_basic" in methods:
            auth = (_form_text(self._client.id), _form_text(self._client.secret))
        else:
            form = {**form, "client_id": self._client.id, "client_secret": self._client.secret}
        what = "a token of the identity provider"
        status, answer = await self._http.ask(found["token_endpoint"], what, form, auth)
        if status >= 500:
            raise unreachable(what, f"the provider answered {status}")
        if status != 200:
            raise _refusal(_word(answer.get("error")))
        return answer

    async def _ask_for_more(self, found: Json, claims: Json, access_token: object) -> Json:
        """Return what the provider tells of a user only when it is asked (UserInfo); nothing where the ID token says
        all that is wanted, or where there is nobody to ask."""
        is_whole = _at(claims, self._client.groups_claim) is not None
        is_whole = is_whole and ("email" in claims or "email" not in self._client.scopes)
        place = found.get("userinfo_endpoint")
        if is_whole or place is None or not isinstance(access_token, str):
            return {}
        what = "what the identity provider knows of a user (UserInfo)"
        if not isinstance(place, str) or urlsplit(place).scheme not in self._schemes():
            raise unreachable(what, "its userinfo_endpoint is not https")
        if not _ACCESS_TOKEN.fullmatch(access_token):
            raise refused("its access token is none")
        status, more = await self._http.ask(place, what, bearer=access_token)
        if status in (401, 403):
            raise _refusal("it tells nothing of this user (UserInfo)")
        if status != 200:
            raise unreachable(what, f"the provider answered {status}")
        if more.get("sub") != claims["sub"]:
            raise refused("what UserInfo tells is of another user")
        return more

    def _claims(self, claims: Json, more: Json, issuer: str) -> Claims:
        """What is signed counts before what was asked for, and alone says who it is and when that was proven."""
        both = {**more, **claims}
        names = (both.get(name) for name in ("preferred_username", "nickname", "email", "name"))
        groups = _at(claims, self._client.groups_claim)
        if groups is None:
            groups = _at(more, self._client.groups_claim)
        if isinstance(groups, str):
            groups = groups.split()
        listed = groups if isinstance(groups, list) else []
        email = both.get("email")
        return Claims(
            issuer, claims["sub"], next((name for name in names if isinstance(name, str) and name), ""),
            email[:254] if isinstance(email, str) else "",
            tuple(each for each in listed[:MOST_GROUPS] if isinstance(each, str)),
            None if (at := claims.get("auth_time")) is None else round(at * SECOND),
        )  # fmt: skip

    async def _discover(self) -> Json:
        what = "the identity provider"
        found = await self._found.get(self._client.issuer.rstrip("/") + DISCOVERY)
        if str(found.get("issuer")).rstrip("/") != self._client.issuer.rstrip("/"):
            raise unreachable(what, "it says to be another issuer than oidc_issuer")
        for name in ("authorization_endpoint", "token_endpoint", "jwks_uri"):
            place = found.get(name)
            if not isinstance(place, str) or urlsplit(place).scheme not in self._schemes():
                raise unreachable(what, f"its {name} is missing, or not https")
        return found

    def _schemes(self) -> tuple[str, ...]:
        return ("https", "http") if urlsplit(self._client.issuer).scheme == "http" else ("https",)

    async def close(self) -> None:
        await self._http.close()


def _at(claims: Json, path: str) -> Any:
    """Return a claim by its name, or by a path such as realm_access.roles."""
    if path in claims:
        return claims[path]
    found: Any = claims
    for name in path.split("."):
        found = found.get(name) if isinstance(found, dict) else None
    return found


def _form_text(text: str) -> str:
    """As OAuth wants it in HTTP Basic: encoded as in a form."""
    return urlencode({"": text})[1:]


def _refusal(word: str) -> Unauthenticated:
    text = f"the identity provider refuses: {word}"
    hint = (
        "log in again; if it comes back, compare oidc_client_id, oidc_client_secret and the redirect address with the "
        "provider's settings"
    )
    if word == "invalid_grant":
        return GrantOver(text, hint=hint)
    return Unauthenticated(text, code="E_IDP_REFUSED", hint=hint)


def _word(error: object) -> str:
    """Return an error of the provider, which is a word: nothing else of it is shown."""
    return error if isinstance(error, str) and re.fullmatch(r"[a-z_]{1,64}", error) else "no reason"
