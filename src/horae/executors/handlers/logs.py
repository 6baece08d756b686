"""What handlers log in a worker: every record goes to the output of the run that it comes from.

The level of the root logger decides what is logged, as everywhere in Python: INFO, unless HORAE_LOG_LEVEL or the author
says otherwise. A job may choose its own by HORAE_LOG_LEVEL in its `env`; while it runs the root lets as much through,
and the other runs of the process still get what they got.
"""

from __future__ import annotations

import logging
import os
import sys
from collections import Counter
from collections.abc import Callable, MutableMapping
from typing import Any, Protocol

from horae.context.lines import Lines

VARIABLE = "HORAE_LOG_LEVEL"


class Source(Protocol):
    """A run, as far as its log goes."""

    level: int | None  # that its job asked for

    def write(self, data: bytes) -> None: ...


class RunLogs(logging.Handler):
    def __init__(self, current: Callable[[], Source | None]) -> None:
        super().__init__()
        self._current = current
        self._usual = logging.INFO
        self._asked: Counter[int] = Counter()  # by runs under way that chose their own level
        self.setFormatter(Lines())

    def install(self) -> None:
        """Take what the root logger and `warnings` say."""
        root = logging.getLogger()
        root.setLevel(level_in(os.environ) or logging.INFO)
        root.addHandler(self)
        logging.captureWarnings(True)

    def begin(self, source: Source, env: dict[str, str]) -> None:
        """A run begins, its code is loaded: from now on as much is let through as it wants."""
        _adopt_structlog()
        source.level = level_in(env)
        if source.level is not None:
            self._change(source.level, 1)
        elif env.get(VARIABLE):
            text = f"{VARIABLE} is {env[VARIABLE]!r}: one of DEBUG, INFO, WARNING, ERROR, CRITICAL expected\n"
            source.write(text.encode("utf-8", "backslashreplace"))

    def end(self, source: Source) -> None:
        if source.level is not None:
            self._change(source.level, -1)
            source.level = None

    def _change(self, level: int, by: int) -> None:
        root = logging.getLogger()
        if not self._asked:
            self._usual = root.level
        self._asked[level] += by
        self._asked = +self._asked
        root.setLevel(min((self._usual, *self._asked)))

    def emit(self, record: logging.LogRecord) -> None:
        try:
            source = self._current()
            if self._asked and record.levelno < self._threshold(source):
                return
            line = self.format(record).rstrip("\n") + "\n"
            if source is None:
                sys.__stderr__.write(line)  # type: ignore[union-attr]
            else:
                source.write(line.encode("utf-8", "backslashreplace"))
        except Exception:
            self.handleError(record)

    def _threshold(self, source: Source | None) -> int:
        return self._usual if source is None or source.level is None else source.level


def level_in(env: MutableMapping[str, str] | dict[str, str]) -> int | None:
    return logging.getLevelNamesMapping().get(env.get(VARIABLE, "").upper())


def _adopt_structlog() -> None:
    """Let structlog, where the author's code uses it as it comes, say its lines through `logging`."""
    structlog = sys.modules.get("structlog")
    if structlog is None or structlog.is_configured():
        return
    structlog.configure(
        processors=[structlog.contextvars.merge_contextvars, structlog.stdlib.filter_by_level, _line],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
    )


def _line(logger: Any, method: str, event: MutableMapping[str, Any]) -> tuple[tuple[str], dict[str, Any]]:
    """Return an event of structlog as a call of `logging`: its text, then its fields."""
    said = {name: event.pop(name) for name in ("exc_info", "stack_info") if name in event}
    if method == "exception":
        said.setdefault("exc_info", True)
    text = " ".join([str(event.pop("event", "")), *(f"{name}={value!r}" for name, value in event.items())])
    return (text,), said
