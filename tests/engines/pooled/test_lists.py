"""The behaviour of tests/contract/test_lists.py, through a pooler."""

from tests.contract.test_lists import *  # noqa: F403
