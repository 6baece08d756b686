"""Proof of having a token, without showing it: a signature of what was said, by the key that its secret makes.

Tokens of before (horae.verifiers) are proved by a code of it, under the hash that the server keeps: whoever has that
hash can prove as much. So what is kept of a token is never sent as it is: neither of the one by which an agent comes
in, nor of the credential which it makes itself by joining.

What must stay true: a verifier is no key of a code, and a hash none of a signature.
"""

from __future__ import annotations

import hmac
import re
from dataclasses import dataclass, field
from typing import NamedTuple

from horae.verifiers import SIGNATURE, digits_of, is_of_now, is_signed, is_verifier, kept_of, sign

PROOF = "Horae-Proof"  # header of the first message of an agent
_TOKEN = re.compile(r"horae_[aj]_([1-9][0-9]{0,17})_([A-Za-z0-9_-]{43})")
_PROOF = re.compile(rf"([1-9][0-9]{{0,17}})\.([0-9a-f]{{64}}|[0-9a-f]{{{SIGNATURE}}})")


@dataclass(frozen=True, slots=True)
class OwnToken:
    """What an agent needs of its token to prove that it has it."""

    token_id: int
    secret: str = field(repr=False)
    kept: str = field(repr=False)  # by the server


class Proof(NamedTuple):
    token_id: int
    code: str  # of `message`: a signature, or a code under the hash of a token of before
    message: bytes

    @property
    def is_signature(self) -> bool:
        return len(self.code) == SIGNATURE

    def is_of(self, kept: str) -> bool:
        """Return whether it was made by who has the secret of which this is kept."""
        if self.is_signature:
            return is_signed(kept, self.code, self.message)
        is_right = hmac.compare_digest(_code_of(kept, self.message), self.code)
        return is_right and not is_verifier(kept)


def own_token(text: str | None) -> OwnToken | None:
    found = _TOKEN.fullmatch(text or "")
    return OwnToken(int(found[1]), found[2], kept_of(found[2])) if found else None


def proof_header(token: OwnToken, message: bytes) -> str:
    code = sign(token.secret, message) if is_of_now(token.secret) else _code_of(token.kept, message)
    return f"{token.token_id}.{code}"


def read_proof(header: str | None, message: bytes) -> Proof | None:
    found = _PROOF.fullmatch(header or "")
    return Proof(int(found[1]), found[2], message) if found else None


def veiled(made: str, known: str, line: str, key: str) -> str:
    """Return what a server is to keep of a new credential as only those can read it who know what it keeps of the
    token; veiled again, it is what it was. `line` and `key` are of one hello. ValueError: it cannot be kept."""
    veil = hmac.digest(known.encode(), b"\n".join((b"credential", line.encode(), key.encode())), "sha256")
    prefix, digits = digits_of(made)
    return prefix + bytes(one ^ other for one, other in zip(bytes.fromhex(digits), veil, strict=True)).hex()


def to_prove(line: str, key: str, frame: bytes) -> bytes:
    """Return what an agent proves to have said: where it is answered, with which key, and its hello."""
    return b"\n".join((line.encode(), key.encode(), frame))


def _code_of(hash: str, message: bytes) -> str:
    return hmac.new(hash.encode(), message, "sha256").hexdigest()
