"""The behaviour of tests/contract/test_search.py, through a pooler."""

from tests.contract.test_search import *  # noqa: F403
