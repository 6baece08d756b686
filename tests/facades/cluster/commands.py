"""The source document's own commands, kept as files, and the jobs and members that the tests make."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx

DOCUMENT = Path(__file__).parent / "document"
JOB = {
    "jobName": "Test Job",
    "userId": 1,
    "frequency": "ONE_TIME",
    "executionTime": "2024-12-31T10:00:00Z",
    "payload": "Test payload",
    "maxRetries": 3,
    "segment": 5,
}
ENVELOPE = {"success", "data", "message", "errorCode", "timestamp"}


class Call(NamedTuple):
    method: str
    port: int
    path: str
    body: str | None
    argv: list[str]


def calls(name: str) -> Iterator[Call]:
    """The curl commands of a file, in order."""
    text = re.sub(r"^#.*$", "", (DOCUMENT / name).read_text(), flags=re.M)
    for command in re.split(r"^(?=curl )", text, flags=re.M)[1:]:
        argv = shlex.split(command.replace("\\\n", " "))
        url = next(word for word in argv if word.startswith("http://"))
        _, _, port, path = re.split(r"http://(localhost):(\d+)", url)
        method = argv[argv.index("-X") + 1] if "-X" in argv else "GET"
        yield Call(method, int(port), path, argv[argv.index("-d") + 1] if "-d" in argv else None, argv)


def endpoints() -> list[dict[str, Any]]:
    return list(json.loads((DOCUMENT / "endpoints.json").read_text()))


def data_of(answer: httpx.Response) -> Any:
    """Return the data of a good answer, whose envelope is whole."""
    shown = answer.json()
    assert answer.status_code == 200, answer.text
    assert set(shown) == ENVELOPE
    assert (shown["success"], shown["message"], shown["errorCode"]) == (True, None, None)
    assert shown["timestamp"].endswith("Z")
    return shown["data"]


def refusal_of(answer: httpx.Response, status: int, code: str) -> str:
    """Return the message of a refusal, whose envelope is whole."""
    shown = answer.json()
    assert (answer.status_code, shown.get("errorCode")) == (status, code), answer.text
    assert set(shown) == ENVELOPE
    assert (shown["success"], shown["data"]) == (False, None)
    assert shown["timestamp"].endswith("Z")
    message = shown["message"]
    assert isinstance(message, str)
    return message


def missing_fields(expected: Any, got: Any, path: str = "") -> list[str]:
    """Return what an example shows that an answer does not have; values are the server's own."""
    if isinstance(expected, dict):
        if not isinstance(got, dict):
            return [path]
        return [each for name, value in expected.items() for each in _missing(name, value, got, path)]
    return [] if type(expected) is type(got) else [f"{path}: {type(got).__name__}"]


def _missing(name: str, value: Any, got: dict[str, Any], path: str) -> list[str]:
    return missing_fields(value, got[name], f"{path}.{name}") if name in got else [f"{path}.{name}"]
