"""ID tokens: who signed them, for whom, and when.

What must stay true:
- The algorithm is one of ALGORITHMS, and the key one of the provider's set with the right type: a public key is never
  used as a shared secret, and what a token says of keys (`jku`, `x5u`, `jwk`) is not looked at.
- A key that is not known is looked for once in `COOLDOWN` seconds, however many ask.
"""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any

from joserfc import jwk, jwt
from joserfc.errors import JoseError

from horae.core.model import SECOND, Moment
from horae.errors import Unauthenticated
from horae.oidc.fetching import Json, KeptKeys

ALGORITHMS = {
    "RS256": "RSA", "RS384": "RSA", "RS512": "RSA", "PS256": "RSA", "PS384": "RSA", "PS512": "RSA", "ES256": "EC",
    "ES384": "EC", "ES512": "EC", "EdDSA": "OKP",
}  # fmt: skip
LEEWAY = 60  # seconds by which clocks may differ
MOST_TEXT = 64 << 10
MOST_KEYS = 50
LEAST_RSA = 2048  # bits
_NOT_NEEDED = ("nbf", "auth_time")  # times that a token may leave out


def refused(why: str) -> Unauthenticated:
    return Unauthenticated(
        f"the identity provider's answer is not accepted: {why}",
        code="E_ID_TOKEN",
        hint="log in again; if it comes back, compare oidc_issuer and oidc_client_id with the provider's settings",
    )


class IdTokens:
    def __init__(self, keys: KeptKeys, client_id: str) -> None:
        self._keys, self._client_id = keys, client_id

    async def read(self, text: object, *, issuer: str, keys_url: str, nonce: str | None, now: Moment) -> Json:
        """Return the claims of an ID token that is good now; Unauthenticated otherwise."""
        if not isinstance(text, str) or len(text) > MOST_TEXT:
            raise refused("there is no ID token in it")
        header = _header(text)
        algorithm = header.get("alg")
        if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
            raise refused("the algorithm of its signature is not one that is allowed")
        claims = await self._verified(text, header, algorithm, keys_url)
        self._check(claims, issuer, nonce, now)
        return claims

    async def _verified(self, text: str, header: Json, algorithm: str, keys_url: str) -> Json:
        kid = header.get("kid")
        if kid is not None and (not isinstance(kid, str) or len(kid) > 512):
            raise refused("the name of its key is none")
        found = _candidates(await self._keys.get(keys_url), kid, algorithm)
        if not found:  # the provider may have changed its keys
            found = _candidates(await self._keys.get(keys_url, anew=True), kid, algorithm)
        for key in found:
            claims = _decoded(text, key, algorithm)
            if claims is not None:
                return claims
        raise refused("no key of the provider signed it" if found else "the provider has no such key")

    def _check(self, claims: Json, issuer: str, nonce: str | None, now: Moment) -> None:
        if claims.get("iss") != issuer:
            raise refused("it is of another issuer")
        audience = claims.get("aud")
        audiences = audience if isinstance(audience, list) else [audience]
        if self._client_id not in audiences:
            raise refused("it is for another client")
        if (len(audiences) > 1 or "azp" in claims) and claims.get("azp") != self._client_id:
            raise refused("it was given to another client (azp)")
        if nonce is not None and claims.get("nonce") != nonce:
            raise refused("its nonce is not that of this login")
        if not isinstance(claims.get("sub"), str) or not 1 <= len(claims["sub"]) <= 255:
            raise refused("it names no user")
        _check_times(claims, now / SECOND)


def _check_times(claims: Json, now: float) -> None:
    times = {name: claims.get(name) for name in ("exp", "iat", *_NOT_NEEDED)}
    for name, value in times.items():
        if (
            (value is None and name not in _NOT_NEEDED)
            or not isinstance(value, int | float | None)
            or isinstance(value, bool)
        ):
            raise refused(f"its time {name} is missing or no number")
    if now > (times["exp"] or 0) + LEEWAY:
        raise refused("it has expired; is there a clock skew between this server and the provider?")
    if max(times[name] or 0 for name in ("iat", *_NOT_NEEDED)) > now + LEEWAY:
        raise refused("it is from the future; is there a clock skew between this server and the provider?")


def _header(text: str) -> Json:
    parts = text.split(".")
    if len(parts) != 3 or not all(parts):
        raise refused("it is no signed token")
    try:
        found: Any = json.loads(base64.b64decode(parts[0] + "=" * (-len(parts[0]) % 4), b"-_", validate=True))
    except (ValueError, binascii.Error, RecursionError):
        raise refused("its head cannot be read") from None
    if not isinstance(found, dict) or "crit" in found or "b64" in found:
        raise refused("its head cannot be read")
    return found


def _candidates(document: Json, kid: str | None, algorithm: str) -> list[Json]:
    """Return the keys that may have signed it: those of that name, or without one, all of the right type."""
    keys = [
        key
        for key in document["keys"][:MOST_KEYS]
        if key.get("kty") == ALGORITHMS[algorithm]
        and key.get("use", "sig") == "sig"
        and key.get("alg", algorithm) == algorithm
    ]
    return [key for key in keys if kid is None or key.get("kid") == kid]


def _decoded(text: str, key: Json, algorithm: str) -> Json | None:
    """Return the claims, if this key signed them."""
    try:
        public = {name: value for name, value in key.items() if name not in ("d", "p", "q", "dp", "dq", "qi", "oth")}
        imported = jwk.import_key(public)
        if isinstance(imported, jwk.RSAKey) and imported.raw_value.key_size < LEAST_RSA:
            return None
        claims = jwt.decode(text, imported, algorithms=[algorithm]).claims
    except (JoseError, ValueError, TypeError, KeyError):
        return None
    return claims if isinstance(claims, dict) else None
