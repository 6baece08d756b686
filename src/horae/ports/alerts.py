"""How somebody is told: one channel, one message."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from horae.core.alerts.channels import Channel
from horae.core.model import Json
from horae.errors import Error


class Undelivered(Error):
    """A message was not taken, or nobody knows whether it was; the text says why, without any secret."""

    code = "E_UNDELIVERED"


class Teller(Protocol):
    """Sends messages."""

    @property
    def commands(self) -> Mapping[str, str]:
        """Return the commands of the settings, each a channel by its name."""

    async def send(self, channel: Channel, secrets: Mapping[str, str], message: Json, key: str) -> None:
        """Return when it is taken. Undelivered: it may be sent again, under the same key, by which whoever gets it
        knows a repeat. `secrets` are the values of those that the channel names."""

    async def close(self) -> None: ...
