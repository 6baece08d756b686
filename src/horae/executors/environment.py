"""The program that makes a virtual environment of Python: `python3 -I <this file> <place> <requirements>`.

It runs as a process of an attempt, so it imports the standard library only. `place` is a directory that is there:

    <place>/lock      held while the environment is made: whoever wants the same one waits, then finds it made
    <place>/venv      the environment
    <place>/made      is there when it was made to its end

What must stay true: without `made`, whatever lies in `venv` is removed and made anew; the lock goes with the process.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import venv

VENV, MADE, LOCK = "venv", "made", "lock"


def main(place: str, requirements: str) -> int:
    with open(os.path.join(place, LOCK), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if os.path.exists(os.path.join(place, MADE)):
            sys.stdout.write("the environment is there already\n")
            os.utime(place)  # it is still in use
            return 0
        return _make(place, requirements)


def _make(place: str, requirements: str) -> int:
    directory = os.path.join(place, VENV)
    shutil.rmtree(directory, ignore_errors=True)
    venv.create(directory, with_pip=True, symlinks=True)
    pip = [os.path.join(directory, "bin", "python"), "-m", "pip", "install", "--no-input", "--no-cache-dir"]
    code = subprocess.call([*pip, "--disable-pip-version-check", "-r", requirements])
    if code == 0:
        os.close(os.open(os.path.join(place, MADE), os.O_WRONLY | os.O_CREAT, 0o600))
    return code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
