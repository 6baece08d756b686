"""The behaviour of tests/contract/test_store.py, through a pooler."""

from tests.contract.test_store import *  # noqa: F403
