"""The behaviour of tests/contract/test_late_frames.py, through a pooler."""

from tests.contract.test_late_frames import *  # noqa: F403
