"""The program that the jobs of a campaign run: it writes down that it ran.

    python -I -S witness.py DIRECTORY LEAST MOST FAIL_PERCENT HABITS

Each process start has a file of its own, opened for appending; each line is one write, so a kill leaves whole
lines. Lines are `start`, `tick` (every 100 ms) and `end`; nothing is written after `end`. The time is that of
CLOCK_BOOTTIME, which all processes of a machine share; `wall` is for comparing with due moments.

HABITS is any of `talks` (it prints numbered lines) and `stubborn` (it dies of SIGKILL only), or `none`.

How long it takes and whether it fails follow from run, attempt and fence alone. The exit code of a failure
tells the fence, so that a recorded exit code can be traced to the attempt it came from.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import zlib

TICK = 0.1  # seconds
FIRST_CODE, CODES = 10, 100  # exit codes of failures: 10 to 109


def chance(text: str) -> float:
    """Return a number from 0 to 1, the same for the same text."""
    return zlib.crc32(text.encode()) / 0xFFFF_FFFF


def failure_code(fence: int) -> int:
    return FIRST_CODE + fence % CODES


def line_of(run: int, fence: int, number: int) -> str:
    """Return what the talkative ones print."""
    return f"witness run={run} fence={fence} line={number}"


class Diary:
    def __init__(self, directory: str) -> None:
        told = os.environ
        self.run, self.fence = int(told["HORAE_RUN_ID"]), int(told["HORAE_FENCE"])
        self.attempt = int(told["HORAE_ATTEMPT"])
        self._about = {
            "run": self.run, "attempt": self.attempt, "fence": self.fence, "job": int(told["HORAE_JOB_ID"]),
            "scheduled_for": told["HORAE_SCHEDULED_FOR"], "pid": os.getpid(),
        }  # fmt: skip
        name = f"{self.run}-{self.fence}-{os.getpid()}-{time.monotonic_ns()}.jsonl"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        self._file = os.open(os.path.join(directory, name), flags, 0o644)

    def write(self, event: str, **more: int) -> None:
        clocks = {"boot": time.clock_gettime(time.CLOCK_BOOTTIME), "wall": time.time()}
        about = self._about if event == "start" else {}
        os.write(self._file, json.dumps({"event": event, **clocks, **about, **more}).encode() + b"\n")


def main(directory: str, least: float, most: float, fail_percent: float, habits: str) -> int:
    diary = Diary(directory)
    diary.write("start")
    if "stubborn" in habits:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    until = time.monotonic() + least + (most - least) * chance(f"time {diary.run} {diary.fence}")
    lines = 0
    while (left := until - time.monotonic()) > 0:
        if "talks" in habits:
            os.write(1, line_of(diary.run, diary.fence, lines).encode() + b"\n")
            lines += 1
        time.sleep(min(TICK, left))
        diary.write("tick")
    fails = 100 * chance(f"fail {diary.run} {diary.attempt}") < fail_percent
    code = failure_code(diary.fence) if fails else 0
    diary.write("end", code=code, lines=lines)
    return code


if __name__ == "__main__":
    where, shortest, longest, percent, ways = sys.argv[1:]
    sys.exit(main(where, float(shortest), float(longest), float(percent), ways))
