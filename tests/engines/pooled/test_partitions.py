"""The behaviour of tests/contract/test_partitions.py, through a pooler."""

from tests.contract.test_partitions import *  # noqa: F403
