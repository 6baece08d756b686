"""The behaviour of tests/contract/test_claims.py, through a pooler."""

from tests.contract.test_claims import *  # noqa: F403
