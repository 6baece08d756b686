"""The behaviour of tests/contract/test_notes.py, through a pooler."""

from tests.contract.test_notes import *  # noqa: F403
