"""The commands about oneself: log in, log out, who one is, where one is logged in."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import click

from horae.cli.options import Argument
from horae.cli.screen import clean, local_time
from horae.cli.session import Session, command, credentials_path, listing
from horae.errors import Denied, Error

if TYPE_CHECKING:
    from horae.client import SyncClient

Json = dict[str, Any]

SLOWER = 5  # seconds longer between two questions, when asked to slow down
pause = time.sleep


def register(app: click.Group) -> None:
    command(app, "login", "horae login --server https://horae.example.com")(login)
    command(app, "logout", "horae logout --server https://horae.example.com")(logout)
    command(app, "whoami", "horae whoami")(whoami)
    group = listing(app, "sessions", "horae sessions")(sessions)
    command(group, "end", "horae sessions end 12")(end)


def login(session: Session) -> None:
    """Log in by a browser, and keep a token for this server.

    Shows a code. Open the page in any browser, log in as always, and type it. The token is kept in
    ~/.config/horae/credentials.json, which only you can read, and is used for this server from then on.
    """
    with _anonymous(session) as client:
        begun = client.json.begin_device()
        place = session.address_of("/device")  # of the server that was named, whatever its answer says
        session.screen.note(f"open {clean(place)} and type the code {clean(begun['user_code'])}")
        token = _wait_for_token(client, begun)
    from horae.cli import credentials  # with the few commands that use it

    credentials.save(credentials_path(), session.server, token["token"])
    if session.as_json:
        session.screen.json({name: value for name, value in token.items() if name != "token"})
        return
    until = f", until {local_time(token['expires_at'])}" if token["expires_at"] else ""
    session.screen.line(f"logged in to {clean(session.server)} as {clean(token['owner'])} ({token['role']}){until}")


def _anonymous(session: Session) -> SyncClient:
    from horae.client import SyncClient  # not needed to start

    return SyncClient(
        session.server, None, insecure=session.insecure, ca_file=session.ca_file, cert_file=session.cert_file
    )


def _wait_for_token(client: SyncClient, begun: Json) -> Json:
    """Ask as often as the server allows, until somebody has decided or the code is over."""
    interval, waited = max(1, int(begun["interval"])), 0.0
    while waited < float(begun["expires_in"]):
        pause(interval)
        waited += interval
        try:
            found: Json = client.json.fetch_device_token(begun["device_code"])
            return found
        except Error as error:
            if error.code == "E_DEVICE_SLOW_DOWN":
                interval += SLOWER
            elif error.code != "E_DEVICE_PENDING":
                raise
    raise Denied("nobody confirmed the code in time", code="E_DEVICE_EXPIRED", hint="run `horae login` again")


def logout(session: Session) -> None:
    """Forget the token that is kept for this server, and revoke it there if it may."""
    from horae.cli import credentials

    token = credentials.saved(credentials_path(), session.server)
    if token is None:
        raise Error(f"no token is kept for {session.server}", hint="`horae whoami` says who you are there")
    revoked = _revoke(session, token)
    credentials.save(credentials_path(), session.server, None)
    if session.as_json:
        session.screen.json({"server": session.server, "is_revoked": revoked})
    else:
        session.screen.line(f"logged out of {clean(session.server)}")


def _revoke(session: Session, token: str) -> bool:
    """What cannot be revoked now ends by itself."""
    from horae.client import SyncClient

    try:
        with SyncClient(
            session.server, token, insecure=session.insecure, ca_file=session.ca_file, cert_file=session.cert_file
        ) as client:
            client.json.revoke_own_token()
    except Error as error:
        session.screen.note(f"the token could not be revoked: {clean(error.message)}")
        return False
    return True


def whoami(session: Session) -> None:
    """Tell who one is for the server, and by what."""
    with session.client() as client:
        found = client.json.me()
    if session.as_json:
        session.screen.json(found)
        return
    others = [str(org) if org else "any" for org in found.get("orgs", ()) if org != found["org"]]
    also = f"; --org goes on in {', '.join(others)}" if others else ""
    where = f"{found['role']} in organisation {found['org']}"
    session.screen.line(f"{clean(found['name'])}: {where}, by {found['via']}{also}")


def sessions(session: Session) -> None:
    """List where one is logged in with a browser, newest first."""
    with session.client() as client:
        page = client.json.sessions()
    if session.as_json:
        session.screen.json(page)
        return
    rows = [
        [str(it["id"]), it["address"], it["agent"][:40], local_time(it["created_at"]), local_time(it["seen_at"]),
         local_time(it["expires_at"]), "this one" if it["is_current"] else ""]
        for it in page["items"]
    ]  # fmt: skip
    columns = [">id", "from", "with??", "since??", "seen", "ends??", ""]
    session.screen.table(columns, rows, "no browser is logged in as you")


def end(
    session: Session, number: Annotated[int, Argument(metavar="SESSION", min=1, help="Id of a session of yours.")]
) -> None:
    """End a session of one's own: every node refuses it within 5 seconds."""
    with session.client() as client:
        client.json.end_session(number)
    if session.as_json:
        session.screen.json({"id": number, "state": "ended"})
    else:
        session.screen.line(f"session {number} is ended")
