"""The behaviour of tests/contract/test_views.py, through a pooler."""

from tests.contract.test_views import *  # noqa: F403
