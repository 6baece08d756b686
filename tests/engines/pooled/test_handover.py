"""The behaviour of tests/contract/test_handover.py, through a pooler."""

from tests.contract.test_handover import *  # noqa: F403
