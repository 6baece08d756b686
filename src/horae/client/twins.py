"""What both clients share: how an answer is read as its type, and how a call becomes a method."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, get_args, get_type_hints

from horae.client import steps
from horae.client.address import Server
from horae.client.making import OrderAnswers, load_ordered
from horae.client.steps import Call
from horae.errors import Unavailable


class Plain:
    """The calls of a client, with the JSON that was sent as plain data, and all that is in it."""

    def __init__(self, client: type, perform: Callable[[Call[Any]], Any]) -> None:
        self._client = client
        self._perform = perform

    def __getattr__(self, name: str) -> Any:
        make = getattr(self._client, name).call
        return lambda *args, **given: self._perform(make(*args, **given))


def plainly(call: Call[Any], server: Server) -> Call[Any]:
    """Let answers to many orders be read as plain data while more of them come."""
    if call.answers is not None:
        call.answers.read = functools.partial(load_ordered, url=server.url)
    return call


def typed(call: Call[Any], server: Server) -> Call[Any]:
    """As plainly, in the form that has types."""
    if call.answers is not None:
        from horae.client.many import read_ordered

        call.answers.read = functools.partial(read_ordered, url=server.url)
    return call


def read_json(ended: Any, has: str, server: Server) -> Any:
    """Return what the server sent, as plain data; None where it sent nothing."""
    if isinstance(ended, OrderAnswers):
        return ended.all()
    if not isinstance(ended, bytes):
        return ended
    return steps.load(ended, has, server.url) if ended else None


def read_typed(make: Callable[..., Any], ended: Any, call: Call[Any], server: Server) -> Any:
    """Return what a call gave, as the type that it is annotated with."""
    import msgspec  # whoever only wants JSON, such as the command line, starts without

    type_, decoder = _reader_of(make)
    if type_ is type(None):
        return None
    try:
        if isinstance(ended, OrderAnswers):
            return ended.all()
        read = decoder.decode(ended) if isinstance(ended, bytes) else msgspec.convert(ended, type_)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        read_json(ended, plainly(call, server).has, server)  # raises, if this is no answer of Horae at all
        raise Unavailable(
            f"{server.url} answers in a form that horae {steps.own_version()} does not read: {error}",
            hint="use the version of the server, or upgrade the older of the two",
        ) from None
    if call.result is not None and read.state == "succeeded":
        from horae.context.results import convert_result

        read.result = convert_result(read.result, call.result)
    return read


@functools.cache
def _reader_of(make: Callable[..., Any]) -> tuple[Any, Any]:
    """Return the type of an answer, and what decodes it."""
    import msgspec

    from horae import schemas
    from horae.client import many
    from horae.schemas import explanations, forecasts, views

    modules = (schemas, forecasts, explanations, views, many)
    known = {name: it for module in modules for name, it in vars(module).items()}
    [type_] = get_args(get_type_hints(make, localns=known)["return"])
    return type_, msgspec.json.Decoder(type_)


class Late:
    """A method that is made when it is first asked for: a client has more than a hundred, and a command needs two."""

    def __init__(self, made: Callable[[], Any]) -> None:
        self._made = made

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, client: Any, owner: type) -> Any:
        method = self._made()
        setattr(owner, self._name, method)
        return method if client is None else method.__get__(client, owner)


def dress(method: Any, make: Callable[..., Any]) -> Any:
    """Give a method the name, the words and the arguments of its call, and the call itself."""
    functools.update_wrapper(method, make)
    method.call = make
    del method.__wrapped__
    own = inspect.signature(make)
    me = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    method.__signature__ = own.replace(parameters=[me, *own.parameters.values()])
    return method
