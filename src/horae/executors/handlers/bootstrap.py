"""Starts a worker with the interpreter of an environment of its own: `python -P <this file> FD PLACE…`.

The places are where Horae and what it needs are installed. They come first while Horae itself is loaded, so that it
runs with the packages it was tested with; then last, so that a handler's imports find the environment's.
"""

from __future__ import annotations

import sys

if __name__ == "__main__":
    _ours = sys.argv[2:]
    _before = sys.path[:]
    sys.path[:0] = _ours

    from horae.executors.handlers import worker

    sys.path[:] = [*_before, *(place for place in _ours if place not in _before)]
    worker.main(int(sys.argv[1]))
