"""The behaviour of tests/contract/test_event_log.py, through a pooler."""

from tests.contract.test_event_log import *  # noqa: F403
