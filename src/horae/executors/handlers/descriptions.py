"""What handlers take, as a worker tells it to its agent: nobody else may import their code to see."""

from __future__ import annotations

import sys
from collections.abc import Callable

import msgspec

from horae.errors import Invalid
from horae.executors.handlers.messages import Description
from horae.handlers import Handler


def describe(name: str, resolve: Callable[[str], Handler]) -> Description:
    """Return what the handler of a name takes. One that cannot be loaded says so when it is run, not here."""
    try:
        found = resolve(name)
        schema = None if found.signature is None else found.signature.schema
    except Invalid:
        return Description(name)
    text = msgspec.json.encode(schema).decode() if schema else None
    return Description(name, text, _files(found))


def _files(found: Handler) -> list[str]:
    """Return the file of a handler and of what lies beside it in its package, as far as it is loaded."""
    home = found.origin.__module__
    package = home.rpartition(".")[0]
    near = [name for name in list(sys.modules) if name == home or (package and name.startswith(f"{package}."))]
    return sorted({file for name in near if (file := getattr(sys.modules.get(name), "__file__", None))})
