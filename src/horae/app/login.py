"""The identity provider of the settings."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from horae.config import Config
from horae.errors import ConfigError
from horae.ports.clock import Clock

if TYPE_CHECKING:
    from horae.oidc.provider import OidcProvider

CALLBACK = "/login/callback"


def make_provider(config: Config, clock: Clock) -> OidcProvider | None:
    """None where the settings name none."""
    if not config.oidc_issuer:
        return None
    if find_spec("joserfc") is None:
        raise ConfigError(
            "oidc_issuer needs what reads signed tokens",
            path="oidc_issuer",
            hint="install it: pip install 'horae[oidc]'",
        )
    from horae.oidc.provider import Client, OidcProvider  # an extra, and most servers have no provider

    place = config.public_url or config.address
    client = Client(
        config.oidc_issuer, config.oidc_client_id, _secret(config), place + CALLBACK, config.oidc_scopes,
        config.oidc_groups_claim,
    )  # fmt: skip
    return OidcProvider(client, clock)


def _secret(config: Config) -> str | None:
    if config.oidc_client_secret_file is None:
        return config.oidc_client_secret or None
    try:
        return config.oidc_client_secret_file.read_text().strip() or None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"oidc_client_secret_file cannot be read: {error}", path="oidc_client_secret_file") from None
