"""The file of a form (multipart/form-data, RFC 7578): what `curl -F file=@jobs.yaml` and the forms of browsers send.

What must stay true: a form is read as it is written or not at all. One that could be read in two ways, is cut off or
holds more than one file is refused with a sentence.
"""

from __future__ import annotations

import re
from email.message import Message

from horae.errors import Malformed, MediaType

FORM = "multipart/form-data"
MAX_PARTS = 20
MAX_HEAD = 8192  # bytes of the headers of a part
_BOUNDARY = re.compile(r"[0-9A-Za-z'()+_,./:=? -]{0,69}[0-9A-Za-z'()+_,./:=?-]")
_PLAIN = ("", "7bit", "8bit", "binary")  # transfer encodings that change nothing


def is_form(content_type: str | None) -> bool:
    return (content_type or "").partition(";")[0].strip().lower() == FORM


def read_file(body: bytes, content_type: str) -> bytes:
    """Return the bytes of the one file that a form holds; other fields are ignored."""
    files = [content for name, content in map(_read_part, _split(body, _boundary(content_type))) if name is not None]
    if len(files) != 1:
        raise Malformed(f"a form with one file expected, got {len(files)}: send it as `curl -F file=@jobs.yaml`")
    return files[0]


def _boundary(content_type: str) -> bytes:
    header = Message()
    header["content-type"] = content_type
    found = header.get_boundary("")
    if not _BOUNDARY.fullmatch(found):
        raise MediaType(f"{FORM} needs a boundary of 1 to 70 characters")
    return found.encode()


def _split(body: bytes, boundary: bytes) -> list[bytes]:
    """Return the parts, each with its headers. Nothing may stand before the first line of dashes or after the last."""
    first, *parts = (b"\r\n" + body).split(b"\r\n--" + boundary)
    if first or not parts or parts[-1] not in (b"--", b"--\r\n"):
        raise Malformed("the form does not begin and end with its boundary: it may be cut off")
    if len(parts) - 1 > MAX_PARTS:
        raise Malformed(f"a form has at most {MAX_PARTS} fields, got {len(parts) - 1}")
    if not all(part.startswith(b"\r\n") for part in parts[:-1]):
        raise Malformed("a boundary of the form is not alone on its line")
    return [part[2:] for part in parts[:-1]]


def _read_part(part: bytes) -> tuple[str | None, bytes]:
    """Return the name of the file, None where it is no file, and what it holds."""
    head, found, content = part.partition(b"\r\n\r\n")
    if not found or len(head) > MAX_HEAD:
        raise Malformed(f"a field of the form has no headers, or more than {MAX_HEAD} bytes of them")
    header = Message()
    for line in head.decode("latin-1").split("\r\n"):
        name, colon, value = line.partition(":")
        if not colon or not name.strip() or name[:1].isspace():
            raise Malformed("a field of the form has a header that is none")
        header[name.strip()] = value.strip()
    if header.get_content_disposition() != "form-data":
        raise Malformed("a field of the form has no Content-Disposition: form-data")
    if str(header.get("content-transfer-encoding", "")).lower() not in _PLAIN:
        raise Malformed("a field of the form has a Content-Transfer-Encoding: send it as it is")
    return header.get_filename(), content
