"""What is kept of the secrets of agents: who has a secret proves it, who has what is kept of it does not."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from hypothesis import given
from hypothesis import strategies as st

from horae import verifiers
from horae.wire.nats.proofs import Proof, own_token, proof_header, read_proof, veiled

SECRETS = st.text("ABCabc019_-", min_size=42, max_size=42)
OF_NOW, OF_BEFORE = SECRETS.map(lambda it: f"{it}2"), SECRETS.map(lambda it: f"{it}w")
ORDER = 2**252 + 27742317777372353535851937790883648493  # of the curve (RFC 8032)
ANY_SECRET = OF_NOW | OF_BEFORE


def proved(secret: str, message: bytes) -> Proof:
    own = own_token(f"horae_a_7_{secret}")
    assert own is not None
    proof = read_proof(proof_header(own, message), message)
    assert proof is not None
    return proof


def test_a_secret_is_told_by_its_text_and_its_token_has_the_form_that_scanners_know() -> None:
    for _ in range(300):
        now, before = verifiers.new_secret(), secrets.token_urlsafe(32)
        assert re.fullmatch(r"[A-Za-z0-9_-]{43}", now)
        assert verifiers.is_of_now(now)
        assert not verifiers.is_of_now(before)
    assert verifiers.kept_of(before) == hashlib.sha256(before.encode()).hexdigest()
    assert verifiers.is_kept(verifiers.kept_of(now))
    assert not verifiers.is_verifier(verifiers.kept_of(before))


@given(ANY_SECRET, ANY_SECRET, st.binary(max_size=99), st.binary(max_size=99))
def test_S39_a_proof_is_good_for_its_secret_and_its_message_and_nothing_else(
    secret: str, other: str, message: bytes, said: bytes
) -> None:
    proof = proved(secret, message)

    assert (proof.token_id, proof.is_signature) == (7, verifiers.is_of_now(secret))
    assert proof.is_of(verifiers.kept_of(secret))
    assert proof.is_of(verifiers.kept_of(other)) == (secret == other)
    assert proof._replace(message=said).is_of(verifiers.kept_of(secret)) == (said == message)


@given(OF_NOW, st.binary(max_size=99))
def test_S39_by_what_is_kept_of_a_secret_of_now_nobody_makes_a_proof(secret: str, message: bytes) -> None:
    kept = verifiers.kept_of(secret)
    digits = kept.removeprefix("ed25519:")
    keys = [kept.encode(), digits.encode(), bytes.fromhex(digits)]
    keys += [hashlib.sha256(key).digest() for key in keys]

    codes = [hmac.new(key, message, "sha256").hexdigest() for key in keys]
    seeds = [key for key in keys if len(key) == 32]
    codes += [Ed25519PrivateKey.from_private_bytes(seed).sign(message).hex() for seed in seeds]
    codes += [verifiers.sign(text, message) for text in (kept, digits, digits[:43], digits[-43:])]
    codes += ["00" * 64, digits + "00" * 32, "01" + "00" * 63]

    assert [code for code in codes if Proof(7, code, message).is_of(kept)] == []
    assert kept not in [verifiers.kept_of(text) for text in (kept, digits, f"{digits[:42]}2")]


def signed_by_one(message: bytes) -> str:
    """Return a signature by the key of which the secret half is 1, which is looked at in the place of none."""
    key, nothing = bytes.fromhex("58" + "66" * 31), bytes([1]) + bytes(31)
    said = int.from_bytes(hashlib.sha512(nothing + key + message).digest(), "little") % ORDER
    signature = nothing + said.to_bytes(32, "little")
    Ed25519PublicKey.from_public_bytes(key).verify(signature, message)
    return signature.hex()


@given(OF_BEFORE, st.binary(max_size=99))
def test_a_hash_of_before_is_no_key_of_a_signature(secret: str, message: bytes) -> None:
    kept = verifiers.kept_of(secret)
    assert not Proof(7, signed_by_one(b"horae: an agent says\n" + message), message).is_of(kept)
    for text in (kept, f"{kept[:42]}2", secret):
        assert not Proof(7, verifiers.sign(text, message), message).is_of(kept)


@given(ANY_SECRET, ANY_SECRET)
def test_what_is_veiled_is_read_by_who_knows_what_is_kept(made: str, secret: str) -> None:
    kept, known = verifiers.kept_of(made), verifiers.kept_of(secret)
    hidden = veiled(kept, known, "line", "key")

    assert hidden != kept
    assert verifiers.is_kept(hidden)
    assert veiled(hidden, known, "line", "key") == kept
    assert veiled(hidden, known, "line", "other") != kept


@pytest.mark.parametrize("broken", ["", "7", "7.", "0.ab", "7." + "a" * 63, "7." + "a" * 65, "7." + "g" * 128])
def test_what_is_no_proof_is_none(broken: str) -> None:
    assert read_proof(broken, b"") is None
