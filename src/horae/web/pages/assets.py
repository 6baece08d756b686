"""The files that pages use: scripts, pictures, and one stylesheet, joined from the sheets of its parts.

They lie below a name that is made of their content (the edition): whoever has such a file need never ask for it again.
Scripts name each other without a path, and so stay within their edition. Another edition is that of a server of another
release: it gets ours, and is told not to keep it.
"""

from __future__ import annotations

import gzip
import hashlib
from pathlib import Path
from typing import NamedTuple

from horae.errors import NotFound
from horae.web import http

SHEET = "page.css"
_TYPES = {
    ".css": b"text/css; charset=utf-8",
    ".js": b"text/javascript; charset=utf-8",
    ".svg": b"image/svg+xml",
}


class Asset(NamedTuple):
    body: bytes
    packed: bytes  # with gzip
    kind: bytes
    tag: bytes


class Assets:
    def __init__(self, directory: Path) -> None:
        files = {path.name: path.read_bytes() for path in sorted(directory.iterdir()) if path.is_file()}
        files[SHEET] = b"\n".join(path.read_bytes() for path in sorted((directory / "css").iterdir()))
        self._files = files
        self._ready: dict[str, Asset] = {}  # those that were asked for
        whole = hashlib.sha256(b"".join(name.encode() + body for name, body in sorted(files.items())))
        self.edition = whole.hexdigest()[:12]

    def address(self, name: str) -> str:
        """Return where pages find a file; a name that is wrong is a fault of ours."""
        return f"/static/{self.edition}/{self._files[name] and name}"

    @property
    def packed_size(self) -> int:
        return sum(len(self._get(name).packed) for name in self._files)

    def _get(self, name: str) -> Asset:
        if name not in self._files:
            raise NotFound("there is no such file")
        if name not in self._ready:
            body = self._files[name]
            tag = b'"%b"' % hashlib.sha256(body).hexdigest()[:16].encode()
            self._ready[name] = Asset(body, gzip.compress(body, 9, mtime=0), _TYPES[Path(name).suffix], tag)
        return self._ready[name]

    async def read(self, request: http.Request) -> http.Answer:
        edition, _, name = request.scope["path_params"]["path"].rpartition("/")
        found = self._get(name)
        about = http.KEPT_ASSET if edition == self.edition else http.ASSET
        headers = [(b"etag", found.tag), (b"vary", b"accept-encoding")]
        if request.header(b"if-none-match") == found.tag.decode():
            return http.Reply(304, headers=headers, about=about)
        if "gzip" not in (request.header(b"accept-encoding") or ""):
            return http.Reply(200, found.body, found.kind, headers, about)
        return http.Reply(200, found.packed, found.kind, [*headers, (b"content-encoding", b"gzip")], about)
