"""A provider that vouches for users (oidc)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from horae.core.model import Moment


@dataclass(frozen=True, slots=True)
class Claims:
    """What a provider says of a user. Only (issuer, subject) tells users apart."""

    issuer: str
    subject: str
    name: str = ""  # that the user would like to be called
    email: str = ""
    groups: tuple[str, ...] = ()
    proven_at: Moment | None = None  # when the user last proved to be there; None: the provider does not say


@dataclass(frozen=True, slots=True)
class Granted:
    claims: Claims | None  # None: renewed, and nothing new said of the user
    refresh: str | None = None  # what to ask again with
    expires_in: float | None = None  # seconds after which to ask again


class IdentityProvider(Protocol):
    """OpenID Connect: authorization code with PKCE, and refresh.

    Unavailable(E_IDP) when the provider is out of reach, Unauthenticated when it refuses, or vouches wrongly.
    """

    issuer: str

    async def authorize_url(self, *, state: str, nonce: str, challenge: str, is_anew: bool) -> str:
        """Return where a browser is sent to. With `is_anew` the user is to prove again to be there. The provider is
        asked to say when the user last did."""

    async def exchange(self, code: str, *, verifier: str, nonce: str, issuer: str | None) -> Granted:
        """Return for whom the provider vouches by the code of a callback. `issuer` is what came with that."""

    async def refresh(self, token: str, subject: str) -> Granted:
        """Ask again; it must be for the same user. GrantOver when the provider lets it in no more."""

    async def close(self) -> None: ...
