"""The behaviour of tests/contract/test_loans.py, through a pooler."""

from tests.contract.test_loans import *  # noqa: F403
