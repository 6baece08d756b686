"""What went wrong, in one sentence that names the cause, holds no secret, and says whether a retry can help.

Foreign errors are recognised by their class's name and module: the libraries need not be there.
"""

from __future__ import annotations

import re

from horae.core.datawork import masked

LONGEST = 600  # characters of a message

# Conditions of Spark that its own words explain best, and no retry mends.
_FINAL_CLASSES = frozenset({
    "AnalysisException", "ParseException", "ArithmeticException", "NumberFormatException", "DateTimeException",
    "ArrayIndexOutOfBoundsException", "IllegalArgumentException", "UnsupportedOperationException",
    "SparkRuntimeException",
})  # fmt: skip
_MULTIPLE = re.compile(r"at or near ';'|extra input ';'")
# Codes of ClickHouse: unknown database or table, wrong types, syntax, access denied, wrong password, read only …
_FINAL_CODES = frozenset({6, 10, 16, 20, 27, 32, 36, 38, 41, 43, 44, 46, 47, 48, 53, 57, 60, 62, 70, 72, 81, 117, 122, 164, 192, 194, 291, 349, 497, 516, 530})  # fmt: skip  # noqa: E501


class Fault(Exception):
    """Found by ourselves; no retry can help."""


def explain(error: BaseException) -> tuple[str, bool]:
    """(the sentence, whether a retry is useless)."""
    module, name = type(error).__module__, type(error).__name__
    if isinstance(error, Fault):
        return _tidy(str(error)), True
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
    """Whether Spark says that the session was closed, so that its id cannot be used again."""
    return "SESSION_CLOSED" in str(error) or "SESSION_CHANGED" in str(error)


def _spark(error: BaseException, name: str) -> tuple[str, bool]:
    text = str(error)
    if "PARSE_SYNTAX_ERROR" in text and _MULTIPLE.search(text):
        return "the query holds more than one statement: write one, and a job for each further one", True
    if "StatusCode.UNAVAILABLE" in text or name == "RetriesExceeded":
        return _tidy(f"Spark cannot be reached: {_first(text)}"), False
    if "StatusCode.UNAUTHENTICATED" in text or "StatusCode.PERMISSION_DENIED" in text:
        return _tidy(f"Spark refuses us: {_first(text)}"), True
    condition = re.match(r"\[([A-Z_.]+)", text)
    is_final = name in _FINAL_CLASSES and condition is not None
    return _tidy(f"Spark: {_first(text)}"), is_final


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
    """The sentence that says it, without the plan, the trace and the picture of the query that follow."""
    lines = [line.strip() for line in text.splitlines()]
    kept: list[str] = []
    for line in lines:
        if kept and (not line or line.startswith(("==", "'", "+-", "JVM stacktrace", "at ", "(line", "Debug source"))):
            break
        if line:
            kept.append(line)
    where = re.search(r"\(line (\d+), pos (\d+)\)", text)
    found = " ".join(kept)
    return found if where is None or where[0] in found else f"{found} (line {where[1]}, position {int(where[2]) + 1})"


def _tidy(text: str) -> str:
    found = str(masked(re.sub(r"\s+", " ", text).strip()))
    found = re.sub(r" \(for url \S+\)| SQLSTATE: \w+", "", found)
    return found if len(found) <= LONGEST else f"{found[: LONGEST - 1]}…"
