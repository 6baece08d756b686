"""What the constructor of a class handler gets: by type, from the run, from providers, or a clear refusal."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import pytest

from horae import injection
from horae.errors import Invalid
from horae.injection import build, provider


class Clock: ...


@dataclass
class Client:
    clock: Clock


@pytest.fixture(autouse=True)
def no_providers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(injection, "_providers", {})
    monkeypatch.setattr(injection, "_made", {})


def refusal(cls: type) -> Invalid:
    with pytest.raises(Invalid) as caught:
        build(cls, {})
    assert caught.value.code == "E_HANDLER"
    return caught.value


def test_a_class_without_constructor_is_just_made() -> None:
    assert isinstance(build(Clock, {}), Clock)


def test_providers_get_what_they_ask_for_and_are_asked_once() -> None:
    asked = []

    @provider
    def clock() -> Clock:
        asked.append("clock")
        return Clock()

    @provider
    def client(clock: Clock) -> Client:
        return Client(clock)

    class Handler:
        def __init__(self, client: Client, clock: Clock) -> None:
            self.client, self.clock = client, clock

    one, other = build(Handler, {}), build(Handler, {})
    assert one.client.clock is one.clock is other.clock
    assert asked == ["clock"]


def test_what_the_run_gives_goes_first_and_defaults_last() -> None:
    class Handler:
        def __init__(self, logger: logging.Logger, size: int = 10) -> None:
            self.logger, self.size = logger, size

    mine = logging.getLogger("mine")
    made = build(Handler, {logging.Logger: lambda: mine})
    assert (made.logger, made.size) == (mine, 10)


def test_a_type_that_nobody_provides_is_named_with_its_parameter() -> None:
    class Handler:
        def __init__(self, clock: Clock) -> None: ...

    error = refusal(Handler)
    assert "Handler needs 'clock' of the type tests.unit.test_injection.Clock" in error.message
    assert "@provider" in error.hint


def test_a_parameter_without_type_is_named() -> None:
    class Handler:
        def __init__(self, clock) -> None: ...  # type: ignore[no-untyped-def]

    assert "needs 'clock', which says no type" in refusal(Handler).message


def test_an_annotation_that_names_nothing_is_refused() -> None:
    class Handler:
        def __init__(self, clock: Nobody) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    assert "annotations of" in refusal(Handler).message


def test_a_provider_cannot_ask_for_what_belongs_to_one_run() -> None:
    @provider
    def client(logger: logging.Logger) -> Client:
        raise AssertionError

    class Handler:
        def __init__(self, client: Client, logger: logging.Logger) -> None: ...

    with pytest.raises(Invalid, match=r"needs 'logger' of the type logging\.Logger"):
        build(Handler, {logging.Logger: lambda: logging.getLogger()})


def test_providers_that_need_each_other_are_refused() -> None:
    @provider
    def clock(client: Client) -> Clock:
        raise AssertionError

    @provider
    def client(clock: Clock) -> Client:
        raise AssertionError

    class Handler:
        def __init__(self, clock: Clock) -> None: ...

    assert "circle" in refusal(Handler).message


def test_two_providers_of_one_type_are_refused_by_name() -> None:
    @provider
    def clock() -> Clock:
        return Clock()

    with pytest.raises(Invalid, match="both provide"):

        @provider
        def other() -> Clock:
            return Clock()


def test_a_provider_is_a_plain_function_that_says_what_it_returns() -> None:
    with pytest.raises(Invalid, match="plain function"):

        @provider
        async def later() -> Clock:
            return Clock()

    with pytest.raises(Invalid, match="does not say what it provides"):

        @provider
        def nothing():  # type: ignore[no-untyped-def]
            return Clock()


def test_a_provider_that_failed_is_asked_again() -> None:
    answers = iter([None, Clock()])

    @provider
    def clock() -> Clock:
        found = next(answers)
        if found is None:
            raise ConnectionError("not yet")
        return found

    class Handler:
        def __init__(self, clock: Clock) -> None:
            self.clock = clock

    with pytest.raises(ConnectionError):
        build(Handler, {})
    assert isinstance(build(Handler, {}).clock, Clock)
