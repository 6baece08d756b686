"""The behaviour of tests/contract/test_sessions.py, through a pooler."""

from tests.contract.test_sessions import *  # noqa: F403
