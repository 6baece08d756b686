"""The tokens that `horae login` keeps: one for each server, in a file that only its owner reads.

~/.config/horae/credentials.json   {"https://horae.example.com": "horae_u_…"}
"""

from __future__ import annotations

import json
import os
import stat
from contextlib import suppress
from urllib.parse import urlsplit

from horae.errors import Error


def key_of(server: str) -> str:
    """Return a server as it stands in the file: two ways to write one address are one."""
    parts = urlsplit(server if "://" in server else f"http://{server}")
    return f"{parts.scheme}://{parts.netloc}".lower()


def saved(place: str, server: str) -> str | None:
    """Return the token that is kept for a server."""
    return _read(place).get(key_of(server))


def save(place: str, server: str, token: str | None) -> None:
    """Keep a token for a server; None takes it away. The file is replaced as a whole."""
    kept = _read(place)
    kept.pop(key_of(server), None)
    if token is not None:
        kept[key_of(server)] = token
    os.makedirs(os.path.dirname(place), mode=0o700, exist_ok=True)
    fresh = f"{place}.{os.getpid()}"
    with suppress(FileNotFoundError):
        os.unlink(fresh)
    opened = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.write(opened, json.dumps(kept, indent=1).encode() + b"\n")
        os.fsync(opened)
    finally:
        os.close(opened)
    os.replace(fresh, place)


def _read(place: str) -> dict[str, str]:
    try:
        with open(place, "rb") as file:
            mode = os.fstat(file.fileno())
            if stat.S_IMODE(mode.st_mode) & 0o077 or mode.st_uid != os.geteuid():
                raise Error(f"{place} can be read by others: it is not used", code="E_FILE", hint=f"chmod 600 {place}")
            found = json.loads(file.read(1 << 20))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise Error(f"{place} cannot be read: {error.strerror}", code="E_FILE") from None
    except ValueError:
        raise Error(f"{place} is not what `horae login` wrote", code="E_FILE", hint=f"rm {place}") from None
    return {key: text for key, text in found.items() if isinstance(text, str)} if isinstance(found, dict) else {}
