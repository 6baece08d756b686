"""How what a handler logs looks in its run's output: one form for every library, to be read and to be searched.

2026-01-31T08:00:00.123Z INFO name: text
"""

from __future__ import annotations

import logging
import re
import traceback
from datetime import UTC, datetime
from types import TracebackType
from typing import Any

# What stands above an author's first frame: the call of a handler, or the import of its module.
_OURS = (
    "horae/executors/handlers/worker.py",
    "horae/executors/handlers/python.py",
    "horae/context/signatures.py",
    "horae/discovery.py",
    "horae/handlers.py",
    "horae/injection.py",
    "importlib/__init__.py",
)

_PACKAGE = re.compile(r"horae_jobs_\w+\.")  # of the jobs directory, which authors do not know by this name


class Lines(logging.Formatter):
    def __init__(self, ending: str = "") -> None:
        super().__init__(f"%(asctime)s %(levelname)s %(name)s: %(message)s{ending}")

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        return f"{datetime.fromtimestamp(record.created, UTC):%Y-%m-%dT%H:%M:%S}.{int(record.msecs):03d}Z"

    def formatMessage(self, record: logging.LogRecord) -> str:
        line = super().formatMessage(record)
        return _PACKAGE.sub("", line, count=1) if _PACKAGE.match(record.name) else line

    def formatException(self, ei: Any) -> str:
        return traceback_text(ei[1]).rstrip("\n")


def traceback_text(error: BaseException) -> str:
    """Return the traceback of an error from its author's first frame on."""
    return "".join(traceback.format_exception(type(error), error, _from_author(error.__traceback__)))


def _from_author(trace: TracebackType | None) -> TracebackType | None:
    while trace is not None and trace.tb_next is not None and _is_ours(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    return trace


def _is_ours(file: str) -> bool:
    return file.startswith("<frozen importlib") or file.endswith(_OURS)
