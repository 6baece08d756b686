"""Proof of having a token, without showing it: a code of what was said, under the hash that the server keeps.

What must stay true: whoever has that hash could prove as much. So it is never sent as it is: not that of the token by
which an agent comes in, and not that of the credential which it makes itself by joining.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from typing import NamedTuple

PROOF = "Horae-Proof"  # header of the first message of an agent
_TOKEN = re.compile(r"horae_[aj]_([1-9][0-9]{0,17})_([A-Za-z0-9_-]{43})")
_PROOF = re.compile(r"([1-9][0-9]{0,17})\.([0-9a-f]{64})")


class HashedToken(NamedTuple):
    """What an agent needs of its token to prove that it has it."""

    token_id: int
    hash: str  # as the server keeps it


class Proof(NamedTuple):
    token_id: int
    code: str  # of `message`, under the hash of the token
    message: bytes


def hashed_token(token: str | None) -> HashedToken | None:
    found = _TOKEN.fullmatch(token or "")
    return HashedToken(int(found[1]), hashlib.sha256(found[2].encode()).hexdigest()) if found else None


def code_of(token_hash: str, message: bytes) -> str:
    return hmac.new(token_hash.encode(), message, "sha256").hexdigest()


def proof_header(token: HashedToken, message: bytes) -> str:
    return f"{token.token_id}.{code_of(token.hash, message)}"


def read_proof(header: str | None, message: bytes) -> Proof | None:
    found = _PROOF.fullmatch(header or "")
    return Proof(int(found[1]), found[2], message) if found else None


def veiled(hash: str, token_hash: str, line: str, key: str) -> str:
    """Return the hash of a new credential as only those can read it who know that of the token; veiled again, it is
    what it was. `line` and `key` are of one hello."""
    veil = hmac.digest(token_hash.encode(), b"\n".join((b"credential", line.encode(), key.encode())), "sha256")
    return bytes(one ^ other for one, other in zip(bytes.fromhex(hash), veil, strict=True)).hex()


def to_prove(line: str, key: str, frame: bytes) -> bytes:
    """Return what an agent proves to have said: where it is answered, with which key, and its hello."""
    return b"\n".join((line.encode(), key.encode(), frame))
