"""Secrets of specs and sources in the store: sealed, each in its place; and the texts of the store that hold such.

    sealed    as the store has it                           {"password": "sealed.v1.…"}
    opened    as the one that does the work needs it        {"password": "correct horse"}

What is secret says core.secrets.fields; rows of earlier versions are not sealed.

What must stay true: opened(sealed(x)) is x; references to named secrets stay as they are.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from horae.core.model import Json
from horae.core.secrets.fields import SECRET, change_secret_parts, has_address, is_secret, items_before, secret_texts
from horae.core.secrets.references import FREE, is_reference
from horae.errors import ConfigError

# Nothing in it ends the secret part of an address.
_SEALED = re.compile(r"sealed\.v\d+\.\w+\.[\w=-]+")
SealedPlace = Literal["job", "trigger", "source", "secret", "setting"]


class Sealed(NamedTuple):
    """A text of the store that is sealed, or whose parts are."""

    place: SealedPlace
    id: int  # of a job, also of that whose triggers it has, or a source; of a secret, its organisation
    name: str  # of a secret or setting; the kind of a job; of a source, its organisation
    text: str


class Seal(NamedTuple):
    close: Callable[[str], str]  # returns letters, digits, and `._=-`, beginning with the version of the form: v1.…
    open: Callable[[str], str]  # raises ConfigError where it cannot


def sealed(new: Json, old: Any, seal: Seal) -> Json:
    """Return a value whose secrets are sealed. One that was there before, sealed, stays what it was: nothing changes
    where nothing was changed."""
    return dict(_sealed(new, old, "", seal, is_free=False))


def _sealed(new: Any, old: Any, key: str, seal: Seal, *, is_free: bool) -> Any:
    if is_secret(key, new):
        return new if is_reference(new) and not is_free else _sealed_leaf(new, old, key, seal)
    if isinstance(new, dict):
        before = old if isinstance(old, dict) else {}
        return {
            name: _sealed(member, before.get(name), name, seal, is_free=is_free or (not key and name in FREE))
            for name, member in new.items()
        }
    if isinstance(new, list):
        pairs = zip(new, items_before(old, new), strict=True)
        return [_sealed(one, other, key, seal, is_free=is_free) for one, other in pairs]
    return _sealed_leaf(new, old, key, seal) if isinstance(new, str) and has_address(new) else new


def _sealed_leaf(new: Any, old: Any, key: str, seal: Seal) -> Any:
    if isinstance(old, str) and _holds_sealed(old, key) and (new == old or _opens_to(new, old, key, seal)):
        return old
    if key in SECRET:
        return _close(json.dumps(new), seal)
    return change_secret_parts(new, lambda part: _close(part, seal))


def _holds_sealed(text: str, key: str) -> bool:
    if key in SECRET:
        return _SEALED.fullmatch(text) is not None
    parts = list(secret_texts(text))
    return bool(parts) and all(_SEALED.fullmatch(part) for part in parts)


def _opens_to(new: Any, old: str, key: str, seal: Seal) -> bool:
    try:
        return bool(_opened(old, key, seal) == new)
    except ConfigError:
        return False


def _close(text: str, seal: Seal) -> str:
    return f"sealed.{seal.close(text)}"


def opened(value: Json, seal: Seal) -> Json:
    """Return what was sealed. ConfigError where something does not open."""
    return dict(_opened(value, "", seal))


def _opened(value: Any, key: str, seal: Seal) -> Any:
    if isinstance(value, dict):
        return {name: _opened(member, name, seal) for name, member in value.items()}
    if isinstance(value, list):
        return [_opened(item, key, seal) for item in value]
    if not isinstance(value, str):
        return value
    if key in SECRET:
        return json.loads(_open(value, seal)) if _SEALED.fullmatch(value) else value
    return change_secret_parts(value, lambda part: _open(part, seal) if _SEALED.fullmatch(part) else part)


def _open(text: str, seal: Seal) -> str:
    return seal.open(text.removeprefix("sealed."))
