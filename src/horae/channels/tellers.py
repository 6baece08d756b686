"""All channels behind one port."""

from __future__ import annotations

from collections.abc import Mapping

from horae.channels.commands import Commands
from horae.channels.mail import Mail
from horae.channels.webhooks import Post, Webhooks
from horae.core.alerts.channels import COMMAND, Channel
from horae.core.model import Json
from horae.ports.alerts import Undelivered
from horae.ports.clock import Clock


class Tellers:
    """Implements ports.alerts.Teller."""

    def __init__(
        self, post: Post, clock: Clock, *, smtp_url: str | None = None, smtp_from: str | None = None,
        commands: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        """`post` sends a request, as kind `http` does."""
        self._webhooks = Webhooks(post, clock)
        self._mail = Mail(smtp_url, smtp_from)
        self._commands = Commands()
        self.commands = dict(commands or {})

    async def send(self, channel: Channel, secrets: Mapping[str, str], message: Json, key: str) -> None:
        if channel.kind == COMMAND:
            if channel.name not in self.commands:
                raise Undelivered(
                    f"this node has no command {channel.name}: every server needs the same alert_commands"
                )
            await self._commands.run(self.commands[channel.name], message, key)
        elif channel.kind == "email":
            await self._mail.send(channel.to, message, key)
        else:
            await self._webhooks.send(channel, secrets, message, key)

    async def close(self) -> None:
        await self._webhooks.close()
