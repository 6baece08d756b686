"""Job files of any size: cut into their jobs, each with the place where it stands, and sent a batch at a time.

A file may be a YAML stream of several documents, a document with `jobs:`, a JSON array, or a line for each job
(NDJSON); a directory stands for the job files in it.

What must stay true: everything is read before anything is sent; whatever is wrong with a job names its file and line.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from horae.cli.jobfiles import directory_of, media_type, naming
from horae.errors import Error, Invalid, Malformed, Problem

ENDINGS = (".yaml", ".yml", ".json", ".ndjson", ".jsonl")
LINES = (".ndjson", ".jsonl")
MOST = 256 << 20  # bytes of a file that is read whole
BATCH, BATCH_BYTES = 1000, 8 << 20  # jobs in one request, made together or not at all; and their bytes
_INDEX = re.compile(r"jobs\[(\d+)\]\.?")
_LINE = re.compile(r"\bline (\d+)\b")
_MARKER = re.compile(rb"^---(?:\s|$)", re.MULTILINE)


class Item(NamedTuple):
    """One job of a file, as JSON."""

    text: bytes
    file: str
    line: int

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}"


def job_files(names: Iterable[str]) -> list[str]:
    """Return the files that are meant: of a directory, all job files in and below it, by name."""
    found: list[str] = []
    for name in names:
        if not os.path.isdir(name):
            found.append(name)
            continue
        inside = [os.path.join(place, file) for place, _, files in os.walk(name) for file in files]
        listed = sorted(file for file in inside if file.endswith(ENDINGS))
        if not listed:
            raise Error(
                f"{name}: no job file in this directory", code="E_FILE", hint=f"they end in {', '.join(ENDINGS)}"
            )
        found += listed
    return found


def is_plain(name: str, content: bytes) -> bool:
    """Return whether a file can be sent as it is: one document, and not a line for each job."""
    if len(content) > 1 << 20 or name.endswith(LINES):
        return False
    if media_type(name, content) == "application/json":
        return content.lstrip()[:1] != b"["
    return sum(1 for _ in _parts(content)) <= 1 and not _are_lines(content)


def read_items(name: str, content: bytes) -> Iterator[Item]:
    """The jobs of a file."""
    with naming(name):
        if name.endswith(LINES) or _are_lines(content):
            found = _from_lines(content)
        elif media_type(name, content) == "application/json":
            found = _from_json(content)
        else:
            found = _from_yaml(content)
        for line, job in found:
            yield Item(_dumped(job, line), name, line)


def batches(items: Iterable[Item]) -> Iterator[list[Item]]:
    """As many as one request takes, of files in one directory: that is where their steps run."""
    batch: list[Item] = []
    size = 0
    for item in items:
        is_full = len(batch) == BATCH or size + len(item.text) > BATCH_BYTES
        if batch and (is_full or directory_of(item.file) != directory_of(batch[0].file)):
            yield batch
            batch, size = [], 0
        batch.append(item)
        size += len(item.text)
    if batch:
        yield batch


def body_of(batch: list[Item]) -> bytes:
    return b'{"jobs": [%b]}' % b",".join(item.text for item in batch)


def placed(error: Error, batch: list[Item]) -> Error:
    """Return what the server says of a batch, with the place of each job."""
    listed = [Problem(_placed(one.path, batch), one.code, one.message, one.hint) for one in error.listed()]
    if not any(_INDEX.match(one.path) for one in error.listed()):
        where = batch[0].place if len(batch) == 1 else f"{batch[0].place} to {batch[-1].place}"
        error.message = f"{where}: {error.message}"
        return error
    again = type(error).of(listed)
    again.code = error.code
    return again


def _placed(path: str, batch: list[Item]) -> str:
    found = _INDEX.match(path)
    if found is None or int(found[1]) >= len(batch):
        return path
    rest = path[found.end() :]
    return f"{batch[int(found[1])].place}: {rest}" if rest else batch[int(found[1])].place


# ── how files are cut ──


def _are_lines(content: bytes) -> bool:
    """Return whether each line is an object of its own: two of them are enough to tell."""
    first, _, rest = content.lstrip().partition(b"\n")
    return _is_object(first) and rest.lstrip()[:1] == b"{"


def _is_object(text: bytes) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def _from_lines(content: bytes) -> Iterator[tuple[int, Any]]:
    from horae.web import documents

    for number, line in enumerate(content.split(b"\n"), 1):
        if line.strip():
            try:
                yield number, documents.read_json(line)
            except Error as error:
                error.message = _LINE.sub(f"line {number}", error.message) if _LINE.search(error.message) else (
                    f"line {number}: {error.message}"
                )  # fmt: skip
                raise


def _from_json(content: bytes) -> Iterator[tuple[int, Any]]:
    """One job, an array, or an object that holds one."""
    import msgspec

    from horae.web import documents

    start = content.find(b"[") if content.lstrip()[:1] != b"{" else _list_in(content)
    if start < 0:
        yield 1, documents.read_json(content)
        return
    try:
        end = content.rfind(b"]") + 1
        items = msgspec.json.decode(content[start:end], type=list[msgspec.Raw])
    except (msgspec.DecodeError, RecursionError) as error:
        raise Malformed(f"not JSON: {error}", code="E_JSON_SYNTAX") from None
    at, line = start, content.count(b"\n", 0, start) + 1
    for item in items:
        text = bytes(item)
        here = content.find(text, at)
        line += content.count(b"\n", at, here)
        yield line, documents.read_json(text)
        line += text.count(b"\n")
        at = here + len(text)


def _list_in(content: bytes) -> int:
    """Return where the list begins in {"jobs": [...]}; -1 for anything else."""
    found = re.match(rb'\s*\{\s*"jobs"\s*:\s*(?=\[)', content)
    return found.end() if found else -1


def _from_yaml(content: bytes) -> Iterator[tuple[int, Any]]:
    """Every document of a stream; those that only list jobs are cut into them."""
    from horae.web import documents

    for offset, part in _parts(content):
        try:
            document = documents.read_yaml(part)
        except Error as error:
            error.message = _moved(error.message, offset)
            raise
        first = offset + 1 + _leading(part)
        if isinstance(document, dict) and document.keys() == {"jobs"} and isinstance(document["jobs"], list):
            yield from zip(_item_lines(part, offset), document["jobs"], strict=False)
        else:
            yield first, document


def _moved(message: str, lines: int) -> str:
    """Return what is wrong with a part of a file, with the line of the file."""
    return _LINE.sub(lambda found: f"line {int(found[1]) + lines}", message)


def _parts(content: bytes) -> Iterator[tuple[int, bytes]]:
    """The documents of a stream, each with the number of lines before it; empty ones are left out."""
    starts = [found.end() if found else 0 for found in (None, *_MARKER.finditer(content))]
    ends = [*(found.start() for found in _MARKER.finditer(content)), len(content)]
    for start, end in zip(starts, ends, strict=True):
        part = content[start:end]
        if any(line.strip() and not line.lstrip().startswith(b"#") for line in part.split(b"\n")):
            yield content.count(b"\n", 0, start), part


def _leading(part: bytes) -> int:
    """Return how many lines stand before the first that says something."""
    for number, line in enumerate(part.split(b"\n")):
        if line.strip() and not line.lstrip().startswith(b"#"):
            return number
    return 0


def _item_lines(part: bytes, offset: int) -> list[int]:
    """Return the lines on which the items of the list `jobs` begin."""
    import yaml

    node = yaml.compose(part.decode(), Loader=yaml.CSafeLoader)
    [(_, listed)] = node.value
    return [offset + item.start_mark.line + 1 for item in listed.value]


def _dumped(job: Any, line: int) -> bytes:
    try:
        return json.dumps(job, ensure_ascii=False).encode()
    except (TypeError, ValueError, RecursionError):
        hint = "quote what YAML takes for a date"
        raise Invalid(f"line {line}: this job cannot be sent as JSON", code="E_TYPE", hint=hint) from None
