"""What an attempt may say of its end: text, JSON and moments that every store can keep and every page can show.

What must stay true: nothing here raises, whatever it is given; what work says is never quoted where a fault is named,
because it may hold secrets.
"""

from __future__ import annotations

import math
import re
from itertools import accumulate

from horae.core.model import SECOND, Moment

MAX_MESSAGE = 4096  # characters
MAX_RESULT = 2 << 20  # bytes of JSON; half of what one frame of a line may hold
MAX_CURSOR = 64 << 10
MAX_DEPTH = 200  # levels of JSON: whoever reads it may stand on a deep stack already
MAX_WAIT = 366 * 86_400.0  # seconds
EXIT_CODES = range(-64, 256)  # negative: the signal that ended it
LAST_MOMENT = 253_402_300_800 * SECOND - 1  # of the year 9999

# What no store keeps, and what a terminal would obey: all controls but the end of a line and the tab.
_UNKEPT = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")
_PAIR = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}")
_HALF = re.compile(r"(?<!\\)(?:\\\\)*\\u[dD][89a-fA-F]")
_STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")  # one level down, one level up
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


def clean(text: str, limit: int = MAX_MESSAGE) -> str:
    """As much of a text as can be kept, and shown anywhere."""
    return _UNKEPT.sub("\N{REPLACEMENT CHARACTER}", text[:limit].replace("\r\n", "\n"))


def fault_of(text: str, limit: int) -> str:
    """Why this JSON cannot be kept, or nothing; whether it is JSON is left to who can parse."""
    try:
        data = text.encode()
    except UnicodeEncodeError:
        return "holds half of a surrogate pair"
    if len(data) > limit:
        return f"is {len(data):,} bytes of JSON, more than the {limit:,} that are kept"
    if is_deep(data):
        return f"is nested deeper than {MAX_DEPTH} levels"
    if "\\u" not in text:
        return ""
    if _NUL.search(text):
        return "holds the character NUL"
    return "holds half of a surrogate pair" if _HALF.search(_PAIR.sub("", text)) else ""


def is_deep(data: bytes) -> bool:
    """Return whether brackets nest deeper than allowed, found without parsing."""
    if data.count(b"[") + data.count(b"{") <= MAX_DEPTH:
        return False
    without_escapes = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    outside_strings = b"".join(without_escapes.split(b'"')[::2])
    steps = memoryview(outside_strings.translate(_STEPS, _NO_BRACKETS)).cast("b")
    return max(accumulate(steps), default=0) > MAX_DEPTH


def is_wait(seconds: float) -> bool:
    """Return whether these are seconds that one can wait."""
    return math.isfinite(seconds) and seconds >= 0


def believable(moment: Moment | None) -> Moment | None:
    """Return a moment by another clock, if a clock can say it."""
    return moment if moment is not None and 0 <= moment <= LAST_MOMENT else None
