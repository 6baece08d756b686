"""The behaviour of tests/contract/test_datawork.py, through a pooler."""

from tests.contract.test_datawork import *  # noqa: F403
