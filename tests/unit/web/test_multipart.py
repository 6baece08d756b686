"""The file of a form: read as it is written, or not at all."""

from __future__ import annotations

import random

import pytest

from horae.errors import Error, Malformed, MediaType
from horae.web import multipart

KIND = "multipart/form-data; boundary=B"
FILE = b'--B\r\nContent-Disposition: form-data; name="f"; filename="jobs.yaml"\r\n\r\njobs:\r\n--b\n\r\n--B--\r\n'


def test_the_file_is_given_as_it_is() -> None:
    assert multipart.read_file(FILE, KIND) == b"jobs:\r\n--b\n"
    assert multipart.read_file(FILE, 'Multipart/Form-Data; charset=x; boundary="B"') == b"jobs:\r\n--b\n"


def test_other_fields_are_ignored() -> None:
    field = b'--B\r\ncontent-disposition: form-data; name="a"\r\n\r\n1\r\n'
    assert multipart.read_file(field + FILE, KIND) == b"jobs:\r\n--b\n"


@pytest.mark.parametrize(
    ("kind", "is_one"),
    [(KIND, True), ("MULTIPART/form-data", True), ("application/yaml", False), (None, False), ("", False)],
)
def test_a_form_is_known_by_its_type(kind: str | None, is_one: bool) -> None:
    assert multipart.is_form(kind) == is_one


@pytest.mark.parametrize("kind", ["multipart/form-data", "multipart/form-data; boundary=", f"{KIND}{'b' * 70}"])
def test_a_form_without_a_boundary_is_refused(kind: str) -> None:
    with pytest.raises(MediaType):
        multipart.read_file(FILE, kind)


@pytest.mark.parametrize(
    "body",
    [
        b"", b"jobs: []", FILE[:-6], b"x" + FILE, FILE + b"x", FILE.replace(b"--B\r\n", b"--B \r\n", 1),
        FILE.replace(b"form-data", b"attachment"), FILE.replace(b"Content-Disposition", b" no"),
        FILE.replace(b"\r\n\r\n", b"\r\nContent-Transfer-Encoding: base64\r\n\r\n", 1),
        FILE.replace(b"; filename", b"; other"), FILE.replace(b"--B--\r\n", FILE), b"--B--\r\n",
        FILE.replace(b"\r\n\r\n", b"\r\nX: " + b"y" * 9000 + b"\r\n\r\n", 1),
        b'--B\r\nContent-Disposition: form-data; name="a"\r\n\r\n1\r\n' * 30 + FILE,
    ],
)  # fmt: skip
def test_what_could_be_read_in_two_ways_is_refused(body: bytes) -> None:
    with pytest.raises(Malformed):
        multipart.read_file(body, KIND)


def test_whatever_comes_is_read_or_refused() -> None:
    chance, read, refused = random.Random(1), 0, 0
    for _ in range(2000):
        body = bytearray(FILE)
        for _ in range(chance.randint(1, 4)):
            at = chance.randrange(len(body))
            body[at : at + chance.randint(0, 5)] = chance.randbytes(chance.randint(0, 5))
        try:
            read += isinstance(multipart.read_file(bytes(body), KIND), bytes)
        except Error:
            refused += 1
    assert read + refused == 2000
    assert read > 100
    assert refused > 100
