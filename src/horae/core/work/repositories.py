"""Addresses of git repositories and names within them: what may be given to git, and what it could take for more.

What must stay true: nothing that passes here is an option to git, or names a transport that runs a program.
"""

from __future__ import annotations

import re
from typing import Any

from horae.core.fields import Fields, without_empty
from horae.core.model import Json
from horae.core.secrets.references import text_or_reference

MAX_URL = 2048
MAX_REF = 255
MAX_KEY = 64 * 1024  # characters of a private key
CREDENTIALS = frozenset({"username", "password", "private_key"})

# No transport that runs a command of its own, nothing that git takes for an option or a path.
_ADDRESS = re.compile(
    r"(?:https?|ssh)://(?:[\w.~%!$&'()*+,;=:-]+@)?(?:[A-Za-z0-9][A-Za-z0-9.-]*|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?/\S+"
    r"|file:///\S+"
    r"|[A-Za-z0-9_][\w.-]*@[A-Za-z0-9][A-Za-z0-9.-]*:[^\s:-]\S*"
)
_WORD = re.compile(r"[A-Za-z0-9_][\w.-]*")
# The rules of git check-ref-format, and no sign that means something to a shell or in a refspec.
_REF = re.compile(
    r"(?!.*(?:\.\.|@\{|//|/\.|\.lock(?:/|$)))(?!@$)[A-Za-z0-9_][^\s~^:?*\[\\\x00-\x20\x7f]*(?<![/.])",
)
_COMMIT = re.compile("[0-9a-f]{7,64}")
_HASH = re.compile("[0-9a-f]{40}|[0-9a-f]{64}")  # the whole of it
_EXPECTED = "the address of a git repository expected: https://, http://, ssh://, file:/// or git@host:path"


def is_address(text: str) -> bool:
    return _ADDRESS.fullmatch(text) is not None


def is_commit(ref: str) -> bool:
    """Return whether a ref may be the hash of a commit, or its beginning: such a one is fetched, for it cannot be
    cloned by name."""
    return _COMMIT.fullmatch(ref) is not None


def pushed_commit(data: Any, url: str) -> str | None:
    """Return the commit that a run is for, if its data tells of a push to this repository (core.hooks): that is what is
    built, whatever its branch is by then. A push to another repository changes nothing."""
    if not isinstance(data, dict) or data.get("event") != "push":
        return None
    commit, name = data.get("commit"), data.get("repository")
    if not isinstance(commit, str) or not _HASH.fullmatch(commit) or not isinstance(name, str) or not name:
        return None
    path = url.rstrip("/").removesuffix(".git").lower()
    return commit if path.endswith((f"/{name.lower()}", f":{name.lower()}")) else None


def read_url(fields: Fields, *, may_be_word: bool = False) -> str | None:
    """Return the field `url`. With `may_be_word`, a bare word is kept for the agent to refuse: one contract's own
    sample has such an address."""
    if "url" not in fields.values:
        fields.fault("url", "E_REQUIRED", "the url of a git repository is needed")
    url = fields.text("url", MAX_URL)
    if url is None or is_address(url) or (may_be_word and _WORD.fullmatch(url)):
        return url
    fields.fault("url", "E_PATTERN", f"{_EXPECTED}, not an option or a helper program")
    return None


def read_ref(fields: Fields, name: str) -> str | None:
    """Return the name of a branch or tag, or the hash of a commit (7 digits of it or more)."""
    ref = fields.text(name, MAX_REF)
    if ref is None or _REF.fullmatch(ref):
        return ref
    fields.fault(name, "E_PATTERN", "the name of a branch or tag, or the hash of a commit, expected")
    return None


def read_credentials(fields: Fields) -> Json:
    """Return who asks a git server for a repository, beside its url."""
    username = fields.text("username", MAX_URL)
    password = text_or_reference(fields, "password", lambda: fields.text("password", MAX_URL))
    private_key = text_or_reference(fields, "private_key", lambda: fields.lines("private_key", MAX_KEY))
    return without_empty({}, username=username, password=password, private_key=private_key)
