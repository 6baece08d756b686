"""What handlers take, as a worker tells it to its agent: nobody else may import their code to see."""

from __future__ import annotations

import sys
from collections.abc import Callable

import msgspec

from horae.core.model import Json
from horae.errors import Invalid
from horae.executors.handlers.messages import Description
from horae.handlers import Handler, result_of


def describe(name: str, resolve: Callable[[str], Handler]) -> Description:
    """Return what the handler of a name takes. One that cannot be loaded says so when it is run, not here."""
    try:
        found = resolve(name)
        return description_of(name, found, _files(found))
    except Invalid:
        return Description(name)


def description_of(name: str, found: Handler, files: list[str]) -> Description:
    """Raises Invalid for a handler whose annotations cannot be read."""
    schema = None if found.signature is None else found.signature.schema
    said = result_of(found.function)
    return Description(name, _text(schema), files, result=_text(None if said is None else said.schema))


def _text(schema: Json | None) -> str | None:
    return msgspec.json.encode(schema).decode() if schema else None


def _files(found: Handler) -> list[str]:
    """Return the file of a handler and of what lies beside it in its package, as far as it is loaded."""
    home = found.origin.__module__
    package = home.rpartition(".")[0]
    near = [name for name in list(sys.modules) if name == home or (package and name.startswith(f"{package}."))]
    return sorted({file for name in near if (file := getattr(sys.modules.get(name), "__file__", None))})
