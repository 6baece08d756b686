"""A server that kills itself at a certain line: SIGKILL, from within, where nobody could hit it from outside.

    python -m tests.acceptance.doomed MARK POINT up …

POINT is `method:before:2` or `method:after:1`: a method of the store, and of which of its calls. What it was is written
to the file MARK first, so that a test knows that the kill did happen, and where. Calls that found nothing to do do not
count after they have returned.
"""

from __future__ import annotations

import functools
import inspect
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from horae.cli import main
from horae.core.runs.inbox import Drained
from horae.core.runs.orders import Swept
from horae.stores.postgres import PostgresStore
from horae.stores.sqlite import SqliteStore


class Doom:
    def __init__(self, mark: Path, point: str) -> None:
        self._mark, self._point = mark, point
        self.method, self._when, number = point.split(":")
        self._left = int(number)

    def pass_by(self, when: str, result: Any = True) -> None:
        is_idle = (isinstance(result, Swept) and not result.queued) or (isinstance(result, Drained) and not result.runs)
        if when != self._when or is_idle:
            return
        self._left -= 1
        if self._left == 0:
            self._mark.write_text(self._point)
            os.kill(os.getpid(), signal.SIGKILL)

    def around(self, method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        async def awaited(*args: Any, **named: Any) -> Any:
            self.pass_by("before")
            result = await method(*args, **named)
            self.pass_by("after", result)
            return result

        @functools.wraps(method)
        def called(*args: Any, **named: Any) -> Any:
            self.pass_by("before")
            result = method(*args, **named)
            self.pass_by("after", result)
            return result

        return awaited if inspect.iscoroutinefunction(method) else called


if __name__ == "__main__":
    doom = Doom(Path(sys.argv[1]), sys.argv[2])
    for store in (PostgresStore, SqliteStore):
        if hasattr(store, doom.method):
            setattr(store, doom.method, doom.around(getattr(store, doom.method)))
    sys.argv = ["horae", *sys.argv[3:]]
    main()
