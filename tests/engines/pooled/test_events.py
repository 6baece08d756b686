"""The behaviour of tests/contract/test_events.py, through a pooler."""

from tests.contract.test_events import *  # noqa: F403
