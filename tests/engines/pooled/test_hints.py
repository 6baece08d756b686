"""The behaviour of tests/contract/test_hints.py, through a pooler."""

from tests.contract.test_hints import *  # noqa: F403
