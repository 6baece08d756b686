"""What a server keeps of the secret of an agent: enough to know it again, too little to come in with.

    secret of now       42 random characters and a `2`  ──►  ed25519:<public key>, whose private key the secret makes
    secret of before    43 characters for 32 bytes      ──►  <SHA-256>

Both ends see by the secret which it is: of 43 characters that stand for 32 bytes the last is one of sixteen, and `2`
is none of them. So what knows tokens by their form knows both.

What must stay true: from what is kept of a secret of now follow neither the secret nor a signature; neither kind is
ever taken for the other, whatever a row or a caller says.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

MARK = "2"  # in which no secret of before ends
SIGNATURE = 128  # hexadecimal digits
_PREFIX = "ed25519:"
_KEPT = re.compile(rf"(?:{_PREFIX})?[0-9a-f]{{64}}")
_DERIVED, _SAID = b"horae: the key of an agent", b"horae: an agent says\n"  # what a secret, and its key, are used for
_NOBODY = "58" + "66" * 31  # a key that is looked at in the place of one that is not there


def new_secret() -> str:
    return secrets.token_urlsafe(31) + MARK


def is_of_now(secret: str) -> bool:
    return secret.endswith(MARK)


def kept_of(secret: str) -> str:
    """Return what a server keeps of a secret of an agent, of either kind."""
    if not is_of_now(secret):
        return hashlib.sha256(secret.encode()).hexdigest()
    return _PREFIX + _key_of(secret).public_key().public_bytes_raw().hex()


def is_kept(text: str) -> bool:
    """Return whether this could be kept of a secret."""
    return _KEPT.fullmatch(text) is not None


def is_verifier(kept: str) -> bool:
    """Return whether it is of a secret of now, so that nobody comes in by it."""
    return kept.startswith(_PREFIX)


def digits_of(kept: str) -> tuple[str, str]:
    """Return it as the word before its digits, and those."""
    return (_PREFIX, kept.removeprefix(_PREFIX)) if is_verifier(kept) else ("", kept)


def sign(secret: str, message: bytes) -> str:
    """Return what shows whoever has the verifier that this was said by who has the secret."""
    return _key_of(secret).sign(_SAID + message).hex()


def is_signed(kept: str, signature: str, message: bytes) -> bool:
    """Return whether a verifier says so. Of what is none, that takes as long."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey  # slow to load

    key = digits_of(kept)[1] if is_verifier(kept) else _NOBODY
    try:
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(key)).verify(bytes.fromhex(signature), _SAID + message)
    except (ValueError, InvalidSignature):
        return False
    return is_verifier(kept)


def _key_of(secret: str) -> Ed25519PrivateKey:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # slow to load

    return Ed25519PrivateKey.from_private_bytes(hmac.digest(_DERIVED, secret.encode(), "sha256"))
