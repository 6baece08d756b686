"""The behaviour of tests/contract/test_untold.py, through a pooler."""

from tests.contract.test_untold import *  # noqa: F403
