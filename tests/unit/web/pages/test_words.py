"""How pages say things: on the server and in scripts alike."""

from __future__ import annotations

import re
from pathlib import Path

from horae.core.model import Reason
from horae.core.runs.wording import say_reason
from horae.web import pages


def test_scripts_say_reasons_as_the_server_does() -> None:
    script = (Path(pages.__file__).parent / "static" / "words.js").read_text()
    [told] = re.findall(r"const REASONS = \{(.*?)\};", script, re.DOTALL)
    scripts = dict(re.findall(r'(\w+): "([^"]*)"', told))
    assert scripts == {each: said for each in Reason if (said := say_reason(each)) != each.replace("_", " ")}


def test_every_reason_is_said_in_small_words() -> None:
    assert say_reason(Reason.NONE) == ""
    assert all(re.fullmatch(r"[a-z ]+", say_reason(each)) for each in Reason if each)
