"""Messages by mail, over the SMTP server that the settings name.

A password goes over TLS alone, unless the server is on this very machine.
"""

from __future__ import annotations

import asyncio
import smtplib
import ssl
from collections.abc import Sequence
from email.message import EmailMessage
from urllib.parse import unquote, urlsplit

from horae.core.alerts.forms import mail_text, subject_of
from horae.core.model import Json
from horae.ports.alerts import Undelivered

SECONDS = 30.0  # for each step of the talk
LOCAL = ("127.0.0.1", "::1", "localhost")


class Mail:
    def __init__(self, url: str | None, sender: str | None) -> None:
        self._url = url
        self._sender = sender or "horae@localhost"

    async def send(self, to: Sequence[str], message: Json, key: str) -> None:
        if not self._url:
            raise Undelivered("no mail can be sent: the setting smtp_url is not set on this server")
        mail = EmailMessage()
        mail["Subject"] = subject_of(message)
        mail["From"] = self._sender
        mail["To"] = ", ".join(to)
        mail["Message-ID"] = f"<{key}@horae>"  # the same when it is sent again
        mail["Auto-Submitted"] = "auto-generated"
        mail.set_content(mail_text(message))
        try:
            await asyncio.to_thread(self._talk, mail, list(to))
        except (OSError, smtplib.SMTPException) as error:
            raise Undelivered(f"the mail server did not take it: {_words(error)}") from None

    def _talk(self, mail: EmailMessage, to: list[str]) -> None:
        parts = urlsplit(self._url or "")
        host, user, password = parts.hostname or "", unquote(parts.username or ""), unquote(parts.password or "")
        with self._connected(parts.scheme, host, parts.port) as server:
            server.ehlo()
            is_private = parts.scheme == "smtps" or host in LOCAL
            if parts.scheme == "smtp" and server.has_extn("starttls"):
                server.starttls(context=ssl.create_default_context())
                is_private = True
            if user:
                if not is_private:
                    raise smtplib.SMTPException("it offers no TLS, and a password is not sent without: use smtps://")
                server.login(user, password)
            server.send_message(mail, to_addrs=to)

    def _connected(self, scheme: str, host: str, port: int | None) -> smtplib.SMTP:
        if scheme == "smtps":
            return smtplib.SMTP_SSL(host, port or 465, timeout=SECONDS, context=ssl.create_default_context())
        return smtplib.SMTP(host, port or 25, timeout=SECONDS)


def _words(error: Exception) -> str:
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        return f"it refuses {', '.join(error.recipients)}"
    if isinstance(error, smtplib.SMTPAuthenticationError):
        return "it refuses user and password"
    if isinstance(error, smtplib.SMTPResponseException):
        text = error.smtp_error
        said = text.decode(errors="replace") if isinstance(text, bytes) else str(text)
        return f"{error.smtp_code} {said}"[:300]
    return str(error)[:300] or type(error).__name__
