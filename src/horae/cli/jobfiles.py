"""Job files: how the command line gets at their bytes, and which language they are in.

What must stay true: no name is special but `-` (an argument never names a file to take arguments from), no
file can block or flood the program, and whatever is wrong names the file.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import stat
import sys
from collections.abc import Iterator

from horae.errors import Error, TooLarge

MAX_BYTES = 1 << 20  # what the API takes in one request


@contextlib.contextmanager
def naming(name: str) -> Iterator[None]:
    """Put the name of the file before whatever is wrong with it."""
    try:
        yield
    except Error as error:
        error.message = f"{name}: {error.message}"
        raise


def read_file(name: str, most: int = MAX_BYTES) -> bytes:
    """Return the bytes of a file, or of stdin for `-`; at most so many, also of a pipe or device."""
    if name == "-":
        return _read(sys.stdin.fileno(), most)
    try:
        # Without O_NONBLOCK, opening a FIFO that nobody writes to would wait for ever.
        opened = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise _unreadable(error) from None
    try:
        content = _read(opened, most)
        if not content and stat.S_ISFIFO(os.fstat(opened).st_mode):
            raise Error("cannot be read: it is a pipe, and nobody writes to it", code="E_FILE")
        return content
    except OSError as error:
        raise _unreadable(error) from None
    finally:
        os.close(opened)


def _read(opened: int, most: int) -> bytes:
    content = bytearray()
    while len(content) <= most:
        try:
            piece = os.read(opened, min(most + 1 - len(content), MAX_BYTES))
        except BlockingIOError:  # a writer is there, but has nothing to say yet
            select.select([opened], [], [])
            continue
        if not piece:
            return bytes(content)
        content += piece
    raise TooLarge(f"larger than {most} bytes ({most >> 20} MiB)", hint="split it into several files")


def _unreadable(error: OSError) -> Error:
    return Error(f"cannot be read: {error.strerror}", code="E_FILE")


def directory_of(name: str) -> str:
    """Return where its steps run, on a server of one's own."""
    return os.getcwd() if name == "-" else os.path.dirname(os.path.abspath(name))


def media_type(name: str, content: bytes) -> str:
    """JSON or YAML: by the ending of the name, else by what is inside."""
    if name.endswith((".yaml", ".yml")):
        return "application/yaml"
    return "application/json" if name.endswith(".json") or _is_json(content) else "application/yaml"


def _is_json(content: bytes) -> bool:
    try:
        json.loads(content)
    except (ValueError, RecursionError):
        return False
    return True
