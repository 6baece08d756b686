"""Dependency injection by type, for handlers that are classes.

    @provider
    def codebooks() -> Codebooks:        # made once per worker process, when somebody first asks for it
        return Codebooks("https://codebooks.example")

    @handler
    class RefreshHandler:
        def __init__(self, codebooks: Codebooks, logger: logging.Logger) -> None: …

A parameter gets what is provided for exactly its type: by the run (`known`), else by a provider, else its default.
Providers may ask for what other providers make. Everything that cannot be given is named, with its type.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, get_type_hints

from horae.errors import Invalid

P = TypeVar("P", bound=Callable[..., Any])
Known = Mapping[Any, Callable[[], Any]]  # type → how to make it

_NOTHING: Known = {}
_providers: dict[Any, Callable[..., Any]] = {}
_made: dict[Callable[..., Any], Any] = {}


def provider(function: P) -> P:
    """Make a plain function the provider of what its return annotation names. It stays callable as it was."""
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        raise _refused(f"the provider {function.__qualname__} must be a plain function", "write def, and return it")
    kind = _hints(function, function.__qualname__).get("return")
    if kind in (None, type(None)):
        raise _refused(
            f"the provider {function.__qualname__} does not say what it provides", "annotate what it returns"
        )
    other = _providers.get(kind)
    if other is not None and _place(other) != _place(function):
        raise _refused(f"{_place(other)} and {_place(function)} both provide {_shown(kind)}")
    _providers[kind] = function
    return function


def build(cls: type[Any], known: Known) -> Any:
    """Return an instance of a class whose constructor gets what it asks for."""
    if cls.__init__ is object.__init__:
        return cls()
    return cls(**_arguments(cls.__init__, cls.__qualname__, known, ()))


def _arguments(function: Callable[..., Any], whose: str, known: Known, trail: tuple[Any, ...]) -> dict[str, Any]:
    hints = _hints(function, whose)
    given = {}
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name == "self" or parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        kind = hints.get(parameter.name)
        if kind in known:
            given[parameter.name] = known[kind]()
        elif kind in _providers:
            given[parameter.name] = _provide(kind, whose, trail)
        elif parameter.default is parameter.empty:
            raise _unknown(whose, parameter.name, kind)
    return given


def _provide(kind: Any, whose: str, trail: tuple[Any, ...]) -> Any:
    function = _providers[kind]
    if kind in trail:
        circle = " → ".join(map(_shown, (*trail, kind)))
        raise _refused(f"{whose} needs {_shown(kind)}, whose providers go round in a circle: {circle}")
    if function not in _made:
        _made[function] = function(**_arguments(function, function.__qualname__, _NOTHING, (*trail, kind)))
    return _made[function]


def _unknown(whose: str, name: str, kind: Any) -> Invalid:
    if kind is None:
        return _refused(f"{whose} needs {name!r}, which says no type", "annotate it: what is given depends on its type")
    return _refused(
        f"{whose} needs {name!r} of the type {_shown(kind)}, and nothing provides that",
        f"write @provider above a function that returns {_shown(kind)}",
    )


def _hints(function: Callable[..., Any], whose: str) -> dict[str, Any]:
    try:
        return get_type_hints(function)
    except Exception as error:
        raise _refused(f"the annotations of {whose} cannot be read: {error}", "import what they name") from None


def _shown(kind: Any) -> str:
    return f"{kind.__module__}.{kind.__qualname__}" if isinstance(kind, type) else str(kind)


def _place(function: Callable[..., Any]) -> str:
    code = inspect.unwrap(function).__code__
    return f"{code.co_filename}:{function.__qualname__}"


def _refused(message: str, hint: str = "") -> Invalid:
    return Invalid(message, code="E_HANDLER", hint=hint)
