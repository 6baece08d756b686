"""What a writer most likely meant, for hints in refusals."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable


def suggest(word: str, known: Iterable[str], show: Callable[[str], str] = str) -> str:
    """Return `did you mean X?` with the known word nearest to this one, however either is capitalised; or nothing."""
    names = {name.lower(): name for name in reversed(list(known))}  # of two that differ in case only, the first
    close = difflib.get_close_matches(word[:64].lower(), names, 1, 0.6)
    return f"did you mean {show(names[close[0]])}?" if close else ""
