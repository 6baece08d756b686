"""Secrets in job documents: where they may be named, and how references become values."""

from __future__ import annotations

from typing import Any

import pytest

from horae.core.secrets import fields, references
from horae.core.work import kinds, specs
from horae.errors import Invalid

STEPS = [{"run": "true"}]
REFERENCE = {"secret": "DB_PASSWORD"}


def spec_of(**fields: Any) -> Any:
    return specs.parse_job({"name": "job", **fields}).spec


def refusal(**fields: Any) -> Invalid:
    with pytest.raises(Invalid) as caught:
        spec_of(**fields)
    return caught.value


def test_a_spec_keeps_the_reference():
    spec = spec_of(steps=STEPS, env={"A": REFERENCE, "B": "text"}, files={"b": REFERENCE, "a/c": {"secret": "KEY-2"}})

    assert spec["env"] == {"A": REFERENCE, "B": "text"}
    assert list(spec["files"]) == ["a/c", "b"]
    assert references.names_in(spec) == {"DB_PASSWORD", "KEY-2"}


def test_values_take_the_place_of_references_and_the_spec_stays_as_it_is():
    spec = spec_of(steps=STEPS, env={"A": REFERENCE}, files={"b": REFERENCE})

    filled = references.filled(spec, {"DB_PASSWORD": "horse"})

    assert (filled["env"], filled["files"]) == ({"A": "horse"}, {"b": "horse"})
    assert filled["steps"] == spec["steps"]
    assert spec["env"] == {"A": REFERENCE}


def test_data_that_looks_like_a_reference_is_data():
    spec = spec_of(handler="m:f", data={"x": REFERENCE}, env={"A": {"secret": "REAL"}})

    assert references.names_in(spec) == {"REAL"}
    assert references.filled(spec, {"REAL": "v"})["data"] == {"x": REFERENCE}


@pytest.mark.parametrize(
    ("fields", "code", "path"),
    [
        ({"env": {"A": {"secret": "1x"}}}, "E_PATTERN", "env.A"),
        ({"env": {"A": {"secret": 1}}}, "E_PATTERN", "env.A"),
        ({"env": {"A": {"secret": "B", "more": 1}}}, "E_TYPE", "env.A"),
        ({"env": {"A": {"Secret": "B"}}}, "E_TYPE", "env.A"),
        ({"files": {"a": "text"}}, "E_TYPE", "files.a"),
        ({"files": {"../a": REFERENCE}}, "E_PATTERN", "files['../a']"),
        ({"files": {"/etc/passwd": REFERENCE}}, "E_PATTERN", "files['/etc/passwd']"),
        ({"files": {"a/./b": REFERENCE}}, "E_PATTERN", "files['a/./b']"),
        ({"files": {"a": REFERENCE, "a/b": REFERENCE}}, "E_FIELD_CONFLICT", "files.a"),
        ({"files": {f"f{n}": REFERENCE for n in range(51)}}, "E_LIMIT", "files"),
        ({"files": []}, "E_TYPE", "files"),
    ],
)
def test_a_reference_that_cannot_be_read_is_refused_at_its_place(fields: Any, code: str, path: str):
    error = refusal(steps=STEPS, **fields)
    assert (error.code, error.path) == (code, path)


def test_credentials_of_a_repository_may_name_secrets_and_are_shown_by_name():
    source = {"url": "https://git.example/x.git", "username": "u", "password": REFERENCE, "private_key": REFERENCE}
    spec = spec_of(kind="git_python", source=source, main_file="main.py")

    assert spec["source"]["password"] == REFERENCE
    assert kinds.shown_spec("git_python", spec)["source"]["password"] == REFERENCE
    assert kinds.kept_spec("git_python", kinds.shown_spec("git_python", spec), spec) == spec
    assert references.filled(spec, {"DB_PASSWORD": "horse"})["source"]["private_key"] == "horse"


def test_a_written_out_credential_is_still_hidden():
    source = {"url": "https://git.example/x.git", "password": "horse", "private_key": REFERENCE}
    spec = spec_of(kind="git_python", source=source, main_file="main.py")

    assert kinds.shown_spec("git_python", spec)["source"]["password"] == fields.MASK


def test_a_source_of_a_sync_that_looks_like_a_reference_is_hidden():
    assert fields.masked({"password": {"secret": "hunter2"}, "x": {"secret": "hunter2"}}) == {
        "password": fields.MASK,
        "x": {"secret": fields.MASK},
    }
