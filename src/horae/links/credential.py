"""The credential that an agent has of its own, in a file of its data directory that nobody else reads.

    join token given ──► a secret is made and kept ──► hello with its verifier ──► the id is kept: joined
    renewal is due   ──► a secret is made and kept ──► its verifier is sent    ──► answered: it is ours from now on

What must stay true: a secret is on disk before anybody hears of it, and nobody hears more than a verifier of it. So
whenever we are killed, the next start finds what the server may know, and says the same again. A join token that is
not the one we joined by is a new one: it is used, and what we had is kept until it has worked. One of before was made
by a server that may know hashes alone (horae.verifiers): it makes a secret of before, and the next renewal one of now.
"""

from __future__ import annotations

import os
import re
import secrets
from pathlib import Path

import msgspec
import structlog

from horae import verifiers
from horae.errors import ConfigError, Error

log = structlog.get_logger()

_JOIN = re.compile(r"horae_j_([1-9][0-9]{0,17})_([A-Za-z0-9_-]{43})")


class Kept(msgspec.Struct, omit_defaults=True):
    """What the file has."""

    join: int = 0  # the join token that made `token`
    token: str = ""
    next_secret: str = ""  # of the same token, when it is renewed
    joining: int = 0  # the join token that is to make another
    secret: str = ""  # of that other


class OwnCredential:
    def __init__(self, file: Path, join: str | None) -> None:
        """`join` is a token to join by, if one was given; it may be the one that was used long ago."""
        self._file = file
        self._kept = _read(file)
        self._join = ""
        if join is not None:
            self._begin_joining(join)
        elif not self._kept.token:
            raise ConfigError(
                f"{file} has no credential: this agent never joined",
                code="E_JOIN_TOKEN",
                hint="make a token with `horae nodes join-token NODE`, and give it with --join",
            )

    def _begin_joining(self, join: str) -> None:
        found = _JOIN.fullmatch(join)
        if found is None:
            raise ConfigError(
                "--join needs a join token, horae_j_…", code="E_JOIN_TOKEN", hint="`horae nodes join-token` makes one"
            )
        number = int(found[1])
        if number == self._kept.join:
            return
        self._join = join
        if number != self._kept.joining:
            is_of_now = verifiers.is_of_now(found[2])
            self._kept.joining = number
            self._kept.secret = verifiers.new_secret() if is_of_now else secrets.token_urlsafe(32)
            self._write()

    @property
    def token(self) -> str:
        """What we come in with."""
        return self._join or self._kept.token

    @property
    def hash(self) -> str:
        """What a server is to keep of the secret that we want to have, while we join."""
        return verifiers.kept_of(self._kept.secret) if self._join else ""

    def take(self, token_id: int) -> None:
        """We have joined. Should the disk be full just now, the next start joins again, to the same effect."""
        kept = self._kept
        self._kept = Kept(kept.joining, f"horae_a_{token_id}_{kept.secret}")
        self._join = ""
        try:
            self._write()
        except Error as error:
            log.warning("credential.unwritten", error=error.message)

    def make_next(self) -> str:
        """Return the verifier of our next secret: the same until it is ours. One of before that never came to be ours
        gives way: what we have is good until the next was used."""
        if not verifiers.is_of_now(self._kept.next_secret):
            self._kept.next_secret = verifiers.new_secret()
            self._write()
        return verifiers.kept_of(self._kept.next_secret)

    def take_next(self) -> None:
        """The server knows it: from here on it is what we come in with."""
        kept = self._kept
        number = kept.token.split("_")[2]
        self._kept = Kept(kept.join, f"horae_a_{number}_{kept.next_secret}")
        try:
            self._write()
        except BaseException:
            self._kept = kept
            raise

    def _write(self) -> None:
        part = self._file.with_suffix(".part")
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            opened = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            with os.fdopen(opened, "wb") as file:
                file.write(msgspec.json.encode(self._kept))
                file.flush()
                os.fsync(opened)
            part.replace(self._file)
            directory = os.open(self._file.parent, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)
        except OSError as error:
            raise Error(f"{self._file} cannot be written: {error.strerror}", code="E_FILE") from None


def _read(file: Path) -> Kept:
    try:
        return msgspec.json.decode(file.read_bytes(), type=Kept)
    except FileNotFoundError:
        return Kept()
    except OSError as error:
        raise Error(f"{file} cannot be read: {error.strerror}", code="E_FILE") from None
    except msgspec.DecodeError:
        raise ConfigError(
            f"{file} is not a credential that Horae wrote", code="E_FILE",
            hint="remove it, and join again with `horae nodes join-token NODE` and --join",
        ) from None  # fmt: skip
