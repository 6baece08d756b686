"""Commands about jobs that others run: ping-url, exec.

`horae exec -- command` is for a line of a crontab. What it must never do is fail, hang or change a command because of
Horae: the command is started first, its output and its exit code go through unchanged, and telling Horae of it is done
beside, in a thread, with an end to its patience. An end that could not be told lies in a spool, and goes with the next.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from typing import IO, TYPE_CHECKING, Annotated

import click

from horae.cli.options import Argument, JobArgument, Option
from horae.cli.runs.pings import TAIL_BYTES, Spool, Teller
from horae.cli.session import CA_FILE, Session, command
from horae.errors import Invalid

if TYPE_CHECKING:
    import subprocess

SOON, LOG_SECONDS = 1.0, 10.0  # between two pings with what was written meanwhile: at first, and in the long run
PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
NOT_STARTED, NOT_FOUND = 126, 127  # as a shell has it
LINGER_SECONDS = 1.0  # after its end, for the last of its output
PIECE_BYTES = 1 << 16


def ping_url(
    session: Session,
    job: JobArgument,
    rotate: Annotated[bool, Option("--rotate", help="Make a new address; the one of before is nothing then.")] = False,
) -> None:
    """Show the address at which whoever runs a watched job tells of it, without a login.

    POST to it when the job has succeeded; to …/start, …/fail and …/log for the rest.
    """
    with session.client() as client:
        job_id = client.json.find_job(job)["id"]
        found = client.json.rotate_ping(job_id) if rotate else client.json.ping_address(job_id)
    address = session.address_of(found["path"])
    if session.as_json:
        session.screen.json({"job_id": found["job_id"], "address": address})
    else:
        session.screen.line(address)


def execute(
    session: Session,
    words: Annotated[list[str], Argument(metavar="-- COMMAND...", help="What to run, with its arguments.")],
    watch: Annotated[
        str | None, Option("--watch", metavar="URL", help="As `horae ping-url` shows it. [default: $HORAE_WATCH]")
    ] = None,
    patience: Annotated[
        int, Option("--patience", metavar="SECONDS", max=3600, help="For telling of the end, if Horae is away.")
    ] = 60,
) -> int:
    """Run a command, and tell Horae when it began, what it wrote and how it ended.

    Its output and its exit code are passed on unchanged, whatever becomes of Horae.
    """
    url = watch or os.environ.get("HORAE_WATCH") or ""
    if not words:
        raise Invalid("a command is missing", code="E_USAGE", hint="horae exec --watch URL -- ./backup.sh")
    told = Teller(url, Spool.of_user(), ca_file=session.ca_file, cert_file=session.cert_file)
    if not url:
        told.complain("no address to tell of it: give --watch URL, or set HORAE_WATCH; the command is run all the same")
    return Wrapped(words, told, patience).run()


class Wrapped:
    """One command with its output, and whoever is told of it."""

    def __init__(self, words: Sequence[str], told: Teller, patience: float) -> None:
        self._words = words
        self._told = told
        self._patience = patience
        self._lock = threading.Lock()
        self._tail = bytearray()  # what was written and not told yet
        self._over = threading.Event()

    def run(self) -> int:
        import subprocess  # which no other command needs

        begun = time.monotonic()
        try:
            child = subprocess.Popen(self._words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        except OSError as error:
            self._told.complain(f"{self._words[0]}: {error.strerror}")
            code = NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_STARTED
            self._told.end(code, 0.0, f"{self._words[0]}: {error.strerror}\n".encode(), self._patience)
            return code
        self._pass_signals_to(child)
        teller = threading.Thread(target=self._tell, daemon=True)
        teller.start()
        carriers = self._carry(child)
        code = child.wait()
        for carrier in carriers:
            carrier.join(LINGER_SECONDS)
        self._over.set()
        teller.join(self._patience)
        self._told.end(code, time.monotonic() - begun, self._take(), self._patience)
        for carrier in carriers:  # what it has left in the background goes on writing through us
            carrier.join()
        return self._leave(code)

    def _pass_signals_to(self, child: subprocess.Popen[bytes]) -> None:
        def pass_on(number: int, _: object) -> None:
            with contextlib.suppress(OSError):
                child.send_signal(number)

        for number in PASSED_ON:
            signal.signal(number, pass_on)

    def _carry(self, child: subprocess.Popen[bytes]) -> list[threading.Thread]:
        """Return those who pass on what it writes."""
        assert child.stdout is not None
        assert child.stderr is not None
        ends = ((child.stdout, 1), (child.stderr, 2))
        carriers = [threading.Thread(target=self._copy, args=end, daemon=True) for end in ends]
        for carrier in carriers:
            carrier.start()
        return carriers

    def _copy(self, source: IO[bytes], target: int) -> None:
        while data := os.read(source.fileno(), PIECE_BYTES):
            with self._lock:
                self._tail += data
                del self._tail[:-TAIL_BYTES]
            try:
                _write(target, data)
            except OSError:  # nobody reads it any more: whoever writes shall learn it
                source.close()
                return

    def _take(self) -> bytes:
        with self._lock:
            data = bytes(self._tail)
            self._tail.clear()
        return data

    def _tell(self) -> None:
        """Beside the command, as long as it runs."""
        self._told.start()
        pause = SOON  # a machine may be unplugged at any time: its first words are told soon
        while not self._over.wait(pause):
            if data := self._take():
                self._told.log(data)
                pause = min(2 * pause, LOG_SECONDS)

    def _leave(self, code: int) -> int:
        """Return the exit code; who was ended by a signal, so are we."""
        if code < 0:
            sys.stdout.flush()
            with contextlib.suppress(OSError, ValueError):
                signal.signal(-code, signal.SIG_DFL)
            os.kill(os.getpid(), -code)
        return code if code >= 0 else 128 - code


def _write(target: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(target, left) :]


def register(app: click.Group) -> None:
    command(app, "ping-url", "horae ping-url nightly-backup --rotate")(ping_url)
    command(app, "exec", "horae exec --watch $URL -- ./backup.sh --all", shared=(CA_FILE,))(execute)
