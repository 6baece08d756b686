"""What `make audit` finds, and what it may not mistake for a secret."""

from __future__ import annotations

import pytest

from tests.audit import find_secrets, secrets_in

SECRETS = [
    "-----BEGIN RSA PRIVATE " + "KEY-----\nMIIEpAIBAAKCAQEA7", "key = AKIA" + "IOSFODNN7EXAMPLE",
    "ghp_" + "a" * 36, "glpat-" + "b" * 20, "AIza" + "c" * 35, "horae_u_1_" + "d" * 43,
]  # fmt: skip


@pytest.mark.parametrize("text", SECRETS)
def test_a_secret_is_known_by_its_form(text: str):
    assert len(list(secrets_in(f"x = '{text}'\n"))) == 1


@pytest.mark.parametrize("text", ["horae_u_1_…", "-----BEGIN PRIVATE " + "KEY-----", "AKIA", "ghp_token", "password"])
def test_a_word_is_no_secret(text: str):
    assert list(secrets_in(text)) == []


def test_S54_the_repository_holds_none():
    assert find_secrets() == []
