"""A program in a network namespace of its own, from which some ports of loopback lead out, each through a Unix socket.

python nowhere.py PORT=SOCKET[,PORT=SOCKET…] PROGRAM ARG…, inside `unshare --net`.
Ends with its program, and ends it when told to.
"""

from __future__ import annotations

import fcntl
import signal
import socket
import struct
import subprocess
import sys
import threading
from contextlib import suppress

UP = 0x8914, 0x1 | 0x40  # SIOCSIFFLAGS: IFF_UP, IFF_RUNNING


def raise_loopback() -> None:
    with socket.socket() as control:
        fcntl.ioctl(control, UP[0], struct.pack("16sH14x", b"lo", UP[1]))


def copy(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
    for end in (source, sink):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


def lead_out(listener: socket.socket, path: str) -> None:
    while True:
        near, _ = listener.accept()
        far = socket.socket(socket.AF_UNIX)
        try:
            far.connect(path)
        except OSError:
            near.close()
            continue
        for ends in ((near, far), (far, near)):
            threading.Thread(target=copy, args=ends, daemon=True).start()


def main() -> int:
    doors, *argv = sys.argv[1:]
    raise_loopback()
    for door in doors.split(","):
        port, _, path = door.partition("=")
        listener = socket.create_server(("127.0.0.1", int(port)))
        threading.Thread(target=lead_out, args=(listener, path), daemon=True).start()
    program = subprocess.Popen(argv)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda which, _: program.send_signal(which))
    return program.wait()


if __name__ == "__main__":
    sys.exit(main())
