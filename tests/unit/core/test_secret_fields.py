"""Secrets that stand in specs: sealed for the store, the same as before for everybody else."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horae.core.model import Json
from horae.core.secrets import fields, sealing
from horae.core.work import kinds
from horae.errors import ConfigError, Invalid

CANARY = "kaN4rien vogel&7391"
COUNT = iter(range(1_000_000))


def close(text: str) -> str:
    """Never the same twice, as with real keys."""
    return f"v1.ab12.{base64.urlsafe_b64encode(f'{next(COUNT)} {text}'.encode()).decode()}"


def open_(sealed: str) -> str:
    version, key, body = sealed.split(".")
    assert (version, key) == ("v1", "ab12")
    return base64.urlsafe_b64decode(body).decode().split(" ", 1)[1]


def refuse(sealed: str) -> str:
    raise ConfigError(f"no key for {sealed}")


SEAL = sealing.Seal(close, open_)
ADDRESS = "postgresql://ann:kaN4rien@db.example:5432/shop?sslpassword=kaN4rien&a=1"
SPEC: dict[str, Any] = {
    "source": {"type": "database", "url": ADDRESS, "password": CANARY},
    "read": {"query": "SELECT 'https://kaN4rien@a.example/x'"},
    "destinations": [{"type": "postgresql", "url": "postgresql://h/d", "table": "t", "password": {"secret": "DW"}}],
    "options": {"api_key": CANARY, "credential": {"secret": "kaN4rien"}, "token": "", "n": 3, "secret": ["kaN4rien"]},
}


def test_nothing_secret_is_left_and_all_of_it_comes_back():
    sealed = kinds.sealed_spec("sync", SPEC, {}, SEAL)

    assert "kaN4rien" not in str(sealed)
    assert sealed["destinations"] == SPEC["destinations"]
    assert (sealed["options"]["token"], sealed["options"]["n"]) == ("", 3)
    assert kinds.opened_spec("sync", sealed, SEAL) == SPEC


def test_people_see_the_same_whether_or_not_it_is_sealed():
    sealed = kinds.sealed_spec("sync", SPEC, {}, SEAL)

    assert kinds.shown_spec("sync", sealed) == kinds.shown_spec("sync", SPEC)
    assert kinds.kept_spec("sync", kinds.shown_spec("sync", sealed), sealed) == sealed


def test_what_is_there_stays_sealed_as_it_is():
    sealed = kinds.sealed_spec("sync", SPEC, {}, SEAL)

    assert kinds.sealed_spec("sync", SPEC, sealed, SEAL) == sealed
    assert kinds.sealed_spec("sync", sealed, sealed, SEAL) == sealed
    changed = kinds.sealed_spec("sync", {**SPEC, "options": {"api_key": "new"}}, sealed, SEAL)
    assert changed["source"] == sealed["source"]
    assert kinds.opened_spec("sync", changed, SEAL)["options"] == {"api_key": "new"}


def test_what_an_earlier_version_left_open_is_sealed():
    assert kinds.opened_spec("sync", SPEC, SEAL) == SPEC
    assert "kaN4rien" not in str(kinds.sealed_spec("sync", SPEC, SPEC, SEAL))


def test_a_secret_that_looks_sealed_is_sealed_like_any_other():
    word = f"sealed.{close('x')}"
    sealed = sealing.sealed({"password": word, "url": f"http://u:{word}@h/"}, {}, SEAL)

    assert word not in str(sealed)
    assert sealing.opened(sealed, SEAL) == {"password": word, "url": f"http://u:{word}@h/"}


def test_without_the_key_nothing_opens_but_all_can_be_replaced():
    keyless = sealing.Seal(close, refuse)
    sealed = sealing.sealed({"password": CANARY}, {}, SEAL)

    with pytest.raises(ConfigError):
        sealing.opened(sealed, keyless)
    again = sealing.sealed({"password": CANARY}, sealed, keyless)
    assert sealing.opened(again, SEAL) == {"password": CANARY}


def test_of_a_shell_job_only_the_checkout_is_looked_into():
    steps = [{"name": "a", "run": "curl https://kaN4rien@h/"}]
    spec = {"steps": steps, "checkout": {"url": "https://u:kaN4rien@g.example/a"}}
    sealed = kinds.sealed_spec("shell", spec, {}, SEAL)

    assert sealed["steps"] == steps
    assert "kaN4rien" not in str(sealed["checkout"])
    assert kinds.shown_spec("shell", sealed)["checkout"] == {"url": "https://u:******@g.example/a"}
    assert kinds.sealed_spec("python", {"data": {"password": "x"}}, {}, SEAL) == {"data": {"password": "x"}}


KEYS = st.sampled_from(["password", "token", "url", "name", "options", "secret", "credential"])
TEXTS = st.one_of(st.text(max_size=8), st.sampled_from([ADDRESS, "https://tok@h/x", "jdbc:oracle:thin:u/p@h", ""]))
VALUES = st.recursive(
    st.one_of(TEXTS, st.integers(), st.none(), st.booleans()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=3)),
    max_leaves=12,
)


@given(st.dictionaries(KEYS, VALUES, max_size=4))
def test_whatever_is_sealed_opens_to_itself_and_is_shown_alike(value: dict[str, Any]):
    sealed = sealing.sealed(value, {}, SEAL)

    assert sealing.opened(sealed, SEAL) == value
    assert fields.masked(sealed) == fields.masked(value)
    assert sealing.sealed(value, sealed, SEAL) == sealed


OLD: Json = {
    "source": {"type": "database", "url": "postgresql://u:sealed@db/x", "user": "u", "password": "p", "options": {}},
    "read": {"table": "t"},
    "options": {"api_key": "k", "hosts": ["a", "b"]},
    "destinations": [{"type": "files", "path": "a"}],
}


def changed(path: str, value: Any) -> Json:
    """As people see it, with one change."""
    new: Any = json.loads(json.dumps(fields.masked(OLD)))
    *above, last = path.split(".")
    inner = new
    for name in above:
        inner = inner[int(name)] if name.isdigit() else inner[name]
    inner[last] = value
    return new  # type: ignore[no-any-return]


@pytest.mark.parametrize(("path", "value"), [("read.table", "other"), ("read.limit", 7), ("destinations.0.path", "b")])
def test_a_hidden_secret_is_kept_while_it_goes_where_it_went(path: str, value: Any) -> None:
    found = fields.kept(changed(path, value), OLD)

    assert (found["source"]["password"], found["options"]["api_key"]) == ("p", "k")
    assert found["source"]["url"] == OLD["source"]["url"]


@pytest.mark.parametrize(
    ("path", "value"),
    [("source.url", "postgresql://evil.example/x"), ("source.user", "root"), ("source.type", "rest"),
     ("source.host", "evil.example"), ("source.port", 4711), ("source.proxy", "evil.example"),
     ("options.hosts", ["a", "evil.example"]), ("options.endpoint", "evil.example"), ("read.note", "http://evil.example"),
     ("destinations.0.type", "s3")],
)  # fmt: skip
def test_a_hidden_secret_must_be_given_again_where_host_address_or_user_change(path: str, value: Any) -> None:
    with pytest.raises(Invalid) as caught:
        fields.kept(changed(path, value), OLD)

    assert caught.value.code == "E_SECRET_AGAIN"
    assert caught.value.path in ("source.url", "source.password", "options.api_key")
    assert "evil" not in caught.value.message


def test_a_secret_that_is_given_again_may_go_elsewhere() -> None:
    new = {"url": "https://other.example", "password": "new"}

    assert fields.kept(new, {"url": "https://db.example", "password": "p"}) == new


def test_secrets_do_not_change_places_with_each_other() -> None:
    old = {"destinations": [{"host": "a", "password": "of a"}, {"host": "b", "password": "of b"}]}
    swapped = {"destinations": [{"host": "b", "password": fields.MASK}, {"host": "a", "password": fields.MASK}]}

    with pytest.raises(Invalid) as caught:
        fields.kept(swapped, old)

    assert caught.value.code == "E_SECRET_AGAIN"
