"""Telling Horae of a command that others run: pings over HTTP, with patience, and a spool for what was not told."""

from __future__ import annotations

import contextlib
import json
import os
import time
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

if TYPE_CHECKING:
    import ssl
    import urllib.error

TAIL_BYTES = 100 << 10  # of output that are told: the last ones
TIMEOUT = 10.0  # seconds for one ping
PAUSES = (0.5, 1.0, 2.0, 4.0, 8.0)  # between two tries; then the last again
BUSY = (408, 425, 429)  # of 4xx, those that may be otherwise the next time
KEPT_SECONDS = 7 * 86400  # in the spool; what is older is told to nobody
MOST_SPOOLED = 1000  # pings


class Refused(Exception):
    """Horae does not want this ping, now or later."""


class Away(Exception):
    """Nobody took the ping; somebody may the next time."""


class Spool:
    """Ends that could not be told, a file each."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    @classmethod
    def of_user(cls) -> Spool:
        state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
        return cls(Path(state) / "horae" / "pings")

    def keep(self, ping: dict[str, Any]) -> Path | None:
        """Return where it lies; None where it cannot be kept: that is no reason to fail."""
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            if sum(1 for _ in self._directory.iterdir()) >= MOST_SPOOLED:
                return None
            path = self._directory / f"{time.time_ns():020d}-{os.getpid()}.json"
            fresh = path.with_suffix(".new")
            with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                json.dump(ping, file)
                file.flush()
                os.fsync(file.fileno())
            fresh.rename(path)
        except OSError:
            return None
        return path

    def waiting(self) -> list[tuple[Path, dict[str, Any]]]:
        """Return what lies there, oldest first; what is too old or cannot be read is removed."""
        found = []
        with contextlib.suppress(OSError):
            for path in sorted(self._directory.glob("*.json")):
                try:
                    is_old = time.time() - path.stat().st_mtime > KEPT_SECONDS
                    ping = json.loads(path.read_text())
                except (OSError, ValueError):
                    is_old, ping = True, None
                if is_old or not isinstance(ping, dict):
                    path.unlink(missing_ok=True)
                else:
                    found.append((path, ping))
        return found


class Teller:
    """Tells of one command. Never raises: what goes wrong is a line on standard error."""

    def __init__(self, url: str, spool: Spool, *, ca_file: str | None = None, cert_file: str | None = None) -> None:
        self._url = url.rstrip("/")
        self._spool = spool
        self._key = os.urandom(16).hex()
        self._run: int | None = None
        self._ca_file, self._cert_file = ca_file, cert_file

    @cached_property
    def _context(self) -> ssl.SSLContext | None:
        from horae.client.address import trusted

        return trusted(self._ca_file, self._cert_file) if self._url.startswith("https:") else None

    def complain(self, words: str) -> None:
        with contextlib.suppress(OSError):
            os.write(2, f"horae exec: {words}\n".encode(errors="replace"))

    def start(self) -> None:
        """What an earlier life could not tell goes first."""
        for path, ping in self._spool.waiting() if self._url else ():
            try:
                self._send_spooled(ping)
            except Away:
                break
            except Refused:
                pass
            path.unlink(missing_ok=True)
        self._try("start", {}, b"")

    def log(self, data: bytes) -> None:
        if self._run is not None:
            self._try("log", {}, data)

    def _try(self, state: str, about: dict[str, Any], data: bytes) -> None:
        if not self._url:
            return
        try:
            self._send(self._url, state, about, data, f"{self._key}-{state}")
        except Refused as error:
            self.complain(str(error))
        except Away:
            pass  # its end is told with patience

    def end(self, code: int, seconds: float, data: bytes, patience: float) -> None:
        if not self._url:
            return
        state = "fail" if code else "success"
        at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        about = {"exit_code": code, "seconds": round(seconds, 3), "at": at}
        if self._run is not None:
            about["run"] = self._run
        said = data.decode(errors="replace")
        kept = self._spool.keep({"url": self._url, "state": state, "about": about, "data": said, "key": self._key})
        try:
            self._insist(state, about, data, patience)
        except Refused as error:
            self.complain(str(error))
        except Away as error:
            where = f"; it is told the next time ({kept})" if kept else ""
            self.complain(f"Horae could not be told of the end: {error}{where}")
            return
        if kept is not None:
            kept.unlink(missing_ok=True)

    def _insist(self, state: str, about: dict[str, Any], data: bytes, patience: float) -> None:
        until, tries = time.monotonic() + patience, 0
        while True:
            try:
                self._send(self._url, state, about, data, self._key)
                return
            except Away:
                pause = PAUSES[min(tries, len(PAUSES) - 1)]
                if time.monotonic() + pause > until:
                    raise
                time.sleep(pause)
                tries += 1

    def _send_spooled(self, ping: dict[str, Any]) -> None:
        data = str(ping.get("data", "")).encode()
        self._send(
            str(ping.get("url")), str(ping.get("state")), dict(ping.get("about") or {}), data, str(ping.get("key"))
        )

    def _send(self, url: str, state: str, about: dict[str, Any], data: bytes, key: str) -> None:
        if state == "log" and self._run is not None:
            about = {**about, "run": self._run}
        address = f"{url}/{state}?{urlencode(about)}" if about else f"{url}/{state}"
        headers = {"Content-Type": "text/plain", "Idempotency-Key": key, "User-Agent": "horae-exec"}
        import urllib.error  # loaded by whoever sends: every other command would pay for it
        import urllib.request

        try:
            request = urllib.request.Request(address, data, headers, method="POST")  # noqa: S310
            with urllib.request.urlopen(request, timeout=TIMEOUT, context=self._context) as answer:  # noqa: S310
                told = json.loads(answer.read(1 << 16))
        except urllib.error.HTTPError as error:
            raise _fault(error) from None
        except (OSError, ValueError) as error:
            raise Away(str(getattr(error, "reason", error))) from None
        if state == "start" and url == self._url and isinstance(told, dict) and isinstance(told.get("run_id"), int):
            self._run = told["run_id"]


def _fault(error: urllib.error.HTTPError) -> Exception:
    try:
        words = str(json.loads(error.read(1 << 16)).get("detail", ""))
    except (OSError, ValueError, AttributeError):
        words = ""
    text = f"{error.code} {error.reason}{': ' if words else ''}{words}"
    is_final = 400 <= error.code < 500 and error.code not in BUSY
    return Refused(f"the ping was refused: {text}") if is_final else Away(text)
