"""Secrets that stand in specs and sources as they were sent, not named (core.secrets.references): what is secret, and
what people see of it.

    masked    as people see it                              {"password": "******"}
    sealed    as the store has it                           {"password": "sealed.v1.…"}      (core.secrets.sealing)

Both agree about what is secret: fields of certain names as a whole, and within any text the secret part of an address.
So `masked` is the same of what is sealed and what is not. Which parts of a spec are looked into says core.work.kinds.

What must stay true: unmasked(masked(x), x) is x; references to named secrets stay as they are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from horae.core.fields import join
from horae.core.model import Json
from horae.errors import Invalid

MASK = "******"
SECRET = frozenset({
    "password", "private_key", "access_token", "refresh_token", "api_key", "aws_secret_access_key", "credential",
    "secret_access_key", "client_secret", "connection_uri", "passphrase", "secret", "token",
})  # fmt: skip
# Within an address: what is kept of it, then what is hidden. Whatever is read ahead ends before the next place where
# one may begin, so a text is read once; of Oracle's form that cannot be said (see _oracle).
_IN_ADDRESS = re.compile(
    r"(?P<password>://[^/@\s:]*:)[^/\s]+(?=@)"
    r"|(?P<token>https?://)[^/@\s:]+(?=@)"
    r"|(?P<query>[?&;](?:\w*password|\w*token|\w*secret|\w*key|pwd)=)[^&;\s]+",
    re.IGNORECASE,
)
_ORACLE = re.compile("jdbc:oracle:thin:", re.IGNORECASE)  # then user/password@
_USER_END, _PASSWORD_END = re.compile(r"[/@\s]"), re.compile(r"[@\s]")


def _secret_parts(text: str) -> Iterator[tuple[int, int]]:
    """From where to where the secret parts of addresses stand, in order."""
    oracle, at = _oracle(text), 0
    one, other = _address(text, 0), next(oracle, None)
    while one is not None or other is not None:
        if other is None or (one is not None and one[0] < other[0]):
            assert one is not None
            _, begin, at = one
        else:
            _, begin, at = other
        yield begin, at
        one = _address(text, at) if one is not None and one[0] < at else one
        while other is not None and other[0] < at:
            other = next(oracle, None)


def _address(text: str, at: int) -> tuple[int, int, int] | None:
    """Return where the next address begins, and its secret begins and ends."""
    found = _IN_ADDRESS.search(text, at)
    return (found.start(), found.end(found.lastgroup or 0), found.end()) if found else None


def _oracle(text: str) -> Iterator[tuple[int, int, int]]:
    """The same for every address of Oracle. What ends one part is looked for once, whoever asks."""
    user_end = password_end = -1
    for found in _ORACLE.finditer(text):
        user_end = user_end if user_end >= found.end() else _end(_USER_END, text, found.end())
        begin = user_end + 1
        if user_end == found.end() or text[user_end:begin] != "/":
            continue
        password_end = password_end if password_end >= begin else _end(_PASSWORD_END, text, begin)
        if begin < password_end and text[password_end : password_end + 1] == "@":
            yield found.start(), begin, password_end


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    found = pattern.search(text, at)
    return found.start() if found else len(text)


def has_address(text: str) -> bool:
    return next(_secret_parts(text), None) is not None


def change_secret_parts(text: str, change: Callable[[str], str]) -> str:
    """Return a text whose secret parts are changed."""
    parts, at = [], 0
    for begin, end in _secret_parts(text):
        parts += [text[at:begin], change(text[begin:end])]
        at = end
    return "".join((*parts, text[at:]))


def is_secret(key: str, value: Any) -> bool:
    return key in SECRET and value not in ("", None)


# ── seen by people ─────────────────────────────────────────────────────────────────────────────────


def masked(value: Any, key: str = "") -> Any:
    """Return a spec or the settings of a source, as people may see it: without secrets, also those within addresses."""
    if is_secret(key, value):
        return MASK
    if isinstance(value, dict):
        return {name: masked(member, name) for name, member in value.items()}
    if isinstance(value, list):
        return [masked(item, key) for item in value]
    return change_secret_parts(value, lambda _: MASK) if isinstance(value, str) else value


def secret_texts(value: Any, key: str = "") -> Iterator[str]:
    """The secrets that `masked` hides."""
    if isinstance(value, dict):
        for name, member in value.items():
            yield from secret_texts(member, name)
    elif isinstance(value, list):
        for item in value:
            yield from secret_texts(item, key)
    elif isinstance(value, str) and key in SECRET:
        yield value
    elif isinstance(value, str):
        for begin, end in _secret_parts(value):
            yield value[begin:end]


def unmasked(new: Any, old: Any, key: str = "") -> Any:
    """Return the changed value, where every secret that comes back hidden is the one that was there."""
    if isinstance(new, dict):
        before = old if isinstance(old, dict) else {}
        return {name: unmasked(member, before.get(name), name) for name, member in new.items()}
    if isinstance(new, list):
        return [unmasked(one, other, key) for one, other in zip(new, items_before(old, new), strict=True)]
    is_hidden = isinstance(new, str) and MASK in new
    return old if is_hidden and old is not None and masked(old, key) == new else new


def items_before(old: Any, new: list[Any]) -> list[Any]:
    """Return what stood in the places of the items of a list, if anything is known of it."""
    return old if isinstance(old, list) and len(old) == len(new) else [None] * len(new)


def refuse_hidden(value: Any, key: str = "", path: str = "") -> None:
    """A hidden secret can stand for the one that is kept, if any; it is none itself."""
    if (hidden := _hidden(value, key, path)) is not None:
        message = f"{MASK} stands for a secret that was here before, and there was none such"
        raise Invalid(f"{hidden}: {message}", code="E_FIELD_CONFLICT", hint="send the secret itself", path=hidden)


def _hidden(value: Any, key: str = "", path: str = "") -> str | None:
    """Return where a secret stands as people see it, if one does."""
    if isinstance(value, dict):
        inner = (_hidden(member, name, join(path, name)) for name, member in value.items())
        return next((found for found in inner if found is not None), None)
    if isinstance(value, list):
        return next((found for item in value if (found := _hidden(item, key, path)) is not None), None)
    is_hidden = isinstance(value, str) and MASK in value and (key in SECRET or has_address(value))
    return path if is_hidden else None


# Fields that say where a secret is sent, as whom, and by which means.
_PLACE = re.compile(
    r"url|uri|host|server|end_?point|entry_?point|address|domain|proxy|user|login|account|e_?mail|bucket|driver"
    r"|(?:^|_)(?:port|type|class)(?:_|$)",
    re.IGNORECASE,
)


def _places(value: Any, key: str = "", path: str = "") -> Iterator[tuple[str, Any]]:
    """(path, as people see it) of all such fields, and of texts with an address in them."""
    if key in SECRET:
        return
    if _PLACE.search(key) or (isinstance(value, str) and "://" in value):
        yield path, masked(value, key)
    elif isinstance(value, dict):
        for name, member in value.items():
            yield from _places(member, name, join(path, name))
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from _places(item, path=join(path, str(number)))


def kept(new: Json, old: Json, path: str = "") -> Json:
    """Return a changed value with every secret it needs. One that comes back hidden is kept only where nothing says
    that it goes elsewhere now: who may change a job must not learn its secrets by sending them to a place of their
    own."""
    found = dict(unmasked(new, old))
    if found != new:
        before, after = dict(_places(old)), dict(_places(new))
        moved = next((path for path in sorted(before | after) if before.get(path) != after.get(path)), None)
        if moved is not None and (hidden := _hidden(new, path=path)) is not None:
            raise Invalid(
                f"{hidden}: {MASK} keeps the secret only while host, address and user stay as they were, and {moved} "
                "is another",
                code="E_SECRET_AGAIN",
                hint="send the secret itself",
                path=hidden,
            )
    refuse_hidden(found, path=path)
    return found
