"""The program that makes a virtual environment of Python: `python3 -I <this file> <place> <requirements> [<uv>]`.

It runs as a process of an attempt, so it imports the standard library only. `place` is a directory that is there:

    <place>/lock      held while the environment is made: whoever wants the same one waits, then finds it made
    <place>/venv      the environment
    <place>/made      is there when it was made to its end

What must stay true:
- Without `made`, whatever lies in `venv` is removed and made anew; the lock goes with the process.
- pip is the environment's own, wherever this is started: no package of that name in the directory of a project.
- What is made can be written to by nobody any more: uv copies from its cache, and never links to it.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import venv

VENV, MADE, LOCK = "venv", "made", "lock"


def main(place: str, requirements: str, uv: str = "") -> int:
    if _is_made(place):  # then we may only read it
        return 0
    with open(os.path.join(place, LOCK), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return 0 if _is_made(place) else _make(place, requirements, uv)


def _is_made(place: str) -> bool:
    is_made = os.path.exists(os.path.join(place, MADE))
    if is_made:
        sys.stdout.write("the environment is there already\n")
    return is_made


def _make(place: str, requirements: str, uv: str) -> int:
    directory = os.path.join(place, VENV)
    shutil.rmtree(directory, ignore_errors=True)
    venv.create(directory, with_pip=not uv, symlinks=True)
    code = subprocess.call(_installer(os.path.join(directory, "bin", "python"), requirements, uv))
    if code == 0:
        os.close(os.open(os.path.join(place, MADE), os.O_WRONLY | os.O_CREAT, 0o600))
        _seal(directory)
    return code


def _installer(python: str, requirements: str, uv: str) -> list[str]:
    if uv:
        options = ["--no-progress", "--link-mode", "copy", "--compile-bytecode"]
        return [uv, "pip", "install", *options, "--python", python, "-r", requirements]
    pip = [python, "-I", "-m", "pip", "install", "--no-input", "--no-cache-dir"]
    return [*pip, "--disable-pip-version-check", "-r", requirements]


def _seal(directory: str) -> None:
    for parent, _, names in os.walk(directory):
        for name in names:
            path = os.path.join(parent, name)
            if not os.path.islink(path):
                os.chmod(path, os.stat(path).st_mode & 0o555)
        os.chmod(parent, os.stat(parent).st_mode & 0o555)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
