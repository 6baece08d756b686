"""Keys in a file: the Keys port over AES-256-GCM.

    secrets.key   one key per line, 32 bytes as base64, the newest first; `#` begins a comment
    sealed text   v1.<key id>.<nonce and ciphertext, base64>

The first key seals, all of them open: a new key is put before the others, and an old one may go when nothing that it
sealed is left. The id of a key is the beginning of its SHA-256, so nobody has to keep ids and keys together.

What must stay true: the file is its owner's alone, and only ever replaced as a whole, by one with a key more or with
the newest alone; a nonce is random and used once; the
context is authenticated, so a sealed text that is moved to another name does not open.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from horae.errors import ConfigError

KEY_BYTES = 32
NONCE_BYTES = 12
MAX_FILE = 64 * 1024
_VERSION = "v1"


class FileKeys:
    """The keys of a file, which is read again whenever it has changed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, int] | None = None  # of the file as it was read: when changed, how long
        self._keys: dict[str, bytes] = {}  # by id, the newest first

    def seal(self, text: str, context: str) -> str:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # slow to load

        known = self._load() or self._make()
        key_id, key = next(iter(known.items()))
        nonce = secrets.token_bytes(NONCE_BYTES)
        body = nonce + AESGCM(key).encrypt(nonce, text.encode(), context.encode())
        return f"{_VERSION}.{key_id}.{base64.b64encode(body).decode()}"

    def open(self, sealed: str, context: str) -> str:
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        version, _, rest = sealed.partition(".")
        key_id, _, body = rest.partition(".")
        if version != _VERSION:
            raise _refused("it was sealed by a newer Horae")
        key = self._load().get(key_id)
        if key is None:
            raise _refused(f"key {key_id} is needed, and {self._path} {self._inventory()}", _SAME_FILE)
        try:
            raw = base64.b64decode(body, validate=True)
            return AESGCM(key).decrypt(raw[:NONCE_BYTES], raw[NONCE_BYTES:], context.encode()).decode()
        except (InvalidTag, ValueError):
            raise _refused("what the database holds was changed there, or moved from another secret") from None

    @property
    def names(self) -> Sequence[str]:
        return list(self._load())

    def is_newest(self, sealed: str) -> bool:
        return sealed.split(".")[1:2] == self.names[:1]

    def add(self) -> None:
        if not self._load():
            self._make()
            return
        self._replace(base64.b64encode(secrets.token_bytes(KEY_BYTES)) + b"\n" + self._path.read_bytes())

    def drop_old(self) -> None:
        """Lines without a key are somebody's notes, and stay."""
        newest, lines = self.names[0], self._path.read_text(errors="replace").splitlines(keepends=True)
        kept = [line for line in lines if (key := _key_in(line)) is None or _id_of(key) == newest]
        self._replace("".join(kept).encode())

    def _replace(self, content: bytes) -> None:
        """Under its name lies either the file as it was, or as it shall be; and beside it no copy with keys."""
        path = self._path.resolve()
        try:
            try:
                os.rename(_write_part(path, content), path)
            finally:
                for left in path.parent.glob(f"{path.name}.{'[0-9a-f]' * 16}"):  # also by one that was killed
                    left.unlink()
            _sync_directory(path.parent)
        except OSError as error:
            raise _refused(f"{self._path} cannot be changed: {error.strerror}") from error

    def _inventory(self) -> str:
        if not self._keys:
            return "does not exist"
        return f"has {', '.join(self._keys)}"

    def _load(self) -> dict[str, bytes]:
        """Return what is in the file now; nothing if there is none."""
        try:
            status = self._path.stat()
            seen = status.st_mtime_ns, status.st_size
            if seen != self._seen:
                self._check(status)
                self._keys = {_id_of(key): key for key in _read_keys(self._path)}
                self._seen = seen
        except FileNotFoundError:
            self._keys, self._seen = {}, None
        except OSError as error:
            raise _refused(f"{self._path} cannot be read: {error.strerror}") from error
        return self._keys

    def _check(self, status: os.stat_result) -> None:
        if status.st_mode & 0o077:
            raise _refused(f"{self._path} can be read by others than its owner", f"chmod 600 {self._path}")
        if status.st_size > MAX_FILE:
            raise _refused(f"{self._path} is larger than {MAX_FILE // 1024} KiB")

    def _make(self) -> dict[str, bytes]:
        """Return a first key. Whole under another name before it gets its own; whoever is first stays first."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            part = _write_part(self._path, base64.b64encode(secrets.token_bytes(KEY_BYTES)) + b"\n")
            with suppress(FileExistsError):
                os.link(part, self._path)
            os.unlink(part)
            _sync_directory(self._path.parent)
        except OSError as error:
            raise _refused(f"{self._path} cannot be made: {error.strerror}") from error
        return self._load()


_SAME_FILE = "give every node the same key file with secret_key_file"


def _write_part(path: Path, content: bytes) -> Path:
    """Return the content on disk, beside the file it is for."""
    part = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    opened = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.write(opened, content)
        os.fsync(opened)
    finally:
        os.close(opened)
    return part


def _sync_directory(directory: Path) -> None:
    """A key that a crash takes away would take every secret with it."""
    opened = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _read_keys(path: Path) -> Iterator[bytes]:
    is_empty = True
    for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
        key = _key_in(line)
        if key is None:
            continue
        if len(key) != KEY_BYTES:
            hint = "`openssl rand -base64 32` makes a key"
            raise _refused(f"{path}:{number}: {KEY_BYTES} bytes as base64 expected", hint)
        is_empty = False
        yield key
    if is_empty:
        raise _refused(f"{path} holds no key", "remove the file to have one made, or restore it")


def _key_in(line: str) -> bytes | None:
    """Return what a line has for a key; None where it has none."""
    text = line.partition("#")[0].strip()
    try:
        return base64.b64decode(text, validate=True) if text else None
    except binascii.Error:
        return b""


def _id_of(key: bytes) -> str:
    return hashlib.sha256(key).hexdigest()[:8]


def _refused(message: str, hint: str = "") -> ConfigError:
    return ConfigError(f"secrets cannot be opened: {message}", code="E_SECRET_KEY", path="secret_key_file", hint=hint)
