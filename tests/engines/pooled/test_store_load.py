"""The behaviour of tests/contract/test_store_load.py, through a pooler."""

from tests.contract.test_store_load import *  # noqa: F403
