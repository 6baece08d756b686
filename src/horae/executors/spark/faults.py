"""What went wrong, in one sentence that names the cause, holds no secret, and says whether a retry can help.

Foreign errors are recognised by their class's name and module: the libraries need not be there.
"""

from __future__ import annotations

import re

from horae.core.secrets.fields import masked
from horae.errors import Error, Invalid

MAX_MESSAGE = 600  # characters

# Conditions of Spark that its own words explain best, and no retry mends.
_FINAL_CLASSES = frozenset({
    "AnalysisException", "ParseException", "ArithmeticException", "NumberFormatException", "DateTimeException",
    "ArrayIndexOutOfBoundsException", "IllegalArgumentException", "UnsupportedOperationException",
    "SparkRuntimeException",
})  # fmt: skip
# What Spark says of a second statement, and the picture of the query that follows.
_MULTIPLE = re.compile(r"^\[PARSE_SYNTAX_ERROR\].*extra input.*== SQL ==[^^]*;", re.DOTALL)
# Codes of ClickHouse: unknown database or table, wrong types, syntax, access denied, wrong password, read only …
_FINAL_CODES = frozenset({6, 10, 16, 20, 27, 32, 36, 38, 41, 43, 44, 46, 47, 48, 53, 57, 60, 62, 70, 72, 81, 117, 122, 164, 192, 194, 291, 349, 497, 516, 530})  # fmt: skip  # noqa: E501


def explain(error: BaseException) -> tuple[str, bool]:
    """(the sentence, whether a retry is useless)."""
    module, name = type(error).__module__, type(error).__name__
    if isinstance(error, Error):
        return _tidy(error.message), isinstance(error, Invalid)
    if module.startswith("pyspark"):
        return _spark(error, name)
    if module.startswith("clickhouse_connect"):
        return _clickhouse(str(error))
    if module.startswith("obstore") or (module == "builtins" and "object_store" in str(error)):
        return _objects(str(error), name)
    if module.startswith(("grpc",)):
        return _tidy(f"Spark cannot be reached: {_grpc_details(error)}"), False
    return _tidy(f"{name}: {error}"), False


def is_closed(error: BaseException) -> bool:
    """Return whether Spark says that the session was closed, so that its id cannot be used again."""
    return "SESSION_CLOSED" in str(error) or "SESSION_CHANGED" in str(error)


def _spark(error: BaseException, name: str) -> tuple[str, bool]:
    text = str(error).strip()
    if _MULTIPLE.search(text):
        return "the query holds more than one statement: write one, and a job for each further one", True
    if "StatusCode.UNAVAILABLE" in text or name == "RetriesExceeded":
        return _tidy(f"Spark cannot be reached: {_first(text)}"), False
    if "StatusCode.UNAUTHENTICATED" in text or "StatusCode.PERMISSION_DENIED" in text:
        return _tidy(f"Spark refuses us: {_first(text)}"), True
    condition = re.match(r"\[([A-Z_.]+)", text)
    is_final = name in _FINAL_CLASSES and condition is not None
    return _tidy(f"Spark: {_sentence(_first(text))}"), is_final


def _clickhouse(text: str) -> tuple[str, bool]:
    code = re.search(r"[Cc]ode: (\d+)", text)
    said = re.search(r"DB::Exception: (.*)", text, re.DOTALL)
    if code and code[1] in ("516", "192", "194"):
        return "ClickHouse refuses the user name or the password of clickhouse_url", True
    is_final = bool(code) and int(code[1]) in _FINAL_CODES if code else False
    return _tidy(f"ClickHouse: {_first(said[1] if said else text)}"), is_final


def _objects(text: str, name: str) -> tuple[str, bool]:
    is_final = name in ("PermissionDeniedError", "UnauthenticatedError", "NotSupportedError")
    return _tidy(f"the files cannot be written ({name}): {_first(text)}"), is_final


def _grpc_details(error: BaseException) -> str:
    details = getattr(error, "details", None)
    return str(details()) if callable(details) else str(error)


def _first(text: str) -> str:
    """Return the sentence that says it, without the plan, the trace and the picture of the query that follow."""
    lines = [line.strip() for line in text.splitlines()]
    kept: list[str] = []
    for line in lines:
        if kept and (not line or line.startswith(("==", "'", "+-", "JVM stacktrace", "at ", "(line", "Debug source"))):
            break
        if line:
            kept.append(line)
    return " ".join(kept)


def _sentence(text: str) -> str:
    """Return the first sentence, and where in the query it is about; advice follows it."""
    said = re.match(r".*?\.(?=\s|$)", text)
    where = re.search(r"line (\d+),? pos(?:ition)? (\d+)", text)
    if said is None:
        return text
    return said[0] if where is None else f"{said[0]} (line {where[1]}, position {where[2]})"


def _tidy(text: str) -> str:
    found = str(masked(re.sub(r"\s+", " ", text).strip()))
    found = re.sub(r" \(for url \S+\)| SQLSTATE: \w+", "", found)
    return found if len(found) <= MAX_MESSAGE else f"{found[: MAX_MESSAGE - 1]}…"
