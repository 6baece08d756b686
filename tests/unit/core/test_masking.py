"""The masker: what it hides, and that it does so wherever a stream is cut."""

from __future__ import annotations

import base64
import json
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horae.core.secrets.masking import RELEASED, Forms, Masker, forms_of, mask, mask_json

SECRET = "tr0ub4dor&3 ähm"


def masked(forms: set[bytes], *pieces: bytes) -> bytes:
    masker = Masker(Forms(forms))
    return b"".join(map(masker.feed, pieces)) + masker.flush()


def in_one(forms: set[bytes], text: bytes) -> bytes:
    """Return what the masker must do, said plainly: every byte of every occurrence is hidden."""
    covered = [False] * len(text)
    joined = [False] * len(text)  # hidden together with the byte before it
    for form in forms:
        for at in range(len(text) - len(form) + 1):
            if text.startswith(form, at):
                for index in range(at, at + len(form)):
                    joined[index] |= index > at
                    covered[index] = True
    out = b""
    for index, byte in enumerate(text):
        if not covered[index]:
            out += bytes([byte])
        elif not joined[index]:
            out += b"***"
    return out


letters = st.binary(min_size=4, max_size=9).map(lambda raw: bytes(97 + byte % 3 for byte in raw))
streams = st.lists(letters | st.sampled_from([b"a", b"b", b"-", b""]), max_size=12)


@given(st.sets(letters, min_size=1, max_size=4), streams)
def test_the_same_bytes_come_out_wherever_the_stream_was_cut(forms: set[bytes], pieces: list[bytes]):
    assert masked(forms, *pieces) == in_one(forms, b"".join(pieces))


@given(st.sets(letters, min_size=1, max_size=4), streams)
def test_no_more_is_held_back_than_a_secret_less_one_byte(forms: set[bytes], pieces: list[bytes]):
    masker = Masker(Forms(forms))
    for piece in pieces:
        masker.feed(piece)
        assert len(masker._tail) < max(map(len, forms))


@given(st.sets(letters, min_size=1, max_size=3), streams)
def test_a_writer_that_pauses_anywhere_shows_no_secret(forms: set[bytes], pieces: list[bytes]):
    masker, out = Masker(Forms(forms)), b""
    for piece in pieces:
        shown = masker.feed(piece)
        released = masker.release()
        assert len(released) <= RELEASED
        assert masker.release() == b""
        out += shown + released
    out += masker.flush()
    assert not any(form in out for form in forms)


def test_every_split_of_a_text_hides_the_secret():
    text = b"x" + SECRET.encode() + b"y" + SECRET.encode() + SECRET.encode()[:-1] + b"z"
    forms = {SECRET.encode()}
    for first in range(len(text) + 1):
        for second in range(first, len(text) + 1):
            shown = masked(forms, text[:first], text[first:second], text[second:])
            assert shown == b"x***y***" + SECRET.encode()[:-1] + b"z"


@pytest.mark.parametrize("border", [16 * 1024, 64 * 1024])
@pytest.mark.parametrize("before", range(1, len(SECRET.encode()), 4))
def test_S31_a_secret_across_the_border_of_a_chunk_is_hidden(border: int, before: int):
    text = b"." * (border - before) + SECRET.encode() + b"." * 100
    assert masked({SECRET.encode()}, text[:border], text[border:]) == b"." * (border - before) + b"***" + b"." * 100


def test_text_that_begins_no_secret_is_not_held_back():
    masker = Masker(Forms({b"secret"}))
    assert masker.feed(b"hello\n") == b"hello\n"
    assert not masker.is_holding


def test_a_secret_written_letter_by_letter_with_pauses_shows_its_first_letters_only():
    masker, out = Masker(Forms({b"secret"})), b""
    for letter in b"secret.":
        out += masker.feed(bytes([letter])) + masker.release()
    assert out == b"se***."


@pytest.mark.parametrize("before", ["", "u:", "me:", "abc:"])
def test_its_base64_is_hidden_also_inside_of_a_longer_text(before: str):
    encoded = base64.b64encode(f"{before}{SECRET}!!".encode()).decode()
    hidden = mask(f"Authorization: Basic {encoded}", forms_of([SECRET]))
    assert "***" in hidden
    kept = hidden.removeprefix("Authorization: Basic ").replace("***", "")
    assert len(kept) <= len(encoded) - len(base64.b64encode(SECRET.encode())) + 6


@pytest.mark.parametrize("form", [quote(SECRET), quote(SECRET, safe=""), quote_plus(SECRET), json.dumps(SECRET)[1:-1]])
def test_its_url_and_json_forms_are_hidden(form: str):
    assert mask(f"<{form}>", forms_of([SECRET])) == "<***>"


def test_each_line_of_a_secret_of_several_lines_is_hidden():
    key = "-----BEGIN KEY-----\nMIIEvQIBADANBgkq\n  hkiG9w0BAQEFAASC\n-----END KEY-----\n"
    assert mask("a MIIEvQIBADANBgkq b hkiG9w0BAQEFAASC c", forms_of([key])) == "a *** b *** c"
    assert mask(f"<{key.strip()}>", forms_of([key])) == "<***>"


def test_the_line_end_after_a_secret_stays():
    assert mask(f"{SECRET}\nnext", forms_of([f"{SECRET}\n"])) == "***\nnext"


def test_what_is_too_short_is_left_alone():
    assert not forms_of(["abc", "a\nb"])
    assert mask("abc", forms_of(["abc"])) == "abc"


def test_json_stays_json_whatever_is_hidden_in_it():
    forms = forms_of(["12345", '"steps": ['])
    assert json.loads(mask_json('{"a": "x12345y"}', forms)) == {"a": "x***y"}
    assert json.loads(mask_json('{"pin": 12345}', forms)) == '{"pin": ***}'
