"""Frames that nobody but the two ends of a line can read, change, repeat or leave out, whoever else uses the broker.

    agent ── hello, its key of this line, proof that it has its token ──►
          ◄── the server's key of this line, welcome (sealed) ──
    from then on everything is sealed, both ways

Keys are made for the line and forgotten with it (X25519); what the server keeps of the agent's token, which both ends
know and nobody else, is mixed into what comes of them, so that nobody can stand between the two. The token itself is
not sent (wire.nats.proofs). Who has read it in the database, and may publish to the broker, can answer an agent in the
place of a server; but not come in as that agent, and so not stand between the two.
What ends a line is not sealed: whoever can forge it can cut the line as well.
"""

from __future__ import annotations

import base64
import binascii
import struct

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

KEY = "Horae-Key"  # header of the first message each way
_NONCE = struct.Struct(">4xQ")


class Unsealed(Exception):
    """What came is not what the other end sealed, or not in its turn."""


class Keys:
    """Of one end, for one line."""

    def __init__(self) -> None:
        self._own = X25519PrivateKey.generate()
        self.text = base64.b64encode(self._own.public_key().public_bytes_raw()).decode()

    def box(self, other: str, known: str, line: str, *, is_agent: bool) -> Box:
        """`known` is what the server keeps of the token. Unsealed, where `other` is no key."""
        try:
            shared = self._own.exchange(X25519PublicKey.from_public_bytes(base64.b64decode(other, validate=True)))
        except (ValueError, binascii.Error):
            raise Unsealed("that is no key") from None
        ends = (self.text, other) if is_agent else (other, self.text)
        about = "\n".join(("horae line", line, *ends)).encode()
        made = HKDF(SHA256(), 64, known.encode(), about).derive(shared)
        up, down = made[:32], made[32:]
        return Box(up, down) if is_agent else Box(down, up)


class Box:
    """Seals what goes out and opens what comes in; each frame counts."""

    def __init__(self, out: bytes, in_: bytes) -> None:
        self._out = ChaCha20Poly1305(out)
        self._in = ChaCha20Poly1305(in_)
        self._sent = self._opened = 0

    def seal(self, frame: bytes) -> bytes:
        self._sent += 1
        return self._out.encrypt(_NONCE.pack(self._sent), frame, None)

    def open(self, sealed: bytes) -> bytes:
        try:
            frame = self._in.decrypt(_NONCE.pack(self._opened + 1), sealed, None)
        except InvalidTag:
            raise Unsealed("a frame that the other end did not send") from None
        self._opened += 1
        return frame
