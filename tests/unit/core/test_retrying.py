"""Whether an exception is worth another attempt."""

from __future__ import annotations

import pytest

from horae.core.runs.retrying import Choice, Judgement, judge

TIMEOUT = ["TimeoutError", "OSError", "Exception", "BaseException"]
REFUSED = ["requests.exceptions.ConnectionError", "requests.exceptions.RequestException", "OSError", "Exception"]


@pytest.mark.parametrize(
    ("classes", "on", "never", "judged"),
    [
        (TIMEOUT, (), (), Judgement(True)),
        (TIMEOUT, ("TimeoutError",), (), Judgement(True, "retry.on has TimeoutError")),
        (TIMEOUT, ("OSError",), (), Judgement(True, "retry.on has OSError")),
        (TIMEOUT, ("ValueError", "KeyError"), (), Judgement(False, "retry.on has only ValueError, KeyError")),
        (TIMEOUT, (), ("OSError",), Judgement(False, "retry.never has OSError")),
        (TIMEOUT, (), ("ValueError",), Judgement(True)),
        (TIMEOUT, ("TimeoutError",), ("OSError",), Judgement(True, "retry.on has TimeoutError")),
        (TIMEOUT, ("OSError",), ("TimeoutError",), Judgement(False, "retry.never has TimeoutError")),
        (REFUSED, ("requests.ConnectionError",), (), Judgement(True, "retry.on has requests.ConnectionError")),
        (REFUSED, ("ConnectionError",), (), Judgement(True, "retry.on has ConnectionError")),
        (REFUSED, ("other.ConnectionError",), (), Judgement(False, "retry.on has only other.ConnectionError")),
        (REFUSED, ("request.ConnectionError",), (), Judgement(False, "retry.on has only request.ConnectionError")),
    ],
)
def test_the_nearest_class_that_is_named_decides(
    classes: list[str], on: tuple[str, ...], never: tuple[str, ...], judged: Judgement
) -> None:
    assert judge(classes, Choice(on, never)) == judged
