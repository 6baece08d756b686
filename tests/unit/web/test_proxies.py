"""From where a request came, as a reverse proxy tells it: who is believed, and what."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horae.web.proxies import NOBODY, Proxies, Sender

OURS = Proxies(("10.0.0.0/24", "127.0.0.1", "2001:db8:1::/64"))
PROXY, CLIENT = "10.0.0.7", "192.0.2.7"


def sender(peer: str = PROXY, proxies: Proxies = OURS, **headers: str | list[str]) -> Sender:
    """`x_forwarded_for` is the header of that name; a list is one that was sent more than once."""
    sent = [
        (name.replace("_", "-"), value)
        for name, values in headers.items()
        for value in ([values] if isinstance(values, str) else values)
    ]
    return proxies.sender(peer, sent)


def test_a_proxy_that_is_named_is_believed() -> None:
    assert sender(x_forwarded_for=CLIENT, x_forwarded_proto="https") == (CLIENT, "https")
    assert sender(forwarded=f"for={CLIENT};proto=https;by=10.0.0.7;host=horae.example") == (CLIENT, "https")
    assert sender(peer="127.0.0.1", x_forwarded_for=CLIENT) == (CLIENT, None)
    assert sender(peer="2001:db8:1::5", x_forwarded_for="2001:db8:2::5") == ("2001:db8:2::5", None)
    assert sender(peer="::ffff:10.0.0.7", x_forwarded_for=CLIENT) == (CLIENT, None)
    assert sender(x_forwarded_proto="https") == (PROXY, "https")
    assert sender() == (PROXY, None)


@pytest.mark.parametrize("peer", ["10.0.1.7", "192.0.2.1", "::1", "2001:db8:2::5", "", "unix:", "fe80::1%eth0"])
def test_nobody_else_is(peer: str) -> None:
    told = {"x_forwarded_for": CLIENT, "x_forwarded_proto": "https", "forwarded": f"for={CLIENT};proto=https"}
    assert sender(peer, **told) == (peer, None)
    assert sender(PROXY, NOBODY, **told) == (PROXY, None)


@pytest.mark.parametrize(
    ("listed", "found"),
    [
        ("198.51.100.9, 192.0.2.7", CLIENT),  # what the client said of itself stands left
        ("198.51.100.9, 192.0.2.7, 10.0.0.9", CLIENT),  # two of our proxies, one behind the other
        ("10.0.0.1, 192.0.2.7, 10.0.0.9", CLIENT),
        ("not an address, 192.0.2.7", CLIENT),
        ("10.0.0.3, 10.0.0.9", "10.0.0.3"),  # one of ours asks
        (["198.51.100.9", "192.0.2.7,10.0.0.9"], CLIENT),
        ("192.0.2.7:4711", CLIENT),
        ("[2001:db8:2::5]:4711", "2001:db8:2::5"),
        ("2001:0DB8:2:0::5", "2001:db8:2::5"),
        ("::ffff:192.0.2.7", CLIENT),
        ("\t 192.0.2.7 ", CLIENT),
    ],
)
def test_of_a_list_the_right_most_that_is_no_proxy_of_ours_counts(listed: str | list[str], found: str) -> None:
    assert sender(x_forwarded_for=listed) == (found, None)


@pytest.mark.parametrize(
    "listed",
    ["", ",", "unknown", "192.0.2.7,", "192.0.2", "192.0.2.256", "a.example", "192.0.2.7 198.51.100.9", "-1", "1234567",
     "192.0.2.7:port", "192.0.2.0/24", "fe80::1%eth0", "192.0.2.7\0", "'192.0.2.7'", "x, 10.0.0.9", "[192.0.2.7", "é"],
)  # fmt: skip
def test_a_list_that_cannot_be_read_is_ignored(listed: str) -> None:
    assert sender(x_forwarded_for=listed) == (PROXY, None)


@pytest.mark.parametrize("scheme", ["", "https,http", "wss", "ftp", "https;", ["https", "http"], ["https", "https"]])
def test_a_scheme_that_cannot_be_read_is_ignored(scheme: str | list[str]) -> None:
    assert sender(x_forwarded_for=CLIENT, x_forwarded_proto=scheme) == (CLIENT, None)


@pytest.mark.parametrize(
    ("written", "found"),
    [
        ('for="192.0.2.7:4711"', (CLIENT, None)),
        ('For="[2001:db8:2::5]:4711" ; Proto=HTTPS', ("2001:db8:2::5", "https")),
        ("for=198.51.100.9;proto=https, for=192.0.2.7;proto=http, for=10.0.0.9;proto=https", (CLIENT, "http")),
        (["for=198.51.100.9", "for=192.0.2.7"], (CLIENT, None)),
        ('by="a, b; c=\\"d\\"";for=192.0.2.7', (CLIENT, None)),
        ("for=unknown", (PROXY, None)),
        ("for=_hidden, for=10.0.0.9", (PROXY, None)),
        ("for=192.0.2.7;for=198.51.100.9", (PROXY, None)),
        ("by=10.0.0.7", (PROXY, None)),
        ("proto=https", (PROXY, "https")),
        ("", (PROXY, None)),
        ("192.0.2.7", (PROXY, None)),
        ("for=192.0.2.7,", (PROXY, None)),
        ("for=192.0.2.7;", (PROXY, None)),
        ('for="192.0.2.7', (PROXY, None)),
        ("for=192.0.2.7 proto=https", (PROXY, None)),
        ("for=[2001:db8:2::5]", (PROXY, None)),
    ],
)
def test_the_header_of_the_standard_is_read_as_that_says(
    written: str | list[str], found: tuple[str, str | None]
) -> None:
    assert sender(forwarded=written) == found


def test_a_header_that_our_proxy_does_not_set_and_passes_on_cannot_name_another() -> None:
    assert sender(x_forwarded_for=CLIENT, forwarded="for=198.51.100.9") == (PROXY, None)
    assert sender(x_forwarded_for="garbage", forwarded=f"for={CLIENT}") == (PROXY, None)
    assert sender(x_forwarded_for=CLIENT, forwarded="for=unknown") == (PROXY, None)
    assert sender(x_forwarded_for=CLIENT, x_forwarded_proto="http", forwarded=f"for={CLIENT};proto=https") == (
        CLIENT,
        None,
    )
    assert sender(x_forwarded_for=CLIENT, x_forwarded_proto="https", forwarded=f"for={CLIENT}") == (CLIENT, "https")


@given(st.text(max_size=200), st.text(max_size=200), st.text(max_size=200))
def test_no_text_breaks_it(listed: str, scheme: str, written: str) -> None:
    found = sender(x_forwarded_for=listed, x_forwarded_proto=scheme, forwarded=written)
    assert found.scheme in (None, "http", "https")
    assert found.address


@pytest.mark.parametrize("piece", ['a="\\', 'a="', "a=b;", "a=b,", "for=10.0.0.1,", " ", "[", ":", "1.", '\\"'])
def test_reading_what_a_proxy_tells_is_linear(piece: str) -> None:
    text = piece * (32_768 // len(piece))
    began = time.process_time()
    sender(x_forwarded_for=text, forwarded=text)
    assert time.process_time() - began < 1


def test_what_a_request_brings_is_replaced_only_by_who_is_believed() -> None:
    headers = [(b"x-forwarded-for", b"192.0.2.7"), (b"x-forwarded-proto", b"https")]
    scope = {"client": (PROXY, 4711), "scheme": "http", "headers": headers}
    OURS.believe(scope)
    assert (scope["client"], scope["scheme"]) == ((CLIENT, 0), "https")
    for client in (("192.0.2.1", 4711), None):
        scope = {"client": client, "scheme": "http", "headers": headers}
        OURS.believe(scope)
        assert (scope["client"], scope["scheme"]) == (client, "http")
