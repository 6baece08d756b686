"""Channels against real receivers: HTTP, SMTP, a program."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from email import message_from_bytes
from email.message import Message
from email.policy import default
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.smtp import SMTP, AuthResult, LoginPassword

from horae.app.alerts import GuardedPost, used_disk
from horae.channels import commands
from horae.channels.tellers import Tellers
from horae.core.alerts.channels import Channel
from horae.core.alerts.messages import compose_test
from horae.core.hooks import Call, check_signature
from horae.core.model import SECOND
from horae.executors.http.connections import Connections
from horae.executors.reach import Reach
from horae.ports.alerts import Undelivered
from horae.testing import FakeClock

from ..certificates import make_certificate

MESSAGE = compose_test("ops", 0) | {"title": "night: job nightly (1) failed", "rule": "night"}
LOOPBACK = [("127.0.0.0/8", None)]


class Receiver:
    """A server that takes requests, and answers as it is told."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, dict[str, str], bytes]] = []
        self.answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
        self.port = 0

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:] if line)}
        body = await reader.readexactly(int(headers["content-length"]))
        self.calls.append((head[0], headers, body))
        writer.write(self.answer)
        await writer.drain()
        writer.close()


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    made = Receiver()
    server = await asyncio.start_server(made.handle, "127.0.0.1", 0)
    made.port = server.sockets[0].getsockname()[1]
    yield made
    server.close()
    await server.wait_closed()


def tellers(clock: FakeClock, *, allowed: Any = LOOPBACK, **given: Any) -> Tellers:
    reach = Reach([], allowed, is_public_only=True)
    return Tellers(GuardedPost(Connections(reach)), clock, **given)


async def test_a_webhook_gets_the_message_signed_with_its_key(receiver: Receiver, clock: FakeClock) -> None:
    channel = Channel("ops", "webhook", f"http://127.0.0.1:{receiver.port}/a?b=c", {"secret": "S"})
    await tellers(clock).send(channel, {"S": "hush"}, MESSAGE, "here.1")
    [(line, headers, body)] = receiver.calls
    assert line == "POST /a?b=c HTTP/1.1"
    assert json.loads(body) == MESSAGE | {"id": "here.1"}
    assert headers["idempotency-key"] == "here.1"
    check_signature("plain", "hush", Call(headers, body), clock.now() / SECOND)
    assert "hush" not in str(receiver.calls)


async def test_the_address_may_be_a_secret(receiver: Receiver, clock: FakeClock) -> None:
    channel = Channel("ops", "webhook", {"secret": "URL"})
    await tellers(clock).send(channel, {"URL": f"http://127.0.0.1:{receiver.port}/"}, MESSAGE, "k")
    assert len(receiver.calls) == 1
    for bad in ("http://127.0.0.1/\r\nX: y", "file:///etc/passwd", "http://user:hush@127.0.0.1/", ""):
        with pytest.raises(Undelivered) as caught:
            await tellers(clock).send(channel, {"URL": bad}, MESSAGE, "k")
        assert "hush" not in caught.value.message


async def test_slack_and_teams_get_their_own_form(receiver: Receiver, clock: FakeClock) -> None:
    for kind in ("slack", "teams"):
        url = f"http://127.0.0.1:{receiver.port}/{kind}"
        await tellers(clock).send(Channel("c", kind, {"secret": "U"}), {"U": url}, MESSAGE, "k")
    slack, teams = (json.loads(body) for _, _, body in receiver.calls)
    assert slack["text"].startswith("night: job nightly (1) failed\n")
    card = teams["attachments"][0]
    assert (teams["type"], card["contentType"]) == ("message", "application/vnd.microsoft.card.adaptive")
    assert card["content"]["body"][0]["text"].startswith("night: job nightly")


@pytest.mark.parametrize("status", [301, 404, 500])
async def test_any_other_answer_is_a_message_that_was_not_taken(
    receiver: Receiver, clock: FakeClock, status: int
) -> None:
    receiver.answer = b"HTTP/1.1 %d X\r\nLocation: http://127.0.0.1/\r\nContent-Length: 4\r\n\r\nnope" % status
    channel = Channel("ops", "webhook", f"http://127.0.0.1:{receiver.port}/")
    with pytest.raises(Undelivered, match=f"the answer is {status}: nope"):
        await tellers(clock).send(channel, {}, MESSAGE, "k")
    assert len(receiver.calls) == 1  # and it is followed nowhere


@pytest.mark.parametrize("answer", [b"", b"garbage\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx"])
async def test_a_broken_answer_is_a_message_that_may_not_be_taken(
    receiver: Receiver, clock: FakeClock, answer: bytes
) -> None:
    receiver.answer = answer
    channel = Channel("ops", "webhook", f"http://127.0.0.1:{receiver.port}/")
    with pytest.raises(Undelivered):
        await tellers(clock).send(channel, {}, MESSAGE, "k")


@pytest.mark.parametrize(
    "url",
    ["http://127.0.0.1:{}/", "http://localhost:{}/", "http://[::1]:{}/", "http://169.254.169.254/", "http://10.0.0.1/",
     "http://[::ffff:127.0.0.1]:{}/", "http://0.0.0.0:{}/"],
)  # fmt: skip
async def test_what_jobs_may_not_reach_is_not_reached(receiver: Receiver, clock: FakeClock, url: str) -> None:
    channel = Channel("ops", "webhook", url.format(receiver.port))
    with pytest.raises(Undelivered, match="is not reached from here"):
        await tellers(clock, allowed=[]).send(channel, {}, MESSAGE, "k")
    assert receiver.calls == []


async def test_nobody_who_listens_is_told_so(clock: FakeClock, unused_port: int) -> None:
    channel = Channel("ops", "webhook", f"http://127.0.0.1:{unused_port}/")
    with pytest.raises(Undelivered, match="refuses connections"):
        await tellers(clock).send(channel, {}, MESSAGE, "k")


@pytest.fixture
def unused_port() -> int:
    from ..ports import free_port

    return free_port()


# ── mail ──


class Mailbox:
    """A handler of aiosmtpd that keeps what comes."""

    def __init__(self) -> None:
        self.mails: list[tuple[list[str], Message]] = []
        self.refuses = False

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        if self.refuses:
            return "451 later"
        self.mails.append((envelope.rcpt_tos, message_from_bytes(envelope.content, policy=default)))
        return "250 kept"


def _login(server: Any, session: Any, envelope: Any, mechanism: str, data: Any) -> AuthResult:
    is_known = isinstance(data, LoginPassword) and (data.login, data.password) == (b"ann", b"h@sh")
    return AuthResult(success=is_known, handled=False)


async def sent(
    clock: FakeClock, box: Mailbox, url: str, to: tuple[str, ...] = ("ops@example.org",), **about: Any
) -> None:
    """Send a mail to a server that is started for it."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: SMTP(box, loop=loop, **about), "127.0.0.1", 0)
    try:
        address = url.format(server.sockets[0].getsockname()[1])
        teller = tellers(clock, smtp_url=address, smtp_from="horae@example.org")
        await teller.send(Channel("mail", "email", to=to), {}, MESSAGE, "here.7")
    finally:
        server.close()
        await server.wait_closed()


async def test_a_mail_server_gets_one_mail_to_all(clock: FakeClock) -> None:
    box = Mailbox()
    await sent(clock, box, "smtp://127.0.0.1:{}", ("ops@example.org", "ann@example.org"))
    [(to, mail)] = box.mails
    assert to == ["ops@example.org", "ann@example.org"]
    assert mail["Subject"] == "[Horae] night: job nightly (1) failed"
    assert (mail["From"], mail["Message-ID"]) == ("horae@example.org", "<here.7@horae>")
    assert "rule: night" in str(mail.get_payload(decode=True))


@pytest.mark.filterwarnings("ignore:Requiring AUTH while not requiring TLS")  # that is what is tried
async def test_user_and_password_are_given_over_loopback_and_refused_ones_are_told(clock: FakeClock) -> None:
    box = Mailbox()
    login: dict[str, Any] = {"authenticator": _login, "auth_require_tls": False, "auth_required": True}
    await sent(clock, box, "smtp://ann:h%40sh@127.0.0.1:{}", **login)
    assert len(box.mails) == 1
    with pytest.raises(Undelivered, match="refuses user and password") as caught:
        await sent(clock, box, "smtp://ann:wrong@127.0.0.1:{}", **login)
    assert "wrong" not in caught.value.message


async def test_a_mail_server_whose_certificate_nobody_knows_gets_nothing(clock: FakeClock, tmp_path: Path) -> None:
    box, (cert, key) = Mailbox(), make_certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    with pytest.raises(Undelivered, match="certificate"):
        await sent(clock, box, "smtp://ann:h@127.0.0.1:{}", tls_context=context)
    assert box.mails == []


async def test_a_mail_server_that_refuses_is_told_in_its_words(clock: FakeClock, unused_port: int) -> None:
    box = Mailbox()
    box.refuses = True
    with pytest.raises(Undelivered, match="451 later"):
        await sent(clock, box, "smtp://127.0.0.1:{}")
    with pytest.raises(Undelivered, match="refused"):
        await tellers(clock, smtp_url=f"smtp://127.0.0.1:{unused_port}").send(
            Channel("m", "email", to=("a@example.org",)), {}, MESSAGE, "k"
        )
    with pytest.raises(Undelivered, match="smtp_url is not set"):
        await tellers(clock).send(Channel("m", "email", to=("a@example.org",)), {}, MESSAGE, "k")


# ── a command ──


def script(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


async def test_a_command_gets_the_message_on_its_input(clock: FakeClock, tmp_path: Path) -> None:
    program = script(tmp_path / "page", f'cat > {tmp_path}/got; echo "$HORAE_ALERT_RULE" > {tmp_path}/rule')
    await tellers(clock, commands={"page": program}).send(Channel("page", "command"), {}, MESSAGE, "k")
    assert json.loads((tmp_path / "got").read_text()) == MESSAGE | {"id": "k"}
    assert (tmp_path / "rule").read_text() == "night\n"


async def test_a_command_that_fails_hangs_or_is_missing_is_told(
    clock: FakeClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = {
        "fails": script(tmp_path / "fails", "echo no pager >&2; exit 3"),
        "missing": str(tmp_path / "missing"),
    }
    teller = tellers(clock, commands=programs)
    for name, words in (
        ("fails", "ended with 3: no pager"),
        ("missing", "cannot be run"),
        ("other", "no command other"),
    ):
        with pytest.raises(Undelivered, match=words):
            await teller.send(Channel(name, "command"), {}, MESSAGE, "k")
    monkeypatch.setattr(commands, "SECONDS", 0.2)
    hangs = tellers(clock, commands={"hangs": script(tmp_path / "hangs", "sleep 600 & sleep 600")})
    with pytest.raises(Undelivered, match="did not end"):
        await hangs.send(Channel("hangs", "command"), {}, MESSAGE, "k")


def test_how_full_a_disk_is_is_a_share(tmp_path: Path) -> None:
    assert 0.0 <= used_disk(tmp_path) <= 100.0
