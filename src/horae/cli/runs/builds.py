"""What a run says of a build: its steps, tests, commit and artifacts, and the command that brings artifacts here.

What must stay true: a result is what the work gave, so anything may stand in it; a file that was not brought to its end
is not left under its name.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, BinaryIO

import click

from horae.cli.datawork import DATA_PARTS, writes_data
from horae.cli.options import Argument, Option
from horae.cli.screen import Screen, clean, duration
from horae.cli.session import Session, command
from horae.errors import Error, Invalid

Json = dict[str, Any]

PARTS = frozenset({"steps", "walls", "cause", "commit", "tests", "artifacts", "caches"})  # of a result, shown by name


def _result(run: Json) -> Json:
    """Return the result of a shell job's run, or of work on data; of anything else, nothing."""
    result = run["result"]
    if not isinstance(result, dict) or not isinstance(result.get("steps"), list):
        return {}
    if not result.keys() <= PARTS and not writes_data(run["kind"]):
        return {}
    steps = result["steps"]
    return result if all(isinstance(step, dict) and {"name", "seconds"} <= step.keys() for step in steps) else {}


def result_text(run: Json) -> str:
    """Return a result that is not shown in its parts, as it is."""
    result = run["result"]
    if shown := _result(run):
        result = {name: value for name, value in shown.items() if name not in PARTS | DATA_PARTS} or None
    return "" if result is None else json.dumps(result, ensure_ascii=False)


def build_fields(run: Json) -> list[tuple[str, str]]:
    result = _result(run)
    caches = [f"{use.get('key')} ({'hit' if use.get('hit') else 'new'})" for use in _listed(result, "caches")]
    kept = _listed(result, "artifacts")
    size = sum(one["size"] for one in kept if isinstance(one.get("size"), int))
    return [
        ("walls", str(result.get("walls", ""))),
        ("cause", _cause(result.get("cause"))),
        ("commit", str(result.get("commit", ""))),
        ("tests", _tests(result.get("tests"))),
        ("caches", ", ".join(caches)),
        ("artifacts", f"{len(kept)}, {size} bytes" if kept else ""),
    ]


def _cause(cause: Any) -> str:
    """Return the code of the wall that it met, by which the documentation knows it; the message says the rest."""
    return str(cause.get("code", "")) if isinstance(cause, dict) else ""


def _tests(tests: Any) -> str:
    if not isinstance(tests, dict):
        return ""
    counts = ", ".join(f"{tests.get(word, 0)} {word}" for word in ("passed", "failed", "skipped"))
    seconds = tests.get("seconds")
    return f"{counts}; {duration(seconds)}" if isinstance(seconds, int | float) else counts


def _listed(values: Json, name: str) -> list[Json]:
    value = values.get(name)
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _seconds(value: Any) -> str:
    return f"{value:.3f}" if isinstance(value, int | float) else ""


def show_build(screen: Screen, run: Json) -> None:
    """The steps of a run as a table, and the tests that failed."""
    result = _result(run)
    rows = [[str(one["name"]), _seconds(one["seconds"]), str(one.get("exit_code"))] for one in _listed(result, "steps")]
    if rows:
        screen.line()
        screen.table(["step", ">seconds", ">exit code"], rows)
    tests = result.get("tests")
    failures = _listed(tests, "failures") if isinstance(tests, dict) else []
    if failures:
        screen.line()
        screen.table(["failed test", "message"], [[str(one.get("name")), str(one.get("message"))] for one in failures])


def artifacts(
    session: Session,
    run: Annotated[int, Argument(metavar="RUN", min=1, help="Id of a run.")],
    path: Annotated[str | None, Argument(metavar="[PATH]", help="Path of an artifact; left out: a list.")] = None,
    output: Annotated[
        str | None, Option("--output", metavar="FILE", help="Where to write it; - writes to standard output.")
    ] = None,
) -> None:
    """List the artifacts of a run, or bring one here."""
    if path is None and output is not None:
        raise Invalid("--output needs the PATH of an artifact", code="E_USAGE", hint="`horae artifacts RUN` lists them")
    if path is None:
        _list(session, run)
    elif output == "-":
        _copy(session, run, path, sys.stdout.buffer)
    else:
        _download(session, run, path, output or path.rpartition("/")[2])


def _list(session: Session, run: int) -> None:
    with session.client() as client:
        page = client.json.artifacts(run)
    if session.as_json:
        return session.screen.json(page)
    rows = [[str(one["size"]), one["path"]] for one in page["items"]]
    return session.screen.table([">size", "path"], rows, "this run kept no artifacts")


def _download(session: Session, run: int, path: str, name: str) -> None:
    with _written(name) as file:
        size = _copy(session, run, path, file)
    if session.as_json:
        session.screen.json({"path": path, "file": name, "size": size})
    else:
        session.screen.line(f"{clean(name)}: {size} bytes")


@contextmanager
def _written(name: str) -> Iterator[BinaryIO]:
    """A file that gets its name when the body has succeeded."""
    from pathlib import Path  # few need it

    part = Path(f"{name}.part")
    try:
        with part.open("wb") as file:
            yield file
        part.replace(name)
    except OSError as error:
        raise Error(f"{name} cannot be written: {error.strerror}", code="E_FILE") from None
    finally:
        part.unlink(missing_ok=True)


def _copy(session: Session, run: int, path: str, file: BinaryIO) -> int:
    size = 0
    with session.client() as client:
        for piece in client.artifact(run, path):
            file.write(piece)
            size += len(piece)
    file.flush()
    return size


def register(app: click.Group) -> None:
    command(app, "artifacts", "horae artifacts 42 dist/package.whl --output package.whl")(artifacts)
