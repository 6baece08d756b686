"""Our own log, when it holds words of others."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

PROGRAM = """
import structlog
from horae.app.process import set_up_logging
set_up_logging({form!r})
structlog.get_logger().info("agent.refused", node="\\x1b]0;mine\\x07\\x9b2J\\u202e", error="a\\nb forged=1")
"""


@pytest.mark.parametrize("form", ["text", "json"])
def test_S57_words_of_others_reach_the_log_without_control_characters(form: str):
    told = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(form=form)], capture_output=True, text=True, check=True
    ).stderr

    assert [character for character in told if not character.isprintable()] == ["\n"]
    assert "mine" in told
    if form == "json":
        assert json.loads(told)["error"] == "a\\nb forged=1"
